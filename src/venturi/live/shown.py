"""Texts of a snapshot: one line for the terminal, and the parts of the page."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from venturi.live.remaining import TimeLeft
from venturi.live.snapshot import HostNow, Snapshot
from venturi.units import format_duration, format_rate

__all__ = ["alerts", "factor_line", "page_values", "terminal_line", "time_left_text"]

MAX_ROWS = 40
"""Most rows of a table. A line below it states the number of the others."""

MAX_FAILURE_CHARS = 200

_Row = TypeVar("_Row")


def terminal_line(now: Snapshot) -> str:
    """Return phase, rate, share done, time left, and problems on one line.

    Examples
    --------
    A run at its half: ``measuring · 118 MB/s now · 50 % done · 3 min 00 s (2 min 10 s to 3 min 50 s) left · 30/60 trials``
    """
    parts = [
        now.phase,
        f"{format_rate(now.bytes_per_s)} now" if now.bytes_per_s is not None else "",
        f"{_percent(now.fraction_done)} done",
        f"{time_left_text(now.left)} left" if now.left is not None else "",
        f"{now.trials_done}/{now.trials_total} trials",
        f"{now.trials_failed} failed" if now.trials_failed else "",
        *(f"{host.name}: {host.reason}" for host in _troubled(now)),
    ]
    return " · ".join(part for part in parts if part)


def factor_line(now: Snapshot) -> str:
    """Return the factors of the oldest running trial, and the number of the others."""
    if not now.running:
        return ""
    more = len(now.running) - 1
    return now.running[0].factors + (f" and {more:,} more trial{'' if more == 1 else 's'}" if more else "")


def time_left_text(left: TimeLeft | None) -> str:
    """Return a time left with its interval, or with its basis if there is no interval.

    Examples
    --------
    >>> time_left_text(TimeLeft(180.0, 120.0, 240.0, "trials"))
    '3 min 00 s (2 min 00 s to 4 min 00 s)'
    >>> time_left_text(TimeLeft(180.0, None, None, "plan"))
    '3 min 00 s (from the plan, no trial has ended)'
    >>> time_left_text(TimeLeft(180.0, None, None, "trials"))
    '3 min 00 s (too few trials for an interval)'
    >>> time_left_text(None)
    'unknown'
    """
    if left is None:
        return "unknown"
    expected = _duration(left.expected_s)
    if left.low_s is not None and left.high_s is not None:
        low, high = _duration(left.low_s), _duration(left.high_s)
        return expected if low == high else f"{expected} ({low} to {high})"
    reason = "from the plan, no trial has ended" if left.basis == "plan" else "too few trials for an interval"
    return f"{expected} ({reason})"


def alerts(now: Snapshot) -> list[str]:
    """Return the urgent messages: a dead controller, lost hosts, failed trials."""
    found = []
    if now.state == "lost":
        found.append(
            f"No contact to the controller: {now.reason}. Finished trials are safe."
            f" Resume with: venturi run --resume {now.path}"
        )
    elif now.state in ("stopped", "failed"):
        reason = f": {now.reason}" if now.reason else ""
        found.append(f"The run {'has failed' if now.state == 'failed' else 'was stopped'}{reason}")
    found += [f"Host {host.name}: {host.reason}" for host in _troubled(now)]
    if now.trials_failed:
        failure = now.first_failure[:MAX_FAILURE_CHARS]
        found.append(f"{now.trials_failed} of {now.trials_done} trials have failed; the first: {failure}")
    return found


def page_values(now: Snapshot) -> dict[str, Any]:
    """Return the content of the page as JSON values: the numbers of the snapshot, and all texts that the page shows.

    The key ``values`` has the fields of :class:`Snapshot` in base units. ``shown`` has ``title``, ``phase``, ``is_over``,
    ``fraction``, ``alerts``, ``summary`` (name, text), ``verdict``, and ``tables`` (name, title, note, columns, rows).
    """
    return {"values": dataclasses.asdict(now), "shown": _shown(now)}


def _shown(now: Snapshot) -> dict[str, Any]:
    running = len(now.running)
    left = max(now.trials_total - now.trials_done - running, 0)
    rate = "–" if now.bytes_per_s is None else format_rate(now.bytes_per_s)
    if now.bytes_per_s is None and now.quiet_s is not None and now.state == "running":
        rate = f"– (no transfer has ended for {_duration(now.quiet_s)})"
    summary = [
        ("Rate now", rate),
        ("Done", f"{_percent(now.fraction_done)} of the expected time"),
        ("Time left", "–" if now.state != "running" else time_left_text(now.left)),
        ("Trials", f"{now.trials_done:,} done, {running} running, {left:,} left"),
        ("Design points", f"{now.points_done:,} of {now.points:,} complete"),
        ("Running for", _duration(now.elapsed_s)),
    ]
    count, last = now.findings
    verdict = [now.verdict.sentence] if now.verdict.sentence else []
    if now.verdict.trials and now.state == "running":
        verdict.append(f"From {now.verdict.trials:,} finished trials.")
    return {
        "title": now.name,
        "about": f"{_BACKENDS.get(now.backend, now.backend)}, in {now.path}",
        "contact": f"the controller{f' ({now.controller})' if now.controller else ''}",
        "phase": now.phase,
        "is_over": now.state != "running",
        "fraction": now.fraction_done,
        "alerts": alerts(now),
        "summary": summary,
        "verdict": [*verdict, *filter(None, [now.verdict.note])],
        "tables": [
            _table(
                "hosts",
                "Hosts",
                ["host", "state", "CPU", "received", "sent", "loopback", "disk read", "disk written"],
                now.hosts,
                lambda host: [
                    host.name,
                    host.state + (f": {host.reason}" if host.reason else ""),
                    _dash(host.cpu, _percent),
                    *(_dash(one, format_rate) for one in (host.received, host.sent, host.loopback, host.read, host.written)),
                ],
                text_columns=2,
                note="simulated time" if now.backend == "sim" else "",
            ),
            _table(
                "movers",
                "Movers",
                ["mover", "rate now", "transfers", "failed"],
                now.movers,
                lambda one: [one.name, _dash(one.bytes_per_s, format_rate), f"{one.transfers:,}", f"{one.failed:,}"],
                note="The rate is that of the transfers that ended in the last 10 s.",
            ),
            _table(
                "links",
                "Links",
                ["link", "rate now", "busy"],
                now.links,
                lambda link: [link.name, format_rate(link.bytes_per_s), _dash(link.busy, _percent)],
            ),
            _table(
                "running",
                "Running trials",
                ["trial", "host", "factors", "running for"],
                now.running,
                lambda one: [one.trial, one.host, one.factors, _duration(one.running_s)],
                text_columns=3,
            ),
            _table(
                "findings",
                f"Findings: {count:,}",
                ["code", "subject", "evidence"],
                last,
                list,
                text_columns=3,
                note="the last ones" if count > len(last) else "",
            ),
        ],
    }  # fmt: skip


_BACKENDS = {"hosts": "on hosts", "lab": "in the lab", "sim": "simulated"}


def _table(
    name: str,
    title: str,
    columns: Sequence[str],
    rows: Sequence[_Row],
    cells: Callable[[_Row], list[str]],
    *,
    text_columns: int = 1,
    note: str = "",
) -> dict[str, Any]:
    """Return a table for the page. The first ``text_columns`` columns are text, the others numbers."""
    hidden = len(rows) - MAX_ROWS
    notes = [note, f"and {hidden:,} more" if hidden > 0 else ""]
    return {
        "name": name,
        "title": title,
        "note": "; ".join(filter(None, notes)),
        "columns": list(columns),
        "text_columns": text_columns,
        "rows": [cells(row) for row in rows[:MAX_ROWS]],
    }


def _troubled(now: Snapshot) -> list[HostNow]:
    """Return the hosts that are silent, lost, or back after a loss."""
    return [host for host in now.hosts if host.reason]


def _dash(value: float | None, form: Callable[[float], str]) -> str:
    return "–" if value is None else form(value)


def _percent(fraction: float) -> str:
    """Return a share, rounded down, so that 100 % appears only at the end."""
    return f"{math.floor(100 * fraction)} %"


def _duration(time_s: float) -> str:
    """Return a duration in whole seconds."""
    return format_duration(float(round(time_s)))
