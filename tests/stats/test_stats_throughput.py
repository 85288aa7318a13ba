"""The estimators of document 000, compared with closed forms and planted values."""

import math

import numpy as np
import pytest

from venturi.errors import SampleError
from venturi.stats import Absence, point_throughput, point_throughputs, slot_throughput


def test_slot_throughput_is_size_over_mean_time_which_is_the_harmonic_mean():
    times = np.array([1.0, 2.0, 5.0])
    slot = slot_throughput(times, 1200)
    assert slot.throughput_bytes_per_s == pytest.approx(450)
    assert slot.throughput_bytes_per_s == pytest.approx(3 / np.sum(times / 1200))
    assert slot.throughput_bytes_per_s < np.mean(1200 / times)


def test_equation_1_gives_the_spread_and_the_error_of_the_mean():
    times = np.random.default_rng(1).normal(10, 0.1, 200)
    slot = slot_throughput(times, 1e9)
    assert slot.spread_bytes_per_s == pytest.approx(np.std(1e9 / times, ddof=1), rel=0.01)
    assert slot.spread_bytes_per_s / slot.error_bytes_per_s == pytest.approx(math.sqrt(200))


def test_two_slots_give_the_textbook_weighted_mean_and_its_errors():
    # Times m ± d have mean m and error d, so throughput s/m and error s d/m². Here 10 ± 0.1 and 20 ± 0.8.
    point = point_throughput(np.array([[9.9, 10.1], [4.8, 5.2]]), 100)
    weights = np.array([1 / 0.1**2, 1 / 0.8**2])
    mean = np.sum(weights * [10, 20]) / weights.sum()
    chi2 = (10 - mean) ** 2 / 0.01 + (20 - mean) ** 2 / 0.64
    assert point.plain_mean_bytes_per_s == pytest.approx(15)
    assert point.weighted_mean_bytes_per_s == pytest.approx(mean)
    assert point.error_internal == pytest.approx(weights.sum() ** -0.5)
    assert point.error_external == pytest.approx(weights.sum() ** -0.5 * math.sqrt(chi2))
    assert point.scale_factor == pytest.approx(math.sqrt(chi2))
    assert point.error_printed == pytest.approx(math.sqrt(np.sum(weights * [100, 400]) / weights.sum()))
    assert (point.error_default, point.error_default_kind) == (point.error_external, "external")
    assert point.absent == Absence.NOTHING


@pytest.mark.parametrize("deviation", [1e-3, 1e-2, 1e-1])
def test_the_printed_error_does_not_depend_on_the_scatter(deviation):
    # 000-E02: with equal means, the published form is the mean over √199, regardless of the scatter.
    times = np.tile(np.linspace(1 - deviation, 1 + deviation, 200), (5, 1))
    point = point_throughput(times, 1.0)
    assert point.error_printed == pytest.approx(0.0709, abs=5e-5)
    assert point.error_internal == pytest.approx(times[0].std(ddof=1) / math.sqrt(200 * 5))


def test_internal_and_trial_error_of_one_slot_follow_equation_1():
    times = np.random.default_rng(3).lognormal(0, 0.3, (1, 12))
    point = point_throughput(times, 5e6)
    slot = slot_throughput(times[0], 5e6)
    assert point.error_internal == pytest.approx(slot.error_bytes_per_s)
    assert point.error_trial == pytest.approx(slot.error_bytes_per_s)
    assert point.error_time_s == pytest.approx(slot.error_time_s)
    assert point.error_external is None
    assert point.absent.reasons == ("one file slot: no scatter between slots",)


def test_one_repetition_has_only_the_plain_mean_and_the_scatter_between_slots():
    point = point_throughput(np.array([[1.0], [2.0], [4.0]]), 100)
    rates = np.array([100, 50, 25])
    assert point.throughput_bytes_per_s == pytest.approx(rates.mean())
    assert point.error_external == pytest.approx(rates.std(ddof=1) / math.sqrt(3))
    assert point.error_default == point.error_external
    absent = (point.weighted_mean_bytes_per_s, point.error_printed, point.error_internal, point.error_trial)
    assert absent == (None, None, None, None)
    assert point.absent == Absence.ONE_REPETITION


