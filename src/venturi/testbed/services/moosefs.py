"""MooseFS: a parallel file system of a metadata server, chunk servers, and FUSE mounts that provide a storage.

A file is cut into chunks of 64 MiB, which alternate between the chunk servers; there is no striping within a chunk. What
serves or uses a storage that a mount provides must come after that mount (``after``).
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from venturi.errors import BackendError
from venturi.mover.base import Option
from venturi.testbed.services.base import Package, Peers, Process, Room, ServiceSpec, refuse_mistake
from venturi.testbed.services.calls import answer, complaint, must
from venturi.testbed.services.ports import with_defaults
from venturi.testbed.services.programs import account, require

__all__ = ["ChunkServer", "Master", "Mount"]

_MASTER = Option("master", "text", None, "the service of kind moosefs-master that it belongs to")
_UMOUNT_S = 5.0
_CLEAN_S = 60.0
_TOTAL = 10
"""Where ``mfscli -SCS`` has the bytes of a chunk server's storages, counted from 0."""

# What marks the metadata of a file system that has nothing in it.
_NEW_METADATA = b"MFSM NEW"

# The common lines: no priority over the programs that are measured, no hand on the system's memory policy.
_COMMON = """\
WORKING_USER = {account}
NICE_LEVEL = 0
DISABLE_OOM_KILLER = 0
DATA_PATH = {folder}
"""

# Chunks of deleted files go within a minute or two; by default a lab's disk would fill up with them.
_MASTER_LINES = """\
EXPORTS_FILENAME = {folder}/exports.cfg
TOPOLOGY_FILENAME = {folder}/topology.cfg
MATOML_LISTEN_HOST = {address}
MATOML_LISTEN_PORT = {ports[0]}
MATOCS_LISTEN_HOST = {address}
MATOCS_LISTEN_PORT = {ports[1]}
MATOCL_LISTEN_HOST = {address}
MATOCL_LISTEN_PORT = {ports[2]}
CHUNKS_LOOP_MIN_TIME = 60
CHUNKS_SOFT_DEL_LIMIT = 100
CHUNKS_HARD_DEL_LIMIT = 1000
"""

_CHUNK_LINES = """\
HDD_CONF_FILENAME = {folder}/disks.cfg
HDD_LEAVE_SPACE_DEFAULT = {leave_bytes}B
HDD_TEST_SPEED = 0
MASTER_HOST = {master.host_name}
MASTER_PORT = {master_ports[1]}
MASTER_CONTROL_PORT = {master_ports[0]}
MASTER_RECONNECTION_DELAY = 1
BIND_HOST = {address}
CSSERV_LISTEN_HOST = {address}
CSSERV_LISTEN_PORT = {ports[0]}
"""

# The mount is there and has room (a write without chunk servers hangs), empty space is not kept for deleted files,
# everybody may write, and a byte comes back.
_TRY = """
set -e
mountpoint -q "$1" || { echo "not mounted yet" >&2; exit 1; }
[ "$(stat -f -c %b "$1")" != 0 ] || { echo "no chunk server has registered" >&2; exit 1; }
mfssettrashtime 0 "$1" >&2
mfssetgoal "$2" "$1" >&2
chmod 777 "$1"
echo ready > "$1/.ready"
cat "$1/.ready"
rm "$1/.ready"
"""


