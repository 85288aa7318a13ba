"""Analysis of a run: its numbers, their limitations, and comparisons with other runs and published values.

This package summarises and evaluates. It prints nothing, draws nothing, and does not depend on the backend of a run.
Statistics are in :mod:`venturi.stats`, and functions to fit are in :mod:`venturi.model`. This package selects their
data and interprets their results. All results are plain frozen data for :mod:`venturi.report` and, through
:func:`as_plain`, for JSON.

The one type to read first: :class:`Analysis`.
"""

from venturi.analysis.analyse import analyse
from venturi.analysis.compare import PointComparison, RunComparison, TotalComparison, compare
from venturi.analysis.curves import chosen_families, rank_curve
from venturi.analysis.options import AnalyseOptions, Criterion
from venturi.analysis.result import Analysis, FitResult, FittedCurves, PointResult, Total
from venturi.analysis.scenarios import ScenarioRow, Scenarios, compare_scenarios
from venturi.analysis.to_json import ANALYSIS_FORMAT, ANALYSIS_VERSION, COMPARISON_FORMAT, SCENARIOS_FORMAT, as_plain

__all__ = [
    "ANALYSIS_FORMAT",
    "ANALYSIS_VERSION",
    "COMPARISON_FORMAT",
    "SCENARIOS_FORMAT",
    "AnalyseOptions",
    "Analysis",
    "Criterion",
    "FitResult",
    "FittedCurves",
    "PointComparison",
    "PointResult",
    "RunComparison",
    "ScenarioRow",
    "Scenarios",
    "Total",
    "TotalComparison",
    "analyse",
    "as_plain",
    "chosen_families",
    "compare",
    "compare_scenarios",
    "rank_curve",
]
