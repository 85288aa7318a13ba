"""The numbers of an analysis, as plain frozen data in base units. Nothing here computes; None means: not measured.

========================  =================================================================================
name                      what it covers
========================  =================================================================================
throughput_bytes_per_s    of one file: size over mean time, slots combined by eq. (2) of document 000
together_bytes_per_s      of a whole trial: bytes over (last end − first start), mean over the trials
files_times_bytes_per_s   number of files × throughput per file, the "total" of document 000 (L218)
========================  =================================================================================

The second is what went through; the third is what the papers add up, and is larger if files do not overlap fully.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from venturi.analysis.chapter import Chapter
from venturi.analysis.result_lab import (
    ByteAccount,
    FixedCost,
    FixedCostRatio,
    LinkSeries,
    LinkUse,
    SessionSummary,
    SocketSummary,
    StorageRate,
    TableBeside,
    Testbed,
)
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
    "Curve",
    "Factor",
    "FactorValue",
    "Failure",
    "FamilyFit",
    "Fit",
    "FloatArray",
    "Headline",
    "Held",
    "HostSeries",
    "IntArray",
    "LoadCurve",
    "Notice",
    "Part",
    "Point",
    "PublishedFit",
    "PublishedRate",
    "PublishedTotal",
    "SteadySlice",
    "Surface",
    "Total",
    "Trace",
    "Trend",
    "Trials",
    "ZeroSize",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class About:
    """Where the numbers come from, and how to get them again."""

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


@dataclass(frozen=True, slots=True)
class Counts:
    """How much was planned, done and lost. ``outcomes`` counts transfers by their outcome."""

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
class Factor:
    """A factor of the sweep. ``name`` is that of its column, unit included; ``values`` are those seen, in order."""

    name: str
    values: tuple[FactorValue, ...]

    @property
    def varied(self) -> bool:
        """Whether it took more than one value."""
        return len(self.values) > 1

    @property
    def numeric(self) -> bool:
        """Whether all its values are numbers, so that a curve can be drawn against it."""
        return bool(self.values) and all(
            isinstance(value, int | float) and not isinstance(value, bool) for value in self.values
        )


@dataclass(frozen=True, slots=True)
class ZeroSize:
    """Throughput with the time of zero-size files taken off (000, Fig. 7), or why it is refused."""

    outcome: str
    zero_time_s: float
    corrected_time_s: float
    throughput_bytes_per_s: float | None
    error_bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class Part:
    """One of the movers of a point that runs several at once (``"read+write"``)."""

    mover: str
    transfers_ok: int
    throughput_bytes_per_s: float | None
    error_bytes_per_s: float | None
    together_bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the sweep.

    Attributes
    ----------
    factors
        Factor → value, in base units.
    trials, trials_planned
        Trials with an outcome, and repetitions planned (None if the plan does not say).
    throughput_bytes_per_s, error_bytes_per_s, error_kind
        Per file, with the error that is used everywhere else: the largest of internal, external and trial; None below
        two trials, of which the scatter between slots (``error_external_bytes_per_s``) says nothing.
    error_printed_bytes_per_s
        By eq. (3) of document 000 as printed, for comparison only (000-E02).
    interval
        Of the throughput per file; the replicate is the whole trial. None below three trials.
    together, together_interval
        Rate of the whole trial: mean over the trials, and its interval.
    tail_s, start_spread_s
        Means over the trials of last end − first end, and of last start − first start.
    cpu_s_per_byte
        Processor time of the movers, user and system, per byte delivered.
    trend_ratio
        Throughput at the end of the run over that at its beginning, by a straight line through the trials.
    outliers
        Trials labelled as outliers (kept in all numbers).
    throughput_without_outliers_bytes_per_s
        The same mean without them; None if there are none.
    absent
        Why a number is missing, in words.
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
    parts: tuple[Part, ...]
    absent: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fit:
    """One family fitted to one curve. ``draw_x``, ``draw_y``, ``draw_low``, ``draw_high`` are for a figure."""

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
class Curve:
    """Throughput per file against one factor, the others held: ``x`` ascending, one element a point."""

    against: str
    others: Mapping[str, FactorValue]
    x: tuple[float, ...]
    y_bytes_per_s: tuple[float, ...]
    error_bytes_per_s: tuple[float | None, ...]
    points: tuple[int, ...]
    fits: tuple[Fit, ...]
    reason: str | None
    """Why there is no fit; None if there is one."""
    ranked_by: str | None = None
    """What ranked the fits, where it is not the criterion asked for (too few points for it)."""

    @property
    def best(self) -> Fit | None:
        """The fit ranked first."""
        return self.fits[0] if self.fits else None


@dataclass(frozen=True, slots=True)
class FamilyFit:
    """One family over all curves against one factor: a row of table III of document 000, for every family.

    ``curves`` and the means count the curves on which it has fewer parameters than there are points; with as many it passes
    through all of them and R² = 1 says nothing.
    """

    against: str
    family: str
    formula: str
    curves: int
    mean_r2: float | None
    mean_adjusted_r2: float | None
    mean_delta_aicc: float | None
    first: int
    """On how many curves it is ranked first by the criterion."""


@dataclass(frozen=True, slots=True)
class BestFamily:
    """The row of table III: the family with the highest mean R², and the one that the criterion puts first most often."""

    against: str
    low: float
    high: float
    curves: int
    by_mean_r2: FamilyFit
    by_criterion: FamilyFit
    criterion: str


@dataclass(frozen=True, slots=True)
class Surface:
    """One function of size and files together, which document 000 wanted and did not do."""

    others: Mapping[str, FactorValue]
    family: str
    formula: str
    parameters: Mapping[str, float]
    errors: Mapping[str, float | None]
    r2: float | None
    points: int
    worst_ratio: float | None
    """Largest factor by which the surface misses a point."""


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
    """Rate of the whole trial against the number of files: does more in parallel give more in all?"""

    others: Mapping[str, FactorValue]
    files: tuple[int, ...]
    together_bytes_per_s: tuple[float, ...]
    error_bytes_per_s: tuple[float | None, ...]
    steps: tuple[StepRatio, ...]
    saturation: Saturation | None
    knee: Knee | None


@dataclass(frozen=True, slots=True)
class SteadySlice:
    """The steady part of a sampled rate within one trial, beside the whole of it."""

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
    """The same bytes counted by different parties, over all transfers that succeeded. None: nobody counted.

    ``*_ratio`` is the count over the bytes asked for, of those transfers for which there is a count.
    """

    asked_bytes: int
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
    """Change of the rate from the first to the last trial in the order of execution, points taken out."""

    ratio: float
    low: float
    high: float
    trials: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Transfers that failed alike."""

    outcome: str
    call: str
    error: str
    count: int
    example: str
    points: int


