"""Findings of the analysis: problems of the measurement, with evidence and advice.

Each check returns at most one finding. :data:`CHECKS` lists the checks, the most serious first. The thresholds and
their reasons are at the top.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from venturi.analysis.byte_counts import block_bytes, disagreeing_counts, only_tool_knows_bytes
from venturi.analysis.expectations import expectation_findings
from venturi.analysis.format import plural
from venturi.analysis.lateness import LATE, grade_lateness
from venturi.analysis.points import MIXED_SIZES
from venturi.analysis.reasons import readable_reason
from venturi.analysis.requested_load import SHORT, RequestedLoad, format_flow
from venturi.analysis.result import (
    About,
    Conservation,
    Counts,
    Failure,
    FindingSummary,
    FittedCurves,
    FloatArray,
    IntArray,
    PointResult,
    Trend,
    Trials,
)
from venturi.analysis.result_lab import ByteCount, TestbedResult
from venturi.analysis.servers import server_counts, server_findings
from venturi.run import Run
from venturi.stats.quantiles import student_reach
from venturi.units import format_bit_rate, format_bytes, format_duration

__all__ = ["CHECKS", "Evidence", "all_findings", "conservation", "failures", "trend"]

FEW_TRIALS = 5
"""Minimum number of trials for a reliable confidence interval. With four values, Student's t is 3.2 times the error."""
CACHED_FRACTION = 0.5
"""Fraction of the bytes read from disk below which the page cache was the main source."""
BYTE_SLACK = 0.01
"""Difference of two counts of the same bytes that needs no finding. Headers, locales and libraries explain it."""
MIN_COUNTED = 1_000_000
"""Minimum file size in bytes for the counts of a process. Below it, libraries are larger than the file."""
DRIFT = 0.03
"""Change over the run that needs no finding, even if it is significant."""
START_SPREAD = 0.05
"""Spread of the starts over the duration of the trial above which transfers hardly ran in parallel."""
WIDE_INTERVAL = 0.10
MIN_TREND_TRIALS = 10
"""Minimum number of trials for a trend."""
MAX_ERROR_READ = 20_000
"""Maximum number of characters read from an error, which can contain the JSON events of a tool."""
MAX_REASON_LEN = 300
MAX_FAILURE_KINDS = 50
OTHER_LOAD = 0.15
"""Fraction of the CPU time used by other programs."""
STEAL = 0.02
SMALL_OUTLIER_FRACTION = 0.05


@dataclass(frozen=True, slots=True)
class Evidence:
    """Input of the checks."""

    about: About
    counts: Counts
    points: Sequence[PointResult]
    conservation: Conservation
    failures: Sequence[Failure]
    trend: Trend | None
    caches: Sequence[tuple[str, int, float | None]]
    """(state, trials, mean fraction of resident pages)."""
    curves: Sequence[FittedCurves]
    cpu_s: tuple[float, float, float] | None
    """Busy, stolen and total CPU seconds."""
    mover_s: float | None
    accounts: Sequence[ByteCount] = ()
    testbed: TestbedResult | None = None
    memory_sources: bool = False
    """True if all sources are storages in memory (tmpfs), which have no disk."""
    limited_destination: bool = False
    """True if a destination with a write rate limit received at least half of that rate."""
    load: RequestedLoad | None = None
    """Requested load of the workloads ``inject`` and ``replay``."""

    @property
    def simulated(self) -> bool:
        """True if no real machine or network was involved."""
        return self.about.backend == "sim"


_RECORDED_AS = {"cache-not-cold": "cache-not-dropped", "bytes-differ": "receiver-has-more"}
"""Findings of the analysis that repeat a finding of the agents."""

Check = Callable[[Evidence], FindingSummary | None]


