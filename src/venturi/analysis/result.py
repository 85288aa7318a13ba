"""Results of an analysis as frozen data in base units.

This module computes nothing. A value of None means that it was not measured. An analysis has three kinds of throughput:

- ``throughput_bytes_per_s`` of one file: size over mean time, slots combined by eq. (2) of document 000.
- ``together_bytes_per_s`` of a whole trial: bytes over (last end − first start), averaged over the trials.
- ``files_times_bytes_per_s``: number of files × throughput per file, the "total" of document 000 (L218).

The second rate is the total throughput. The third rate is the sum that the papers report. It is larger if the files do
not overlap fully.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from venturi.analysis.result_lab import (
    ByteCount,
    FixedCost,
    FixedCostRatio,
    LinkSeries,
    LinkUse,
    PublishedTableComparison,
    SessionSummary,
    SocketSummary,
    StorageRate,
    TestbedResult,
)
from venturi.analysis.section import ReportSection
from venturi.analysis.values import FactorValue, FloatArray, IntArray
from venturi.stats import Interval, Knee, Saturation, StepRatio
from venturi.study import Erratum

__all__ = [
    "About",
    "Analysis",
    "BestFamily",
    "Claim",
    "Conservation",
    "Counts",
    "FactorColumn",
    "FactorValue",
    "Failure",
    "FamilyFit",
    "FindingSummary",
    "FitResult",
    "FittedCurves",
    "FloatArray",
    "Headline",
    "HostSeries",
    "IntArray",
    "LoadCurve",
    "MoverPart",
    "NextStep",
    "PointResult",
    "PublishedFit",
    "PublishedRate",
    "PublishedTotal",
    "RateTrace",
    "SteadySlice",
    "Surface",
    "TableVerdict",
    "Total",
    "Trend",
    "Trials",
    "ZeroSize",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class About:
    """Source of the results and the settings that reproduce them."""

    name: str
    path: str
    state: str
    backend: str
    created_unix_ns: int
    plan_sha256: str
    seed: int | None
    scale: float
    scenario: Mapping[str, Any]
    study: str | None
    mover: str
    environment: Mapping[str, Mapping[str, str]]
    venturi_version: str
    confidence: float
    criterion: str

    @property
    def sweep(self) -> bool:
        """True if the workload is a sweep, so that its design points describe it."""
        workload = self.scenario.get("workload")
        return not isinstance(workload, Mapping) or workload.get("kind", "sweep") == "sweep"


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of planned, finished and failed points, trials and transfers.

    ``outcomes`` counts the transfers by outcome.
    """

    points_planned: int | None
    points: int
    trials_planned: int | None
    trials: int
    trials_failed: int
    transfers: int
    transfers_ok: int
    transfers_failed: int
    transfers_outside_trials: int
    outcomes: Mapping[str, int]
    received_bytes: int
    span_s: float | None
    busy_s: float | None


@dataclass(frozen=True, slots=True)
class FactorColumn:
    """Factor of the sweep.

    ``name`` is the name of its column, including the unit. ``values`` are the observed values in order.
    """

    name: str
    values: tuple[FactorValue, ...]

    @property
    def varied(self) -> bool:
        """True if the factor took more than one value."""
        return len(self.values) > 1

    @property
    def numeric(self) -> bool:
        """True if all values are numbers, so that a curve can be drawn against them."""
        return bool(self.values) and all(
            isinstance(value, int | float) and not isinstance(value, bool) for value in self.values
        )


