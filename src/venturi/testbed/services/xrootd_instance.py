"""What all kinds of XRootD server share: folder, account, doors, start, readiness. The kinds: :mod:`.xrootd`."""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from venturi.errors import RunError
from venturi.mover.base import Option
from venturi.testbed.services import xrootd_access as access
from venturi.testbed.services import xrootd_collector
from venturi.testbed.services import xrootd_config as config
from venturi.testbed.services.base import (
    Package,
    Peers,
    Process,
    Room,
    ServiceSpec,
    Use,
    files_only,
    refuse_mistake,
    serves_something,
)
from venturi.testbed.services.calls import answer_s, complaint
from venturi.testbed.services.ports import with_defaults
from venturi.testbed.services.programs import require
from venturi.testbed.services.witness import ControlLine, ServerTransfer
from venturi.testbed.services.xrootd_witness import accessed_files

__all__ = ["SHARED", "Instance"]

SHARED = Option("shared", "boolean", False, "one name space for a cluster: its data servers export their places as /")
_HTTP = Option(
    "http", "boolean", False, "HTTP and WebDAV too, on a port of its own if it has one, else on that of root://"
)
_MONITOR = Option("monitor", "boolean", False, "records of each file that is read or written, for xrootd_trace")

_MONITOR_ADDRESS = "127.0.0.1"
_FLUSH_S = 1
_CMSD_S = 5.0
_COLLECTOR_S = 20.0
# How long after its time the monitoring may come, on a busy machine.
_LATE_S = 5.0
_POLL_S = 0.01
# Each part says that it is initialised; the last line names the whole.
_INITIALISED = r"------ {} \S+ initialization completed"
# What every instance puts into its own environment while its logging thread, telling the time for the first time, looks for TZ there. glibc moves
# the environment whenever a variable is new, and the thread reads what is no longer there: 1 start in 30 ended with SIGSEGV on a busy
# machine. Variables that exist already are replaced where they are.
_EXPORTED = dict.fromkeys(
    (
        *("XRDADMINPATH", "XRDCONFIGFN", "XRDEXPORTS", "XRDHOST", "XRDINSTANCE", "XRDLOGDIR", "XRDNAME", "XRDPORT"),
        *("XRDPROG", "XRDREDIRECT", "XRDROLE"),
    ),
    "",
)


