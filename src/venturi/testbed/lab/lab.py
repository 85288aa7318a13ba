"""A lab: brought up, asked, changed, taken down."""

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
from venturi.testbed.lab import hosting, telling
from venturi.testbed.lab.asked import Asked, read_asked
from venturi.testbed.lab.evidence import tell_evidence
from venturi.testbed.lab.ground import Ground
from venturi.testbed.lab.groups import make_idle_group
from venturi.testbed.lab.interfaces import Found, tcp_settings
from venturi.testbed.lab.journal import NETWORK, Journal, Listener
from venturi.testbed.lab.machine import LabMachine
from venturi.testbed.lab.memory import claim_tcp_memory, needed_pages
from venturi.testbed.lab.paths import in_flight_bytes
from venturi.testbed.lab.probes import Probe
from venturi.testbed.lab.registry import PARENT_VARIABLE, Entry, new_entry
from venturi.testbed.lab.room import Grounds
from venturi.testbed.lab.running import Running, RunningService, how_ended
from venturi.testbed.lab.sweep import remove_remains, sweep
from venturi.testbed.lab.trying import tell, try_all
from venturi.testbed.lab.versions import package_versions
from venturi.testbed.lab.wire import Wire
from venturi.testbed.pki import Pki

__all__ = ["Lab"]


