"""Connections of the server. Each has a thread, so that the cryptography of many handshakes uses all cores.

A client that keeps its connection for an entire transfer holds a sleeping thread. Clients beyond the configured number
of connections wait in the backlog of the kernel, so that they experience a slow server and not a failing one.
"""

from __future__ import annotations

import itertools
import socket
import ssl
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from venturi.srm.errors import HttpError, SoapError, X509Error
from venturi.srm.http import Request, RequestReader, response
from venturi.srm.httpg import accept, peer_chain, server_context
from venturi.srm.log import LogWriter
from venturi.srm.manager import ClientIdentity, Manager, Reply
from venturi.srm.mapfile import parse_mapfile
from venturi.srm.protocol import SrmStatus
from venturi.srm.reply import return_status
from venturi.srm.settings import Settings
from venturi.srm.soap import emit_fault, emit_reply, parse_call
from venturi.srm.x509 import identify

__all__ = ["Server"]

_BACKLOG = 4096
_STACK_BYTES = 1 << 20
_CHUNK = 1 << 16
_PAUSE_S = 0.05


class Server:
    """Server of a manager, until it is closed.

    Parameters
    ----------
    log
        Receiver of a record for each connection and request.
    """

    def __init__(self, settings: Settings, manager: Manager, log: LogWriter) -> None:
        self._settings = settings
        self._manager = manager
        self._log = log
        self._context = server_context(settings.certificate, settings.key, settings.ca_directory)
        self._accounts = _Accounts(Path(settings.mapfile))
        self._numbers = itertools.count(log.connections)
        self._slots = threading.BoundedSemaphore(settings.connections)
        self._listening = [_listen(settings.address, port) for port in settings.ports]
        self._closing = threading.Event()

    @property
    def ports(self) -> tuple[int, ...]:
        """Listening ports. For 0 in the settings, the port that the kernel chose."""
        return tuple(int(one.getsockname()[1]) for one in self._listening)

    def serve(self) -> None:
        """Accept connections until :meth:`close`."""
        threading.stack_size(_STACK_BYTES)
        acceptors = [threading.Thread(target=self._accept, args=(one,), daemon=True) for one in self._listening]
        for acceptor in acceptors:
            acceptor.start()
        for acceptor in acceptors:
            acceptor.join()

    def close(self) -> None:
        """Stop accepting. Existing connections end with the process."""
        self._closing.set()
        for one in self._listening:
            # Closing alone does not wake a thread that waits in accept.
            one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self, listening: socket.socket) -> None:
        while not self._closing.is_set():
            self._slots.acquire()
            try:
                raw, peer = listening.accept()
            except OSError as error:
                self._slots.release()
                if not self._closing.is_set():
                    # For example, out of file descriptors: existing connections continue, and some descriptors will
                    # become free.
                    _complain(f"accept: {error}")
                    self._closing.wait(_PAUSE_S)
                continue
            start_s = time.time()
            about = (raw, f"{peer[0]}:{peer[1]}", next(self._numbers), start_s)
            try:
                threading.Thread(target=self._serve, args=about, daemon=True).start()
            except RuntimeError as error:  # no more threads: this client must connect again
                _complain(f"accept: {error}")
                raw.close()
                self._slots.release()

    def _serve(self, raw: socket.socket, peer: str, number: int, start_s: float) -> None:
        try:
            with raw:
                raw.settimeout(self._settings.handshake_s)
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._context.wrap_socket(raw, server_side=True, do_handshake_on_connect=False) as tls:
                    client = self._greet(tls, peer, number, start_s)
                    if client is not None:
                        tls.settimeout(self._settings.idle_s)
                        self._converse(tls, client, peer, number)
        except OSError:
            return  # the client disconnected, and its requests are in the log
        finally:
            self._slots.release()

    def _greet(self, tls: ssl.SSLSocket, peer: str, number: int, start_s: float) -> ClientIdentity | None:
        """Return the authenticated client, or None if authentication failed."""
        about = {"connection": number, "peer": peer, "begin_unix_s": start_s}
        try:
            delegated = accept(tls)
            identity = identify(peer_chain(tls))
        except (OSError, X509Error, subprocess.SubprocessError) as error:
            self._log.write("refused", **about, end_unix_s=time.time(), reason=_reason(error))
            return None
        client = ClientIdentity(identity.subject, self._accounts.account(identity.subject))
        self._log.write(
            "connection", **about, end_unix_s=time.time(), subject=client.subject, account=client.account, tls=tls.version(),
            proxies=identity.proxies, limited=identity.limited, delegated=delegated,
        )  # fmt: skip
        return client

    def _converse(self, tls: ssl.SSLSocket, client: ClientIdentity, peer: str, number: int) -> None:
        reader = RequestReader(self._settings.body_bytes)
        while True:
            try:
                request = reader.take()
            except HttpError as error:
                tls.sendall(response(error.code, str(error).encode(), keep_alive=False))
                return
            if request is not None:
                start_s = time.time()
                tls.sendall(self._respond(request, client, peer, number, start_s))
                if not request.keep_alive:
                    return
                continue
            if reader.expects_continue:
                reader.expects_continue = False
                tls.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            data = tls.recv(_CHUNK)
            if not data:
                return
            reader.feed(data)

    def _respond(self, request: Request, client: ClientIdentity, peer: str, number: int, start_s: float) -> bytes:
        about = {"connection": number, "peer": peer, "begin_unix_s": start_s, "subject": client.subject}
        try:
            call = parse_call(request.body)
            reply = self._run_operation(call.operation, lambda: self._manager.handle(call, client, start_s))
        except SoapError as error:
            self._log.request(
                (), **about, end_unix_s=time.time(), operation="unknown", status="fault", reason=str(error)
            )
            return response(500, emit_fault("Client", str(error)), keep_alive=request.keep_alive)
        content = response(200, emit_reply(call.operation, reply.parts), keep_alive=request.keep_alive)
        self._log.request(
            reply.files, **about, end_unix_s=time.time(), account=client.account, operation=call.operation,
            status=reply.status.value, token=reply.token,
        )  # fmt: skip
        return content

    def _run_operation(self, operation: str, handle: Callable[[], Reply]) -> Reply:
        """Return the reply. An unexpected error is an internal error of the server, so that clients can retry."""
        try:
            return handle()
        except SoapError:
            raise
        except Exception as error:
            _complain(f"{operation}: {traceback.format_exc()}")
            return Reply(
                SrmStatus.INTERNAL_ERROR,
                (return_status(SrmStatus.INTERNAL_ERROR, f"{type(error).__name__}: {error}"),),
            )


class _Accounts:
    """The grid-mapfile, which is read again after changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._file_identity: tuple[int, int, int] | None = None
        self._known: dict[str, str] = {}

    def account(self, subject: str) -> str | None:
        with self._lock:
            try:
                found = self._path.stat()
                identity = (found.st_mtime_ns, found.st_size, found.st_ino)
                if identity != self._file_identity:
                    self._known = parse_mapfile(self._path.read_text(encoding="utf-8", errors="replace"))
                    self._file_identity = identity
            except OSError:
                # Without a readable mapfile there are no users.
                self._known, self._file_identity = {}, None
            return self._known.get(subject)


def _listen(address: str, port: int) -> socket.socket:
    return socket.create_server((address, port), backlog=_BACKLOG)


def _complain(cause: str) -> None:
    """Write to the log of the process, not to the log of requests."""
    sys.stderr.write(f"srm: {cause}\n")
    sys.stderr.flush()


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    return str(error) or type(error).__name__