@dataclass(frozen=True, slots=True)
class Notice:
    """A finding, its copies counted: ``count`` times, first seen in ``example`` (None: the run as a whole)."""

    code: str
    subject: str
    evidence: str
    advice: str
    count: int = 1
    example: str | None = None
    severity: Literal["doubt", "note"] = "doubt"


@dataclass(frozen=True, slots=True)
class Held:
    """What one table says of a published statement, with the figure that tells, or why it says nothing."""

    verdict: Literal["agrees", "disagrees", "not tested"]
    evidence: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A published statement held against our numbers.

    ``published`` is what the report's own table says of it, None where it has none; ``errata`` are ids of slips that the statement
    is one of.
    """

    id: str
    text: str
    check: str
    verdict: Literal["agrees", "disagrees", "cannot tell", "not tested"]
    evidence: str
    published: Held | None = None
    errata: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PublishedFit:
    """A row of the published table of best functions beside ours, over the same range (``files_min``, ``files_max``)."""

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
    """A published total beside ours. ``scale``: what it was multiplied by for the ratio, where links were scaled."""

    name: str
    total_bytes_per_s: float
    files_min: int
    files_max: int
    ours: Total | None
    ratio: float | None
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class PublishedRate:
    """A published rate beside ours: rates of whole trials, or of a storage, over the points that match.

    ``scale``: what the published rate was multiplied by for the ratio, which compares the middles of both ranges.
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
class Trace:
    """A rate in time, thinned to bins: least, mean and greatest of each. ``time_s`` is the middle of the bin."""

    name: str
    unit: Literal["bytes_per_s", "ratio"]
    time_s: FloatArray
    low: FloatArray
    mean: FloatArray
    high: FloatArray


