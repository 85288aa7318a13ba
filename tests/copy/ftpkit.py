"""A real globus-gridftp-server on loopback for tests of `venturi-engine copy`, and files to copy."""

import contextlib
import hashlib
import os
import secrets
import socket
import subprocess
import time
from pathlib import Path

from copykit import tree_of

SIZES = (0, 1, 9_999, 65_536, 65_537, 262_144, 1_048_577)
MODES = (0o644, 0o755, 0o600, 0o640)
_TIMEOUT_S = 20


class Server:
    """A Globus server for anonymous users that serves a directory."""

    def __init__(self, directory, port=None, options=()):
        self.directory = directory
        self.port = port or free_port()
        command = ["globus-gridftp-server", "-c", "none", "-aa", "-p", str(self.port)]
        command += ["-control-interface", "127.0.0.1", "-data-interface", "127.0.0.1"]
        command += options
        if os.geteuid() == 0:
            command += ["-anonymous-user", "nobody", "-anonymous-group", "nogroup"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + _TIMEOUT_S
        while not self._greets():
            assert self.process.poll() is None and time.monotonic() < end, "the server does not greet"
            time.sleep(0.02)  # the server does not signal that it listens

    def _greets(self):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5) as probe:
            return probe.recv(3) == b"220"
        return False

    def url(self, path=""):
        """Return the URL of a path below the directory."""
        return f"ftp://127.0.0.1:{self.port}{self.directory}/{path}"

    def sessions(self):
        """Return the process ids of its sessions, each a child process."""
        number = self.process.pid
        return [int(child) for child in Path(f"/proc/{number}/task/{number}/children").read_text().split()]

    def stop(self):
        self.process.kill()
        self.process.wait()


def content(seed, size):
    """Return bytes that identify their file and position."""
    return hashlib.shake_128(str(seed).encode()).digest(size)


def make_tree(directory, *, files=40):
    """Create a tree with files of all sizes, directories and odd names, readable by all users."""
    for number in range(files):
        path = (
            directory / f"d{number % 5}" / f"e {number % 3}" / f"file {number}'\"$;*?#%é"[: 12 + number].rstrip("é")
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(number, SIZES[number % len(SIZES)]))
        path.chmod(MODES[number % len(MODES)] | 0o044)
        os.utime(path, (1_600_000_000 + number, 1_600_000_000 + number))
    (directory / "empty").mkdir()
    (directory / "d0" / "link").symlink_to("../d1")
    for path in [directory, *directory.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
            os.utime(path, (1_500_000_000, 1_500_000_000))


def below(server, path):
    """Return the URL of a path below the directory of a server."""
    return server.url(str(path.relative_to(server.directory)))


def contents(directory):
    """Return the entries of a tree without times and modes.

    Links are resolved, because servers make them absolute.
    """
    found = {name: [what[0], *what[3:]] for name, what in tree_of(directory).items()}
    for name in found:
        path = directory / os.fsdecode(name)
        if path.is_symlink():
            found[name] = path.resolve().relative_to(directory.resolve())
    return found


def large(path, size, seed=""):
    """Create a large file with a few bytes that identify their position and file."""
    with path.open("wb") as file:
        file.truncate(size)
        for location in range(0, size, 7 << 20):
            file.seek(location)
            file.write(content(f"{seed}{location}", min(1000, size - location)))
    path.chmod(0o644)


def digest(path):
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def free_port():
    """Return a free port of loopback below the ephemeral range, so that the kernel assigns it to no other socket."""
    for _ in range(1000):
        port = secrets.choice(range(15_000, 32_000))
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port below 32000")
