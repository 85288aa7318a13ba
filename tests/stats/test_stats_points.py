"""The grouped form of the estimators of document 000 equals the scalar one."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from venturi.errors import SampleError
from venturi.stats import Absence, point_throughput, point_throughputs, trial_rate, trial_rates


@st.composite
def sweeps(draw):
    """Points of random shapes: some slots timed once, some without spread, some transfers failed."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    points = []
    for _ in range(draw(st.integers(1, 5))):
        times = rng.lognormal(0, 0.5, (draw(st.integers(1, 5)), draw(st.integers(1, 6))))
        if draw(st.booleans()):
            times[rng.integers(len(times))] = 0.1
        failed = rng.random(times.shape) < draw(st.sampled_from([0.0, 0.3]))
        failed[np.arange(len(times)), rng.integers(times.shape[1], size=len(times))] = False
        points.append((np.where(failed, np.nan, times), draw(st.sampled_from([1.0, 1e6, 2e9]))))
    return points, draw(st.booleans()), rng.permutation(sum(times.size for times, _ in points))


@settings(max_examples=150, deadline=None)
@given(sweeps())
def test_the_grouped_form_equals_the_scalar_form(sweep):
    points, aligned, order = sweep
    rows = [
        (10 - 3 * number, slot, time, size, repetition)
        for number, (times, size) in enumerate(points)
        for (slot, repetition), time in np.ndenumerate(times)
    ]
    rows = [rows[i] for i in order if not np.isnan(rows[i][2])]
    group, slot, time, size, repetition = map(np.array, zip(*rows, strict=True))
    columns = point_throughputs(group, slot, time, size, repetition if aligned else None)
    assert columns.group.tolist() == sorted(10 - 3 * number for number in range(len(points)))
    for number, (times, size_bytes) in enumerate(points):
        row = columns.row(int(np.flatnonzero(columns.group == 10 - 3 * number)[0]))
        expected = point_throughput(times if aligned else [t[~np.isnan(t)] for t in times], size_bytes)
        assert_same(row, expected)


def assert_same(row, expected):
    for field in dataclasses.fields(expected):
        one, other = getattr(row, field.name), getattr(expected, field.name)
        if one is None or other is None or isinstance(other, int):
            assert one == other, field.name
        else:
            # The sums have another order. The scatter of nearly equal rates loses digits relative to the rate itself.
            scale = (
                expected.mean_time_s
                if field.name.endswith("_s") and "time" in field.name
                else row.plain_mean_bytes_per_s
            )
            assert one == pytest.approx(other, rel=1e-6, abs=1e-9 * scale), field.name


def test_default_column_and_row_agree():
    rng = np.random.default_rng(1)
    group, slot, repetition = (index.ravel() for index in np.indices((20, 3, 4)))
    columns = point_throughputs(group, slot, rng.lognormal(0, 0.2, 240), 1e6, repetition)
    for i in range(20):
        assert columns.error_default[i] == columns.row(i).error_default
        assert columns.throughput_bytes_per_s[i] == columns.row(i).throughput_bytes_per_s


def test_files_of_size_zero_have_a_mean_time_and_no_throughput():
    slots, times = [0, 0, 1, 1, 0, 0], [1.0, 3.0, 1.0, 3.0, 2.0, 2.0]
    columns = point_throughputs([0, 0, 0, 0, 1, 1], slots, times, [0, 0, 0, 0, 8, 8])
    zero, sized = columns.row(0), columns.row(1)
    assert (zero.mean_time_s, zero.error_time_s) == (2.0, pytest.approx(2**-0.5))
    assert (zero.throughput_bytes_per_s, zero.error_default, zero.error_external) == (None, None, None)
    assert Absence.ZERO_SIZE in zero.absent
    assert Absence.ZERO_SIZE not in sized.absent
    assert sized.throughput_bytes_per_s == 4.0


def test_two_sizes_in_one_point_are_rejected():
    with pytest.raises(SampleError, match="expected one size within a point, found"):
        point_throughputs([3, 3], [0, 1], [1.0, 1.0], [10, 20])


def test_indices_must_be_integers_of_the_same_length():
    with pytest.raises(SampleError, match="group_index: expected one dimension of integers"):
        point_throughputs([0.5], [0], [1.0], 10)
    with pytest.raises(SampleError, match=r"slot_index: 1, time_s: 2|index for each of 2 transfers, found 1"):
        point_throughputs([0, 0], [0], [1.0, 2.0], 10)


def test_an_empty_table_has_no_points_and_no_trials():
    assert len(trial_rates(np.empty(0, int), np.empty(0), np.empty(0), np.empty(0))) == 0
    assert len(point_throughputs(np.empty(0, int), np.empty(0, int), np.empty(0), 1.0)) == 0


def test_trial_rates_of_many_trials_equal_the_rates_of_single_trials():
    rng = np.random.default_rng(7)
    trial, start = rng.integers(0, 9, 200), rng.uniform(0, 50, 200)
    end, size = start + rng.uniform(0, 5, 200), rng.integers(1, 1000, 200)
    columns = trial_rates(trial, start, end, size)
    for i, number in enumerate(columns.trial):
        mine = trial == number
        assert columns.row(i) == trial_rate(start[mine], end[mine], size[mine])
