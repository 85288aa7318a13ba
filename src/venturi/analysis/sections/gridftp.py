"""Control connections of GridFTP: messages, round trips per file, and idle times of data connections.

A data connection is idle between two files. Its idle time comes from the server log: the time from the start of the
first file to the end of the last one, minus the time of the files. It is divided by the number of files that follow
another file. If a server has several data connections at the same time (calls, concurrency), each one counts. Round
trips are counted in captured packets: a client message after a server message means one round trip.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from venturi.analysis.control import ControlSession, control_sessions
from venturi.analysis.format import format_factor_name
from venturi.analysis.result import About
from venturi.analysis.section import Column, ReportSection, Scalar, Table
from venturi.analysis.sections.gridftp_progress import progress_figure, progress_table
from venturi.analysis.sections.gridftp_sequence import sequences
from venturi.plan import Header, read_header
from venturi.run import Run
from venturi.run.directory import PLAN
from venturi.testbed.paths import path_rtt_s
from venturi.units import format_duration

__all__ = ["gridftp_section"]

_KINDS = ("gridftp",)

_TAKING_TURNS = ("dataset", "sweep")
"""Workloads with sequential trials, so that a session of a server belongs to one trial."""


@dataclass(slots=True)
class _GridFtpPoint:
    """Data of one design point, over all its trials."""

    point: int
    factors: Mapping[str, Scalar]
    ends: tuple[str, ...]
    """Services at its endpoints."""
    third_party: bool
    rtt_s: float | None
    calls: int
    files: int
    sessions: list[ControlSession] = field(default_factory=list)
    round_trips: int | None = None
    idle_s: float | None = None

    def each_call(self, count: int) -> float | None:
        return count / self.calls if self.sessions and self.calls else None


def gridftp_section(run: Run, about: About) -> ReportSection | None:
    """Return the section about the control connections of GridFTP servers, ``None`` without such servers or recorded sessions."""
    if (about.scenario.get("workload") or {}).get("kind") not in _TAKING_TURNS:
        return None
    header = read_header(run.path / PLAN, upgrade=True)
    services = tuple(name for name, service in header.services.items() if service.kind in _KINDS)
    if not services:
        return None
    points = _points(run, header, services)
    if not any(point.sessions for point in points):
        return None
    varied = _varied(points)
    marked = [(point.factors, [one for session in point.sessions for one in session.progress]) for point in points]
    tables, figure = (_table(points, varied), progress_table(marked, varied)), progress_figure(marked, varied)
    return ReportSection(
        "gridftp", "Control connections", _sentence(points), tuple(table for table in tables if table is not None),
        (figure,) if figure is not None else (), sequences(run, services, about),
    )  # fmt: skip


def _points(run: Run, header: Header, services: Sequence[str]) -> list[_GridFtpPoint]:
    names = run.factors
    chosen = "".join(f', any_value("factor_{name}") AS "factor_{name}"' for name in names)
    found = run.query(
        f"""SELECT point, any_value(host) AS host, list(DISTINCT split_part(source_via, '/', 1)) FILTER (source_via IS NOT NULL) AS sources,
                   list(DISTINCT split_part(destination_via, '/', 1)) FILTER (destination_via IS NOT NULL) AS destinations, count(*) AS calls, sum(files) AS files {chosen}
            FROM transfers
            WHERE point IS NOT NULL AND (split_part(source_via, '/', 1) = ANY($services::VARCHAR[])
                  OR split_part(destination_via, '/', 1) = ANY($services::VARCHAR[]))
            GROUP BY point ORDER BY point""",
        {"services": list(services)},
    )
    points = []
    for index, number in enumerate(found["point"]):
        sides = [_names(found[side][index]) for side in ("sources", "destinations")]
        ends = tuple(name for side in sides for name in side)
        points.append(
            _GridFtpPoint(
                point=int(number),
                factors={name: _to_scalar(found[f"factor_{name}"][index]) for name in names},
                ends=ends,
                third_party=all(sides),
                # The links of a plan do not describe existing hosts.
                rtt_s=_rtt_s(header, str(found["host"][index]), ends) if run.backend != "hosts" else None,
                calls=int(found["calls"][index]),
                files=int(found["files"][index]),
            )
        )
    _add_sessions(run, points)
    _add_idle(run, header, points, services)
    return points


def _names(found: Any) -> tuple[str, ...]:  # noqa: ANN401 - a cell of any column
    return tuple(str(name) for name in found) if isinstance(found, Iterable) else ()


def _rtt_s(header: Header, client: str, ends: Sequence[str]) -> float | None:
    """Return the longest round-trip time between a client and its servers."""
    if header.network is None:
        return None
    targets = [header.services[end].interface or header.services[end].host for end in ends if end in header.services]
    found = [path_rtt_s(header, client, target) for target in targets if target is not None]
    return max((rtt for rtt in found if rtt is not None), default=None)


def _add_sessions(run: Run, points: Sequence[_GridFtpPoint]) -> None:
    rows = run.query("SELECT trial, point, start_s, end_s FROM trials WHERE point IS NOT NULL ORDER BY start_s")
    by_number = {point.point: point for point in points}
    every = zip(rows["trial"], map(int, rows["point"]), rows["start_s"], rows["end_s"], strict=True)
    trials = [trial for trial in every if trial[1] in by_number]
    point_of = {trial: point for trial, point, _, _ in trials}
    trips = _round_trips(run)
    for session in control_sessions(run):
        candidates = [trial for trial in trials if session.service in by_number[trial[1]].ends]
        trial = session.trial if session.seen == "wire" else _last_started(session, candidates)
        point = by_number.get(point_of.get(trial or "", -1))
        if point is None:
            continue
        point.sessions.append(session)
        counted = trips.get((session.service, session.client))
        if counted is not None:
            point.round_trips = (point.round_trips or 0) + counted


def _last_started(session: ControlSession, trials: Sequence[tuple[Any, int, Any, Any]]) -> str | None:
    """Return the trial of a session from a log with a resolution of one second: the last trial that had started.

    Logins come at the start of a trial.
    """
    within = [trial for trial, _, start, end in trials if start < session.start_s + 1 and session.start_s <= end]
    return str(within[-1]) if within else None


def _round_trips(run: Run) -> dict[tuple[str, str], int]:
    """Return the number of client messages after a server message, for each captured session."""
    rows = run.query(
        """SELECT detail->>'service' AS service, detail->>'client' AS client, list(detail->>'direction' ORDER BY (detail->>'number')::BIGINT) AS directions
           FROM events WHERE kind = 'control' AND detail->>'seen' = 'wire' GROUP BY ALL"""
    )
    found = {}
    for service, client, sides in zip(rows["service"], rows["client"], rows["directions"], strict=True):
        turns = sum(before == "server" and after == "client" for before, after in itertools.pairwise(sides))
        found[str(service), str(client)] = turns
    return found


def _add_idle(run: Run, header: Header, points: Sequence[_GridFtpPoint], services: Sequence[str]) -> None:
    """Add the idle time of a data connection between two files, from the log of the sending servers.

    For uploads, the log of the receiving servers is used.
    """
    rows = run.query(
        """WITH served AS (
               SELECT detail->>'service' AS service, detail->>'command' IN ('RETR', 'ERET') AS sent,
                      (detail->>'start_s')::DOUBLE AS start_s, (detail->>'end_s')::DOUBLE AS end_s
               FROM events WHERE kind = 'server-transfer' AND list_contains($services, detail->>'service')),
           asked AS (
               SELECT trial, point, call, service, sent, count(DISTINCT slot) AS slots FROM (
                   SELECT trial, point, call, slot, split_part(coalesce(source_via, destination_via), '/', 1) AS service,
                          source_via IS NOT NULL AS sent FROM transfers WHERE outcome = 'ok') GROUP BY ALL)
           SELECT asked.point, asked.call, asked.slots, count(*) AS files, max(served.end_s) - min(served.start_s) AS span_s,
                  sum(served.end_s - served.start_s) AS busy_s
           FROM asked JOIN trials USING (trial)
           JOIN served ON served.service = asked.service AND served.sent = asked.sent
                AND served.start_s BETWEEN trials.start_s AND trials.end_s
           GROUP BY asked.trial, asked.point, asked.call, asked.slots, asked.service, asked.sent""",
        {"services": list(services)},
    )
    idle: dict[int, list[tuple[float, int]]] = {}
    for index, number in enumerate(rows["point"]):
        options = header.calls[str(rows["call"][index])].options
        channels = int(rows["slots"][index]) * int(options.get("concurrency") or 1)
        followed = int(rows["files"][index]) - channels
        if followed > 0:
            left = channels * float(rows["span_s"][index]) - float(rows["busy_s"][index])
            idle.setdefault(int(number), []).append((left, followed))
    for point in points:
        found = idle.get(point.point)
        if found:
            point.idle_s = sum(left for left, _ in found) / sum(followed for _, followed in found)


def _varied(points: Sequence[_GridFtpPoint]) -> list[str]:
    return [name for name in points[0].factors if len({point.factors[name] for point in points}) > 1]


def _table(points: Sequence[_GridFtpPoint], varied: Sequence[str]) -> Table:
    columns = (
        *(Column(name, format_factor_name(name).capitalize()) for name in varied),
        Column("transfer", "Transfer"),
        Column("files_per_call", "Files per call"),
        Column("sessions_per_call", "Control connections per call"),
        Column("logins_per_call", "Authentications per call"),
        Column("data_channels_per_call", "Data connections negotiated per call"),
        Column("commands_per_file", "Commands per file"),
        Column("round_trips_per_file", "Round trips per file"),
        Column("most_outstanding", "Concurrent unanswered transfers, maximum"),
        Column("idle_s", "Idle time of the data connection per file"),
        Column("rtt_s", "Round trip"),
        Column("idle_round_trips", "Idle in round trips"),
    )
    rows = [(*(point.factors[name] for name in varied), *_cells(point)) for point in points]
    note = (
        "Over all repetitions. The table counts the control connections of each server; a third-party transfer has two. Unanswered transfers and "
        "round trips need trace = packets, because a server logs a command only when it executes it."
    )
    return Table("gridftp-control", "Control and data connections", columns, tuple(rows), note)


def _cells(point: _GridFtpPoint) -> tuple[Scalar, ...]:
    sessions = point.sessions
    outstanding = [one.most_outstanding for one in sessions if one.most_outstanding is not None]
    known = bool(sessions and point.files)
    return (
        "third-party" if point.third_party else "client-server",
        point.files / point.calls if point.calls else None,
        point.each_call(len(sessions)),
        point.each_call(sum(one.logins for one in sessions)),
        point.each_call(sum(one.data_channels for one in sessions)),
        sum(one.commands for one in sessions) / point.files if known else None,
        point.round_trips / point.files if known and point.round_trips is not None else None,
        max(outstanding, default=None),
        point.idle_s,
        point.rtt_s,
        point.idle_s / point.rtt_s if point.idle_s is not None and point.rtt_s else None,
    )


def _sentence(points: Sequence[_GridFtpPoint]) -> str:
    measured = [point for point in points if point.idle_s is not None and point.rtt_s]
    if not measured:
        return "Messages on the control connections. No call moved enough consecutive files to measure the time between two."
    longest = max(measured, key=lambda point: point.idle_s or 0.0)
    shortest = min(measured, key=lambda point: point.idle_s or 0.0)

    def duration_text(point: _GridFtpPoint) -> str:
        idle, rtt = point.idle_s or 0.0, point.rtt_s or 1.0
        return f"{format_duration(max(idle, 0.0))} ({idle / rtt:.2f} round trips)"

    return (
        f"Between two files, a data connection was idle for {duration_text(shortest)} to {duration_text(longest)}, "
        f"depending on how the files were requested; the round trip is {format_duration(longest.rtt_s or 0.0)}."
    )


def _to_scalar(value: Any) -> Scalar:  # noqa: ANN401 - a cell of any column
    scalar = value.item() if hasattr(value, "item") else value
    return None if scalar != scalar else scalar
