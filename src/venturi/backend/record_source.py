"""Interface for sources of run records other than agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

__all__ = ["RecordSource"]


class RecordSource(Protocol):
    """Component that is active during a run and produces records in the form of agents' records."""

    def properties(self) -> Mapping[str, Mapping[str, Any]]:
        """Return host → properties for the table `environment`.

        Properties of the agent with the same name are overwritten.
        """
        ...

    def listen(self, listener: Callable[[str, Mapping[str, Any]], None]) -> None:
        """Pass every record and its host name to ``listener``: buffered ones first, then new ones.

        Calls can come from any thread. A record ``fatal`` ends the session.
        """
        ...

    def start_clock(self, elapsed_s: float = 0.0) -> None:
        """Start the clock at the plan time that earlier sessions have executed, after the agents have started theirs."""
        ...

    def end(self) -> None:
        """End the source. All records have been passed on when this returns."""
        ...
