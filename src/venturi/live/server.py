"""HTTP server of the live page on the loopback interface.

A local page is reachable by every program of this machine and, through DNS rebinding, by every site that a browser has
open. So each request needs the token of the URL, and a `Host` header that names the loopback interface. There are two
paths, ``/`` and ``/snapshot``, and one method. No request changes anything.
"""

from __future__ import annotations

import hmac
import math
import secrets
import socket
import threading
import time
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

__all__ = ["ADDRESS", "PageServer"]

ADDRESS = "127.0.0.1"

HOST_NAMES = frozenset({ADDRESS, "localhost"})
"""Names in the header `Host`. A port that SSH forwards can have another number."""

REQUEST_TIMEOUT_S = 5.0
"""Limit for a client that sends nothing."""

MAX_REQUESTS = 16
"""Maximum number of concurrent requests. The server closes further connections immediately."""

OPEN_S = 5.0
"""A page that has read nothing for this time is closed or hidden."""

_PAGE = Path(__file__).with_name("page.html")


class PageServer:
    """Server of one page and of its values, in threads of this process.

    Parameters
    ----------
    values
        The first values: a JSON document.

    Attributes
    ----------
    url
        URL of the page, with its token.

    Raises
    ------
    OSError
        If no port of the loopback interface is free.

    Examples
    --------
    >>> server = PageServer(b"{}")
    >>> server.url.startswith("http://127.0.0.1:")
    True
    >>> server.close()
    """

    def __init__(self, values: bytes) -> None:
        self._token = secrets.token_urlsafe(24)
        self._values = values
        self._sent_last = threading.Event()
        self._last_values: bytes | None = None
        self._last_read_s = -math.inf
        self._server = _Server((ADDRESS, 0), _handler_of(self))
        self.url = f"http://{ADDRESS}:{self._server.server_port}/?token={self._token}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="live page", daemon=True)
        self._thread.start()

    def publish(self, values: bytes) -> None:
        """Replace the values. May be called from any thread."""
        self._values = values

    def finish(self, values: bytes, timeout_s: float) -> None:
        """Publish the last values, and wait until a page that is open has them, at most ``timeout_s``.

        A page is open if it has read values in the last :data:`OPEN_S`.
        """
        self._last_values = self._values = values
        if time.monotonic() - self._last_read_s < OPEN_S:
            self._sent_last.wait(timeout_s)

    def close(self) -> None:
        """Stop the server and release its port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def is_allowed(self, token: str) -> bool:
        """Return whether a token equals the token of the URL. The comparison takes the same time for each wrong token."""
        return hmac.compare_digest(token.encode(errors="replace"), self._token.encode())

    def read(self) -> bytes:
        """Return the values for a reader."""
        self._last_read_s = time.monotonic()
        return self._values

    def confirm(self, values: bytes) -> None:
        """Record that a reader has received values."""
        if values is self._last_values:
            self._sent_last.set()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = MAX_REQUESTS

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._free = threading.BoundedSemaphore(MAX_REQUESTS)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without a look-up of the host name, which can take seconds without a network."""
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = ADDRESS, int(self.server_address[1])

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Handle a request in a thread, or close its connection if all threads are in use."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """Handle a request, and free its thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors of a connection: a browser that ends changes nothing in the run."""


def _handler_of(page: PageServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers the requests of one page."""

        timeout = REQUEST_TIMEOUT_S
        server_version = "venturi"
        sys_version = ""

        def do_GET(self) -> None:
            """Send the page or its values."""
            url = urlsplit(self.path)
            if not _is_loopback(self.headers.get_all("Host") or []):
                self._send_error(HTTPStatus.FORBIDDEN, "open the URL that Venturi printed: its host is 127.0.0.1")
            elif not page.is_allowed((parse_qs(url.query).get("token") or [""])[0]):
                self._send_error(HTTPStatus.FORBIDDEN, "open the URL that Venturi printed: it contains a token")
            elif url.path == "/":
                nonce = secrets.token_urlsafe(16)
                self._send(
                    HTTPStatus.OK, "text/html; charset=utf-8", _page().replace(b"NONCE", nonce.encode()), nonce
                )
            elif url.path == "/snapshot":
                values = page.read()
                self._send(HTTPStatus.OK, "application/json", values)
                page.confirm(values)
            else:
                self._send_error(HTTPStatus.NOT_FOUND, "the page is at /")

        def _send_error(self, status: HTTPStatus, text: str) -> None:
            self._send(status, "text/plain; charset=utf-8", f"{status.value} {status.phrase}: {text}\n".encode())

        def _send(self, status: HTTPStatus, kind: str, body: bytes, nonce: str = "") -> None:
            self.send_response(status)
            allowed = (
                f"script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; "
                if nonce
                else ""
            )
            for name, value in (
                ("Content-Type", kind),
                ("Content-Length", str(len(body))),
                ("Cache-Control", "no-store"),
                ("Content-Security-Policy", f"default-src 'none'; {allowed}base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
                ("Cross-Origin-Resource-Policy", "same-origin"),
                ("Referrer-Policy", "no-referrer"),
                ("X-Content-Type-Options", "nosniff"),
                ("Connection", "close"),
            ):  # fmt: skip
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: the log would contain the token."""

    return Handler


def _is_loopback(hosts: list[str]) -> bool:
    """Return whether the only `Host` header names the loopback interface, with or without a port."""
    if len(hosts) != 1:
        return False
    name, _, port = hosts[0].strip().partition(":")
    return name.lower() in HOST_NAMES and (not port or port.isdigit())


@cache
def _page() -> bytes:
    return _PAGE.read_bytes()
