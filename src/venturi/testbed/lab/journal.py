"""What a lab tells while it is up: records in the form of an agent's, from the wire, from probes and about services."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["NETWORK", "Journal", "Listener"]

NETWORK = "network"
"""The name under which the wire's records stand where others have a host."""

Listener = Callable[[str, Mapping[str, Any]], None]
"""Takes the name of a host, or :data:`NETWORK`, and a record; called from several threads, one at a time."""

_KEPT = 1000


class Journal:
    """Passes records on to who listens; before that, keeps those that are no samples.

    Parameters
    ----------
    epoch_unix_ns
        What times count from.
    """

    def __init__(self, epoch_unix_ns: int) -> None:
        self.epoch_unix_ns = epoch_unix_ns
        self._kept: deque[tuple[str, Mapping[str, Any]]] = deque(maxlen=_KEPT)
        self._listener: Listener | None = None
        self._lock = threading.RLock()

    def listen(self, listener: Listener) -> None:
        """Hand over what was kept, and from now on everything."""
        with self._lock:
            self._listener = listener
            while self._kept:
                listener(*self._kept.popleft())

    @property
    def heard(self) -> bool:
        """Whether somebody listens."""
        return self._listener is not None

    def record(self, host: str, record: Mapping[str, Any]) -> None:
        """Take a record."""
        with self._lock:
            if self._listener is not None:
                self._listener(host, record)
            elif record["record"] in ("event", "finding"):
                self._kept.append((host, record))

    def event(self, host: str, kind: str, detail: Mapping[str, Any]) -> None:
        """Tell that something has happened now."""
        self.record(host, {"record": "event", "time_s": self.now_s(), "kind": kind, "detail": dict(detail)})

    def finding(self, host: str, code: str, subject: str, evidence: str, advice: str) -> None:
        """Tell what makes measurements doubtful."""
        self.record(
            host, {"record": "finding", "code": code, "subject": subject, "evidence": evidence, "advice": advice}
        )

    def now_s(self) -> float:
        """Return the time since the epoch."""
        return (time.time_ns() - self.epoch_unix_ns) / 1e9

    def kept(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return what nobody has taken yet, oldest first."""
        with self._lock:
            return list(self._kept)
