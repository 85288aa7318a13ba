"""Client identities, replies, and elements that several replies share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from venturi.srm.log import LogFile
from venturi.srm.protocol import SrmStatus
from venturi.srm.soap import Fields, Part

__all__ = ["ClientIdentity", "Reply", "return_status", "status_part", "surl_statuses", "surls"]


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """Subject of the client's certificate, and its account in the grid-mapfile. ``None`` if it has no account."""

    subject: str
    account: str | None


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply: the elements of the response, and the values for the log."""

    status: SrmStatus
    parts: tuple[Part, ...]
    token: str = ""
    files: tuple[LogFile, ...] = ()


def status_part(status: SrmStatus, explanation: str | None = None, *, name: str = "status") -> Part:
    """Return a status as an element."""
    return name, [("statusCode", status.value), ("explanation", explanation)]


def return_status(status: SrmStatus, explanation: str | None = None) -> Part:
    """Return the status of the entire request as an element."""
    return status_part(status, explanation, name="returnStatus")


def surls(request: Fields, array: str = "arrayOfSURLs") -> list[str]:
    """Return the SURLs of a request."""
    return request.part(array).texts("urlArray")


def surl_statuses(found: Sequence[tuple[str, SrmStatus, str | None]]) -> Part:
    """Return the results for SURLs as an element, with None for no SURLs because an array must not be empty."""
    array: list[Part] = [
        ("statusArray", [("surl", surl), status_part(status, explanation)]) for surl, status, explanation in found
    ]
    return "arrayOfFileStatuses", array or None
