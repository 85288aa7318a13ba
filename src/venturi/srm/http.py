"""Parser of HTTP/1.1 requests from SOAP clients: a POST with a length. It has no socket.

Chunked bodies, pipelining limits and trailers are not supported. ``Expect: 100-continue`` is reported to the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from venturi.srm.errors import HttpError

__all__ = ["HEAD_LIMIT", "Request", "RequestReader", "response"]

HEAD_LIMIT = 64 * 1024
"""Maximum size of the head of a request in bytes."""

_REASONS = {200: "OK", 400: "Bad Request", 405: "Method Not Allowed", 411: "Length Required", 413: "Payload Too Large",
            431: "Request Header Fields Too Large", 500: "Internal Server Error"}  # fmt: skip
_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Names of header fields are in lower case."""

    method: str
    target: str
    fields: Mapping[str, str]
    body: bytes
    keep_alive: bool


@dataclass(frozen=True, slots=True)
class _Head:
    method: str
    target: str
    fields: Mapping[str, str]
    length: int
    keep_alive: bool


class RequestReader:
    """Incremental parser of requests.

    Parameters
    ----------
    body_limit
        Maximum size of a body in bytes. A longer body is rejected by its head.

    Examples
    --------
    >>> reader = RequestReader(1000)
    >>> reader.feed(b"POST /srm HTTP/1.1\\r\\nContent-Length: 2\\r\\n\\r\\nh")
    >>> reader.take()
    >>> reader.feed(b"i")
    >>> reader.take().body
    b'hi'
    """

    def __init__(self, body_limit: int) -> None:
        self._body_limit = body_limit
        self._buffer = bytearray()
        self._head: _Head | None = None
        self.expects_continue = False
        """Whether the client waits for a 100 before it sends the body. The caller resets this after sending the 100."""

    @property
    def within_request(self) -> bool:
        """Whether a request has started but is not complete."""
        return bool(self._buffer) or self._head is not None

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._buffer += data

    def take(self) -> Request | None:
        """Return the next complete request, or None if more bytes are needed.

        Raises
        ------
        HttpError
            If the bytes are not a valid request. The connection cannot be used further.
        """
        if self._head is None and not self._take_head():
            return None
        head = self._head
        if head is None or len(self._buffer) < head.length:
            return None
        body = bytes(self._buffer[: head.length])
        del self._buffer[: head.length]
        self._head = None
        return Request(head.method, head.target, head.fields, body, head.keep_alive)

    def _take_head(self) -> bool:
        # Empty lines are allowed before a request (RFC 9112, section 2.2).
        while self._buffer.startswith(b"\r\n"):
            del self._buffer[:2]
        end = self._buffer.find(_END)
        if end > HEAD_LIMIT or (end < 0 and len(self._buffer) > HEAD_LIMIT):
            raise HttpError(431, f"expected a header of at most {HEAD_LIMIT} bytes")
        if end < 0:
            return False
        self._head = _head(bytes(self._buffer[:end]), self._body_limit)
        self.expects_continue = self._head.fields.get("expect", "").lower() == "100-continue"
        del self._buffer[: end + len(_END)]
        return True


def response(code: int, body: bytes, *, keep_alive: bool) -> bytes:
    """Return the bytes of a response with XML, or with plain text for an HTTP error."""
    kind = "text/xml; charset=utf-8" if code in (200, 500) else "text/plain; charset=utf-8"
    connection = "keep-alive" if keep_alive else "close"
    head = (
        f"HTTP/1.1 {code} {_REASONS.get(code, 'Error')}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        f"Connection: {connection}\r\n\r\n"
    )
    return head.encode() + body


def _head(data: bytes, body_limit: int) -> _Head:
    try:
        first, *lines = data.decode("latin-1").split("\r\n")
        method, target, version = first.split(" ")
    except ValueError as error:
        raise HttpError(400, "expected METHOD TARGET HTTP/1.1") from error
    if version not in ("HTTP/1.0", "HTTP/1.1"):
        raise HttpError(400, f"expected HTTP/1.1, found {version[:20]!r}")
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise HttpError(400, f"expected NAME: VALUE, found {line[:40]!r}")
        fields[name.lower()] = value.strip()
    if method != "POST":
        raise HttpError(405, f"expected POST, found {method[:20]!r}")
    length = fields.get("content-length", "")
    if "transfer-encoding" in fields or not (length.isascii() and length.isdigit() and len(length) < 20):
        raise HttpError(411, "expected Content-Length")
    if int(length) > body_limit:
        raise HttpError(413, f"expected a body of at most {body_limit} bytes, found {length}")
    tokens = {token.strip() for token in fields.get("connection", "").lower().split(",")}
    keep_alive = "close" not in tokens and (version == "HTTP/1.1" or "keep-alive" in tokens)
    return _Head(method, target, fields, int(length), keep_alive)
