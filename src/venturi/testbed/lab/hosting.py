"""The hosts of a lab brought into being: control groups, namespaces, storages, interfaces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from venturi.errors import BackendError
from venturi.plan.header import Place
from venturi.testbed.lab.asked import Asked, AskedHost, throttled
from venturi.testbed.lab.ground import Ground
from venturi.testbed.lab.groups import controllers, join_paths, limit_cpu, limit_memory, make_group
from venturi.testbed.lab.interfaces import Found, host_script, read_found
from venturi.testbed.lab.machine import LabMachine, Way
from venturi.testbed.lab.names import name_binds
from venturi.testbed.lab.registry import Entry
from venturi.testbed.lab.storage import device_number, make_disk, make_tmpfs, open_to_all, throttle

__all__ = [
    "Disk",
    "Groups",
    "host_folders",
    "in_parallel",
    "lay_ground",
    "machine_of",
    "make_groups",
    "make_storages",
    "set_up_host",
]

AT_ONCE = 8
"""Commands in hosts that run side by side; more would only wait for cores."""

TMPFS = ("/run", "/dev/shm")

_SETUP_TIMEOUT_S = 30.0

Groups = dict[str, dict[str, Path]]
"""Host → controller → its group."""

_T = TypeVar("_T")
_R = TypeVar("_R")


def in_parallel(work: Callable[[_T], _R], items: Iterable[_T], *, at_once: int = AT_ONCE) -> list[_R]:
    """Return the results of ``work`` on every item; the first error is raised when what had begun has ended."""
    with ThreadPoolExecutor(at_once, "lab") as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def make_groups(asked: Asked, entry: Entry, *, root: bool) -> Groups:
    """Make the control groups of all hosts: CPU time counted wherever that can be, limits where they are asked for.

    Raises
    ------
    BackendError
        If a limit is asked for that this machine, or this user, cannot set.
    """
    counted = root and "cpuacct" in controllers()
    slow_disks = {place.host for place in asked.places.values() if throttled(place)}
    groups: Groups = {}
    for name, host in asked.hosts.items():
        where = f"testbed.host.{name}"
        mine = groups[name] = {}
        if counted or host.lab.cpu_limit_cores is not None:
            mine["cpuacct"] = make_group(entry, "cpuacct", name, f"{where}.cpu_limit")
        if host.lab.cpu_limit_cores is not None:
            mine["cpu"] = make_group(entry, "cpu", name, f"{where}.cpu_limit")
            limit_cpu(mine["cpu"], host.lab.cpu_limit_cores)
        if host.lab.memory_limit_bytes is not None:
            mine["memory"] = make_group(entry, "memory", name, f"{where}.memory_limit")
            limit_memory(mine["memory"], host.lab.memory_limit_bytes)
        if name in slow_disks:
            mine["blkio"] = make_group(entry, "blkio", name, f"a throttled disk of host {name}")
    return groups


def host_folders(asked: Asked, folder: Path, scratch: Path) -> list[tuple[Path, Path]]:
    """Make a scratch folder for each host, and where it is seen within the lab; return the pairs."""
    (folder / "hosts").mkdir()
    binds = []
    for host in asked.hosts:
        open_to_all(scratch / host)
        (folder / "hosts" / host).mkdir()
        binds.append((scratch / host, folder / "hosts" / host))
    return binds


def lay_ground(asked: Asked, entry: Entry, engine: Path, scratch: Path) -> Ground:
    """Make the namespaces of all hosts, with names that resolve and folders that are there."""
    binds = [*name_binds(entry.folder / "etc", asked.hosts.values()), *host_folders(asked, entry.folder, scratch)]
    names = {host.name: host.host_name for host in asked.hosts.values()}
    ground = Ground.lay(engine, names, binds=binds, tmpfs=TMPFS, log=entry.folder / "hold.log")
    entry.will_make("ground", **ground.init.as_json())
    return ground


def machine_of(host: AskedHost, ground: Ground, groups: Mapping[str, Path], *, root: bool) -> LabMachine:
    """Return a host as services and probes use it."""
    way = Way(tuple(ground.enter(host.name)), join_paths(dict(groups)), host.lab.cpus or ())
    return LabMachine(host, way, root)


@dataclass(frozen=True, slots=True)
class Disk:
    """A throttled disk, the folder within the lab that it is mounted on, and its device."""

    name: str
    place: Place
    folder: Path
    device: Path


def make_storages(asked: Asked, entry: Entry, ground: Ground, scratch: Path, groups: Groups) -> list[Disk]:
    """Make all storages; return the throttled disks among them."""
    disks = []
    for name, place in asked.places.items():
        outside = scratch / place.host / place.path
        inside = entry.folder / "hosts" / place.host / place.path
        if Path(place.path).is_absolute():
            outside.mkdir(parents=True, exist_ok=True)  # the user's own: its permissions are his business
        else:
            open_to_all(outside)
        kind = place.storage.kind if place.storage is not None else "directory"
        if kind == "tmpfs":
            make_tmpfs(name, place, inside, ground.enter())
        elif kind == "disk":
            image = scratch / f".venturi-{entry.id}-{name}.img"
            device = make_disk(name, place, inside, image=image, entry=entry, enter=ground.enter())
            if throttled(place):
                _slow_down(place, device_number(device), entry, groups)
                disks.append(Disk(name, place, inside, device))
    return disks


def _slow_down(place: Place, device: str, entry: Entry, groups: Groups) -> None:
    root_group = controllers()["blkio"]
    # That of the host goes away with the lab; what is set for the kernel's writers has to be taken back.
    entry.will_make("throttle", device=device, group=str(root_group))
    throttle(place, device, [groups[place.host]["blkio"], root_group])


def set_up_host(host: AskedHost, ground: Ground, settings: Mapping[str, str]) -> Found:
    """Give a host its addresses, routes and settings, and return what it says of them.

    Raises
    ------
    BackendError
        If its devices are not there, or a route is not accepted.
    """
    bare = LabMachine(host, Way(tuple(ground.enter(host.name))), privileged=True)
    done = bare.run(["sh", "-c", host_script(host, settings)], timeout_s=_SETUP_TIMEOUT_S)
    if done.returncode:
        raise BackendError(
            f"testbed.host.{host.name}: expected its addresses and routes to be set, found: {done.stderr.strip()[-500:]}"
        )
    return read_found(done.stdout)
