"""Step ratios, saturation and knee, compared with table 6.1 of document 003 and planted curves."""

import numpy as np
import pytest

from venturi.errors import SampleError
from venturi.stats import saturation_point, step_ratios, two_segment_knee

JOBS = [32, 64, 96, 128, 160, 192]

# Document 003, table 6.1 (L529-L540): averages in Mbit/s. Third parties derived the ratios from it, to 3 digits.
TABLE_6_1 = {
    "direct Lustre": ([1700, 3270, 5401, 5817, 5494, 5546], [1.924, 1.652, 1.077, 0.944, 1.009]),
    "WAN xrootd, public": ([2876, 2784, 3258, 3420, 3509, 3518], [0.968, 1.170, 1.050, 1.026, 1.003]),
    "LAN xrootd": ([1000, 986, 874, 818, 827, 838], [0.986, 0.886, 0.936, 1.011, 1.013]),
    "WAN xrootd": ([1877, 2702, 4108, 4470, 4104, 4129], [1.440, 1.520, 1.088, 0.918, 1.006]),
}


@pytest.mark.parametrize("name", TABLE_6_1)
def test_step_ratios_agree_with_table_6_1(name):
    rates, ratios = TABLE_6_1[name]
    assert [step.ratio for step in step_ratios(JOBS, rates)] == pytest.approx(ratios, abs=5.1e-4)


def test_linear_growth_is_the_ratio_of_the_loads_of_a_step():
    steps = step_ratios(JOBS, [7.0 * jobs for jobs in JOBS])
    assert [step.linear for step in steps] == pytest.approx([2, 1.5, 4 / 3, 1.25, 1.2])
    assert [step.ratio for step in steps] == pytest.approx([step.linear for step in steps])
    assert [step.fraction_of_linear_growth for step in steps] == pytest.approx([1] * 5)
    assert step_ratios([1, 2], [4, 4])[0].fraction_of_linear_growth == 0


def test_the_error_of_a_step_is_the_error_of_a_ratio():
    rng = np.random.default_rng(2)
    step = step_ratios([1, 2], [100.0, 150.0], [2.0, 4.0])[0]
    assert step.error == pytest.approx(np.std(rng.normal(150, 4, 20_000) / rng.normal(100, 2, 20_000)), rel=0.03)
    assert step_ratios([1, 2], [1, 2])[0].error is None


@pytest.mark.parametrize(
    ("name", "outcome", "load"),
    [
        # The paper names 128 jobs for all (L453); 003-E24: the LAN rate falls from the start.
        ("direct Lustre", "reached", 128),
        ("WAN xrootd", "reached", 128),
        ("WAN xrootd, public", "reached", 128),
        ("LAN xrootd", "below range", 32),
    ],
)
def test_the_saturation_points_of_table_6_1_are_reproduced(name, outcome, load):
    point = saturation_point(JOBS, TABLE_6_1[name][0])
    assert (point.outcome, point.load) == (outcome, load)
    assert point.certain is None


def test_a_curve_that_still_rises_is_not_saturated():
    point = saturation_point([1, 2, 4, 8], [10, 20, 40, 80], [1, 1, 1, 1])
    assert (point.outcome, point.load, point.best_load) == ("not reached", None, 8)
    assert point.certain


def test_errors_bound_the_saturation_load_and_its_certainty():
    load, rate = [1, 2, 4, 8, 16], [50, 90, 97, 100, 99]
    exact = saturation_point(load, rate, [0.1] * 5)
    assert (exact.load, exact.load_low, exact.load_high, exact.certain) == (4, 4, 4, True)
    coarse = saturation_point(load, rate, [4.0] * 5)
    assert (coarse.load, coarse.load_low, coarse.load_high, coarse.certain) == (4, 2, 8, False)


def test_the_bounds_contain_the_saturation_load_of_a_planted_curve():
    # Rate 100 x/(x + 2) reaches 95 % of its value at 64 exactly at 22.4, so the first measured load beyond is 32.
    load = np.array([1.0, 2, 4, 8, 16, 32, 48, 64])
    truth = 100 * load / (load + 2)
    assert saturation_point(load, truth).load == 32
    rng = np.random.default_rng(3)
    inside = [
        point.load_low <= 32 <= point.load_high
        for point in (saturation_point(load, truth + rng.normal(0, 1, 8), np.ones(8)) for _ in range(300))
    ]
    assert np.mean(inside) > 0.9


def test_the_knee_of_a_planted_bend_is_found_within_its_interval():
    load = np.array([1.0, 2, 4, 8, 12, 16, 20, 24])
    rng = np.random.default_rng(5)
    knees = [two_segment_knee(load, 50 + 10 * np.minimum(load, 10) + rng.normal(0, 3, 8)) for _ in range(100)]
    assert all(knee.found for knee in knees)
    assert np.median([knee.load for knee in knees]) == pytest.approx(10, abs=0.4)
    assert np.mean([knee.load_low <= 10 <= knee.load_high for knee in knees]) > 0.88
    assert np.median([knee.slope_before for knee in knees]) == pytest.approx(10, abs=0.7)
    assert np.median([knee.slope_after for knee in knees]) == pytest.approx(0, abs=0.3)


@pytest.mark.parametrize("n", [6, 8, 16])
def test_a_straight_line_rarely_has_a_knee(n):
    load = np.arange(1.0, n + 1)
    rng = np.random.default_rng(6)
    found = [two_segment_knee(load, 100 + 10 * load + rng.normal(0, 3, n)).found for _ in range(100)]
    assert np.mean(found) < 0.1  # level 0.95; plateaus count and upward bends do not
    assert not two_segment_knee(load, 3 * load).found


def test_an_upward_bend_is_not_a_knee():
    load = np.arange(1.0, 11)
    knee = two_segment_knee(load, 10 + np.maximum(load - 5, 0) * 8)
    assert not knee.found
    assert knee.p_value < 1e-6
    assert knee.slope_after == pytest.approx(8)


def test_weights_make_the_knee_ignore_a_point_with_a_large_error():
    load = np.array([1.0, 2, 3, 4, 5, 6, 7, 8])
    rate = 10 * np.minimum(load, 4)
    rate[6] = 80.0
    error = np.where(load == 7, 1e4, 0.1)
    assert two_segment_knee(load, rate, error).load == pytest.approx(4, abs=1e-3)


def test_unusable_curves_are_rejected():
    with pytest.raises(SampleError, match="expected strictly ascending loads, one rate each"):
        step_ratios([1, 1], [1, 2])
    with pytest.raises(SampleError, match="load: expected at least 6 values, found 3"):
        two_segment_knee([1, 2, 3], [1, 2, 3])
    with pytest.raises(SampleError, match="tolerance: expected a fraction"):
        saturation_point([1, 2, 3], [1, 2, 3], tolerance=5)
