"""Connections to hosts: a command prefix that runs commands there, and the start of the host shell through it.

The prefix is the user's own ``ssh`` with its configuration (jump hosts, Kerberos, shared connections, keys), any other
command such as ``srun`` or ``podman exec -i``, or empty for this machine. Commands never prompt the user.

One connection performs all steps up to the host shell. It probes system and cache directory, receives the engine if it
is missing there, and becomes ``venturi-engine shell``. The agent is a second connection that uses the known path
(:meth:`Connection.engine_command`).
"""

from __future__ import annotations

import os
import re
import secrets
import select
import shlex
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path, PurePosixPath
from typing import IO, Any

from venturi.backend.engine import Engine, find_engines
from venturi.backend.remote_shell import RemoteHostShell
from venturi.backend.shell_client import PROTOCOL, LineReader, ShellCallbacks, output_tail
from venturi.errors import BackendError

__all__ = [
    "CONNECTIONS_AT_ONCE",
    "SILENCE_S",
    "SSH_VARIABLE",
    "Connection",
    "SshDestination",
    "local_cache",
    "new_session",
    "open_shell",
    "resolve_ssh",
]

SSH_VARIABLE = "VENTURI_SSH"
"""Environment variable with additional arguments of ssh, such as ``-F config`` or ``-p 2222``."""

CONNECTIONS_AT_ONCE = 8
"""Number of hosts that are connected at the same time. Jump hosts reject more (``MaxStartups`` of sshd is 10)."""

SILENCE_S = 45.0
"""Shells and agents end after this time without a line from the controller, in seconds."""

CONNECT_TIMEOUT_S = 30
START_TIMEOUT_S = 90.0
"""Limit of connecting, probing and starting, in seconds, because a login node under load is slow."""
UPLOAD_TIMEOUT_S = 600.0
RESOLVE_TIMEOUT_S = 10.0

_MARK = "venturi:"
_SSH_FAILED = 255
"""Exit code of ssh if ssh itself failed, and not the command."""
_CHUNK_BYTES = 2**16
_SSH_OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_TIMEOUT_S}",
                "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4")  # fmt: skip