@dataclass(frozen=True, slots=True)
class HostSeries:
    """What the counters of one host say, with the trials that went on (``busy``: first start, last end, in s)."""

    host: str
    traces: tuple[Trace, ...]
    busy: tuple[tuple[float, float], ...]
    samples: int


@dataclass(frozen=True, slots=True)
class Headline:
    """The highest rate of a whole trial, and where it was seen."""

    bytes_per_s: float
    interval: Interval | None
    point: int
    factors: Mapping[str, FactorValue]


@dataclass(frozen=True, slots=True, eq=False)
class Trials:
    """One element a trial, in the order of execution; NaN where there is no rate. Left out of JSON (it is in the run)."""

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
    """All that one run says.

    Attributes
    ----------
    sentence
        The answer with its caveats, made from the data by rules: ``answer``, ``setting`` and ``caveat`` together.
    answer, setting, caveat
        The answer in one sentence, where that was (of an emulated testbed: between which hosts, over which network, at which
        scale; else empty), and what makes it doubtful, in a few more (empty if nothing does).
    headline
        The highest rate of a whole trial; None if no transfer of any byte succeeded.
    points, curves, families, best_families, surfaces
        The sweep, its curves with fits, all families over the curves, table III of document 000, and fits in two variables.
    totals, common_totals
        Table IV, over the whole grid and over 1 to 30 files (000-E14); the latter is empty where that is the same.
    loads
        Rate of whole trials against files: step ratios, saturation.
    storage_rates
        What each storage gave and took, by point (the form of the table of document 001, group 2).
    fixed_costs, fixed_cost_ratios
        Times of transfers of size zero, and what one value of a factor costs over another there (authentication).
    testbed
        The emulated testbed; None if hosts and network were what they are.
    accounts
        The bytes that crossed the network, as each party counted them.
    sockets, link_use, links
        TCP connections by point, links by point, and the busiest links in time.
    sessions
        Control connections of servers, by server and point.
    chapters
        What the kind of experiment says besides (:mod:`venturi.analysis.chapters`).
    notices
        Findings of the run and of this analysis, gravest first.
    published_*, claims, errata
        The study that the scenario names, beside our numbers; empty without one.
    not_tested
        What this run cannot say, in words.
    trials
        Columns, for comparisons and figures.
    """

    about: About
    counts: Counts
    sentence: str
    answer: str
    setting: str
    caveat: str
    headline: Headline | None
    factors: tuple[Factor, ...]
    points: tuple[Point, ...]
    curves: tuple[Curve, ...]
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
    testbed: Testbed | None
    accounts: tuple[ByteAccount, ...]
    sockets: tuple[SocketSummary, ...]
    link_use: tuple[LinkUse, ...]
    sessions: tuple[SessionSummary, ...]
    links: tuple[LinkSeries, ...]
    conservation: Conservation
    trend: Trend | None
    failures: tuple[Failure, ...]
    chapters: tuple[Chapter, ...]
    notices: tuple[Notice, ...]
    claims: tuple[Claim, ...]
    published_fits: tuple[PublishedFit, ...]
    published_totals: tuple[PublishedTotal, ...]
    published_rates: tuple[PublishedRate, ...]
    published_tables: tuple[TableBeside, ...]
    errata: tuple[Erratum, ...]
    series: tuple[HostSeries, ...]
    not_tested: tuple[str, ...]
    trials: Trials
