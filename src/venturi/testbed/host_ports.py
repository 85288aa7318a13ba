"""Ports and addresses of real hosts for services: free ports that other hosts can reach, and the addresses of a host.

Start with :func:`find_ports`.
"""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from venturi.errors import BackendError
from venturi.plan.header import PlanService
from venturi.testbed.host_shell import HostShell
from venturi.testbed.service_manager import service_kind
from venturi.testbed.services.ssh import HostSsh
from venturi.testbed.services.sshd import SSH_PORT

__all__ = ["SSH_PORT", "HostPorts", "find_ports", "reported_addresses"]

_HOSTS_AT_ONCE = 16
_ADDRESSES_S = 10.0
# Loopback and link-local addresses are filtered below.
_ADDRESSES = 'hostname -I 2>/dev/null || ip -o addr show 2>/dev/null | awk \'{ sub("/.*", "", $4); print $4 }\''
_FIRST_PORT, _LAST_PORT = 20_000, 32_000
"""Ports for a host without ``open_ports``: above the ports of common servers, below the ephemeral ports."""


@dataclass(frozen=True, slots=True)
class HostPorts:
    """Ports of a real host: its range of open ports (``None``: all), and the port of its SSH server."""

    shell: HostShell
    open_ports: tuple[int, int] | None = None
    ssh_port: int = SSH_PORT


def find_ports(services: Mapping[str, PlanService], hosts: Mapping[str, HostPorts]) -> dict[str, tuple[int, ...]]:
    """Return the ports of services on real hosts.

    One request per host finds all its free ports, because two requests could return the same port. Each service gets at
    least as many ports as in the plan; additional ports come last. Kind ``ssh`` uses the port of the existing server.

    Raises
    ------
    BackendError
        If a host has too few free ports.
    """
    found: dict[str, tuple[int, ...]] = {}
    needed: dict[str, dict[str, int]] = {}
    for name, service in services.items():
        host = hosts.get(service.host) if service.host is not None else None
        if service.host is None or host is None:
            continue
        if service.kind == HostSsh.kind:
            found[name] = (host.ssh_port,) * max(1, len(service.ports))
        else:
            required = getattr(service_kind(name, service.kind), "required_ports", 0)
            needed.setdefault(service.host, {})[name] = max(required, len(service.ports))
    with ThreadPoolExecutor(_HOSTS_AT_ONCE, "ports") as pool:
        free = pool.map(lambda host: iter(_free_ports(host, hosts[host], sum(needed[host].values()))), needed)
        for counts, ports in zip(needed.values(), free, strict=True):
            found |= {name: tuple(next(ports) for _ in range(count)) for name, count in counts.items()}
    return found


def _free_ports(host_name: str, host: HostPorts, count: int) -> list[int]:
    if not count:
        return []
    try:
        if host.open_ports is not None:
            return host.shell.free_ports(count, *host.open_ports)
        # Start at a random port, because another run can search this host at the same time.
        first = random.SystemRandom().randrange(_FIRST_PORT, _LAST_PORT - 10 * count)
        return host.shell.free_ports(count, first, _LAST_PORT)
    except OSError as error:
        option = f"testbed.host.{host_name}.open_ports"
        where = f" from {host.open_ports[0]} to {host.open_ports[1]}" if host.open_ports is not None else ""
        raise BackendError(
            f"{option}: expected {count} free ports{where} for the services of {host_name}, found fewer ({error});"
            f" stop other servers there, or change {option}"
        ) from error


def reported_addresses(shell: HostShell) -> list[str]:
    """Return the IP addresses that a host reports, without loopback and link-local addresses."""
    words = shell.run(["sh", "-c", _ADDRESSES], timeout_s=_ADDRESSES_S).stdout.split()
    addresses = [address for word in words if (address := _numeric(word)) is not None]
    return [str(address) for address in addresses if not address.is_link_local and not address.is_loopback]


def _numeric(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
