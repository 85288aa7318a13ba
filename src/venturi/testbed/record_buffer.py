"""Buffer for testbed records in the form of agent records: from the network emulator, probes and services."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["NETWORK", "Listener", "RecordBuffer"]

NETWORK = "network"
"""Name of the network emulator in records, used like the name of a host."""

Listener = Callable[[str, Mapping[str, Any]], None]
"""Receives the name of a host, or :data:`NETWORK`, and a record. Several threads call it, one at a time."""

MAX_BUFFERED = 1000


class RecordBuffer:
    """Passes records to a listener. Without one, it keeps all records except samples.

    Parameters
    ----------
    epoch_unix_ns
        Start of the time axis.
    """

    def __init__(self, epoch_unix_ns: int) -> None:
        self.epoch_unix_ns = epoch_unix_ns
        self._buffered: deque[tuple[str, Mapping[str, Any]]] = deque(maxlen=MAX_BUFFERED)
        self._listener: Listener | None = None
        self._lock = threading.RLock()

    def listen(self, listener: Listener) -> None:
        """Pass the buffered records, and all later ones, to a listener."""
        with self._lock:
            self._listener = listener
            while self._buffered:
                listener(*self._buffered.popleft())

    @property
    def has_listener(self) -> bool:
        """Whether a listener is set."""
        return self._listener is not None

    def record(self, host: str, record: Mapping[str, Any]) -> None:
        """Add a record."""
        with self._lock:
            if self._listener is not None:
                self._listener(host, record)
            elif record["record"] in ("event", "finding"):
                self._buffered.append((host, record))

    def event(self, host: str, kind: str, detail: Mapping[str, Any]) -> None:
        """Add an event with the current time."""
        self.record(host, {"record": "event", "time_s": self.now_s(), "kind": kind, "detail": dict(detail)})

    def finding(self, host: str, code: str, subject: str, evidence: str, advice: str) -> None:
        """Add a finding."""
        self.record(
            host, {"record": "finding", "code": code, "subject": subject, "evidence": evidence, "advice": advice}
        )

    def now_s(self) -> float:
        """Return the time since the epoch."""
        return (time.time_ns() - self.epoch_unix_ns) / 1e9

    def buffered(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the buffered records, oldest first."""
        with self._lock:
            return list(self._buffered)
