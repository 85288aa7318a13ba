"""MooseFS: parallel file system with a metadata server, chunk servers, and FUSE mounts that provide a storage.

Files are split into chunks of 64 MiB, which alternate between the chunk servers, without striping within a chunk. Services
that serve or use a storage of a mount must start after the mount (``after``).
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import PurePath

from venturi.errors import BackendError
from venturi.mover.base import Option
from venturi.testbed.services.base import Package, Peers, Process, ServiceContext, ServiceSpec, reject_invalid_options
from venturi.testbed.services.client_calls import read_output, run_checked, run_error
from venturi.testbed.services.ports import with_defaults
from venturi.testbed.services.programs import account, require

__all__ = ["ChunkServer", "Master", "Mount"]

_OBSTACLE = "MooseFS runs only in a lab, because its mounts need root"
_MASTER = Option("master", "text", None, "its service of kind moosefs-master")
_UMOUNT_S = 5.0
_CLEAN_S = 60.0
_TOTAL = 10
"""Field of ``mfscli -SCS`` with the bytes of a chunk server's storages, counted from 0."""

# Marks the metadata of an empty file system.
_NEW_METADATA = b"MFSM NEW"

# Common lines: no priority over the measured programs, and no change of the memory policy of the system.
_COMMON = """\
WORKING_USER = {account}
NICE_LEVEL = 0
DISABLE_OOM_KILLER = 0
DATA_PATH = {directory}
"""

# Removes chunks of deleted files within a minute or two. With the defaults, they would fill up the disk of a lab.
_MASTER_LINES = """\
EXPORTS_FILENAME = {directory}/exports.cfg
TOPOLOGY_FILENAME = {directory}/topology.cfg
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
HDD_CONF_FILENAME = {directory}/disks.cfg
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

# Checks that the mount exists and has capacity (a write without chunk servers hangs). Disables the trash, permits writes
# to all users, and reads a written byte back.
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


class _MooseFsServer:
    """Common base of metadata server and chunk servers."""

    packages: tuple[Package, ...] = ()
    default_ports: tuple[int, ...] = ()

    def service_ports(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return nothing: clients use a mount."""
        return {}

    def hosts_obstacle(self, spec: ServiceSpec) -> str | None:
        """Return the reason why it runs only in a lab."""
        return _OBSTACLE

    def start(self, context: ServiceContext) -> Sequence[Process]:
        """Start the server."""
        program = self.packages[0].program
        return [context.shell.start([program, "-c", str(_config(context)), "-f", "start"], log=_output(context))]

    def stop(self, context: ServiceContext, processes: Sequence[Process]) -> None:
        """Stop the server."""
        _kill(processes)

    def logs(self, context: ServiceContext) -> Sequence[PurePath]:
        """Return the output file."""
        return [_output(context)]