class Lab:
    """A testbed that is up. Made with :meth:`up`; a context manager that takes it down.

    Attributes
    ----------
    folder
        The lab's own, gone at the end.
    scratch
        Where its hosts' files really are: host ``a`` has ``scratch/a``.
    machines
        Host → :class:`LabMachine`.
    client_environment
        Variables that clients of its services are to have.
    probes
        What was tried, and what came of it.
    changed_links
        Link → settings that have changed since it came up.
    took_s
        How long each step took to come up, in seconds.

    Examples
    --------
    >>> with Lab.up(header, engine=find_engine()) as lab:  # doctest: +SKIP
    ...     print(lab.machine("a").run(["ping", "-c", "1", "b"], timeout_s=5).stdout)
    """

    def __init__(
        self,
        header: Header,
        entry: Entry,
        *,
        engine: Path,
        scratch: Path | None,
        epoch_unix_ns: int,
        interval_s: float | None,
    ) -> None:
        self.asked: Asked = read_asked(header)
        self.folder = entry.folder
        self.scratch = scratch.absolute() if scratch is not None else entry.folder / "scratch"
        self.machines: dict[str, LabMachine] = {}
        self.client_environment: dict[str, str] = {}
        self.probes: list[Probe] = []
        self.took_s: dict[str, float] = {}
        self.changed_links: dict[str, dict[str, Any]] = {}
        self.root = os.geteuid() == 0
        self._entry = entry
        self._engine = engine
        self._interval_s = interval_s
        self._journal = Journal(epoch_unix_ns)
        self._groups: hosting.Groups = {}
        self._disks: list[hosting.Disk] = []
        self._ground: Ground | None = None
        self._wire: Wire | None = None
        self._running: Running | None = None
        self._versions: dict[str, str] = {}
        self._problems: list[str] = []
        self._evidence_told = False
        self._began_s = time.monotonic()

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
        """Bring a lab up, after removing what dead ones have left.

        Parameters
        ----------
        header
            Of the plan that it is for.
        engine
            The program.
        scratch
            Where its hosts' files are kept for the next lab; without it, in the lab's own folder, gone at the end.
        parent
            Folder in which the lab gets its own; without it, see :func:`labs_parent`.
        epoch_unix_ns
            What times of its records count from; without it, now.
        interval_s
            How often links are sampled; ``None``: never.
        probe
            Try every limit and every link before returning.
        keep_logs
            Where logs are copied to if it does not come up.
        on_step
            Told what is going on, in a few words.

        Raises
        ------
        BackendError
            If something is missing, not allowed, or does not come up. Nothing is left then.
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
        """What tells it from the other labs of this machine."""
        return self._entry.id

    def machine(self, host: str) -> LabMachine:
        """Return a host.

        Raises
        ------
        BackendError
            If there is none of this name.
        """
        if host not in self.machines:
            raise BackendError(f'expected one of the hosts {", ".join(self.machines)}, found "{host}"')
        return self.machines[host]

    def service(self, name: str) -> RunningService:
        """Return a service.

        Raises
        ------
        BackendError
            If there is none of this name.
        """
        if name not in self.services:
            known = ", ".join(self.services) or "(there are none)"
            raise BackendError(f'expected one of the services {known}, found "{name}"')
        return self.services[name]

    def host_scratch(self, host: str) -> Path:
        """Return the scratch folder of a host as it is seen within the lab."""
        return self.folder / "hosts" / host

    def words(self, host: str, argv: Sequence[str | Path]) -> list[str]:
        """Return the command line that runs a client on a host, with the variables that services want clients to have."""
        variables = [f"{key}={value}" for key, value in self.client_environment.items()]
        return self.machine(host).words(["env", *variables, *argv] if variables else argv)

    def cgroups(self, host: str) -> dict[str, str] | None:
        """Return the control groups whose counters tell what a host has used."""
        group = self._groups.get(host, {}).get("cpuacct")
        return None if group is None else {"cpu": str(group)}

    def listen(self, listener: Listener) -> None:
        """Hand all records of the wire, the probes and the services to somebody, those kept so far first."""
        self._journal.listen(listener)

    def go(self, elapsed_s: float = 0.0) -> None:
        """Start the clock of the planned changes of links; ``elapsed_s`` seconds of the plan are over already."""
        if self._wire is not None:
            self._wire.send({"command": "go", "elapsed_s": elapsed_s} if elapsed_s else {"command": "go"})

    def end(self) -> None:
        """Stop servers and network, so that the last word, and what servers saw, is in the records; the hosts stay until :meth:`down`."""
        # Servers first: some have to talk to each other to end in order.
        if self._running is not None:
            self._problems += self._running.stop()
            if self._journal.heard and not self._evidence_told:
                self._evidence_told = True
                tell_evidence(self.services.values(), self.asked, self.folder, self._journal)
        if self._wire is not None:
            wire, self._wire = self._wire, None
            wire.close()

    @property
    def alive(self) -> bool:
        """Whether its hosts are there."""
        return self._ground is not None and self._ground.alive

    @property
    def trouble(self) -> bool:
        """Whether a server has ended by itself, or something was not as asked for."""
        return any(one.ended for one in self.services.values()) or any(not probe.agrees for probe in self.probes)

    def change(self, link: str, settings: Mapping[str, Any]) -> list[str]:
        """Change a directed link, or both directions of one that is named as in the scenario; return which.

        Raises
        ------
        BackendError
            If there is no such link, or the network has gone.
        """
        links = self.asked.network.links
        named = (self.asked.header.scenario.get("testbed") or {}).get("link") or {}
        chosen = [link] if link in links else _directions(link, named.get(link) or {}, links)
        if not chosen or self._wire is None:
            known = ", ".join(dict.fromkeys((*named, *links))) or "(there are none)"
            raise BackendError(f'expected one of the links {known}, found "{link}"')
        for name in chosen:
            self._wire.send({"command": "change", "link": name, "set": dict(settings)})
        return chosen

    def capture(self, link: str, path: Path, *, snap_bytes: int | None = None) -> None:
        """Write what passes a link to a file that packet tools read, until :meth:`capture_stop`."""
        if self._wire is not None:
            self._wire.send({"command": "capture", "link": link, "path": str(path), "snap_bytes": snap_bytes})

    def capture_stop(self, link: str) -> None:
        """End the capture of a link."""
        if self._wire is not None:
            self._wire.send({"command": "capture_stop", "link": link})

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return what is worth recording of the lab: host, or ``network``, → facts."""
        return telling.facts(self)

    def status(self) -> dict[str, Any]:
        """Return how it is now, as JSON: hosts, links with live counters, services, probes."""
        return telling.status(self)

    @property
    def services(self) -> Mapping[str, RunningService]:
        """Its services by name."""
        return self._running.services if self._running is not None else {}

    @property
    def wire(self) -> Wire | None:
        """Its network, ``None`` where it has no links, or no more."""
        return self._wire

    @property
    def ground(self) -> Ground:
        """Its namespaces.

        Raises
        ------
        BackendError
            If it is down.
        """
        if self._ground is None:
            raise BackendError(f"lab {self.id}: expected it to be up, found that it is down")
        return self._ground

    @property
    def versions(self) -> Mapping[str, str]:
        """Package → version, of what its services are made of."""
        return self._versions

    @property
    def journal(self) -> Journal:
        """What it has told."""
        return self._journal

    def limits(self, host: str) -> list[str]:
        """Return the controllers whose groups a host is in."""
        return sorted(self._groups.get(host, {}))

    def keep_logs(self, folder: Path) -> None:
        """Copy the logs of services, of the wire and of the namespaces into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for log in self.folder.glob("*.log"):
            shutil.copyfile(log, folder / log.name)
        for one in self.services.values():
            logs = [process.log for process in one.processes]
            with suppress(Exception):  # one that has not come far may not know them
                logs += one.service.logs(one.room)
            for log in dict.fromkeys(logs):
                if log.is_file():
                    (folder / one.name).mkdir(exist_ok=True)
                    shutil.copyfile(log, folder / one.name / log.name)

    def down(self) -> list[str]:
        """Take it down; return what could not be removed, in words. Safe to call twice."""
        self.end()
        problems, self._problems = self._problems, []
        if self._ground is not None:
            self._ground.close()
            self._ground = None
        for machine in self.machines.values():
            machine.forget()
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
        on_step(f"making the hosts ({len(self.asked.hosts)})")
        self._make_hosts()
        self._took("hosts")
        on_step(f"connecting them (links: {len(self.asked.network.links)})")
        found, settings = self._connect()
        self._took("network")
        if probe:
            on_step("trying limits and links")
            self._probe(found, settings)
            self._took("probes")
        if self.asked.services:
            on_step(f"starting {', '.join(self.asked.services)}")
            self._start_services()
            self._took("services")
        self._journal.event(NETWORK, "lab-up", {"took_s": self.took_s})

    def _make_hosts(self) -> None:
        self.folder.mkdir(mode=0o755)
        self.folder.chmod(0o755)
        self.scratch.mkdir(parents=True, exist_ok=True)
        self._groups = hosting.make_groups(self.asked, self._entry, root=self.root)
        self._ground = hosting.lay_ground(self.asked, self._entry, self._engine, self.scratch)
        for name, host in self.asked.hosts.items():
            self.machines[name] = hosting.machine_of(host, self._ground, self._groups[name], root=self.root)
        self._disks = hosting.make_storages(self.asked, self._entry, self._ground, self.scratch, self._groups)

    def _connect(self) -> tuple[dict[str, Found], dict[str, dict[str, str]]]:
        assert self._ground is not None
        ground = self._ground
        in_flight = in_flight_bytes(self.asked)
        self._ask_for_tcp_memory(sum(in_flight.values()))
        if self.asked.network.interfaces:
            idle_group = make_idle_group(self._entry) if self.root else None
            command = {
                "epoch_unix_ns": self._journal.epoch_unix_ns,
                "seed": self.asked.header.seed,
                "network": HEADER.emit(self.asked.header)["network"],
                "namespaces": {name: f"/proc/{pid}/ns/net" for name, pid in ground.hosts.items()},
                "interval_s": self._interval_s,
                "spin": False,
                "idle_group": None if idle_group is None else str(idle_group),
            }
            self._wire = Wire.start(
                self._engine,
                command,
                enter=ground.beside(),
                log=self.folder / "wire.log",
                on_record=self._wire_told,
                on_end=self._wire_ended,
            )
        # A window is as large as the fattest way of all needs: either end may be the one that holds the bytes.
        fattest = max(in_flight.values(), default=0)
        settings = {name: tcp_settings(host, fattest) for name, host in self.asked.hosts.items()}
        hosts = list(self.asked.hosts.values())
        found = hosting.in_parallel(lambda host: hosting.set_up_host(host, ground, settings[host.name]), hosts)
        return dict(zip(self.asked.hosts, found, strict=True)), settings

    def _ask_for_tcp_memory(self, in_flight: int) -> None:
        pages = needed_pages(in_flight)
        self._entry.will_make("tcp_memory", pages=pages)
        if not claim_tcp_memory(self.id, self._entry.keeper, pages):
            self._journal.finding(
                NETWORK,
                "tcp-memory-short",
                "net.ipv4.tcp_mem",
                f"{pages} pages are needed for what the links and queues hold, and that cannot be had here",
                "long fat pipes may collapse: be root, give the machine more memory, or make the scale smaller",
            )

    def _probe(self, found: Mapping[str, Found], settings: Mapping[str, Mapping[str, str]]) -> None:
        assert self._ground is not None
        self.probes = try_all(self.asked, self._ground, self.machines, self._groups, self._disks, found, settings)
        tell(self.probes, self._journal)

    def _start_services(self) -> None:
        self._check_that_servers_can_enter()
        (self.folder / "services").mkdir()
        grounds = Grounds(self.asked, self.folder, self.machines, Pki(self.folder / "pki"), self.client_environment)
        self._running = Running(grounds, self._service_ended)
        packages = [package for one in self._running.services.values() for package in one.service.packages]
        self._versions = package_versions(package.package for package in packages)
        self._running.start()

    def _check_that_servers_can_enter(self) -> None:
        """Refuse a folder that users such as `nobody` may not enter: servers would fail one by one, each in its own words."""
        for folder in self.folder.parents if self.root else ():
            if not folder.stat().st_mode & stat.S_IXOTH:
                raise BackendError(
                    f"{folder}: expected a folder that every user may enter, for servers run as users of their own; open it"
                    f" (chmod o+x), or set {PARENT_VARIABLE} to another"
                )

    def _service_ended(self, one: RunningService, code: int, said: str) -> None:
        host = one.room.spec.host
        detail = {
            "service": one.name,
            "exit_code": code if code >= 0 else None,
            "signal": -code if code < 0 else None,
        }
        self._journal.event(host, "service-ended", {**detail, "log": said})
        self._journal.finding(
            host,
            "service-ended",
            one.name,
            f"a process of {one.room.spec.kind} ended at {self._journal.now_s():.3f} s with {how_ended(code)}",
            "transfers that needed it have failed; its last words are in the event, its logs in the run's folder lab/",
        )

    def _wire_told(self, record: Mapping[str, Any]) -> None:
        if record.get("kind") == "network-change":
            self.changed_links.setdefault(record["detail"]["link"], {}).update(record["detail"]["set"])
        self._journal.record(NETWORK, record)

    def _wire_ended(self, said: str) -> None:
        message = f"expected the lab's network to be there to the end, found that it has ended: {said}"
        self._journal.record(NETWORK, {"record": "fatal", "message": message})

    def _took(self, step: str) -> None:
        self.took_s[step] = round(time.monotonic() - self._began_s - sum(self.took_s.values()), 3)


def _directions(link: str, asked: Mapping[str, Any], links: Iterable[str]) -> list[str]:
    """Return the directed links that a link of the scenario has become."""
    there, back = ends = tuple(asked.get("between") or ("", ""))
    plain = {f"{there}>{back}", f"{back}>{there}"}
    return [name for name in links if ends != ("", "") and (name.endswith(f"@{link}") or name in plain)]
