"""What the servers of a lab saw, told as events of the run when they have stopped."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from venturi.errors import VenturiError
from venturi.testbed.lab.asked import Asked
from venturi.testbed.lab.journal import Journal
from venturi.testbed.lab.running import RunningService
from venturi.testbed.services.base import ServiceSpec
from venturi.testbed.services.witness import ControlLine, ServerTransfer, Witness

__all__ = ["LINE_CHARS", "MAX_CONTROL_LINES", "MAX_SERVER_TRANSFERS", "tell_evidence"]

MAX_CONTROL_LINES = 200_000
"""Lines of control channels that one session of a run keeps; the rest is told by the finding ``control-trace-cut``."""

MAX_SERVER_TRANSFERS = 1_000_000
"""Transfers in logs of servers that one session of a run keeps."""

LINE_CHARS = 500
"""Of a line of a control channel; only the tokens of a GSI handshake are longer."""

_T = TypeVar("_T")


def tell_evidence(services: Iterable[RunningService], asked: Asked, folder: Path, journal: Journal) -> None:
    """Tell what each service saw as events ``server-transfer`` and ``control``; what cannot be read is a finding.

    ``folder`` is the lab's.
    """
    places = _Places(asked, folder)
    control = _Allowance(MAX_CONTROL_LINES, "lines of control channels")
    transfers = _Allowance(MAX_SERVER_TRANSFERS, "transfers of servers' logs")
    for one in services:
        if not isinstance(one.service, Witness):
            continue
        service, room = one.service, one.room
        host = room.spec.host
        for seen in transfers.of(_read(journal, one, partial(service.transfers, room))):
            _tell(journal, host, "server-transfer", seen.end_unix_s, _transfer(room.spec, seen, places, journal))
        for number, line in enumerate(control.of(_read(journal, one, partial(service.control, room)))):
            _tell(journal, host, "control", line.unix_s, _line(one.name, number, line))
    for allowance in (control, transfers):
        if allowance.refused:
            journal.finding(
                "network",
                "control-trace-cut",
                allowance.what,
                f"the first {allowance.most:,} {allowance.what} were kept, and there were more",
                "what counts them is a lower bound; make the sweep smaller",
            )


@dataclasses.dataclass
class _Allowance:
    most: int
    what: str
    taken: int = 0
    refused: bool = False

    def of(self, seen: Iterable[_T]) -> Iterator[_T]:
        """Yield what is allowed; what is beyond is not read."""
        for one in seen:
            self.refused = self.taken == self.most
            if self.refused:
                return
            self.taken += 1
            yield one


class _Places:
    """Finds the place of what a server logged: the one whose folder is nearest above it."""

    def __init__(self, asked: Asked, folder: Path) -> None:
        paths = {name: PurePosixPath(folder, "hosts", place.host, place.path) for name, place in asked.places.items()}
        self._nearest_first = sorted(paths.items(), key=lambda item: len(item[1].parts), reverse=True)

    def endpoint(self, path: str, spec: ServiceSpec) -> str | None:
        """Return ``place:path below`` of a path or URL of a service, None if it lies in no place."""
        if "://" in path:
            path = unquote(urlsplit(path).path)
        given = PurePosixPath("/" + path.lstrip("/"))
        for name, whole in self._nearest_first:
            if given.is_relative_to(whole) and given != whole:
                return f"{name}:{given.relative_to(whole)}"
        # One name space for a cluster: paths begin at the place itself.
        return f"{spec.places[0]}:{path.lstrip('/')}" if spec.options.get("shared") and spec.places else None


def _read(journal: Journal, one: RunningService, source: Callable[[], Iterable[_T]]) -> Iterator[_T]:
    """Yield what a service tells; a log that cannot be read ends it with a finding."""
    try:
        yield from source()
    except (OSError, ValueError, VenturiError) as error:
        journal.finding(
            one.room.spec.host,
            "server-log-unreadable",
            one.name,
            f"a log of {one.room.spec.kind} cannot be read: {error}",
            "what this server saw is not in the run, or only in part; its logs are in the run's folder lab/",
        )


def _tell(journal: Journal, host: str, kind: str, unix_s: float, detail: Mapping[str, Any]) -> None:
    event = {"record": "event", "time_s": _run_s(unix_s, journal), "kind": kind, "detail": detail}
    journal.record(host, event)


def _run_s(unix_s: float, journal: Journal) -> float:
    """Return a time on the run's axis, to the microsecond: more the logs do not have, nor a float of that size."""
    return round(unix_s - journal.epoch_unix_ns / 1e9, 6)


def _transfer(spec: ServiceSpec, seen: ServerTransfer, places: _Places, journal: Journal) -> dict[str, Any]:
    start_s = None if seen.start_unix_s is None else _run_s(seen.start_unix_s, journal)
    detail = {
        "service": spec.name,
        "kind": spec.kind,
        "start_s": start_s,
        "end_s": _run_s(seen.end_unix_s, journal),
        "endpoint": places.endpoint(seen.path, spec),
        **dataclasses.asdict(seen),
    }
    for left_out in ("start_unix_s", "end_unix_s"):
        del detail[left_out]
    return {key: value for key, value in detail.items() if value is not None}


def _line(service: str, number: int, said: ControlLine) -> dict[str, Any]:
    line = said.line if len(said.line) <= LINE_CHARS else f"{said.line[:LINE_CHARS]} …"
    return {
        "service": service,
        "number": number,
        "session": said.session,
        "client": said.client,
        "direction": said.direction,
        "line": line,
        "seen": said.seen,
    }
