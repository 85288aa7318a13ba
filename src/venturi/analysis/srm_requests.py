"""SRM requests of a run with their times, and the waiting time for each transfer URL.

The input is the ``control`` events of SRM servers in a lab (:mod:`venturi.testbed.services.srm_logs` defines their
format). Times are the times of the server. A request starts at its arrival and ends when its response was handed to the
kernel. The one type to read first: :class:`SrmRequest`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from venturi.run import Run

__all__ = ["Handshake", "SrmRequest", "TransferUrl", "is_about_srm", "negotiations", "srm_services"]

_READY = frozenset({"SRM_FILE_PINNED", "SRM_SPACE_AVAILABLE"})
_GOOD = _READY | {"SRM_SUCCESS", "SRM_REQUEST_QUEUED", "SRM_REQUEST_INPROGRESS"}
_AUTHENTICATED = re.compile(r"DN (?P<subject>.*) authenticated over (?P<tls>\S+) as .* in (?P<took>[0-9.]+) s")
_TOKEN = "token="


@dataclass(frozen=True, slots=True)
class SrmRequest:
    """One request and its response.

    Attributes
    ----------
    service, session, client
        The server, the number of the connection, and address and port of the client.
    request_s, end_s
        Times of request and response, on the time axis of the run.
    status
        Status of the whole request.
    files
        SURL, status and transfer URL of each file (empty: none).
    point, repetition
        Point and repetition of the trial at the arrival. None between trials.
    """

    service: str
    session: int
    client: str
    operation: str
    request_s: float
    end_s: float
    status: str
    token: str
    files: tuple[tuple[str, str, str], ...]
    point: int | None
    repetition: int | None

    @property
    def good(self) -> bool:
        """True if the request was granted or is still in progress."""
        return self.status in _GOOD


@dataclass(frozen=True, slots=True)
class Handshake:
    """Handshake of one connection: time until both ends were authenticated, in seconds."""

    service: str
    took_s: float
    point: int | None


@dataclass(frozen=True, slots=True)
class TransferUrl:
    """Transfer URL of one file.

    ``wait_s`` is the time from the arrival of the request to the response with the URL. ``polls`` is the number of
    status requests before it.
    """

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


def negotiations(run: Run) -> tuple[list[SrmRequest], list[Handshake], list[TransferUrl]]:
    """Return all requests, handshakes and transfer URLs, in the order of service and connection.

    The results are empty without ``control`` events of SRM servers.
    """
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
    """Yield the requests of a connection: a line of the client, then the response, then a line for each file."""
    at = 0
    while at < len(lines):
        request_line = lines[at]
        at += 1
        if request_line["direction"] != "client":
            continue
        response_lines: list[dict[str, Any]] = []
        while at < len(lines) and lines[at]["direction"] == "server":
            response_lines.append(lines[at])
            at += 1
        if response_lines:  # an interrupted run can lack the response
            yield _request(request_line, response_lines, times)


def _request(request_line: dict[str, Any], response_lines: Sequence[dict[str, Any]], times: _Trials) -> SrmRequest:
    operation, status, *rest = str(response_lines[0]["line"]).split(" ")
    token = next((word.removeprefix(_TOKEN) for word in rest if word.startswith(_TOKEN)), "")
    files = []
    for line in response_lines[1:]:
        words = str(line["line"]).split(" ")
        # A truncated line can lack its end.
        _, file_status, surl, turl = (*words, "", "", "")[:4]
        files.append((surl, file_status, turl))
    point, repetition = times.at(request_line["time_s"])
    return SrmRequest(
        service=request_line["service"],
        session=int(request_line["session"]),
        client=request_line["client"],
        operation=operation,
        request_s=float(request_line["time_s"]),
        end_s=float(response_lines[0]["time_s"]),
        status=status,
        token=token,
        files=tuple(files),
        point=point,
        repetition=repetition,
    )


def _turls(requests: Iterable[SrmRequest]) -> Iterator[TransferUrl]:
    """Yield each transfer URL once, with the time since its request."""
    first_requests: dict[tuple[str, str], SrmRequest] = {}
    polls: dict[tuple[str, str], int] = {}
    seen: set[tuple[str, str, str]] = set()
    for request in sorted(requests, key=lambda one: one.request_s):
        key = (request.service, request.token)
        if request.operation.startswith("srmPrepareTo"):
            first_requests.setdefault(key, request)
        elif request.operation.startswith("srmStatusOf"):
            polls[key] = polls.get(key, 0) + 1
        first = first_requests.get(key)
        for surl, status, turl in request.files:
            if first is None or status not in _READY or not turl or (*key, surl) in seen:
                continue
            seen.add((*key, surl))
            kind = first.operation.removeprefix("srmPrepareTo").lower()
            yield TransferUrl(kind, surl, turl, request.end_s - first.request_s, polls.get(key, 0), first.point)


class _Trials:
    """Index of trials by time. Trials of a point on several hosts overlap."""

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
        """Return point and repetition at a time, or None for both between trials."""
        for start_s, end_s, point, repetition in self._spans:
            if start_s <= time_s <= end_s:
                return point, repetition
        return None, None
