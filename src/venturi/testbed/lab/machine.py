"""A host of a lab that is up: commands run there, servers started there."""

from __future__ import annotations

import os
import signal as signals
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from venturi.errors import BackendError
from venturi.testbed.lab.asked import AskedHost
from venturi.testbed.lab.living import children
from venturi.testbed.lab.programs import surroundings

__all__ = ["LabMachine", "LabProcess", "Way"]

START_TIMEOUT_S = 10.0
"""Of a command until it runs inside: a fork and three exec, which a loaded machine may take its time for."""

_GONE_S = 5.0
_POLL_S = 0.002
_UMASK = "umask 0"
# `echo 0` into cgroup.procs moves the process that writes (cgroups(7)): the shell itself, which then becomes the command.
_JOIN = 'for group in {groups}; do echo 0 > "$group/cgroup.procs" || exit 125; done'
_IN_FOLDER = 'cd "$1" && shift && exec "$@"'


@dataclass(frozen=True, slots=True)
class Way:
    """How a command gets into a host: control groups first (they are not seen inside), then cores, then namespaces."""

    enter: tuple[str, ...]
    groups: tuple[Path, ...] = ()
    cpus: tuple[int, ...] = ()

    def words(self) -> list[str]:
        """Return what stands before a command."""
        join = [_JOIN.format(groups=" ".join(map(str, self.groups)))] if self.groups else []
        script = "; ".join([_UMASK, *join, 'exec "$@"'])
        pin = ["taskset", "-c", ",".join(map(str, self.cpus))] if self.cpus else []
        return ["sh", "-c", script, "venturi-lab", *pin, *self.enter]


class LabProcess:
    """A server on a host. Its parent here is `nsenter`, which tells how it ended."""

    def __init__(self, parent: subprocess.Popen[bytes], pid: int, log: Path) -> None:
        self._parent = parent
        self._pid = pid
        self._log = log

    @property
    def pid(self) -> int:
        """PID of the server itself on this machine."""
        return self._pid

    @property
    def log(self) -> Path:
        """Its standard output and error."""
        return self._log

    def poll(self) -> int | None:
        """Return its exit code (negative: a signal), None while it runs."""
        return self._parent.poll()

    def stop(self, *, signal: int = signals.SIGTERM, grace_s: float = 5.0) -> None:
        """Send ``signal`` to it and its process group, after ``grace_s`` SIGKILL; return when it is gone."""
        _signal_group(self._parent, self._pid, signal)
        try:
            self._parent.wait(grace_s)
        except subprocess.TimeoutExpired:
            _signal_group(self._parent, self._pid, signals.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                self._parent.wait(grace_s)


@dataclass(frozen=True)
class LabMachine:
    """A host of the lab: see :class:`venturi.testbed.services.base.Machine`.

    Attributes
    ----------
    asked
        What the plan says of it.
    way
        How commands get there.
    privileged
        Whether root there is root here.
    started
        The servers that were started there.
    """

    asked: AskedHost
    way: Way
    privileged: bool
    started: list[LabProcess] = field(default_factory=list, compare=False)

    @property
    def name(self) -> str:
        """As the plan calls it."""
        return self.asked.name

    @property
    def host_name(self) -> str:
        """As it resolves in the lab."""
        return self.asked.host_name

    @property
    def address(self) -> str:
        """The address of its first interface."""
        return self.asked.address

    def words(self, argv: Sequence[str | Path], *, folder: Path | None = None) -> list[str]:
        """Return the command line that, typed on this machine, runs ``argv`` there."""
        within = ["sh", "-c", _IN_FOLDER, "venturi-lab", str(folder)] if folder else []
        return [*self.way.words(), *within, *map(str, argv)]

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command there to its end, with its output captured; the caller looks at the exit code.

        Raises
        ------
        subprocess.TimeoutExpired
            If it takes longer; it is ended then.
        """
        with subprocess.Popen(
            self.words(["setsid", *argv], folder=folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=self._environment(environment),
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=timeout_s)
            except BaseException:
                # `nsenter` passes no signals on: the command itself is its child.
                for pid in children(process.pid):
                    _signal_group(process, pid, signals.SIGKILL)
                process.kill()
                raise
        return subprocess.CompletedProcess(list(argv), process.returncode, out, err)

    def start(
        self,
        argv: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> LabProcess:
        """Start a server there, in a process group of its own; its output goes to ``log``.

        Where root there is not root here, it runs as an ordinary user of a nested user namespace: servers refuse to be root, and cannot
        change to another user either.

        Raises
        ------
        BackendError
            If it cannot be started.
        """
        plain = [] if self.privileged else _as_plain_user()
        with log.open("ab") as output:
            parent = subprocess.Popen(
                self.words(["setsid", *plain, *argv], folder=folder),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment(environment),
                start_new_session=True,
            )
        process = LabProcess(parent, _pid_inside(parent, log), log)
        self.started.append(process)
        return process

    def forget(self) -> None:
        """Take note of the end of all that was started, when the lab has ended it."""
        for process in self.started:
            process.stop(grace_s=_GONE_S)
        self.started.clear()

    def _environment(self, more: Mapping[str, str] | None) -> dict[str, str]:
        return {**surroundings(), **(more or {})}


def _as_plain_user() -> list[str]:
    return ["unshare", "--user", f"--map-user={os.geteuid()}", f"--map-group={os.getegid()}"]


def _pid_inside(parent: subprocess.Popen[bytes], log: Path) -> int:
    """Return the PID of the command that ``nsenter`` runs, once it leads a process group."""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        for pid in children(parent.pid):
            with suppress(ProcessLookupError):
                if os.getpgid(pid) == pid:
                    return pid
        if parent.poll() is not None:
            break
        time.sleep(_POLL_S)
    code = parent.poll()
    if code == 0:
        return parent.pid  # it has done its work and gone already; there is nobody to send signals to
    parent.kill()
    said = " | ".join(log.read_text(errors="replace").strip().splitlines()[-5:]) if log.exists() else ""
    raise BackendError(f"expected {parent.args!r} to start, found exit code {code}: {said}")


def _signal_group(parent: subprocess.Popen[bytes] | subprocess.Popen[str], pid: int, signal: int) -> None:
    """Send a signal to the group of a command: only while its parent is there, which is what keeps the PID from others."""
    if parent.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal)
