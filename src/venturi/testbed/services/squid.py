"""Squid: a caching forward proxy with its cache in memory, over one or several processes.

Two ways to use several cores. ``workers``: processes of one instance, which can share one cache. ``instances``: servers of
their own on the same port (``SO_REUSEPORT``), each with its own cache, as sites ran them before Squid had workers.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from venturi.mover.base import Option
from venturi.plan.header import OptionValue
from venturi.testbed.services.base import Package, Peers, Process, Room, ServiceSpec, refuse_mistake
from venturi.testbed.services.calls import complaint, must
from venturi.testbed.services.http_witness import proxy_transfers
from venturi.testbed.services.programs import require
from venturi.testbed.services.witness import ControlLine, ServerTransfer

__all__ = ["Squid", "access_logs"]

_USER = "proxy"
_LISTENING = "Accepting HTTP Socket connections"

# maximum_object_size_in_memory: by default objects beyond 512 KB are not kept.
_CONFIGURATION = """\
{ports}
pid_filename {folder}/squid.pid
coredump_dir {folder}
access_log stdio:{folder}/access.log
cache_log {folder}/cache.log
{user}
visible_hostname {host_name}
unique_hostname {host_name}-{number}
http_access allow all
icp_port 0
pinger_enable off
hosts_file /etc/hosts
cache_mem {memory_bytes} bytes
maximum_object_size_in_memory {object_bytes} bytes
maximum_object_size {object_bytes} bytes
collapsed_forwarding {collapsed}
shutdown_lifetime 0 seconds
{workers}
"""


def access_logs(room: Room) -> list[Path]:
    """Return the access logs, one an instance, in Squid's native form."""
    return [_folder(room, number) / "access.log" for number in range(_instances(room))]


class Squid:
    """A caching proxy."""

    kind = "squid"
    summary = "Squid: a forward proxy that caches in memory; several workers, or several instances on one port."
    packages = (Package("squid", "squid-openssl"), Package("curl", "curl"), Package("taskset", "util-linux"))
    options = (
        Option("workers", "integer", 1, "Processes of an instance."),
        Option("instances", "integer", 1, "Servers on the same port, each with a cache of its own."),
        Option("cpus", "text", None, 'Cores that processes are bound to in turn, such as "0,1".'),
        Option("shared_cache", "boolean", True, "The workers of an instance have one cache together."),
        Option(
            "cache_memory", "size", 256 << 20, "Memory for objects: of an instance, or of a worker if not shared."
        ),
        Option("object_limit", "size", 64 << 20, "Objects beyond this are not kept."),
        Option("collapsed_forwarding", "boolean", False, "Fetch an object once for all who ask for it meanwhile."),
        Option("all_interfaces", "boolean", False, "Listen on every interface of its host, not on its own alone."),
        Option(
            "process_rate",
            "rate",
            None,
            "Send at most so fast to all clients of a process together: what the core of a slower machine can. Counted by the second.",
        ),
    )
    default_ports = tuple(range(3128, 3144))

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return nothing: it fetches from whomever its clients name."""
        return ()

    def doors(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return ``http-proxy``: what a client is given as its proxy, without a path."""
        return {"http-proxy": f"http://{host_name}:{{port}}"}

    def mistake(self, spec: ServiceSpec, peers: Peers) -> str | None:
        """Return that its cores are no numbers."""
        found = spec.options["cpus"]
        fits = all(cpu.isdecimal() for cpu in _listed(found))
        return None if fits else f'expected cpus to be numbers of cores such as "0,1", found "{found}"'

    def configure(self, room: Room) -> None:
        """Write the configuration of each instance, in a folder of its own.

        Raises
        ------
        BackendError
            If a program is missing, or ``cpus`` is not a list of numbers.
        """
        require(room, self.packages)
        refuse_mistake(self, room)
        # Here the workers of an instance talk to each other; no option tells another place.
        must(room.machine, ["install", "-d", "-m", "777", "/run/squid"], where=room.spec.name, package="coreutils")
        for number in range(_instances(room)):
            folder = _folder(room, number)
            folder.mkdir(exist_ok=True)
            folder.chmod(0o777)
            (folder / "squid.conf").write_text(self._configuration(room, number), encoding="utf-8")

    def start(self, room: Room) -> Sequence[Process]:
        """Start each instance."""
        started = []
        for number in range(_instances(room)):
            folder, cpu = _folder(room, number), _bound(room, number)
            # With -N there are no workers.
            mode = "-N" if _workers(room) == 1 else "--foreground"
            bound = ["taskset", "--cpu-list", str(cpu[0])] if cpu and mode == "-N" else []
            argv = [*bound, "squid", "-n", _name(room, number), mode, "-f", str(folder / "squid.conf")]
            started.append(room.machine.start(argv, log=folder / "squid.out"))
        return started

    def ready(self, room: Room) -> str | None:
        """Wait until each process listens, and ask the instance behind each port for its counters."""
        expected = _workers(room) * len(room.spec.ports)
        for number in range(_instances(room)):
            log = _folder(room, number) / "cache.log"
            listening = log.read_text(errors="replace").count(_LISTENING) if log.exists() else 0
            if listening < expected:
                return f"squid {number}: {listening} of {expected} sockets listen"
        for port in room.spec.ports:
            # By name: Squid answers for itself only where it is called as in visible_hostname.
            url = f"http://{room.host_name}:{port}/squid-internal-mgr/info"
            argv = ["curl", "-sS", "-f", "-m", "2", "--noproxy", "*", "-o", "/dev/null", url]
            lack = complaint(room.machine, argv)
            if lack is not None:
                return lack
        return None

    def stop(self, room: Room, processes: Sequence[Process]) -> None:
        """Stop each instance, which takes it 2 s, and remove shared memory that one which was killed has left."""
        with ThreadPoolExecutor(max(1, len(processes))) as pool:
            for stopped in [pool.submit(process.stop, grace_s=10.0) for process in processes]:
                stopped.result()
        names = [_name(room, number) for number in range(_instances(room))]
        remove = 'for name; do rm -f "/dev/shm/$name-"* "/run/squid/$name-"*; done'
        room.machine.run(["sh", "-c", remove, "sh", *names], timeout_s=10.0)

    def logs(self, room: Room) -> Sequence[Path]:
        """Return what the instances printed and their logs."""
        folders = [_folder(room, number) for number in range(_instances(room))]
        return [folder / name for folder in folders for name in ("squid.out", "cache.log")]

    def transfers(self, room: Room) -> Iterable[ServerTransfer]:
        """Yield the requests of its access logs, those of all instances."""
        return proxy_transfers(access_logs(room))

    def control(self, room: Room) -> Iterable[ControlLine]:
        """Yield nothing: HTTP has no control channel."""
        return ()

    def _configuration(self, room: Room, number: int) -> str:
        options = room.spec.options
        # worker-queues is SO_REUSEPORT. Workers of one instance inherit one socket instead.
        reuse = " worker-queues" if _instances(room) > 1 else ""
        address = "0.0.0.0" if options["all_interfaces"] else room.address
        return _CONFIGURATION.format(
            ports="\n".join(f"http_port {address}:{port}{reuse}" for port in room.spec.ports),
            folder=_folder(room, number),
            user=f"cache_effective_user {_USER}" if room.machine.privileged else "",
            host_name=room.host_name,
            number=number,
            memory_bytes=options["cache_memory_bytes"],
            object_bytes=options["object_limit_bytes"],
            collapsed="on" if options["collapsed_forwarding"] else "off",
            workers="\n".join([*_worker_lines(room, number), *_rate_lines(room)]),
        )