def all_findings(run: Run, evidence: Evidence) -> tuple[FindingSummary, ...]:
    """Return the findings of this analysis and of the run, the most serious first.

    Codes of the run are not repeated.
    """
    own = [finding for check in CHECKS if (finding := check(evidence)) is not None]
    own += server_findings(server_counts(run))
    own += expectation_findings(run)
    recorded = [
        grade_lateness(run, finding, evidence.testbed) if finding.code == LATE else finding
        for finding in _recorded(run)
    ]
    known = {finding.code for finding in recorded}
    known |= {ours for ours, theirs in _RECORDED_AS.items() if theirs in known}
    found = [finding for finding in own if finding.code not in known] + recorded
    return tuple(sorted(found, key=lambda finding: finding.severity != "warning"))


def _recorded(run: Run) -> list[FindingSummary]:
    """Return the findings of the run, grouped by code and advice."""
    rows = run.query(
        """SELECT code, advice, first(subject) AS subject, count(DISTINCT subject) AS subjects, first(evidence) AS evidence,
                  count(*) AS n, first(coalesce(trial, host)) AS example
           FROM findings GROUP BY code, advice ORDER BY n DESC, code LIMIT 100"""
    )

    def text(key: str, at: int) -> str:
        return str(rows[key][at] or "")

    def subject(at: int) -> str:
        more = int(rows["subjects"][at]) - 1
        return text("subject", at) + (f" and {plural(more, 'other')}" if more > 0 else "")

    return [
        FindingSummary(text("code", i), subject(i), text("evidence", i), text("advice", i), count=int(rows["n"][i]),
               example=rows["example"][i])
        for i in range(len(rows["code"]))
    ]  # fmt: skip


def failures(run: Run) -> tuple[Failure, ...]:
    """Return the failed transfers, grouped by outcome, call and reason, the most frequent first."""
    rows = run.query(
        """SELECT outcome, coalesce(call, '') AS call, coalesce(left(error, $longest), '') AS error, count(*) AS n,
                  min(coalesce(trial, '')) AS example, list(DISTINCT point) AS points
           FROM transfers WHERE outcome <> 'ok' GROUP BY ALL ORDER BY n DESC, outcome, call, error LIMIT 1000""",
        {"longest": MAX_ERROR_READ},
    )
    found: dict[tuple[str, str, str], tuple[int, str, set[int]]] = {}
    for i in range(len(rows["n"])):
        reason = readable_reason(str(rows["error"][i]))[:MAX_REASON_LEN]
        key = str(rows["outcome"][i]), str(rows["call"][i]), reason
        count, example, points = found.get(key, (0, str(rows["example"][i]), set()))
        points |= {int(point) for point in rows["points"][i] if point is not None}
        found[key] = count + int(rows["n"][i]), min(example, str(rows["example"][i])), points
    failures_ = [
        Failure(*key, count=count, example=example, points=len(points))
        for key, (count, example, points) in found.items()
    ]
    return tuple(
        sorted(failures_, key=lambda row: (-row.count, row.outcome, row.call, row.error))[:MAX_FAILURE_KINDS]
    )


def inexact_calls(run: Run) -> list[str]:
    """Return the calls whose tool count can differ from the requested bytes.

    These calls move whole blocks, run for a time, or read in parts.
    """
    calls = run.header.get("calls") or {}
    return [name for name, call in calls.items() if only_tool_knows_bytes(call) or block_bytes(call) is not None]


