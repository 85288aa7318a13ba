"""Talking to a lab that another process keeps: one JSON line there, one back, over a socket in the lab's folder."""

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

__all__ = ["Control", "ask"]

SOCKET = "control.sock"

_TIMEOUT_S = 20.0
_LONGEST_BYTES = 2**26


class Control:
    """Answers questions about a lab, in a thread of its own, until closed.

    Parameters
    ----------
    lab
        Whom it speaks for.
    on_down
        Called when somebody asks to take the lab down; without it that is refused, for the lab is there for a run.
    """

    def __init__(self, lab: Lab, on_down: Callable[[], None] | None = None) -> None:
        self._lab = lab
        self._on_down = on_down
        self._listener = socket.socket(socket.AF_UNIX)
        path = lab.folder / SOCKET
        self._listener.bind(str(path))
        path.chmod(0o600)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, name="lab control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
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
                line = connection.makefile("rb").readline(_LONGEST_BYTES)
                connection.sendall(json.dumps(self._answer(line)).encode() + b"\n")

    def _answer(self, line: bytes) -> Mapping[str, Any]:
        try:
            question = json.loads(line)
            match question["ask"]:
                case "status":
                    return {"status": self._lab.status()}
                case "words":
                    return {"words": self._lab.words(question["host"], question["argv"])}
                case "link":
                    return {"links": self._lab.change(question["link"], question["set"])}
                case "down" if self._on_down is not None:
                    self._on_down()
                    return {}
                case "down":
                    return {
                        "error": f"it is there for a run, which PID {os.getpid()} carries out: stop that with Ctrl-C"
                    }
                case other:
                    return {"error": f"it does not know how to {other}"}
        except VenturiError as error:
            return {"error": str(error)}
        except (ValueError, KeyError, TypeError) as error:
            return {"error": f"expected a question, found {line[:80]!r} ({error!r})"}


def ask(folder: Path, question: Mapping[str, Any]) -> dict[str, Any]:
    """Ask the keeper of the lab in ``folder``.

    Raises
    ------
    BackendError
        If it does not answer, or says no.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_TIMEOUT_S)
            connection.connect(str(folder / SOCKET))
            connection.sendall(json.dumps(question).encode() + b"\n")
            answer: dict[str, Any] = json.loads(connection.makefile("rb").readline(_LONGEST_BYTES))
    except (OSError, ValueError) as error:
        raise BackendError(
            f"{folder}: expected an answer from the keeper of this lab: {error}; is it still coming up?"
        ) from error
    if "error" in answer:
        raise BackendError(f"{folder}: {answer['error']}")
    return answer
