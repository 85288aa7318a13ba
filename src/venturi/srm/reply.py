"""Who asks, what is answered, and the elements that answers share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from venturi.srm.log import LogFile
from venturi.srm.soap import Fields, Part
from venturi.srm.words import Status

__all__ = ["Caller", "Reply", "return_status", "status_part", "surl_statuses", "surls"]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: the subject of the certificate, and the account that the grid-mapfile gives; ``None``: it gives none."""

    subject: str
    account: str | None


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: the elements of the response, and what the log tells of it."""

    status: Status
    parts: tuple[Part, ...]
    token: str = ""
    files: tuple[LogFile, ...] = ()


def status_part(status: Status, explanation: str | None = None, *, name: str = "status") -> Part:
    """Return a status as an element."""
    return name, [("statusCode", status.value), ("explanation", explanation)]


def return_status(status: Status, explanation: str | None = None) -> Part:
    """Return the status of a whole request as an element."""
    return status_part(status, explanation, name="returnStatus")


def surls(request: Fields, array: str = "arrayOfSURLs") -> list[str]:
    """Return the SURLs of a request."""
    return request.part(array).texts("urlArray")


def surl_statuses(found: Sequence[tuple[str, Status, str | None]]) -> Part:
    """Return what became of SURLs as an element; None for none: an array must have something in it."""
    array: list[Part] = [
        ("statusArray", [("surl", surl), status_part(status, explanation)]) for surl, status, explanation in found
    ]
    return "arrayOfFileStatuses", array or None
