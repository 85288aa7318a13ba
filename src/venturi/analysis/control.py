"""Control connections by session: commands, logins, data connections, and the maximum number of outstanding transfers.

The input is the ``control`` events that servers in a lab record. With captured packets, commands without a reply are
counted as they arrive. The log of a server only has a command when it starts, so this count is unknown. The one type to
read first: :class:`ControlSession`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from venturi.analysis.result import PointResult
from venturi.analysis.result_lab import SessionSummary
from venturi.run import Run
from venturi.testbed.gridftp_log import ControlEvent, Session
from venturi.testbed.markers import MarkerProgress, marked_transfers

__all__ = ["ControlSession", "control_sessions", "session_summaries"]

_MOVES = frozenset({"APPE", "ERET", "ESTO", "RETR", "STOR"})


@dataclass(frozen=True, slots=True)
class ControlSession:
    """One control connection with an attempted or successful login.

    Attributes
    ----------
    service, client
        The server, and address and port of the client.
    start_s, end_s
        Times of the first and last message, on the time axis of the run.
    seen
        ``"wire"`` or ``"log"``: see ``docs/reference/run.md``.
    trial
        The trial at its start. ``None`` between trials, and for sessions from a log, because its times are whole
        seconds.
    commands, replies
        Numbers of messages of the client and of the server.
    transfers
        Number of requested files: RETR, STOR and related commands.
    logins
        Number of successful logins (reply 230).
    user
        Local account, if the log has it.
    data_channels
        Number of negotiated data connections (PASV, PORT and related commands).
    most_outstanding
        Maximum number of requested transfers without a reply: 1 without pipelining. ``None`` for sessions from a log.
    progress
        Progress of its transfers from the markers of the server.
    """

    service: str
    client: str
    start_s: float
    end_s: float
    seen: str
    trial: str | None
    commands: int
    replies: int
    transfers: int
    logins: int
    user: str | None
    data_channels: int
    most_outstanding: int | None
    progress: tuple[MarkerProgress, ...]


def control_sessions(run: Run) -> list[ControlSession]:
    """Return the control connections of a run that moved a file or logged in, in the order of service and start.

    Connections that only probed the server are left out.
    """
    found = [_session(*rows) for rows in _by_session(run)]
    return [one for one in found if one.transfers or one.logins]


def session_summaries(run: Run, points: Sequence[PointResult]) -> tuple[SessionSummary, ...]:
    """Return the control connections by server and point, connections without a point first.

    The result is empty without ``control`` events.
    """
    found = control_sessions(run)
    if not found:
        return ()
    rows = run.query("SELECT trial, point FROM trials WHERE point IS NOT NULL")
    point_of = dict(zip(rows["trial"], map(int, rows["point"]), strict=True))
    factors = {point.point: point.factors for point in points}
    groups: dict[tuple[str, str, int | None], list[ControlSession]] = {}
    for one in found:
        groups.setdefault((one.service, one.seen, point_of.get(one.trial or "")), []).append(one)
    return tuple(
        SessionSummary(
            service=service,
            seen=seen,
            point=point,
            factors=factors.get(point, {}) if point is not None else {},
            sessions=len(group),
            logins=sum(one.logins for one in group),
            commands=sum(one.commands for one in group),
            transfers=sum(one.transfers for one in group),
            data_channels=sum(one.data_channels for one in group),
            most_outstanding=max(
                (one.most_outstanding for one in group if one.most_outstanding is not None), default=None
            ),
        )
        for (service, seen, point), group in sorted(
            groups.items(), key=lambda item: (*item[0][:2], -1 if item[0][2] is None else item[0][2])
        )
    )


def _by_session(run: Run) -> Iterator[tuple[dict[str, Any], list[ControlEvent], str | None]]:
    """Yield the common properties of each session, its messages in order, and the trial at its start."""
    # Each lab numbers its connections from the start, and a resumed run had several labs: the client's port is needed.
    rows = run.query(
        """WITH lines AS (
               SELECT time_s, detail->>'service' AS service, (detail->>'session')::BIGINT AS session, detail->>'client' AS client,
                      detail->>'seen' AS seen, (detail->>'number')::BIGINT AS number, detail->>'direction' AS direction,
                      detail->>'line' AS line
               FROM events WHERE kind = 'control'),
           whole AS (SELECT service, session, client, seen, min(time_s) AS start_s, max(time_s) AS end_s,
                            list(struct_pack(time_s, direction, line) ORDER BY number, time_s) AS messages
                     FROM lines GROUP BY ALL)
           SELECT whole.*, (SELECT min(trial) FROM trials
                            WHERE seen = 'wire' AND whole.start_s BETWEEN trials.start_s AND trials.end_s) AS trial
           FROM whole ORDER BY service, start_s, session"""
    )
    for index in range(len(rows["service"])):
        about = {name: rows[name][index] for name in ("service", "client", "seen", "start_s", "end_s")}
        messages = rows["messages"][index]
        events = [ControlEvent(one["time_s"], 0, about["client"], one["direction"], one["line"]) for one in messages]
        yield about, events, rows["trial"][index]


def _session(about: dict[str, Any], events: list[ControlEvent], trial: str | None) -> ControlSession:
    session = Session(0, str(about["client"]), tuple(events))
    login = session.authentication
    sent_commands = [event for event in events if event.direction == "client"]
    replies = [event for event in events if event.direction == "server"]
    return ControlSession(
        service=str(about["service"]),
        client=str(about["client"]),
        start_s=float(about["start_s"]),
        end_s=float(about["end_s"]),
        seen=str(about["seen"]),
        trial=trial,
        commands=len(sent_commands),
        replies=len(replies),
        transfers=sum(event.verb in _MOVES for event in sent_commands),
        logins=sum(event.verb == "230" for event in replies),
        user=login.user if login is not None else None,
        data_channels=session.data_channels,
        most_outstanding=session.max_outstanding if about["seen"] == "wire" else None,
        progress=tuple(marked_transfers(session.dialogue)),
    )
