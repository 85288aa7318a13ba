"""Mean rates and the rate of a trial, compared with closed forms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from venturi.errors import SampleError
from venturi.stats import mean_rates, slot_throughput, trial_rate

DURATIONS = arrays(np.float64, st.integers(1, 20), elements=st.floats(1e-3, 1e3))


@given(DURATIONS)
def test_harmonic_and_time_weighted_means_of_equal_sizes_are_size_over_mean_time(duration):
    means = mean_rates(np.full(duration.size, 5e6), duration)
    expected = slot_throughput(duration, 5e6).throughput_bytes_per_s
    assert means.harmonic_bytes_per_s == pytest.approx(expected)
    assert means.time_weighted_bytes_per_s == pytest.approx(expected)
    assert means.byte_weighted_bytes_per_s == pytest.approx(means.arithmetic_bytes_per_s)
    assert means.arithmetic_bytes_per_s >= expected * (1 - 1e-12)


@given(DURATIONS, st.randoms(use_true_random=False))
def test_the_harmonic_mean_weighted_by_bytes_is_the_time_weighted_mean(duration, random):
    size = np.array([random.uniform(1, 1e6) for _ in duration])
    means = mean_rates(size, duration)
    assert means.time_weighted_bytes_per_s == pytest.approx(size.sum() / np.sum(size * (duration / size)))
    assert means.byte_weighted_bytes_per_s >= means.time_weighted_bytes_per_s * (1 - 1e-12)


def test_the_four_means_differ_on_mixed_sizes():
    means = mean_rates([100, 900], [1.0, 3.0])
    assert means.arithmetic_bytes_per_s == 200
    assert means.harmonic_bytes_per_s == pytest.approx(150)
    assert means.byte_weighted_bytes_per_s == pytest.approx(280)
    assert means.time_weighted_bytes_per_s == 250


def test_a_trial_counts_all_bytes_over_its_whole_span():
    trial = trial_rate([10.0, 11.0, 10.5], [12.0, 20.0, 13.0], [100, 300, 100])
    assert (trial.first_start_s, trial.last_start_s, trial.first_end_s, trial.last_end_s) == (10, 11, 12, 20)
    assert (trial.span_s, trial.tail_s, trial.aggregate_bytes_per_s) == (10, 8, 50)


def test_a_trial_without_duration_has_no_rate():
    assert trial_rate([1.0], [1.0], [5]).aggregate_bytes_per_s is None


def test_an_end_before_its_start_is_rejected():
    with pytest.raises(SampleError, match=r"expected an end after the start 2\.0 s, found 1\.0 s at 1"):
        trial_rate([0.0, 2.0], [1.0, 1.0], [1, 1])
    with pytest.raises(SampleError, match="size_bytes: 1, duration_s: 2"):
        mean_rates([1], [1, 2])
