"""Who has records for a run beside the agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

__all__ = ["Source"]


class Source(Protocol):
    """Something that is there while a plan is carried out, and tells of itself in records as agents do."""

    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        """Return host → facts for the table `environment`; they go before the agent's of the same name."""
        ...

    def listen(self, listener: Callable[[str, Mapping[str, Any]], None]) -> None:
        """Hand over every record from now on, and what was kept so far, with the name of a host; from any thread.

        A record ``fatal`` ends the session.
        """
        ...

    def go(self, elapsed_s: float = 0.0) -> None:
        """Start its clock, at what earlier sessions have carried out of the plan's time: the agents have started theirs."""
        ...

    def end(self) -> None:
        """Come to an end; when it returns, the last record has been handed over."""
        ...