class Master(_MooseFsServer):
    """Metadata server of a file system."""

    kind = "moosefs-master"
    summary = "MooseFS metadata server, one per file system."
    packages = (Package("mfsmaster", "moosefs-master"), Package("mfscli", "moosefs-cli"))
    options = (Option("copies", "integer", 1, "copies of each chunk, on different chunk servers"),)
    default_ports = (9419, 9420, 9421)

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return nothing: it needs no other service."""
        return ()

    def configure(self, context: ServiceContext) -> None:
        """Write the configuration, and the metadata of an empty file system.

        Raises
        ------
        BackendError
            If a program is missing.
        """
        require(context, self.packages)
        values = {
            "account": account(context),
            "directory": context.directory,
            "address": context.address,
            "ports": _ports(context),
        }
        context.write(_config(context), (_COMMON + _MASTER_LINES).format(**values))
        context.write(context.directory / "exports.cfg", "* / rw,alldirs,admin,maproot=0:0\n")
        context.write(context.directory / "topology.cfg", "")
        context.write(context.directory / "metadata.mfs", _NEW_METADATA)

    def ready(self, context: ServiceContext) -> str | None:
        """Query its status."""
        # mfscli returns 0 even without a reply.
        output = read_output(context.shell, _mfscli(context, "-SIG")) or "no reply to mfscli"
        return None if output.startswith("master info:") else output.strip()


class ChunkServer(_MooseFsServer):
    """Server that stores chunks in its storages."""

    kind = "moosefs-chunkserver"
    summary = "MooseFS chunk server: stores chunks of files in its storages."
    packages = (Package("mfschunkserver", "moosefs-chunkserver"), Package("mfscli", "moosefs-cli"))
    options = (_MASTER, Option("leave", "size", 256 << 20, "bytes to leave free in each storage"))
    default_ports = (9422,)

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return the metadata server."""
        return _named(spec, "master")

    def validation_error(self, spec: ServiceSpec, peers: Peers) -> str | None:
        """Return the error of a missing metadata server or storage, or ``None``."""
        missing_storage = (
            None if spec.storages else "expected a storage for chunks, found none; name one in `storage`"
        )
        return missing_storage or _no_master(spec, peers)

    def configure(self, context: ServiceContext) -> None:
        """Write the configuration, and create a directory for chunks in each storage.

        Raises
        ------
        BackendError
            If a program, the metadata server or a storage is missing.
        """
        require(context, self.packages)
        reject_invalid_options(self, context)
        disks = self._disks(context)
        run_checked(
            context.shell, ["rm", "-rf", *disks], where=context.spec.name, package="coreutils", timeout_s=_CLEAN_S
        )
        run_checked(context.shell, ["mkdir", "-p", *disks], where=context.spec.name, package="coreutils")
        context.write(context.directory / "disks.cfg", "".join(f"{disk}\n" for disk in disks))
        master = _master(context)
        values = {
            "account": account(context),
            "directory": context.directory,
            "address": context.address,
            "ports": _ports(context),
            "master": master,
            "master_ports": _ports(master),
            "leave_bytes": context.spec.options.get("leave_bytes") or self.options[1].default,
        }
        context.write(_config(context), (_COMMON + _CHUNK_LINES).format(**values))

    def ready(self, context: ServiceContext) -> str | None:
        """Query the chunk servers of the metadata server: it must list this one with its capacity."""
        listed = read_output(context.shell, _mfscli(_master(context), "-SCS")) or ""
        for line in listed.splitlines():
            fields = line.split("|")
            if fields[1:3] == [context.address, str(_ports(context)[0])]:
                return "its free space for chunks is not yet known" if fields[_TOTAL] == "0" else None
        return f"not yet among the chunk servers of {_master(context).spec.name}"

    def stop(self, context: ServiceContext, processes: Sequence[Process]) -> None:
        """Stop the server, and remove its chunks, which no other metadata server could use."""
        _kill(processes)
        with suppress(subprocess.TimeoutExpired):
            context.shell.run(["rm", "-rf", *self._disks(context)], timeout_s=_CLEAN_S)

    def _disks(self, context: ServiceContext) -> list[str]:
        return [str(context.path(storage) / f".{context.spec.name}") for storage in context.spec.storages]


