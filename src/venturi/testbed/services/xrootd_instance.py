"""Common base of all kinds of XRootD server (:mod:`venturi.testbed.services.xrootd`): directory, account, ports, start."""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath

from venturi.errors import BackendError, RunError
from venturi.mover.base import Option
from venturi.testbed.services import xrootd_access as access
from venturi.testbed.services import xrootd_collector
from venturi.testbed.services import xrootd_config as config
from venturi.testbed.services.base import (
    Package,
    Peers,
    Process,
    ServiceContext,
    ServiceSpec,
    Use,
    files_only,
    missing_storage_error,
    reject_invalid_options,
)
from venturi.testbed.services.client_calls import client_limit_s, run_error
from venturi.testbed.services.exposure import require_ordinary_user
from venturi.testbed.services.log_source import ControlLine, ServerTransfer
from venturi.testbed.services.ports import with_defaults
from venturi.testbed.services.programs import require
from venturi.testbed.services.xrootd_logs import accessed_files

__all__ = ["SHARED", "Instance"]

SHARED = Option(
    "shared", "boolean", False, "one name space for a cluster: its data servers export their storages as /"
)
_HTTP = Option(
    "http", "boolean", False, "serve HTTP and WebDAV, too, on a second port if set, otherwise on the port of root://"
)
_MONITOR = Option("monitor", "boolean", False, "record each file that is read or written, for xrootd_trace")

_MONITOR_ADDRESS = "127.0.0.1"
_FLUSH_S = 1
_CMSD_S = 5.0
_COLLECTOR_S = 20.0
# Maximum delay of the monitoring on a busy machine.
_LATE_S = 5.0
_POLL_S = 0.01
_NAME_S = 10.0
# Each component logs its own initialization; the last line is for the whole program.
_INITIALISED = r"------ {} \S+ initialization completed"
# Variables that each instance adds to its own environment, while its logging thread looks up TZ there for its first time
# stamp. For each new variable, glibc moves the environment, so the thread can read freed memory. On a busy machine, 1 start in
# 30 ended with SIGSEGV. Variables that exist already are replaced in place.
_EXPORTED = dict.fromkeys(
    (
        *("XRDADMINPATH", "XRDCONFIGFN", "XRDEXPORTS", "XRDHOST", "XRDINSTANCE", "XRDLOGDIR", "XRDNAME", "XRDPORT"),
        *("XRDPROG", "XRDREDIRECT", "XRDROLE"),
    ),
    "",
)


