"""Existing hosts as one testbed: connections, scratch directories, shared files, other runs, services and clocks."""

from __future__ import annotations

import os
import secrets
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from venturi.backend.active_runs import ActiveRun, ActiveRuns
from venturi.backend.agent_site import AgentSite
from venturi.backend.connection import CONNECTIONS_AT_ONCE, SILENCE_S, Connection, new_session, open_shell
from venturi.backend.ended_services import SERVER_FAILURES
from venturi.backend.engine import Engine
from venturi.backend.host_services import HostServices
from venturi.backend.path_probe import path_findings, path_properties
from venturi.backend.plan_usage import HostUsage, plan_usage
from venturi.backend.remote_shell import RemoteHostShell
from venturi.backend.shell_client import ShellCallbacks
from venturi.backend.targets import Target, merged_hosts
from venturi.errors import BackendError
from venturi.plan import read_header
from venturi.run import Finding, RunWriter
from venturi.run.directory import PLAN
from venturi.testbed.record_buffer import Listener, RecordBuffer
from venturi.testbed.service_context import SESSION

__all__ = ["HostTestbed"]


class HostTestbed:
    """The existing hosts of a plan.

    Implements :class:`venturi.backend.agent_site.HostGroup` and :class:`venturi.backend.record_source.RecordSource`.

    Parameters
    ----------
    run
        The run.
    engines
        Engine by machine.
    targets
        Targets of ``--hosts FILE``.
    scratch
        Directory of relative storages on every host. Default: ``scratch`` next to the runs on this machine, and in the
        cache on others.
    keep_logs
        Keep the logs of services even if nothing failed.
    """

    def __init__(
        self,
        run: RunWriter,
        engines: Mapping[str, Engine],
        *,
        targets: Mapping[str, Target] | None = None,
        scratch: str | None = None,
        keep_logs: bool = False,
    ) -> None:
        self._run = run
        self._engines = engines
        self._header = read_header(run.path / PLAN)
        self._targets = dict(targets or {})
        self._hosts = merged_hosts(self._header.hosts, self._targets)
        self._scratch = scratch
        self._keep_logs = keep_logs
        self._connections = {
            name: Connection.to(name, ssh=host.ssh, connect=host.connect) for name, host in self._hosts.items()
        }
        self._shells: dict[str, RemoteHostShell] = {}
        self._sites: dict[str, AgentSite] = {}
        self._active: dict[str, ActiveRuns] = {}
        self._services: HostServices | None = None
        self._storages: dict[str, tuple[str, PurePath]] = {}
        self._records = RecordBuffer(run.epoch_unix_ns)
        self._findings: list[Finding] = []
        self._session = secrets.token_hex(8)
        self._lost: Callable[[str, str], None] = lambda host, reason: None
        self._lock = threading.RLock()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.usage: dict[str, HostUsage] = {}
        self.server_failures = SERVER_FAILURES
        self._checked = False
        self._interrupted = False
        self._ended = False

    @property
    def source(self) -> HostTestbed:
        """The testbed itself, because it has the records of its services."""
        return self

    @property
    def has_failures(self) -> bool:
        """Whether a server ended unexpectedly, or a shell was lost."""
        return self._services is not None and self._services.has_failures

    def early_commands(self) -> Mapping[str, Sequence[str]]:
        """Return host → command line that connects to it and waits for a line with the command of the agent.

        The mapping is empty for many hosts, because the logins of both connections together would be too many for a
        jump host.
        """
        far = {name: connection for name, connection in self._connections.items() if not connection.is_local}
        if len(far) > CONNECTIONS_AT_ONCE // 2:
            return {}
        return {name: connection.waiting_command() for name, connection in far.items()}

    def bring_up(self, on_step: Callable[[str], None]) -> Sequence[AgentSite]:
        """Connect to all hosts, prepare their services, and return the sites of the agents.

        Raises
        ------
        BackendError
            If a host or service is not available. :meth:`close` ends all started shells and services.
        """
        if self._header.services:
            self._services = self._make_services()
            self._services.prepare_certificates()
        self._run_on_all(list(self._hosts), lambda name: self._open(name, on_step), self.interrupt)
        self._sites = {name: self._site(name, scratch) for name, scratch in self._scratch_directories().items()}
        if (
            len(self._hosts) > 1 or self._header.services
        ):  # otherwise nothing depends on it, and a large plan takes time
            self.usage.update(plan_usage(self._run.path, self._header))
        if self._services is not None:
            self._prepare_services(self._services, on_step)
        self._set_commands()
        return list(self._sites.values())

    def start_services(self, on_step: Callable[[str], None]) -> None:
        """Start the services, if :meth:`bring_up` has not done it.

        Raises
        ------
        BackendError
            If a service does not start.
        """
        if self._services is not None:
            self._services.start(on_step)

    def check(self) -> None:
        """Check other runs on the hosts and the files that hosts share, once.

        Raises
        ------
        BackendError
            If another run uses a storage, or a shared storage is not shared.
        """
        if self._checked:
            return
        self._checked = True
        crossing = any(
            self._header.storages[storage].host not in (host, None)
            for host, used in self.usage.items()
            for storage in used.storages
        )
        with ThreadPoolExecutor(3, "hosts") as pool:
            writable = pool.submit(self._check_writable)
            seen = pool.submit(self._seen_hosts if crossing else dict)
            entered = pool.submit(self._enter)
            writable.result()  # more informative than the errors of the others
            self._findings += entered.result()
            visible = seen.result()
        shared = self._shared_storages()
        for name, site in self._sites.items():
            site.hosts = {
                other.name: {
                    "scratch": other.scratch,
                    "seen": self._connections[name].is_local and self._connections[other.name].is_local,
                    "storages": sorted(
                        storage
                        for storage, declared in self._header.storages.items()
                        if declared.host == other.name
                        and (
                            name in shared.get(storage, ())
                            if declared.path.startswith("/")
                            else other.name in visible.get(name, ())
                        )
                    ),
                }
                for other in self._sites.values()
                if other.name != name
            }

    def interrupt(self) -> None:
        """Make :meth:`bring_up` or :meth:`recover` end soon with an error."""
        with self._lock:
            self._interrupted = True
            for process in self._processes:
                if process.poll() is None:
                    process.kill()

    def findings(self) -> Sequence[Finding]:
        """Return the findings of :meth:`bring_up`: other runs, unusual paths."""
        return self._findings

    def services(self) -> Mapping[str, Mapping[str, Any]]:
        """Return address and ports of each started service, for the command ``start`` of agents."""
        return self._services.addresses if self._services is not None else {}

    def ipv6_services(self, client: str) -> frozenset[str]:
        """Return the services that a host connects to over IPv6."""
        paths = self._services.paths if self._services is not None else ()
        return frozenset(
            path.target.service for path in paths if path.client == client and path.measured.family == "ipv6"
        )

    def on_lost(self, callback: Callable[[str, str], None]) -> None:
        """Call a function with host and reason, from any thread, when the shell of a host is lost."""
        self._lost = callback

    def recover(self) -> None:
        """Connect again to all hosts whose shell was lost, and start all services again. The sites change in place.

        Raises
        ------
        BackendError
            If the recovery fails. It can be tried again.
        """
        if self._services is not None:
            self._services.has_failures = True
            self._services.stop()
        lost = [name for name, shell in self._shells.items() if shell.is_lost]
        self._run_on_all(lost, self._reopen)
        if self._services is not None:
            self._services.bring_up(lambda step: None, probe=False)
        self._set_commands()

    def _reopen(self, name: str) -> None:
        self._shells[name].kill()
        self._open(name, lambda step: None)
        self._sites[name].shell = self._shells[name]
        with suppress(BackendError):
            self._active[name] = ActiveRuns(self._shells[name])
            self._active[name].enter(self._run.path.name, self._session, self._used_paths(name))

    def close(self) -> None:
        """End services and shells. The logs of services are kept if an error occurred."""
        with self._lock:
            self._interrupted = True  # a shell that ends now is not lost
        self.end()
        if self._services is not None:
            if (self._keep_logs or self.has_failures) and self._run.path.is_dir():
                self._services.keep_logs()
            else:
                self._services.remove_logs()
            self._services.forget()
        shells = list(self._shells.values())
        if shells:
            with ThreadPoolExecutor(CONNECTIONS_AT_ONCE, "end of hosts") as pool:
                list(pool.map(self._close_shell, shells))

    def properties(self) -> Mapping[str, Mapping[str, Any]]:
        """Return host → properties for the table ``environment``."""
        found: dict[str, dict[str, Any]] = {
            name: {"connection": self._connection_properties(name)} for name in self._shells
        }
        if self._services is not None:
            for more in (path_properties(self._services.paths), self._services.properties()):
                for name, properties in more.items():
                    found[name] = {**found.get(name, {}), **properties}
        return found

    def _connection_properties(self, name: str) -> dict[str, Any]:
        connection, shell = self._connections[name], self._shells[name]
        if connection.is_local:
            return {"kind": "local"}
        return {
            "kind": "ssh" if connection.ssh else "connect",
            "address": shell.address,
            "node_name": shell.node_name,
            "user": shell.user,
            "engine_path": shell.engine,
        }

    def listen(self, listener: Listener) -> None:
        """Pass all records to ``listener``: buffered ones first, then new ones."""
        self._records.listen(listener)

    def start_clock(self, elapsed_s: float = 0.0) -> None:
        """Do nothing: servers have no planned changes."""

    def end(self) -> None:
        """Stop the services and record their logs. All records have been passed on when this returns."""
        if self._ended or self._services is None:
            return
        self._ended = True
        for problem in self._services.stop():
            self._records.event("", "service-problem", {"message": problem})
        if self._records.has_listener:
            self._services.record_logs()

    def keep_logs(self) -> None:
        """Keep the logs of services at the end."""
        self._keep_logs = True

    def _open(self, name: str, on_step: Callable[[str], None]) -> None:
        host = self._hosts[name]
        shell = open_shell(
            self._connections[name],
            self._engines,
            session=new_session(name),
            cache=host.cache,
            address=host.address or self._local_address(name),
            environment=host.environment,
            silence_s=SILENCE_S,
            callbacks=ShellCallbacks(lost=lambda reason: self._on_lost(name, reason)),
            on_step=on_step,
            on_process=self._add_process,
        )
        with self._lock:
            self._shells[name] = shell

    def _local_address(self, name: str) -> str | None:
        """Return the address of this machine for other hosts: its name, unless all hosts are this machine."""
        if not self._connections[name].is_local:
            return None
        return None if all(connection.is_local for connection in self._connections.values()) else os.uname().nodename

    def _add_process(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._processes = [one for one in self._processes if one.poll() is None] + [process]
            if self._interrupted:
                process.kill()

    def _on_lost(self, name: str, reason: str) -> None:
        if not self._interrupted:
            self._lost(name, reason)

    def _run_on_all(
        self, names: Sequence[str], action: Callable[[str], None], on_error: Callable[[], None] = lambda: None
    ) -> None:
        """Run an action for all hosts, several at the same time. Raise the first error after ``on_error``."""
        with ThreadPoolExecutor(CONNECTIONS_AT_ONCE, "connection") as pool:
            futures: list[Future[None]] = [pool.submit(action, name) for name in names]
            for future in as_completed(futures):
                if (error := future.exception()) is not None:
                    for other in futures:
                        other.cancel()
                    on_error()
                    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                    raise BackendError(reason) from error

    def _scratch_directories(self) -> dict[str, str]:
        """Return host → scratch directory. Hosts with the same path get separate directories below it.

        Aliases of one machine, and hosts with one home directory, have the same path. Different machines can have it
        too, where separate directories do no harm.
        """
        bases = {name: self._scratch_base(name) for name in self._hosts}
        count = Counter(bases.values())
        return {name: base if count[base] == 1 else f"{base}/{name}" for name, base in bases.items()}

    def _scratch_base(self, name: str) -> str:
        target, shell = self._targets.get(name), self._shells[name]
        configured = (target.path if target is not None else None) or self._scratch
        if self._connections[name].is_local:
            return str(Path(configured).absolute() if configured else (self._run.path.parent / "scratch").absolute())
        if configured is None:
            return str(shell.cache / "scratch")
        if configured.startswith("/"):
            return configured
        home = shell.run(["sh", "-c", 'echo "$HOME"'], timeout_s=30.0).stdout.strip()
        if not home.startswith("/"):
            raise BackendError(
                f"{name}: expected a home directory for the relative path {configured}, found HOME={home!r};"
                " use an absolute path for --scratch"
            )
        return f"{home}/{configured}"

    def _site(self, name: str, scratch: str) -> AgentSite:
        local = self._connections[name].is_local
        return AgentSite(
            name,
            scratch,
            (),
            local_scratch=scratch if local else None,
            pass_fds=(self._run.lock_descriptor,) if local else (),
            # The end of a pipe on this machine is always seen.
            silence_s=None if local else SILENCE_S,
            shell=self._shells[name],
        )

    def _set_commands(self) -> None:
        """Set the command lines of the agents, with the variables of the host and of clients."""
        variables = self._services.client_environment if self._services is not None else {}
        for name, site in self._sites.items():
            shell = self._shells[name]
            own = {key: value.replace(SESSION, str(shell.session)) for key, value in variables.items()}
            environment = {**self._hosts[name].environment, **own}
            connection = self._connections[name]
            site.command = connection.engine_command(shell.engine, ["agent"], environment=environment)
            line = connection.waiting_line(shell.engine, ["agent"], environment)
            site.early_line = None if connection.is_local or b"\n" in line else line

    def _used_paths(self, name: str) -> list[str]:
        absolute = [
            storage.path
            for storage in self._header.storages.values()
            if storage.host == name and storage.path.startswith("/") and not storage.existing
        ]
        return [*absolute, self._sites[name].scratch]

    def _check_writable(self) -> None:
        """Check that all directories of the run are writable, before any file is written.

        Raises
        ------
        BackendError
            If one is not a directory, or is not writable.
        """
        requests = [
            (name, path, self._shells[name].submit("stat", path=path))
            for name in self._sites
            for path in dict.fromkeys(self._used_paths(name))
        ]
        for name, path, reply in requests:
            found = self._shells[name].wait(reply, "stat")
            if found["kind"] not in ("directory", "absent"):
                raise BackendError(
                    f"{name}: expected a directory at {path}, found another file; remove it, or use another path"
                )
            if found.get("writable") is False:
                kind = f" ({found['file_system']})" if found.get("file_system") else ""
                raise BackendError(
                    f"{name}: expected a directory in which {self._shells[name].user} can write at {path}{kind}, found a"
                    " read-only file system or missing permission; correct the permission, or use another path"
                )

    def _enter(self) -> list[Finding]:
        """Announce the run on all hosts, and return the findings about other runs."""
        findings: list[Finding] = []

        def enter(name: str) -> None:
            active = self._active[name] = ActiveRuns(self._shells[name])
            others = active.enter(self._run.path.name, self._session, self._used_paths(name))
            findings.extend(_other_run(name, other) for other in others)

        self._run_on_all(list(self._sites), enter)
        return findings

    def _seen_hosts(self) -> dict[str, set[str]]:
        """Return host → hosts whose scratch directories it sees at the same path, tested with a file in each."""
        token = f".venturi-seen-{self._session}"
        paths = {name: PurePosixPath(site.scratch) / f"{token}-{name}" for name, site in self._sites.items()}
        try:
            self._run_on_all(list(paths), lambda name: self._shells[name].put(paths[name], name))
            pairs = {
                (first, second): self._shells[first].submit("stat", path=str(path))
                for first in paths
                for second, path in paths.items()
                if first != second
            }
            found: dict[str, set[str]] = {name: set() for name in paths}
            for (first, second), reply in pairs.items():
                with suppress(BackendError):  # a path that cannot be examined is not seen
                    if self._shells[first].wait(reply, "stat").get("kind") == "file":
                        found[first].add(second)
            return found
        finally:
            for name, path in paths.items():
                with suppress(BackendError):
                    self._shells[name].submit("remove", path=str(path))

    def _shared_storages(self) -> dict[str, list[str]]:
        """Return storage → hosts that share it, for storages with absolute paths that the scenario declares as shared.

        Raises
        ------
        BackendError
            If a host does not see the same directory at the same path.
        """
        scenario = (self._header.scenario.get("testbed") or {}).get("storage") or {}
        found = {}
        for storage, part in scenario.items():
            shared = part.get("shared") if isinstance(part, Mapping) else None
            declared = self._header.storages.get(storage)
            if shared and declared is not None and declared.host in self._sites:
                others = [name for name in shared if name in self._sites]
                self._check_shared(storage, declared.host, declared.path, others)
                found[storage] = others
        return found

    def _check_shared(self, storage: str, owner: str, path: str, others: Sequence[str]) -> None:
        where = f"testbed.storage.{storage}"
        file = PurePosixPath(self._sites[owner].scratch) / path / f".venturi-shared-{self._session}"
        try:
            self._shells[owner].put(file, owner)
            for name in others:
                if not self._shells[name].exists(file):
                    raise BackendError(
                        f"{where}.shared: expected {file.parent} of {name} to be {file.parent} of {owner}, found another directory"
                        f" or none; remove {name} from `shared`, or correct the path"
                    )
        except OSError as error:
            raise BackendError(f"{where}: {error.strerror}") from error
        finally:
            with suppress(OSError, BackendError):
                self._shells[owner].remove(file)

    def _make_services(self) -> HostServices:
        return HostServices(
            self._header,
            self._hosts,
            self._connections,
            self._shells,
            self._storages,
            self.usage,
            self._run.path,
            self._records,
        )

    def _prepare_services(self, services: HostServices, on_step: Callable[[str], None]) -> None:
        """Check the hosts and find the paths at the same time, then configure the services."""
        self._storages.update(
            (name, (storage.host, PurePosixPath(self._sites[storage.host].scratch) / storage.path))
            for name, storage in self._header.storages.items()
            if storage.host is not None and storage.url is None
        )
        with ThreadPoolExecutor(2, "preparation") as pool:
            checked = pool.submit(self.check)
            found = pool.submit(services.find_paths, on_step)
            checked.result()  # more informative than the error of a port that another run uses
            found.result()
        self._findings += path_findings(services.paths)
        if not services.configure():
            services.start(on_step)

    def _close_shell(self, shell: RemoteHostShell) -> None:
        active = self._active.get(shell.name)
        if active is not None and not shell.is_lost:
            active.leave()
        shell.close()


def _other_run(host: str, other: ActiveRun) -> Finding:
    return Finding(
        "other-run",
        host,
        f"{other.describe()} was active on host {host} when this run started",
        "The two runs disturb each other. Repeat this run when the other has ended.",
        host=host,
    )