class Mount:
    """FUSE mount of the file system on a host, which provides a storage there."""

    kind = "moosefs-mount"
    summary = "MooseFS mount: its storage is the file system, mounted on its host."
    packages = (
        Package("mfsmount", "moosefs-client"),
        Package("mfssetgoal", "moosefs-client"),
        Package("mountpoint", "util-linux"),
    )
    options = (
        _MASTER,
        Option("chunkservers", "text", None, "services of kind moosefs-chunkserver to wait for, separated by commas"),
        Option(
            "cache",
            "choice",
            "auto",
            "page cache of the kernel; direct bypasses it",
            choices=("auto", "never", "always", "direct"),
        ),
        Option("read_ahead", "size", 1 << 20, "bytes of read-ahead for sequential readers", minimum=1 << 16),
        Option("serial", "boolean", False, "run the requests of all readers and writers one after another"),
    )
    default_ports: tuple[int, ...] = ()
    provides_storages = True
    """Its storages exist only after its start, so their users must start later."""

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return the metadata server and the chunk servers."""
        return (*_named(spec, "master"), *_named(spec, "chunkservers"))

    def validation_error(self, spec: ServiceSpec, peers: Peers) -> str | None:
        """Return the error of a missing metadata server, or of a number of storages other than one, or ``None``."""
        many = len(spec.storages)
        return _no_master(spec, peers) or (None if many == 1 else f"expected one storage to provide, found {many}")

    def service_ports(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return nothing: the mount is a directory."""
        return {}

    def hosts_obstacle(self, spec: ServiceSpec) -> str | None:
        """Return the reason why it runs only in a lab."""
        return _OBSTACLE

    def configure(self, context: ServiceContext) -> None:
        """Create the mount point.

        Raises
        ------
        BackendError
            If a program or the metadata server is missing, the number of storages is not one, or the lab has no root.
        """
        require(context, self.packages)
        if not context.shell.privileged:
            raise BackendError(f"{context.spec.name}: expected root, for mounting, found a lab of another user")
        reject_invalid_options(self, context)
        run_checked(
            context.shell, ["mkdir", "-p", str(_point(context))], where=context.spec.name, package="coreutils"
        )

    def start(self, context: ServiceContext) -> Sequence[Process]:
        """Start the FUSE server, which mounts the file system."""
        master, options = _master(context), context.spec.options
        # Priority and memory policy as for the servers. If no chunk server can respond, fail instead of waiting.
        settings = [
            *("nonempty", "mfsnice=0", "mfsallowoomkiller", "mfserroronlostchunk", "mfserroronnospace"),
            f"mfscachemode={str(options.get('cache') or 'auto').upper()}",
            f"mfsreadaheadleng={options.get('read_ahead_bytes') or self.options[3].default}",
        ]
        where = ["-H", master.host_name, "-P", str(_ports(master)[2])]
        serial = ["-s"] if options.get("serial") else []
        argv = ["mfsmount", "-f", *serial, *where, "-o", ",".join(settings), str(_point(context))]
        return [context.shell.start(argv, log=_output(context))]

    def ready(self, context: ServiceContext) -> str | None:
        """Write a file and read it back."""
        copies = str(_master(context).spec.options.get("copies") or 1)
        lack = run_error(context.shell, ["sh", "-c", _TRY, "sh", str(_point(context)), copies])
        return lack and f"{_point(context)}: {lack.rpartition(': ')[2]}"

    def stop(self, context: ServiceContext, processes: Sequence[Process]) -> None:
        """Unmount, even if the mount is in use, and stop the FUSE server."""
        point = str(_point(context))
        done = None
        with suppress(subprocess.TimeoutExpired):
            done = context.shell.run(["umount", point], timeout_s=_UMOUNT_S)
        _kill(processes)
        if done is None or done.returncode:
            with suppress(subprocess.TimeoutExpired):
                context.shell.run(["umount", "--lazy", point], timeout_s=_UMOUNT_S)

    def logs(self, context: ServiceContext) -> Sequence[PurePath]:
        """Return the output file."""
        return [_output(context)]


_DEFAULT_PORTS = {kind.kind: kind.default_ports for kind in (Master, ChunkServer)}


def _kill(processes: Sequence[Process]) -> None:
    """Kill processes, because an orderly exit takes seconds to save data that is discarded anyway."""
    for process in reversed(processes):
        process.stop(signal=signal.SIGKILL)


def _named(spec: ServiceSpec, option: str) -> tuple[str, ...]:
    listed = str(spec.options.get(option) or "")
    return tuple(listed.replace(",", " ").split())


def _master(context: ServiceContext) -> ServiceContext:
    return context.peer(_named(context.spec, "master")[0])


def _no_master(spec: ServiceSpec, peers: Peers) -> str | None:
    master = next(map(peers, _named(spec, "master")), None)
    if master is not None and master.kind == Master.kind:
        return None
    found = f"{master.name} of kind {master.kind}" if master else "none"
    return f"expected the option master to name a service of kind moosefs-master, found {found}"


def _ports(context: ServiceContext) -> tuple[int, ...]:
    return with_defaults(context.spec.ports, _DEFAULT_PORTS[context.spec.kind])


def _mfscli(master: ServiceContext, found: str) -> list[str]:
    """Return the command of a query to a metadata server, with output in lines of fields between bars."""
    return ["mfscli", "-H", master.host_name, "-P", str(_ports(master)[2]), "-n", "-p", "-s", "|", found]


def _point(context: ServiceContext) -> PurePath:
    return context.path(context.spec.storages[0])


def _config(context: ServiceContext) -> PurePath:
    return context.directory / "moosefs.cfg"


def _output(context: ServiceContext) -> PurePath:
    return context.directory / "moosefs.out"