class Instance:
    """Server of the XRootD family. Each kind adds its options, its configuration lines, and the servers that it uses."""

    kind = "xrootd"
    summary = ""
    packages: tuple[Package, ...] = (
        Package("xrootd", "xrootd-server"),
        Package("xrdfs", "xrootd-client"),
        Package("xrdcp", "xrootd-client"),
        Package("curl", "curl"),
        Package("setpriv", "util-linux"),
    )
    options: tuple[Option, ...] = (*access.ACCESS_OPTIONS, _HTTP, _MONITOR)
    default_ports: tuple[int, ...] = (1094,)
    event_streams: tuple[str, ...] = ("tpc",)
    """Events that the monitoring reports in addition to files."""
    refers_to: str | None = None
    """Option that names another service of the family: its redirector or its origin."""

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return the KDC, and the redirector or origin."""
        other = self._other(spec)
        return (*access.find_kdc(spec), *((other,) if other else ()))

    def service_ports(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return ``root``; with TLS also ``roots``; with HTTP also ``http``, or with TLS ``https`` and ``davs``."""
        tail = "/{relative}" if spec.options.get("shared") else "{path}"
        # One port for all protocols: on a real host, the port is only known at the start.
        one = len(spec.ports) == 1
        root_port = "{port}" if one else str(self._ports(spec)[0])
        http_port = "{port}" if one else str(self._http_port(spec))
        protocols = {"root": "root", **({"roots": "roots"} if spec.options.get("tls") else {})}
        found = {
            service_port: f"{scheme}://{host_name}:{root_port}/{tail}" for service_port, scheme in protocols.items()
        }
        if spec.options.get("http"):
            schemes = ("https", "davs") if spec.options.get("tls") else ("http",)
            found |= {scheme: f"{scheme}://{host_name}:{http_port}{tail}" for scheme in schemes}
        return found

    def unsupported_use(self, spec: ServiceSpec, use: Use) -> str | None:
        """Return why it serves no devices."""
        return files_only(use)

    def validation_error(self, spec: ServiceSpec, peers: Peers) -> str | None:
        """Return the error of missing storages or a missing KDC, or ``None``."""
        return missing_storage_error(spec) or access.validation_error(spec, peers)

    def hosts_obstacle(self, spec: ServiceSpec) -> str | None:
        """Return the reason why it runs only in a lab."""
        if spec.options.get("auth") == "krb5":
            return 'auth = "krb5" works only in a lab, because it needs a service of kind kdc'
        if spec.options.get("monitor"):
            return "monitor = true works only in a lab, because its collector needs Python on the host"
        if len(spec.ports) > 1:
            return "expected one port, which HTTP shares, because ports on existing hosts are chosen at the start of a run, found several"
        return None

    def configure(self, context: ServiceContext) -> None:
        """Write the configuration, keys and certificates.

        Raises
        ------
        BackendError
            If a program, account, option or another service is missing or does not fit.
        """
        require(context, self.packages)
        reject_invalid_options(self, context)
        home = self._home(context)
        require_ordinary_user(context, "xrootd")
        _require_host_name(context)
        context.make_directory(home)
        access.hand_over(context, home, access.account(context))
        lines = [
            *config.base(self._admin(context), home, self._ports(context.spec)[0]),
            *config.exports(self._paths(context)),
            *self._lines(context),
        ]
        if context.spec.options.get("http"):
            own = self._http_port(context.spec)
            port = None if own == self._ports(context.spec)[0] else own
            host = access.host_credential(context)
            trusted = context.pki.certificates
            tls = bool(context.spec.options.get("tls"))
            lines += config.http(port, tls=tls, certificate=host.certificate, key=host.key, trusted=trusted)
        if context.spec.options.get("monitor"):
            lines += config.monitor(_MONITOR_ADDRESS, self._ports(context.spec)[0], self.event_streams, _FLUSH_S)
        lines += access.configure_access(context, self._peers(context))
        lines += access.admission(context, clustered=len(self._programs(context)) > 1)
        context.write(self._file(context), "\n".join(lines) + "\n")

    def start(self, context: ServiceContext) -> Sequence[Process]:
        """Start the programs in a separate directory; under root, with the account ``xrootd``."""
        environment = _EXPORTED | access.environment(context, self._peers(context))
        as_owner: list[str] = []
        if context.switches_user:
            # Not -R, which changes only the effective account: programs that the server starts would look set-uid, and the
            # Kerberos library would ignore its variables.
            owner = access.account(context)
            as_owner = ["setpriv", f"--reuid={owner}", f"--regid={owner}", "--init-groups"]
        started = [self._start_collector(context)] if context.spec.options.get("monitor") else []
        for program in self._programs(context):
            # -I v4: IPv6-mapped addresses do not resolve to names, and third-party copies would end after 60 s.
            version = ["-I", "v4"] if ":" not in context.address else []
            # -s: XRootD writes an environment file next to the PID file; without the option, it writes to /tmp.
            pid_file = str(self._home(context) / f"{program}.pid")
            argv = [program, *version, "-z", "-c", str(self._file(context)), "-l", str(self._log(context, program))]
            argv += ["-s", pid_file]
            out = context.directory / f"{program}.out"
            process = context.shell.start(
                [*as_owner, *argv], log=out, environment=environment, directory=self._home(context)
            )
            started.append(process)
            if program == "cmsd":
                self._await_cmsd(context, process)
        return started

    def ready(self, context: ServiceContext) -> str | None:
        """Request the first of its paths at each service port."""
        for program in self._programs(context):
            if not self._initialised(context, program):
                return f"{program}: not initialised yet"
        environment = context.client_variables() | _impatient()
        for service_port in self.service_ports(context.spec, context.host_name).values():
            lack = run_error(context.shell, self._probe_script(context, service_port), environment=environment)
            if lack is not None:
                return lack
        return self._lack(context, environment)

    def stop(self, context: ServiceContext, processes: Sequence[Process]) -> None:
        """Stop the programs after their monitoring has arrived; other resources are in the directory."""
        if context.spec.options.get("monitor"):
            time.sleep(_FLUSH_S + 0.5)
            _wait(lambda: self._all_counted(context), processes, _LATE_S)
        for process in reversed(processes):
            process.stop()

    def logs(self, context: ServiceContext) -> Sequence[PurePath]:
        """Return the output files and logs of its programs."""
        return [
            path
            for program in self._programs(context)
            for path in (context.directory / f"{program}.out", self._log(context, program))
        ]

    def records(self, context: ServiceContext) -> tuple[PurePath, PurePath]:
        """Return the log and the monitoring of a server with ``monitor = true``, for :mod:`venturi.testbed.xrootd_trace`."""
        return self._log(context, "xrootd"), self._home(context) / "monitoring.bin"

    def transfers(self, context: ServiceContext) -> Iterable[ServerTransfer]:
        """Yield the files that clients had open; requires ``monitor = true``."""
        return (
            accessed_files(*map(context.fetch, self.records(context))) if context.spec.options.get("monitor") else ()
        )

    def control(self, context: ServiceContext) -> Iterable[ControlLine]:
        """Yield nothing: the protocol is binary and has no separate control connection."""
        return ()

    def _lines(self, context: ServiceContext) -> list[str]:
        """Return the configuration lines of the kind."""
        raise NotImplementedError

    def _programs(self, context: ServiceContext) -> tuple[str, ...]:
        return ("xrootd",)

    def _probe_script(self, context: ServiceContext, service_port: str) -> list[str]:
        """Return a client command for a service port that the server answers without other servers."""
        url = service_port.format(path=self._paths(context)[0], relative="", port=self._ports(context.spec)[0])
        if url.startswith("root"):
            server, _, path = url.partition("://")[2].partition("/")
            return ["xrdfs", f"{url.partition('://')[0]}://{server}", *self._inquiry(path)]
        curl = ["curl", "-sS", "-f", "-o", "/dev/null", "--cacert", str(context.pki.authority)]
        return [*curl, *self._http_inquiry(url.replace("davs://", "https://", 1))]

    def _inquiry(self, path: str) -> tuple[str, ...]:
        return ("stat", path)

    def _http_inquiry(self, url: str) -> tuple[str, ...]:
        return ("-X", "PROPFIND", "-H", "Depth: 0", url)

    def _lack(self, context: ServiceContext, environment: Mapping[str, str]) -> str | None:
        """Return a further reason why the server is not ready, or None."""
        return None

    def _other(self, spec: ServiceSpec) -> str | None:
        """Return the service that the option ``refers_to`` names."""
        named = spec.options.get(self.refers_to) if self.refers_to else None
        return str(named) if named else None

    def _peers(self, context: ServiceContext) -> tuple[ServiceContext, ...]:
        other = self._other(context.spec)
        return (context.peer(other),) if other else ()

    def _paths(self, context: ServiceContext) -> list[PurePath]:
        return (
            [PurePath("/")]
            if context.spec.options.get("shared")
            else [context.path(storage) for storage in context.spec.storages]
        )

    def _ports(self, spec: ServiceSpec) -> tuple[int, ...]:
        return with_defaults(spec.ports, self.default_ports)

    def _http_port(self, spec: ServiceSpec) -> int:
        ports = self._ports(spec)
        return ports[len(self.default_ports)] if len(ports) > len(self.default_ports) else ports[0]

    def _start_collector(self, context: ServiceContext) -> Process:
        # Datagrams sent before the collector listens are lost, and the server reports each client only once.
        ready = context.directory / "collector.ready"
        context.remove(ready)
        # -I -S: loads no environment and no site packages. The UDP port has the number of the server's TCP port.
        where = (_MONITOR_ADDRESS, str(self._ports(context.spec)[0]), str(self.records(context)[1]), str(ready))
        argv = [sys.executable, "-I", "-S", str(xrootd_collector.__file__), *where]
        process = context.shell.start(argv, log=context.directory / "collector.out")
        _wait(lambda: context.exists(ready), [process], _COLLECTOR_S)
        return process

    def _all_counted(self, context: ServiceContext) -> bool:
        """Return whether the monitoring has the bytes of all closed files; True if its format is unknown."""
        try:
            files = accessed_files(*map(context.fetch, self.records(context)))
            return all(file.sent_bytes is not None for file in files)
        except RunError:
            return True

    def _await_cmsd(self, context: ServiceContext, process: Process) -> None:
        """Wait until cmsd listens, because an xrootd that does not find its cmsd retries only after 10 s."""
        _wait(lambda: self._initialised(context, "cmsd"), [process], _CMSD_S)

    def _initialised(self, context: ServiceContext, program: str) -> bool:
        log = self._log(context, program)
        return context.exists(log) and re.search(_INITIALISED.format(program), context.read(log)) is not None

    def _home(self, context: ServiceContext) -> PurePath:
        return context.directory / "home"

    def _admin(self, context: ServiceContext) -> PurePath:
        """Return the directory for sockets, on a real host below the working directory: socket names have at most 107 bytes."""
        return (PurePath("/proc/self/cwd") if context.exposed else self._home(context)) / "admin"

    def _file(self, context: ServiceContext) -> PurePath:
        return context.directory / "xrootd.cfg"

    def _log(self, context: ServiceContext, program: str) -> PurePath:
        return self._home(context) / f"{program}.log"