def conservation(run: Run, devices: dict[str, float]) -> Conservation:
    """Return the bytes of the successful transfers, as counted by each party.

    The bytes that a process read and wrote are only compared with files on its own host. A client of a server, or of
    the source ``zero:``, reads no file.
    """
    here = {
        "local": [f"{storage['host']}/{name}" for name, storage in (run.header.get("storages") or {}).items()],
        "inexact": inexact_calls(run),
    }
    source = "source_via IS NULL AND list_contains($local::VARCHAR[], host || '/' || split_part(source, ':', 1))"
    destination = (
        "destination_via IS NULL AND list_contains($local::VARCHAR[], host || '/' || split_part(destination, ':', 1))"
    )
    counted = f"requested_bytes >= {MIN_COUNTED}"

    def over(column: str, condition: str) -> str:
        known = f"FILTER ({column} IS NOT NULL AND {condition})"
        return f"sum({column}) {known}::DOUBLE / nullif(sum(requested_bytes) {known}, 0) AS {column}"

    read_itself = f"{source} AND {counted} AND read_call_bytes >= 0.5 * requested_bytes"
    columns = ", ".join([
        over("received_bytes", "true"), over("tool_bytes", "NOT list_contains($inexact::VARCHAR[], call)"), over("read_call_bytes", f"{source} AND {counted}"),
        over("write_call_bytes", f"{source} AND {destination} AND {counted}"), over("read_disk_bytes", read_itself),
        over("write_disk_bytes", f"{destination} AND {counted}"),
    ])  # fmt: skip
    rows = run.query(
        f"""SELECT coalesce(sum(requested_bytes), 0)::DOUBLE AS requested, sum(received_bytes)::DOUBLE AS received, {columns}
            FROM transfers WHERE outcome = 'ok'""",
        here,
    )

    def number(name: str) -> float | None:
        value = rows[name][0]
        return None if value is None or np.isnan(float(value)) else float(value)

    received = number("received")
    return Conservation(
        requested_bytes=int(number("requested") or 0),
        received_bytes=None if received is None else int(received),
        received_ratio=number("received_bytes"),
        tool_ratio=number("tool_bytes"),
        read_call_ratio=number("read_call_bytes"),
        write_call_ratio=number("write_call_bytes"),
        read_disk_ratio=number("read_disk_bytes"),
        write_disk_ratio=number("write_disk_bytes"),
        device_read_bytes=devices.get("disk read"),
        device_written_bytes=devices.get("disk written"),
        network_received_bytes=devices.get("network received"),
        network_sent_bytes=devices.get("network sent"),
        loopback_bytes=devices.get("loopback"),
    )


def trend(trials: Trials, points: Sequence[PointResult], level: float, changes: Sequence[float] = ()) -> Trend | None:
    """Return the change of the rate over the run: a straight line through (rate over the mean of its point − 1).

    Parameters
    ----------
    changes
        Times in s of planned changes of links. Each period between them has its own means. Trials that span a change
        are left out, because a planned change is no drift.
    """
    known = {point.point for point in points if point.throughput_bytes_per_s and point.trials > 1}
    if not known:
        return None
    edges = np.asarray(sorted(changes), dtype=np.float64)
    period = np.searchsorted(edges, trials.start_s, side="right")
    within = np.searchsorted(edges, trials.end_s, side="left") <= period
    if edges.size:
        relative = _relative_to_period(trials, period, within & np.isin(trials.point, list(known)))
    else:
        mean = np.full(int(max(int(trials.point.max()), max(known))) + 1, np.nan)
        for point in points:
            if point.point in known:
                mean[point.point] = point.throughput_bytes_per_s
        relative = trials.throughput_bytes_per_s / mean[trials.point] - 1
    keep = np.isfinite(relative)
    n = int(keep.sum())
    position = trials.position[keep].astype(np.float64)
    if n < MIN_TREND_TRIALS or np.ptp(position) == 0:
        return None
    # About one trial in a hundred takes ten times as long. Ranks would be robust, but clipped tails are used here.
    values = np.clip(relative[keep], *np.quantile(relative[keep], (0.01, 0.99)))
    periods = period[keep]
    x = _centred(position / np.ptp(position), periods)
    values = _centred(values, periods)
    free = n - 1 - len(np.unique(periods))
    if free < 1 or not x @ x > 0:
        return None
    slope = float(x @ values / (x @ x))
    residual = values - slope * x
    error = float(np.sqrt(residual @ residual / free / (x @ x)))
    reach = student_reach(level, free) * error

    def ratio(change: float) -> float:
        change = min(max(change, -1.9), 1.9)
        return (1 + change / 2) / (1 - change / 2)

    return Trend(ratio(slope), ratio(slope - reach), ratio(slope + reach), n)


