"""What becomes of a file that was asked for: its states, what each means to a client, and when it changes. No clock, no database.

queued ──slot──▶ ready ──▶ released (get) · done (put)
   │               │
   └──▶ aborted, failed, expired ◀──┘
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, TypeAlias

from venturi.srm.words import Status

__all__ = ["LIVE", "FileRequest", "Kind", "State", "due", "file_status", "promoted", "request_status"]

Kind: TypeAlias = Literal["get", "put"]


class State(StrEnum):
    """Of a file in a request."""

    QUEUED = "queued"
    READY = "ready"
    RELEASED = "released"
    DONE = "done"
    ABORTED = "aborted"
    FAILED = "failed"
    EXPIRED = "expired"


LIVE = (State.QUEUED, State.READY)
"""States of files that somebody waits for or moves."""

_GOOD = frozenset({Status.FILE_PINNED, Status.SPACE_AVAILABLE, Status.RELEASED, Status.SUCCESS})


@dataclass(frozen=True, slots=True)
class FileRequest:
    """A file in a request.

    Attributes
    ----------
    surl, path
        As the client wrote it, and what it means here.
    protocol
        Of its transfer URL.
    size_bytes
        Of a get: of the file; of a put: what was announced, ``None``: nothing.
    until_s
        Queued: when the request ends; ready: when the transfer URL does. Seconds since 1970.
    turl
        Once it is ready.
    status, explanation
        Of one that failed.
    """

    token: str
    position: int
    kind: Kind
    surl: str
    path: str
    protocol: str
    state: State
    until_s: float
    size_bytes: int | None = None
    turl: str | None = None
    status: Status | None = None
    explanation: str | None = None


def promoted(file: FileRequest, turl: str, now_s: float, lifetime_s: float) -> FileRequest:
    """Return a queued file that has got a slot and with it a transfer URL."""
    return replace(file, state=State.READY, turl=turl, until_s=now_s + lifetime_s)


def due(file: FileRequest, now_s: float) -> FileRequest | None:
    """Return the file as it is once its time is over, None if it is not, or nobody waits for it any more."""
    if file.state not in LIVE or now_s < file.until_s:
        return None
    if file.state is State.QUEUED:
        return replace(
            file, state=State.FAILED, status=Status.REQUEST_TIMED_OUT, explanation="no slot became free in the time of the request"
        )  # fmt: skip
    return replace(file, state=State.EXPIRED)


def file_status(file: FileRequest) -> Status:
    """Return what a client is told of a file (GFD.129, sections 5.1 to 5.4)."""
    match file.state:
        case State.QUEUED:
            return Status.REQUEST_QUEUED
        case State.READY:
            return Status.FILE_PINNED if file.kind == "get" else Status.SPACE_AVAILABLE
        case State.RELEASED:
            return Status.RELEASED
        case State.DONE:
            return Status.SUCCESS
        case State.ABORTED:
            return Status.ABORTED
        case State.EXPIRED:
            return Status.FILE_LIFETIME_EXPIRED
        case State.FAILED:
            return file.status or Status.FAILURE


def request_status(files: Iterable[Status]) -> Status:
    """Return the status of a request from those of its files.

    Examples
    --------
    >>> request_status([Status.FILE_PINNED, Status.REQUEST_QUEUED]).value
    'SRM_REQUEST_INPROGRESS'
    >>> request_status([Status.FILE_PINNED, Status.INVALID_PATH]).value
    'SRM_PARTIAL_SUCCESS'
    """
    found: Sequence[Status] = list(files)
    waiting = sum(status is Status.REQUEST_QUEUED for status in found)
    if waiting:
        return Status.REQUEST_QUEUED if waiting == len(found) else Status.REQUEST_INPROGRESS
    good = sum(status in _GOOD for status in found)
    if good:
        return Status.SUCCESS if good == len(found) else Status.PARTIAL_SUCCESS
    for same in (Status.ABORTED, Status.REQUEST_TIMED_OUT):
        if found and all(status is same for status in found):
            return same
    return Status.FAILURE
