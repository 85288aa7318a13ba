"""Squid: caching forward proxy with its cache in memory, in one or several processes.

Squid can use several cores in two ways. The option ``workers`` sets the processes of an instance, which can share a cache.
The option ``instances`` sets the separate servers on the same port (``SO_REUSEPORT``), each with its own cache. Sites ran
several instances before Squid supported workers.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePath

from venturi.mover.base import Option
from venturi.plan.header import OptionValue
from venturi.testbed.services.base import Package, Peers, Process, ServiceContext, ServiceSpec, reject_invalid_options
from venturi.testbed.services.client_calls import run_checked, run_error
from venturi.testbed.services.exposure import (
    OPEN,
    admitted_addresses,
    listen_address,
    local_address,
    require_ordinary_user,
)
from venturi.testbed.services.http_logs import proxy_transfers
from venturi.testbed.services.log_source import ControlLine, ServerTransfer
from venturi.testbed.services.programs import require

__all__ = ["Squid", "access_logs"]

_USER = "proxy"
_LISTENING = "Accepting HTTP Socket connections"

# maximum_object_size_in_memory: the default keeps no objects larger than 512 KB.
_CONFIGURATION = """\
{ports}
pid_filename {directory}/squid.pid
coredump_dir {directory}
access_log stdio:{directory}/access.log
cache_log {directory}/cache.log
{user}
visible_hostname {host_name}
unique_hostname {host_name}-{number}
{clients}
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


def access_logs(context: ServiceContext) -> list[PurePath]:
    """Return the access logs, one per instance, in Squid's native format."""
    return [_directory(context, number) / "access.log" for number in range(_instances(context))]


class Squid:
    """Caching proxy."""

    kind = "squid"
    summary = "Squid: forward proxy with a memory cache; several workers, or several instances on one port."
    packages = (Package("squid", "squid-openssl"), Package("curl", "curl"), Package("taskset", "util-linux"))
    options = (
        Option("workers", "integer", 1, "Processes of an instance."),
        Option("instances", "integer", 1, "Servers on the same port, each with its own cache."),
        Option("cpus", "text", None, 'Cores for the processes, in turn, such as "0,1".'),
        Option("shared_cache", "boolean", True, "Workers of an instance use one cache."),
        Option(
            "cache_memory",
            "size",
            256 << 20,
            "Memory for objects, per instance or, without shared_cache, per worker.",
        ),
        Option("object_limit", "size", 64 << 20, "Largest size of a cached object."),
        Option("collapsed_forwarding", "boolean", False, "Fetch an object once for all simultaneous requests."),
        Option("all_interfaces", "boolean", False, "Listen on all interfaces of the host."),
        Option(
            "process_rate",
            "rate",
            None,
            "Limit of the send rate of a process to all its clients, averaged over a second. It emulates the core of a slower machine.",
        ),
        OPEN,
    )
    default_ports = tuple(range(3128, 3144))

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return nothing: its clients choose the origin servers."""
        return ()

    def service_ports(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return ``http-proxy``: the proxy URL for clients, without a path."""
        return {"http-proxy": f"http://{host_name}:{{port}}"}

    def validation_error(self, spec: ServiceSpec, peers: Peers) -> str | None:
        """Return the error of ``cpus`` that is not a list of numbers, or ``None``."""
        found = spec.options["cpus"]
        fits = all(cpu.isdecimal() for cpu in _listed(found))
        return None if fits else f'expected cpus to be numbers of cores such as "0,1", found "{found}"'

    def hosts_obstacle(self, spec: ServiceSpec) -> str | None:
        """Return the reason why it runs only in a lab."""
        if spec.options.get("workers") in (None, 1):
            return None
        return "workers of squid run only in a lab, because they communicate in a directory of root; use instances"

    def configure(self, context: ServiceContext) -> None:
        """Write the configuration of each instance to a separate directory.

        Raises
        ------
        BackendError
            If a program is missing, or ``cpus`` is not a list of numbers.
        """
        require(context, self.packages)
        reject_invalid_options(self, context)
        require_ordinary_user(context, "squid")
        if not context.exposed:
            # The workers of an instance communicate here; no option changes the directory.
            run_checked(
                context.shell,
                ["install", "-d", "-m", "777", "/run/squid"],
                where=context.spec.name,
                package="coreutils",
            )
        for number in range(_instances(context)):
            directory = _directory(context, number)
            context.make_directory(directory, 0o777)
            context.write(directory / "squid.conf", self._configuration(context, number))

    def start(self, context: ServiceContext) -> Sequence[Process]:
        """Start all instances."""
        started = []
        for number in range(_instances(context)):
            directory, cpu = _directory(context, number), _pinned_cores(context, number)
            # With -N there are no workers.
            mode = "-N" if _workers(context) == 1 else "--foreground"
            pinned = ["taskset", "--cpu-list", str(cpu[0])] if cpu and mode == "-N" else []
            argv = [*pinned, "squid", "-n", _name(context, number), mode, "-f", str(directory / "squid.conf")]
            started.append(context.shell.start(argv, log=directory / "squid.out"))
        return started

    def ready(self, context: ServiceContext) -> str | None:
        """Wait until each process listens, and request the counters of the instance on each port."""
        expected = _workers(context) * len(context.spec.ports)
        for number in range(_instances(context)):
            log = _directory(context, number) / "cache.log"
            listening = context.read(log).count(_LISTENING) if context.exists(log) else 0
            if listening < expected:
                return f"squid {number}: {listening} of {expected} sockets listen"
        for port in context.spec.ports:
            # Use the name, because Squid answers requests about itself only under its visible_hostname.
            url = f"http://{context.host_name}:{port}/squid-internal-mgr/info"
            argv = [
                "curl",
                "-sS",
                "-f",
                "-m",
                "2",
                "--noproxy",
                "*",
                "-o",
                "/dev/null",
                *_resolved(context, port),
                url,
            ]
            lack = run_error(context.shell, argv)
            if lack is not None:
                return lack
        return None

    def stop(self, context: ServiceContext, processes: Sequence[Process]) -> None:
        """Stop each instance, which takes 2 s, and remove the shared memory of killed instances."""
        with ThreadPoolExecutor(max(1, len(processes))) as pool:
            for stopped in [pool.submit(process.stop, grace_s=10.0) for process in processes]:
                stopped.result()
        names = [_name(context, number) for number in range(_instances(context))]
        remove = 'for name; do rm -f "/dev/shm/$name-"* "/run/squid/$name-"*; done 2>/dev/null'
        context.shell.run(["sh", "-c", remove, "sh", *names], timeout_s=10.0)

    def logs(self, context: ServiceContext) -> Sequence[PurePath]:
        """Return the output and log files of the instances."""
        directories = [_directory(context, number) for number in range(_instances(context))]
        return [directory / name for directory in directories for name in ("squid.out", "cache.log")]

    def transfers(self, context: ServiceContext) -> Iterable[ServerTransfer]:
        """Yield the requests in the access logs of all instances."""
        return proxy_transfers([context.fetch(log) for log in access_logs(context)])

    def control(self, context: ServiceContext) -> Iterable[ControlLine]:
        """Yield nothing: HTTP has no control connection."""
        return ()

    def _configuration(self, context: ServiceContext, number: int) -> str:
        options = context.spec.options
        # worker-queues is SO_REUSEPORT. Workers of one instance inherit one socket instead.
        reuse = " worker-queues" if _instances(context) > 1 else ""
        address = "0.0.0.0" if options["all_interfaces"] else listen_address(context)
        return _CONFIGURATION.format(
            ports="\n".join(f"http_port {_in_url(address)}:{port}{reuse}" for port in context.spec.ports),
            clients=_client_lines(context),
            directory=_directory(context, number),
            user=f"cache_effective_user {_USER}" if context.switches_user else "",
            host_name=context.host_name,
            number=number,
            memory_bytes=options["cache_memory_bytes"],
            object_bytes=options["object_limit_bytes"],
            collapsed="on" if options["collapsed_forwarding"] else "off",
            workers="\n".join([*_worker_lines(context, number), *_rate_lines(context)]),
        )


