"""Points, totals, curves and surfaces against planted truth and hand calculation."""

import math

import numpy as np
import pytest
from planted import SHARED_BYTES_PER_S, planted_run, product

from venturi.analysis import AnalyseOptions, analyse
from venturi.analysis.intervals import trial_interval
from venturi.errors import ScenarioError

FILES = [1, 2, 5, 10, 15, 20, 25, 30]
SIZES = [10**6, 10**7, 10**8]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    run = planted_run(tmp_path_factory.mktemp("share"), product(files=FILES, size_bytes=SIZES))
    return run, analyse(run)


def test_the_planted_share_of_one_bottleneck_is_found_best_on_every_curve_against_files(shared):
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


def test_the_answer_names_the_planted_family_and_both_ends(shared):
    _, analysis = shared
    assert analysis.answer.startswith("Over 3 sizes (1 MB to 100 MB), one cp at a time moves 99")
    assert "30 in parallel" in analysis.answer
    assert "is best described by share (B/x), first on 3 of 3 curves" in analysis.answer
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


def test_the_rate_of_a_trial_is_its_bytes_over_first_start_to_last_end(shared):
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


def test_values_of_the_trials_average_to_the_throughput_and_scatter_like_its_trial_error(tmp_path):
    """Also with failed transfers, where slots have different numbers of times: the two come from different code."""
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
def test_intervals_hold_the_truth_about_as_often_as_they_say(n):
    rng = np.random.default_rng(n)
    hits = 0
    for _ in range(400):
        interval = trial_interval(rng.normal(100.0, 10.0, n), level=0.9, rng=rng)
        hits += interval.contains(100.0)
    # Binomial: 400 × 0.9 ± 3.3 deviations of 6; BCa is known to fall a little short.
    assert 332 <= hits <= 382


def test_no_interval_is_given_for_two_trials_and_a_rate_cannot_be_negative():
    rng = np.random.default_rng(1)
    assert trial_interval(np.array([1.0, 2.0]), level=0.95, rng=rng) is None
    assert trial_interval(np.array([1.0, 100.0, 2.0]), level=0.95, rng=rng).low > 0


def test_the_time_of_zero_size_files_is_taken_off(tmp_path):
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
    assert "the total stops rising at 5 files" in analysis.answer


def test_movers_that_run_together_are_also_told_apart(tmp_path):
    law = lambda f, rng: f["size_bytes"] / (3e8 if f["call"] == "read" else 1e8)  # noqa: E731
    scenario = {"study": "infn-gpfs/group1"}
    points = product(mover=["read", "read+write"], files=[1, 5], size_bytes=[10**7])
    analysis = analyse(planted_run(tmp_path, points, law, scenario=scenario, repeat=2))
    both = next(p for p in analysis.points if p.factors["mover"] == "read+write" and p.files == 1)
    assert {part.mover: round(part.throughput_bytes_per_s) for part in both.parts} == {"read": 3e8, "write": 1e8}
    assert both.together_bytes_per_s == pytest.approx(2e7 / 0.1)
    published = {rate.name: rate for rate in analysis.published_rates}["reading and writing, one file"]
    assert published.ours_low_bytes_per_s == pytest.approx(1e8)
    assert published.ours_high_bytes_per_s == pytest.approx(1e8)  # the read part waited for: bytes over the trial


def test_files_of_different_sizes_in_one_point_get_no_throughput_per_file(tmp_path):
    shares = {"asked_bytes": lambda slot: 1.0 + slot}
    analysis = analyse(planted_run(tmp_path, product(files=[3], size_bytes=[10**6]), per_transfer=shares))
    (point,) = analysis.points
    assert point.throughput_bytes_per_s is None
    assert point.together_bytes_per_s > 0
    assert "different sizes" in point.absent[0]
    assert "mixed-sizes" in {notice.code for notice in analysis.notices}


def test_four_points_are_ranked_by_adjusted_r2_because_aicc_does_not_exist_there(tmp_path):
    law = lambda f, rng: (0.05 + f["files"] * f["size_bytes"] / 1e9) * (1 + 0.001 * rng.standard_normal())  # noqa: E731
    analysis = analyse(planted_run(tmp_path, product(files=[1, 2, 5, 10], size_bytes=[10**7]), law))
    curve = next(curve for curve in analysis.curves if curve.against == "files")
    assert curve.ranked_by == "adjusted_r2"
    assert curve.best.family != "share"
    assert curve.best.degrees_of_freedom > 0
    assert all(row.mean_r2 is None for row in analysis.families if row.family == "cubic" and row.against == "files")
    assert "few-points" in {notice.code for notice in analysis.notices}


def test_options_override_the_scenario_and_a_wrong_criterion_is_refused(shared):
    run, _ = shared
    options = AnalyseOptions(confidence=0.9, against=("files",), families=("share", "power"), criterion="r2")
    analysis = analyse(run, options)
    assert {curve.against for curve in analysis.curves} == {"files"}
    assert {fit.family for curve in analysis.curves for fit in curve.fits} == {"share", "power"}
    assert analysis.points[0].interval.level == 0.9
    with pytest.raises(ScenarioError, match=r"analyse\.criterion: expected one of aicc, r2"):
        analyse(run, AnalyseOptions(criterion="r3"))
