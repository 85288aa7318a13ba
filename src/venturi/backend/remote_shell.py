"""Host behind a connection: :class:`venturi.testbed.host_shell.HostShell` with the commands of a host shell."""

from __future__ import annotations

import base64
import errno
import shlex
import signal as signals
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import PurePath, PurePosixPath
from types import TracebackType
from typing import IO, Any

from venturi.backend.clock import ClockOffset, RoundTrip, estimate_offset
from venturi.backend.shell_client import (
    COMMAND_TIMEOUT_S,
    LineReader,
    ShellCallbacks,
    ShellClient,
    ShellError,
    ShellLostError,
    ShellResult,
    exit_code,
)
from venturi.errors import BackendError

__all__ = ["CommandTimeoutError", "PathProperties", "PathStat", "RemoteHostShell", "RemoteListener", "RemoteProcess"]

GRACE_S = 30.0
"""Additional limit, in seconds, for the result of a command with its own time limit."""
CLOCK_ROUNDS = 8
CLOCK_PAUSE_S = 0.002
CHUNK_BYTES = 2**20
MAX_ATOMIC_BYTES = 2**23

# Prints the path of a program that execvp would use. Builtins of the shell do not count.
_WHICH = 'IFS=:; for d in $PATH; do [ -f "$d/$1" ] && [ -x "$d/$1" ] && echo "$d/$1" && exit; done; exit 1'


class CommandTimeoutError(BackendError, subprocess.TimeoutExpired):
    """Command of :meth:`RemoteHostShell.run` that took longer than its limit and was killed."""

    def __init__(self, host: str, argv: Sequence[str], timeout_s: float, stdout: str = "", stderr: str = "") -> None:
        subprocess.TimeoutExpired.__init__(self, list(argv), timeout_s, stdout, stderr)
        self._host = host

    def __str__(self) -> str:
        return (
            f"{self._host}: expected `{shlex.join(self.cmd)}` to end within {self.timeout:g} s, found it running."
            " Check load and file systems of the host."
        )


@dataclass(frozen=True, slots=True)
class PathStat:
    """A path of a host.

    Attributes
    ----------
    kind
        ``file``, ``directory``, ``other`` or ``absent``.
    size_bytes, mode, owner_uid
        None if the path is absent.
    free_bytes, writable, noexec, file_system
        Properties of its file system. For an absent path, of its nearest existing parent. None if unknown.
    """

    kind: str
    size_bytes: int | None = None
    mode: int | None = None
    owner_uid: int | None = None
    free_bytes: int | None = None
    writable: bool | None = None
    noexec: bool | None = None
    file_system: str | None = None


@dataclass(frozen=True, slots=True)
class PathProperties:
    """Result of TCP connections from a host to an address.

    Attributes
    ----------
    times_s
        Time of each connect, in seconds.
    rtt_s
        Smallest round-trip time of the kernel, in seconds.
    path_mtu_bytes, mss_bytes
        Path MTU and maximum segment size. None if unknown.
    local_address, remote_address
        Addresses of the connection.
    interface, interface_bit_per_s
        Network interface of the local address and its speed. None if unknown.
    family
        ``ipv4`` or ``ipv6``.
    """

    times_s: tuple[float, ...] = ()
    rtt_s: float | None = None
    path_mtu_bytes: int | None = None
    mss_bytes: int | None = None
    local_address: str | None = None
    remote_address: str | None = None
    interface: str | None = None
    interface_bit_per_s: float | None = None
    family: str | None = None


class RemoteProcess:
    """A server that a host shell started."""

    def __init__(self, shell: RemoteHostShell, name: str, pid: int, log: PurePath) -> None:
        self._shell = shell
        self._name = name
        self._pid = pid
        self._log = log
        self._code: int | None = None

    @property
    def name(self) -> str:
        """Name in the shell."""
        return self._name

    @property
    def pid(self) -> int:
        """PID on its host."""
        return self._pid

    @property
    def log(self) -> PurePath:
        """File on its host with its standard output and error."""
        return self._log

    def poll(self) -> int | None:
        """Return the exit code (negative: a signal), or None while it runs. If the shell was lost, the server was killed."""
        if self._code is None:
            self._code = self._shell.exit_code(self._name)
        return self._code

    def stop(self, *, signal: int = signals.SIGTERM, grace_s: float = 5.0) -> None:
        """Send ``signal`` to its process group, SIGKILL after ``grace_s``, and return after its exit."""
        if self.poll() is not None and self._shell.is_lost:
            return
        try:
            result = self._shell.call(
                "stop", limit_s=grace_s + GRACE_S, process=self._name, signal=int(signal), grace_s=grace_s
            )
        except ShellLostError:
            self._code = self._code if self._code is not None else -signals.SIGKILL
        except ShellError as error:
            if error.kind != "not_found":
                raise
        else:
            if self._code is None:
                self._code = exit_code(result.get("exit_code"), result.get("signal"))


