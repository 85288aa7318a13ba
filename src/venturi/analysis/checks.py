"""What makes the numbers of a run doubtful, with the evidence and what to do about it.

Each check looks at one thing and returns at most one finding; the table :data:`CHECKS` lists them, gravest first.
Thresholds stand at the top with their reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from venturi.analysis.accounts import block_bytes, disagreeing, tells_what_it_moved
from venturi.analysis.points import MIXED_SIZES
from venturi.analysis.result import About, Conservation, Counts, Curve, Failure, Notice, Point, Trend, Trials
from venturi.analysis.result_lab import ByteAccount, Testbed
from venturi.analysis.servers import server_counts, server_notices
from venturi.analysis.words import plural
from venturi.run import Run
from venturi.stats.quantiles import student_reach
from venturi.units import format_bytes, format_duration

__all__ = ["CHECKS", "Evidence", "conservation", "failures", "notices", "trend"]

FEW_TRIALS = 5
"""Below this the interval of a mean rests on hope: at four values Student's t is 3.2 times the error, at two 12.7."""
CACHED_SHARE = 0.5
"""Share of the bytes read from disk below which the page cache was the main source."""
BYTE_SLACK = 0.01
"""Disagreement of two counts of the same bytes that is not worth a finding: headers, locales, libraries."""
SMALLEST_COUNTED = 1_000_000
"""Below this size a process reads more bytes of libraries than of the file, and its counts say nothing."""
DRIFT = 0.03
"""Change over the run below which nobody cares, even if it is significant."""
START_SPREAD = 0.05
"""Spread of the starts as a share of the trial from which "in parallel" is a doubtful word."""
WIDE_INTERVAL = 0.10
OTHER_LOAD = 0.15
"""Share of the processors that something else than the movers took."""
STEAL = 0.02
SMALL_OUTLIER_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the checks look at."""

    about: About
    counts: Counts
    points: Sequence[Point]
    conservation: Conservation
    failures: Sequence[Failure]
    trend: Trend | None
    caches: Sequence[tuple[str, int, float | None]]
    """(state, trials, mean share of resident pages)."""
    curves: Sequence[Curve]
    processor_s: tuple[float, float, float] | None
    """Busy, stolen, all."""
    mover_s: float | None
    accounts: Sequence[ByteAccount] = ()
    testbed: Testbed | None = None


_SAID_BY_AGENTS = {"cache-not-cold": "cache-not-dropped", "bytes-differ": "receiver-holds-more"}
"""Findings of ours that say no more than one that the agents record."""

Check = Callable[[Evidence], Notice | None]


def notices(run: Run, evidence: Evidence) -> tuple[Notice, ...]:
    """Return the findings of this analysis and of the run, gravest first; a code that the run has is not repeated."""
    own = [notice for check in CHECKS if (notice := check(evidence)) is not None]
    own += server_notices(server_counts(run))
    recorded = _recorded(run)
    known = {notice.code for notice in recorded}
    known |= {ours for ours, theirs in _SAID_BY_AGENTS.items() if theirs in known}
    found = [notice for notice in own if notice.code not in known] + recorded
    return tuple(sorted(found, key=lambda notice: notice.severity != "doubt"))


def _recorded(run: Run) -> list[Notice]:
    """Return the findings of the run, those with the same code and advice together."""
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
        Notice(text("code", i), subject(i), text("evidence", i), text("advice", i), count=int(rows["n"][i]),
               example=rows["example"][i])
        for i in range(len(rows["code"]))
    ]  # fmt: skip


def failures(run: Run) -> tuple[Failure, ...]:
    """Return the transfers that failed, those that failed alike together, most frequent first."""
    rows = run.query(
        """SELECT outcome, coalesce(call, '') AS call, coalesce(left(error, 300), '') AS error, count(*) AS n,
                  min(coalesce(trial, '')) AS example, count(DISTINCT point) AS points
           FROM transfers WHERE outcome <> 'ok' GROUP BY ALL ORDER BY n DESC, outcome, call, error LIMIT 50"""
    )
    return tuple(
        Failure(str(rows["outcome"][i]), str(rows["call"][i]), str(rows["error"][i]), int(rows["n"][i]),
                str(rows["example"][i]), int(rows["points"][i]))
        for i in range(len(rows["n"]))
    )  # fmt: skip


def inexact_calls(run: Run) -> list[str]:
    """Return the calls that move whole blocks, go by the clock, or read in parts: what their tool counts need not be what was asked for."""
    calls = run.header.get("calls") or {}
    return [name for name, call in calls.items() if tells_what_it_moved(call) or block_bytes(call) is not None]


def conservation(run: Run, devices: dict[str, float]) -> Conservation:
    """Return the bytes of the transfers that succeeded, as counted by each party.

    What a process read and wrote is set against the files only where these are on its own host, and is its own work: a
    client that lets a server move the bytes, or that makes them up (``zero:``), reads no file.
    """
    here = {
        "local": [f"{place['host']}/{name}" for name, place in (run.header.get("places") or {}).items()],
        "inexact": inexact_calls(run),
    }
    source = "source_via IS NULL AND list_contains($local::VARCHAR[], host || '/' || split_part(source, ':', 1))"
    destination = (
        "destination_via IS NULL AND list_contains($local::VARCHAR[], host || '/' || split_part(destination, ':', 1))"
    )
    counted = f"asked_bytes >= {SMALLEST_COUNTED}"

    def over(column: str, condition: str) -> str:
        known = f"FILTER ({column} IS NOT NULL AND {condition})"
        return f"sum({column}) {known}::DOUBLE / nullif(sum(asked_bytes) {known}, 0) AS {column}"

    read_itself = f"{source} AND {counted} AND read_call_bytes >= 0.5 * asked_bytes"
    wanted = ", ".join([
        over("received_bytes", "true"), over("tool_bytes", "NOT list_contains($inexact::VARCHAR[], call)"), over("read_call_bytes", f"{source} AND {counted}"),
        over("write_call_bytes", f"{source} AND {destination} AND {counted}"), over("read_disk_bytes", read_itself),
        over("write_disk_bytes", f"{destination} AND {counted}"),
    ])  # fmt: skip
    rows = run.query(
        f"""SELECT coalesce(sum(asked_bytes), 0)::DOUBLE AS asked, sum(received_bytes)::DOUBLE AS received, {wanted}
            FROM transfers WHERE outcome = 'ok'""",
        here,
    )

    def number(name: str) -> float | None:
        value = rows[name][0]
        return None if value is None or np.isnan(float(value)) else float(value)

    received = number("received")
    return Conservation(
        asked_bytes=int(number("asked") or 0),
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


def trend(trials: Trials, points: Sequence[Point], level: float) -> Trend | None:
    """Return the change of the rate over the run: a straight line through (rate over the mean of its point − 1)."""
    means = {
        point.point: point.throughput_bytes_per_s
        for point in points
        if point.throughput_bytes_per_s and point.trials > 1
    }
    if not means:
        return None
    size = int(max(int(trials.point.max()), max(means))) + 1
    mean = np.full(size, np.nan)
    mean[list(means)] = list(means.values())
    relative = trials.throughput_bytes_per_s / mean[trials.point] - 1
    keep = np.isfinite(relative)
    n = int(keep.sum())
    place = trials.position[keep].astype(np.float64)
    if n < 10 or np.ptp(place) == 0:
        return None
    # Ranks are robust against the one trial in a hundred that took ten times as long; here the tails are cut instead.
    values = np.clip(relative[keep], *np.quantile(relative[keep], (0.01, 0.99)))
    x = (place - place.mean()) / np.ptp(place)
    slope = float(x @ (values - values.mean()) / (x @ x))
    residual = values - values.mean() - slope * x
    error = float(np.sqrt(residual @ residual / max(n - 2, 1) / (x @ x)))
    reach = student_reach(level, max(n - 2, 1)) * error

    def ratio(change: float) -> float:
        change = min(max(change, -1.9), 1.9)
        return (1 + change / 2) / (1 - change / 2)

    return Trend(ratio(slope), ratio(slope - reach), ratio(slope + reach), n)


def _nothing(e: Evidence) -> Notice | None:
    if e.counts.transfers_ok:
        return None
    if e.counts.transfers == 0 and e.counts.trials_failed:
        return Notice("all-failed", e.about.name, f"{plural(e.counts.trials_failed, 'trial')} failed before any transfer began",
                      "see the other findings for the cause, mend it and run the scenario again")  # fmt: skip
    if e.counts.transfers == 0:
        return Notice(
            "no-data", e.about.name, "no trial has finished", f"go on with it: venturi run --resume {e.about.path}"
        )
    return Notice("all-failed", e.about.name, f"none of {plural(e.counts.transfers, 'transfer')} succeeded",
                  "see the reasons under Failures, and carry out one call by hand")  # fmt: skip


def _failed(e: Evidence) -> Notice | None:
    if not e.counts.transfers_failed or not e.counts.transfers_ok:
        return None
    first = e.failures[0]
    share = 100 * e.counts.transfers_failed / e.counts.transfers
    reason = f"; most often: {first.outcome}{f', {first.error}' if first.error else ''} ({first.count:,} times)"
    return Notice(
        "transfers-failed", e.about.name,
        f"{e.counts.transfers_failed:,} of {plural(e.counts.transfers, 'transfer')} failed ({share:.2g} %){reason}",
        "rates are of those that succeeded, which had less company than planned: mend the cause and repeat these points",
    )  # fmt: skip


def _page_cache(e: Evidence) -> Notice | None:
    ratio = e.conservation.read_disk_ratio
    if ratio is None or ratio >= CACHED_SHARE:
        return None
    asked = str(_workload(e).get("cache", "as_is"))
    return Notice(
        "page-cache", e.about.mover,
        f"read from disk: {100 * ratio:.2g} % of the bytes copied: this measured the page cache",
        "for the disk: cache = \"cold\" and data larger than memory (data_at_least = \"2 x memory\")",
        severity="note" if asked == "warm" else "doubt",
    )  # fmt: skip


def _writes_in_memory(e: Evidence) -> Notice | None:
    written, received = e.conservation.device_written_bytes, e.conservation.received_bytes
    if written is None or not received or written >= CACHED_SHARE * received:
        return None
    return Notice(
        "writes-in-memory", e.about.mover,
        f"the disks wrote {format_bytes(written)} during the run, {format_bytes(received)} were copied"
        f" ({100 * written / received:.2g} %)",
        "the rest was still in memory, or removed before it was written: use fsync, or larger files, to measure the disk",
    )  # fmt: skip


def _not_cold(e: Evidence) -> Notice | None:
    wrong = [(state, n, ratio) for state, n, ratio in e.caches if state != "cold"]
    if str(_workload(e).get("cache", "")) != "cold" or not wrong:
        return None
    count, all_ = sum(n for _, n, _ in wrong), sum(n for _, n, _ in e.caches)
    shares = [ratio for _, _, ratio in wrong if ratio is not None]
    more = f"; {100 * max(shares):.2g} % of the pages were still in memory" if shares else ""
    return Notice("cache-not-cold", e.about.mover, f"the cache was not cold before {count:,} of {plural(all_, 'trial')}{more}",
                  "let the agent drop the caches (root), or use data larger than memory")  # fmt: skip


def _received(e: Evidence) -> Notice | None:
    ratio = e.conservation.received_ratio
    if ratio is None or abs(ratio - 1) < 1e-12:
        return None
    return Notice("bytes-differ", e.about.mover, f"the receivers hold {100 * ratio:.6g} % of the bytes asked for",
                  "compare the files with their sources before trusting any rate")  # fmt: skip


def _kernel(e: Evidence) -> Notice | None:
    ratio = e.conservation.write_call_ratio
    if ratio is None or abs(ratio - 1) <= BYTE_SLACK:
        return None
    advice = ("the mover let the file system clone or link instead of copying; forbid it (cp: --reflink=never)" if ratio < 1
              else "the mover writes more than the files: look for temporary copies")  # fmt: skip
    return Notice("kernel-count-differs", e.about.mover,
                  f"the kernel counted {100 * ratio:.4g} % of the bytes as written by the movers", advice)  # fmt: skip


def _tool(e: Evidence) -> Notice | None:
    ratio = e.conservation.tool_ratio
    if ratio is None or abs(ratio - 1) <= BYTE_SLACK:
        return None
    return Notice("tool-count-differs", e.about.mover, f"the tool says it moved {100 * ratio:.4g} % of the bytes asked for",
                  "the rates here use the receiver's count, not the tool's")  # fmt: skip


def _accounts(e: Evidence) -> Notice | None:
    wrong = disagreeing(e.accounts)
    if not wrong:
        return None
    worst = max(wrong, key=lambda account: abs((account.ratio or 0.0) - 1))
    allowed = f"{100 * worst.least / worst.asked_bytes:.5g} to {100 * worst.most / worst.asked_bytes:.5g} %"
    more = (
        f"; so do {', '.join(a.party.partition(':')[0] for a in wrong if a is not worst)}" if len(wrong) > 1 else ""
    )
    return Notice(
        "bytes-disagree", worst.party.partition(":")[0],
        f"{worst.party} {100 * (worst.ratio or 0.0):.5g} % of the bytes asked for, where headers, control channels and"
        f" repetitions explain {allowed}{more}",
        "look for traffic of something else, connections that were not recorded, or files that were not moved whole",
    )  # fmt: skip


def _drift(e: Evidence) -> Notice | None:
    t = e.trend
    if t is None or abs(t.ratio - 1) < DRIFT or t.low <= 1 <= t.high:
        return None
    return Notice(
        "drift", e.about.name,
        f"the rate changed by {_signed(t.ratio)} ({_signed(t.low)} to {_signed(t.high)}) from the first to the last trial",
        "something changed during the run (disk filling, another load, temperature): order = \"random\" keeps it from"
        " favouring a point, but repeat on a quiet machine",
    )  # fmt: skip


def _signed(ratio: float) -> str:
    return f"{float(f'{100 * (ratio - 1):.2g}'):+,g} %".replace("-", "−")


def _few(e: Evidence) -> Notice | None:
    few = [point for point in e.points if point.transfers_ok and point.trials < FEW_TRIALS]
    if not few:
        return None
    least = min(point.trials for point in few)
    return Notice("few-repetitions", e.about.name,
                  f"{len(few)} of {plural(len(e.points), 'point')} have fewer than {FEW_TRIALS} trials (the fewest: {least})",
                  "repeat more often: workload.repeat = 10 gives intervals that can be trusted")  # fmt: skip


def _incomplete(e: Evidence) -> Notice | None:
    planned = e.counts.trials_planned
    if planned is None or e.counts.trials >= planned or e.counts.trials == 0:
        return None
    if e.about.state == "complete":
        return None  # the rest was planned for a time that is over
    return Notice("incomplete", e.about.name, f"{e.counts.trials:,} of {planned:,} planned trials are done ({e.about.state})",
                  f"go on with it: venturi run --resume {e.about.path}; until then points may be missing or rest on fewer trials",
                  severity="doubt")  # fmt: skip


def _start_spread(e: Evidence) -> Notice | None:
    wide = [p for p in e.points if p.files > 1 and p.start_spread_s is not None and p.span_s
            and p.start_spread_s > START_SPREAD * p.span_s]  # fmt: skip
    if not wide:
        return None
    worst = max(wide, key=lambda p: (p.start_spread_s or 0) / (p.span_s or 1))
    return Notice(
        "start-spread", e.about.mover,
        f"at {len(wide)} of {plural(len(e.points), 'point')} the parallel starts are spread over more than"
        f" {100 * START_SPREAD:.0f} % of the trial (up to {format_duration(worst.start_spread_s or 0)} of"
        f" {format_duration(worst.span_s or 0)})",
        "such trials are too short to be called parallel: use larger files there",
    )  # fmt: skip


def _wide(e: Evidence) -> Notice | None:
    with_interval = [p for p in e.points if p.interval is not None]
    wide = [p for p in with_interval if p.interval and (p.interval.relative_half_width or 0) > WIDE_INTERVAL]
    if not wide or 2 * len(wide) < len(with_interval):
        return None
    return Notice(
        "wide-intervals", e.about.name,
        f"at {len(wide)} of {plural(len(with_interval), 'point')} the interval is wider than ±{100 * WIDE_INTERVAL:.0f} %",
        "four times the repetitions halve an interval",
    )  # fmt: skip


def _outliers(e: Evidence) -> Notice | None:
    count, all_ = sum(p.outliers for p in e.points), sum(p.trials for p in e.points)
    if not count:
        return None
    worst = max(e.points, key=lambda p: p.outliers)
    return Notice(
        "outliers", e.about.name,
        f"{plural(count, 'trial')} of {all_:,} lie far from the others of their point (robust z above 3.5; most, {worst.outliers},"
        f" at point {worst.point})",
        "they are kept in all numbers; the table of points has the means without them",
        severity="doubt" if count > SMALL_OUTLIER_SHARE * all_ else "note",
    )  # fmt: skip


def _other_load(e: Evidence) -> Notice | None:
    if e.processor_s is None or e.mover_s is None or not e.counts.transfers_ok:
        return None
    busy, _, total = e.processor_s
    other = (busy - e.mover_s) / total
    if other <= OTHER_LOAD:
        return None
    who, advice = (
        "the movers",
        "making the data sets and the kernel's own work count here too; if that is not it, repeat on a quiet machine",
    )
    if e.testbed is not None:
        who, advice = (
            "the lab's hosts and its network",
            "the kernel's own work counts here too; if that is not it, repeat on a quiet machine",
        )
    return Notice(
        "other-load", "processor",
        f"{100 * other:.2g} % of all processor time went to something else than {who}"
        f" ({who.removeprefix('the ')} {100 * e.mover_s / total:.2g} %)",
        advice, severity="note",
    )  # fmt: skip


def _steal(e: Evidence) -> Notice | None:
    if e.processor_s is None or e.processor_s[1] <= STEAL * e.processor_s[2]:
        return None
    return Notice("steal", "processor", f"{100 * e.processor_s[1] / e.processor_s[2]:.2g} % of the processor time was taken by"
                  " other virtual machines", "the machine is shared: compare only runs made at the same time")  # fmt: skip


def _few_points(e: Evidence) -> Notice | None:
    short = [curve for curve in e.curves if curve.ranked_by is not None]
    if not short:
        return None
    return Notice(
        "few-points", e.about.name,
        f"{plural(len(short), 'curve')} of {len(e.curves)} have too few points for {e.about.criterion}"
        f" (the fewest: {min(len(curve.x) for curve in short)}) and are ranked by adjusted R²",
        "a curve of eight points or more can tell functions apart",
        severity="note",
    )  # fmt: skip


def _mixed(e: Evidence) -> Notice | None:
    mixed = [p.point for p in e.points if MIXED_SIZES in p.absent]
    if not mixed:
        return None
    return Notice("mixed-sizes", e.about.name, f"{plural(len(mixed), 'point')} hold files of different sizes",
                  "only rates of whole trials are given there", severity="note")  # fmt: skip


def _scale(e: Evidence) -> Notice | None:
    if e.about.scale == 1:
        return None
    if e.testbed is not None and e.testbed.rates_scale != 1:
        return Notice("scaled", e.about.name, f"sizes, and rates of links, are {e.about.scale:g} of those in the scenario",
                      "times and ratios stay, but fixed costs and round trips do not shrink; published rates are multiplied by"
                      " the scale before they are compared", severity="note")  # fmt: skip
    return Notice("scaled", e.about.name, f"sizes are {e.about.scale:g} of those in the scenario",
                  "fixed costs do not shrink with the files, so compare shapes with published values, not rates",
                  severity="note")  # fmt: skip


def _workload(e: Evidence) -> dict[str, object]:
    workload = e.about.scenario.get("workload")
    return dict(workload) if isinstance(workload, dict) else {}


CHECKS: tuple[Check, ...] = (
    _nothing, _failed, _received, _accounts, _page_cache, _not_cold, _writes_in_memory, _kernel, _tool, _drift, _steal, _start_spread,
    _few, _incomplete, _wide, _outliers, _few_points, _mixed, _other_load, _scale,
)  # fmt: skip
"""All checks, gravest first."""
