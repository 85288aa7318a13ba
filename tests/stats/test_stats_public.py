"""Public names of venturi.stats, and the rule that the package neither prints nor reads files."""

import ast
import dataclasses
from pathlib import Path

import pytest

import venturi.stats as stats
from venturi.errors import SampleError, VenturiError

NAMES = [
    "Absence",
    "BatchSpread",
    "RatioComparison",
    "CorrectedThroughput",
    "FEW_TRIALS",
    "GridRates",
    "Interval",
    "Knee",
    "MSER_BATCH",
    "MeanRates",
    "Outliers",
    "PointThroughput",
    "PointThroughputs",
    "ROBUST_Z_LIMIT",
    "SHORTEST_SERIES",
    "SIGNIFICANT_DEVIATIONS",
    "Saturation",
    "SlotThroughput",
    "SteadyState",
    "StepRatio",
    "Summary",
    "TotalThroughput",
    "TrialRate",
    "TrialRates",
    "Verdict",
    "batch_spread",
    "bca_interval",
    "block_length",
    "compare",
    "fixed_slice",
    "label_outliers",
    "mean_interval",
    "mean_rates",
    "median_interval",
    "point_throughput",
    "point_throughputs",
    "ratio_interval",
    "saturation_point",
    "series_mean_interval",
    "shortest_median_sample",
    "slot_throughput",
    "stationary_bootstrap_interval",
    "steady_state",
    "step_ratios",
    "student_interval",
    "summarise",
    "total_throughput",
    "totals_on_common_points",
    "trial_rate",
    "trial_rates",
    "two_segment_knee",
    "zero_size_correction",
]


def test_the_public_names_match_the_expected_list_and_exist():
    assert sorted(stats.__all__) == sorted(NAMES)
    assert all(hasattr(stats, name) for name in NAMES)


def test_every_result_is_a_frozen_dataclass():
    results = [value for name in NAMES if isinstance(value := getattr(stats, name), type) and name != "Absence"]
    assert len(results) > 15
    for result in results:
        assert dataclasses.is_dataclass(result), result
        assert result.__dataclass_params__.frozen, result


def test_the_package_imports_only_venturi_errors_from_other_venturi_packages():
    for path in Path(stats.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("venturi"):
                assert node.module.startswith(("venturi.stats", "venturi.errors")), (path.name, node.module)


def test_errors_are_venturi_errors_and_value_errors():
    with pytest.raises(ValueError, match="expected at least 1 values, found 0") as caught:
        stats.summarise([])
    assert isinstance(caught.value, SampleError)
    assert isinstance(caught.value, VenturiError)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_values_whose_squares_overflow_or_underflow_are_rejected(size):
    with pytest.raises(SampleError, match="use another unit"):
        stats.student_interval([size, 2 * size])


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_non_finite_number_is_rejected_with_its_position(wrong):
    with pytest.raises(SampleError, match=r"found (nan|inf) at position 2"):
        stats.summarise([1.0, 2.0, wrong])
