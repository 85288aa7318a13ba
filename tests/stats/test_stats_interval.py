"""Confidence intervals have their nominal coverage on planted values; ratios and verdicts.

Coverage is counted over a few hundred simulated samples with a fixed seed. Its own standard error is 1.5 % at 400
samples and level 0.90. The bounds allow three standard errors and the known undercoverage of the method. Each test
names a wrong method whose coverage would be outside.
"""

import numpy as np
import pytest
from scipy import stats

from venturi.errors import SampleError
from venturi.stats import (
    FEW_TRIALS,
    Interval,
    bca_interval,
    compare,
    mean_interval,
    ratio_interval,
    student_interval,
)
from venturi.stats.quantiles import normal_reach, student_reach


def coverage(interval_of, draw, truth, samples=400, seed=11):
    rng = np.random.default_rng(seed)
    return np.mean([interval_of(draw(rng), rng).contains(truth) for _ in range(samples)])


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.9999])
def test_coverage_factors_are_two_sided_quantiles(level):
    assert normal_reach(level) == pytest.approx(stats.norm.interval(level)[1], rel=1e-12)
    for freedom in (0.7, 1, 3.5, 1e6):
        assert student_reach(level, freedom) == pytest.approx(stats.t.interval(level, freedom)[1], rel=1e-12)
    assert np.isnan(student_reach(level, 0))


def test_student_covers_the_mean_of_five_normal_values():
    covered = coverage(lambda x, _: student_interval(x, level=0.9), lambda rng: rng.normal(10, 2, 5), 10.0)
    assert 0.855 <= covered <= 0.945  # with normal quantiles: 0.82


def test_bca_covers_the_mean_of_skewed_values():
    def interval(sample, rng):
        return bca_interval(sample, rng=rng, level=0.9, resamples=499)

    covered = coverage(interval, lambda rng: rng.exponential(3.0, 60), 3.0)
    assert 0.84 <= covered <= 0.945  # at one standard error: 0.68; at level 0.99: 0.98


def test_bca_covers_a_median():
    def interval(sample, rng):
        return bca_interval(sample, np.median, rng=rng, level=0.9, resamples=499)

    covered = coverage(interval, lambda rng: rng.lognormal(1.0, 0.7, 41), np.exp(1.0), samples=300)
    assert 0.84 <= covered <= 0.955


@pytest.mark.parametrize("n", [4, 30])
@pytest.mark.parametrize("paired", [True, False])
def test_intervals_cover_a_ratio_of_means(n, paired):
    def draw(rng):
        common = rng.normal(0, 8.0, n) if paired else 0.0
        return 120 + common + rng.normal(0, 3.0, n), 100 + common + rng.normal(0, 3.0, n)

    def interval(samples, _rng):
        return ratio_interval(*samples, paired=paired, level=0.9)

    assert 0.84 <= coverage(interval, draw, 1.2, samples=300) <= 0.955


def test_the_ratio_interval_of_few_pairs_is_students_on_the_relative_deviations():
    sample, reference = np.array([21.0, 43, 62, 80]), np.array([10.0, 20, 30, 41])
    deviation = sample / sample.mean() - reference / reference.mean()
    expected = stats.ttest_1samp(deviation, 0).confidence_interval(0.9)
    ratio = ratio_interval(sample, reference, paired=True, level=0.9)
    assert np.log(ratio.low / ratio.estimate) == pytest.approx(expected.low)
    assert np.log(ratio.high / ratio.estimate) == pytest.approx(expected.high)


def test_paired_intervals_are_narrower_under_shared_noise():
    rng = np.random.default_rng(3)
    common = rng.normal(0, 20, 30)
    sample, reference = 120 + common + rng.normal(0, 1, 30), 100 + common + rng.normal(0, 1, 30)
    paired = ratio_interval(sample, reference, paired=True)
    apart = ratio_interval(sample, reference, paired=False)
    assert paired.half_width < 0.5 * apart.half_width
    assert (paired.method, paired.n) == ("paired Student t of the log ratio", 30)
    assert (apart.method, apart.n) == ("Welch t of the log ratio", 60)


