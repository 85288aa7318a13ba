"""Errors within the server. Each becomes a response to the client."""

from __future__ import annotations

from venturi.errors import VenturiError
from venturi.srm.protocol import SrmStatus

__all__ = ["HttpError", "SettingsError", "SoapError", "SrmError", "X509Error"]


class SrmError(VenturiError):
    """A request whose response is an error: ``status``, and the message as its explanation."""

    def __init__(self, status: SrmStatus, explanation: str) -> None:
        self.status = status
        super().__init__(explanation)


class HttpError(VenturiError, ValueError):
    """Bytes that are not an acceptable HTTP request; ``code`` is the status code of the response."""

    def __init__(self, code: int, reason: str) -> None:
        self.code = code
        super().__init__(reason)


class SoapError(VenturiError, ValueError):
    """A body that is not a SOAP request of SRM v2.2."""


class X509Error(VenturiError, ValueError):
    """Bytes that are not a certificate."""


class SettingsError(VenturiError, ValueError):
    """Settings that the server cannot start with."""
