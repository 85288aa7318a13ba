"""Tools for tests of `venturi-engine serve`: a server on a free loopback port, and bytes to move."""

import contextlib
import ftplib
import hashlib
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

from testkit import wait_until

EOD, EOF = 0x08, 0x40
"""Block descriptors of MODE E (GFD.20): the last of its connection, the last of all."""

SIZES = {"empty": 0, "one": 1, "block": 1 << 20, "block-and-one": (1 << 20) + 1, "large": 5_000_003, "with blank": 17}
"""Names and sizes: empty, one byte, one block of MODE E, one byte more, several blocks, and a name that must be quoted."""


class Server:
    """A server of a directory, and its events so far."""

    def __init__(self, engine, directory, log_dir, *arguments):
        self.directory = Path(directory)
        self._log = Path(log_dir) / f"serve-{os.urandom(4).hex()}.jsonl"
        with self._log.open("wb") as log:
            command = [engine, "serve", directory, "--listen", "127.0.0.1:0", "--json", *arguments]
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: self.events("start") or self.process.poll() is not None, "the server to listen", 20)
        started = self.events("start")
        assert started, self.process.stderr.read()
        self.port = int(started[0]["listen"][0].rpartition(":")[2])

    @property
    def url(self):
        return f"ftp://127.0.0.1:{self.port}"

    def events(self, kind=None):
        """Return its events, optionally of one kind; an incomplete line does not count."""
        lines = self._log.read_text().split("\n")[:-1]
        found = [json.loads(line) for line in lines]
        return [event for event in found if kind in (None, event["event"])]

    def transfers(self, count, **expected):
        """Wait for ``count`` transfers with these values and return them."""

        def found():
            events = self.events("transfer")
            return [one for one in events if expected.items() <= one.items()]

        wait_until(lambda: len(found()) >= count, f"{count} transfers", 10)
        return found()

    def stop(self, code=0):
        """Stop the server, and check its exit code and that it printed no error."""
        self.process.send_signal(signal.SIGTERM)
        output = self.process.communicate(timeout=30)[1]
        assert (self.process.returncode, output) == (code, "")


@contextlib.contextmanager
def serving(engine, directory, log_dir, *arguments):
    """Run a server for a block of code; it must run until the end of the block."""
    server = Server(engine, directory, log_dir, *arguments)
    try:
        yield server
        assert server.process.poll() is None, server.process.stderr.read()
        server.stop()
    finally:
        server.process.kill()
        server.process.wait()
        server.process.stderr.close()


@contextlib.contextmanager
def logged_in(server, user="anonymous", password="nobody@example.org"):
    """Open a session of Python's ftplib."""
    # The context manager of ftplib sends QUIT, which fails if the server has closed the connection.
    with contextlib.closing(ftplib.FTP()) as ftp:
        ftp.connect("127.0.0.1", server.port, timeout=20)
        ftp.login(user, password)
        yield ftp


def block(descriptor, count, offset, payload=b""):
    """Return a block of MODE E (GFD.20): descriptor, count and offset in 17 bytes, then the payload."""
    return bytes([descriptor]) + count.to_bytes(8, "big") + offset.to_bytes(8, "big") + payload


def passive(ftp):
    """Return a data connection to the server."""
    host, port = ftplib.parse227(ftp.sendcmd("PASV"))
    return socket.create_connection((host, port), 20)


def content(name, size):
    """Return pseudo-random bytes that depend on the name."""
    return hashlib.shake_128(name.encode()).digest(size)


def fill(directory, prefix=""):
    """Write files of all sizes."""
    for name, size in SIZES.items():
        (directory / f"{prefix}{name}").write_bytes(content(prefix + name, size))


def run(*arguments, code=0, timeout_s=30, **changes):
    """Run a client, and check its exit code."""
    done = subprocess.run(
        [str(word) for word in arguments], capture_output=True, text=True, check=False, timeout=timeout_s, **changes
    )
    assert done.returncode == code, (arguments, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done


def client(directory):
    """Return a users file with a user whose password is unknown."""
    users = Path(directory) / "somebody"
    users.write_text(f"somebody:$5$saltsalt${'x' * 43}\n")
    return users


def leftovers(directory):
    """Return temporary files of the server."""
    return sorted(path.name for path in Path(directory).rglob(".venturi-*"))