@pytest.mark.parametrize("n", [3, 10, 30])
@pytest.mark.parametrize("law", ["normal", "exponential", "lognormal(0, 1)"])
def test_intervals_cover_a_ratio_of_skewed_values(law, n):
    draw, _ = LAWS[law]
    rng = np.random.default_rng(12)
    pairs = [ratio_interval(draw(rng, n), draw(rng, n), paired=False) for _ in range(400)]
    assert 0.88 <= np.mean([interval.contains(1.0) for interval in pairs]) <= 0.975


def test_equal_seeds_give_equal_intervals_and_different_seeds_differ():
    sample = np.random.default_rng(1).lognormal(size=25)
    one, two, three = (bca_interval(sample, rng=np.random.default_rng(seed)) for seed in (8, 8, 9))
    assert one == two
    assert one != three


LAWS = {
    "normal": (lambda rng, size: rng.normal(10.0, 2.0, size), 10.0),
    "exponential": (lambda rng, size: rng.exponential(1.0, size), 1.0),
    "lognormal(0, 1)": (lambda rng, size: rng.lognormal(0.0, 1.0, size), np.exp(0.5)),
    "lognormal(0, 0.5)": (lambda rng, size: rng.lognormal(0.0, 0.5, size), np.exp(0.125)),
    "gamma(0.5)": (lambda rng, size: rng.gamma(0.5, 1.0, size), 0.5),
    "100 less lognormal": (lambda rng, size: 100 - rng.lognormal(0.0, 1.0, size), 100 - np.exp(0.5)),
}


def mean_coverage(law, n, samples, **options):
    """Return the coverage of `mean_interval`, and its mean width relative to the interval with the true quantiles."""
    draw, truth = LAWS[law]
    rng = np.random.default_rng(28)
    intervals = [mean_interval(values, **options) for values in draw(rng, (samples, n))]
    many = draw(rng, (40_000, n))
    pivot = (many.mean(axis=1) - truth) / many.std(axis=1, ddof=1)
    oracle = np.ptp(np.quantile(pivot, (0.025, 0.975))) * many.std(axis=1, ddof=1).mean()
    return np.mean([x.contains(truth) for x in intervals]), np.mean([2 * x.half_width for x in intervals]) / oracle


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("n", [8, 10, 20, 60])
@pytest.mark.parametrize("law", sorted(set(LAWS) - {"normal"}))
def test_intervals_cover_the_mean_of_skewed_values(law, n, positive):
    # For lognormal(0, 1), Student's t covers 0.84 with 10 values, and a BCa bootstrap 0.87 with 20.
    covered, width = mean_coverage(law, n, 400, positive=positive)
    assert covered >= 0.90
    assert width <= 1.6


@pytest.mark.parametrize("n", [3, 5, 8, 10, 20, 60])
def test_intervals_cover_the_mean_of_normal_values_at_the_stated_level(n):
    covered, width = mean_coverage("normal", n, 10_000)
    assert 0.94 <= covered <= 0.96
    assert width <= 1.5


def test_the_correction_for_skewness_agrees_with_a_studentised_bootstrap():
    values = np.random.default_rng(1).exponential(1.0, 100)
    rng = np.random.default_rng(6)
    drawn = values[rng.integers(0, 100, (20_000, 100))]
    pivot = (drawn.mean(axis=1) - values.mean()) / drawn.std(axis=1, ddof=1)
    low, high = values.mean() - values.std(ddof=1) * np.quantile(pivot, (0.975, 0.025))
    interval, half = mean_interval(values), (high - low) / 2
    assert interval.low == pytest.approx(low, abs=0.05 * half)
    assert interval.high == pytest.approx(high, abs=0.05 * half)
    # The interval is asymmetric; Student's t has a lower upper end.
    assert student_interval(values).high < high - 0.2 * half


def test_a_mirrored_sample_has_the_mirrored_interval():
    values = np.random.default_rng(3).lognormal(0, 1, 12)
    interval, mirrored = mean_interval(values), mean_interval(-values)
    assert (mirrored.low, mirrored.high) == pytest.approx((-interval.high, -interval.low), rel=1e-12)


