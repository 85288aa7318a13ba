"""Points, totals, curves and surfaces compared with planted values and hand calculation."""

import math
import re

import numpy as np
import pytest
from planted import SHARED_BYTES_PER_S, planted_run, product

from venturi.analysis import AnalyseOptions, analyse
from venturi.analysis.curves import best_families
from venturi.analysis.intervals import trial_interval
from venturi.analysis.result import FamilyFit
from venturi.errors import ScenarioError

FILES = [1, 2, 5, 10, 15, 20, 25, 30]
SIZES = [10**6, 10**7, 10**8]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    run = planted_run(tmp_path_factory.mktemp("share"), product(files=FILES, size_bytes=SIZES))
    return run, analyse(run)


def test_the_planted_share_model_fits_best_on_every_curve_against_files(shared):
    _, analysis = shared
    curves = [curve for curve in analysis.curves if curve.against == "files"]
    assert len(curves) == len(SIZES)
    assert {curve.best.family for curve in curves} == {"share"}
    for curve in curves:
        error = curve.best.errors["B"]
        assert abs(curve.best.parameters["B"] - SHARED_BYTES_PER_S) < 4 * error
    row = next(row for row in analysis.best_families if row.against == "files")
    assert row.by_criterion.family == "share"
    assert row.by_criterion.mean_r2 > 0.999


def test_a_family_without_aicc_does_not_win_a_tie(shared):
    _, analysis = shared
    rows = [
        FamilyFit("files", name, name, len(SIZES), 0.9, 0.9, delta, 1)
        for name, delta in (("unknown", None), ("far", 3.0), ("close", 2.0))
    ]
    (row,) = best_families(analysis.curves, rows, "aicc")
    assert row.by_criterion.family == "close"


def test_the_summary_names_the_planted_family_and_the_fewest_and_most_files(shared):
    _, analysis = shared
    assert re.match(r"With files of 100 MB, one cp at a time moves (99\d MB|1 GB|1\.0\d GB)/s", analysis.conclusion)
    assert "30 in parallel" in analysis.conclusion
    assert "is best described by share (B/x), first on 3 of 3 curves" in analysis.conclusion
    assert analysis.caveat == ""


def test_points_equal_the_estimators_computed_by_hand_from_the_table(shared):
    run, analysis = shared
    point = next(p for p in analysis.points if p.files == 5 and p.size_bytes == 10**7)
    rows = run.query("SELECT slot, duration_s AS t FROM transfers WHERE point = ?", [point.point])
    means, errors = [], []
    for slot in range(5):
        times = rows["t"][rows["slot"] == slot]
        mean, error = times.mean(), times.std(ddof=1) / math.sqrt(len(times))
        means.append(1e7 / mean)
        errors.append(1e7 / mean**2 * error)
    weights = 1 / np.array(errors) ** 2
    assert point.throughput_bytes_per_s == pytest.approx((weights @ means) / weights.sum(), rel=1e-12)
    assert point.error_internal_bytes_per_s == pytest.approx(weights.sum() ** -0.5, rel=1e-12)
    assert point.plain_mean_bytes_per_s == pytest.approx(np.mean(means), rel=1e-12)


def test_the_rate_of_a_trial_is_bytes_over_the_time_from_first_start_to_last_end(shared):
    run, analysis = shared
    point = next(p for p in analysis.points if p.files == 10 and p.size_bytes == 10**8)
    rows = run.query("SELECT trial, start_s, end_s FROM transfers WHERE point = ?", [point.point])
    rates, tails = [], []
    for trial in set(rows["trial"]):
        own = rows["trial"] == trial
        rates.append(10 * 1e8 / (rows["end_s"][own].max() - rows["start_s"][own].min()))
        tails.append(rows["end_s"][own].max() - rows["end_s"][own].min())
    assert point.together_bytes_per_s == pytest.approx(np.mean(rates), rel=1e-12)
    assert point.tail_s == pytest.approx(np.mean(tails), rel=1e-12)
    assert point.files_times_bytes_per_s == pytest.approx(10 * point.throughput_bytes_per_s)


