"""States of a requested file, the status codes that clients see, and transitions. No clock, no database.

queued ──slot──▶ ready ──▶ released (get) · done (put)
   │               │
   └──▶ aborted, failed, expired ◀──┘
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, TypeAlias

from venturi.srm.protocol import SrmStatus

__all__ = [
    "LIVE",
    "FileRequest",
    "Kind",
    "State",
    "activate_queued",
    "expire_if_due",
    "file_status",
    "request_status",
]

Kind: TypeAlias = Literal["get", "put"]


class State(StrEnum):
    """State of a file in a request."""

    QUEUED = "queued"
    READY = "ready"
    RELEASED = "released"
    DONE = "done"
    ABORTED = "aborted"
    FAILED = "failed"
    EXPIRED = "expired"


LIVE = (State.QUEUED, State.READY)
"""States of files that are queued or transferred."""

_GOOD = frozenset({SrmStatus.FILE_PINNED, SrmStatus.SPACE_AVAILABLE, SrmStatus.RELEASED, SrmStatus.SUCCESS})


@dataclass(frozen=True, slots=True)
class FileRequest:
    """A file in a request.

    Attributes
    ----------
    surl, path
        SURL from the client, and its path on this server.
    protocol
        Protocol of the transfer URL.
    size_bytes
        For a get, the size of the file. For a put, the announced size, or ``None``.
    until_s
        Expiry of the request (queued) or of the transfer URL (ready), in seconds since 1970.
    turl
        Transfer URL, after the file became ready.
    status, explanation
        Reason of a failure.
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
    status: SrmStatus | None = None
    explanation: str | None = None


def activate_queued(file: FileRequest, turl: str, now_s: float, lifetime_s: float) -> FileRequest:
    """Return a queued file after it received a slot and a transfer URL."""
    return replace(file, state=State.READY, turl=turl, until_s=now_s + lifetime_s)


def expire_if_due(file: FileRequest, now_s: float) -> FileRequest | None:
    """Return the file in its expired state, or None if it is not due or not live any more."""
    if file.state not in LIVE or now_s < file.until_s:
        return None
    if file.state is State.QUEUED:
        return replace(
            file, state=State.FAILED, status=SrmStatus.REQUEST_TIMED_OUT, explanation="no slot became free within the lifetime of the request"
        )  # fmt: skip
    return replace(file, state=State.EXPIRED)


def file_status(file: FileRequest) -> SrmStatus:
    """Return the status of a file for clients (GFD.129, sections 5.1 to 5.4)."""
    match file.state:
        case State.QUEUED:
            return SrmStatus.REQUEST_QUEUED
        case State.READY:
            return SrmStatus.FILE_PINNED if file.kind == "get" else SrmStatus.SPACE_AVAILABLE
        case State.RELEASED:
            return SrmStatus.RELEASED
        case State.DONE:
            return SrmStatus.SUCCESS
        case State.ABORTED:
            return SrmStatus.ABORTED
        case State.EXPIRED:
            return SrmStatus.FILE_LIFETIME_EXPIRED
        case State.FAILED:
            return file.status or SrmStatus.FAILURE


def request_status(files: Iterable[SrmStatus]) -> SrmStatus:
    """Return the status of a request from the statuses of its files.

    Examples
    --------
    >>> request_status([SrmStatus.FILE_PINNED, SrmStatus.REQUEST_QUEUED]).value
    'SRM_REQUEST_INPROGRESS'
    >>> request_status([SrmStatus.FILE_PINNED, SrmStatus.INVALID_PATH]).value
    'SRM_PARTIAL_SUCCESS'
    """
    found: Sequence[SrmStatus] = list(files)
    waiting = sum(status is SrmStatus.REQUEST_QUEUED for status in found)
    if waiting:
        return SrmStatus.REQUEST_QUEUED if waiting == len(found) else SrmStatus.REQUEST_INPROGRESS
    good = sum(status in _GOOD for status in found)
    if good:
        return SrmStatus.SUCCESS if good == len(found) else SrmStatus.PARTIAL_SUCCESS
    for same in (SrmStatus.ABORTED, SrmStatus.REQUEST_TIMED_OUT):
        if found and all(status is same for status in found):
            return same
    return SrmStatus.FAILURE