def _relative_to_period(trials: Trials, period: IntArray, keep: npt.NDArray[np.bool_]) -> FloatArray:
    """Return (rate over the mean of its point in its period − 1), with NaN for excluded and single trials."""
    relative = np.full(len(trials.point), np.nan)
    keep = keep & np.isfinite(trials.throughput_bytes_per_s)
    for pair in np.unique(np.column_stack((trials.point[keep], period[keep])), axis=0):
        own = keep & (trials.point == pair[0]) & (period == pair[1])
        if own.sum() > 1:
            relative[own] = trials.throughput_bytes_per_s[own] / trials.throughput_bytes_per_s[own].mean() - 1
    return relative


def _centred(values: FloatArray, groups: IntArray) -> FloatArray:
    """Return the values minus the mean of their group."""
    _, index = np.unique(groups, return_inverse=True)
    return np.asarray(values - (np.bincount(index, values) / np.bincount(index))[index])


def _nothing(e: Evidence) -> FindingSummary | None:
    if e.counts.transfers_ok:
        return None
    if e.counts.transfers == 0 and e.counts.trials_failed:
        return FindingSummary("all-failed", e.about.name, f"{plural(e.counts.trials_failed, 'trial')} failed before the first transfer",
                      "fix the cause that the other findings name, then run the scenario again")  # fmt: skip
    if e.counts.transfers == 0:
        return FindingSummary(
            "no-data", e.about.name, "no trial has finished", f"resume the run: venturi run --resume {e.about.path}"
        )
    return FindingSummary("all-failed", e.about.name, f"none of {plural(e.counts.transfers, 'transfer')} succeeded",
                  "read the reasons under Failures, then run one transfer by hand")  # fmt: skip


def _failed(e: Evidence) -> FindingSummary | None:
    if not e.counts.transfers_failed or not e.counts.transfers_ok:
        return None
    percent = 100 * e.counts.transfers_failed / e.counts.transfers
    reason = "; the run has counts by route, without reasons"
    if e.failures:
        first = e.failures[0]
        reason = f"; most often: {first.outcome}{f', {first.error}' if first.error else ''} ({first.count:,} times)"
    return FindingSummary(
        "transfers-failed", e.about.name,
        f"{e.counts.transfers_failed:,} of {plural(e.counts.transfers, 'transfer')} failed ({percent:.2g} %){reason}",
        "rates include successful transfers only, which ran with less concurrency than planned; fix the cause and repeat these points",
    )  # fmt: skip


def _rate_not_reached(e: Evidence) -> FindingSummary | None:
    short = e.load.short if e.load is not None and e.counts.transfers_ok else ()
    if e.load is None or not short:
        return None
    worst = min(short, key=lambda flow: flow.ratio or 0.0)
    advice = f"to see the evidence for the cause: venturi advise {e.about.path}"
    if all(flow.is_underscheduled for flow in short):
        advice = (
            'the plan schedules fewer bytes than the rate; use a longer period, smaller files, or arrivals = "even"'
        )
    return FindingSummary(
        "rate-not-reached", e.about.name,
        f"{len(short):,} of {plural(len(e.load.flows), 'flow')} reached less than {100 * (1 - SHORT):.0f} % of the requested rate; the"
        f" lowest: {format_flow(worst)} with {100 * (worst.ratio or 0.0):.3g} % of {format_bit_rate(worst.requested_bit_per_s)}",
        advice,
    )  # fmt: skip