def _client_lines(context: ServiceContext) -> str:
    """Return the access rules for clients: on a real host, only hosts of the testbed can use the proxy."""
    addresses = admitted_addresses(context)
    if addresses is None:
        return "http_access allow all"
    # The readiness check is a request from the host itself.
    listed = " ".join((*addresses, "127.0.0.1", "::1"))
    return f"acl clients src {listed}\nhttp_access allow clients\nhttp_access deny all"


def _resolved(context: ServiceContext, port: int) -> list[str]:
    """Return the curl options that reach the server from its own host, where its name might not resolve."""
    return ["--connect-to", f"::{_in_url(local_address(context))}:{port}"] if context.exposed else []


def _in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _worker_lines(context: ServiceContext, number: int) -> list[str]:
    workers = _workers(context)
    if workers == 1:
        return []
    lines = [f"workers {workers}", f"memory_cache_shared {'on' if context.spec.options['shared_cache'] else 'off'}"]
    cpus = _pinned_cores(context, number)
    if cpus:
        processes = ",".join(str(worker + 1) for worker in range(workers))
        # Squid numbers cores from 1.
        lines.append(f"cpu_affinity_map process_numbers={processes} cores={','.join(str(cpu + 1) for cpu in cpus)}")
    return lines


def _rate_lines(context: ServiceContext) -> list[str]:
    """Return the send limit of a process. It includes cached objects, which ``delay_pools`` does not limit."""
    rate = context.spec.options["process_rate_bytes_per_s"]
    if rate is None:
        return []
    # Squid refills the bucket once a second, so a smaller bucket would limit the rate further.
    bucket = f"aggregate-restore={rate} aggregate-maximum={rate}"
    return [
        f"response_delay_pool process {bucket} initial-bucket-level=100",
        "response_delay_pool_access process allow all",
    ]


def _cpus(context: ServiceContext) -> list[int]:
    return [int(cpu) for cpu in _listed(context.spec.options["cpus"])]


def _listed(cpus: OptionValue) -> list[str]:
    return str(cpus or "").replace(",", " ").split()


def _pinned_cores(context: ServiceContext, number: int) -> list[int]:
    """Return the cores of an instance's workers; empty if they are not pinned."""
    cpus, workers = _cpus(context), _workers(context)
    return [cpus[(number * workers + worker) % len(cpus)] for worker in range(workers)] if cpus else []


def _workers(context: ServiceContext) -> int:
    return int(str(context.spec.options["workers"]))


def _instances(context: ServiceContext) -> int:
    return int(str(context.spec.options["instances"]))


def _directory(context: ServiceContext, number: int) -> PurePath:
    return context.directory / str(number)


def _name(context: ServiceContext, number: int) -> str:
    """Return the name of an instance, which is a prefix of its files in /dev/shm: letters and digits only."""
    return f"v{zlib.crc32(context.spec.name.encode()):08x}i{number}"
