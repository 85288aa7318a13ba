"""Ranking of families: fit all, sort by one criterion, average over curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from venturi.errors import FitError
from venturi.model._search import DEFAULT_SEARCH, Search, search
from venturi.model.curve import Curve, pack
from venturi.model.family import Array, Family
from venturi.model.fit import Fit, RejectedFit, fit_many

__all__ = [
    "Criterion",
    "FamilyMean",
    "RankedFit",
    "Ranking",
    "cross_validate",
    "mean_over_curves",
    "rank",
    "rank_many",
]

Criterion = Literal["r_squared", "r_squared_adjusted", "aicc", "cross_validation"]
LARGER_IS_BETTER = {"r_squared": True, "r_squared_adjusted": True, "aicc": False, "cross_validation": False}


class RankedFit(NamedTuple):
    """One family in a ranking."""

    fit: Fit
    score: float
    """Value of the criterion. NaN or infinite if the curve has too few points for it."""


@dataclass(frozen=True, eq=False)
class Ranking:
    """All families fitted to one curve, best first.

    Attributes
    ----------
    curve, criterion
        The fitted curve and the sort criterion.
    entries
        Fits in order, best first. Failed fits come after the others. Fits without a finite score come last, in the
        order of the families.
    rejected
        Families that were not fitted, with the reason.
    """

    curve: Curve
    criterion: Criterion
    entries: tuple[RankedFit, ...]
    rejected: tuple[RejectedFit, ...]

    @property
    def best(self) -> Fit:
        """First entry.

        Raises
        ------
        FitError
            If no family has a finite score.
        """
        if not self.entries or not np.isfinite(self.entries[0].score):
            raise FitError(f"{self.curve.name}: no family has a finite {self.criterion} on {len(self.curve)} points")
        return self.entries[0].fit


def rank(curve: Curve, families: Sequence[Family], *, criterion: Criterion = "aicc", folds: int | None = None,
         settings: Search = DEFAULT_SEARCH) -> Ranking:  # fmt: skip
    """Fit every family to one curve and sort the fits.

    Parameters
    ----------
    curve, families
        Curve, and families such as ``families_for("files")``.
    criterion
        ``r_squared`` (as in document 000; never prefers fewer parameters), ``r_squared_adjusted``, ``aicc``, or
        ``cross_validation``.
    folds
        Number of seeded folds for cross-validation. The default is leave-one-out.
    settings
        Effort of the search, and the seed.

    Examples
    --------
    >>> import numpy as np
    >>> from venturi.model import families_for
    >>> files = np.array([1.0, 2, 5, 10, 15, 20, 25, 30])
    >>> order = rank(Curve(files, 9e8 / files * np.array([1.01, .99, 1.02, .98, 1.01, .99, 1.01, .99])),
    ...              families_for("files"))
    >>> order.best.family.name
    'share'
    """
    return rank_many([curve], families, criterion=criterion, folds=folds, settings=settings)[0]


def rank_many(curves: Sequence[Curve], families: Sequence[Family], *, criterion: Criterion = "aicc",
              folds: int | None = None, settings: Search = DEFAULT_SEARCH) -> list[Ranking]:  # fmt: skip
    """Rank the families on each of many curves together; see `rank`."""
    if criterion not in LARGER_IS_BETTER:
        raise FitError(f"expected one of {', '.join(LARGER_IS_BETTER)}, found {criterion!r}")
    entries: list[list[RankedFit]] = [[] for _ in curves]
    rejected: list[list[RejectedFit]] = [[] for _ in curves]
    for family in families:
        outcomes = fit_many(curves, family, settings=settings)
        fits = [outcome for outcome in outcomes if isinstance(outcome, Fit)]
        scores = iter(_scores(fits, family, criterion, folds, settings))
        for lane, outcome in enumerate(outcomes):
            if isinstance(outcome, Fit):
                entries[lane].append(RankedFit(outcome, next(scores)))
            else:
                rejected[lane].append(outcome)
    sign = -1.0 if LARGER_IS_BETTER[criterion] else 1.0

    def index(entry: RankedFit) -> tuple[bool, bool, float]:
        finite = bool(np.isfinite(entry.score))
        return not finite, finite and entry.fit.failed, sign * entry.score if finite else 0.0

    return [Ranking(curve, criterion, tuple(sorted(listed, key=index)), tuple(left_out))
            for curve, listed, left_out in zip(curves, entries, rejected, strict=True)]  # fmt: skip


def _scores(
    fits: list[Fit], family: Family, criterion: Criterion, folds: int | None, settings: Search
) -> list[float]:
    if criterion == "cross_validation":
        return cross_validate([fit.curve for fit in fits], family, folds=folds, settings=settings)
    return [float(getattr(fit.goodness, criterion)) for fit in fits]


def cross_validate(curves: Sequence[Curve], family: Family, *, folds: int | None = None,
                   settings: Search = DEFAULT_SEARCH) -> list[float]:  # fmt: skip
    """Return the cross-validated error of one family on each curve.

    Each point is predicted by a fit without that point.

    Parameters
    ----------
    curves, family, settings
        As in `rank`.
    folds
        Number of folds. ``settings.seed`` assigns the points to folds. The default is leave-one-out.

    Returns
    -------
    list of float
        Root mean square of the held-out errors, weighted like the fit, in units of y. Infinite if a fold leaves fewer
        points than parameters.
    """
    if folds is not None and folds < 2:
        raise FitError(f"expected at least 2 folds, found {folds}")
    owners: list[int] = []
    held: list[Array] = []
    errors = [float("inf")] * len(curves)
    for index, curve in enumerate(curves):
        groups = _deal(len(curve), folds, settings.seed)
        if all(len(curve) - len(group) >= len(family.parameters) for group in groups) and family.usable(curve.x):
            owners += [index] * len(groups)
            held += groups
    if not owners:
        return errors
    with np.errstate(all="ignore"):
        squares = _held_out([curves[index] for index in owners], family, held, settings)
    for index in dict.fromkeys(owners):
        weight = curves[index].weight ** 2
        mine = [square for owner, square in zip(owners, squares, strict=True) if owner == index]
        total = sum(mine) / float(weight.sum())
        errors[index] = float(np.sqrt(total)) if np.isfinite(total) else float("inf")
    return errors


def _deal(n: int, folds: int | None, seed: int) -> list[Array]:
    if folds is None or folds >= n:
        return [np.array([point]) for point in range(n)]
    order = np.random.default_rng(seed).permutation(n)
    return [order[start::folds] for start in range(folds)]


def _held_out(curves: list[Curve], family: Family, held: list[Array], settings: Search) -> list[float]:
    """Return the weighted sum of squared errors at the held-out points of each case."""
    weights = [curve.weight.copy() for curve in curves]
    for weight, group in zip(weights, held, strict=True):
        weight[group] = 0.0
    batch = pack(curves, scales_x=family.scales_x, scales_y=family.scales_y, weights=weights)
    ended = search(family, batch, settings)
    values = np.array(family.expand(ended.theta, ended.amplitudes, batch.x_scale, batch.y_scale)) * np.ones(
        len(curves)
    )
    predicted = family.value(batch.points.x * batch.x_scale, values) * np.ones(batch.points.y.shape)
    return [float((curve.weight[group] ** 2) @ (curve.y[group] - predicted[group, lane]) ** 2)
            for lane, (curve, group) in enumerate(zip(curves, held, strict=True))]  # fmt: skip


class FamilyMean(NamedTuple):
    """Mean of one family over many curves, as in table III of document 000."""

    family: Family
    mean_r_squared: float
    """Mean of R² over the curves with a fit of this family."""
    mean_r_squared_printed: float
    """Mean of the printed form of equation (4) over these curves."""
    mean_score: float
    """Mean of the criterion over the curves with a finite value; NaN without such curves."""
    curves: int
    """Number of curves fitted."""
    wins: int
    """Number of curves with this family in first place."""


def mean_over_curves(rankings: Sequence[Ranking]) -> list[FamilyMean]:
    """Return the mean R² of each family over the curves, best mean score first.

    Families with fits on more curves come first, because means over different curves are not comparable.
    """
    if not rankings:
        return []
    by_family: dict[Family, list[RankedFit]] = {}
    wins: dict[Family, int] = {}
    for ranking in rankings:
        for index, entry in enumerate(ranking.entries):
            by_family.setdefault(entry.fit.family, []).append(entry)
            wins[entry.fit.family] = wins.get(entry.fit.family, 0) + (index == 0 and bool(np.isfinite(entry.score)))
    rows = [_mean(family, entries, wins[family]) for family, entries in by_family.items()]
    sign = -1.0 if LARGER_IS_BETTER[rankings[0].criterion] else 1.0
    return sorted(
        rows, key=lambda row: (-row.curves, sign * row.mean_score if np.isfinite(row.mean_score) else np.inf)
    )


def _mean(family: Family, entries: list[RankedFit], wins: int) -> FamilyMean:
    finite = [entry.score for entry in entries if np.isfinite(entry.score)]
    return FamilyMean(
        family,
        float(np.mean([entry.fit.goodness.r_squared for entry in entries])),
        float(np.mean([entry.fit.goodness.r_squared_printed for entry in entries])),
        float(np.mean(finite)) if finite else float("nan"),
        len(entries),
        wins,
    )