class Instance:
    """A server of the XRootD family; a kind adds its options, its configuration lines, and what it is a client of."""

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
    """What the monitoring reports besides files."""
    refers_to: str | None = None
    """The option that names another service of the family: its redirector or its origin."""

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return its KDC, and its redirector or origin."""
        other = self._other(spec)
        return (*access.kdc_of(spec), *((other,) if other else ()))

    def doors(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return root, with TLS roots, with HTTP http or (TLS) https and davs."""
        tail = "/{relative}" if spec.options.get("shared") else "{path}"
        protocols = {"root": "root", **({"roots": "roots"} if spec.options.get("tls") else {})}
        found = {door: f"{scheme}://{host_name}:{self._ports(spec)[0]}/{tail}" for door, scheme in protocols.items()}
        if spec.options.get("http"):
            schemes = ("https", "davs") if spec.options.get("tls") else ("http",)
            found |= {scheme: f"{scheme}://{host_name}:{self._http_port(spec)}{tail}" for scheme in schemes}
        return found

    def refusal(self, spec: ServiceSpec, use: Use) -> str | None:
        """Return why it serves no devices."""
        return files_only(use)

    def mistake(self, spec: ServiceSpec, peers: Peers) -> str | None:
        """Return that there is nothing to serve, or nobody who knows its clients."""
        return serves_something(spec) or access.mistake(spec, peers)

    def configure(self, room: Room) -> None:
        """Write the configuration, keys and certificates.

        Raises
        ------
        BackendError
            If a program, account, option or another service is missing or does not fit.
        """
        require(room, self.packages)
        refuse_mistake(self, room)
        home = self._home(room)
        home.mkdir(exist_ok=True)
        access.hand_over(home, access.account(room))
        lines = [
            *config.base(home, self._ports(room.spec)[0]),
            *config.exports(self._paths(room)),
            *self._lines(room),
        ]
        if room.spec.options.get("http"):
            own = self._http_port(room.spec)
            port = None if own == self._ports(room.spec)[0] else own
            host = access.host_credential(room)
            trusted = room.pki.certificates
            tls = bool(room.spec.options.get("tls"))
            lines += config.http(port, tls=tls, certificate=host.certificate, key=host.key, trusted=trusted)
        if room.spec.options.get("monitor"):
            lines += config.monitor(_MONITOR_ADDRESS, self._ports(room.spec)[0], self.event_streams, _FLUSH_S)
        lines += access.configure_access(room, self._peers(room))
        self._file(room).write_text("\n".join(lines) + "\n", encoding="utf-8")
        self._file(room).chmod(0o644)

    def start(self, room: Room) -> Sequence[Process]:
        """Start its programs in a folder of their own, under the account ``xrootd`` if root starts them."""
        environment = _EXPORTED | access.environment(room, self._peers(room))
        as_owner: list[str] = []
        if room.machine.privileged:
            # Not -R: it changes the effective account only, so that the programs which the server starts are taken for
            # set-uid ones, and the Kerberos library then ignores its variables.
            owner = access.account(room)
            as_owner = ["setpriv", f"--reuid={owner}", f"--regid={owner}", "--init-groups"]
        started = [self._start_collector(room)] if room.spec.options.get("monitor") else []
        for program in self._programs(room):
            # -I v4: with IPv6-mapped addresses names do not resolve, and third-party copies end after 60 s.
            argv = [program, "-I", "v4", "-z", "-c", str(self._file(room)), "-l", str(self._log(room, program))]
            out = room.folder / f"{program}.out"
            process = room.machine.start(
                [*as_owner, *argv], log=out, environment=environment, folder=self._home(room)
            )
            started.append(process)
            if program == "cmsd":
                self._await_cmsd(room, process)
        return started

    def ready(self, room: Room) -> str | None:
        """Ask for the first of its paths at each door."""
        for program in self._programs(room):
            if not self._initialised(room, program):
                return f"{program}: not initialised yet"
        environment = room.client_environment | _impatient()
        for door in self.doors(room.spec, room.host_name).values():
            lack = complaint(room.machine, self._question(room, door), environment=environment)
            if lack is not None:
                return lack
        return self._lack(room, environment)

    def stop(self, room: Room, processes: Sequence[Process]) -> None:
        """Stop its programs, once their monitoring has been sent; all else is in its folder."""
        if room.spec.options.get("monitor"):
            time.sleep(_FLUSH_S + 0.5)
            _wait(lambda: self._all_counted(room), processes, _LATE_S)
        for process in reversed(processes):
            process.stop()

    def logs(self, room: Room) -> Sequence[Path]:
        """Return what its programs printed, and their logs."""
        return [
            path
            for program in self._programs(room)
            for path in (room.folder / f"{program}.out", self._log(room, program))
        ]

    def records(self, room: Room) -> tuple[Path, Path]:
        """Return the log and the monitoring of a server with ``monitor = true``, for :mod:`venturi.testbed.xrootd_trace`."""
        return self._log(room, "xrootd"), self._home(room) / "monitoring.bin"

    def transfers(self, room: Room) -> Iterable[ServerTransfer]:
        """Yield the files that clients had open, with ``monitor = true``."""
        return accessed_files(*self.records(room)) if room.spec.options.get("monitor") else ()

    def control(self, room: Room) -> Iterable[ControlLine]:
        """Yield nothing: its protocol is binary, and has no channel for control alone."""
        return ()

    def _lines(self, room: Room) -> list[str]:
        """Return the configuration of its kind."""
        raise NotImplementedError

    def _programs(self, room: Room) -> tuple[str, ...]:
        return ("xrootd",)

    def _question(self, room: Room, door: str) -> list[str]:
        """Return a client's call that the server answers by itself, through a door."""
        url = door.format(path=self._paths(room)[0], relative="")
        if url.startswith("root"):
            server, _, path = url.partition("://")[2].partition("/")
            return ["xrdfs", f"{url.partition('://')[0]}://{server}", *self._inquiry(path)]
        curl = ["curl", "-sS", "-f", "-o", "/dev/null", "--cacert", str(room.pki.authority)]
        return [*curl, *self._http_inquiry(url.replace("davs://", "https://", 1))]

    def _inquiry(self, path: str) -> tuple[str, ...]:
        return ("stat", path)

    def _http_inquiry(self, url: str) -> tuple[str, ...]:
        return ("-X", "PROPFIND", "-H", "Depth: 0", url)

    def _lack(self, room: Room, environment: Mapping[str, str]) -> str | None:
        """Return what else is not yet as it should be."""
        return None

    def _other(self, spec: ServiceSpec) -> str | None:
        """Return the service that its option names."""
        named = spec.options.get(self.refers_to) if self.refers_to else None
        return str(named) if named else None

    def _peers(self, room: Room) -> tuple[Room, ...]:
        other = self._other(room.spec)
        return (room.peer(other),) if other else ()

    def _paths(self, room: Room) -> list[Path]:
        return [Path("/")] if room.spec.options.get("shared") else [room.path(place) for place in room.spec.places]

    def _ports(self, spec: ServiceSpec) -> tuple[int, ...]:
        return with_defaults(spec.ports, self.default_ports)

    def _http_port(self, spec: ServiceSpec) -> int:
        ports = self._ports(spec)
        return ports[len(self.default_ports)] if len(ports) > len(self.default_ports) else ports[0]

    def _start_collector(self, room: Room) -> Process:
        # What the server says before somebody listens is lost, and it says but once who its clients are.
        ready = room.folder / "collector.ready"
        ready.unlink(missing_ok=True)
        # -I -S: nothing of anybody's environment or site is loaded. The UDP port has the number of the server's TCP port.
        where = (_MONITOR_ADDRESS, str(self._ports(room.spec)[0]), str(self.records(room)[1]), str(ready))
        argv = [sys.executable, "-I", "-S", str(Path(xrootd_collector.__file__)), *where]
        process = room.machine.start(argv, log=room.folder / "collector.out")
        _wait(ready.exists, [process], _COLLECTOR_S)
        return process

    def _all_counted(self, room: Room) -> bool:
        """Return whether the monitoring has the bytes of all files that were closed, as far as anybody understands it."""
        try:
            return all(file.sent_bytes is not None for file in accessed_files(*self.records(room)))
        except RunError:
            return True

    def _await_cmsd(self, room: Room, process: Process) -> None:
        """Wait until cmsd listens: an xrootd that does not find its cmsd looks again only after 10 s."""
        _wait(lambda: self._initialised(room, "cmsd"), [process], _CMSD_S)

    def _initialised(self, room: Room, program: str) -> bool:
        return re.search(_INITIALISED.format(program), _text(self._log(room, program))) is not None

    def _home(self, room: Room) -> Path:
        return room.folder / "home"

    def _file(self, room: Room) -> Path:
        return room.folder / "xrootd.cfg"

    def _log(self, room: Room, program: str) -> Path:
        return self._home(room) / f"{program}.log"


def _wait(is_so: Callable[[], bool], processes: Iterable[Process], most_s: float) -> None:
    """Wait for something that comes from processes, as long as all of them run."""
    deadline_s = time.monotonic() + most_s
    while not is_so() and all(process.poll() is None for process in processes) and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _impatient() -> dict[str, str]:
    """Return what lets a client give up at once instead of after minutes: whoever waits for a server asks again, with more patience the longer it takes."""
    connects_s = math.ceil(answer_s() / 2)
    answers_s = str(2 * connects_s)
    return {
        "XRD_CONNECTIONWINDOW": str(connects_s),
        "XRD_CONNECTIONRETRY": "1",
        "XRD_REQUESTTIMEOUT": answers_s,
        "XRD_STREAMTIMEOUT": answers_s,
        "XRD_TIMEOUTRESOLUTION": "1",
    }
