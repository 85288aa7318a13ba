"""Control socket of a lab, in its directory: each request and each response is one JSON line."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from venturi.errors import BackendError, VenturiError
from venturi.testbed.lab.lab import Lab

__all__ = ["Control", "call_lab"]

SOCKET = "control.sock"

_TIMEOUT_S = 20.0
MAX_MESSAGE_BYTES = 2**26


class Control:
    """Server that answers requests about a lab, in a separate thread.

    Parameters
    ----------
    lab
        Lab that the requests are about.
    on_down
        Called on a request to shut the lab down. Without it, the request is rejected, because the lab belongs to a run.
    """

    def __init__(self, lab: Lab, on_down: Callable[[], None] | None = None) -> None:
        self._lab = lab
        self._on_down = on_down
        self._listener = socket.socket(socket.AF_UNIX)
        path = lab.directory / SOCKET
        self._listener.bind(str(path))
        path.chmod(0o600)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, name="lab control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the server."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(_TIMEOUT_S)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            with connection, suppress(OSError):
                connection.settimeout(_TIMEOUT_S)
                line = connection.makefile("rb").readline(MAX_MESSAGE_BYTES)
                connection.sendall(json.dumps(self._respond(line)).encode() + b"\n")

    def _respond(self, line: bytes) -> Mapping[str, Any]:
        try:
            request = json.loads(line)
            match request["method"]:
                case "status":
                    return {"status": self._lab.status()}
                case "words":
                    return {"words": self._lab.client_command(request["host"], request["argv"])}
                case "link":
                    return {"links": self._lab.change(request["link"], request["set"])}
                case "down" if self._on_down is not None:
                    self._on_down()
                    return {}
                case "down":
                    return {"error": f"this lab belongs to a run of PID {os.getpid()}; stop the run with Ctrl-C"}
                case other:
                    return {"error": f"unknown method: {other}"}
        except VenturiError as error:
            return {"error": str(error)}
        except (ValueError, KeyError, TypeError) as error:
            return {"error": f"expected a request with a method, found {line[:80]!r} ({error!r})"}


def call_lab(directory: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Send a request to the process that owns the lab in ``directory``, and return the response.

    Raises
    ------
    BackendError
        If the process does not respond, or rejects the request.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_TIMEOUT_S)
            connection.connect(str(directory / SOCKET))
            connection.sendall(json.dumps(request).encode() + b"\n")
            response: dict[str, Any] = json.loads(connection.makefile("rb").readline(MAX_MESSAGE_BYTES))
    except (OSError, ValueError) as error:
        raise BackendError(
            f"{directory}: cannot reach the daemon of this lab: {error}. If the lab is starting, try again."
        ) from error
    if "error" in response:
        raise BackendError(f"{directory}: {response['error']}")
    return response
