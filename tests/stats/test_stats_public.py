"""The public names of venturi.stats, and the rule that the package neither prints nor reads."""

import ast
import dataclasses
from pathlib import Path

import pytest

import venturi.stats as stats
from venturi.errors import SampleError, VenturiError

NAMES = [
    "Absence",
    "BatchSpread",
    "Comparison",
    "CorrectedThroughput",
    "FEW_TRIALS",
    "GridRates",
    "Interval",
    "Knee",
    "MANY_VALUES",
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
    "point_throughput",
    "point_throughputs",
    "ratio_interval",
    "saturation_point",
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


def test_the_public_names_are_these_and_all_exist():
    assert sorted(stats.__all__) == sorted(NAMES)
    assert all(hasattr(stats, name) for name in NAMES)


def test_every_result_is_a_frozen_dataclass():
    results = [value for name in NAMES if isinstance(value := getattr(stats, name), type) and name != "Absence"]
    assert len(results) > 15
    for result in results:
        assert dataclasses.is_dataclass(result), result
        assert result.__dataclass_params__.frozen, result


def test_the_package_imports_nothing_of_ours_but_errors():
    for path in Path(stats.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("venturi"):
                assert node.module.startswith(("venturi.stats", "venturi.errors")), (path.name, node.module)


def test_errors_are_ours_and_are_value_errors():
    with pytest.raises(ValueError, match="expected at least 1 values, found 0") as caught:
        stats.summarise([])
    assert isinstance(caught.value, SampleError)
    assert isinstance(caught.value, VenturiError)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_refused_with_its_place(wrong):
    with pytest.raises(SampleError, match=r"found (nan|inf) at position 2"):
        stats.summarise([1.0, 2.0, wrong])
