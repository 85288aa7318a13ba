"""Records of server logs as events of the run, read after the servers have stopped."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import PurePath, PurePosixPath
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from venturi.errors import VenturiError
from venturi.testbed.service_manager import RunningService
from venturi.testbed.services.base import ServiceSpec
from venturi.testbed.services.log_source import ControlLine, ServerLogSource, ServerTransfer

__all__ = ["LINE_CHARS", "MAX_CONTROL_LINES", "MAX_SERVER_TRANSFERS", "EventRecorder", "record_server_events"]

MAX_CONTROL_LINES = 200_000
"""Maximum lines of control connections in one session of a run; with more, the run has the finding ``control-trace-truncated``."""

MAX_SERVER_TRANSFERS = 1_000_000
"""Maximum transfers in server logs that one session of a run records."""

LINE_CHARS = 500
"""Maximum length of a recorded line of a control channel. Only the tokens of a GSI handshake are longer."""

_T = TypeVar("_T")


class EventRecorder(Protocol):
    """Receiver of events and findings: :class:`venturi.testbed.record_buffer.RecordBuffer`.

    Attributes
    ----------
    epoch_unix_ns
        Start of the time axis of the run.
    """

    @property
    def epoch_unix_ns(self) -> int: ...  # noqa: D102 - described above

    def record(self, host: str, record: Mapping[str, Any]) -> None:
        """Record an event."""
        ...

    def finding(self, host: str, code: str, subject: str, evidence: str, advice: str) -> None:
        """Record a finding."""
        ...


def record_server_events(
    services: Iterable[RunningService],
    storages: Mapping[str, tuple[str, PurePath]],
    records: EventRecorder,
    *,
    clock_offset_s: Callable[[str], float] = lambda host: 0.0,
) -> None:
    """Record the log of each service as events ``server-transfer`` and ``control``; an unreadable log is a finding.

    Parameters
    ----------
    storages
        Storage → its host and its absolute path there.
    clock_offset_s
        Seconds by which the clock of a host is ahead of the clock of the run.
    """
    finder = _StorageFinder(storages)
    control = _Allowance(MAX_CONTROL_LINES, "lines of control connections")
    transfers = _Allowance(MAX_SERVER_TRANSFERS, "transfers in server logs")
    for one in services:
        if not isinstance(one.service, ServerLogSource):
            continue
        service, context = one.service, one.context
        host = context.spec.host
        axis = _TimeAxis(records.epoch_unix_ns / 1e9 + clock_offset_s(host))
        for transfer in transfers.of(_read(records, one, partial(service.transfers, context))):
            detail = _transfer(context.spec, transfer, finder, axis)
            _record_event(records, host, "server-transfer", axis.run_s(transfer.end_unix_s), detail)
        for number, line in enumerate(control.of(_read(records, one, partial(service.control, context)))):
            _record_event(records, host, "control", axis.run_s(line.unix_s), _line(one.name, number, line))
    for allowance in (control, transfers):
        if allowance.exceeded:
            records.finding(
                "network",
                "control-trace-truncated",
                allowance.counted,
                f"the first {allowance.limit:,} {allowance.counted} were recorded; the logs have more",
                "Their counts are lower bounds. Make the sweep smaller.",
            )


@dataclasses.dataclass
class _Allowance:
    limit: int
    counted: str
    count: int = 0
    exceeded: bool = False

    def of(self, transfer: Iterable[_T]) -> Iterator[_T]:
        """Yield the allowed number of items; do not read more."""
        for one in transfer:
            self.exceeded = self.count == self.limit
            if self.exceeded:
                return
            self.count += 1
            yield one


@dataclasses.dataclass(frozen=True, slots=True)
class _TimeAxis:
    """Start of the run by the clock of a host, in seconds since 1970."""

    start_unix_s: float

    def run_s(self, unix_s: float) -> float:
        """Return a time on the axis of the run, to the microsecond, which is the resolution of logs and of large floats."""
        return round(unix_s - self.start_unix_s, 6)


class _StorageFinder:
    """Finder for the storage of a logged path: the storage with the longest directory that contains the path.

    Storages of several hosts can have the same path. The storages of the service and of its host come first.
    """

    def __init__(self, storages: Mapping[str, tuple[str, PurePath]]) -> None:
        self._nearest_first = sorted(storages.items(), key=lambda item: len(item[1][1].parts), reverse=True)

    def endpoint(self, path: str, spec: ServiceSpec) -> str | None:
        """Return ``storage:relative path`` for a path or URL of a service, None if no storage contains it."""
        if "://" in path:
            path = unquote(urlsplit(path).path)
        full_path = PurePosixPath("/" + path.lstrip("/"))
        found = [
            (name, host, storage_path)
            for name, (host, storage_path) in self._nearest_first
            if full_path.is_relative_to(storage_path) and full_path != storage_path
        ]
        near = [one for one in found if one[0] in spec.storages or one[1] == spec.host]
        if found:
            name, _, storage_path = (near or found)[0]
            return f"{name}:{full_path.relative_to(storage_path)}"
        # A cluster has one name space, whose paths start at the storage.
        return f"{spec.storages[0]}:{path.lstrip('/')}" if spec.options.get("shared") and spec.storages else None


def _read(records: EventRecorder, one: RunningService, source: Callable[[], Iterable[_T]]) -> Iterator[_T]:
    """Yield the records of a service. An unreadable log ends the iteration and is reported as a finding."""
    try:
        yield from source()
    except (OSError, ValueError, VenturiError) as error:
        records.finding(
            one.context.spec.host,
            "server-log-unreadable",
            one.name,
            f"cannot read a log of {one.context.spec.kind}: {error}",
            "Records of this server are missing or incomplete in the run. Its logs are with the run.",
        )


def _record_event(records: EventRecorder, host: str, kind: str, time_s: float, detail: Mapping[str, Any]) -> None:
    records.record(host, {"record": "event", "time_s": time_s, "kind": kind, "detail": detail})


def _transfer(
    spec: ServiceSpec, transfer: ServerTransfer, storages: _StorageFinder, axis: _TimeAxis
) -> dict[str, Any]:
    start_s = None if transfer.start_unix_s is None else axis.run_s(transfer.start_unix_s)
    detail = {
        "service": spec.name,
        "kind": spec.kind,
        "start_s": start_s,
        "end_s": axis.run_s(transfer.end_unix_s),
        "endpoint": storages.endpoint(transfer.path, spec),
        **dataclasses.asdict(transfer),
    }
    for internal_key in ("start_unix_s", "end_unix_s"):
        del detail[internal_key]
    return {key: value for key, value in detail.items() if value is not None}


def _line(service: str, number: int, control_line: ControlLine) -> dict[str, Any]:
    line = control_line.line if len(control_line.line) <= LINE_CHARS else f"{control_line.line[:LINE_CHARS]} …"
    return {
        "service": service,
        "number": number,
        "session": control_line.session,
        "client": control_line.client,
        "direction": control_line.direction,
        "line": line,
        "seen": control_line.seen,
    }