def test_the_total_of_table_iv_equals_the_mean_over_the_grid_by_hand(shared):
    _, analysis = shared
    by_hand = np.mean([p.files * p.throughput_bytes_per_s for p in analysis.points])
    (total,) = analysis.totals
    assert total.mean_bytes_per_s == pytest.approx(by_hand, rel=1e-12)
    assert (total.points, total.complete, total.files_low, total.files_high) == (24, True, 1, 30)
    assert analysis.common_totals == ()


def test_totals_over_more_than_30_files_are_also_given_like_for_like(tmp_path):
    law = lambda f, rng: f["size_bytes"] * (1.0 if f["files"] <= 30 else 2.0) / 1e6  # noqa: E731
    analysis = analyse(planted_run(tmp_path, product(files=[1, 30, 45], size_bytes=[10**6]), law, repeat=2))
    assert analysis.totals[0].mean_bytes_per_s == pytest.approx((1e6 + 30e6 + 22.5e6) / 3)
    assert analysis.common_totals[0].mean_bytes_per_s == pytest.approx((1e6 + 30e6) / 2)


def test_trial_values_have_the_mean_and_the_standard_error_of_the_throughput(tmp_path):
    """This also holds with failed transfers, where slots have different numbers of times.

    The two values come from different code.
    """
    fails = lambda f, repetition, slot: "lost" if (repetition + slot) % 5 == 0 else None  # noqa: E731
    analysis = analyse(
        planted_run(tmp_path, product(files=[1, 4, 9], size_bytes=[10**6, 10**7]), fails=fails, repeat=7)
    )
    for point in analysis.points:
        values = analysis.trials.throughput_bytes_per_s[analysis.trials.point == point.point]
        assert np.mean(values) == pytest.approx(point.throughput_bytes_per_s, rel=1e-9)
        scatter = np.std(values, ddof=1) / math.sqrt(len(values))
        assert scatter == pytest.approx(point.error_trial_bytes_per_s, rel=1e-9)


@pytest.mark.parametrize("n", [4, 8, 40])
def test_the_coverage_of_intervals_matches_their_level(n):
    rng = np.random.default_rng(n)
    hits = 0
    for _ in range(400):
        interval = trial_interval(rng.normal(100.0, 10.0, n), level=0.9)
        hits += interval.contains(100.0)
    # Binomial: 400 × 0.9 ± 3.3 deviations of 6.
    assert 340 <= hits <= 382


def test_no_interval_is_given_for_two_trials_and_a_rate_cannot_be_negative():
    assert trial_interval(np.array([1.0, 2.0]), level=0.95) is None
    for few in (3, 10):
        assert trial_interval(np.array([1.0, *(few - 1) * [100.0]]), level=0.95).low > 0


def test_the_time_of_zero_size_files_is_subtracted(tmp_path):
    law = lambda f, rng: (0.5 + f["size_bytes"] / 1e7) * (1 + 0.001 * rng.standard_normal())  # noqa: E731
    analysis = analyse(planted_run(tmp_path, product(files=[1, 2], size_bytes=[0, 10**6, 10**8]), law))
    by_size = {(p.files, p.size_bytes): p for p in analysis.points}
    for files in (1, 2):
        assert by_size[files, 0].throughput_bytes_per_s is None
        corrected = by_size[files, 10**6].zero_size
        assert corrected.outcome == "corrected"
        assert corrected.zero_time_s == pytest.approx(0.5, rel=0.005)
        assert abs(corrected.throughput_bytes_per_s - 1e7) < 4 * corrected.error_bytes_per_s
        assert by_size[files, 10**6].throughput_bytes_per_s == pytest.approx(1e6 / 0.6, rel=0.005)


