"""Statistics of measurements: pure functions on numpy arrays.

The package does not depend on backends, runs or files, and prints nothing. Fits of curves are in :mod:`venturi.model`,
reading and grouping of tables in :mod:`venturi.run`, and texts in :mod:`venturi.report`. Read :class:`PointThroughput`
first, then :class:`Interval`.

Results are frozen dataclasses. A number that cannot be computed is ``None`` (NaN in the columns of the grouped forms),
and another field gives the reason. Invalid input raises :class:`venturi.errors.SampleError`, a ``ValueError``. The
caller provides random generators. Names end in their unit; without one, the result has the unit of the argument.

Throughput of sweep points (document 000)
    - ``slot_throughput(time_s, size_bytes) -> SlotThroughput``: eq. (1), with spread and with error of the mean
    - ``point_throughput(time_s, size_bytes) -> PointThroughput``: eqs. (2), (3) printed, internal, external, trial
    - ``point_throughputs(group_index, slot_index, time_s, size_bytes, repetition_index=None) -> PointThroughputs``:
      the same by columns for 10⁶ transfers; ``.row(i) -> PointThroughput``; ``Absence`` explains missing numbers
    - ``zero_size_correction(size_bytes, time_s, time_error_s, zero_time_s, zero_time_error_s) -> CorrectedThroughput``
    - ``total_throughput(GridRates(files, size_bytes, rate_bytes_per_s, error_bytes_per_s=None)) -> TotalThroughput``
    - ``totals_on_common_points({name: GridRates}) -> {name: TotalThroughput}``: table IV on equal points

Rates
    - ``mean_rates(size_bytes, duration_s) -> MeanRates``: arithmetic, harmonic, byte-weighted, time-weighted
    - ``trial_rate(start_s, end_s, size_bytes) -> TrialRate``: aggregate, first and last done, tail
    - ``trial_rates(trial_index, start_s, end_s, size_bytes) -> TrialRates``: the same by columns; ``.row(i)``

Samples
    - ``summarise(values) -> Summary``: n, mean, median, extremes, std, std_population, std_pct, error_of_mean
    - ``batch_spread(batches) -> BatchSpread``: between batches and within
    - ``label_outliers(values, *, limit=3.5) -> Outliers``: labels by robust z; all values are kept

Intervals and comparisons
    - ``mean_interval(sample, *, level=0.95, positive=False) -> Interval``: one value per trial; selects and names the method
    - ``student_interval(sample, *, level)``, ``bca_interval(sample, statistic=mean, *, rng, level, resamples)``
    - ``series_mean_interval(series, *, level)``: mean of the values within one trial, autocorrelated
    - ``stationary_bootstrap_interval(series, statistic=mean, *, rng, level, mean_block_length=None, resamples)`` and
      ``block_length(series) -> float``: any statistic of such values
    - ``median_interval(sample, *, level=0.90) -> Interval``: exact, from 5 values on; ``shortest_median_sample(level)``
    - ``ratio_interval(sample, reference, *, paired, level) -> Interval``
    - ``compare(sample, reference, *, of="rate"|"time", paired, margin=0.05, level=0.95) -> RatioComparison``: verdict
      "faster", "slower", "same within margin" or "cannot tell"

Series and curves
    - ``steady_state(time_s, value, *, end_s=None) -> SteadyState``, ``fixed_slice(time_s, value, start_s, end_s)``
    - ``step_ratios(load, rate, error=None) -> tuple[StepRatio, ...]``
    - ``saturation_point(load, rate, error=None, *, tolerance=0.05, level=0.95) -> Saturation``: "reached", "below
      range" or "not reached"
    - ``two_segment_knee(load, rate, error=None, *, level=0.95) -> Knee``
"""

from venturi.stats.block import block_length, stationary_bootstrap_interval
from venturi.stats.interval import FEW_TRIALS, Interval, bca_interval, mean_interval, student_interval
from venturi.stats.knee import Knee, two_segment_knee
from venturi.stats.median import median_interval, shortest_median_sample
from venturi.stats.outlier import ROBUST_Z_LIMIT, Outliers, label_outliers
from venturi.stats.points import PointThroughputs, point_throughputs
from venturi.stats.rates import MeanRates, TrialRate, TrialRates, mean_rates, trial_rate, trial_rates
from venturi.stats.ratio import RatioComparison, Verdict, compare, ratio_interval
from venturi.stats.saturation import Saturation, saturation_point
from venturi.stats.series import SHORTEST_SERIES, series_mean_interval
from venturi.stats.steady import MSER_BATCH, SteadyState, fixed_slice, steady_state
from venturi.stats.step import StepRatio, step_ratios
from venturi.stats.summary import BatchSpread, Summary, batch_spread, summarise
from venturi.stats.throughput import Absence, PointThroughput, SlotThroughput, point_throughput, slot_throughput
from venturi.stats.total import GridRates, TotalThroughput, total_throughput, totals_on_common_points
from venturi.stats.zero_size import SIGNIFICANT_DEVIATIONS, CorrectedThroughput, zero_size_correction

__all__ = [
    "FEW_TRIALS",
    "MSER_BATCH",
    "ROBUST_Z_LIMIT",
    "SHORTEST_SERIES",
    "SIGNIFICANT_DEVIATIONS",
    "Absence",
    "BatchSpread",
    "CorrectedThroughput",
    "GridRates",
    "Interval",
    "Knee",
    "MeanRates",
    "Outliers",
    "PointThroughput",
    "PointThroughputs",
    "RatioComparison",
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
