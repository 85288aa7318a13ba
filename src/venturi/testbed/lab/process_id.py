"""Identity of a process: PID and start time, because PIDs are reused."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["ProcessId", "boot_id", "children", "wait_for_exit"]

_POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class ProcessId:
    """Process of this boot: PID and start time, in clock ticks since boot (proc(5), ``/proc/PID/stat``)."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """Return the identity of a process; ``None`` if no process has this PID or it is a zombie."""
        try:
            # The name, in brackets, can contain blanks and brackets; the fields follow the last bracket.
            state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if state in "ZX" else cls(pid, int(fields[18]))

    @property
    def alive(self) -> bool:
        """Whether this process still exists."""
        return ProcessId.of(self.pid) == self

    def as_json(self) -> dict[str, int]:
        """Return the JSON of the registry."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Any) -> ProcessId:  # noqa: ANN401 - JSON
        """Return the identity from the JSON of the registry."""
        return cls(int(content["pid"]), int(content["start_ticks"]))


def boot_id() -> str:
    """Return the identifier of the current boot of this machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def children(pid: int) -> list[int]:
    """Return the PIDs of the children of a process."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def wait_for_exit(process: ProcessId, timeout_s: float) -> bool:
    """Wait for a process to exit; return whether it exited in time."""
    deadline_s = time.monotonic() + timeout_s
    while process.alive:
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_POLL_S)
    return True
