"""The testbed of a scenario as parts of a plan's header, and which backends such a plan is for.

Hosts that exist give a header without ``network``; a testbed that is made (links, services, limits of hosts, file systems) gives one
with it, empty where hosts have no links. A plan without a network can be carried out in the lab too: its hosts are made without links.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from venturi.plan.header import Header, Host, Place, Service, Storage
from venturi.plan.network import Network
from venturi.testbed.doors import resolve_services
from venturi.testbed.network import resolve_network, scaled_bytes
from venturi.testbed.paths import Paths
from venturi.units import BITS_PER_BYTE
from venturi.wording import Problem, one_of, path_text

if TYPE_CHECKING:
    from venturi.scenario.testbed import Storage as WrittenStorage
    from venturi.scenario.testbed import Testbed

__all__ = ["SMALLEST_DISK_BYTES", "ResolvedTestbed", "resolve_testbed", "why_not_in_lab", "why_not_on_hosts"]

SMALLEST_DISK_BYTES = 32 * 2**20
"""However small the scale: below this a file system is mostly its own tables."""


@dataclass(frozen=True, slots=True)
class ResolvedTestbed:
    """What a testbed is in a header. ``network`` is ``None`` for hosts that exist."""

    hosts: Mapping[str, Host]
    places: Mapping[str, Place]
    services: Mapping[str, Service]
    network: Network | None
    paths: Paths


def resolve_testbed(testbed: Testbed, scale: float, problems: list[Problem]) -> ResolvedTestbed | None:
    """Return the testbed of a scenario as parts of a header, or ``None`` with what is wrong appended to ``problems``.

    Parameters
    ----------
    scale
        Multiplies rates and queues of links, sizes and rates of storage; times, loss and counts stay.
    """
    if _latest and _latest[0][0]() is testbed and _latest[0][1] == scale:
        return _latest[0][2]
    resolved = _resolve(testbed, scale, problems)
    if resolved is not None:
        _latest[:] = [(weakref.ref(testbed), scale, resolved)]
    return resolved


_latest: list[tuple[weakref.ref[Testbed], float, ResolvedTestbed]] = []
"""What was resolved last, which is asked for again while a scenario is loaded, checked and expanded: 200 sites take a second."""


def _resolve(testbed: Testbed, scale: float, problems: list[Problem]) -> ResolvedTestbed | None:
    before = len(problems)
    problems += [("testbed.without", one_of("the hosts", testbed.host, name)) for name in testbed.without]
    places = {name: _place(name, storage, testbed, scale, problems) for name, storage in testbed.storage.items()}
    resolved = resolve_network(testbed, scale, problems)
    # Services are checked even where the network is not right; what is said about interfaces would then mislead.
    unwired = testbed.model_copy(
        update={"service": {n: s.model_copy(update={"interface": None}) for n, s in testbed.service.items()}}
    )
    interfaces = resolved.network.interfaces if resolved else {}
    services = resolve_services(testbed if resolved else unwired, interfaces, problems, scale)
    if len(problems) > before or resolved is None:
        return None
    made = testbed.is_lab
    hosts = {
        name: Host(host.ssh, host.memory, resolved.hosts[name] if made else None)
        for name, host in testbed.host.items()
    }
    return ResolvedTestbed(hosts, places, services, resolved.network if made else None, resolved.paths)


def _place(name: str, storage: WrittenStorage, testbed: Testbed, scale: float, problems: list[Problem]) -> Place:
    where = path_text(("testbed", "storage", name))
    if storage.host not in testbed.host:
        problems.append((f"{where}.host", one_of("the hosts", testbed.host, storage.host)))
    for index, host in enumerate(storage.shared):
        others = [other for other in testbed.host if other != storage.host]
        if host not in others:
            problems.append((f"{where}.shared[{index}]", one_of("the other hosts", others, host)))
        elif any(testbed.host[machine].ssh for machine in (host, storage.host) if machine in testbed.host):
            problems.append((f"{where}.shared[{index}]", f"expected hosts of the lab, found {host} reached by ssh"))
    for key in ("size", "read_rate", "write_rate"):
        needed = ("tmpfs", "disk") if key == "size" else ("disk",)
        if getattr(storage, key) is not None and storage.kind not in needed:
            kinds = " or ".join(f'"{kind}"' for kind in needed)
            found = f'"{storage.kind}"' if storage.kind else "nothing"
            problems.append((f"{where}.kind", f"expected {kinds} (its {key} is given), found {found}"))
    if storage.kind in ("tmpfs", "disk"):
        if storage.size is None:
            problems.append((f"{where}.size", f'expected a size such as "4 GB" (of a {storage.kind}), found nothing'))
        if storage.path.startswith("/"):
            problems.append(
                (
                    f"{where}.path",
                    f'expected a relative path (a {storage.kind} is mounted there), found "{storage.path}"',
                )
            )
    if storage.kind is None:
        return Place(storage.host, storage.path)
    size = None if storage.size is None else max(SMALLEST_DISK_BYTES, scaled_bytes(storage.size, scale))
    rates = [rate and rate / BITS_PER_BYTE * scale for rate in (storage.read_rate, storage.write_rate)]
    return Place(storage.host, storage.path, Storage(storage.kind, size, *rates))


def why_not_on_hosts(header: Header) -> str | None:
    """Return why a plan cannot be carried out on hosts that exist, ``None`` if it can."""
    if header.network is None:
        return None
    made = [
        *(["links"] if header.network.links else []),
        *(["services"] if header.services else []),
        *(["file systems of their own"] if any(place.storage for place in header.places.values()) else []),
    ]
    what = " and ".join(made) or "limits of hosts"
    return f"expected a plan for hosts that exist, found one with {what}, which only the lab makes; use --on lab"


def why_not_in_lab(header: Header) -> str | None:
    """Return why a plan cannot be carried out in the lab, ``None`` if it can: hosts without links are made too."""
    reached = [name for name, host in header.hosts.items() if host.ssh is not None]
    if not reached:
        return None
    return f"expected hosts that the lab makes, found {reached[0]}, which is reached by ssh; use --on hosts, or leave ssh out"
