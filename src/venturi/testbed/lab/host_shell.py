"""Shell of a lab host: runs commands and servers and handles files and ports, through namespaces of this machine."""

from __future__ import annotations

import os
import secrets
import shutil
import signal as signals
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from venturi.errors import BackendError
from venturi.testbed.lab.process_id import children
from venturi.testbed.lab.programs import program_environment, search_path
from venturi.testbed.lab.spec import LabHostSpec

__all__ = ["HostEntry", "LabHostShell", "LabProcess"]

START_TIMEOUT_S = 10.0
"""Limit for the start of a command in the namespaces: a fork and three exec, which can be slow on a busy machine."""

_EXIT_GRACE_S = 5.0
_POLL_S = 0.002
_UMASK = "umask 0"
# `echo 0` into cgroup.procs moves the writing process (cgroups(7)): the shell, which then executes the command.
_JOIN = 'for group in {groups}; do echo 0 > "$group/cgroup.procs" || exit 125; done'
_IN_DIRECTORY = 'cd "$1" && shift && exec "$@"'
_MAKE_DIRECTORY = '[ -d "$1" ] || { mkdir -p -m "$2" -- "$1" && echo created; }'
_FILE_TIMEOUT_S = 60.0
_NO_SESSION = PurePath("/nonexistent")

# Runs in the network namespace of the host. A reply continues while its lines have the form `220-text` (RFC 959, section 4.2).
_CONVERSE = """
import socket, sys
address, port, timeout_s, *lines = sys.argv[1:]
with socket.create_connection((address, int(port)), float(timeout_s)) as link:
    link.settimeout(float(timeout_s))
    stream = link.makefile("rw", newline="", errors="replace")
    for line in lines:
        if line.startswith("+"):
            stream.write(line[1:] + "\\r\\n")
            stream.flush()
        reply = stream.readline(4096)
        while reply[:3].isdigit() and reply[3:4] != " ":
            more = stream.readline(4096)
            if not more or more[:4] == reply[:3] + " ":
                reply = more
                break
        print(reply.strip())
"""
_FREE_PORTS = """
import socket, sys
count, low, high = map(int, sys.argv[1:])
opened = []
for port in range(low, high + 1) if high else [0] * count:
    one = socket.socket()
    try:
        one.bind(("", port))
    except OSError:
        one.close()
        continue
    opened.append(one)
    if len(opened) == count:
        break
print(*(one.getsockname()[1] for one in opened))
"""


@dataclass(frozen=True, slots=True)
class HostEntry:
    """Parts of the command prefix of a host: control groups first (they are invisible inside), then cores, then namespaces."""

    enter: tuple[str, ...]
    groups: tuple[Path, ...] = ()
    cpus: tuple[int, ...] = ()

    def command_line(self) -> list[str]:
        """Return the command prefix."""
        join = [_JOIN.format(groups=" ".join(map(str, self.groups)))] if self.groups else []
        script = "; ".join([_UMASK, *join, 'exec "$@"'])
        pin = ["taskset", "-c", ",".join(map(str, self.cpus))] if self.cpus else []
        return ["sh", "-c", script, "venturi-lab", *pin, *self.enter]


class LabProcess:
    """Server on a host. Its parent on this machine is ``nsenter``, which returns its exit code."""

    def __init__(self, parent: subprocess.Popen[bytes], pid: int, log: Path) -> None:
        self._parent = parent
        self._pid = pid
        self._log = log

    @property
    def pid(self) -> int:
        """PID of the server on this machine."""
        return self._pid

    @property
    def log(self) -> Path:
        """File with standard output and error."""
        return self._log

    def poll(self) -> int | None:
        """Return the exit code (negative: a signal), or ``None`` while the server runs."""
        return self._parent.poll()

    def stop(self, *, signal: int = signals.SIGTERM, grace_s: float = 5.0) -> None:
        """Send ``signal`` to the process group, after ``grace_s`` SIGKILL, and return after the exit of the server.

        Then kill descendants that left the group, such as the sessions of sshd.
        """
        with ExitStack() as opened:
            below = _open_descendants(self._pid, opened) if self._parent.poll() is None else ()
            others = [descriptor for pid, descriptor in below if not _in_group(pid, self._pid)]
            _signal_group(self._parent, self._pid, signal)
            try:
                self._parent.wait(grace_s)
            except subprocess.TimeoutExpired:
                _signal_group(self._parent, self._pid, signals.SIGKILL)
                with suppress(subprocess.TimeoutExpired):
                    self._parent.wait(grace_s)
            for descriptor in others:
                with suppress(ProcessLookupError):
                    signals.pidfd_send_signal(descriptor, signals.SIGKILL)


