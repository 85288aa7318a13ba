"""Ranking by every criterion and over many curves, and closed forms of cross-validation."""

from __future__ import annotations

import numpy as np
import pytest

import venturi.model
from venturi.errors import FitError
from venturi.model import (
    FAMILIES,
    PAPER_FAMILIES,
    Curve,
    cross_validate,
    families_for,
    mean_over_curves,
    rank,
    rank_many,
)

FILES = np.array([1.0, 2, 5, 10, 15, 20, 25, 30, 35, 40, 45])


def noisy(family, parameters, count, noise=0.02, x=FILES, seed=0):
    rng = np.random.default_rng(seed)
    exact = FAMILIES[family].value(x[:, None], np.array(parameters)[:, None])[:, 0]
    return [Curve(x, exact * (1 + noise * rng.standard_normal(len(x))), noise * exact, f"{family}-{index}")
            for index in range(count)]  # fmt: skip


@pytest.mark.parametrize(
    ("family", "parameters"),
    [
        ("exponential-sum", [3e8, 0.6, 1e8, 0.02]),
        ("power", [4e8, -0.7]),
        ("share", [7e8]),
        ("share-capped", [7e8, 6e7]),
        ("overload", [1e8, 0.06, 0.002]),
    ],
)
def test_aicc_mostly_finds_the_family_that_made_the_curve(family, parameters):
    rankings = rank_many(noisy(family, parameters, 40), families_for("files"))
    assert sum(each.best.family.name == family for each in rankings) >= 26


def test_r_squared_never_prefers_a_line_to_a_cubic_but_aicc_can():
    curve = noisy("linear", [3e8, -2e6], 1)[0]
    lines = [FAMILIES["linear"], FAMILIES["cubic"]]
    assert rank(curve, lines, criterion="r_squared").best.family.name == "cubic"
    assert rank(curve, lines, criterion="aicc").best.family.name == "linear"


def test_leave_one_out_of_a_linear_model_is_the_closed_form():
    # PRESS: the held-out error is e_i/(1 - h_ii), with h the hat matrix (Allen 1974).
    rng = np.random.default_rng(2)
    x, y, sigma = np.arange(8.0), rng.standard_normal(8), rng.uniform(0.5, 2, 8)
    design = np.vander(x, 3) / sigma[:, None]
    hat = design @ np.linalg.pinv(design)
    errors = (y / sigma - hat @ (y / sigma)) / (1 - np.diag(hat))
    expected = np.sqrt(errors @ errors / np.sum(1 / sigma**2))
    assert cross_validate([Curve(x, y, sigma)], FAMILIES["quadratic"])[0] == pytest.approx(expected, rel=1e-9)


def test_folds_are_assigned_by_the_seed_and_cover_every_point_once():
    curve = noisy("setup", [1.0, 1e8], 1, x=np.geomspace(1e7, 2e9, 12))[0]
    one, two = (cross_validate([curve], FAMILIES["setup"], folds=4)[0] for _ in range(2))
    assert one == two
    assert one == pytest.approx(cross_validate([curve], FAMILIES["setup"])[0], rel=0.5)
    assert cross_validate([curve], FAMILIES["setup"], folds=12) == cross_validate([curve], FAMILIES["setup"])


def test_cross_validation_rejects_a_family_with_too_few_points_left():
    curve = Curve(FILES[:4], np.array([4.0, 2, 1, 0.5]))
    assert cross_validate([curve], FAMILIES["cubic"]) == [float("inf")]
    with pytest.raises(FitError, match="at least 2 folds"):
        cross_validate([curve], FAMILIES["linear"], folds=1)


def test_cross_validation_ranks_the_simple_truth_above_the_flexible_shape():
    rankings = rank_many(noisy("share", [7e8], 20), [FAMILIES["share"], FAMILIES["gaussian-2"], FAMILIES["cubic"]],
                         criterion="cross_validation")  # fmt: skip
    assert sum(each.best.family.name == "share" for each in rankings) >= 18


