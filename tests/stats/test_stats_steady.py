"""The steady part of series with planted ramps."""

import numpy as np
import pytest

from venturi.errors import SampleError
from venturi.stats import fixed_slice, steady_state


def series(n, ramp, tail, noise, seed=1):
    """A level of 100 with a linear ramp at the start and a linear tail at the end, and the times of its values."""
    shape = np.ones(n)
    shape[:ramp] = np.linspace(0, 1, ramp, endpoint=False)
    shape[n - tail :] = np.linspace(1, 0, tail, endpoint=False)
    return 0.5 * np.arange(n), 100 * shape + noise * np.random.default_rng(seed).normal(size=n)


def brute_force(values, batch):
    """Return the MSER cut by its definition: the cut in the first half with the least squared error of the mean of the rest."""
    means = values[: len(values) // batch * batch].reshape(-1, batch).mean(axis=1)
    k = len(means)
    return min(range(k // 2 + 1), key=lambda cut: np.sum((means[cut:] - means[cut:].mean()) ** 2) / (k - cut) ** 2)


@pytest.mark.parametrize("seed", range(5))
def test_the_start_agrees_with_the_definition_of_mser_5(seed):
    time, values = series(300, 60, 0, 5.0, seed)
    steady = steady_state(time, values, end_s=time[-1])
    assert steady.start == 5 * brute_force(values, 5)
    assert steady.stop == 300
    assert steady.rule == "MSER-5 at the start, end set to 149.5 s"


def test_ramp_and_tail_of_a_noiseless_series_are_removed_exactly():
    time, values = series(400, 50, 80, 0.0)
    steady = steady_state(time, values)
    assert (steady.start, steady.stop, steady.start_s, steady.end_s) == (50, 320 + 0, 25.0, 159.5)
    assert steady.steady.mean == 100
    assert steady.steady.std == 0
    assert steady.whole.mean < 85


def test_slicing_removes_the_bias_of_ramps_under_noise():
    results = [steady_state(*series(400, 60, 60, 8.0, seed)) for seed in range(40)]
    assert sum(result.found for result in results) >= 36
    found = [result for result in results if result.found]
    assert np.mean([result.whole.mean for result in found]) == pytest.approx(85, abs=1)
    assert np.mean([result.steady.mean for result in found]) == pytest.approx(100, abs=0.5)
    assert np.mean([result.steady.std_pct for result in found]) == pytest.approx(8, abs=0.6)


@pytest.mark.parametrize("n", [60, 120, 300])
@pytest.mark.parametrize(("ramp", "tail"), [(0.0, 0.0), (0.2, 0.0), (0.1, 0.1), (0.2, 0.1), (0.3, 0.0)])
@pytest.mark.parametrize("noise", [2.0, 5.0, 10.0, 20.0])
def test_the_steady_part_of_a_series_with_a_ramp_has_an_unbiased_mean(n, ramp, tail, noise):
    # Without the two tests, 69 % of the series with 60 values and a ramp of 20 % have a steady part.
    results = [steady_state(*series(n, round(ramp * n), round(tail * n), noise, seed)) for seed in range(400)]
    found = [result.steady.mean for result in results if result.found]
    assert len(found) >= 0.9 * 400
    assert np.mean(found) == pytest.approx(100, abs=1)


@pytest.mark.parametrize("noise", [2.0, 10.0, 20.0])
@pytest.mark.parametrize("n", [60, 300])
def test_a_continuous_rise_or_a_step_in_the_middle_is_not_steady(n, noise):
    rng = np.random.default_rng(5)
    step = np.where(np.arange(n) < n // 2, 30.0, 100.0)
    for shape in (np.linspace(0, 100, n), step, step[::-1]):
        found = sum(steady_state(np.arange(n), shape + noise * rng.normal(size=n)).found for _ in range(100))
        assert found <= 5


def test_a_negligible_drift_is_steady():
    rng = np.random.default_rng(7)
    values = np.linspace(99.5, 100.5, 20_000) + rng.normal(0, 1, 20_000)
    assert steady_state(np.arange(20_000.0), values).found
    assert not steady_state(np.arange(20_000.0), 100 + 10 * (values - 100)).found


def test_a_reversed_series_has_the_mirrored_start_and_end():
    time, values = series(250, 40, 70, 3.0)
    forward, backward = steady_state(time, values), steady_state(time, values[::-1])
    assert (backward.start, backward.stop) == (250 - forward.stop, 250 - forward.start)


def test_a_constant_series_is_steady_from_start_to_end():
    steady = steady_state(np.arange(100.0), np.full(100, 0.1))
    assert (steady.start, steady.stop) == (0, 100)


@pytest.mark.parametrize("seed", range(5))
def test_a_series_that_never_stabilizes_has_no_steady_part(seed):
    values = np.linspace(0, 100, 200) + np.random.default_rng(seed).normal(0, 5, 200)
    steady = steady_state(np.arange(200.0), values)
    assert not steady.found
    assert (steady.start, steady.stop, steady.steady) == (None, None, None)
    assert "never became steady" in steady.reason
    assert steady.whole.mean == pytest.approx(50, abs=2)


def test_a_short_series_has_no_steady_part_and_reports_the_reason():
    steady = steady_state(np.arange(30.0), np.ones(30))
    assert not steady.found
    assert steady.reason == "30 values; at least 50 are needed to find a steady part"
    assert not steady_state(np.arange(100.0), np.ones(100), end_s=10.0).found


def test_a_long_series_gets_longer_batches():
    steady = steady_state(np.arange(20_000.0), np.concatenate([np.linspace(0, 1, 4000), np.ones(16_000)]))
    assert steady.rule.startswith("MSER-20 ")
    assert steady.start == pytest.approx(4000, abs=40)


def test_a_fixed_slice_includes_both_ends_and_reports_steady_and_whole_statistics():
    part = fixed_slice([0.0, 5.0, 10.0, 15.0], [1.0, 10.0, 12.0, 1.0], 5.0, 10.0)
    assert (part.start, part.stop, part.start_s, part.end_s) == (1, 3, 5.0, 10.0)
    assert (part.steady.mean, part.whole.mean) == (11.0, 6.0)
    assert part.steady.std_pct == pytest.approx(100 * np.sqrt(2) / 11)
    empty = fixed_slice([0.0, 5.0], [1.0, 1.0], 6.0, 9.0)
    assert not empty.found
    assert empty.reason == "no value in this interval; the series runs from 0 s to 5 s"


def test_times_that_do_not_ascend_are_rejected():
    with pytest.raises(SampleError, match="expected ascending times"):
        steady_state([0.0, 1.0, 1.0], [1.0, 1.0, 1.0])
