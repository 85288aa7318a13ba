"""Totals over a grid and the correction for zero-size files."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from venturi.errors import SampleError
from venturi.stats import GridRates, total_throughput, totals_on_common_points, zero_size_correction

# File counts of document 000 (L124, L148, L174): scenario 1 up to 45, scenarios 2 and 3 up to 30.
FILES = np.array([1, 2, 5, 10, 15, 20, 25, 30, 35, 40, 45])
SIZES = np.array([0.01, 0.1, 0.2, 0.5, 1, 2]) * 1e9


def grid(files, total_of, relative_error=None):
    files, sizes = (axis.ravel() for axis in np.meshgrid(files, SIZES))
    rate = total_of(files) / files
    return GridRates(files, sizes, rate, None if relative_error is None else relative_error * rate)


def test_the_total_throughput_of_an_evenly_shared_link_is_its_capacity():
    total = total_throughput(grid(FILES, lambda n: 0.76e9 + 0 * n, relative_error=0.1))
    assert total.mean_bytes_per_s == pytest.approx(0.76e9)
    assert total.error_bytes_per_s == pytest.approx(0.076e9 / np.sqrt(66))
    assert (total.n_points, total.complete) == (66, True)


def test_restricting_to_common_file_counts_removes_the_advantage_of_the_longer_grid():
    # 000-E14: two identical systems, one of them measured up to more files. Total of n files: n (1 byte/s each).
    long, short = grid(FILES, lambda n: 1.0 * n), grid(FILES[:8], lambda n: 1.0 * n)
    assert total_throughput(long).mean_bytes_per_s > 1.5 * total_throughput(short).mean_bytes_per_s
    totals = totals_on_common_points({"cp": long, "gridftp": short})
    assert totals["cp"] == totals["gridftp"]
    assert totals["cp"].files == tuple(FILES[:8])
    assert totals["cp"].mean_bytes_per_s == pytest.approx(FILES[:8].mean())


def test_an_incomplete_grid_is_marked():
    assert not total_throughput(GridRates([1, 1, 2], [1, 2, 1], [1, 1, 1])).complete


def test_grids_without_common_points_and_duplicate_points_are_rejected():
    with pytest.raises(SampleError, match=r"common to a, b, found none"):
        totals_on_common_points({"a": GridRates([1], [1], [1]), "b": GridRates([2], [1], [1])})
    with pytest.raises(SampleError, match="found one twice"):
        total_throughput(GridRates([1, 1], [5, 5], [1, 1]))
    with pytest.raises(SampleError, match="expected one standard error per value, 1 in all, found 2"):
        total_throughput(GridRates([1], [5], [1], [0.1, 0.1]))


@given(st.floats(1e3, 1e9), st.floats(1e6, 1e9), st.floats(1e-3, 1e2))
def test_the_correction_recovers_the_rate_under_a_planted_fixed_cost(size, rate, cost):
    time = cost + size / rate
    corrected = zero_size_correction(size, time, None, cost, None)
    if corrected.outcome == "untested":
        digits = 1e-15 * time / (size / rate)
        assert corrected.throughput_bytes_per_s == pytest.approx(rate, rel=1e-9 + 4 * digits)
        assert corrected.throughput_bytes_per_s > corrected.uncorrected_bytes_per_s
    else:  # The size is lost in the rounding of the fixed cost.
        assert size / rate < 1e-15 * cost


def test_the_corrected_error_agrees_with_the_scatter_of_corrected_throughputs():
    rng = np.random.default_rng(4)
    time, zero = rng.normal(3, 0.03, 20_000), rng.normal(1, 0.04, 20_000)
    corrected = zero_size_correction(1e6, 3.0, 0.03, 1.0, 0.04)
    assert corrected.outcome == "corrected"
    assert corrected.error_bytes_per_s == pytest.approx(np.std(1e6 / (time - zero)), rel=0.03)


@pytest.mark.parametrize(
    ("time", "error", "outcome"),
    [
        (0.9, 0.01, "not positive"),
        (1.0, 0.01, "not positive"),
        (1.02, 0.01, "not significant"),
        (1.1, 0.01, "corrected"),
    ],
)
def test_a_time_not_above_the_zero_size_time_is_rejected(time, error, outcome):
    corrected = zero_size_correction(100, time, error, 1.0, error)
    assert corrected.outcome == outcome
    assert corrected.rejected == (outcome != "corrected")
    assert corrected.corrected_time_s == pytest.approx(time - 1)
    assert (corrected.throughput_bytes_per_s is None) == corrected.rejected
    assert (corrected.error_bytes_per_s is None) == corrected.rejected


def test_a_non_finite_zero_size_time_is_an_error():
    with pytest.raises(SampleError, match="zero_time_s: expected a number > 0, found nan"):
        zero_size_correction(100, 1.0, None, float("nan"), None)
