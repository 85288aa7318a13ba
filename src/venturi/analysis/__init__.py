"""What a run says: its numbers, what limits their worth, and how they stand against what was published.

Summarising and judging, nothing else: this package prints nothing, draws nothing, and does not know which backend made a
run. Statistics come from :mod:`venturi.stats`, functions to fit from :mod:`venturi.model`; what is here decides which
of them to ask, of which data, and what the answer means. All of it is plain frozen data, ready for
:mod:`venturi.report` and, by :func:`as_plain`, for JSON.

The one type to read first: :class:`Analysis`.
"""

from venturi.analysis.analyse import analyse
from venturi.analysis.compare import Comparison, PointComparison, TotalComparison, compare
from venturi.analysis.curves import chosen_families, rank_curve
from venturi.analysis.options import AnalyseOptions, Criterion
from venturi.analysis.plain import ANALYSIS_FORMAT, ANALYSIS_VERSION, COMPARISON_FORMAT, SCENARIOS_FORMAT, as_plain
from venturi.analysis.result import Analysis, Curve, Fit, Point, Total
from venturi.analysis.scenarios import ScenarioRow, Scenarios, compare_scenarios

__all__ = [
    "ANALYSIS_FORMAT",
    "ANALYSIS_VERSION",
    "COMPARISON_FORMAT",
    "SCENARIOS_FORMAT",
    "AnalyseOptions",
    "Analysis",
    "Comparison",
    "Criterion",
    "Curve",
    "Fit",
    "Point",
    "PointComparison",
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