def test_undefined_scores_are_ranked_last():
    # Six points: AICc of a family with four parameters (and the variance) is infinite.
    curve = noisy("exponential-sum", [3e8, 0.6, 1e8, 0.02], 1, x=FILES[:6])[0]
    entries = rank(curve, PAPER_FAMILIES).entries
    finite = [np.isfinite(entry.score) for entry in entries]
    assert finite == sorted(finite, reverse=True)
    assert not all(finite)


@pytest.mark.parametrize("criterion", ["aicc", "r_squared", "cross_validation"])
def test_failed_fits_are_ranked_last(criterion):
    # The noise does not depend on x. The falling share has one parameter fewer than a line, and fits the points worse
    # than their mean.
    rng = np.random.default_rng(4)
    curve = Curve(FILES, 1e8 * (1 + 0.02 * rng.standard_normal(len(FILES))))
    entries = rank(curve, families_for("files"), criterion=criterion).entries
    failed = [entry.fit.failed for entry in entries if np.isfinite(entry.score)]
    assert any(failed)
    assert failed == sorted(failed)
    assert not entries[0].fit.failed


def test_there_is_no_best_fit_without_comparable_scores():
    curve = Curve(FILES[:3], FILES[:3])
    with pytest.raises(FitError, match="aicc on 3 points"):
        _ = rank(curve, [FAMILIES["linear"]]).best


def test_rejected_families_are_listed_with_the_reason():
    listed = rank(Curve(np.array([0.0, 1, 2, 3]), np.ones(4)), [FAMILIES["power"], FAMILIES["linear"]])
    assert [(each.family.name, "x > 0" in each.reason) for each in listed.rejected] == [("power", True)]


def test_mean_over_curves_has_the_form_of_table_3():
    rankings = rank_many(noisy("exponential-sum", [3e8, 0.6, 1e8, 0.02], 12, noise=0.05), PAPER_FAMILIES,
                         criterion="r_squared")  # fmt: skip
    rows = mean_over_curves(rankings)
    by_name = {row.family.name: row for row in rows}
    one = by_name["exponential-sum"]
    values = [entry.fit.goodness.r_squared for each in rankings for entry in each.entries
              if entry.fit.family.name == "exponential-sum"]  # fmt: skip
    assert one.mean_r_squared == pytest.approx(np.mean(values))
    assert one.curves == 12
    assert one.mean_r_squared > 0.95 > by_name["linear"].mean_r_squared
    assert sum(row.wins for row in rows) == 12
    assert [row.mean_score for row in rows] == sorted((row.mean_score for row in rows), reverse=True)


def test_a_family_rejected_on_some_curves_is_ranked_after_families_fitted_to_all():
    short = Curve(FILES[:3], np.array([3.0, 2, 1.2]))
    rankings = rank_many([*noisy("power", [1e8, -0.5], 2), short], [FAMILIES["cubic"], FAMILIES["linear"]],
                         criterion="r_squared")  # fmt: skip
    assert [row.family.name for row in mean_over_curves(rankings)] == ["linear", "cubic"]


def test_an_unknown_criterion_is_rejected():
    with pytest.raises(FitError, match="aicc"):
        rank(Curve(FILES, FILES), [FAMILIES["linear"]], criterion="bic")


def test_the_public_names_match_the_expected_list():
    assert set(venturi.model.__all__) == {
        "DEFAULT_SEARCH", "EXHAUSTIVE_SEARCH", "FAMILIES", "NULL_SURFACES", "PAPER_FAMILIES", "SURFACES",
        "SURFACES_WITH_STREAMS", "Curve", "RankedFit", "Family", "FamilyMean", "Fit", "Goodness", "HeldOutErrors", "Holds",
        "NewPoints", "ParameterInterval", "SavedFit", "held_out_errors", "verdict", "Prediction",
        "Ranking", "RejectedFit", "Search", "Span", "Terms", "cross_validate", "families_for", "family_named", "family_of",
        "fit", "fit_many", "assess", "mean_over_curves", "profile", "profile_many", "rank", "rank_many",
    }  # fmt: skip