def test_a_single_time_has_a_throughput_but_no_error():
    point = point_throughput(np.array([[4.0]]), 100)
    assert point.throughput_bytes_per_s == 25
    assert (point.error_default, point.error_default_kind, point.scale_factor) == (None, None, None)
    assert point.absent == Absence.ONE_REPETITION | Absence.ONE_SLOT


def test_a_slot_without_spread_gives_no_weighted_mean():
    point = point_throughput(np.array([[2.0, 2.0, 2.0], [1.0, 2.0, 3.0]]), 100)
    assert point.weighted_mean_bytes_per_s is None
    assert point.error_printed is None
    assert point.throughput_bytes_per_s == 50
    assert point.error_internal == pytest.approx(100 / 4 / math.sqrt(3) / 2)
    assert point.absent == Absence.ZERO_SPREAD


def test_a_spread_from_rounding_counts_as_zero_spread():
    # Differences of clock readings of different magnitude have different rounding errors, although the times are equal.
    start = np.array([1.0, 70.0, 900.0, 1e4, 1e5])
    times = (start + 0.3) - start
    assert np.ptp(times) > 0
    assert Absence.ZERO_SPREAD in point_throughput(np.vstack([times, times[::-1]]), 100).absent


def test_unmatched_repetitions_have_no_trial_error_and_failed_ones_are_ignored():
    ragged = point_throughput([[1.0, 2.0, 3.0], [1.5, 2.5]], 100)
    assert ragged.error_trial is None
    assert ragged.n_times == 5
    assert ragged.absent == Absence.NOT_ALIGNED
    aligned = point_throughput(np.array([[1.0, 2.0, 3.0], [1.5, 2.5, np.nan]]), 100)
    assert aligned.error_trial is not None
    assert aligned.error_internal == ragged.error_internal
    assert aligned.weighted_mean_bytes_per_s == ragged.weighted_mean_bytes_per_s


@pytest.mark.parametrize(
    ("times", "size", "message"),
    [
        (np.array([1.0, 2.0]), 1, r"expected an array \(slots, repetitions\) or a list of 1-D arrays"),
        (np.array([[1.0, -2.0]]), 1, "expected numbers > 0, found -2 at position 1"),
        (np.array([[np.nan, np.nan]]), 1, "expected at least 1 values, found 0"),
        ([], 1, "expected at least one file slot"),
        (np.array([[1.0]]), 0, "expected a size > 0, found 0"),
    ],
)
def test_unusable_times_are_rejected_with_the_reason(times, size, message):
    with pytest.raises(SampleError, match=message):
        point_throughput(times, size)


def simulated(rng, points, slots, repetitions, shared, own):
    """Return times with mean 1 s, noise shared by the slots of a repetition, and noise of each transfer."""
    shape = (points, slots, repetitions)
    times = 1 + shared * rng.normal(size=(points, 1, repetitions)) + own * rng.normal(size=shape)
    point, slot, repetition = np.indices(shape)
    return point_throughputs(point.ravel(), slot.ravel(), times.ravel(), 1.0, repetition.ravel())


def test_the_default_error_is_correct_and_the_internal_error_too_small_under_shared_noise():
    points = simulated(np.random.default_rng(5), 400, 8, 20, shared=0.05, own=0.02)
    truth = points.throughput_bytes_per_s.std(ddof=1)
    assert np.mean(points.error_default) == pytest.approx(truth, rel=0.12)
    assert np.mean(points.error_internal) < 0.5 * truth
    assert np.mean(points.error_external) < 0.5 * truth


def test_the_trial_error_agrees_with_the_internal_error_for_independent_slots():
    points = simulated(np.random.default_rng(6), 400, 8, 20, shared=0.0, own=0.05)
    truth = points.throughput_bytes_per_s.std(ddof=1)
    assert np.mean(points.error_trial) == pytest.approx(truth, rel=0.12)
    assert np.mean(points.error_internal) == pytest.approx(truth, rel=0.12)
    assert np.mean(points.error_default) >= np.mean(points.error_internal)
