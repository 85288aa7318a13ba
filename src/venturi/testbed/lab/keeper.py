"""The process that keeps a lab by hand: started in the background by ``venturi lab up``, ended by ``venturi lab down``.

Told on its standard input what to keep, one JSON object (``header``, ``engine``, ``scratch``); tells on its standard output, one JSON object a line, what
it does (``step``), and at last ``ready`` or ``error``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from venturi.errors import BackendError, VenturiError
from venturi.plan.codec import HEADER
from venturi.plan.header import Header
from venturi.testbed.lab.control import Control
from venturi.testbed.lab.lab import Lab

__all__ = ["main", "start_keeper"]

_PROGRAM = f"from {__name__} import main; main()"
_WATCH_S = 1.0
_END_TIMEOUT_S = 60.0
_SAMPLES_S = 1.0


def start_keeper(
    header: Header, *, engine: Path, scratch: Path | None, probe: bool, on_step: Callable[[str], None]
) -> Mapping[str, Any]:
    """Bring a lab up in a process of its own, which stays; return its status.

    Raises
    ------
    BackendError
        If it does not come up; nothing is left then.
    """
    request = {
        "header": HEADER.emit(header),
        "engine": str(engine),
        "scratch": str(scratch.absolute()) if scratch is not None else None,
        "probe": probe,
    }
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as keeper:
        assert keeper.stdin is not None and keeper.stdout is not None
        try:
            keeper.stdin.write(json.dumps(request).encode() + b"\n")
            keeper.stdin.close()
            for line in keeper.stdout:
                record = json.loads(line)
                if "ready" in record:
                    ready: Mapping[str, Any] = record["ready"]
                    keeper.returncode = 0  # it stays: nobody waits for it
                    return ready
                if "error" in record:
                    raise BackendError(record["error"])
                on_step(record["step"])
        except BaseException:
            keeper.terminate()
            keeper.wait(_END_TIMEOUT_S)
            raise
    raise BackendError(
        f"expected the keeper of the lab to get ready, found that it ended with exit code {keeper.poll()}"
    )


def main() -> None:
    """Be the keeper."""
    try:
        _keep(json.loads(sys.stdin.readline()))
    except VenturiError as error:
        _say({"error": str(error)})
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _keep(request: Mapping[str, Any]) -> None:
    """Keep a lab until somebody asks for its end."""
    over = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        over.set()
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, interrupt)
    lab = Lab.up(
        HEADER.read(dict(request["header"]), "header"),
        engine=Path(request["engine"]),
        scratch=Path(request["scratch"]) if request["scratch"] else None,
        interval_s=_SAMPLES_S,
        probe=request["probe"],
        on_step=lambda step: _say({"step": step}),
    )
    control = None
    try:
        control = Control(lab, on_down=over.set)
        lab.go()
        _say({"ready": lab.status()})
        _go_silent(lab.folder / "keeper.log")
        while not over.wait(_WATCH_S) and lab.alive:
            pass
    except KeyboardInterrupt:
        pass
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if control is not None:
            control.close()
        lab.down()


def _say(record: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


def _go_silent(log: Path) -> None:
    """Let go of the terminal that started it."""
    null = os.open(os.devnull, os.O_RDWR)
    errors = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for descriptor, target in ((null, 0), (null, 1), (errors, 2)):
        os.dup2(descriptor, target)
    os.close(null)
    os.close(errors)