@dataclass(frozen=True, slots=True)
class ZeroSize:
    """Throughput after subtraction of the time of zero-size files (000, Fig. 7).

    ``outcome`` gives the reason if the correction is rejected.
    """

    outcome: str
    zero_time_s: float
    corrected_time_s: float
    throughput_bytes_per_s: float | None
    error_bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class MoverPart:
    """One mover of a point that runs several movers at the same time (``"read+write"``)."""

    mover: str
    transfers_ok: int
    throughput_bytes_per_s: float | None
    error_bytes_per_s: float | None
    together_bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class PointResult:
    """One point of the sweep.

    Attributes
    ----------
    factors
        Factor → value, in base units.
    trials, trials_planned
        Trials with an outcome, and planned repetitions (None if the plan has no number).
    throughput_bytes_per_s, error_bytes_per_s, error_kind
        Throughput per file and its default error, which is the largest of internal, external and trial error. The error
        is None below two trials, because the scatter between slots (``error_external_bytes_per_s``) does not estimate
        the scatter between trials.
    error_printed_bytes_per_s
        Error by eq. (3) of document 000 as printed, for comparison only (000-E02).
    interval
        Interval of the throughput per file. The replicate is the whole trial. None below three trials.
    together_bytes_per_s, together_interval
        Rate of the whole trial: mean over the trials, and its interval.
    tail_s, start_spread_s
        Means over the trials of (last end − first end) and (last start − first start).
    cpu_s_per_byte
        CPU time of the movers, user and system, per delivered byte.
    trend_ratio
        Throughput at the end of the run over throughput at its start, from a straight line through the trials.
    outliers
        Number of trials labelled as outliers. All numbers include them.
    throughput_without_outliers_bytes_per_s
        Mean throughput without the outliers. None if no trial is an outlier.
    absent
        Reasons for missing numbers, as text.
    """

    point: int
    factors: Mapping[str, FactorValue]
    size_bytes: float | None
    files: int
    trials: int
    trials_planned: int | None
    trials_failed: int
    transfers_ok: int
    transfers_failed: int
    mean_time_s: float | None
    error_time_s: float | None
    throughput_bytes_per_s: float | None
    error_bytes_per_s: float | None
    error_kind: str | None
    plain_mean_bytes_per_s: float | None
    weighted_mean_bytes_per_s: float | None
    error_printed_bytes_per_s: float | None
    error_internal_bytes_per_s: float | None
    error_external_bytes_per_s: float | None
    error_trial_bytes_per_s: float | None
    interval: Interval | None
    together_bytes_per_s: float | None
    together_error_bytes_per_s: float | None
    together_interval: Interval | None
    files_times_bytes_per_s: float | None
    tail_s: float | None
    start_spread_s: float | None
    span_s: float | None
    cpu_s_per_byte: float | None
    read_disk_ratio: float | None
    trend_ratio: float | None
    outliers: int
    throughput_without_outliers_bytes_per_s: float | None
    zero_size: ZeroSize | None
    parts: tuple[MoverPart, ...]
    absent: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FitResult:
    """One family fitted to one curve.

    ``draw_x``, ``draw_y``, ``draw_low`` and ``draw_high`` are the points of its line in a figure.
    """

    family: str
    formula: str
    parameters: Mapping[str, float]
    errors: Mapping[str, float | None]
    rank: int
    degrees_of_freedom: int
    r2: float | None
    adjusted_r2: float | None
    aicc: float | None
    delta_aicc: float | None
    cross_validation: float | None
    warnings: tuple[str, ...]
    draw_x: tuple[float, ...] = ()
    draw_y: tuple[float, ...] = ()
    draw_low: tuple[float, ...] = ()
    draw_high: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class FittedCurves:
    """Throughput per file against one factor with the other factors fixed.

    ``x`` is ascending. All columns have one element per point.
    """

    against: str
    others: Mapping[str, FactorValue]
    x: tuple[float, ...]
    y_bytes_per_s: tuple[float, ...]
    error_bytes_per_s: tuple[float | None, ...]
    points: tuple[int, ...]
    fits: tuple[FitResult, ...]
    reason: str | None
    """Reason for the missing fit. None if the curve has a fit."""
    independent: bool = False
    """True if even the best fitted function explains nothing. Then no dependence was found, and ``fits`` is empty."""
    ranked_by: str | None = None
    """Criterion that ranked the fits if the curve has too few points for the requested criterion."""

    @property
    def best(self) -> FitResult | None:
        """The fit ranked first."""
        return self.fits[0] if self.fits else None


