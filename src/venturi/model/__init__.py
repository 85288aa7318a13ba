"""Fitted functions with their uncertainty and range of validity.

Pure numerics on arrays. The package does not depend on backends or runs, and prints nothing. Read `Fit` first.

========================  ==========================================================================================
`Curve`                   points x, y and standard errors, in base units
`FAMILIES`                trial functions by name; `families_for("files")` chooses by the kind of x
`PAPER_FAMILIES`          polynomial, power, exponential, Gaussian: those of document 000
`family_of`               any analytic function as a family
`fit`, `fit_many`         weighted least squares, amplitudes projected out, seeded starts -> `Fit`
`Fit.predict`             the curve with its band; outside the fitted range only on request
`profile`                 profile-likelihood intervals of the parameters
`rank`, `rank_many`       all families on one or many curves by R², adjusted R², AICc or cross-validation -> `Ranking`
`mean_over_curves`        mean R² by family over curves, the form of table III of document 000
`SavedFit`                a fit without its points, which predicts new measurements with an interval
`held_out_errors`         errors of predictions for measurements that a model has not seen; `verdict` decides
`SURFACES`                rate over size and files together, ranked by `rank` against a constant and a power product
========================  ==========================================================================================

Errors in x, robust losses and Bayesian priors are not supported. Pass many curves in one call, because every operation
runs over all starts of all curves together. This is much faster than single calls.

>>> import numpy as np
>>> from venturi.model import Curve, families_for, profile, rank
>>> size_bytes = np.array([1e7, 1e8, 2e8, 5e8, 1e9, 2e9])
>>> noise = 1 + 0.01 * np.array([1, -1, 1, -1, 1, -1])
>>> order = rank(Curve(size_bytes, noise * size_bytes / (2 + size_bytes / 1e8)), families_for("size"))
>>> order.best.family.name
'setup'
>>> interval = profile(order.best)["t0"]
>>> interval.low < 2 < interval.high
True
>>> order.best.predict(4e9)  # doctest: +IGNORE_EXCEPTION_DETAIL
Traceback (most recent call last):
venturi.errors.RangeError: setup was fitted to curve for x in [1e+07, 2e+09]; found 4e+09. Measure there, or ...
"""

from venturi.model._search import DEFAULT_SEARCH, EXHAUSTIVE_SEARCH, Search
from venturi.model.curve import Curve
from venturi.model.custom import family_of
from venturi.model.families import FAMILIES, PAPER_FAMILIES, families_for, family_named
from venturi.model.family import Family, Span, Terms
from venturi.model.fit import Fit, Prediction, RejectedFit, fit, fit_many
from venturi.model.goodness import Goodness, assess
from venturi.model.held_out import HeldOutErrors, Holds, held_out_errors, verdict
from venturi.model.profile import ParameterInterval, profile, profile_many
from venturi.model.rank import FamilyMean, RankedFit, Ranking, cross_validate, mean_over_curves, rank, rank_many
from venturi.model.saved import NewPoints, SavedFit
from venturi.model.surface import NULL_SURFACES, SURFACES, SURFACES_WITH_STREAMS

__all__ = [
    "DEFAULT_SEARCH",
    "EXHAUSTIVE_SEARCH",
    "FAMILIES",
    "NULL_SURFACES",
    "PAPER_FAMILIES",
    "SURFACES",
    "SURFACES_WITH_STREAMS",
    "Curve",
    "Family",
    "FamilyMean",
    "Fit",
    "Goodness",
    "HeldOutErrors",
    "Holds",
    "NewPoints",
    "ParameterInterval",
    "Prediction",
    "RankedFit",
    "Ranking",
    "RejectedFit",
    "SavedFit",
    "Search",
    "Span",
    "Terms",
    "assess",
    "cross_validate",
    "families_for",
    "family_named",
    "family_of",
    "fit",
    "fit_many",
    "held_out_errors",
    "mean_over_curves",
    "profile",
    "profile_many",
    "rank",
    "rank_many",
    "verdict",
]
