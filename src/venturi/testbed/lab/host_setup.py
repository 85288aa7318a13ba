"""Creation of the hosts of a lab: control groups, namespaces, storages, interfaces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from venturi.errors import BackendError
from venturi.plan.header import Storage
from venturi.testbed.lab.groups import HostGroups, HostLimits, make_groups
from venturi.testbed.lab.host_shell import HostEntry, LabHostShell
from venturi.testbed.lab.interfaces import FoundSettings, host_script, read_found
from venturi.testbed.lab.names import name_binds
from venturi.testbed.lab.namespaces import LabNamespaces
from venturi.testbed.lab.registry import LabEntry
from venturi.testbed.lab.spec import LabHostSpec, LabSpec, throttled
from venturi.testbed.lab.storage import device_number, make_disk, make_tmpfs, open_to_all, rate_limits

__all__ = [
    "Disk",
    "Groups",
    "create_namespaces",
    "host_directories",
    "host_shell",
    "in_parallel",
    "make_host_groups",
    "make_storages",
    "set_up_host",
]

AT_ONCE = 8
"""Maximum concurrent commands in hosts; more would only wait for cores."""

TMPFS = ("/run", "/dev/shm")

_SETUP_TIMEOUT_S = 30.0

Groups = Mapping[str, HostGroups]
"""Host → its control groups."""

_T = TypeVar("_T")
_R = TypeVar("_R")


def in_parallel(work: Callable[[_T], _R], items: Iterable[_T], *, at_once: int = AT_ONCE) -> list[_R]:
    """Return the results of ``work`` for all items. An error is raised after the running items have finished."""
    with ThreadPoolExecutor(at_once, "lab") as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def make_host_groups(spec: LabSpec, entry: LabEntry, *, root: bool) -> Groups:
    """Create the control groups of all hosts, with the limits of the scenario.

    Raises
    ------
    BackendError
        If this machine or this user cannot set a limit.
    """
    slow_disks = {storage.host for storage in spec.storages.values() if throttled(storage)}
    limits = {
        name: HostLimits(host.lab.cpu_limit_cores, host.lab.memory_limit_bytes, name in slow_disks)
        for name, host in spec.hosts.items()
    }
    return make_groups(entry, limits, root=root)


def host_directories(spec: LabSpec, directory: Path, scratch: Path) -> list[tuple[Path, Path]]:
    """Create a scratch directory for each host, and its mount point within the lab; return the pairs."""
    (directory / "hosts").mkdir()
    binds = []
    for host in spec.hosts:
        open_to_all(scratch / host)
        (directory / "hosts" / host).mkdir()
        binds.append((scratch / host, directory / "hosts" / host))
    return binds


def create_namespaces(spec: LabSpec, entry: LabEntry, engine: Path, scratch: Path) -> LabNamespaces:
    """Create the namespaces of all hosts, with name resolution and scratch directories."""
    binds = [
        *name_binds(entry.directory / "etc", spec.hosts.values()),
        *host_directories(spec, entry.directory, scratch),
    ]
    names = {host.name: host.host_name for host in spec.hosts.values()}
    namespaces = LabNamespaces.create(engine, names, binds=binds, tmpfs=TMPFS, log=entry.directory / "namespaces.log")
    entry.register("namespaces", **namespaces.init.as_json())
    return namespaces


def host_shell(
    host: LabHostSpec,
    namespaces: LabNamespaces,
    groups: HostGroups,
    *,
    root: bool,
    engine: Path,
    session: Path,
) -> LabHostShell:
    """Return the shell of a host, for services and probes."""
    enter, cpus = tuple(namespaces.enter(host.name)), host.lab.cpus or ()
    entry_command = HostEntry(enter, groups.processes, cpus)
    agent_entry = HostEntry(enter, groups.agent, cpus)
    return LabHostShell(host, entry_command, root, str(engine), session, agent_entry=agent_entry)


@dataclass(frozen=True, slots=True)
class Disk:
    """Throttled disk: its mount point within the lab, and its device."""

    name: str
    storage: Storage
    directory: Path
    device: Path


def make_storages(
    spec: LabSpec, entry: LabEntry, namespaces: LabNamespaces, scratch: Path, groups: Groups
) -> list[Disk]:
    """Create all storages and return the throttled disks."""
    disks = []
    for name, storage in spec.storages.items():
        host = spec.storage_host(name)
        outside = scratch / host / storage.path
        inside = entry.directory / "hosts" / host / storage.path
        if Path(storage.path).is_absolute():
            outside.mkdir(parents=True, exist_ok=True)  # belongs to the user: keep its permissions
        else:
            open_to_all(outside)
        kind = storage.spec.kind if storage.spec is not None else "directory"
        if kind == "tmpfs":
            make_tmpfs(name, storage, inside, namespaces.enter())
        elif kind == "disk":
            image = scratch / f".venturi-{entry.id}-{name}.img"
            device = make_disk(name, storage, inside, image=image, entry=entry, enter=namespaces.enter())
            if throttled(storage):
                groups[host].limit_disk(device_number(device), rate_limits(storage), entry)
                disks.append(Disk(name, storage, inside, device))
    return disks


def set_up_host(host: LabHostSpec, namespaces: LabNamespaces, settings: Mapping[str, str]) -> FoundSettings:
    """Set the addresses, routes and kernel settings of a host, and return the actual configuration.

    Raises
    ------
    BackendError
        If a device is missing or a route is rejected.
    """
    bare = LabHostShell(host, HostEntry(tuple(namespaces.enter(host.name))), privileged=True)
    done = bare.run(["sh", "-c", host_script(host, settings)], timeout_s=_SETUP_TIMEOUT_S)
    if done.returncode:
        raise BackendError(
            f"testbed.host.{host.name}: cannot set its addresses and routes: {done.stderr.strip()[-500:]}"
        )
    return read_found(done.stdout)
