r"""Demands of transfers on the resources of a testbed, and the rates that fill the resources.

The demand :math:`D_k` of a transfer at resource k is its time with all of the resource. :math:`1 / D_k`
transfers per second fill the resource (Denning and Buzen, Computing Surveys 10 (1978) 225: utilisation law).

===============  =======================================================  ====================================
resource         demand of a transfer                                     source of the capacity
===============  =======================================================  ====================================
link, direction  bytes / (rate / 8 · (MTU − 52) / (MTU + overhead))       ``network.links``
storage          bytes / rate of many users                               plan, costs, or an assumption
sessions         time of the transfer alone / sessions                    costs of the service
processes        bytes / (processes · rate of one)                        options of the service
CPU              CPU time / cores                                         limits and costs of the host
loopback         bytes / rate                                             an assumption
===============  =======================================================  ====================================

The simulator has the same formulas (``docs/concepts/sim.md``). File systems that are mounted from other hosts, and
the fetches of a proxy, are not included; the simulation includes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from venturi.backend.sim import engine_assumptions
from venturi.cost.engine_inputs import (
    ASSUMED_LOOPBACK_BYTES_PER_S,
    ASSUMED_STORAGE_READ_BYTES_PER_S,
    ASSUMED_STORAGE_WRITE_BYTES_PER_S,
)
from venturi.errors import PlanError
from venturi.plan import Header
from venturi.plan.network import link_bytes_per_byte
from venturi.prediction.offered import OfferedLoad, TransferKind
from venturi.testbed.paths import endpoint_host, path_links
from venturi.units import BITS_PER_BYTE

__all__ = ["ResourceKind", "ResourceLimit", "resource_limits"]

ResourceKind: TypeAlias = Literal["link", "storage", "sessions", "processes", "cpu", "loopback"]

FILE = "file"


@dataclass(frozen=True, slots=True)
class ResourceLimit:
    """A resource, and the rate of transfers that fills it.

    Attributes
    ----------
    kind, name
        The resource: ``link`` and ``link wan (a>b)``.
    key
        Key of its capacity for ``--change``.
    capacity
        Bit/s of links; bytes/s of storages, processes and loopback; sessions; cores.
    demand_s
        Mean demand of a transfer: its time with all of the resource.
    assumed
        Whether the capacity is an assumption of the simulator.
    fraction
        Fraction of the transfers that use it.
    bottleneck
        Start of its names among the bottlenecks of the simulator (``docs/reference/sim.md``).
    """

    kind: ResourceKind
    name: str
    key: str
    capacity: float
    demand_s: float
    assumed: bool = False
    fraction: float = 1.0
    bottleneck: str = ""

    @property
    def per_s(self) -> float:
        """Largest rate of transfers, 1/s."""
        return 1.0 / self.demand_s

    def needed_capacity(self, per_s: float, use: float) -> float:
        """Return the capacity for this rate of transfers at a utilisation of ``use``."""
        needed = self.capacity * per_s * self.demand_s / use
        return float(math.ceil(needed - 1e-9)) if self.kind == "sessions" else needed


@dataclass(frozen=True, slots=True)
class _Use:
    """Use of one resource by one transfer: its demand in the unit of the capacity times seconds."""

    kind: ResourceKind
    name: str
    key: str
    capacity: float
    amount: float
    bottleneck: str
    assumed: bool = False


def resource_limits(
    load: OfferedLoad, alone_s: Mapping[TransferKind, float], link_names: Mapping[str, str]
) -> tuple[ResourceLimit, ...]:
    """Return the resources of a load, sorted by their largest rates of transfers.

    Parameters
    ----------
    load
        Testbed and mix of transfers.
    alone_s
        Time of each kind of transfer without other load, in s.
    link_names
        Directed link of the plan → link of the scenario.

    Raises
    ------
    PlanError
        If a route has no resource with a known rate.
    """
    demands: dict[tuple[ResourceKind, str], list[tuple[_Use, float]]] = {}
    finder = _Finder(load.header, link_names)
    for kind in load.kinds:
        uses = [use for use in finder.uses(kind, alone_s[kind]) if use.amount > 0]
        if all(use.assumed for use in uses):
            _reject(load.header, kind)
        for use in uses:
            demands.setdefault((use.kind, use.name), []).append((use, kind.fraction))
    found = [_limit(parts) for parts in demands.values()]
    return tuple(sorted(found, key=lambda limit: limit.per_s))


def _limit(parts: list[tuple[_Use, float]]) -> ResourceLimit:
    use = parts[0][0]
    return ResourceLimit(
        use.kind, use.name, use.key, use.capacity * (BITS_PER_BYTE if use.kind == "link" else 1),
        math.fsum(fraction * one.amount for one, fraction in parts) / use.capacity, use.assumed,
        min(1.0, math.fsum(fraction for _, fraction in parts)), use.bottleneck,
    )  # fmt: skip


def _reject(header: Header, kind: TransferKind) -> None:
    own = (kind.source_storage, kind.destination_storage)
    storage = next((name for name in own if name in header.storages), own[0])
    raise PlanError(
        f"testbed: expected a rate on the route from {storage} to {kind.destination_storage}, found none; add a testbed.link"
        f" with a rate, set testbed.cost.storage.{storage}.read_rate, or use --costs with a file of `venturi calibrate`"
    )


class _Finder:
    """Finds the resources of transfers, as the simulator does."""

    def __init__(self, header: Header, link_names: Mapping[str, str]) -> None:
        self._header = header
        self._link_names = link_names
        self._costs: Mapping[str, Any] = engine_assumptions(header)["costs"]
        mtus = [one.mtu for one in header.network.interfaces.values()] if header.network else []
        self._mtu = min(mtus, default=1500)

    def uses(self, kind: TransferKind, alone_s: float) -> Iterator[_Use]:
        """Yield the resources that a transfer uses."""
        yield from self._storages(kind)
        yield from self._network(kind)
        yield from self._services(kind, alone_s)
        yield from self._cpus(kind)

    def _storages(self, kind: TransferKind) -> Iterator[_Use]:
        for name, direction, otherwise in (
            (kind.source_storage, "read", ASSUMED_STORAGE_READ_BYTES_PER_S),
            (kind.destination_storage, "write", ASSUMED_STORAGE_WRITE_BYTES_PER_S),
        ):
            if name not in self._header.storages:
                continue
            spec = self._header.storages[name].spec
            cost = self._costs["storages"].get(name, {})
            given = getattr(spec, f"{direction}_bytes_per_s", None) if spec else None
            key = f"storage.{name}.{direction}_rate"
            if given is None:
                given, key = cost.get(f"{direction}_bytes_per_s"), f"cost.{key}"
            rate = _many_users(float(given or otherwise), cost)
            yield _Use(
                "storage", f"storage {name} ({direction})", key, rate, kind.size_bytes, f"disk:{name}:{direction}",
                given is None,
            )  # fmt: skip

    def _network(self, kind: TransferKind) -> Iterator[_Use]:
        for origin, to in self._hops(kind):
            hosts = [self._host(one) for one in (origin, to)]
            if hosts[0] == hosts[1]:
                name = f"loopback of {hosts[0]}"
                yield _Use(
                    "loopback", name, "", ASSUMED_LOOPBACK_BYTES_PER_S, kind.size_bytes, f"loopback:{hosts[0]}",
                    assumed=True,
                )  # fmt: skip
                continue
            for link in self._links(origin, to):
                yield self._link(link, kind.size_bytes)

    def _link(self, name: str, size_bytes: int) -> _Use:
        network = self._header.network
        assert network is not None, "a path has links only in a network"
        link = network.links[name]
        scenario_name = self._link_names.get(name, name)
        return _Use(
            "link", f"link {scenario_name} ({name})", f"link.{scenario_name}.rate", link.rate_bit_per_s / BITS_PER_BYTE,
            size_bytes * link_bytes_per_byte(self._mtu, link.overhead_bytes), f"link:{name}",
        )  # fmt: skip

    def _hops(self, kind: TransferKind) -> list[tuple[str, str]]:
        """Return the connections that carry the bytes, as pairs of interfaces or hosts."""
        source, destination = self._end(kind.source_via, kind.host), self._end(kind.destination_via, kind.host)
        proxy = self._proxy(kind)
        if proxy is not None:
            return [(self._end(f"{proxy}/", kind.host), kind.host)]
        both = kind.source_via is not None and kind.destination_via is not None
        if both and not _is_relayed(self._header.calls[kind.call].options):
            return [(source, destination)]
        hops = [(source, kind.host)] if kind.source_via else []
        return hops + ([(kind.host, destination)] if kind.destination_via else [])

    def _links(self, origin: str, to: str) -> tuple[str, ...]:
        if self._header.network is None or not self._header.network.links:
            return ()
        # A host can reach the other one by another interface than that of its service.
        found = path_links(self._header, origin, to) or path_links(self._header, self._host(origin), to)
        if found is None:
            raise PlanError(
                f"testbed.link: expected a route from {origin} to {to}, found none; connect both hosts with links"
            )
        return found

    def _services(self, kind: TransferKind, alone_s: float) -> Iterator[_Use]:
        names = {via.partition("/")[0] for via in (kind.source_via, kind.destination_via) if via}
        sender = self._proxy(kind) or (kind.source_via or "").partition("/")[0]
        for name in sorted(names | ({sender} if sender else set())):
            sessions = self._costs["services"].get(name, {}).get("sessions")
            if sessions:
                key = f"cost.service.{name}.sessions"
                yield _Use("sessions", f"sessions of service {name}", key, float(sessions), alone_s, "queue")
        rate = self._header.services[sender].options.get("process_rate_bytes_per_s") if sender else None
        if isinstance(rate, (int, float)) and rate:
            options = self._header.services[sender].options
            count = math.prod(max(1, int(options.get(key) or 1)) for key in ("instances", "workers"))
            yield _Use(
                "processes", f"processes of service {sender}", f"service.{sender}.options.process_rate", count * float(rate),
                kind.size_bytes, f"process:{sender}",
            )  # fmt: skip

    def _cpus(self, kind: TransferKind) -> Iterator[_Use]:
        """Yield the CPUs with a limit, of the client, the servers, and of all hosts together."""
        shared = self._header.cost.machine_cores if self._header.cost else None
        for host, core_s in self._core_times(kind).items():
            cores = self._cores(host)
            if cores is not None:
                key = f"host.{host}.cpu_limit"
                yield _Use("cpu", f"CPU of {host}", key, cores, core_s, f"cpu:{host}")
            if shared is not None:
                yield _Use("cpu", "CPU of all hosts", "cost.machine_cores", shared, core_s, "cpu:machine")

    def _core_times(self, kind: TransferKind) -> dict[str, float]:
        """Return the CPU time of a transfer by host."""
        vias = (kind.source_via, kind.destination_via)
        mover = self._mover_cost(kind)
        hosts = {kind.host: _core_s(mover, ("start_core_s", "session_core_s"), kind)}
        logins = float(mover.get("logins") or 1.0)
        for via in vias:
            if via is None:
                continue
            cost = self._costs["services"].get(via.partition("/")[0], {})
            host = self._host(self._end(via, kind.host))
            time_s = _core_s(cost, ("session_core_s",), kind) + logins * float(cost.get("auth_core_s") or 0.0)
            hosts[host] = hosts.get(host, 0.0) + time_s
        speed = {host: float(self._costs["hosts"].get(host, {}).get("core_speed") or 1.0) for host in hosts}
        return {host: time_s / speed[host] for host, time_s in hosts.items()}

    def _mover_cost(self, kind: TransferKind) -> Mapping[str, Any]:
        ends = tuple(via.partition("/")[2] if via else FILE for via in (kind.source_via, kind.destination_via))
        entries = self._costs["calls"].get(kind.call, ())
        found: Mapping[str, Any] = next(
            (one["cost"] for one in entries if (one["source"], one["destination"]) == ends), {}
        )
        return found

    def _cores(self, host: str) -> float | None:
        lab = self._header.hosts[host].lab
        limits = [
            self._costs["hosts"].get(host, {}).get("cores"),
            lab.cpu_limit_cores if lab else None,
            len(lab.cpus) if lab and lab.cpus else None,
        ]
        return min((float(limit) for limit in limits if limit is not None), default=None)

    def _proxy(self, kind: TransferKind) -> str | None:
        url = self._header.calls[kind.call].urls.get("proxy")
        return url.partition("/")[0] if url else None

    def _end(self, via: str | None, host: str) -> str:
        """Return the interface of a service port, otherwise its host."""
        service = self._header.services[via.partition("/")[0]] if via else None
        listens = service.interface if service else None
        known = self._header.network is not None and listens in self._header.network.interfaces
        return str(listens) if known else endpoint_host(self._header, via, host)

    def _host(self, end: str) -> str:
        interfaces = self._header.network.interfaces if self._header.network else {}
        return interfaces[end].host if end in interfaces else end


def _is_relayed(options: Mapping[str, Any]) -> bool:
    """Return whether bytes between two servers pass through the client, as in the simulator."""
    third = options.get("third_party")
    return not third if isinstance(third, bool) else third in ("none", "streamed")


def _core_s(cost: Mapping[str, Any], session: tuple[str, ...], kind: TransferKind) -> float:
    """Return the CPU time of a transfer: its session, its files and its bytes."""
    fixed = math.fsum(float(cost.get(name) or 0.0) for name in session)
    files = kind.files * float(cost.get("file_core_s") or 0.0)
    return fixed + files + kind.size_bytes * float(cost.get("byte_core_s") or 0.0)


def _many_users(rate: float, cost: Mapping[str, Any]) -> float:
    """Return the rate of a storage with many users; the peak of the universal scalability law."""
    seek_s, ahead = cost.get("seek_s"), cost.get("read_ahead_bytes")
    if seek_s and ahead:
        return float(ahead) / (float(ahead) / rate + float(seek_s))
    sigma, kappa = float(cost.get("contention") or 0.0), float(cost.get("coherency") or 0.0)
    if not sigma and not kappa:
        return rate
    best = min(1024.0, max(1.0, math.sqrt(max(0.0, 1 - sigma) / kappa))) if kappa else 1024.0
    near = {max(1, math.floor(best)), math.ceil(best)}
    return max(rate * n / (1 + sigma * (n - 1) + kappa * n * (n - 1)) for n in near)
