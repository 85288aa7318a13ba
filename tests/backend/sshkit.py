"""Real `sshd` processes of the tests, with own keys, loopback ports and home directories."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from testkit import children_of, free_port, make_sshd_directory, name_of

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")

needs_sshd = pytest.mark.skipif(SSHD is None, reason="no sshd: install openssh-server to test hosts behind SSH")


class Sshd:
    """An SSH server with its own port and home directory."""

    def __init__(self, directory, key):
        self.directory, self.home = directory, directory / "home"
        self.home.mkdir(parents=True)
        self.new_host_key()
        shutil.copy(key.with_suffix(".pub"), directory / "authorized_keys")
        self.port = free_port()
        settings = {
            "ListenAddress": "127.0.0.1", "Port": self.port, "HostKey": directory / "host_key", "PidFile": "none",
            "AuthorizedKeysFile": directory / "authorized_keys", "UsePAM": "no", "StrictModes": "no",
            "PasswordAuthentication": "no", "PermitRootLogin": "prohibit-password", "PrintMotd": "no",
            "MaxStartups": "100", "SetEnv": f"HOME={self.home} VENTURI_TEST={directory}",
        }  # fmt: skip
        (directory / "sshd_config").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        self.process = None

    def new_host_key(self):
        """Replace the host key with a new one."""
        for path in self.directory.glob("host_key*"):
            path.unlink()
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.directory / "host_key"], check=True)

    def start(self):
        make_sshd_directory()
        log = (self.directory / "log").open("ab")
        command = [SSHD, "-D", "-e", "-f", self.directory / "sshd_config"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        deadline_s = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return self
            except OSError:
                assert self.process.poll() is None, (self.directory / "log").read_text()
                assert time.monotonic() < deadline_s, (self.directory / "log").read_text()

    def sessions(self):
        """Return the PIDs of the server processes of its connections."""
        found, queue = [], [self.process.pid]
        while queue:
            servers = [pid for pid in children_of(queue.pop()) if name_of(pid).startswith("sshd")]
            found += servers
            queue += servers
        return found

    def logins(self):
        """Return the number of accepted connections so far."""
        return (self.directory / "log").read_text().count("Accepted publickey")

    def cut(self):
        """Close all connections, as a broken network would."""
        for pid in self.sessions():
            with suppress(ProcessLookupError):  # it has ended with its parent
                os.kill(pid, signal.SIGKILL)

    def freeze(self):
        """Stop all connections without closing them, as a network that drops all packets; return their PIDs."""
        pids = self.sessions()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        return pids

    def stop(self):
        if self.process is not None:
            self.cut()
            self.process.kill()
            self.process.wait()
            self.process = None

    @property
    def engines(self):
        return sorted((self.home / ".cache" / "venturi").glob("engine-*"))


def write_ssh_config(directory, servers, key, **changes):
    """Write an ssh configuration that knows the servers by name; return the value of ``VENTURI_SSH``."""
    settings = {
        "IdentityFile": key, "IdentitiesOnly": "yes", "UserKnownHostsFile": directory / "known_hosts",
        "StrictHostKeyChecking": "accept-new", "LogLevel": "ERROR",
    } | changes  # fmt: skip
    shared = "".join(f"  {name} {value}\n" for name, value in settings.items())
    text = "".join(
        f"Host {name}\n  HostName 127.0.0.1\n  Port {server.port}\n{shared}" for name, server in servers.items()
    )
    (directory / "ssh_config").write_text(text)
    return f"-F '{directory / 'ssh_config'}'"


DELAY_LINE = """
import collections, os, select, socket, sys, time
delay_s, port = float(sys.argv[1]), int(sys.argv[2])
time.sleep(2 * delay_s)  # of the TCP handshake
link = socket.create_connection(("127.0.0.1", port))
lines = {0: (link.fileno(), collections.deque()), link.fileno(): (1, collections.deque())}
reading = set(lines)
while reading or any(queue for _, queue in lines.values()):
    due_s = min((queue[0][0] for _, queue in lines.values() if queue), default=None)
    wait_s = None if due_s is None else max(0.0, due_s - time.monotonic())
    for source in select.select(sorted(reading), [], [], wait_s)[0]:
        data = os.read(source, 65536)
        lines[source][1].append((time.monotonic() + delay_s, data))
        if not data:
            reading.discard(source)
    for target, queue in lines.values():
        while queue and queue[0][0] <= time.monotonic():
            data = queue.popleft()[1]
            if not data:
                sys.exit()
            while data:
                data = data[os.write(target, data):]
"""
"""Program for the ``ProxyCommand`` of ssh. Arguments: delay of each direction in seconds, loopback port."""


def far_away(directory, delay_s):
    """Return the ssh setting that adds this delay in each direction to a server."""
    path = directory / "delay_line.py"
    path.write_text(DELAY_LINE)
    return {"ProxyCommand": f"{sys.executable} -I {path} {delay_s} %p"}


def new_key(directory):
    """Create a key for the user."""
    key = directory / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    return key
