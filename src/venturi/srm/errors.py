"""What is raised within the server; each becomes an answer to the client."""

from __future__ import annotations

from venturi.errors import VenturiError
from venturi.srm.words import Status

__all__ = ["HttpError", "SettingsError", "SoapError", "SrmError", "X509Error"]


class SrmError(VenturiError):
    """A request that is answered with a status: ``status``, and the message as its explanation."""

    def __init__(self, status: Status, explanation: str) -> None:
        self.status = status
        super().__init__(explanation)


class HttpError(VenturiError, ValueError):
    """Bytes that are no HTTP request that the server takes; ``code`` is what to answer."""

    def __init__(self, code: int, reason: str) -> None:
        self.code = code
        super().__init__(reason)


class SoapError(VenturiError, ValueError):
    """A body that is no SOAP request of SRM v2.2."""


class X509Error(VenturiError, ValueError):
    """Bytes that are no certificate."""


class SettingsError(VenturiError, ValueError):
    """Settings that the server cannot start with."""
