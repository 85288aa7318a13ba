"""Reader of a run directory that grows: feeds :class:`LiveState` with new lines, and watches the controller."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from venturi.errors import RunError
from venturi.live.snapshot import Snapshot, ViewState
from venturi.live.state import LiveState, PlanRow
from venturi.live.tail import Tail
from venturi.plan import estimate, read_header, trials
from venturi.run import directory
from venturi.run.lock import exclusive_if_free

__all__ = ["RunFollower"]

START_S = 10.0
"""Limit of the time between the creation of a run and its lock. Until then, a free lock is normal."""


class RunFollower:
    """Reader of one run.

    Parameters
    ----------
    path
        The run directory.
    rows
        Trials of the plan, if they are known. Default: they are read from the plan.
    watches
        Whether the controller is another process. Its end is then part of the state.

    Raises
    ------
    RunError, PlanError
        If the run or its plan cannot be read.

    Attributes
    ----------
    state
        The state that it feeds.
    """

    def __init__(self, path: Path, rows: Mapping[str, PlanRow] | None = None, *, watches: bool = True) -> None:
        info = directory.read_info(path)
        self.path = path
        self._epoch_unix_ns = info.created_unix_ns
        self._watches = watches
        self._journal, self._samples, self._events = (
            Tail(path / name) for name in (directory.JOURNAL, directory.SAMPLES, directory.EVENTS)
        )
        plan = path / directory.PLAN
        header = read_header(plan, upgrade=True)
        known = rows if rows is not None else {row.trial: row for row in trials(plan)}
        self.state = LiveState(
            str(path), info.name, info.backend, directory.read_plan_header(path), known, info.created_unix_ns,
            estimate(header).time_s,
        )  # fmt: skip

    def now_s(self) -> float:
        """Return the time since the epoch of the run by the clock of this machine, in seconds."""
        return (time.time_ns() - self._epoch_unix_ns) / 1e9

    def update(self) -> Snapshot:
        """Read the new lines of the run, and return a snapshot."""
        now_s = self.now_s()
        # The state of the controller comes first, so that all its records are read below.
        over = self._over() if self._watches else None
        while True:
            parts = [(tail, tail.read()) for tail in (self._samples, self._journal, self._events)]
            if any(tail.restarted for tail, _ in parts):
                self._restart()
                continue
            for tail, lines in parts:
                for line in lines:
                    if tail is self._samples:
                        self.state.add_sample(line, now_s)
                    elif tail is self._events:
                        self.state.add_event(line)
                    else:
                        self.state.add_journal(line, now_s)
            if not any(lines and tail.has_more for tail, lines in parts):
                break
        if over is not None:
            self.state.end(*over)
        return self.state.snapshot(now_s)

    def _restart(self) -> None:
        """Read all files again, because one was replaced (a simulation that starts again) or truncated."""
        self.state.restart()
        self._journal, self._samples, self._events = (
            Tail(self.path / name) for name in (directory.JOURNAL, directory.SAMPLES, directory.EVENTS)
        )

    def _over(self) -> tuple[ViewState, str] | None:
        """Return the state and the reason of a run that is no longer in progress; None during the run."""
        pid, host = self._holder()
        self.state.set_controller(f"PID {pid} on {host}" if pid else "")
        # A controller sets the state before it releases the lock, so the lock is read first.
        with exclusive_if_free(self.path) as is_free:
            pass
        is_dead = pid != 0 and host == socket.gethostname() and not _exists(pid)
        try:
            found = directory.read_info(self.path).state
        except RunError as error:
            return "failed", str(error)
        if found != "running":
            return (found, "") if is_free else None  # it writes the tables
        if not is_free and not is_dead:
            return None
        if pid == 0 and self.now_s() < START_S:
            return None  # between the creation of the directory and its lock
        who = f"the controller (PID {pid} on {host})" if pid else "the controller"
        return "lost", f"{who} has ended without a record: it was killed, or its machine failed"

    def _holder(self) -> tuple[int, str]:
        """Return PID and host of the process that holds or held the lock; 0 if unknown."""
        try:
            fields = (self.path / directory.LOCK).read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError):
            return 0, ""
        return (int(fields[0]), fields[1]) if len(fields) == 2 and fields[0].isdigit() else (0, "")


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
