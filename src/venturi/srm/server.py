"""Connections of the server: a thread each, so that the cryptography of many handshakes uses all cores.

A client that keeps its connection for a whole transfer holds a thread that sleeps. Beyond the number of the settings clients wait to be accepted, in
the backlog of the kernel: they see a slow server and not a broken one.
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
from venturi.srm.manager import Caller, Manager, Reply
from venturi.srm.mapfile import parse_mapfile
from venturi.srm.reply import return_status
from venturi.srm.settings import Settings
from venturi.srm.soap import emit_fault, emit_reply, parse_call
from venturi.srm.words import Status
from venturi.srm.x509 import identify

__all__ = ["Server"]

_BACKLOG = 4096
_STACK_BYTES = 1 << 20
_CHUNK = 1 << 16
_PAUSE_S = 0.05


class Server:
    """Serves a manager until it is closed.

    Parameters
    ----------
    log
        Gets a record for each connection and request.
    """

    def __init__(self, settings: Settings, manager: Manager, log: LogWriter) -> None:
        self._settings = settings
        self._manager = manager
        self._log = log
        self._context = server_context(settings.certificate, settings.key, settings.authorities)
        self._accounts = _Accounts(Path(settings.mapfile))
        self._numbers = itertools.count(log.connections)
        self._slots = threading.BoundedSemaphore(settings.connections)
        self._listening = [_listen(settings.address, port) for port in settings.ports]
        self._closing = threading.Event()

    @property
    def ports(self) -> tuple[int, ...]:
        """Where it listens; of 0 in the settings, the port that the kernel chose."""
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
        """Accept no more; connections that are there end with the process."""
        self._closing.set()
        for one in self._listening:
            # Closing alone does not wake up who waits in accept.
            one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self, listening: socket.socket) -> None:
        while not self._closing.is_set():
            self._slots.acquire()
            try:
                plain, peer = listening.accept()
            except OSError as error:
                self._slots.release()
                if not self._closing.is_set():
                    # Out of file descriptors, for example: what is there goes on, and some will be free again.
                    _complain(f"accept: {error}")
                    self._closing.wait(_PAUSE_S)
                continue
            begin_s = time.time()
            about = (plain, f"{peer[0]}:{peer[1]}", next(self._numbers), begin_s)
            try:
                threading.Thread(target=self._serve, args=about, daemon=True).start()
            except RuntimeError as error:  # no more threads: this client has to come again
                _complain(f"accept: {error}")
                plain.close()
                self._slots.release()

    def _serve(self, plain: socket.socket, peer: str, number: int, begin_s: float) -> None:
        try:
            with plain:
                plain.settimeout(self._settings.handshake_s)
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False) as tls:
                    caller = self._greet(tls, peer, number, begin_s)
                    if caller is not None:
                        tls.settimeout(self._settings.idle_s)
                        self._converse(tls, caller, peer, number)
        except OSError:
            return  # the client has gone, in whatever way; what it asked for is in the log
        finally:
            self._slots.release()

    def _greet(self, tls: ssl.SSLSocket, peer: str, number: int, begin_s: float) -> Caller | None:
        """Return who is there, None if that is not known."""
        about = {"connection": number, "peer": peer, "begin_unix_s": begin_s}
        try:
            delegated = accept(tls)
            identity = identify(peer_chain(tls))
        except (OSError, X509Error, subprocess.SubprocessError) as error:
            self._log.write("refused", **about, end_unix_s=time.time(), reason=_reason(error))
            return None
        caller = Caller(identity.subject, self._accounts.account(identity.subject))
        self._log.write(
            "connection", **about, end_unix_s=time.time(), subject=caller.subject, account=caller.account, tls=tls.version(),
            proxies=identity.proxies, limited=identity.limited, delegated=delegated,
        )  # fmt: skip
        return caller

    def _converse(self, tls: ssl.SSLSocket, caller: Caller, peer: str, number: int) -> None:
        reader = RequestReader(self._settings.body_bytes)
        while True:
            try:
                request = reader.take()
            except HttpError as error:
                tls.sendall(response(error.code, str(error).encode(), keep_alive=False))
                return
            if request is not None:
                begin_s = time.time()
                tls.sendall(self._respond(request, caller, peer, number, begin_s))
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

    def _respond(self, request: Request, caller: Caller, peer: str, number: int, begin_s: float) -> bytes:
        about = {"connection": number, "peer": peer, "begin_unix_s": begin_s, "subject": caller.subject}
        try:
            call = parse_call(request.body)
            reply = self._answer(call.operation, lambda: self._manager.handle(call, caller, begin_s))
        except SoapError as error:
            self._log.request(
                (), **about, end_unix_s=time.time(), operation="unknown", status="fault", reason=str(error)
            )
            return response(500, emit_fault("Client", str(error)), keep_alive=request.keep_alive)
        answer = response(200, emit_reply(call.operation, reply.parts), keep_alive=request.keep_alive)
        self._log.request(
            reply.files, **about, end_unix_s=time.time(), account=caller.account, operation=call.operation,
            status=reply.status.value, token=reply.token,
        )  # fmt: skip
        return answer

    def _answer(self, operation: str, handle: Callable[[], Reply]) -> Reply:
        """Return the reply; what breaks within is the server's fault, and clients may try again."""
        try:
            return handle()
        except SoapError:
            raise
        except Exception as error:
            _complain(f"{operation}: {traceback.format_exc()}")
            return Reply(
                Status.INTERNAL_ERROR, (return_status(Status.INTERNAL_ERROR, f"{type(error).__name__}: {error}"),)
            )


class _Accounts:
    """The grid-mapfile, read again when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._known: dict[str, str] = {}

    def account(self, subject: str) -> str | None:
        with self._lock:
            try:
                found = self._path.stat()
                seen = (found.st_mtime_ns, found.st_size, found.st_ino)
                if seen != self._seen:
                    self._known = parse_mapfile(self._path.read_text(encoding="utf-8", errors="replace"))
                    self._seen = seen
            except OSError:
                # Without a list of users there are no users.
                self._known, self._seen = {}, None
            return self._known.get(subject)


def _listen(address: str, port: int) -> socket.socket:
    return socket.create_server((address, port), backlog=_BACKLOG)


def _complain(what: str) -> None:
    """Tell the log of the process, not that of requests."""
    sys.stderr.write(f"srm: {what}\n")
    sys.stderr.flush()


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    return str(error) or type(error).__name__
