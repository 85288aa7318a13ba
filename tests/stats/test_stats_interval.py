"""Intervals hold their level on planted truth; ratios and verdicts.

Coverage is counted over a few hundred simulated samples with a fixed seed, at level 0.90. Its own standard error is
1.5 % at 400 samples; the bounds below leave three of those and what the method is known to lose, and each test names a
wrong method that would fall outside.
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
def test_reaches_are_quantiles_of_both_tails(level):
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
def test_a_ratio_of_means_is_covered(n, paired):
    def draw(rng):
        common = rng.normal(0, 8.0, n) if paired else 0.0
        return 120 + common + rng.normal(0, 3.0, n), 100 + common + rng.normal(0, 3.0, n)

    def interval(samples, rng):
        return ratio_interval(*samples, paired=paired, rng=rng, level=0.9, resamples=499)

    assert 0.84 <= coverage(interval, draw, 1.2, samples=300) <= 0.955


def test_a_ratio_of_few_pairs_is_student_on_the_relative_deviations():
    sample, reference = np.array([21.0, 43, 62, 80]), np.array([10.0, 20, 30, 41])
    deviation = sample / sample.mean() - reference / reference.mean()
    expected = stats.ttest_1samp(deviation, 0).confidence_interval(0.9)
    ratio = ratio_interval(sample, reference, paired=True, rng=np.random.default_rng(1), level=0.9)
    assert np.log(ratio.low / ratio.estimate) == pytest.approx(expected.low)
    assert np.log(ratio.high / ratio.estimate) == pytest.approx(expected.high)


def test_pairs_are_narrower_where_the_environment_is_shared():
    rng = np.random.default_rng(3)
    common = rng.normal(0, 20, 30)
    sample, reference = 120 + common + rng.normal(0, 1, 30), 100 + common + rng.normal(0, 1, 30)
    paired = ratio_interval(sample, reference, paired=True, rng=rng)
    apart = ratio_interval(sample, reference, paired=False, rng=rng)
    assert paired.half_width < 0.5 * apart.half_width
    assert (paired.method, paired.n) == ("paired BCa bootstrap", 30)
    assert (apart.method, apart.n) == ("BCa bootstrap", 60)


def test_the_same_generator_gives_the_same_interval_and_another_seed_another():
    sample = np.random.default_rng(1).lognormal(size=25)
    one, two, three = (bca_interval(sample, rng=np.random.default_rng(seed)) for seed in (8, 8, 9))
    assert one == two
    assert one != three


def test_mean_interval_names_the_method_it_chose():
    rng = np.random.default_rng(2)
    assert mean_interval(rng.normal(size=FEW_TRIALS - 1), rng=rng).method == "Student t"
    assert mean_interval(rng.normal(size=FEW_TRIALS), rng=rng).method == "BCa bootstrap"
    assert mean_interval(rng.normal(size=3000), rng=rng).method == "Student t"


def test_equal_values_give_an_interval_without_width_and_no_nan():
    rng = np.random.default_rng(2)
    assert bca_interval([0.1] * 30, rng=rng) == Interval(*[pytest.approx(0.1)] * 3, 0.95, "equal values", 30)
    for n in (3, 30):
        for paired in (True, False):
            ratio = ratio_interval([6.0] * n, [3.0] * n, paired=paired, rng=rng)
            assert (ratio.low, ratio.estimate, ratio.high) == (2.0, 2.0, 2.0)


def test_where_bca_is_not_defined_the_percentile_interval_is_named_and_finite():
    # The median of all but equal values is the same with any of them left out: the acceleration is 0/0.
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
    rng = np.random.default_rng(1)
    assert compare(sample, reference, of="rate", paired=False, rng=rng).verdict == verdict
    swapped = {"faster": "slower", "slower": "faster"}.get(verdict, verdict)
    assert compare(reference, sample, of="rate", paired=False, rng=rng).verdict == swapped
    assert compare(sample, reference, of="time", paired=False, rng=rng).verdict == swapped


def test_a_comparison_of_a_run_with_itself_seldom_finds_a_difference():
    rng = np.random.default_rng(9)
    verdicts = [
        compare(rng.lognormal(0, 0.1, 8), rng.lognormal(0, 0.1, 8), of="rate", paired=False, rng=rng).verdict
        for _ in range(400)
    ]
    wrong = sum(verdict in ("faster", "slower") for verdict in verdicts)
    assert 5 <= wrong <= 35  # 5 % of 400 is 20 ± 4.4
    assert "cannot tell" in verdicts


def test_unusable_samples_are_refused():
    rng = np.random.default_rng(1)
    with pytest.raises(SampleError, match="expected at least 2 values, found 1"):
        student_interval([1.0])
    with pytest.raises(SampleError, match="level: expected a number between 0 and 1"):
        student_interval([1.0, 2.0], level=95)
    with pytest.raises(SampleError, match="expected pairs, found 3 values in sample and 2"):
        ratio_interval([1, 2, 3], [1, 2], paired=True, rng=rng)
    with pytest.raises(SampleError, match="reference: expected numbers > 0, found 0"):
        ratio_interval([1, 2], [0, 2], paired=False, rng=rng)
    with pytest.raises(SampleError, match="margin: expected a number > 0"):
        compare([1, 2], [1, 2], of="rate", paired=False, rng=rng, margin=0)
