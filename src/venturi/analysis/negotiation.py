"""What SRM servers were asked in a run: requests with their times, and how long a client had to wait for each transfer URL.

Made from the events ``control`` that SRM servers of a lab leave (:mod:`venturi.testbed.services.srm_witness` tells their form). Times are the server's: a request
begins when it has arrived and ends when its answer was handed to the kernel. The one type to read first: :class:`SrmRequest`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from venturi.run import Run

__all__ = ["Handshake", "SrmRequest", "Turl", "is_about_srm", "negotiations", "srm_services"]

_READY = frozenset({"SRM_FILE_PINNED", "SRM_SPACE_AVAILABLE"})
_GOOD = _READY | {"SRM_SUCCESS", "SRM_REQUEST_QUEUED", "SRM_REQUEST_INPROGRESS"}
_AUTHENTICATED = re.compile(r"DN (?P<subject>.*) authenticated over (?P<tls>\S+) as .* in (?P<took>[0-9.]+) s")
_TOKEN = "token="


@dataclass(frozen=True, slots=True)
class SrmRequest:
    """One request and its answer.

    Attributes
    ----------
    service, session, client
        The server, the number of the connection, and address and port of the client.
    begin_s, end_s
        On the axis of the run.
    status
        Of the whole request.
    files
        What was said of each file: SURL, status, transfer URL (empty: none).
    point, repetition
        Of the trial in whose time it came, None between trials.
    """

    service: str
    session: int
    client: str
    operation: str
    begin_s: float
    end_s: float
    status: str
    token: str
    files: tuple[tuple[str, str, str], ...]
    point: int | None
    repetition: int | None

    @property
    def good(self) -> bool:
        """Whether it was granted, or is going to be."""
        return self.status in _GOOD


@dataclass(frozen=True, slots=True)
class Handshake:
    """One connection: how long it took until both ends knew each other, in seconds."""

    service: str
    took_s: float
    point: int | None


@dataclass(frozen=True, slots=True)
class Turl:
    """A transfer URL: ``wait_s`` from the arrival of the request to the answer that had it, after ``polls`` questions for its status."""

    kind: str
    surl: str
    turl: str
    wait_s: float
    polls: int
    point: int | None


def srm_services(run: Run) -> frozenset[str]:
    """Return the names of the SRM servers of a run."""
    services = run.header.get("services") or {}
    return frozenset(name for name, service in services.items() if service["kind"] == "srm")


def is_about_srm(run: Run) -> bool:
    """Return whether a run has SRM servers."""
    return bool(srm_services(run))


def negotiations(run: Run) -> tuple[list[SrmRequest], list[Handshake], list[Turl]]:
    """Return all requests, handshakes and transfer URLs, in the order of service and connection; empty without such events."""
    times = _Trials(run)
    requests: list[SrmRequest] = []
    handshakes: list[Handshake] = []
    for lines in _by_session(run):
        requests += _requests(lines, times)
        for line in lines:
            found = _AUTHENTICATED.fullmatch(line["line"])
            if line["direction"] == "note" and found is not None:
                handshakes.append(Handshake(line["service"], float(found["took"]), times.at(line["time_s"])[0]))
    return requests, handshakes, list(_turls(requests))


def _by_session(run: Run) -> Iterator[list[dict[str, Any]]]:
    """Yield the lines of each connection in their order."""
    names = sorted(srm_services(run))
    if not names:
        return
    listed = ", ".join("'" + name.replace("'", "''") + "'" for name in names)
    rows = run.query(
        f"""SELECT time_s, detail->>'service' AS service, (detail->>'session')::BIGINT AS session, detail->>'client' AS client,
                   (detail->>'number')::BIGINT AS number, detail->>'direction' AS direction, detail->>'line' AS line
            FROM events WHERE kind = 'control' AND detail->>'service' IN ({listed}) ORDER BY service, session, client, number, time_s"""
    )
    group: list[dict[str, Any]] = []
    for values in zip(*rows.values(), strict=True):
        line = dict(zip(rows, values, strict=True))
        if group and any(group[0][key] != line[key] for key in ("service", "session", "client")):
            yield group
            group = []
        group.append(line)
    if group:
        yield group


def _requests(lines: Sequence[dict[str, Any]], times: _Trials) -> Iterator[SrmRequest]:
    """Yield the requests of a connection: a line of the client, then its answer, then a line for each file."""
    at = 0
    while at < len(lines):
        asked = lines[at]
        at += 1
        if asked["direction"] != "client":
            continue
        answer: list[dict[str, Any]] = []
        while at < len(lines) and lines[at]["direction"] == "server":
            answer.append(lines[at])
            at += 1
        if answer:  # a run that was cut off may lack it
            yield _request(asked, answer, times)


def _request(asked: dict[str, Any], answer: Sequence[dict[str, Any]], times: _Trials) -> SrmRequest:
    operation, status, *rest = str(answer[0]["line"]).split(" ")
    token = next((word.removeprefix(_TOKEN) for word in rest if word.startswith(_TOKEN)), "")
    files = []
    for line in answer[1:]:
        words = str(line["line"]).split(" ")
        # A line that was cut because it is too long may lack its end.
        _, file_status, surl, turl = (*words, "", "", "")[:4]
        files.append((surl, file_status, turl))
    point, repetition = times.at(asked["time_s"])
    return SrmRequest(
        service=asked["service"],
        session=int(asked["session"]),
        client=asked["client"],
        operation=operation,
        begin_s=float(asked["time_s"]),
        end_s=float(answer[0]["time_s"]),
        status=status,
        token=token,
        files=tuple(files),
        point=point,
        repetition=repetition,
    )


def _turls(requests: Iterable[SrmRequest]) -> Iterator[Turl]:
    """Yield the transfer URLs, each once, with the time since its request."""
    begun: dict[tuple[str, str], SrmRequest] = {}
    polls: dict[tuple[str, str], int] = {}
    seen: set[tuple[str, str, str]] = set()
    for request in sorted(requests, key=lambda one: one.begin_s):
        key = (request.service, request.token)
        if request.operation.startswith("srmPrepareTo"):
            begun.setdefault(key, request)
        elif request.operation.startswith("srmStatusOf"):
            polls[key] = polls.get(key, 0) + 1
        first = begun.get(key)
        for surl, status, turl in request.files:
            if first is None or status not in _READY or not turl or (*key, surl) in seen:
                continue
            seen.add((*key, surl))
            kind = first.operation.removeprefix("srmPrepareTo").lower()
            yield Turl(kind, surl, turl, request.end_s - first.begin_s, polls.get(key, 0), first.point)


class _Trials:
    """Finds the trial in whose time something happened; trials of a point on several hosts overlap."""

    def __init__(self, run: Run) -> None:
        rows = run.query(
            "SELECT start_s, end_s, point, repetition FROM trials WHERE point IS NOT NULL AND start_s IS NOT NULL AND end_s IS NOT NULL "
            "ORDER BY start_s"
        )
        self._spans = [
            (float(start), float(end), int(point), int(repetition))
            for start, end, point, repetition in zip(*rows.values(), strict=True)
        ]

    def at(self, time_s: float) -> tuple[int | None, int | None]:
        """Return point and repetition, None for both between trials."""
        for start_s, end_s, point, repetition in self._spans:
            if start_s <= time_s <= end_s:
                return point, repetition
        return None, None
