"""Server with loaded libraries that forks a process for each job of ``venturi-root read``.

The start of a job costs one fork. A job exits with its client, so a batch system that kills the client kills the job.
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
        Name of the socket: ``@NAME`` in this network namespace, or a path; a stale socket is replaced.

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
                _run_job(connection)
            connection.close()


def _load() -> None:
    """Import all libraries, and read a file once: uproot creates its classes on the first read."""
    xrootd_source()
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "warm"
        write(file, _WARM_BYTES)
        read(str(file))
    # Share these objects with all jobs: a garbage collection in a job would copy their pages.
    gc.collect()
    gc.freeze()


def _run_job(connection: socket.socket) -> None:
    """Run one request in this process, send the response, and exit."""
    code, text = (
        1,
        "venturi-root serve: expected a request of venturi-root, found other data; use venturi-root read\n",
    )
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        request = _receive_request(connection)
        if request is not None:
            threading.Thread(target=_exit_with_client, args=(connection,), daemon=True).start()
            code, text = _execute_request(request)
        connection.sendall(f"{code}\n{text}".encode())
    finally:
        # Exit without cleanup: the end of the threads of the XRootD client takes time.
        os._exit(0)


def _execute_request(request: bytes) -> tuple[int, str]:
    from venturi.application.commands import execute

    count, *texts = (os.fsdecode(part) for part in request.split(b"\0"))
    arguments, variables = texts[: int(count)], texts[int(count) :]
    for variable in variables:
        name, _, value = variable.partition("=")
        os.environ[name] = value
    try:
        return execute(arguments)
    except VenturiError as error:
        return 1, f"{error}\n"


def _receive_request(connection: socket.socket) -> bytes | None:
    length = int.from_bytes(_receive_exactly(connection, LENGTH_BYTES) or b"", "little")
    return _receive_exactly(connection, length) if 0 < length < 1 << 24 else None


def _receive_exactly(connection: socket.socket, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            return None
        data += part
    return data


def _exit_with_client(connection: socket.socket) -> None:
    """Exit when the client closes its connection; the client sends no more data."""
    with suppress(OSError):
        connection.recv(1)
    os._exit(1)
