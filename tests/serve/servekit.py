"""What tests of `venturi-engine serve` share: a server on a free port of loopback, and bytes to move."""

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
"""Descriptors of blocks of MODE E (GFD.20): the last of its connection, the last of all."""

SIZES = {"empty": 0, "one": 1, "block": 1 << 20, "block-and-one": (1 << 20) + 1, "large": 5_000_003, "with blank": 17}
"""Names and sizes: none, one byte, one block of MODE E, one more than that, several, and a name that must be quoted."""


class Server:
    """A server of a directory; `log` has its events so far."""

    def __init__(self, engine, directory, folder, *words):
        self.directory = Path(directory)
        self._log = Path(folder) / f"serve-{os.urandom(4).hex()}.jsonl"
        with self._log.open("wb") as log:
            command = [engine, "serve", directory, "--listen", "127.0.0.1:0", "--json", *words]
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: self.events("start") or self.process.poll() is not None, "the server to listen", 20)
        started = self.events("start")
        assert started, self.process.stderr.read()
        self.port = int(started[0]["listen"][0].rpartition(":")[2])

    @property
    def url(self):
        return f"ftp://127.0.0.1:{self.port}"

    def events(self, kind=None):
        """Return its events, or those of a kind; a line that is being written does not count yet."""
        lines = self._log.read_text().split("\n")[:-1]
        found = [json.loads(line) for line in lines]
        return [event for event in found if kind in (None, event["event"])]

    def transfers(self, count, **wanted):
        """Return transfers of this kind as soon as there are so many."""

        def found():
            events = self.events("transfer")
            return [one for one in events if wanted.items() <= one.items()]

        wait_until(lambda: len(found()) >= count, f"{count} transfers", 10)
        return found()

    def stop(self, code=0):
        """Ask it to end, and see that it does so with this exit code, and without a word."""
        self.process.send_signal(signal.SIGTERM)
        said = self.process.communicate(timeout=30)[1]
        assert (self.process.returncode, said) == (code, "")


@contextlib.contextmanager
def serving(engine, directory, folder, *words):
    """Have a server for a block of code; it must live until the end of it."""
    server = Server(engine, directory, folder, *words)
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
    """Have a session of Python's ftplib."""
    # Not its own context: that says goodbye, and fails where the server has done so already.
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
    """Return bytes that no other name or place has."""
    return hashlib.shake_128(name.encode()).digest(size)


def fill(folder, prefix=""):
    """Write files of all sizes."""
    for name, size in SIZES.items():
        (folder / f"{prefix}{name}").write_bytes(content(prefix + name, size))


def run(*words, code=0, timeout_s=30, **changes):
    """Run a client, and see that it ends with this code."""
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False, timeout=timeout_s, **changes
    )
    assert done.returncode == code, (words, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done


def somebody(folder):
    """Return a file of users with one whose password nobody knows."""
    users = Path(folder) / "somebody"
    users.write_text(f"somebody:$5$saltsalt${'x' * 43}\n")
    return users


def leftovers(folder):
    """Return temporary files of the server."""
    return sorted(path.name for path in Path(folder).rglob(".venturi-*"))