def _page_cache(e: Evidence) -> FindingSummary | None:
    ratio = e.conservation.read_disk_ratio
    if ratio is None or ratio >= CACHED_FRACTION or e.memory_sources:
        return None
    advice = (
        'to measure the source disk, use cache = "cold" and data larger than memory (data_at_least = "2 x memory")'
    )
    evidence = f"read from disk: {100 * ratio:.2g} % of the copied bytes"
    written, received = e.conservation.device_written_bytes, e.conservation.received_bytes
    if e.limited_destination or (written is not None and received and written >= CACHED_FRACTION * received):
        return FindingSummary(
            "page-cache", e.about.mover,
            f"{evidence}: the sources came from the page cache, and the destination was written to its disk during the run",
            f"the rates are those of the destination disk; {advice}", severity="note",
        )  # fmt: skip
    planned = str(_workload(e).get("cache", "as_is")) == "warm"
    return FindingSummary(
        "page-cache", e.about.mover, f"{evidence}: this run measured the page cache", advice,
        severity="note" if planned else "warning",
    )  # fmt: skip


def _writes_in_memory(e: Evidence) -> FindingSummary | None:
    written, received = e.conservation.device_written_bytes, e.conservation.received_bytes
    if written is None or not received or written >= CACHED_FRACTION * received:
        return None
    return FindingSummary(
        "writes-in-memory", e.about.mover,
        f"the disks wrote {format_bytes(written)} during the run, {format_bytes(received)} were copied"
        f" ({100 * written / received:.2g} %)",
        "the rest was in memory at the end, or was removed before it was written; use fsync or larger files to measure the disk",
    )  # fmt: skip


def _not_cold(e: Evidence) -> FindingSummary | None:
    wrong = [(state, n, ratio) for state, n, ratio in e.caches if state != "cold"]
    if str(_workload(e).get("cache", "")) != "cold" or not wrong:
        return None
    count, all_ = sum(n for _, n, _ in wrong), sum(n for _, n, _ in e.caches)
    fractions = [ratio for _, _, ratio in wrong if ratio is not None]
    more = f"; {100 * max(fractions):.2g} % of the pages were still in memory" if fractions else ""
    return FindingSummary("cache-not-cold", e.about.mover, f"the cache was not cold before {count:,} of {plural(all_, 'trial')}{more}",
                  "run as root, so that the agent can drop the caches, or use data larger than memory")  # fmt: skip


def _received(e: Evidence) -> FindingSummary | None:
    ratio = e.conservation.received_ratio
    if ratio is None or abs(ratio - 1) < 1e-12:
        return None
    return FindingSummary("bytes-differ", e.about.mover, f"the receivers have {100 * ratio:.6g} % of the requested bytes",
                  "compare the files with their sources; the rates are unreliable")  # fmt: skip


def _kernel(e: Evidence) -> FindingSummary | None:
    ratio = e.conservation.write_call_ratio
    if ratio is None or abs(ratio - 1) <= BYTE_SLACK:
        return None
    advice = ("the file system cloned or linked the files; disable this (cp: --reflink=never)" if ratio < 1
              else "the mover wrote more than the files; look for temporary copies")  # fmt: skip
    return FindingSummary("kernel-count-differs", e.about.mover,
                  f"the kernel counted {100 * ratio:.4g} % of the bytes as written by the movers", advice)  # fmt: skip


def _tool(e: Evidence) -> FindingSummary | None:
    ratio = e.conservation.tool_ratio
    if ratio is None or abs(ratio - 1) <= BYTE_SLACK:
        return None
    return FindingSummary("tool-count-differs", e.about.mover, f"the tool reports {100 * ratio:.4g} % of the requested bytes",
                  "the rates use the count of the receiver")  # fmt: skip


def _accounts(e: Evidence) -> FindingSummary | None:
    wrong = disagreeing_counts(e.accounts)
    if not wrong:
        return None
    worst = max(wrong, key=lambda account: abs((account.ratio or 0.0) - 1))
    allowed = f"{100 * worst.least / worst.requested_bytes:.5g} to {100 * worst.most / worst.requested_bytes:.5g} %"
    more = (
        f"; also: {', '.join(a.party.partition(':')[0] for a in wrong if a is not worst)}" if len(wrong) > 1 else ""
    )
    return FindingSummary(
        "bytes-disagree", worst.party.partition(":")[0],
        f"{worst.party} {100 * (worst.ratio or 0.0):.5g} % of the requested bytes; headers, control connections and"
        f" retransmissions explain {allowed}{more}",
        "look for other traffic, unrecorded connections and incomplete files",
    )  # fmt: skip