class _Server:
    """What master and chunk servers share."""

    packages: tuple[Package, ...] = ()
    default_ports: tuple[int, ...] = ()

    def doors(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return nothing: clients use a mount."""
        return {}

    def start(self, room: Room) -> Sequence[Process]:
        """Start the server."""
        program = self.packages[0].program
        return [room.machine.start([program, "-c", str(_config(room)), "-f", "start"], log=_output(room))]

    def stop(self, room: Room, processes: Sequence[Process]) -> None:
        """Stop the server."""
        _kill(processes)

    def logs(self, room: Room) -> Sequence[Path]:
        """Return its output."""
        return [_output(room)]


class Master(_Server):
    """The metadata server of a file system."""

    kind = "moosefs-master"
    summary = "MooseFS metadata server: one for a parallel file system."
    packages = (Package("mfsmaster", "moosefs-master"), Package("mfscli", "moosefs-cli"))
    options = (Option("copies", "integer", 1, "on how many chunk servers each chunk is kept"),)
    default_ports = (9419, 9420, 9421)

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return nothing: it stands alone."""
        return ()

    def configure(self, room: Room) -> None:
        """Write the configuration, and the metadata of an empty file system.

        Raises
        ------
        BackendError
            If a program is missing.
        """
        require(room, self.packages)
        known = {
            "account": account(room),
            "folder": room.folder,
            "address": room.address,
            "ports": _ports(room),
        }
        _config(room).write_text((_COMMON + _MASTER_LINES).format(**known), encoding="utf-8")
        (room.folder / "exports.cfg").write_text("* / rw,alldirs,admin,maproot=0:0\n", encoding="utf-8")
        (room.folder / "topology.cfg").touch()
        (room.folder / "metadata.mfs").write_bytes(_NEW_METADATA)

    def ready(self, room: Room) -> str | None:
        """Ask it about itself."""
        # mfscli ends with 0 also when nobody has answered it.
        said = answer(room.machine, _ask(room, "-SIG")) or "no answer to mfscli"
        return None if said.startswith("master info:") else said.strip()


class ChunkServer(_Server):
    """A server that keeps chunks in a storage."""

    kind = "moosefs-chunkserver"
    summary = "MooseFS chunk server: keeps a part of the files in its storages."
    packages = (Package("mfschunkserver", "moosefs-chunkserver"), Package("mfscli", "moosefs-cli"))
    options = (_MASTER, Option("leave", "size", 256 << 20, "bytes that it leaves free in each storage"))
    default_ports = (9422,)

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return its master."""
        return _named(spec, "master")

    def mistake(self, spec: ServiceSpec, peers: Peers) -> str | None:
        """Return that it has no master, or nothing to keep chunks in."""
        lacking = None if spec.places else "expected a storage for chunks, found none; name one in `storage`"
        return lacking or _no_master(spec, peers)

    def configure(self, room: Room) -> None:
        """Write the configuration, and make a folder for chunks in each of its storages.

        Raises
        ------
        BackendError
            If a program is missing, it has no master, or no storage.
        """
        require(room, self.packages)
        refuse_mistake(self, room)
        disks = self._disks(room)
        must(room.machine, ["rm", "-rf", *disks], where=room.spec.name, package="coreutils", timeout_s=_CLEAN_S)
        must(room.machine, ["mkdir", "-p", *disks], where=room.spec.name, package="coreutils")
        (room.folder / "disks.cfg").write_text("".join(f"{disk}\n" for disk in disks), encoding="utf-8")
        master = _master(room)
        known = {
            "account": account(room),
            "folder": room.folder,
            "address": room.address,
            "ports": _ports(room),
            "master": master,
            "master_ports": _ports(master),
            "leave_bytes": room.spec.options.get("leave_bytes") or self.options[1].default,
        }
        _config(room).write_text((_COMMON + _CHUNK_LINES).format(**known), encoding="utf-8")

    def ready(self, room: Room) -> str | None:
        """Ask the master for its chunk servers: it must know this one and how much room it has."""
        listed = answer(room.machine, _ask(_master(room), "-SCS")) or ""
        for line in listed.splitlines():
            fields = line.split("|")
            if fields[1:3] == [room.address, str(_ports(room)[0])]:
                return "its room for chunks is not yet known" if fields[_TOTAL] == "0" else None
        return f"not yet among the chunk servers of {_master(room).spec.name}"

    def stop(self, room: Room, processes: Sequence[Process]) -> None:
        """Stop the server, and remove its chunks: no other master would know what they are."""
        _kill(processes)
        with suppress(subprocess.TimeoutExpired):
            room.machine.run(["rm", "-rf", *self._disks(room)], timeout_s=_CLEAN_S)

    def _disks(self, room: Room) -> list[str]:
        return [str(room.path(place) / f".{room.spec.name}") for place in room.spec.places]


class Mount:
    """A FUSE mount of the file system on a host: it provides a storage there."""

    kind = "moosefs-mount"
    summary = "MooseFS mount: its storage is the parallel file system, seen from its host."
    packages = (
        Package("mfsmount", "moosefs-client"),
        Package("mfssetgoal", "moosefs-client"),
        Package("mountpoint", "util-linux"),
    )
    options = (
        _MASTER,
        Option("chunkservers", "text", None, "services of kind moosefs-chunkserver that it waits for, by commas"),
        Option(
            "cache",
            "choice",
            "auto",
            "whether the kernel keeps pages of files; direct: it is gone round",
            choices=("auto", "never", "always", "direct"),
        ),
        Option("read_ahead", "size", 1 << 20, "bytes that are read ahead of a reader in sequence", minimum=1 << 16),
        Option(
            "serial", "boolean", False, "requests of all its readers and writers are carried out one after another"
        ),
    )
    default_ports: tuple[int, ...] = ()
    provides_places = True
    """Its storages are not there before it has started, and what uses them must come after it."""

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return its master and chunk servers."""
        return (*_named(spec, "master"), *_named(spec, "chunkservers"))

    def mistake(self, spec: ServiceSpec, peers: Peers) -> str | None:
        """Return that it has no master, or not one storage."""
        many = len(spec.places)
        return _no_master(spec, peers) or (None if many == 1 else f"expected one storage to provide, found {many}")

    def doors(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return nothing: it is a folder."""
        return {}

    def configure(self, room: Room) -> None:
        """Make the folder that is mounted on.

        Raises
        ------
        BackendError
            If a program is missing, it has no master or not one storage, or the lab has no root, who mounts.
        """
        require(room, self.packages)
        if not room.machine.privileged:
            raise BackendError(f"{room.spec.name}: expected to be root, to mount; found a lab of an ordinary user")
        refuse_mistake(self, room)
        must(room.machine, ["mkdir", "-p", str(_point(room))], where=room.spec.name, package="coreutils")

    def start(self, room: Room) -> Sequence[Process]:
        """Start the FUSE server, which mounts."""
        master, options = _master(room), room.spec.options
        # Priority and memory policy as for the servers; where no chunk server can answer, fail instead of waiting.
        settings = [
            *("nonempty", "mfsnice=0", "mfsallowoomkiller", "mfserroronlostchunk", "mfserroronnospace"),
            f"mfscachemode={str(options.get('cache') or 'auto').upper()}",
            f"mfsreadaheadleng={options.get('read_ahead_bytes') or self.options[3].default}",
        ]
        where = ["-H", master.host_name, "-P", str(_ports(master)[2])]
        serial = ["-s"] if options.get("serial") else []
        argv = ["mfsmount", "-f", *serial, *where, "-o", ",".join(settings), str(_point(room))]
        return [room.machine.start(argv, log=_output(room))]

    def ready(self, room: Room) -> str | None:
        """Write a file and read it back."""
        copies = str(_master(room).spec.options.get("copies") or 1)
        lack = complaint(room.machine, ["sh", "-c", _TRY, "sh", str(_point(room)), copies])
        return lack and f"{_point(room)}: {lack.rpartition(': ')[2]}"

    def stop(self, room: Room, processes: Sequence[Process]) -> None:
        """Unmount, also where it is in use, and stop the FUSE server."""
        point = str(_point(room))
        done = None
        with suppress(subprocess.TimeoutExpired):
            done = room.machine.run(["umount", point], timeout_s=_UMOUNT_S)
        _kill(processes)
        if done is None or done.returncode:
            with suppress(subprocess.TimeoutExpired):
                room.machine.run(["umount", "--lazy", point], timeout_s=_UMOUNT_S)

    def logs(self, room: Room) -> Sequence[Path]:
        """Return its output."""
        return [_output(room)]


_DEFAULT_PORTS = {kind.kind: kind.default_ports for kind in (Master, ChunkServer)}


def _kill(processes: Sequence[Process]) -> None:
    """End processes at once: asked to end, they first save for seconds what is thrown away with them."""
    for process in reversed(processes):
        process.stop(signal=signal.SIGKILL)


def _named(spec: ServiceSpec, option: str) -> tuple[str, ...]:
    listed = str(spec.options.get(option) or "")
    return tuple(listed.replace(",", " ").split())


def _master(room: Room) -> Room:
    return room.peer(_named(room.spec, "master")[0])


def _no_master(spec: ServiceSpec, peers: Peers) -> str | None:
    master = next(map(peers, _named(spec, "master")), None)
    if master is not None and master.kind == Master.kind:
        return None
    found = f"{master.name} of kind {master.kind}" if master else "none"
    return f"expected the option master to name a service of kind moosefs-master, found {found}"


def _ports(room: Room) -> tuple[int, ...]:
    return with_defaults(room.spec.ports, _DEFAULT_PORTS[room.spec.kind])


def _ask(master: Room, what: str) -> list[str]:
    """Return a question to a master, answered in lines of fields between bars."""
    return ["mfscli", "-H", master.host_name, "-P", str(_ports(master)[2]), "-n", "-p", "-s", "|", what]


def _point(room: Room) -> Path:
    return room.path(room.spec.places[0])


def _config(room: Room) -> Path:
    return room.folder / "moosefs.cfg"


def _output(room: Room) -> Path:
    return room.folder / "moosefs.out"