@dataclass(frozen=True, slots=True)
class SshDestination:
    """Destination after the user's ssh configuration: output of ``ssh -G``."""

    user: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Connection:
    """Method of running commands on a host.

    Attributes
    ----------
    name
        Host of the plan.
    prefix
        Words before a command on this machine. Empty if the host is this machine.
    ssh
        Destination of ssh. None for another prefix, or for this machine.
    """

    name: str
    prefix: tuple[str, ...] = ()
    ssh: str | None = None

    @classmethod
    def to(cls, name: str, *, ssh: str | None = None, connect: Sequence[str] | None = None) -> Connection:
        """Return the connection to a host of the plan.

        Parameters
        ----------
        name
            Host of the plan.
        ssh
            Destination of ssh: ``user@host`` or a name of the user's configuration.
        connect
            Other prefix, such as ``["podman", "exec", "-i", "dtn"]``.

        Raises
        ------
        BackendError
            If the destination is empty or looks like an option, or if both are set.
        """
        where = f"testbed.host.{name}"
        if ssh is not None and connect is not None:
            raise BackendError(f"{where}: expected `ssh` or `connect`, found both; remove one")
        if connect is not None:
            if not connect or not all(connect):
                raise BackendError(
                    f'{where}.connect: expected words such as ["podman", "exec", "-i", "dtn"], found {list(connect)!r}'
                )
            return cls(name, tuple(connect))
        if ssh is None:
            return cls(name)
        if not ssh or ssh.startswith("-") or re.search(r"[\s\0]", ssh):
            raise BackendError(
                f'{where}.ssh: expected a destination such as "user@host", found "{ssh}"; put options into ~/.ssh/config or {SSH_VARIABLE}'
            )
        return cls(name, ("ssh", *_user_options(), *_SSH_OPTIONS, "--", ssh), ssh)

    @property
    def is_local(self) -> bool:
        """Whether the host is this machine, without any prefix."""
        return not self.prefix

    def command(self, script: str) -> list[str]:
        """Return the command line that runs a script of ``sh`` on the host."""
        if self.ssh is not None:
            # ssh passes one text to the login shell, which can be any shell. So the text has only quotes, and one line.
            return [*self.prefix, f"exec sh -c {shlex.quote(script)}"]
        return [*self.prefix, "sh", "-c", script]

    def waiting_command(self) -> list[str]:
        """Return the command line that connects to the host and waits for a line with the command to execute."""
        return self.command('read -r line && eval "exec $line"')

    def waiting_line(self, engine: str, argv: Sequence[str], environment: Mapping[str, str]) -> bytes:
        """Return the line for :meth:`waiting_command` that runs the engine of the host."""
        return shlex.join(_with_variables(engine, argv, environment)).encode()

    def engine_command(
        self, engine: str, argv: Sequence[str], *, environment: Mapping[str, str] | None = None
    ) -> list[str]:
        """Return the command line that runs the engine of the host, with additional environment variables."""
        words = _with_variables(engine, argv, environment or {})
        if self.ssh is None:
            return [*self.prefix, *words]
        return self.command(f"exec {shlex.join(words)}")

    def explain(self, code: int | None, output: str) -> str:
        """Return the reason why a command did not run on the host, as one line: host, cause, next step.

        Parameters
        ----------
        code
            Exit code of the prefix (negative: a signal). None if it was not started.
        output
            Its standard error.
        """
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        reason = " | ".join(lines[-4:])
        if self.ssh is not None and code == _SSH_FAILED:
            for pattern, cause, step in _SSH_CAUSES:
                if re.search(pattern, output, re.IGNORECASE):
                    return f"{self.name}: cannot connect: {cause} ({_first_match(pattern, output)}). {step.format(target=self.ssh)}"
            return f"{self.name}: cannot connect: {reason or 'ssh ended without a message'}. Check the network, its firewalls and the MTU: `ssh -v -o BatchMode=yes {self.ssh} true`."
        how = "exit code unknown" if code is None else f"signal {-code}" if code < 0 else f"exit code {code}"
        step = f"Check `{shlex.join(self.command('true'))}`." if self.prefix else "Check this machine."
        return f"{self.name}: cannot run a command on the host: {how}{f': {reason}' if reason else ''}. {step}"

    def explain_loss(self, code: int | None, output: str) -> str:
        """Return the reason why an established connection ended. Parameters as for :meth:`explain`."""
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        how = "" if code is None else f"signal {-code}" if code < 0 else f"exit code {code}"
        found = ": ".join(
            [f"{shlex.quote(self.prefix[0]) if self.prefix else 'shell'} ended with {how}", *lines[-1:]]
        )
        return f"{self.name}: the connection to the host shell ended ({found}). Check the host and the network."


_SSH_CAUSES = (
    (r"host identification has changed|host key for \S+ has changed|offending .* key in", "its host key has changed",
     "Find out why. If the change is legitimate, remove the old key with `ssh-keygen -R HOST` and connect once with `ssh {target}`."),
    (r"host key is known|host key verification failed", "its host key is unknown",
     "Connect once with `ssh {target}`, compare the fingerprint and accept it."),
    (r"permission denied", "the login was rejected",
     "Make `ssh -o BatchMode=yes {target} true` work without a password, with `ssh-add` if the key has a passphrase, or with a ticket."),
    (r"could not resolve hostname|name or service not known", "its name is unknown",
     "Correct the destination, or add it to ~/.ssh/config: `ssh {target}`."),
    (r"connection refused", "connection refused",
     "Start an SSH server there, or correct host and port. Check `ssh -o BatchMode=yes {target} true`."),
    (r"no route to host|network is unreachable", "it cannot be reached",
     "Check the network: `ssh -o BatchMode=yes {target} true`."),
    (r"timed out|timeout|not responding", "it does not respond",
     "Check the network, its firewalls and the MTU: `ssh -v -o BatchMode=yes {target} true`."),
)  # fmt: skip
"""Pattern in the output of ssh, cause, next step. The first match counts."""


