"""Verdict of the finished trials of a run in progress, in a separate process with the lowest priority.

    python -m venturi.live.verdict RUN PARENT

prints ``{"sentence": text, "trials": number, "cpu_s": seconds}``. The verdict needs the tables of the run, so its cost
grows with the run: about 1.5 s of CPU for a small one. So :class:`VerdictSource` starts it only when a design point has
become complete, and when :data:`venturi.live.budget.VERDICT_FRACTION` of a core allows its cost.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from venturi.live.budget import VERDICT_FRACTION, CpuBudget
from venturi.live.snapshot import VerdictNow
from venturi.run.directory import EVENTS, JOURNAL, SAMPLES, SOCKETS
from venturi.units import format_duration

__all__ = ["VerdictSource"]

EXPECTED_CPU_S = 1.5
"""CPU time of the first verdict: imports of 1.2 s, and tables of a small run."""

INTERVAL_S = 30.0

MAX_RUN_BYTES = 500_000_000
"""Size of the records above which the verdict comes at the end: the tables of a larger run take much memory."""

TIMEOUT_S = 600.0

_PR_SET_PDEATHSIG = 1
"""prctl(2): the process gets a signal when its parent ends."""


class VerdictSource:
    """Verdicts of one run, within a share of a core.

    Parameters
    ----------
    path
        The run directory.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._budget = CpuBudget(VERDICT_FRACTION, interval_s=INTERVAL_S, expected_s=EXPECTED_CPU_S)
        self._process: subprocess.Popen[str] | None = None
        self._started_s = 0.0
        self._points = 0
        self._found = VerdictNow()

    def update(self, now_s: float, elapsed_s: float, points_done: int) -> VerdictNow:
        """Return the last verdict, and start the next one if it is due.

        Parameters
        ----------
        now_s
            The current time, in seconds. Any origin.
        elapsed_s
            Duration of the session, in seconds.
        points_done
            Complete design points.
        """
        if self._process is not None:
            self._collect(now_s)
            return self._found
        size = _record_bytes(self._path)
        due_s = self._budget.next_s(self._started_s or now_s - elapsed_s)
        if size > MAX_RUN_BYTES:
            note = "the next verdict comes at the end, because the run is large"
        elif points_done <= self._points:
            note = "the next verdict follows when a design point is complete" if self._found.sentence else ""
        elif now_s < due_s:
            wait = format_duration(float(round(due_s - now_s)))
            note = (
                f"the {'next' if self._found.sentence else 'first'} verdict follows in {wait}, to keep the load low"
            )
        else:
            note = ""
            self._start(now_s, points_done)
        self._found = VerdictNow(self._found.sentence, self._found.trials, note)
        return self._found

    def close(self) -> None:
        """End a verdict in progress."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _start(self, now_s: float, points_done: int) -> None:
        self._started_s, self._points = now_s, points_done
        self._process = subprocess.Popen(
            [sys.executable, "-m", "venturi.live.verdict", str(self._path), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # Ctrl-C on the terminal is for the controller
        )

    def _collect(self, now_s: float) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            if now_s - self._started_s > TIMEOUT_S:
                self.close()
                self._budget.spend(TIMEOUT_S)
            return
        output, _ = self._process.communicate()
        self._process = None
        try:
            found = json.loads(output)
            self._budget.spend(float(found["cpu_s"]))
            self._found = VerdictNow(str(found["sentence"]), int(found["trials"]))
        except (ValueError, KeyError, TypeError):
            # Such as a record that is only half on the disk. The next point gives the next verdict.
            self._budget.spend(EXPECTED_CPU_S)


def _record_bytes(path: Path) -> int:
    total = 0
    for name in (JOURNAL, SAMPLES, EVENTS, SOCKETS):
        with suppress(OSError):
            total += (path / name).stat().st_size
    return total


def _verdict(path: Path) -> dict[str, Any]:
    from venturi.advice import advise
    from venturi.run import Run

    with Run.open(path) as run:
        found = advise(run)
        trials = len(run.finished_trials())
    return {"sentence": found.run.sentence, "trials": trials, "cpu_s": time.process_time()}


def main(path: str, parent: int) -> None:
    """Print the verdict of a run."""
    with suppress(OSError, AttributeError):
        # The verdict yields to every other program, and does not outlive the controller.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if os.getppid() == parent:
        print(json.dumps(_verdict(Path(path))))  # noqa: T201 - the interface of this process


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
