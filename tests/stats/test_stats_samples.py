"""Summaries compared with published tables, and outlier labels."""

import numpy as np
import pytest

from venturi.stats import batch_spread, label_outliers, summarise

# Document 003, table 2-1: totals of ten nodes, Mbit/s (L334-L345). Printed: 8617 ± 63 (L347).
IPERF_TOTALS = [8540, 8685, 8516, 8579, 8645, 8514, 8736, 8591, 8579, 8629, 8671, 8684, 8658, 8588, 8623, 8632]

# Document 003, table 6.1: averages of the six batches, Mbit/s (L529-L540), and the "volatility" quoted (L451).
BATCH_MEANS = {
    "direct Lustre": ([1700, 3270, 5401, 5817, 5494, 5546], 1526, 4537.95),
    "WAN xrootd": ([1877, 2702, 4108, 4470, 4104, 4129], 941, 3565),
    "WAN xrootd, public": ([2876, 2784, 3258, 3420, 3509, 3518], 294, 3227),
}


def test_the_probe_of_document_003_has_the_printed_mean_and_deviation():
    summary = summarise(IPERF_TOTALS)
    assert summary.n == 16
    assert summary.mean == pytest.approx(8617, abs=0.5)
    assert summary.std == pytest.approx(63.4, abs=0.05)
    assert summary.maximum == 8736


@pytest.mark.parametrize("name", BATCH_MEANS)
def test_the_volatility_of_document_003_is_the_population_deviation_of_batch_averages(name):
    means, volatility, mean = BATCH_MEANS[name]
    summary = summarise(means)
    assert summary.std_population == pytest.approx(volatility, abs=1)  # published without decimals, in Mbit/s
    assert summary.std > volatility + 25  # the sample form gives a different value
    assert summary.mean == pytest.approx(mean, abs=0.6)


def test_deviations_between_and_within_batches_are_separate():
    spread = batch_spread([np.array([8.0, 10.0, 12.0]), np.array([18.0, 22.0])])
    assert spread.mean_of_means == 15.0
    assert spread.between_population == 5.0
    assert spread.between == pytest.approx(5 * np.sqrt(2))
    assert spread.within == pytest.approx((2.0 + np.sqrt(8)) / 2)


def test_one_value_has_no_deviation_and_equal_values_have_zero_deviation():
    one = summarise([3.7])
    assert (one.std, one.std_pct, one.error_of_mean, one.std_population) == (None, None, None, 0.0)
    equal = summarise([0.1] * 7)
    assert (equal.mean, equal.std, equal.std_pct) == (0.1, 0.0, 0.0)
    assert summarise([-1.0, 1.0]).std_pct is None
    assert batch_spread([[1.0], [2.0, 3.0]]).within is None


def test_robust_z_of_normal_values_has_unit_deviation():
    labels = label_outliers(np.random.default_rng(1).normal(50, 7, 20_000))
    assert np.std(labels.z) == pytest.approx(1, abs=0.03)
    assert labels.is_outlier.mean() == pytest.approx(4.65e-4, abs=5e-4)  # 2 (1 - Phi(3.5))


def test_a_planted_outlier_is_labelled_and_kept():
    values = np.append(np.random.default_rng(2).normal(100, 1, 30), 130.0)
    labels = label_outliers(values)
    assert labels.is_outlier[-1]
    assert labels.is_outlier.sum() == 1
    assert len(labels.z) == len(values)
    assert not labels.first_only


def test_an_outlier_is_labelled_even_if_most_values_are_equal():
    labels = label_outliers([1.0] * 20 + [2.0])
    assert labels.scale == "mean deviation"
    assert labels.is_outlier.tolist() == [False] * 20 + [True]
    assert label_outliers([4.0, 4.0, 4.0]).scale == "none"
