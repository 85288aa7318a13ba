"""Holds the libraries of a reading job loaded, and forks a process for each job that ``venturi-root read`` hands over.

A job is a process of its own from its first request on; what it costs to begin is a fork. It ends when its client does: a batch system that
kills the client kills the job.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from venturi.application.client import LENGTH_BYTES, address
from venturi.application.libraries import xrootd_source
from venturi.application.read import read
from venturi.application.write import write
from venturi.errors import VenturiError

__all__ = ["serve"]

BACKLOG = 1024
_WARM_BYTES = 100_000


def serve(name: str) -> None:
    """Listen until a signal ends this process.

    Parameters
    ----------
    name
        Of the socket: ``@NAME`` in this network, or a path; what is left there of a server that was killed is replaced.

    Raises
    ------
    MissingLibraryError
        If uproot or the XRootD client is not installed.
    """
    _load()
    path = None if name.startswith("@") else Path(name)
    if path is not None:
        path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(address(name))
        if path is not None:
            path.chmod(0o666)
        listener.listen(BACKLOG)
        # The kernel reaps the jobs.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _be_a_job(connection)
            connection.close()


def _load() -> None:
    """Import all that a job needs, and read a file once: uproot makes its classes while it reads the first of a kind."""
    xrootd_source()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "warm"
        write(file, _WARM_BYTES)
        read(str(file))
    # What is there now is shared with all jobs, and their collectors need not look at it (which would copy its pages).
    gc.collect()
    gc.freeze()


def _be_a_job(connection: socket.socket) -> None:
    """Carry out one request in this process, answer, and end."""
    code, text = 1, "expected a request of venturi-root, found something else\n"
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        request = _received(connection)
        if request is not None:
            threading.Thread(target=_die_with, args=(connection,), daemon=True).start()
            code, text = _carried_out(request)
        connection.sendall(f"{code}\n{text}".encode())
    finally:
        # Not the end that Python makes: that of the XRootD client's threads takes time, and is not the server's.
        os._exit(0)


def _carried_out(request: bytes) -> tuple[int, str]:
    from venturi.application.commands import carry_out

    count, *texts = (os.fsdecode(part) for part in request.split(b"\0"))
    arguments, variables = texts[: int(count)], texts[int(count) :]
    for variable in variables:
        name, _, value = variable.partition("=")
        os.environ[name] = value
    try:
        return carry_out(arguments)
    except VenturiError as error:
        return 1, f"{error}\n"


def _received(connection: socket.socket) -> bytes | None:
    length = int.from_bytes(_exactly(connection, LENGTH_BYTES) or b"", "little")
    return _exactly(connection, length) if 0 < length < 1 << 24 else None


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            return None
        data += part
    return data


def _die_with(connection: socket.socket) -> None:
    """End this process when the client is gone; it says nothing more."""
    with suppress(OSError):
        connection.recv(1)
    os._exit(1)
