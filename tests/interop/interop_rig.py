"""The ground of the matrix: servers on loopback, files to move, and the one way to carry a cell out."""

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
from interop_cells import GET, GLOBUS, NAMES, OURS, THIRD, Cell
from interop_clients import PASSWORD, TOKEN, USER, Ends, argv_of, program_of
from interop_gfal import died_at_its_end, sha256_of
from interop_webdav import SERVERS, Ground, account, argv_of_server

from venturi.testbed.pki import DEFAULT_USER, Pki

LIMIT_S = 90.0
"""Of one call: what takes longer hangs."""

_READY_S = 15.0
_STARTS = 3
"""XRootD 5.5 has been seen to end by SIGSEGV before it listened: that is not what is tested here."""
_SPARSE_BYTES = 500_000_000
_MEMORY_BYTES = 8 << 30
_LOCALHOST = {"X509": "localhost", "plain": "127.0.0.1"}


@dataclass(frozen=True)
class Outcome:
    """What came of a cell.

    Attributes
    ----------
    identical
        Whether what arrived has the SHA-256 of what was sent, and every call said that all was well.
    said
        What there is to say if not: exit code and the client's last words, or what differed.
    duration_s
        Of the calls.
    """

    identical: bool
    said: str
    duration_s: float


@dataclass
class Server:
    """A server that is up."""

    kind: str
    port: int
    root: Path
    process: subprocess.Popen[bytes]
    scheme: str

    def path(self, name: bytes) -> bytes:
        """Return a name as clients see it: a Globus server gives the whole machine, others one directory as /."""
        return os.fsencode(self.root) + b"/" + name if self.kind == GLOBUS else b"/" + name

    @property
    def host(self) -> str:
        """As certificates have it, or its address."""
        return _LOCALHOST["X509" if self.scheme in ("gsiftp", "https") else "plain"]

    def url(self, name: bytes, security: str) -> str:
        """Return where a name is for clients."""
        password = security == "password" and self.kind == OURS
        login = f"{quote(USER, safe='')}:{quote(PASSWORD, safe='')}@" if password else ""
        return f"{self.scheme}://{login}{self.host}:{self.port}{quote_from_bytes(self.path(name))}"


