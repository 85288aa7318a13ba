"""State of one host during a session of a run: its current agent, clock and counters. Read :class:`HostState` first."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from venturi.backend.agent import Agent
from venturi.backend.agent_site import AgentSite
from venturi.backend.clock import ClockOffset
from venturi.errors import BackendError

__all__ = ["EarlyAgent", "HostState"]


class EarlyAgent:
    """An agent whose connection is made before its command is known.

    Parameters
    ----------
    host
        Host of the plan.
    command
        Command line that connects to the host and waits for a line with the command of the agent.
    line
        Future of that line.
    """

    def __init__(self, host: str, command: Sequence[str], line: asyncio.Future[bytes]) -> None:
        self._line = line
        self._task = asyncio.create_task(Agent.start(host, command, first_line=line))

    async def start(self, line: bytes | None) -> Agent | None:
        """Return the agent, or None if this connection cannot be used."""
        if line is None:
            await self.cancel()
            return None
        self._line.set_result(line)
        try:
            return await self._task
        except BackendError:
            return None  # a new connection has the same error, or none

    async def cancel(self) -> None:
        """End the connection."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class HostState:
    """One host of a session.

    Attributes
    ----------
    site
        Start of its agents.
    clock, first_clock
        Last and first reading of its clock. None for this machine.
    agent
        Its current agent.
    early
        Agent with an early connection that is not used yet.
    ready
        Record ``ready`` of the agent.
    calls
        Calls of its actors.
    counters, counted
        Shared counters: their highest values, and the values that the current agent has reached.
    restarts, restarts_in_a_row
        Restarts of its agent, in total and since the last finished trial.
    trial
        Current trial. None between trials.
    started, idle, done
        Whether the current agent runs the plan, has no steps left, and has sent its last record.
    shells_ready
        Not set while a shell that the trials of this host need is lost.
    discarding
        Whether the agent depends on a lost shell: its records do not count, and its exit is not a failure.
    """

    def __init__(self, site: AgentSite) -> None:
        self.site = site
        self.clock: ClockOffset | None = None
        self.first_clock: ClockOffset | None = None
        self.agent: Agent | None = None
        self.early: EarlyAgent | None = None
        self.ready: Mapping[str, Any] = {}
        self.calls: set[str] = set()
        self.counters: dict[str, int] = {}
        self.counted: dict[str, int] = {}
        self.restarts = 0
        self.restarts_in_a_row = 0
        self.trial: str | None = None
        self.started = False
        self.idle = False
        self.done = False
        self.shells_ready = asyncio.Event()
        self.shells_ready.set()
        self.discarding = False

    @property
    def name(self) -> str:
        """Host of the plan."""
        return self.site.name

    def set_clock(self, clock: ClockOffset | None) -> None:
        """Store a reading of its clock."""
        self.clock = clock
        self.first_clock = self.first_clock or clock

    def signal(self, counter: str, add: int) -> None:
        """Count a signal. A restarted agent repeats its signals, and each counts once."""
        self.counted[counter] = self.counted.get(counter, 0) + add
        self.counters[counter] = max(self.counters.get(counter, 0), self.counted[counter])