@dataclass(frozen=True, slots=True)
class RemoteListener:
    """An open port of a host that accepts and closes connections, for probes. As a context manager it closes the port.

    Attributes
    ----------
    port
        Port number.
    submit_close
        Function that starts to close the port, and returns a function that waits until it is closed.
    """

    port: int
    submit_close: Callable[[], Callable[[], object]]

    def close(self) -> None:
        """Close the port."""
        self.submit_close()()

    def __enter__(self) -> RemoteListener:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RemoteHostShell(ShellClient):
    """A host behind a connection, as returned by :func:`venturi.backend.connection.open_shell`.

    As a context manager it ends the shell.

    Attributes
    ----------
    name, host_name, address
        Name in the plan, host name, and address for data.
    node_name, user
        Node name of the system, and user name on the host.
    privileged
        Whether the user is root.
    engine
        Path of the engine on the host.
    cache
        Persistent directory on the host: engine, sessions, scratch.
    session
        Directory of this session on the host. It is removed at the end.
    hello
        First record of the shell.
    environment
        Variables for all commands and servers.
    clock_offset
        Last result of :meth:`clock`. None before the first.
    """

    def __init__(
        self,
        name: str,
        process: subprocess.Popen[bytes],
        reader: LineReader,
        hello: Mapping[str, Any],
        *,
        engine: str,
        cache: PurePosixPath,
        node_name: str,
        user: str,
        privileged: bool,
        address: str,
        silence_s: float,
        errors: IO[bytes],
        explain: Callable[[int | None, str], str],
        environment: Mapping[str, str] | None = None,
        callbacks: ShellCallbacks | None = None,
    ) -> None:
        self.address = address
        self.host_name = node_name if _is_ip_address(address) else address
        self.node_name = node_name
        self.user = user
        self.privileged = privileged
        self.engine = engine
        self.cache = cache
        self.hello = dict(hello)
        self.environment = dict(environment or {})
        self.clock_offset: ClockOffset | None = None
        self.session: PurePath = PurePosixPath(str(hello.get("directory", "")))
        self._started: dict[str, int] = {}
        self._found: dict[str, str | None] = {}
        super().__init__(
            name, process, reader, silence_s=silence_s, errors=errors, explain=explain, callbacks=callbacks
        )

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        environment: Mapping[str, str] | None = None,
        directory: PurePath | None = None,
        stdin: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command and return its exit code and output.

        A nonzero exit code is not an error. 127 means that the program was not found.

        Raises
        ------
        CommandTimeoutError
            If the command takes longer. It is killed with its children.
        """
        words = [str(word) for word in argv]
        result = self.call(
            "run",
            limit_s=timeout_s + GRACE_S,
            argv=words,
            environment={**self.environment, **(environment or {})},
            timeout_s=timeout_s,
            **_given(directory=None if directory is None else str(directory), stdin=stdin),
        )
        out, err = str(result.get("stdout") or ""), str(result.get("stderr") or "")
        if result.get("timed_out"):
            raise CommandTimeoutError(self.name, words, timeout_s, out, err)
        code = exit_code(result.get("exit_code"), result.get("signal"))
        return subprocess.CompletedProcess(words, code, out, err)

    def start(
        self,
        argv: Sequence[str],
        *,
        log: PurePath,
        environment: Mapping[str, str] | None = None,
        directory: PurePath | None = None,
    ) -> RemoteProcess:
        """Start a server in its own process group, with its output in ``log``. It ends with the shell.

        Raises
        ------
        BackendError
            If it does not start.
        """
        words = [str(word) for word in argv]
        base = PurePosixPath(words[0]).name
        with self._lock:
            count = self._started[base] = self._started.get(base, 0) + 1
        name = f"{base}-{count}"
        result = self.call(
            "start",
            process=name,
            argv=words,
            environment={**self.environment, **(environment or {})},
            log=str(log),
            **_given(directory=None if directory is None else str(directory)),
        )
        return RemoteProcess(self, name, int(result["pid"]), log)

    def put(self, path: PurePath | str, content: bytes | str, mode: int = 0o600) -> None:
        """Write a file, atomically up to 8 MiB. Missing parent directories are created with mode 0700.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        data = content.encode() if isinstance(content, str) else content
        if len(data) <= MAX_ATOMIC_BYTES:
            self.submit_put(path, data, mode)()
            return
        for offset in range(0, len(data), CHUNK_BYTES):
            self.submit_put(path, data[offset : offset + CHUNK_BYTES], mode, append=offset > 0)()

    def submit_put(
        self, path: PurePath | str, content: bytes, mode: int, *, append: bool = False
    ) -> Callable[[], object]:
        """Start to write a file, or to append to it, and return a function that waits for the result; see :meth:`put`."""
        more = {"append": True} if append else {}
        return self.submit_file("put", path, content=base64.b64encode(content).decode(), mode=mode, **more)

    def get(self, path: PurePath | str) -> bytes:
        """Return the content of a file.

        Raises
        ------
        FileNotFoundError
            If the file does not exist.
        OSError
            If it cannot be read.
        """
        parts: list[bytes] = []
        offset = 0
        while True:
            result = self._file("get", path, offset=offset, max_bytes=CHUNK_BYTES)
            part = base64.b64decode(result["content"])
            parts.append(part)
            offset += len(part)
            if not part or offset >= int(result["size_bytes"]):
                return b"".join(parts)

    def stat(self, path: PurePath | str) -> PathStat:
        """Return kind, size, owner and file system of a path.

        Raises
        ------
        OSError
            If it cannot be examined.
        """
        result = self._file("stat", path)
        return PathStat(**{key: value for key, value in result.items() if key in PathStat.__slots__})

    def exists(self, path: PurePath | str) -> bool:
        """Return whether a file or directory exists at this path."""
        return self.stat(path).kind != "absent"

    def remove(self, path: PurePath | str) -> None:
        """Remove a file, or a directory with its contents. A missing path is not an error.

        Raises
        ------
        OSError
            If it cannot be removed.
        """
        try:
            self._file("remove", path, recursive=True)
        except FileNotFoundError:
            return

    def make_directory(self, path: PurePath | str, mode: int = 0o700, **fields: object) -> bool:
        """Create a directory and its parents, and return whether it is new. An existing directory keeps its mode.

        Raises
        ------
        OSError
            If it cannot be created.
        """
        return bool(self._file("make_directory", path, mode=mode, **fields).get("created"))

    def list_directory(self, path: PurePath | str) -> list[dict[str, Any]]:
        """Return ``name``, ``kind`` and ``size_bytes`` of the entries of a directory.

        Raises
        ------
        OSError
            If it cannot be read.
        """
        return list(self._file("list", path)["entries"])

    def converse(self, address: str, port: int, lines: Sequence[str | None], timeout_s: float) -> list[str]:
        """Connect from the host to a server, send lines of text, and return the last line of each reply.

        Raises
        ------
        OSError
            If it cannot connect, or the connection ends.
        """
        try:
            result = self.call(
                "converse",
                limit_s=timeout_s * (len(lines) + 1) + GRACE_S,
                address=address,
                port=port,
                lines=[{"send": line} for line in lines],
                timeout_s=timeout_s,
            )
        except ShellError as error:
            raise _os_error(error) from error
        return [str(reply) for reply in result["replies"]]

    def which(self, program: str) -> str | None:
        """Return the path of a program, from ``PATH`` or the system directories ``sbin``, or None."""
        if program not in self._found:
            if "/" in program:
                found = program if self.run(["test", "-x", program], timeout_s=10.0).returncode == 0 else None
            else:
                result = self.run(["sh", "-c", _WHICH, "sh", program], timeout_s=10.0)
                found = result.stdout.strip() or None if result.returncode == 0 else None
            self._found[program] = found
        return self._found[program]

    def free_ports(self, count: int, low: int | None = None, high: int | None = None) -> list[int]:
        """Return free TCP ports, between ``low`` and ``high`` if set.

        Raises
        ------
        OSError
            If there are not enough free ports.
        """
        try:
            result = self.call("free_ports", count=count, **_given(low=low, high=high))
        except ShellError as error:
            raise _os_error(error) from error
        return [int(port) for port in result["ports"]]

    def listen(
        self,
        *,
        address: str | None = None,
        port: int | None = None,
        low: int | None = None,
        high: int | None = None,
        send_bytes: int = 0,
    ) -> RemoteListener:
        """Open a port that accepts and closes connections, until the port is closed.

        Parameters
        ----------
        address
            Address to listen on. Default: all addresses.
        port, low, high
            The port, or the range of a free port. Default: any port.
        send_bytes
            Number of bytes that each client receives before its connection is closed.

        Raises
        ------
        ShellError
            If the host cannot listen on that port.
        """
        result = self.call(
            "listen", **_given(address=address, port=port, low=low, high=high, send_bytes=send_bytes or None)
        )
        identifier = int(result["listener"])
        return RemoteListener(int(result["port"]), lambda: self._submit_close(identifier))

    def connect(
        self,
        host: str,
        port: int,
        *,
        count: int = 5,
        timeout_s: float = 5.0,
        send_bytes: int = 0,
        receive_bytes: int = 0,
    ) -> PathProperties:
        """Connect from the host to an address by TCP.

        Parameters
        ----------
        host, port
            Name or address, and port.
        count
            Number of connections.
        timeout_s
            Limit of all connections together, in seconds.
        send_bytes, receive_bytes
            Number of bytes that must arrive in each direction on the last connection. Only for ports of :meth:`listen`.

        Raises
        ------
        ShellError
            With kind ``refused``, ``timeout``, ``unreachable``, ``unresolved``, or ``stalled`` if large packets do not
            arrive.
        """
        result = self.call(
            "connect",
            limit_s=timeout_s + GRACE_S,
            host=host,
            port=port,
            count=count,
            timeout_s=timeout_s,
            **_given(send_bytes=send_bytes or None, receive_bytes=receive_bytes or None),
        )
        known = {key: result[key] for key in PathProperties.__slots__ if key in result}
        return PathProperties(**{**known, "times_s": tuple(known.get("times_s") or ())})

    def clock(self, limit_s: float = COMMAND_TIMEOUT_S) -> ClockOffset:
        """Return the offset of the host's clock from the clock of this machine.

        All rounds are in flight at the same time, so that over a long path they take the time of one.

        Parameters
        ----------
        limit_s
            Limit of all rounds together, in seconds.

        Raises
        ------
        ShellLostError
            If the connection ends.
        BackendError
            If there is no result in time.
        """
        deadline_s = time.monotonic() + limit_s
        sent: list[tuple[int, ShellResult]] = []
        for _ in range(CLOCK_ROUNDS):
            sent.append((time.time_ns(), self.submit("clock")))
            time.sleep(CLOCK_PAUSE_S)
        trips = []
        for sent_ns, result in sent:
            unix_ns = int(self.wait(result, "clock", deadline_s - time.monotonic())["unix_ns"])
            trips.append(RoundTrip(sent_ns, unix_ns, result.received_ns))
        self.clock_offset = estimate_offset(trips)
        return self.clock_offset

    def operate(self, operation: Mapping[str, Any], *, limit_s: float = 3600.0) -> dict[str, Any]:
        """Execute an operation on files of the host and return its outcome.

        Raises
        ------
        ShellError
            If it fails.
        """
        return dict(self.call("operate", limit_s=limit_s, operation=dict(operation))["outcome"])

    def submit_file(self, command: str, path: PurePath | str, **fields: Any) -> Callable[[], dict[str, Any]]:  # noqa: ANN401 - values of JSON
        """Send a command on a file, and return a function that waits for its result.

        The function raises OSError if the command fails.
        """
        result = self.submit(command, path=str(path), **fields)

        def wait() -> dict[str, Any]:
            try:
                return self.wait(result, command)
            except ShellError as error:
                raise _os_error(error, str(path)) from error

        return wait

    def _submit_close(self, identifier: int) -> Callable[[], object]:
        try:
            result = self.submit("close", listener=identifier)
        except ShellLostError:
            return lambda: None

        def wait() -> None:
            with suppress(ShellError, ShellLostError):
                self.wait(result, "close")

        return wait

    def _file(self, command: str, path: PurePath | str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - values of JSON
        return self.submit_file(command, path, **fields)()


_ERRNO = {
    "not_found": errno.ENOENT,
    "permission": errno.EACCES,
    "exists": errno.EEXIST,
    "no_space": errno.ENOSPC,
    "read_only": errno.EROFS,
    "timeout": errno.ETIMEDOUT,
    "refused": errno.ECONNREFUSED,
    "unreachable": errno.EHOSTUNREACH,
    "invalid": errno.EINVAL,
}


def _os_error(error: ShellError, path: str | None = None) -> OSError:
    """Return the built-in error for an error kind: ``FileNotFoundError``, ``PermissionError``, ``TimeoutError`` and so on."""
    number = _ERRNO.get(error.kind, errno.EIO)
    return OSError(number, str(error), path) if path is not None else OSError(number, str(error))


def _given(**fields: object) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _is_ip_address(address: str) -> bool:
    try:
        ip_address(address.strip("[]"))
    except ValueError:
        return False
    return True