@dataclass(frozen=True, slots=True)
class FamilyFit:
    """One family over all curves against one factor: a row of table III of document 000 for every family.

    ``curves`` and the means only include curves with more points than the family has parameters. With equal numbers the
    family passes through all points, so R² = 1 means nothing.
    """

    against: str
    family: str
    formula: str
    curves: int
    mean_r2: float | None
    mean_adjusted_r2: float | None
    mean_delta_aicc: float | None
    first: int
    """Number of curves with this family first by the criterion."""


@dataclass(frozen=True, slots=True)
class BestFamily:
    """Row of table III of document 000.

    The row has the family with the highest mean R² and the family that the criterion ranks first most often.
    """

    against: str
    low: float
    high: float
    curves: int
    by_mean_r2: FamilyFit
    by_criterion: FamilyFit
    criterion: str


@dataclass(frozen=True, slots=True)
class Surface:
    """One function of size and files together, which document 000 proposed but did not fit."""

    others: Mapping[str, FactorValue]
    family: str
    formula: str
    parameters: Mapping[str, float]
    errors: Mapping[str, float | None]
    r2: float | None
    points: int
    worst_ratio: float | None
    """Largest ratio between the surface and a point."""


@dataclass(frozen=True, slots=True)
class Total:
    """Mean over the grid of files × throughput per file: table IV of document 000."""

    others: Mapping[str, FactorValue]
    name: str
    mean_bytes_per_s: float
    error_bytes_per_s: float | None
    points: int
    files_low: int
    files_high: int
    complete: bool


@dataclass(frozen=True, slots=True)
class LoadCurve:
    """Rate of the whole trial against the number of parallel files."""

    others: Mapping[str, FactorValue]
    files: tuple[int, ...]
    together_bytes_per_s: tuple[float, ...]
    error_bytes_per_s: tuple[float | None, ...]
    steps: tuple[StepRatio, ...]
    saturation: Saturation | None
    knee: Knee | None


@dataclass(frozen=True, slots=True)
class SteadySlice:
    """Steady part of a sampled rate within one trial, and the rate of the whole trial."""

    trial: str
    point: int
    counter: str
    whole_bytes_per_s: float
    steady_bytes_per_s: float | None
    start_s: float | None
    end_s: float | None
    rule: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class Conservation:
    """Bytes of all successful transfers as counted by each party. None if a party has no count.

    Each ``*_ratio`` is a count over the requested bytes of the transfers that have this count.
    """

    requested_bytes: int
    received_bytes: int | None
    received_ratio: float | None
    tool_ratio: float | None
    read_call_ratio: float | None
    write_call_ratio: float | None
    read_disk_ratio: float | None
    write_disk_ratio: float | None
    device_read_bytes: float | None
    device_written_bytes: float | None
    network_received_bytes: float | None
    network_sent_bytes: float | None
    loopback_bytes: float | None


