"""A real globus-gridftp-server on loopback for tests of `venturi-engine copy`."""

import contextlib
import os
import socket
import subprocess
import time
from pathlib import Path

_PATIENCE_S = 20


class Server:
    """A server of the Globus toolkit for anybody, with what is below a folder; ended by its process."""

    def __init__(self, folder, port=None):
        self.folder = folder
        self.port = port or _free_port()
        command = ["globus-gridftp-server", "-c", "none", "-aa", "-p", str(self.port)]
        command += ["-control-interface", "127.0.0.1", "-data-interface", "127.0.0.1"]
        if os.geteuid() == 0:
            command += ["-anonymous-user", "nobody", "-anonymous-group", "nogroup"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + _PATIENCE_S
        while not self._greets():
            assert self.process.poll() is None and time.monotonic() < end, "the server does not greet"
            time.sleep(0.02)  # the server tells nobody when it listens

    def _greets(self):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5) as probe:
            return probe.recv(3) == b"220"
        return False

    def url(self, path=""):
        """Return the URL of something below the folder."""
        return f"ftp://127.0.0.1:{self.port}{self.folder}/{path}"

    def sessions(self):
        """Return the processes of its sessions: each is a child of its own."""
        number = self.process.pid
        return [int(child) for child in Path(f"/proc/{number}/task/{number}/children").read_text().split()]

    def stop(self):
        self.process.kill()
        self.process.wait()


def _free_port():
    """Return a port below those that the kernel gives out, so that no client is connected to itself."""
    for port in range(20_000 + os.getpid() % 10_000, 32_000):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port below 32000")
