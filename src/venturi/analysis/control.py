"""What was said on control channels, session by session: commands, logins, data channels, and how many waited for an answer.

Made from the events ``control`` of a run, which servers in a lab leave. Where they come from captured packets, the commands that
wait for their answer are counted as they arrived; a server's own log has a command only when its turn comes, so it cannot tell.
The one type to read first: :class:`ControlSession`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from venturi.analysis.result import Point
from venturi.analysis.result_lab import SessionSummary
from venturi.run import Run
from venturi.testbed.markers import Progress, marked_transfers
from venturi.testbed.trace import ControlEvent, Session

__all__ = ["ControlSession", "control_sessions", "session_summaries"]

_MOVES = frozenset({"APPE", "ERET", "ESTO", "RETR", "STOR"})


@dataclass(frozen=True, slots=True)
class ControlSession:
    """One control connection in which a client logged in, or tried to.

    Attributes
    ----------
    service, client
        The server, and address and port of the client.
    start_s, end_s
        First and last message, on the axis of the run.
    seen
        ``"wire"`` or ``"log"``: see ``docs/reference/run.md``.
    trial
        The trial in whose time it began, ``None`` between trials, and where only a log tells: its times are whole seconds.
    commands, replies
        Messages of the client, and of the server.
    transfers
        Files asked for: RETR, STOR and their kin.
    logins
        Logins that succeeded (reply 230).
    user
        Local account, where the log tells it.
    data_channels
        How often one was agreed upon (PASV, PORT and their kin).
    most_outstanding
        Transfers asked for and not yet answered, at most at once: 1 without pipelining. ``None`` where only a log tells.
    progress
        What the server's markers told of its transfers.
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
    progress: tuple[Progress, ...]


def control_sessions(run: Run) -> list[ControlSession]:
    """Return the control connections of a run that moved a file or logged in, in the order of service and begin.

    Those that only looked whether the server is there are left out.
    """
    found = [_session(*rows) for rows in _by_session(run)]
    return [one for one in found if one.transfers or one.logins]


def session_summaries(run: Run, points: Sequence[Point]) -> tuple[SessionSummary, ...]:
    """Return the control connections by server and point; empty without such events."""
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
        for (service, seen, point), group in sorted(groups.items(), key=lambda item: (*item[0][:2], item[0][2] or -1))
    )


def _by_session(run: Run) -> Iterator[tuple[dict[str, Any], list[ControlEvent], str | None]]:
    """Yield what all lines of a session share, its messages in order, and the trial in which it began."""
    # Each lab numbers connections anew, and a run that was resumed had several: a client's port tells them apart.
    rows = run.query(
        """WITH lines AS (
               SELECT time_s, detail->>'service' AS service, (detail->>'session')::BIGINT AS number, detail->>'client' AS client,
                      detail->>'seen' AS seen, (detail->>'number')::BIGINT AS place, detail->>'direction' AS direction,
                      detail->>'line' AS line
               FROM events WHERE kind = 'control'),
           whole AS (SELECT service, number, client, seen, min(time_s) AS start_s, max(time_s) AS end_s,
                            list(struct_pack(time_s, direction, line) ORDER BY place, time_s) AS said
                     FROM lines GROUP BY ALL)
           SELECT whole.*, (SELECT min(trial) FROM trials
                            WHERE seen = 'wire' AND whole.start_s BETWEEN trials.start_s AND trials.end_s) AS trial
           FROM whole ORDER BY service, start_s, number"""
    )
    for index in range(len(rows["service"])):
        about = {name: rows[name][index] for name in ("service", "client", "seen", "start_s", "end_s")}
        said = rows["said"][index]
        events = [ControlEvent(one["time_s"], 0, about["client"], one["direction"], one["line"]) for one in said]
        yield about, events, rows["trial"][index]


def _session(about: dict[str, Any], events: list[ControlEvent], trial: str | None) -> ControlSession:
    session = Session(0, str(about["client"]), tuple(events))
    login = session.authentication
    asked = [event for event in events if event.direction == "client"]
    replies = [event for event in events if event.direction == "server"]
    return ControlSession(
        service=str(about["service"]),
        client=str(about["client"]),
        start_s=float(about["start_s"]),
        end_s=float(about["end_s"]),
        seen=str(about["seen"]),
        trial=trial,
        commands=len(asked),
        replies=len(replies),
        transfers=sum(event.verb in _MOVES for event in asked),
        logins=sum(event.verb == "230" for event in replies),
        user=login.user if login is not None else None,
        data_channels=session.data_channels,
        most_outstanding=session.most_outstanding if about["seen"] == "wire" else None,
        progress=tuple(marked_transfers(session.dialogue)),
    )