def _drift(e: Evidence) -> FindingSummary | None:
    t = e.trend
    if t is None or abs(t.ratio - 1) < DRIFT or t.low <= 1 <= t.high:
        return None
    if e.load is not None and e.load.short:
        return None  # A growing backlog makes transfers slower.
    advice = (
        'look for a cause, such as a disk that fills or other load; use order = "random" to distribute the effect over all'
        " points, and repeat on an idle machine"
    )
    if e.simulated:
        advice = (
            "look at the order of the trials: in a simulation, only the state that trials leave behind can cause this"
        )
    return FindingSummary(
        "drift", e.about.name,
        f"the rate changed by {_signed(t.ratio)} ({_signed(t.low)} to {_signed(t.high)}) from the first to the last trial,"
        " in addition to planned changes of links", advice,
    )  # fmt: skip


def _signed(ratio: float) -> str:
    return f"{float(f'{100 * (ratio - 1):.2g}'):+,g} %".replace("-", "−")


def _few(e: Evidence) -> FindingSummary | None:
    if e.simulated:
        return None  # a simulated trial has no machine noise, and other seeds are an ensemble
    few = [point for point in e.points if point.transfers_ok and point.trials < FEW_TRIALS]
    if not few:
        return None
    least = min(point.trials for point in few)
    return FindingSummary("few-repetitions", e.about.name,
                  f"{len(few)} of {plural(len(e.points), 'point')} have fewer than {FEW_TRIALS} trials (the fewest: {least})",
                  "set workload.repeat = 10")  # fmt: skip


def _incomplete(e: Evidence) -> FindingSummary | None:
    planned = e.counts.trials_planned
    if planned is None or e.counts.trials >= planned or e.counts.trials == 0:
        return None
    if e.about.state == "complete":
        return None  # the remaining trials were planned for an expired time
    return FindingSummary("incomplete", e.about.name, f"{e.counts.trials:,} of {planned:,} planned trials have finished ({e.about.state})",
                  f"resume the run: venturi run --resume {e.about.path}; until then points can be missing or have fewer trials than planned",
                  severity="warning")  # fmt: skip


def _start_spread(e: Evidence) -> FindingSummary | None:
    wide = [p for p in e.points if p.files > 1 and p.start_spread_s is not None and p.span_s
            and p.start_spread_s > START_SPREAD * p.span_s]  # fmt: skip
    if not wide:
        return None
    worst = max(wide, key=lambda p: (p.start_spread_s or 0) / (p.span_s or 1))
    return FindingSummary(
        "start-spread", e.about.mover,
        f"at {len(wide)} of {plural(len(e.points), 'point')} the parallel starts are spread over more than"
        f" {100 * START_SPREAD:.0f} % of the trial (up to {format_duration(worst.start_spread_s or 0)} of"
        f" {format_duration(worst.span_s or 0)})",
        "these transfers hardly ran in parallel; use larger files there",
    )  # fmt: skip


def _wide(e: Evidence) -> FindingSummary | None:
    with_interval = [p for p in e.points if p.interval is not None]
    wide = [p for p in with_interval if p.interval and (p.interval.relative_half_width or 0) > WIDE_INTERVAL]
    if e.simulated or not wide or 2 * len(wide) < len(with_interval):
        return None
    return FindingSummary(
        "wide-intervals", e.about.name,
        f"at {len(wide)} of {plural(len(with_interval), 'point')} the interval is wider than ±{100 * WIDE_INTERVAL:.0f} %",
        "repeat more often: four times as many repetitions halve an interval",
    )  # fmt: skip


