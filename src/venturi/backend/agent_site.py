"""Start of the agent of one host: command line, scratch directory, and the visibility of its files on other hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from venturi.backend.agent import Agent
from venturi.backend.plan_usage import HostUsage
from venturi.backend.record_source import RecordSource
from venturi.backend.remote_shell import RemoteHostShell
from venturi.run import Finding

__all__ = ["AgentSite", "FixedHosts", "HostGroup"]


@dataclass
class AgentSite:
    """Start of the agent of one host.

    Attributes
    ----------
    name
        Host of the plan.
    scratch
        Directory of relative storages on the host.
    command
        Command line on this machine that starts the agent.
    local_scratch
        The scratch directory as a path of this machine. None if it is on another machine.
    cgroups
        Control groups by controller, whose counters are sampled. None without control groups.
    work_groups
        Control groups that movers and CPU phases join, and the agent does not.
    pass_fds
        Descriptors that the agent inherits.
    hosts
        Other hosts for the agent's command ``start``: ``scratch``, ``seen`` and ``storages`` by name.
    silence_s
        The agent ends after this time without a line from the controller, in seconds. None: never.
    shell
        Shell of the host. None in a lab.
    early_line
        Line that starts the agent on an early connection (:meth:`HostGroup.early_commands`). None if that is not possible.
    """

    name: str
    scratch: str
    command: Sequence[str]
    local_scratch: str | None = None
    cgroups: Mapping[str, str] | None = None
    work_groups: Sequence[str] = ()
    pass_fds: tuple[int, ...] = ()
    hosts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    silence_s: float | None = None
    shell: RemoteHostShell | None = None
    early_line: bytes | None = None

    async def start_agent(self) -> Agent:
        """Start an agent and return it after its hello.

        Raises
        ------
        BackendError
            If it cannot be started.
        """
        return await Agent.start(self.name, self.command, pass_fds=self.pass_fds)


class HostGroup(Protocol):
    """Interface of the hosts of a run for the run controller. All methods can block and are called from threads.

    Attributes
    ----------
    source
        Additional records from the lab, or from services on hosts.
    usage
        Host → storages and services that its actors use. Empty if no host depends on the shell of another host.
    server_failures
        Number of consecutive failed transfers that ends the trials at a server. None: the trials never end.
    """

    @property
    def source(self) -> RecordSource | None: ...  # noqa: D102 - described above
    @property
    def usage(self) -> Mapping[str, HostUsage]: ...  # noqa: D102
    @property
    def server_failures(self) -> int | None: ...  # noqa: D102

    def early_commands(self) -> Mapping[str, Sequence[str]]:
        """Return host → command line that connects to it and waits for a line with the command of the agent.

        The login of the agent's connection then takes place during :meth:`bring_up`.
        """
        ...

    def bring_up(self, on_step: Callable[[str], None]) -> Sequence[AgentSite]:
        """Connect to all hosts, prepare their services, and return the sites of the agents.

        Raises
        ------
        BackendError
            If a host or service is not available.
        """
        ...

    def start_services(self, on_step: Callable[[str], None]) -> None:
        """Start the services and return when they are ready. Agents can start at the same time.

        Raises
        ------
        BackendError
            If a service does not start.
        """
        ...

    def check(self) -> None:
        """Check the requirements of the agents' command ``start``: other runs, and files that hosts share.

        Raises
        ------
        BackendError
            If another run uses a storage, or a shared storage is not shared.
        """
        ...

    def interrupt(self) -> None:
        """Make :meth:`bring_up` or :meth:`recover` end soon with an error."""
        ...

    def findings(self) -> Sequence[Finding]:
        """Return the findings of :meth:`bring_up`."""
        ...

    def services(self) -> Mapping[str, Mapping[str, Any]]:
        """Return address and ports of each started service, for the command ``start`` of agents."""
        ...

    def ipv6_services(self, client: str) -> frozenset[str]:
        """Return the services that a host connects to over IPv6."""
        ...

    def on_lost(self, callback: Callable[[str, str], None]) -> None:
        """Call a function with host and reason, from any thread, when the shell of a host is lost."""
        ...

    def recover(self) -> None:
        """Connect again to all hosts whose shell was lost, and start all services again. The sites change in place.

        Raises
        ------
        BackendError
            If that fails.
        """
        ...

    def close(self) -> None:
        """End services and shells."""
        ...


class FixedHosts:
    """Hosts of a lab, which already run. Its servers belong to the run, and overload can be its subject."""

    server_failures: int | None = None

    def __init__(self, sites: Sequence[AgentSite], source: RecordSource | None = None) -> None:
        self.source = source
        self.usage: Mapping[str, HostUsage] = {}
        self._sites = list(sites)

    def early_commands(self) -> Mapping[str, Sequence[str]]:
        """Return an empty mapping, because agents start immediately."""
        return {}

    def bring_up(self, on_step: Callable[[str], None]) -> Sequence[AgentSite]:
        """Return the sites. Each host sees the files of all other hosts."""
        for site in self._sites:
            site.hosts = {
                other.name: {"scratch": other.scratch, "seen": True} for other in self._sites if other is not site
            }
        return self._sites

    def start_services(self, on_step: Callable[[str], None]) -> None:
        """Do nothing: the lab has started its services."""

    def check(self) -> None:
        """Do nothing: a lab belongs to one run."""

    def interrupt(self) -> None:
        """Do nothing: :meth:`bring_up` does not wait."""

    def findings(self) -> Sequence[Finding]:
        """Return nothing."""
        return ()

    def services(self) -> Mapping[str, Mapping[str, Any]]:
        """Return nothing: the plan has addresses and ports."""
        return {}

    def ipv6_services(self, client: str) -> frozenset[str]:
        """Return nothing: a lab has IPv4 addresses."""
        return frozenset()

    def on_lost(self, callback: Callable[[str, str], None]) -> None:
        """Do nothing: there are no shells."""

    def recover(self) -> None:
        """Do nothing: there are no shells."""

    def close(self) -> None:
        """Do nothing: the lab ends itself."""
