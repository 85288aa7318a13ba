"""Life cycle of a lab: start, status queries, link changes, shutdown."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from venturi.errors import BackendError
from venturi.plan.codec import HEADER
from venturi.plan.header import Header
from venturi.testbed.lab import host_setup, status
from venturi.testbed.lab.cleanup import remove_remains, sweep
from venturi.testbed.lab.emulator import NetworkEmulator
from venturi.testbed.lab.groups import make_idle_group
from venturi.testbed.lab.host_shell import LabHostShell
from venturi.testbed.lab.interfaces import FoundSettings, tcp_settings
from venturi.testbed.lab.memory import claim_tcp_memory, needed_pages
from venturi.testbed.lab.namespaces import LabNamespaces
from venturi.testbed.lab.paths import in_flight_bytes
from venturi.testbed.lab.probe_runner import record_probes, run_probes
from venturi.testbed.lab.probes import Probe
from venturi.testbed.lab.registry import PARENT_VARIABLE, LabEntry, new_entry
from venturi.testbed.lab.service_contexts import lab_contexts, storage_paths
from venturi.testbed.lab.spec import LabSpec, read_lab_spec
from venturi.testbed.lab.versions import package_versions
from venturi.testbed.pki import Pki
from venturi.testbed.record_buffer import NETWORK, Listener, RecordBuffer
from venturi.testbed.server_events import record_server_events
from venturi.testbed.service_manager import RunningService, ServiceManager, exit_description

__all__ = ["Lab"]


class Lab:
    """Running emulated testbed.

    Create it with :meth:`up`. As a context manager, it shuts down on exit.

    Attributes
    ----------
    directory
        Directory of the lab, removed on shutdown.
    scratch
        Directory of the hosts' files: host ``a`` has ``scratch/a``.
    shells
        Host → :class:`LabHostShell`.
    client_environment
        Environment variables for clients of the services.
    probes
        Results of the probes.
    changed_links
        Link → settings that changed since the lab started.
    took_s
        Startup step → duration in seconds.

    Examples
    --------
    >>> with Lab.up(header, engine=find_engine()) as lab:  # doctest: +SKIP
    ...     print(lab.shell("a").run(["ping", "-c", "1", "b"], timeout_s=5).stdout)
    """

    def __init__(
        self,
        header: Header,
        entry: LabEntry,
        *,
        engine: Path,
        scratch: Path | None,
        epoch_unix_ns: int,
        interval_s: float | None,
    ) -> None:
        self.spec: LabSpec = read_lab_spec(header)
        self.directory = entry.directory
        self.scratch = scratch.absolute() if scratch is not None else entry.directory / "scratch"
        self.shells: dict[str, LabHostShell] = {}
        self.client_environment: dict[str, str] = {}
        self.probes: list[Probe] = []
        self.took_s: dict[str, float] = {}
        self.changed_links: dict[str, dict[str, Any]] = {}
        self.root = os.geteuid() == 0
        self._entry = entry
        self._engine = engine
        self._interval_s = interval_s
        self._records = RecordBuffer(epoch_unix_ns)
        self._groups: host_setup.Groups = {}
        self._disks: list[host_setup.Disk] = []
        self._namespaces: LabNamespaces | None = None
        self._emulator: NetworkEmulator | None = None
        self._services: ServiceManager | None = None
        self._versions: dict[str, str] = {}
        self._problems: list[str] = []
        self._server_events_recorded = False
        self._started_s = time.monotonic()

    @classmethod
    def up(
        cls,
        header: Header,
        *,
        engine: Path,
        scratch: Path | None = None,
        parent: Path | None = None,
        epoch_unix_ns: int | None = None,
        interval_s: float | None = None,
        probe: bool = True,
        keep_logs: Path | None = None,
        on_step: Callable[[str], None] = lambda step: None,
    ) -> Lab:
        """Start a lab, after removing the remains of dead labs.

        Parameters
        ----------
        header
            Header of the plan.
        engine
            Path of the ``venturi-engine`` program.
        scratch
            Directory that keeps the hosts' files for later labs. Default: in the lab's directory, removed on shutdown.
        parent
            Parent of the lab's directory. Default: :func:`venturi.testbed.lab.registry.labs_parent`.
        epoch_unix_ns
            Time origin of the records. Default: now.
        interval_s
            Sampling interval of the links; ``None``: no samples.
        probe
            Check all limits and links before returning.
        keep_logs
            Directory that receives the logs if the start fails.
        on_step
            Called with a short description of each step.

        Raises
        ------
        BackendError
            If a requirement or permission is missing, or the start fails. The lab is then removed.
        """
        for problem in sweep(parent):
            on_step(problem)
        entry = new_entry(header.name, parent)
        epoch_unix_ns = time.time_ns() if epoch_unix_ns is None else epoch_unix_ns
        try:
            lab = cls(
                header, entry, engine=engine, scratch=scratch, epoch_unix_ns=epoch_unix_ns, interval_s=interval_s
            )
        except BaseException:
            entry.close()
            raise
        try:
            lab._come_up(probe=probe, on_step=on_step)
        except BaseException:
            if keep_logs is not None:
                with suppress(OSError):
                    lab.keep_logs(keep_logs)
            lab.down()
            raise
        return lab

    @property
    def id(self) -> str:
        """Identifier, unique among the labs of this machine."""
        return self._entry.id

    def shell(self, host: str) -> LabHostShell:
        """Return the shell of a host.

        Raises
        ------
        BackendError
            If no host has this name.
        """
        if host not in self.shells:
            raise BackendError(f'expected one of the hosts {", ".join(self.shells)}, found "{host}"')
        return self.shells[host]

    def service(self, name: str) -> RunningService:
        """Return a service.

        Raises
        ------
        BackendError
            If no service has this name.
        """
        if name not in self.services:
            known = ", ".join(self.services) or "(there are none)"
            raise BackendError(f'expected one of the services {known}, found "{name}"')
        return self.services[name]

    def host_scratch(self, host: str) -> Path:
        """Return the scratch directory of a host, as a path inside the lab."""
        return self.directory / "hosts" / host

    def client_command(self, host: str, argv: Sequence[str | Path]) -> list[str]:
        """Return the command line that runs a client on a host, with the environment variables that services require."""
        variables = [f"{key}={value}" for key, value in self.client_environment.items()]
        return self.shell(host).command_line(["env", *variables, *argv] if variables else argv)

    def agent_command(self, host: str, argv: Sequence[str | Path]) -> list[str]:
        """Return the command line that runs an agent on a host, with the variables of :meth:`client_command`."""
        variables = [f"{key}={value}" for key, value in self.client_environment.items()]
        return self.shell(host).agent_command(["env", *variables, *argv] if variables else argv)

    def cgroups(self, host: str) -> dict[str, str]:
        """Return controller → directory of the control group with the counters of a host."""
        return {controller: str(group) for controller, group in self._groups[host].counters.items()}

    def work_groups(self, host: str) -> list[str]:
        """Return the control groups with the CPU limit of a host; the agent's movers and CPU phases join them."""
        return [str(group) for group in self._groups[host].work]

    def listen(self, listener: Listener) -> None:
        """Send the records of the emulator, probes and services to a listener, starting with the buffered ones."""
        self._records.listen(listener)

    def start_clock(self, elapsed_s: float = 0.0) -> None:
        """Start the clock of the planned link changes, at ``elapsed_s`` seconds into the plan."""
        if self._emulator is not None:
            self._emulator.send({"command": "go", "elapsed_s": elapsed_s} if elapsed_s else {"command": "go"})

    def end(self) -> None:
        """Stop servers and network, and record the final samples and the server logs. The hosts remain until :meth:`down`."""
        # Servers first: some need the network for an orderly shutdown.
        if self._services is not None:
            self._problems += self._services.stop()
            if self._records.has_listener and not self._server_events_recorded:
                self._server_events_recorded = True
                storages = {
                    name: (self.spec.storage_host(name), path)
                    for name, path in storage_paths(self.spec, self.directory).items()
                }
                record_server_events(self.services.values(), storages, self._records)
        if self._emulator is not None:
            emulator, self._emulator = self._emulator, None
            emulator.close()

    @property
    def alive(self) -> bool:
        """Whether the hosts exist."""
        return self._namespaces is not None and self._namespaces.alive

    @property
    def has_failures(self) -> bool:
        """Whether a server exited unexpectedly or a probe failed."""
        return any(one.ended for one in self.services.values()) or any(not probe.agrees for probe in self.probes)

    def change(self, link: str, settings: Mapping[str, Any]) -> list[str]:
        """Change a directed link, or both directions of a link of the scenario; return the names of the directed links.

        Raises
        ------
        BackendError
            If no link has this name, or the emulator has stopped.
        """
        links = self.spec.network.links
        named = (self.spec.header.scenario.get("testbed") or {}).get("link") or {}
        chosen = [link] if link in links else _directions(link, named.get(link) or {}, links)
        if not chosen or self._emulator is None:
            known = ", ".join(dict.fromkeys((*named, *links))) or "(there are none)"
            raise BackendError(f'expected one of the links {known}, found "{link}"')
        for name in chosen:
            self._emulator.send({"command": "change", "link": name, "set": dict(settings)})
        return chosen

    def capture(self, link: str, path: Path, *, snap_bytes: int | None = None) -> None:
        """Capture the packets of a link to a pcap file, until :meth:`capture_stop`."""
        if self._emulator is not None:
            self._emulator.send({"command": "capture", "link": link, "path": str(path), "snap_bytes": snap_bytes})

    def capture_stop(self, link: str) -> None:
        """Stop the capture of a link."""
        if self._emulator is not None:
            self._emulator.send({"command": "capture_stop", "link": link})

    def properties(self) -> dict[str, dict[str, Any]]:
        """Return properties of the lab for the records: host or ``network`` → properties."""
        return status.properties(self)

    def status(self) -> dict[str, Any]:
        """Return the current status as JSON: hosts, links with live counters, services, probes."""
        return status.status(self)

    @property
    def services(self) -> Mapping[str, RunningService]:
        """Services by name."""
        return self._services.services if self._services is not None else {}

    @property
    def emulator(self) -> NetworkEmulator | None:
        """Network emulator; ``None`` without links and after :meth:`end`."""
        return self._emulator

    @property
    def namespaces(self) -> LabNamespaces:
        """Namespaces of the lab.

        Raises
        ------
        BackendError
            If the lab is down.
        """
        if self._namespaces is None:
            raise BackendError(f"lab {self.id}: the lab is down")
        return self._namespaces

    @property
    def versions(self) -> Mapping[str, str]:
        """Package → version, for the packages of the services."""
        return self._versions

    @property
    def records(self) -> RecordBuffer:
        """Records of the lab."""
        return self._records

    def limits(self, host: str) -> list[str]:
        """Return the controllers that have a control group for a host."""
        return sorted(self._groups[host].counters)

    def keep_logs(self, directory: Path) -> None:
        """Copy the logs of the services, the emulator and the namespace sandbox into a directory."""
        directory.mkdir(parents=True, exist_ok=True)
        for log in self.directory.glob("*.log"):
            shutil.copyfile(log, directory / log.name)
        for one in self.services.values():
            for log in map(Path, one.logs()):
                if log.is_file():
                    (directory / one.name).mkdir(exist_ok=True)
                    shutil.copyfile(log, directory / one.name / log.name)

    def down(self) -> list[str]:
        """Shut the lab down and return a message for each object that could not be removed. Safe to call twice."""
        self.end()
        problems, self._problems = self._problems, []
        if self._namespaces is not None:
            self._namespaces.close()
            self._namespaces = None
        for shell in self.shells.values():
            shell.forget()
        if self._entry.path.exists():
            problems += remove_remains(self._entry)
        return problems

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def _come_up(self, *, probe: bool, on_step: Callable[[str], None]) -> None:
        on_step(f"creating hosts ({len(self.spec.hosts)})")
        self._create_hosts()
        self._record_step_time("hosts")
        on_step(f"connecting hosts (links: {len(self.spec.network.links)})")
        found, settings = self._connect()
        self._record_step_time("network")
        if probe:
            on_step("probing limits and links")
            self._probe(found, settings)
            self._record_step_time("probes")
        if self.spec.services:
            on_step(f"starting {', '.join(self.spec.services)}")
            self._start_services()
            self._record_step_time("services")
        self._records.event(NETWORK, "lab-up", {"took_s": self.took_s})

    def _create_hosts(self) -> None:
        self.directory.mkdir(mode=0o755)
        self.directory.chmod(0o755)
        self.scratch.mkdir(parents=True, exist_ok=True)
        self._groups = host_setup.make_host_groups(self.spec, self._entry, root=self.root)
        self._namespaces = host_setup.create_namespaces(self.spec, self._entry, self._engine, self.scratch)
        for name, host in self.spec.hosts.items():
            self.shells[name] = host_setup.host_shell(
                host,
                self._namespaces,
                self._groups[name],
                root=self.root,
                engine=self._engine,
                session=self.directory / "sessions" / name,
            )
        self._disks = host_setup.make_storages(self.spec, self._entry, self._namespaces, self.scratch, self._groups)

    def _connect(self) -> tuple[dict[str, FoundSettings], dict[str, dict[str, str]]]:
        assert self._namespaces is not None
        namespaces = self._namespaces
        in_flight = in_flight_bytes(self.spec)
        self._reserve_tcp_memory(sum(in_flight.values()))
        if self.spec.network.interfaces:
            idle_group = make_idle_group(self._entry) if self.root else None
            command = {
                "epoch_unix_ns": self._records.epoch_unix_ns,
                "seed": self.spec.header.seed,
                "network": HEADER.emit(self.spec.header)["network"],
                "namespaces": {name: f"/proc/{pid}/ns/net" for name, pid in namespaces.hosts.items()},
                "interval_s": self._interval_s,
                "spin": False,
                "idle_group": None if idle_group is None else str(idle_group),
            }
            self._emulator = NetworkEmulator.start(
                self._engine,
                command,
                enter=namespaces.join_command(),
                log=self.directory / "emulator.log",
                on_record=self._on_emulator_record,
                on_end=self._on_emulator_exit,
            )
        # All hosts get the window of the route with the most bytes in flight, because either endpoint can hold these bytes.
        fattest = max(in_flight.values(), default=0)
        settings = {name: tcp_settings(host, fattest) for name, host in self.spec.hosts.items()}
        hosts = list(self.spec.hosts.values())
        found = host_setup.in_parallel(
            lambda host: host_setup.set_up_host(host, namespaces, settings[host.name]), hosts
        )
        return dict(zip(self.spec.hosts, found, strict=True)), settings

    def _reserve_tcp_memory(self, in_flight: int) -> None:
        pages = needed_pages(in_flight)
        self._entry.register("tcp_memory", pages=pages)
        if not claim_tcp_memory(self.id, self._entry.daemon, pages):
            self._records.finding(
                NETWORK,
                "tcp-memory-short",
                "net.ipv4.tcp_mem",
                f"the bytes in flight on links and in queues need {pages} pages, and this machine does not allow as many",
                "Throughput of links with a high bandwidth-delay product can collapse. Become root, add memory, or reduce the scale.",
            )

    def _probe(self, found: Mapping[str, FoundSettings], settings: Mapping[str, Mapping[str, str]]) -> None:
        assert self._namespaces is not None
        self.probes = run_probes(self.spec, self._namespaces, self.shells, self._groups, self._disks, found, settings)
        record_probes(self.probes, self._records)

    def _start_services(self) -> None:
        self._check_that_servers_can_enter()
        (self.directory / "services").mkdir()
        # Clients that run under other accounts must be able to enter this directory.
        clients = self.directory / "clients"
        clients.mkdir()
        clients.chmod(0o755)
        pki = Pki(self.directory / "pki")
        contexts = lab_contexts(self.spec, self.directory, self.shells, pki, self.client_environment)
        self._services = ServiceManager(contexts, self._service_ended)
        packages = [package for one in self._services.services.values() for package in one.service.packages]
        self._versions = package_versions(package.package for package in packages)
        self._services.start()

    def _check_that_servers_can_enter(self) -> None:
        """Reject a directory that other users cannot enter, because each server would fail with its own message."""
        for directory in self.directory.parents if self.root else ():
            if not directory.stat().st_mode & stat.S_IXOTH:
                raise BackendError(
                    f"{directory}: expected a directory that every user can enter, because servers run as other users; change its mode"
                    f" (chmod o+x), or set {PARENT_VARIABLE} to another"
                )

    def _service_ended(self, one: RunningService, code: int, reason: str) -> None:
        host = one.context.spec.host
        detail = {
            "service": one.name,
            "exit_code": code if code >= 0 else None,
            "signal": -code if code < 0 else None,
        }
        self._records.event(host, "service-exited", {**detail, "log": reason})
        self._records.finding(
            host,
            "service-exited",
            one.name,
            f"a process of {one.context.spec.kind} exited at {self._records.now_s():.3f} s with {exit_description(code)}",
            "Transfers that needed it failed. The event has its last log lines; the directory lab/ of the run has its logs.",
        )

    def _on_emulator_record(self, record: Mapping[str, Any]) -> None:
        if record.get("kind") == "network-change":
            self.changed_links.setdefault(record["detail"]["link"], {}).update(record["detail"]["set"])
        self._records.record(NETWORK, record)

    def _on_emulator_exit(self, reason: str) -> None:
        message = f"the network emulator of the lab exited early: {reason}"
        self._records.record(NETWORK, {"record": "fatal", "message": message})

    def _record_step_time(self, step: str) -> None:
        self.took_s[step] = round(time.monotonic() - self._started_s - sum(self.took_s.values()), 3)


def _directions(link: str, spec: Mapping[str, Any], links: Iterable[str]) -> list[str]:
    """Return the directed links of a scenario link."""
    first, second = ends = tuple(spec.get("between") or ("", ""))
    plain = {f"{first}>{second}", f"{second}>{first}"}
    return [name for name in links if ends != ("", "") and (name.endswith(f"@{link}") or name in plain)]