def resolve_ssh(target: str) -> SshDestination:
    """Return user, host and port of a destination after the user's ssh configuration, without a connection."""
    try:
        result = subprocess.run(
            ["ssh", *_user_options(), "-G", "--", target],
            capture_output=True, text=True, timeout=RESOLVE_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        lines = result.stdout.splitlines() if result.returncode == 0 else []
    except (OSError, subprocess.TimeoutExpired):
        lines = []
    found = dict(line.split(" ", 1) for line in lines if " " in line)
    user, _, host = target.rpartition("@")
    return SshDestination(found.get("user", user), found.get("hostname", host), int(found.get("port", 22)))


def local_cache(cache: str | None = None) -> Path:
    """Return the cache directory of this machine: ``cache``, or the default of the user."""
    if cache:
        return Path(cache).expanduser()
    home = os.environ.get("HOME")
    base = os.environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else None)
    return Path(base, "venturi") if base else Path(tempfile.gettempdir(), f"venturi-{os.geteuid()}")


def open_shell(
    connection: Connection,
    engines: Mapping[str, Engine] | None = None,
    *,
    session: str | None = None,
    cache: str | None = None,
    address: str | None = None,
    environment: Mapping[str, str] | None = None,
    silence_s: float = SILENCE_S,
    callbacks: ShellCallbacks | None = None,
    on_step: Callable[[str], None] = lambda step: None,
    on_process: Callable[[subprocess.Popen[bytes]], None] = lambda process: None,
) -> RemoteHostShell:
    """Connect to a host and start its shell.

    Parameters
    ----------
    connection
        Connection to the host.
    engines
        Engine by machine (``uname -m``). The key ``""`` is for every machine. Default:
        :func:`venturi.backend.engine.find_engines`.
    session
        Unique name of the session: letters, digits, ``.``, ``_`` and ``-``. Default: a new one.
    cache
        Directory on the host for engine, scratch and sessions. Default: the first usable one of the standard directories.
    address
        Address for data. Default: host name of the ssh destination, or node name of the host.
    environment
        Variables for all commands and servers on the host.
    silence_s
        The shell ends after this time without a line from the controller, in seconds.
    callbacks
        Called when a server or the connection has ended.
    on_step
        Called with a message before a slow step.
    on_process
        Called with the process of each connection. The caller can kill it to end a long wait.

    Raises
    ------
    BackendError
        With host, cause and next step, as one line.
    """
    engines = find_engines() if engines is None else engines
    session = session or new_session(connection.name)
    if connection.is_local:
        return _open_local(
            connection, engines, session, cache, address, environment, silence_s, callbacks, on_process
        )
    rejected: list[str] = []
    ssh = connection.ssh if address is None else None
    destination: list[SshDestination] = []
    resolver = threading.Thread(target=lambda: destination.append(resolve_ssh(ssh)) if ssh else None, daemon=True)
    resolver.start()  # runs while the connection is made
    while True:
        bootstrap = _Bootstrap(connection, engines, session, cache, silence_s, tuple(rejected), on_step)
        on_process(bootstrap.process)
        try:
            hello = bootstrap.work()
            break
        except _DirectoryError as error:
            # A full disk is detected only while the engine is written. The next candidate is used in a new connection.
            if cache or not error.directory or error.directory in rejected:
                raise BackendError(str(error)) from error
            rejected.append(error.directory)
    resolver.join()
    return RemoteHostShell(
        connection.name,
        bootstrap.process,
        bootstrap.reader,
        hello,
        engine=bootstrap.engine,
        cache=PurePosixPath(bootstrap.directory),
        node_name=bootstrap.node_name,
        user=bootstrap.user,
        privileged=bootstrap.user_id == "0",
        address=address or (destination[0].host if destination else bootstrap.node_name),
        silence_s=silence_s,
        environment=environment,
        errors=bootstrap.errors,
        explain=connection.explain_loss,
        callbacks=callbacks,
    )