def _outliers(e: Evidence) -> FindingSummary | None:
    count, all_ = sum(p.outliers for p in e.points), sum(p.trials for p in e.points)
    if not count:
        return None
    worst = max(e.points, key=lambda p: p.outliers)
    return FindingSummary(
        "outliers", e.about.name,
        f"{plural(count, 'trial')} of {all_:,} are far from the other trials of their point (robust z above 3.5; the most,"
        f" {worst.outliers}, at point {worst.point})",
        "all results include the outliers; the table of points also shows the means without them",
        severity="warning" if count > SMALL_OUTLIER_FRACTION * all_ else "note",
    )  # fmt: skip


def _other_load(e: Evidence) -> FindingSummary | None:
    if e.cpu_s is None or e.mover_s is None or not e.counts.transfers_ok or e.simulated:
        return None
    busy, _, total = e.cpu_s
    other = (busy - e.mover_s) / total
    if other <= OTHER_LOAD:
        return None
    own = "the movers" if e.testbed is None else "the hosts and the network of the lab"
    included = "the creation of datasets and kernel work" if e.testbed is None else "kernel work"
    return FindingSummary(
        "other-load", "CPU",
        f"{100 * other:.2g} % of all CPU time was used by programs other than {own}"
        f" ({own}: {100 * e.mover_s / total:.2g} %)",
        f"this includes {included}; if there is another cause, repeat on an idle machine", severity="note",
    )  # fmt: skip


def _steal(e: Evidence) -> FindingSummary | None:
    if e.cpu_s is None or e.cpu_s[1] <= STEAL * e.cpu_s[2]:
        return None
    return FindingSummary("steal", "CPU", f"{100 * e.cpu_s[1] / e.cpu_s[2]:.2g} % of the CPU time was used by"
                  " other virtual machines", "compare only runs made at the same time: the machine is shared")  # fmt: skip


def _few_points(e: Evidence) -> FindingSummary | None:
    short = [curve for curve in e.curves if curve.ranked_by is not None]
    if not short:
        return None
    return FindingSummary(
        "few-points", e.about.name,
        f"{plural(len(short), 'curve')} of {len(e.curves)} have too few points for {e.about.criterion}"
        f" (the fewest: {min(len(curve.x) for curve in short)}) and are ranked by adjusted R²",
        "measure eight points or more per curve, to distinguish functions",
        severity="note",
    )  # fmt: skip


def _mixed(e: Evidence) -> FindingSummary | None:
    mixed = [p.point for p in e.points if MIXED_SIZES in p.absent]
    if not mixed:
        return None
    return FindingSummary("mixed-sizes", e.about.name, f"{plural(len(mixed), 'point')} have files of several sizes",
                  "these points have rates of whole trials only", severity="note")  # fmt: skip


def _scale(e: Evidence) -> FindingSummary | None:
    if e.about.scale == 1:
        return None
    if e.testbed is not None and e.testbed.rates_scale != 1:
        return FindingSummary("scaled", e.about.name, f"sizes and link rates are {e.about.scale:g} times those in the scenario",
                      "fixed costs and round trips do not shrink; published rates are multiplied by the scale before they"
                      " are compared", severity="note")  # fmt: skip
    return FindingSummary("scaled", e.about.name, f"sizes are {e.about.scale:g} times those in the scenario",
                  "fixed costs do not shrink with the files; compare shapes, not rates, with published values",
                  severity="note")  # fmt: skip


def _workload(e: Evidence) -> dict[str, object]:
    workload = e.about.scenario.get("workload")
    return dict(workload) if isinstance(workload, dict) else {}


CHECKS: tuple[Check, ...] = (
    _nothing, _failed, _rate_not_reached, _received, _accounts, _page_cache, _not_cold, _writes_in_memory, _kernel, _tool, _drift, _steal, _start_spread,
    _few, _incomplete, _wide, _outliers, _few_points, _mixed, _other_load, _scale,
)  # fmt: skip
"""All checks, the most serious first."""
