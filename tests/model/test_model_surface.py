"""Rate as a function of size, files and streams."""

from __future__ import annotations

import numpy as np
import pytest

from venturi.errors import FitError, RangeError
from venturi.model import FAMILIES, NULL_SURFACES, SURFACES, SURFACES_WITH_STREAMS, Curve, fit, profile, rank

# Grid of document 000, scenario 2.
SIZES = np.array([0.01, 0.1, 0.2, 0.5, 1, 2]) * 1e9
FILES = np.array([1.0, 2, 5, 10, 15, 20, 25, 30])
STREAMS = np.array([1.0, 5, 10])
TRUTH = {
    "surface-shared": [4e8, 0.6, 1.2],
    "surface-logins": [4e8, 0.4, 0.05],
    "surface-stages": [4e8, 0.6, 7e7],
    "surface-streams": [4e8, 0.6, 2e7],
    "surface-power": [1e6, 0.3, -0.8],
    "surface-constant": [1e8],
}


def grid(*axes):
    return np.array([each.ravel() for each in np.meshgrid(*axes, indexing="ij")])


def made_by(family, x, noise=0.0, seed=0):
    parameters = [*TRUTH[family.name], 0.1][: len(family.parameters)]
    exact = family.value(x[..., None], np.array(parameters)[:, None])[:, 0]
    rng = np.random.default_rng(seed)
    return parameters, Curve(x, exact * (1 + noise * rng.standard_normal(x.shape[1])), exact, family.name)


@pytest.mark.parametrize("family", SURFACES, ids=lambda family: family.name)
def test_noiseless_surfaces_are_recovered(family):
    parameters, curve = made_by(family, grid(SIZES, FILES))
    assert list(fit(curve, family).parameters.values()) == pytest.approx(parameters, rel=1e-7)


@pytest.mark.parametrize("family", SURFACES_WITH_STREAMS, ids=lambda family: family.name)
def test_noiseless_surfaces_with_streams_are_recovered(family):
    parameters, curve = made_by(family, grid(SIZES, FILES, STREAMS))
    assert list(fit(curve, family).parameters.values()) == pytest.approx(parameters, rel=1e-7)


@pytest.mark.parametrize("family", SURFACES[:3], ids=lambda family: family.name)
@pytest.mark.parametrize("criterion", ["aicc", "cross_validation"])
def test_the_surface_that_made_the_points_beats_the_others_and_the_null(family, criterion):
    _, curve = made_by(family, grid(SIZES, FILES), noise=0.05)
    order = rank(curve, SURFACES, criterion=criterion, folds=6)
    assert order.best.family is family
    scores = {entry.fit.family: entry.score for entry in order.entries}
    assert all(scores[null] > scores[family] for null in NULL_SURFACES)


def test_the_constant_surface_wins_for_data_without_dependence():
    x = grid(SIZES, FILES)
    rng = np.random.default_rng(5)
    order = rank(Curve(x, 1e8 * (1 + 0.05 * rng.standard_normal(x.shape[1]))), SURFACES)
    assert order.best.family.name == "surface-constant"


def test_intervals_of_a_surface_contain_its_planted_parameters():
    family = SURFACES[0]
    parameters, curve = made_by(family, grid(SIZES, FILES), noise=0.05, seed=8)
    found = fit(curve, family)
    intervals = profile(found, level=0.99)
    for name, planted in zip(family.parameters, parameters, strict=True):
        assert intervals[name].low < planted < intervals[name].high


def test_a_surface_rejects_predictions_outside_the_range_of_a_variable():
    _, curve = made_by(SURFACES[0], grid(SIZES, FILES))
    found = fit(curve, SURFACES[0])
    assert found.predict(np.array([[1e8, 1e9], [3.0, 12.0]])).value.shape == (2,)
    with pytest.raises(RangeError):
        found.predict(np.array([[1e8], [31.0]]))


def test_families_reject_points_with_another_number_of_variables():
    _, curve = made_by(SURFACES[0], grid(SIZES, FILES))
    with pytest.raises(FitError, match="expected x with 1 variables, found 2"):
        fit(curve, FAMILIES["setup"])
    with pytest.raises(FitError, match="expected x with 3 variables, found 2"):
        fit(curve, SURFACES_WITH_STREAMS[0])
    with pytest.raises(FitError, match="expected x with 2 or 3 variables, found 1"):
        fit(Curve(FILES, FILES), SURFACES[0])