@pytest.mark.parametrize("factor", [1e-90, 1.0, 1e90])
@pytest.mark.parametrize("few", [1, 4, 9])
def test_the_interval_of_positive_values_is_positive_in_any_unit(few, factor):
    sample = factor * np.array([1.0] * few + [100.0] * (10 - few))
    interval = mean_interval(sample, positive=True)
    assert 0 < interval.low <= interval.estimate <= interval.high < np.inf
    assert interval.high / factor == pytest.approx(mean_interval(sample / factor, positive=True).high, rel=1e-9)


def test_mean_interval_names_its_method():
    rng = np.random.default_rng(2)
    few, many = rng.normal(10, 1, FEW_TRIALS - 1), rng.normal(10, 1, FEW_TRIALS)
    assert mean_interval(few).method == "Student t"
    assert mean_interval(few, positive=True).method == "Student t of the logarithm"
    assert mean_interval(many).method == "Student t, corrected for skewness"
    assert mean_interval([3.0] * 30) == Interval(3.0, 3.0, 3.0, 0.95, "equal values", 30)


def test_equal_values_give_an_interval_of_zero_width_without_nan():
    rng = np.random.default_rng(2)
    assert bca_interval([0.1] * 30, rng=rng) == Interval(*[pytest.approx(0.1)] * 3, 0.95, "equal values", 30)
    for n in (3, 30):
        for paired in (True, False):
            ratio = ratio_interval([6.0] * n, [3.0] * n, paired=paired)
            assert (ratio.low, ratio.estimate, ratio.high) == (2.0, 2.0, 2.0)


def test_an_undefined_bca_interval_falls_back_to_a_finite_percentile_interval():
    # Without any one of these values, the median is the same, so the acceleration is 0/0.
    interval = bca_interval([1.0] * 29 + [2.0], np.median, rng=np.random.default_rng(1))
    assert interval.method == "percentile bootstrap (BCa not defined)"
    assert np.isfinite([interval.low, interval.high]).all()


@pytest.mark.parametrize(
    ("sample", "reference", "verdict"),
    [
        ([120, 121, 119, 120], [100, 101, 99, 100], "faster"),
        ([80, 81, 79, 80], [100, 101, 99, 100], "slower"),
        ([100.5, 101, 100, 100.5], [100, 101, 99, 100], "same within margin"),
        ([101, 101.1, 101, 101.1], [100, 100.1, 100, 100.1], "same within margin"),
        ([60, 150, 90, 130], [100, 101, 99, 100], "cannot tell"),
    ],
)
def test_a_comparison_has_four_verdicts(sample, reference, verdict):
    assert compare(sample, reference, of="rate", paired=False).verdict == verdict
    swapped = {"faster": "slower", "slower": "faster"}.get(verdict, verdict)
    assert compare(reference, sample, of="rate", paired=False).verdict == swapped
    assert compare(sample, reference, of="time", paired=False).verdict == swapped


def test_a_comparison_of_a_run_with_itself_rarely_finds_a_difference():
    rng = np.random.default_rng(9)
    verdicts = [
        compare(rng.lognormal(0, 0.1, 8), rng.lognormal(0, 0.1, 8), of="rate", paired=False).verdict
        for _ in range(400)
    ]
    wrong = sum(verdict in ("faster", "slower") for verdict in verdicts)
    assert 5 <= wrong <= 35  # 5 % of 400 is 20 ± 4.4
    assert "cannot tell" in verdicts


def test_unusable_samples_are_rejected():
    with pytest.raises(SampleError, match="expected at least 2 values, found 1"):
        student_interval([1.0])
    with pytest.raises(SampleError, match="level: expected a number between 0 and 1"):
        student_interval([1.0, 2.0], level=95)
    with pytest.raises(SampleError, match="expected pairs, found 3 values in sample and 2"):
        ratio_interval([1, 2, 3], [1, 2], paired=True)
    with pytest.raises(SampleError, match="reference: expected numbers > 0, found 0"):
        ratio_interval([1, 2], [0, 2], paired=False)
    with pytest.raises(SampleError, match="margin: expected a number > 0"):
        compare([1, 2], [1, 2], of="rate", paired=False, margin=0)