@dataclass(frozen=True, slots=True)
class Trend:
    """Change of the rate from the first to the last trial in execution order, without the differences between points."""

    ratio: float
    low: float
    high: float
    trials: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Failed transfers with the same outcome, call and error."""

    outcome: str
    call: str
    error: str
    count: int
    example: str
    points: int


@dataclass(frozen=True, slots=True)
class FindingSummary:
    """Finding and its number of occurrences.

    ``example`` names the first occurrence. It is None if the finding is about the whole run.
    """

    code: str
    subject: str
    evidence: str
    advice: str
    count: int = 1
    example: str | None = None
    severity: Literal["warning", "note"] = "warning"


@dataclass(frozen=True, slots=True)
class TableVerdict:
    """Verdict of one table about a published statement.

    ``evidence`` holds the figure that decides, or the reason for "not tested".
    """

    verdict: Literal["agrees", "disagrees", "not tested"]
    evidence: str


@dataclass(frozen=True, slots=True)
class Claim:
    """Published statement checked against this run.

    ``published`` is the verdict of the report's own table, or None without a table. ``errata`` are the ids of errata
    that concern the statement.
    """

    id: str
    text: str
    check: str
    verdict: Literal["agrees", "disagrees", "cannot tell", "not tested"]
    evidence: str
    published: TableVerdict | None = None
    errata: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PublishedFit:
    """Row of the published table of best functions, and our fits over the same range (``files_min``, ``files_max``)."""

    against: str
    equation: str
    family: str
    mean_r2_table: float | None
    mean_r2_text: float | None
    range: str
    ours_same_family: FamilyFit | None
    ours_best: FamilyFit | None
    files_min: int | None = None
    files_max: int | None = None


@dataclass(frozen=True, slots=True)
class PublishedTotal:
    """Published total and our total.

    ``ratio`` uses the published value multiplied by ``scale``, because the links of a testbed can be scaled.
    """

    name: str
    total_bytes_per_s: float
    files_min: int
    files_max: int
    ours: Total | None
    ratio: float | None
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class PublishedRate:
    """Published rate and our rate: rates of whole trials or of a storage, over the matching points.

    ``ratio`` compares the middles of both ranges. It uses the published rate multiplied by ``scale``.
    """

    name: str
    mover: str
    files_min: int
    files_max: int
    low_bytes_per_s: float
    high_bytes_per_s: float
    qualifier: str
    ours_low_bytes_per_s: float | None
    ours_high_bytes_per_s: float | None
    points: int
    ratio: float | None = None
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class RateTrace:
    """Rate in time, reduced to bins with their minimum, mean and maximum.

    ``time_s`` is the middle of each bin.
    """

    name: str
    unit: Literal["bytes_per_s", "ratio"]
    time_s: FloatArray
    low: FloatArray
    mean: FloatArray
    high: FloatArray


@dataclass(frozen=True, slots=True)
class HostSeries:
    """Traces of the counters of one host.

    ``busy`` holds the times of the trials: first start and last end, in s.
    """

    host: str
    traces: tuple[RateTrace, ...]
    busy: tuple[tuple[float, float], ...]
    samples: int


@dataclass(frozen=True, slots=True)
class Headline:
    """Answer of a run in at most 25 words, and the point with the highest rate of a whole trial.

    ``text`` has the rate with its interval, or the reason for a missing interval, and the bottleneck. It gives the range
    of several points, never a mean over them. The other fields are None or empty if no trial has a rate.
    """

    text: str
    bytes_per_s: float | None = None
    interval: Interval | None = None
    point: int | None = None
    factors: Mapping[str, FactorValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NextStep:
    """Next step of a reader. ``command`` is empty if the step is an experiment and not a command of Venturi."""

    reason: str
    command: str


@dataclass(frozen=True, slots=True, eq=False)
class Trials:
    """Columns with one element per trial, in execution order.

    Missing rates are NaN. The JSON output omits these columns because the run has them.
    """

    point: IntArray
    repetition: IntArray
    position: IntArray
    start_s: FloatArray
    end_s: FloatArray
    together_bytes_per_s: FloatArray
    throughput_bytes_per_s: FloatArray
    tail_s: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Analysis:
    """Complete analysis of one run.

    Attributes
    ----------
    headline
        Rate with interval and bottleneck in at most 25 words.
    sentence
        ``headline``, ``conclusion``, ``setting`` and ``caveat`` together, made from the data by rules.
    next_step
        Command or experiment that follows from the result.
    bottleneck
        Rate and bottleneck of the run (:mod:`venturi.advice`). Empty if no transfer succeeded.
    verdict
        Section with the evidence for the bottleneck. None if no transfer succeeded.
    point_limits
        Point → resource that limits it. Points without a decided bottleneck are absent.
    conclusion
        Facts that the headline lacks, in a few sentences.
    setting
        Hosts, network and scale of an emulated or simulated testbed. Otherwise empty.
    caveat
        Caveats of the result. Empty without caveats.
    points, curves, families, best_families, surfaces
        The sweep, its curves with fits, and all families over the curves. Then table III of document 000 and fits in
        two variables.
    totals, common_totals
        Table IV over the whole grid, and over 1 to 30 files (000-E14). The latter is empty if both are the same.
    loads
        Rate of whole trials against files, with step ratios and saturation.
    storage_rates
        Read and write rates of each storage by point (in the form of the table of document 001, group 2).
    fixed_costs, fixed_cost_ratios
        Times of zero-size transfers, and the cost ratios of the values of a factor (authentication).
    testbed
        The emulated or simulated testbed. None on existing hosts.
    accounts
        The bytes that crossed the network, as each party counted them.
    sockets, link_use, links
        TCP connections by point, links by point, and the busiest links in time.
    sessions
        Control connections of servers, by server and point.
    sections
        Sections for the kind of experiment (:mod:`venturi.analysis.sections`).
    findings
        Findings of the run and of this analysis, the most serious first.
    published_*, claims, errata
        Values of the study that the scenario names, compared with this run. Empty without a study.
    not_tested
        Questions that this run does not answer, as text.
    trials
        Columns for comparisons and figures.
    """

    about: About
    counts: Counts
    headline: Headline
    sentence: str
    next_step: NextStep
    bottleneck: str
    verdict: ReportSection | None
    point_limits: Mapping[int, str]
    conclusion: str
    setting: str
    caveat: str
    factors: tuple[FactorColumn, ...]
    points: tuple[PointResult, ...]
    curves: tuple[FittedCurves, ...]
    families: tuple[FamilyFit, ...]
    best_families: tuple[BestFamily, ...]
    surfaces: tuple[Surface, ...]
    totals: tuple[Total, ...]
    common_totals: tuple[Total, ...]
    loads: tuple[LoadCurve, ...]
    steady: tuple[SteadySlice, ...]
    storage_rates: tuple[StorageRate, ...]
    fixed_costs: tuple[FixedCost, ...]
    fixed_cost_ratios: tuple[FixedCostRatio, ...]
    testbed: TestbedResult | None
    accounts: tuple[ByteCount, ...]
    sockets: tuple[SocketSummary, ...]
    link_use: tuple[LinkUse, ...]
    sessions: tuple[SessionSummary, ...]
    links: tuple[LinkSeries, ...]
    conservation: Conservation
    trend: Trend | None
    failures: tuple[Failure, ...]
    sections: tuple[ReportSection, ...]
    findings: tuple[FindingSummary, ...]
    claims: tuple[Claim, ...]
    published_fits: tuple[PublishedFit, ...]
    published_totals: tuple[PublishedTotal, ...]
    published_rates: tuple[PublishedRate, ...]
    published_tables: tuple[PublishedTableComparison, ...]
    errata: tuple[Erratum, ...]
    series: tuple[HostSeries, ...]
    not_tested: tuple[str, ...]
    trials: Trials

    @property
    def all_sections(self) -> tuple[ReportSection, ...]:
        """All sections in their order: the section of the verdict first."""
        return self.sections if self.verdict is None else (self.verdict, *self.sections)

    @property
    def shown_sections(self) -> tuple[ReportSection, ...]:
        """Sections of the page and the terminal: details of the protocol last.

        The verdict replaces the section of simulated bottlenecks.
        """
        hidden = () if self.verdict is None else ("bottlenecks",)
        shown = (section for section in self.all_sections if section.name not in hidden)
        return tuple(sorted(shown, key=lambda section: section.name == "gridftp"))