@dataclass(frozen=True)
class LabHostShell:
    """Shell of a host of the lab: see :class:`venturi.testbed.host_shell.HostShell`.

    The directory of the lab has the same path on all hosts and on this machine, so files are read and written directly.
    Directories are created and removed by commands on the host, because a storage can be mounted there only.

    Attributes
    ----------
    spec
        Specification of the host.
    entry_command
        Command that enters the namespaces of the host.
    privileged
        Whether root on the host is root on this machine.
    engine
        Path of ``venturi-engine``.
    session
        Directory for temporary files.
    started
        Servers started on the host.
    agent_entry
        Command that enters as the agent: without a CPU limit.
    """

    spec: LabHostSpec
    entry_command: HostEntry
    privileged: bool
    engine: str = ""
    session: PurePath = _NO_SESSION
    started: list[LabProcess] = field(default_factory=list, compare=False)
    agent_entry: HostEntry | None = None

    @property
    def name(self) -> str:
        """Name in the plan."""
        return self.spec.name

    @property
    def host_name(self) -> str:
        """Name that resolves in the lab."""
        return self.spec.host_name

    @property
    def address(self) -> str:
        """Address of the first interface."""
        return self.spec.address

    def command_line(self, argv: Sequence[str | PurePath], *, directory: PurePath | None = None) -> list[str]:
        """Return the command line of this machine that runs ``argv`` on the host."""
        within = ["sh", "-c", _IN_DIRECTORY, "venturi-lab", str(directory)] if directory else []
        return [*self.entry_command.command_line(), *within, *map(str, argv)]

    def agent_command(self, argv: Sequence[str | PurePath]) -> list[str]:
        """Return the command line of this machine that runs an agent on the host."""
        entry = self.agent_entry or self.entry_command
        return [*entry.command_line(), *map(str, argv)]

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        environment: Mapping[str, str] | None = None,
        directory: PurePath | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the host and return its exit code and output. A nonzero exit code is not an error.

        Raises
        ------
        subprocess.TimeoutExpired
            If the command takes longer. It is killed.
        """
        with subprocess.Popen(
            self.command_line(["setsid", *argv], directory=directory),
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
                # `nsenter` does not forward signals, so kill its child, the command.
                for pid in children(process.pid):
                    _signal_group(process, pid, signals.SIGKILL)
                process.kill()
                raise
        return subprocess.CompletedProcess(list(argv), process.returncode, out, err)

    def start(
        self,
        argv: Sequence[str],
        *,
        log: PurePath,
        environment: Mapping[str, str] | None = None,
        directory: PurePath | None = None,
    ) -> LabProcess:
        """Start a server on the host, in its own process group, with its output in ``log``.

        If root on the host is not root on this machine, the server runs as an ordinary user of a nested user namespace. Some
        servers reject root, and could not change to another user.

        Raises
        ------
        BackendError
            If the server cannot be started.
        """
        unprivileged = [] if self.privileged else _as_unprivileged_user()
        with Path(log).open("ab") as output:
            parent = subprocess.Popen(
                self.command_line(["setsid", *unprivileged, *argv], directory=directory),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment(environment),
                start_new_session=True,
            )
        process = LabProcess(parent, _pid_inside(parent, Path(log)), Path(log))
        self.started.append(process)
        return process

    def put(self, path: PurePath | str, content: bytes | str, mode: int = 0o600) -> None:
        """Write a file atomically; missing parent directories are created with mode 0700."""
        target = Path(path)
        # `parents=True` would set the mode of the last directory only.
        for parent in reversed([parent for parent in target.parents if not parent.exists()]):
            parent.mkdir(mode=0o700, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
            temporary.chmod(mode)
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def get(self, path: PurePath | str) -> bytes:
        """Return the content of a file."""
        return Path(path).read_bytes()

    def exists(self, path: PurePath | str) -> bool:
        """Return whether a file or directory exists."""
        return Path(path).exists()

    def remove(self, path: PurePath | str) -> None:
        """Remove a file, or a directory with its content; a missing one is not an error."""
        target = Path(path)
        if target.is_file() or target.is_symlink():
            target.unlink(missing_ok=True)
        else:
            self._change_files(["rm", "-rf", "--", str(path)])

    def make_directory(self, path: PurePath | str, mode: int = 0o700) -> bool:
        """Create a directory with its parents and return True. An existing directory keeps its mode and returns False."""
        return self._change_files(["sh", "-c", _MAKE_DIRECTORY, "sh", str(path), f"{mode:o}"]) != ""

    def converse(self, address: str, port: int, lines: Sequence[str | None], timeout_s: float) -> list[str]:
        """Connect from this host to a server, send lines of text and return the last line of each reply."""
        # -I -S: loads no environment and no site packages, which also saves time.
        argv = [sys.executable, "-I", "-S", "-c", _CONVERSE, address, str(port), str(timeout_s)]
        limit_s = timeout_s * (len(lines) + 1)
        try:
            done = self.run([*argv, *("" if line is None else f"+{line}" for line in lines)], timeout_s=limit_s)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"no reply within {limit_s:g} s") from error
        replies = done.stdout.splitlines()
        if len(replies) < len(lines) or done.returncode:
            errors = done.stderr.strip().splitlines()
            raise ConnectionError(errors[-1] if errors else "the connection ended")
        return replies

    def which(self, program: str) -> str | None:
        """Return the path of a program; lab hosts have the programs of this machine."""
        return shutil.which(program, path=search_path())

    def free_ports(self, count: int, low: int | None = None, high: int | None = None) -> list[int]:
        """Return free TCP ports, between ``low`` and ``high`` if these are set."""
        argv = [sys.executable, "-I", "-S", "-c", _FREE_PORTS, str(count), str(low or 0), str(high or 0)]
        found = [int(port) for port in self.run(argv, timeout_s=_FILE_TIMEOUT_S).stdout.split()]
        if len(found) < count:
            where = f" from {low} to {high}" if high else ""
            raise OSError(f"expected {count} free ports{where} on {self.name}, found {len(found)}")
        return found

    def forget(self) -> None:
        """Reap all started servers, after the lab has ended them."""
        for process in self.started:
            process.stop(grace_s=_EXIT_GRACE_S)
        self.started.clear()

    def _change_files(self, argv: Sequence[str]) -> str:
        done = self.run(argv, timeout_s=_FILE_TIMEOUT_S)
        if done.returncode:
            raise OSError(done.stderr.strip() or f"{argv[0]}: exit code {done.returncode}")
        return done.stdout

    def _environment(self, more: Mapping[str, str] | None) -> dict[str, str]:
        return {**program_environment(), **(more or {})}


def _as_unprivileged_user() -> list[str]:
    return ["unshare", "--user", f"--map-user={os.geteuid()}", f"--map-group={os.getegid()}"]


def _open_descendants(pid: int, opened: ExitStack) -> Iterator[tuple[int, int]]:
    """Yield PID and pidfd of all descendants of a process. A PID can be reused, a pidfd cannot."""
    for child in _all_children(pid):
        try:
            descriptor = os.pidfd_open(child)
        except ProcessLookupError:
            continue
        opened.callback(os.close, descriptor)
        yield child, descriptor
        yield from _open_descendants(child, opened)


def _all_children(pid: int) -> list[int]:
    """Return the children of all threads of a process."""
    found: list[int] = []
    with suppress(OSError):  # the process has exited
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - Path.iterdir raises later
            with suppress(OSError):
                listed = Path(f"/proc/{pid}/task/{thread}/children")
                found += [int(word) for word in listed.read_text(encoding="ascii").split()]
    return found


def _in_group(pid: int, group: int) -> bool:
    with suppress(ProcessLookupError):
        return os.getpgid(pid) == group
    return True


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
        return parent.pid  # the command has already exited, so no process remains for signals
    parent.kill()
    output = " | ".join(log.read_text(errors="replace").strip().splitlines()[-5:]) if log.exists() else ""
    raise BackendError(f"cannot start {parent.args!r}: exit code {code}: {output}")


def _signal_group(parent: subprocess.Popen[bytes] | subprocess.Popen[str], pid: int, signal: int) -> None:
    """Signal the process group of a command, but only while its parent exists, because the PID is not reused until then."""
    if parent.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal)