def test_one_function_of_size_and_files_recovers_the_planted_fixed_cost_and_bottleneck(tmp_path):
    law = lambda f, rng: (0.2 + f["files"] * f["size_bytes"] / 1e9) * (1 + 0.01 * rng.standard_normal())  # noqa: E731
    analysis = analyse(planted_run(tmp_path, product(files=FILES, size_bytes=[10**6, 10**7, 10**8, 10**9]), law))
    (surface,) = analysis.surfaces
    assert surface.parameters["B"] == pytest.approx(1e9, rel=0.05)
    assert surface.parameters["t0"] == pytest.approx(0.2, rel=0.05)
    assert surface.worst_ratio < 1.1


def test_the_total_saturates_where_it_was_planted(tmp_path):
    law = lambda f, rng: f["size_bytes"] * max(f["files"] / 5, 1) / 1e8 * (1 + 0.002 * rng.standard_normal())  # noqa: E731
    analysis = analyse(planted_run(tmp_path, product(files=[1, 2, 5, 10, 20], size_bytes=[10**8]), law))
    (load,) = analysis.loads
    assert (load.saturation.outcome, load.saturation.load) == ("reached", 5)
    assert load.steps[0].ratio == pytest.approx(2.0, rel=0.02)
    assert "total stops rising at 5 files" in analysis.conclusion


def test_movers_that_run_together_are_also_reported_separately(tmp_path):
    law = lambda f, rng: f["size_bytes"] / (3e8 if f["call"] == "read" else 1e8)  # noqa: E731
    scenario = {"study": "infn-gpfs/group1"}
    points = product(mover=["read", "read+write"], files=[1, 5], size_bytes=[10**7])
    analysis = analyse(planted_run(tmp_path, points, law, scenario=scenario, repeat=2))
    both = next(p for p in analysis.points if p.factors["mover"] == "read+write" and p.files == 1)
    assert {part.mover: round(part.throughput_bytes_per_s) for part in both.parts} == {"read": 3e8, "write": 1e8}
    assert both.together_bytes_per_s == pytest.approx(2e7 / 0.1)
    published = {rate.name: rate for rate in analysis.published_rates}["reading and writing, one file"]
    assert published.ours_low_bytes_per_s == pytest.approx(1e8)
    assert published.ours_high_bytes_per_s == pytest.approx(
        1e8
    )  # bytes over the trial, including the wait of the reading part


def test_a_point_with_files_of_different_sizes_has_no_throughput_per_file(tmp_path):
    fractions = {"requested_bytes": lambda slot: 1.0 + slot}
    analysis = analyse(planted_run(tmp_path, product(files=[3], size_bytes=[10**6]), per_transfer=fractions))
    (point,) = analysis.points
    assert point.throughput_bytes_per_s is None
    assert point.together_bytes_per_s > 0
    assert "different sizes" in point.absent[0]
    assert "mixed-sizes" in {finding.code for finding in analysis.findings}


def test_four_points_are_ranked_by_adjusted_r2_because_aicc_does_not_exist_there(tmp_path):
    law = lambda f, rng: (0.05 + f["files"] * f["size_bytes"] / 1e9) * (1 + 0.001 * rng.standard_normal())  # noqa: E731
    analysis = analyse(planted_run(tmp_path, product(files=[1, 2, 5, 10], size_bytes=[10**7]), law))
    curve = next(curve for curve in analysis.curves if curve.against == "files")
    assert curve.ranked_by == "adjusted_r2"
    assert curve.best.family != "share"
    assert curve.best.degrees_of_freedom > 0
    assert all(row.mean_r2 is None for row in analysis.families if row.family == "cubic" and row.against == "files")
    assert "few-points" in {finding.code for finding in analysis.findings}


def test_options_override_the_scenario_and_a_wrong_criterion_is_rejected(shared):
    run, _ = shared
    options = AnalyseOptions(confidence=0.9, against=("files",), families=("share", "power"), criterion="r2")
    analysis = analyse(run, options)
    assert {curve.against for curve in analysis.curves} == {"files"}
    assert {fit.family for curve in analysis.curves for fit in curve.fits} == {"share", "power"}
    assert analysis.points[0].interval.level == 0.9
    with pytest.raises(ScenarioError, match=r"analyse\.criterion: expected one of aicc, r2"):
        analyse(run, AnalyseOptions(criterion="r3"))