@dataclass
class Rig:
    """Servers and files in one folder, in memory where that has room."""

    folder: Path
    engine: Path
    _servers: dict[tuple[str, str], Server] = field(default_factory=dict)
    _sources: dict[str, tuple[Path, str]] = field(default_factory=dict)
    _pki: Pki | None = None
    _count: int = 0

    @classmethod
    @contextlib.contextmanager
    def up(cls, engine: Path) -> Iterator[Rig]:
        """Make the folder; servers come as they are asked for. All is gone at the end."""
        memory = Path("/dev/shm")
        roomy = memory.is_dir() and shutil.disk_usage(memory).free > _MEMORY_BYTES
        with tempfile.TemporaryDirectory(prefix="venturi-interop-", dir=memory if roomy else None) as name:
            folder = Path(name)
            # Anonymous clients of a Globus server that root has started are nobody.
            folder.chmod(0o755)
            rig = cls(folder, engine)
            try:
                yield rig
            finally:
                for server in rig._servers.values():
                    server.process.terminate()
                for server in rig._servers.values():
                    server.process.wait(_READY_S)

    def server(self, kind: str, cell: Cell) -> Server:
        """Return a server for the client of a cell, which comes up at the first call."""
        known = cell.security.split()[0]
        if kind != OURS and known in ("password", "token"):
            known = "anonymous"  # the other end of a third-party transfer
        scheme = cell.channel.split()[0] if cell.is_web else {"gsi": "gsiftp", "ssh": "sshftp"}.get(known, "ftp")
        key = (kind, f"{scheme}-{known}")
        if key not in self._servers:
            self._servers[key] = self._start(kind, scheme, known)
        return self._servers[key]

    def source(self, size: str, size_bytes: int) -> tuple[Path, str]:
        """Return a file of that size and its SHA-256."""
        if size not in self._sources:
            path = self.folder / f"source-{size_bytes}"
            _fill(path, size_bytes)
            self._sources[size] = path, sha256_of(path)
        return self._sources[size]

    def lacks(self, cell: Cell) -> str:
        """Return what keeps a cell from being carried out on this machine, if something does."""
        programs = SERVERS | {GLOBUS: "globus-gridftp-server"}
        servers = [programs[kind] for kind in (cell.server, cell.target) if kind in programs]
        lacking = [program for program in (program_of(cell.client), *servers) if shutil.which(program) is None]
        room = shutil.disk_usage(self.folder).free
        if not lacking and room < 2 * cell.size_bytes:
            return f"room for {2 * cell.size_bytes / 1e9:.1f} GB in {self.folder.parent}, found {room / 1e9:.1f} GB"
        if not lacking and cell.security == "ssh":
            return interop_ssh.lacks(cell.client)
        return f"not installed: {', '.join(lacking)}" if lacking else ""

    def environment(self, cell: Cell) -> Mapping[str, str]:
        """Return that of clients: nothing of whoever runs this."""
        kept = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
        home = {"HOME": str(self.folder), "LC_ALL": "C.UTF-8", "GFAL_PYTHONBIN": "/usr/bin/python3"}
        if cell.is_web:
            token = {"BEARER_TOKEN": TOKEN} if cell.security == "token" else {}
            return kept | home | token | {"X509_CERT_DIR": str(self.pki.certificates)}
        if cell.security == "ssh":
            return kept | home | interop_ssh.environment(self.folder / f"{GLOBUS}-sshftp-ssh", kept["PATH"])
        return kept | home | (self.pki.client_environment() if cell.security.startswith("gsi") else {})

    @property
    def pki(self) -> Pki:
        """The authority of host and user."""
        if self._pki is None:
            self._pki = Pki(self.folder / "pki")
        return self._pki

    def carry_out(self, cell: Cell) -> Outcome:
        """Move the file of a cell and see what has arrived."""
        self._count += 1
        here = self.folder / f"cell-{self._count}"
        here.mkdir(mode=0o755)
        made = [here]
        try:
            ends, arrived = self._lay_out(cell, here, made)
            calls = [argv_of(cell, ends, self.engine)]
            began_s = time.monotonic()
            said = ""
            if cell.killed:
                offset = round(random.Random(cell.id).uniform(0.1, 0.5) * cell.size_bytes)
                said = self._kill(calls[0], cell, offset, here)
                calls = [argv_of(cell, ends, self.engine, again=True)]
            code, said = (0, said) if said else self._call(calls[0], cell)
            duration_s = time.monotonic() - began_s
            digest = self.source(cell.size, cell.size_bytes)[1]
            if died_at_its_end(calls[0], code, arrived, digest):
                said = f"died of {signal.Signals(-code).name} with the copy whole"
            said = said or _difference(arrived, digest)
            return Outcome(not said, said, duration_s)
        finally:
            for path in made:
                shutil.rmtree(path, ignore_errors=True)

    def _lay_out(self, cell: Cell, here: Path, made: list[Path]) -> tuple[Ends, Path]:
        """Put the source where it belongs; return the ends and where the copy will be."""
        source, _ = self.source(cell.size, cell.size_bytes)
        server = self.server(cell.server, cell)
        name = b"%d/%s" % (self._count, NAMES[cell.name])
        remote = self._folder(server, made) / os.fsdecode(NAMES[cell.name])
        local = here / "local"
        if cell.way in (GET, THIRD):
            remote.hardlink_to(source)
        else:
            local.hardlink_to(source)
        target, arrived = "", local if cell.way == GET else remote
        if cell.way == THIRD:
            other = self.server(cell.target, cell)
            folder = self._folder(other, made, "-to")
            target, arrived = other.url(b"%d-to/copy" % self._count, cell.security), folder / "copy"
        path = os.fsdecode(server.path(name))
        trust = self.pki.authority, self.pki.certificates
        return Ends(server.url(name, cell.security), local, target, server.host, server.port, path, trust), arrived

    def _folder(self, server: Server, made: list[Path], suffix: str = "") -> Path:
        folder = server.root / f"{self._count}{suffix}"
        folder.mkdir()
        folder.chmod(0o777)
        made.append(folder)
        return folder

    def _call(self, argv: list[str], cell: Cell) -> tuple[int, str]:
        """Run a client; return its exit code, and what is wrong."""
        try:
            done = subprocess.run(argv, env=self.environment(cell), stdin=subprocess.DEVNULL, capture_output=True,
                                  timeout=LIMIT_S, check=False)  # fmt: skip
        except subprocess.TimeoutExpired:
            return 1, f"did not end within {LIMIT_S:.0f} s"
        words = (done.stderr + done.stdout).decode(errors="replace").split()
        code = done.returncode
        # Of the place of this run nothing is left, wherever the text is cut.
        said = " ".join(words).replace(str(self.folder), "…")[-400:]
        return code, f"exit code {code}: {said}" if code else ""

    def _kill(self, argv: list[str], cell: Cell, offset: int, here: Path) -> str:
        """Run a client and kill it when it has read or written so many bytes of a file; return what is wrong."""
        # The kernel counts no bytes that go from a socket to a file without passing the process (splice).
        arriving = here if cell.way == GET else None
        with subprocess.Popen(argv, env=self.environment(cell), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
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
        folder = self.folder / f"{kind}-{scheme}-{security}"
        (folder / "served").mkdir(parents=True, exist_ok=True)
        for path in (folder, folder / "served"):
            path.chmod(0o777)
        port = _free_port()
        environment: Mapping[str, str] = {}
        owner = account(kind)
        if scheme.startswith("http"):
            argv = argv_of_server(kind, self._ground(folder, port, secure=scheme == "https"), self.engine, security)
            environment = {"X509_CERT_DIR": str(self.pki.certificates)}
        elif scheme == "sshftp":
            argv = interop_ssh.argv_of_sshd(folder, port)
        else:
            argv, environment = (self._venturi if kind == OURS else self._globus)(folder, port, security)
        for _ in range(_STARTS):
            with (folder / "log").open("ab") as log:
                process = subprocess.Popen(
                    argv, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder,
                    user=owner, group="nogroup" if owner else None, extra_groups=[] if owner else None,
                )  # fmt: skip
            if _comes_to_listen(process, port):
                return Server(kind, port, folder / "served", process, scheme)
            if process.poll() != -signal.SIGSEGV:
                break
            sys.stderr.write(f"{kind} on port {port} ended by SIGSEGV before it listened: started anew\n")
        process.kill()
        process.wait()
        said = (folder / "log").read_text(errors="replace")[-500:]
        raise AssertionError(f"expected a server on port {port}, found exit code {process.returncode}: {said}")

    def _ground(self, folder: Path, port: int, *, secure: bool) -> Ground:
        tls = None
        if secure:
            host = self.pki.host("localhost", ["127.0.0.1"])
            tls = (host.certificate, host.key, self.pki.certificates)
        return Ground(folder, folder / "served", port, tls)

    def _venturi(self, folder: Path, port: int, security: str) -> tuple[list[str], dict[str, str]]:
        words = ["--listen", f"127.0.0.1:{port}", "--write", "--quiet"]
        if security == "password":
            users = folder / "users"
            hashed = subprocess.run(
                ["openssl", "passwd", "-6", PASSWORD], capture_output=True, text=True, check=True
            ).stdout.strip()
            users.write_text(f"{USER}:{hashed}\n")
            users.chmod(0o600)
            words += ["--users", str(users), "--third-party"]
        if security == "gsi":
            host = self.pki.host("localhost", ["127.0.0.1"])
            words += ["--cert", str(host.certificate), "--key", str(host.key), "--ca-dir", str(self.pki.certificates),
                      "--grid-mapfile", str(self.pki.grid_mapfile(folder / "grid-mapfile", {DEFAULT_USER: USER})), "--third-party"]  # fmt: skip
        return [str(self.engine), "serve", str(folder / "served"), *words], {}

    def _globus(self, folder: Path, port: int, security: str) -> tuple[list[str], dict[str, str]]:
        common = ["globus-gridftp-server", "-c", "none", "-p", str(port), "-control-interface", "127.0.0.1", "-data-interface", "127.0.0.1",
                  "-perms", "0666", "-l", str(folder / "control.log"), "-d", "ALL", "-log-module", "stdio:buffer=0"]  # fmt: skip
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
                       "GRIDMAP": str(self.pki.grid_mapfile(folder / "grid-mapfile", {DEFAULT_USER: account}))}  # fmt: skip
        return [*("env", "-u", "X509_USER_PROXY"), *common, *(["-allow-root"] if root else [])], environment


def _fill(path: Path, size_bytes: int) -> None:
    """Write a file without repetitions; a large one is a hole but for its begin, its end and the 2 GiB mark."""
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


def _stored_bytes(folder: Path | None) -> int:
    """Return how much of files in a folder is there: blocks, since files may have holes."""
    if folder is None:
        return 0
    with os.scandir(folder) as entries:
        return 512 * sum(entry.stat(follow_symlinks=False).st_blocks for entry in entries)


def _moved_bytes(pid: int) -> int:
    """Return what a process has read or written, whichever is more: of sockets only what goes by read and write counts."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
        return max(int(line.split()[1]) for line in lines[:2])
    return 0


def _free_port() -> int:
    """Return a port of loopback below those that the kernel gives out: nobody else is given it before a server listens there."""
    while True:
        port = secrets.choice(range(15_000, 32_000))
        with contextlib.suppress(OSError), socket.socket() as asked:
            asked.bind(("127.0.0.1", port))
            return port


def _comes_to_listen(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until a server listens there; whether it does."""
    deadline_s = time.monotonic() + _READY_S
    while time.monotonic() < deadline_s and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
            return True
        time.sleep(0.01)
    return False
