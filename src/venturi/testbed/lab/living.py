"""Whether a process is still the one that it was: a PID alone may have been given to another."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["ProcessId", "boot_id", "children", "wait_until_gone"]

_POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process of this boot: its PID and its start time, in clock ticks since boot (proc(5), ``/proc/PID/stat``)."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """Return the identity of a process, None if there is none with this PID, or it is a zombie."""
        try:
            # The name, in brackets, may hold blanks and brackets: what follows the last one is safe.
            state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if state in "ZX" else cls(pid, int(fields[18]))

    @property
    def alive(self) -> bool:
        """Whether this very process is there."""
        return ProcessId.of(self.pid) == self

    def as_json(self) -> dict[str, int]:
        """Return it as it stands in the registry."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Any) -> ProcessId:  # noqa: ANN401 - JSON
        """Read it back."""
        return cls(int(content["pid"]), int(content["start_ticks"]))


def boot_id() -> str:
    """Return what tells this boot of the machine from all others."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def children(pid: int) -> list[int]:
    """Return the PIDs of the children of a process."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def wait_until_gone(process: ProcessId, timeout_s: float) -> bool:
    """Wait for a process to end; return whether it has."""
    deadline_s = time.monotonic() + timeout_s
    while process.alive:
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_POLL_S)
    return True