def _worker_lines(room: Room, number: int) -> list[str]:
    workers = _workers(room)
    if workers == 1:
        return []
    lines = [f"workers {workers}", f"memory_cache_shared {'on' if room.spec.options['shared_cache'] else 'off'}"]
    cpus = _bound(room, number)
    if cpus:
        processes = ",".join(str(worker + 1) for worker in range(workers))
        # Squid numbers cores from 1.
        lines.append(f"cpu_affinity_map process_numbers={processes} cores={','.join(str(cpu + 1) for cpu in cpus)}")
    return lines


def _rate_lines(room: Room) -> list[str]:
    """Return the limit of what a process sends, objects of its cache included, which ``delay_pools`` leaves alone."""
    rate = room.spec.options["process_rate_bytes_per_s"]
    if rate is None:
        return []
    # The bucket is filled up once a second: a smaller one would hold less than a second's worth.
    bucket = f"aggregate-restore={rate} aggregate-maximum={rate}"
    return [
        f"response_delay_pool process {bucket} initial-bucket-level=100",
        "response_delay_pool_access process allow all",
    ]


def _cpus(room: Room) -> list[int]:
    return [int(cpu) for cpu in _listed(room.spec.options["cpus"])]


def _listed(cpus: OptionValue) -> list[str]:
    return str(cpus or "").replace(",", " ").split()


def _bound(room: Room, number: int) -> list[int]:
    """Return the cores of the workers of an instance, nothing if they are not bound."""
    cpus, workers = _cpus(room), _workers(room)
    return [cpus[(number * workers + worker) % len(cpus)] for worker in range(workers)] if cpus else []


def _workers(room: Room) -> int:
    return int(str(room.spec.options["workers"]))


def _instances(room: Room) -> int:
    return int(str(room.spec.options["instances"]))


def _folder(room: Room, number: int) -> Path:
    return room.folder / str(number)


def _name(room: Room, number: int) -> str:
    """Return the name of an instance, which its files in /dev/shm begin with: letters and digits only."""
    return f"v{zlib.crc32(room.spec.name.encode()):08x}i{number}"