def new_session(host: str) -> str:
    """Return a unique name of a session for a host."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{re.sub(r'[^A-Za-z0-9._-]', '_', host)}-{secrets.token_hex(4)}"


def _open_local(
    connection: Connection,
    engines: Mapping[str, Engine],
    session: str,
    cache: str | None,
    address: str | None,
    environment: Mapping[str, str] | None,
    silence_s: float,
    callbacks: ShellCallbacks | None,
    on_process: Callable[[subprocess.Popen[bytes]], None],
) -> RemoteHostShell:
    node = os.uname()
    engine = engines.get(node.machine) or engines.get("") or next(iter(engines.values()))
    directory = local_cache(cache)
    command = [str(engine.path), "shell", "--session", session, "--sessions", str(directory / "sessions"),
               "--silence-s", str(ceil(silence_s))]  # fmt: skip
    process, errors = _start(connection, command)
    on_process(process)
    reader = LineReader(process.stdout)
    try:
        hello = _wait_for_hello(connection, process, reader, errors, time.monotonic() + START_TIMEOUT_S)
    except BaseException:
        _kill(process, errors)
        raise
    return RemoteHostShell(
        connection.name,
        process,
        reader,
        hello,
        engine=str(engine.path),
        cache=PurePosixPath(directory.absolute()),
        node_name=node.nodename,
        user=os.environ.get("USER") or str(os.geteuid()),
        privileged=os.geteuid() == 0,
        address=address or "127.0.0.1",
        silence_s=silence_s,
        environment=environment,
        errors=errors,
        explain=connection.explain_loss,
        callbacks=callbacks,
    )


class _DirectoryError(BackendError):
    """A cache directory that cannot store the engine."""

    def __init__(self, directory: str, message: str) -> None:
        self.directory = directory
        super().__init__(message)


class _Bootstrap:
    """One connection from its start to the first record of the shell."""

    def __init__(
        self,
        connection: Connection,
        engines: Mapping[str, Engine],
        session: str,
        cache: str | None,
        silence_s: float,
        rejected: Sequence[str],
        on_step: Callable[[str], None],
    ) -> None:
        self.connection = connection
        self.engine = self.directory = self.node_name = self.user = self.user_id = ""
        self._system = self._machine = "unknown"
        self._engines = engines
        self._on_step = on_step
        self._skipped: list[str] = []
        script = _script(engines, session, cache, silence_s, rejected)
        self.process, self.errors = _start(connection, connection.command(script))
        self.reader = LineReader(self.process.stdout)

    def work(self) -> dict[str, Any]:
        """Return the first record of the shell.

        Raises
        ------
        BackendError
            If there is none.
        """
        try:
            return _wait_for_hello(
                self.connection,
                self.process,
                self.reader,
                self.errors,
                time.monotonic() + START_TIMEOUT_S,
                self._take,
            )
        except BaseException:
            _kill(self.process, self.errors)
            raise

    def _take(self, line: str) -> float:
        """Process a line of the script, and return additional seconds of the time limit."""
        key, _, value = line.removeprefix(_MARK).partition(" ")
        match key:
            case "system":
                self._system, self._machine, self.node_name, self.user_id, self.user = (*value.split(" "), *[""] * 5)[
                    :5
                ]
            case "machine":
                raise BackendError(self._wrong_machine())
            case "skip":
                self._skipped.append(value)
            case "nowhere":
                raise BackendError(self._nowhere())
            case "engine":
                self.directory, self.engine = value, f"{value}/{self._engine().remote_name}"
            case "need":
                engine = self._engine()
                self._on_step(f"copying the engine to {self.connection.name} ({engine.size_bytes / 1e6:.1f} MB)")
                self._upload(engine.path.read_bytes())
                return UPLOAD_TIMEOUT_S
            case "failed":
                directory, _, reason = value.partition(" ")
                raise _DirectoryError(
                    directory,
                    f"{self.connection.name}: cannot copy the engine to {directory}: {reason or 'the copy differs'}."
                    f" Free space there, or set testbed.host.{self.connection.name}.cache to another directory.",
                )
            case _:
                pass
        return 0.0

    def _engine(self) -> Engine:
        engine = self._engines.get(self._machine) or self._engines.get("")
        assert engine is not None, "the script has checked the machine"
        return engine

    def _wrong_machine(self) -> str:
        known = " or ".join(machine for machine in self._engines if machine)
        step = (
            f"Put venturi-engine-{self._machine} next to the engine, or set VENTURI_ENGINE_{self._machine.upper()} to its path."
            if self._system == "Linux"
            else "Use a host with Linux."
        )
        return f"{self.connection.name}: expected a host with Linux on {known}, found {self._system} on {self._machine}. {step}"

    def _nowhere(self) -> str:
        return (
            f"{self.connection.name}: found no directory for the engine: {'; '.join(self._skipped) or 'HOME and TMPDIR are not set'}."
            f" Set testbed.host.{self.connection.name}.cache to a directory of yours in which programs can run."
        )

    def _upload(self, content: bytes) -> None:
        """Send the engine. If the host does not accept it, the connection ends, which the next line shows."""
        assert self.process.stdin is not None
        descriptor = self.process.stdin.fileno()
        os.set_blocking(descriptor, False)
        rest = memoryview(content)
        deadline_s = time.monotonic() + UPLOAD_TIMEOUT_S
        try:
            while rest and not self.reader.has_line(0.0):
                if time.monotonic() > deadline_s:
                    raise BackendError(
                        f"{self.connection.name}: expected the engine to be copied within {UPLOAD_TIMEOUT_S:g} s,"
                        f" {len(rest)} bytes are left. Check the network."
                    )
                if select.select([], [descriptor], [], 0.2)[1]:
                    rest = rest[os.write(descriptor, rest[:_CHUNK_BYTES]) :]
        except BrokenPipeError:
            pass
        finally:
            os.set_blocking(descriptor, True)


def _script(
    engines: Mapping[str, Engine], session: str, cache: str | None, silence_s: float, rejected: Sequence[str]
) -> str:
    """Return the script that probes a host, stores the engine and becomes its shell.

    It is one line without ``'``, ``!`` and ``\\``.
    """
    cases = "".join(
        f"{machine or '*'}) n={engine.remote_name} s={engine.size_bytes} h={engine.sha256} ;; "
        for machine, engine in sorted(engines.items(), reverse=True)
    )
    unknown = "" if "" in engines else f'*) echo "{_MARK}machine"; exit 3 ;; '
    token = secrets.token_hex(4)
    if cache is None:
        candidates = (
            '${HOME:+"$HOME/.cache/venturi"} ${TMPDIR:+"$TMPDIR/venturi-$u"} "/tmp/venturi-$u" "/dev/shm/venturi-$u"'
        )
        own = 'w=$(chmod 700 "$d" 2>&1) || { skip "$w"; continue; }; '
    else:
        inside = cache.removeprefix("~/")
        candidates = _double_quoted(inside) if inside.startswith("/") else f'"$HOME/{_double_quoted(inside)[1:]}'
        own = ""
    skip_tests = "".join(f"{_double_quoted(directory)}) skip full; continue ;; " for directory in rejected)
    return (
        f'umask 077; m=$(uname -m); k=$(uname -s); u=$(id -u); echo "{_MARK}system $k $m $(uname -n) $u $(id -un 2>/dev/null)"; '
        f'case "$k" in Linux) ;; *) echo "{_MARK}machine"; exit 3 ;; esac; case "$m" in {cases}{unknown}esac; '
        f'skip() {{ echo "{_MARK}skip $d: $(echo $1)"; }}; '
        f'for d in {candidates}; do case "$d" in {skip_tests}/*) ;; *) continue ;; esac; '
        # In a directory for all users, such as /tmp, another user can have created the path.
        f'case "$d" in /tmp/*|/dev/shm/*) [ -L "$d" ] && {{ skip "a symbolic link"; continue; }} ;; esac; '
        f'w=$(mkdir -p "$d" 2>&1) || {{ skip "$w"; continue; }}; [ -O "$d" ] || {{ skip "it belongs to another user"; continue; }}; {own}'
        f't="$d/.try-{token}"; w=$({{ : > "$t" && chmod 700 "$t"; }} 2>&1) || {{ skip "$w"; continue; }}; '
        # An empty program is a script without commands, unless the file system is mounted noexec.
        f'w=$("$t" 2>&1); x=$?; rm -f "$t"; [ $x -eq 0 ] || {{ skip "no program can run there (noexec): $w"; continue; }}; '
        f'p="$d/$n"; for i in 1 2; do g=; [ -x "$p" ] && g=$(sha256sum < "$p" 2>/dev/null || wc -c < "$p"); g=$(echo $g); '
        f'case "$g" in "$h"*|"$s") echo "{_MARK}engine $d"; exec "$p" shell --session {session} --silence-s {ceil(silence_s)} ;; esac; '
        f'[ $i -eq 1 ] || break; o="$d/.$n.{token}"; echo "{_MARK}need $d"; '
        # A broken connection looks like the end of the file, so only the complete file is renamed into place.
        f'w=$({{ head -c $s > "$o" && [ $(wc -c < "$o") -eq $s ] && chmod 700 "$o" && mv -f "$o" "$p"; }} 2>&1) || '
        f'{{ rm -f "$o"; echo "{_MARK}failed $d $(echo $w)"; exit 4; }}; c=0; '
        f'ls -t "$d" | while read -r f; do case "$f" in engine-*) c=$((c+1)); [ $c -gt 3 ] && rm -f "$d/$f" ;; esac; done; done; '
        f'echo "{_MARK}failed $d"; exit 4; done; echo "{_MARK}nowhere"; exit 5'
    )


def _double_quoted(text: str) -> str:
    return '"' + re.sub(r'([\\"$`])', r"\\\1", text) + '"'


def _with_variables(engine: str, argv: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    words = ["env", *(f"{key}={value}" for key, value in environment.items())] if environment else []
    return [*words, engine, *argv]


def _start(connection: Connection, command: Sequence[str]) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    # A file, not a pipe: a master connection that ssh leaves in the background would keep a pipe open.
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with its last reader
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
            # Ctrl-C on the terminal is for the controller, which then stops its hosts in order.
            start_new_session=True,
        )
    except OSError as error:
        errors.close()
        step = "install an OpenSSH client" if connection.ssh else "install it, or correct `connect`"
        raise BackendError(
            f"{connection.name}: cannot start {command[0]} ({error.strerror}); {step if connection.prefix else 'check the engine'}"
        ) from error
    return process, errors


def _wait_for_hello(
    connection: Connection,
    process: subprocess.Popen[bytes],
    reader: LineReader,
    errors: IO[bytes],
    deadline_s: float,
    take: Callable[[str], float] = lambda line: 0.0,
) -> dict[str, Any]:
    while True:
        try:
            line = reader.next_line(deadline_s - time.monotonic())
        except TimeoutError as error:
            raise BackendError(
                f"{connection.name}: expected the first record of the host shell within {START_TIMEOUT_S:g} s, found none."
                f" Check the load of the host: {shlex.join(connection.prefix) or 'this machine'}."
            ) from error
        if line is None:
            code = process.wait()
            raise BackendError(connection.explain(code, output_tail(errors)))
        text = line.decode(errors="replace").strip()
        if text.startswith(_MARK):
            deadline_s += take(text)
            continue
        # A login script can print before the shell starts.
        record = reader.parse(line)
        match record.get("record"):
            case "hello" if record.get("protocol") == PROTOCOL:
                return record
            case "hello":
                raise BackendError(
                    f"{connection.name}: expected an engine with shell protocol {PROTOCOL}, found protocol {record.get('protocol')}"
                    f" ({record.get('engine')}). Install the engine of this Venturi version."
                )
            case "fatal":
                raise BackendError(f"{connection.name}: {record.get('message')}")


def _user_options() -> list[str]:
    # ssh uses the first value of an option, so the user's options precede ours.
    try:
        return shlex.split(os.environ.get(SSH_VARIABLE, ""))
    except ValueError as error:
        raise BackendError(
            f"{SSH_VARIABLE}: expected arguments of ssh, found {os.environ[SSH_VARIABLE]!r} ({error})"
        ) from error


def _first_match(pattern: str, output: str) -> str:
    for line in output.splitlines():
        if re.search(pattern, line, re.IGNORECASE):
            return line.strip(" @\r").rstrip(".")
    return ""


def _kill(process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
    process.kill()
    for stream in (process.stdin, process.stdout, errors):
        if stream is not None:
            stream.close()
    process.wait()
