"""Rig of the matrix: servers on loopback, files, and the execution of a case."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, quote_from_bytes

import interop_ssh
from interop_cases import GET, GLOBUS, NAMES, OURS, THIRD, InteropCase
from interop_clients import PASSWORD, TOKEN, USER, Endpoints, build_argv, find_program
from interop_gfal import crashed_on_exit, sha256_of
from interop_webdav import SERVERS, Sandbox, account, build_server_argv

from venturi.testbed.pki import DEFAULT_USER, Pki

LIMIT_S = 90.0
"""Time limit of one call; a longer call hangs."""

_READY_S = 15.0
_STARTS = 3
"""Maximum starts of a server. XRootD 5.5 sometimes crashes with SIGSEGV before it listens, which is not tested here."""
_SPARSE_BYTES = 500_000_000
_MEMORY_BYTES = 8 << 30
_LOCALHOST = {"X509": "localhost", "plain": "127.0.0.1"}


@dataclass(frozen=True)
class Outcome:
    """Result of a case.

    Attributes
    ----------
    identical
        Whether the file that arrived has the SHA-256 of the source, and every call succeeded.
    output
        Reason of a failure: exit code and last output of the client, or the difference. Empty if ``identical``.
    duration_s
        Duration of the calls.
    """

    identical: bool
    output: str
    duration_s: float


@dataclass
class Server:
    """A running server."""

    kind: str
    port: int
    root: Path
    process: subprocess.Popen[bytes]
    scheme: str

    def path(self, name: bytes) -> bytes:
        """Return a path as clients see it. A Globus server serves the whole file system, others serve one directory as /."""
        return os.fsencode(self.root) + b"/" + name if self.kind == GLOBUS else b"/" + name

    @property
    def host(self) -> str:
        """Name in the certificates, or the address."""
        return _LOCALHOST["X509" if self.scheme in ("gsiftp", "https") else "plain"]

    def url(self, name: bytes, security: str) -> str:
        """Return the URL of a name for clients."""
        password = security == "password" and self.kind == OURS
        login = f"{quote(USER, safe='')}:{quote(PASSWORD, safe='')}@" if password else ""
        return f"{self.scheme}://{login}{self.host}:{self.port}{quote_from_bytes(self.path(name))}"


@dataclass
class Rig:
    """Servers and files in one directory, which is in memory if that has enough space."""

    directory: Path
    engine: Path
    _servers: dict[tuple[str, str], Server] = field(default_factory=dict)
    _sources: dict[str, tuple[Path, str]] = field(default_factory=dict)
    _pki: Pki | None = None
    _count: int = 0

    @classmethod
    @contextlib.contextmanager
    def up(cls, engine: Path) -> Iterator[Rig]:
        """Create the directory; servers start on first use. Everything is removed at the end."""
        memory = Path("/dev/shm")
        roomy = memory.is_dir() and shutil.disk_usage(memory).free > _MEMORY_BYTES
        with tempfile.TemporaryDirectory(prefix="venturi-interop-", dir=memory if roomy else None) as name:
            directory = Path(name)
            # Anonymous clients have the account "nobody" if root started the Globus server.
            directory.chmod(0o755)
            rig = cls(directory, engine)
            try:
                yield rig
            finally:
                for server in rig._servers.values():
                    server.process.terminate()
                for server in rig._servers.values():
                    server.process.wait(_READY_S)

    def server(self, kind: str, case: InteropCase) -> Server:
        """Return the server for the client of a case; the first call starts it."""
        known = case.security.split()[0]
        if kind != OURS and known in ("password", "token"):
            known = "anonymous"  # other end of a third-party transfer
        scheme = case.channel.split()[0] if case.is_web else {"gsi": "gsiftp", "ssh": "sshftp"}.get(known, "ftp")
        key = (kind, f"{scheme}-{known}")
        if key not in self._servers:
            self._servers[key] = self._start(kind, scheme, known)
        return self._servers[key]

    def source(self, size: str, size_bytes: int) -> tuple[Path, str]:
        """Return a file of that size and its SHA-256."""
        if size not in self._sources:
            path = self.directory / f"source-{size_bytes}"
            _fill(path, size_bytes)
            self._sources[size] = path, sha256_of(path)
        return self._sources[size]

    def lacks(self, case: InteropCase) -> str:
        """Return the reason why a case cannot run on this machine, or an empty string."""
        programs = SERVERS | {GLOBUS: "globus-gridftp-server"}
        servers = [programs[kind] for kind in (case.server, case.target) if kind in programs]
        lacking = [program for program in (find_program(case.client), *servers) if shutil.which(program) is None]
        free_bytes = shutil.disk_usage(self.directory).free
        if not lacking and free_bytes < 2 * case.size_bytes:
            return f"free space of {2 * case.size_bytes / 1e9:.1f} GB in {self.directory.parent}, found {free_bytes / 1e9:.1f} GB"
        if not lacking and case.security == "ssh":
            return interop_ssh.lacks(case.client)
        return f"not installed: {', '.join(lacking)}" if lacking else ""

    def environment(self, case: InteropCase) -> Mapping[str, str]:
        """Return the environment of clients, without the settings of the user who runs the tests."""
        kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
        home = {"HOME": str(self.directory), "LC_ALL": "C.UTF-8", "GFAL_PYTHONBIN": "/usr/bin/python3"}
        if case.is_web:
            token = {"BEARER_TOKEN": TOKEN} if case.security == "token" else {}
            return kept | home | token | {"X509_CERT_DIR": str(self.pki.certificates)}
        if case.security == "ssh":
            return kept | home | interop_ssh.environment(self.directory / f"{GLOBUS}-sshftp-ssh", kept["PATH"])
        return kept | home | (self.pki.client_environment() if case.security.startswith("gsi") else {})

    @property
    def pki(self) -> Pki:
        """The CA of host and user."""
        if self._pki is None:
            self._pki = Pki(self.directory / "pki")
        return self._pki

    def execute(self, case: InteropCase) -> Outcome:
        """Move the file of a case and compare the copy."""
        self._count += 1
        local_dir = self.directory / f"cell-{self._count}"
        local_dir.mkdir(mode=0o755)
        made = [local_dir]
        try:
            endpoints, arrived = self._lay_out(case, local_dir, made)
            calls = [build_argv(case, endpoints, self.engine)]
            started_s = time.monotonic()
            output = ""
            if case.killed:
                offset = round(random.Random(case.id).uniform(0.1, 0.5) * case.size_bytes)
                output = self._kill(calls[0], case, offset, local_dir)
                calls = [build_argv(case, endpoints, self.engine, again=True)]
            code, output = (0, output) if output else self._call(calls[0], case)
            duration_s = time.monotonic() - started_s
            digest = self.source(case.size, case.size_bytes)[1]
            if crashed_on_exit(calls[0], code, arrived, digest):
                output = f"died of {signal.Signals(-code).name} with the copy whole"
            output = output or _difference(arrived, digest)
            return Outcome(not output, output, duration_s)
        finally:
            for path in made:
                shutil.rmtree(path, ignore_errors=True)

    def _lay_out(self, case: InteropCase, local_dir: Path, made: list[Path]) -> tuple[Endpoints, Path]:
        """Create the source; return the endpoints and the path of the copy."""
        source, _ = self.source(case.size, case.size_bytes)
        server = self.server(case.server, case)
        name = b"%d/%s" % (self._count, NAMES[case.name])
        remote = self._directory(server, made) / os.fsdecode(NAMES[case.name])
        local = local_dir / "local"
        if case.direction in (GET, THIRD):
            remote.hardlink_to(source)
        else:
            local.hardlink_to(source)
        target, arrived = "", local if case.direction == GET else remote
        if case.direction == THIRD:
            other = self.server(case.target, case)
            directory = self._directory(other, made, "-to")
            target, arrived = other.url(b"%d-to/copy" % self._count, case.security), directory / "copy"
        path = os.fsdecode(server.path(name))
        trust = self.pki.authority, self.pki.certificates
        return Endpoints(
            server.url(name, case.security), local, target, server.host, server.port, path, trust
        ), arrived

    def _directory(self, server: Server, made: list[Path], suffix: str = "") -> Path:
        directory = server.root / f"{self._count}{suffix}"
        directory.mkdir()
        directory.chmod(0o777)
        made.append(directory)
        return directory

    def _call(self, argv: list[str], case: InteropCase) -> tuple[int, str]:
        """Run a client; return its exit code and an error."""
        try:
            done = subprocess.run(argv, env=self.environment(case), stdin=subprocess.DEVNULL, capture_output=True,
                                  timeout=LIMIT_S, check=False)  # fmt: skip
        except subprocess.TimeoutExpired:
            return 1, f"did not end within {LIMIT_S:.0f} s"
        arguments = (done.stderr + done.stdout).decode(errors="replace").split()
        code = done.returncode
        # Remove the directory of this run before the text is cut.
        output = " ".join(arguments).replace(str(self.directory), "…")[-400:]
        return code, f"exit code {code}: {output}" if code else ""

    def _kill(self, argv: list[str], case: InteropCase, offset: int, local_dir: Path) -> str:
        """Run a client, kill it after it read or wrote a number of bytes of a file, and return an error."""
        # The kernel does not count bytes that go from a socket to a file without passing through the process (splice).
        arriving = local_dir if case.direction == GET else None
        with subprocess.Popen(argv, env=self.environment(case), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as process:  # fmt: skip
            deadline_s = time.monotonic() + LIMIT_S
            while process.poll() is None and time.monotonic() < deadline_s:
                if max(_moved_bytes(process.pid), _stored_bytes(arriving)) >= offset:
                    process.send_signal(signal.SIGKILL)
                    break
                time.sleep(0.0005)
            else:
                process.kill()
        return "" if process.returncode == -signal.SIGKILL else f"ended before it was killed: {process.returncode}"

    def _start(self, kind: str, scheme: str, security: str) -> Server:
        directory = self.directory / f"{kind}-{scheme}-{security}"
        (directory / "served").mkdir(parents=True, exist_ok=True)
        for path in (directory, directory / "served"):
            path.chmod(0o777)
        port = _free_port()
        environment: Mapping[str, str] = {}
        owner = account(kind)
        if scheme.startswith("http"):
            argv = build_server_argv(
                kind, self._sandbox(directory, port, secure=scheme == "https"), self.engine, security
            )
            environment = {"X509_CERT_DIR": str(self.pki.certificates)}
        elif scheme == "sshftp":
            argv = interop_ssh.build_sshd_argv(directory, port)
        else:
            argv, environment = (self._venturi if kind == OURS else self._globus)(directory, port, security)
        for _ in range(_STARTS):
            with (directory / "log").open("ab") as log:
                process = subprocess.Popen(
                    argv, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=directory,
                    user=owner, group="nogroup" if owner else None, extra_groups=[] if owner else None,
                )  # fmt: skip
            if _wait_until_listening(process, port):
                return Server(kind, port, directory / "served", process, scheme)
            if process.poll() != -signal.SIGSEGV:
                break
            sys.stderr.write(f"{kind} on port {port} ended by SIGSEGV before it listened: started anew\n")
        process.kill()
        process.wait()
        output = (directory / "log").read_text(errors="replace")[-500:]
        raise AssertionError(f"expected a server on port {port}, found exit code {process.returncode}: {output}")

    def _sandbox(self, directory: Path, port: int, *, secure: bool) -> Sandbox:
        tls = None
        if secure:
            host = self.pki.host("localhost", ["127.0.0.1"])
            tls = (host.certificate, host.key, self.pki.certificates)
        return Sandbox(directory, directory / "served", port, tls)

    def _venturi(self, directory: Path, port: int, security: str) -> tuple[list[str], dict[str, str]]:
        arguments = ["--listen", f"127.0.0.1:{port}", "--write", "--quiet"]
        if security == "password":
            users = directory / "users"
            hashed = subprocess.run(
                ["openssl", "passwd", "-6", PASSWORD], capture_output=True, text=True, check=True
            ).stdout.strip()
            users.write_text(f"{USER}:{hashed}\n")
            users.chmod(0o600)
            arguments += ["--users", str(users), "--third-party"]
        if security == "gsi":
            host = self.pki.host("localhost", ["127.0.0.1"])
            arguments += ["--cert", str(host.certificate), "--key", str(host.key), "--ca-dir", str(self.pki.certificates),
                      "--grid-mapfile", str(self.pki.grid_mapfile(directory / "grid-mapfile", {DEFAULT_USER: USER})), "--third-party"]  # fmt: skip
        return [str(self.engine), "serve", str(directory / "served"), *arguments], {}

    def _globus(self, directory: Path, port: int, security: str) -> tuple[list[str], dict[str, str]]:
        common = ["globus-gridftp-server", "-c", "none", "-p", str(port), "-control-interface", "127.0.0.1", "-data-interface", "127.0.0.1",
                  "-perms", "0666", "-l", str(directory / "control.log"), "-d", "ALL", "-log-module", "stdio:buffer=0"]  # fmt: skip
        root = os.geteuid() == 0
        if security != "gsi":
            return [
                *common,
                "-aa",
                *(["-anonymous-user", "nobody", "-anonymous-group", "nogroup"] if root else []),
            ], {}
        host = self.pki.host("localhost", ["127.0.0.1"])
        account = "root" if root else os.environ.get("USER", "")
        environment = {"X509_CERT_DIR": str(self.pki.certificates), "X509_USER_CERT": str(host.certificate),
                       "X509_USER_KEY": str(host.key), "X509_USER_PROXY": "",
                       "GRIDMAP": str(self.pki.grid_mapfile(directory / "grid-mapfile", {DEFAULT_USER: account}))}  # fmt: skip
        return [*("env", "-u", "X509_USER_PROXY"), *common, *(["-allow-root"] if root else [])], environment


def _fill(path: Path, size_bytes: int) -> None:
    """Write a file without repetitions. A large file is sparse except for its start, its end and the 2 GiB mark."""
    draw = random.Random(size_bytes)
    with path.open("wb") as file:
        if size_bytes < _SPARSE_BYTES:
            file.write(draw.randbytes(size_bytes))
        else:
            for offset in (0, (1 << 31) - 500_000, size_bytes - 1_000_000):
                if offset + 1_000_000 <= size_bytes:
                    file.seek(offset)
                    file.write(draw.randbytes(1_000_000))
            file.truncate(size_bytes)
    path.chmod(0o644)


def _difference(arrived: Path, digest: str) -> str:
    if not arrived.is_file():
        return f"expected the file {arrived.name!r}, found {[path.name for path in arrived.parent.iterdir()]}"
    found = sha256_of(arrived)
    return "" if found == digest else f"expected SHA-256 {digest}, found {found} of {arrived.stat().st_size} B"


def _stored_bytes(directory: Path | None) -> int:
    """Return the allocated bytes of files in a directory; their sizes would include holes."""
    if directory is None:
        return 0
    with os.scandir(directory) as entries:
        return 512 * sum(entry.stat(follow_symlinks=False).st_blocks for entry in entries)


def _moved_bytes(pid: int) -> int:
    """Return the bytes that a process has read or written, whichever is more. For sockets, only read and write count."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
        return max(int(line.split()[1]) for line in lines[:2])
    return 0


def _free_port() -> int:
    """Return a free loopback port below the ephemeral range, so that the kernel assigns it to no other program."""
    while True:
        port = secrets.choice(range(15_000, 32_000))
        with contextlib.suppress(OSError), socket.socket() as requests:
            requests.bind(("127.0.0.1", port))
            return port


def _wait_until_listening(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until a server listens on a port; return whether it does."""
    deadline_s = time.monotonic() + _READY_S
    while time.monotonic() < deadline_s and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return True
        time.sleep(0.01)
    return False