def _wait(is_so: Callable[[], bool], processes: Iterable[Process], most_s: float) -> None:
    """Wait for a condition, while all processes run, for at most ``most_s`` seconds."""
    deadline_s = time.monotonic() + most_s
    while not is_so() and all(process.poll() is None for process in processes) and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)


def _require_host_name(context: ServiceContext) -> None:
    """Reject a real host whose own name does not resolve, because xrootd would exit with the reason only in its log."""
    if not context.exposed:
        return
    done = context.shell.run(["sh", "-c", 'getent hosts "$(uname -n)"'], timeout_s=_NAME_S)
    if done.returncode:
        name = context.shell.run(["uname", "-n"], timeout_s=_NAME_S).stdout.strip()
        raise BackendError(
            f"{context.spec.name}: expected a host name of {context.shell.name} that resolves there, because xrootd needs it, found {name};"
            " add it to /etc/hosts, or use another kind of service"
        )


def _impatient() -> dict[str, str]:
    """Return the environment of a client that fails within seconds instead of minutes; the readiness check retries it."""
    connects_s = math.ceil(client_limit_s() / 2)
    timeout_s = str(2 * connects_s)
    return {
        "XRD_CONNECTIONWINDOW": str(connects_s),
        "XRD_CONNECTIONRETRY": "1",
        "XRD_REQUESTTIMEOUT": timeout_s,
        "XRD_STREAMTIMEOUT": timeout_s,
        "XRD_TIMEOUTRESOLUTION": "1",
    }
