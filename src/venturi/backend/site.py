"""Where an agent runs: on this machine or behind SSH. What differs between the two, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from venturi.backend.agent import Agent
from venturi.backend.clock import ClockOffset
from venturi.backend.ssh import RemoteHost

__all__ = ["LocalSite", "RemoteSite", "Site"]


class Site(Protocol):
    """Where the agent of one host runs.

    Attributes
    ----------
    name
        The host in the plan.
    scratch
        The directory there that relative places are below; right once :meth:`prepare` has returned.
    home
        The same directory as it is seen from here; ``None`` where it is not on this machine.
    cgroups
        Control groups whose counters tell what the host has used, by controller; ``None``: there are none.
    """

    name: str
    scratch: str
    home: str | None
    cgroups: Mapping[str, str] | None

    async def prepare(self) -> ClockOffset | None:
        """Make the host ready for agents; return how far its clock is off, None for this machine's own.

        Raises
        ------
        BackendError
            If it cannot be reached or used.
        """
        ...

    async def start_agent(self) -> Agent:
        """Start an agent and return it after its hello.

        Raises
        ------
        BackendError
            If it cannot be started.
        """
        ...


class LocalSite:
    """This machine, or a part of it: a network namespace, a host of the lab."""

    def __init__(
        self,
        name: str,
        scratch: str,
        command: Sequence[str],
        lock_descriptor: int,
        *,
        home: str | None = None,
        cgroups: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.scratch = scratch
        self.home: str | None = home or scratch
        self.cgroups = cgroups
        self._command = command
        self._lock_descriptor = lock_descriptor

    async def prepare(self) -> ClockOffset | None:
        """Make the scratch directory."""
        Path(self.scratch).mkdir(parents=True, exist_ok=True)
        return None

    async def start_agent(self) -> Agent:
        """Start the engine as a child, which shares the lock of the run."""
        return await Agent.start(self.name, self._command, pass_fds=[self._lock_descriptor])


class RemoteSite:
    """A host behind SSH."""

    def __init__(self, host: RemoteHost, scratch: str) -> None:
        self.name = host.name
        self.scratch = scratch
        self.home: str | None = None
        self.cgroups: Mapping[str, str] | None = None
        self._host = host

    async def prepare(self) -> ClockOffset | None:
        """Copy the engine if need be, find the home directory, and read the clock."""
        home = await self._host.deploy()
        self.scratch = self.scratch.replace("$HOME", home)
        if not self.scratch.startswith("/"):
            self.scratch = f"{home}/{self.scratch}"
        return await self._host.clock_offset()

    async def start_agent(self) -> Agent:
        """Make the scratch directory and start the engine, through ssh."""
        return await Agent.start(self.name, self._host.agent_command(self.scratch))
