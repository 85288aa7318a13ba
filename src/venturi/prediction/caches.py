"""Caches that transfers of a load pass: proxies, and page caches of hosts with a known size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from venturi.cost import HostCost
from venturi.plan import Header, PlanService
from venturi.prediction.offered import OfferedLoad, TransferKind

__all__ = ["LoadCache", "load_caches"]

PROXY = "squid"


@dataclass(frozen=True, slots=True)
class LoadCache:
    """A cache that transfers pass.

    Attributes
    ----------
    name
        Name for a reader.
    size_bytes
        Bytes that it can keep.
    fraction
        Fraction of the bytes of the load that pass it.
    """

    name: str
    size_bytes: float
    fraction: float


def load_caches(load: OfferedLoad) -> tuple[LoadCache, ...]:
    """Return the caches of a load with a known size.

    A Squid has its ``cache_memory``, per instance. The page cache of a host with a storage has the size in the costs of the
    host, otherwise at most the memory limit of the host in the lab. The memory of existing hosts is unknown.
    """
    sizes: dict[str, float] = {}
    passed: dict[str, float] = {}
    for kind in load.kinds:
        for name, size_bytes in dict(_caches_of(load.header, kind)).items():
            sizes[name] = size_bytes
            passed[name] = passed.get(name, 0.0) + kind.fraction * kind.size_bytes
    return tuple(LoadCache(name, size, passed[name] / load.mean_bytes) for name, size in sizes.items())


def _caches_of(header: Header, kind: TransferKind) -> Iterator[tuple[str, float]]:
    proxy = _proxy(header, kind)
    if proxy is not None:
        name, service = proxy
        yield f"service {name}", _squid_bytes(service)
    for storage in (kind.source_storage, kind.destination_storage):
        host = header.storages[storage].host if storage in header.storages else None
        if host is not None:
            cost, lab = _host_cost(header, host), header.hosts[host].lab
            # The page cache of a simulation keeps files that were read.
            read_bytes = cost.page_cache_bytes if cost is not None and storage == kind.source_storage else None
            size_bytes = read_bytes or (lab.memory_limit_bytes if lab is not None else None)
            if size_bytes:
                yield f"page cache of host {host}", float(size_bytes)


def _host_cost(header: Header, host: str) -> HostCost | None:
    return header.cost.hosts.get(host) if header.cost is not None else None


def _proxy(header: Header, kind: TransferKind) -> tuple[str, PlanService] | None:
    """Return the Squid of a transfer, by the service port or the host of its proxy."""
    call = header.calls[kind.call]
    port = call.urls.get("proxy")
    if port is not None:
        name = port.partition("/")[0]
        return (name, header.services[name]) if header.services[name].kind == PROXY else None
    host = urlsplit(str(call.options.get("proxy") or "")).hostname
    for name, service in header.services.items():
        if host is not None and service.kind == PROXY and service.host == host.partition(".")[0]:
            return name, service
    return None


def _squid_bytes(service: PlanService) -> float:
    options = service.options
    separate = 1 if options.get("shared_cache") else int(options.get("workers") or 1)
    return float(options["cache_memory_bytes"] or 0) * int(options.get("instances") or 1) * separate
