"""Lab daemon: background process that owns a lab, from ``venturi lab up`` until ``venturi lab down``.

Its standard input is one JSON object (``header``, ``engine``, ``scratch``, ``probe``). Its standard output has one JSON
object per line: ``step`` for each step, then ``ready`` or ``error``.
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

__all__ = ["main", "start_daemon"]

_PROGRAM = f"from {__name__} import main; main()"
_WATCH_S = 1.0
_END_TIMEOUT_S = 60.0
_SAMPLES_S = 1.0


def start_daemon(
    header: Header, *, engine: Path, scratch: Path | None, probe: bool, on_step: Callable[[str], None]
) -> Mapping[str, Any]:
    """Start a lab in a daemon process and return its status.

    Raises
    ------
    BackendError
        If the lab does not start; all its parts are then removed.
    """
    request = {
        "header": HEADER.emit(header),
        "engine": str(engine),
        "scratch": str(scratch.absolute()) if scratch is not None else None,
        "probe": probe,
    }
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as daemon:
        assert daemon.stdin is not None and daemon.stdout is not None
        try:
            daemon.stdin.write(json.dumps(request).encode() + b"\n")
            daemon.stdin.close()
            for line in daemon.stdout:
                record = json.loads(line)
                if "ready" in record:
                    ready: Mapping[str, Any] = record["ready"]
                    daemon.returncode = 0  # the daemon keeps running; Popen must not wait for it
                    return ready
                if "error" in record:
                    raise BackendError(record["error"])
                on_step(record["step"])
        except BaseException:
            daemon.terminate()
            daemon.wait(_END_TIMEOUT_S)
            raise
    raise BackendError(f"the lab daemon exited with code {daemon.poll()} before it was ready")


def main() -> None:
    """Run the daemon."""
    try:
        _run_lab(json.loads(sys.stdin.readline()))
    except VenturiError as error:
        _write_record({"error": str(error)})
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _run_lab(request: Mapping[str, Any]) -> None:
    """Run a lab until its shutdown is requested."""
    stop_requested = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        stop_requested.set()
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, interrupt)
    lab = Lab.up(
        HEADER.read(dict(request["header"]), "header"),
        engine=Path(request["engine"]),
        scratch=Path(request["scratch"]) if request["scratch"] else None,
        interval_s=_SAMPLES_S,
        probe=request["probe"],
        on_step=lambda step: _write_record({"step": step}),
    )
    control = None
    try:
        control = Control(lab, on_down=stop_requested.set)
        lab.start_clock()
        _write_record({"ready": lab.status()})
        _detach(lab.directory / "daemon.log")
        while not stop_requested.wait(_WATCH_S) and lab.alive:
            pass
    except KeyboardInterrupt:
        pass
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if control is not None:
            control.close()
        lab.down()


def _write_record(record: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


def _detach(log: Path) -> None:
    """Detach from the terminal."""
    null = os.open(os.devnull, os.O_RDWR)
    errors = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for descriptor, target in ((null, 0), (null, 1), (errors, 2)):
        os.dup2(descriptor, target)
    os.close(null)
    os.close(errors)
