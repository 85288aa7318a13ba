"""Two hosts for tests: network namespaces with a veth pair or the emulator between them, and planted limits.

The hosts use the file systems and CPUs of this machine. Each has a connection prefix, as a container would.
"""

import json
import os
import secrets
import subprocess
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

from venturi.backend import find_engine
from venturi.measure import Endpoint

CPU_GROUPS = Path("/sys/fs/cgroup/cpu")
BLKIO = Path("/sys/fs/cgroup/blkio")


def command(*words):
    """Run a command that must succeed and return its output."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


class TwoHosts:
    """Two network namespaces `a` and `b`.

    Attributes
    ----------
    names
        Name of the namespace of each host.
    addresses
        Address of each host.
    directory
        Directory with one subdirectory per host.
    """

    def __init__(self, directory):
        mark = secrets.token_hex(3)
        self.names = {host: f"vm-{mark}-{host}" for host in "ab"}
        self.addresses = {"a": "10.98.0.1", "b": "10.98.0.2"}
        self.directory = Path(directory)
        self._stack = ExitStack()
        self._groups = {}

    def __enter__(self):
        for host, name in self.names.items():
            command("ip", "netns", "add", name)
            self._stack.callback(command, "ip", "netns", "delete", name)
            self.run(host, "ip", "link", "set", "lo", "up")
            (self.directory / host).mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_):
        self._stack.close()

    def run(self, host, *words):
        """Run a command on a host."""
        return command("nsenter", f"--net=/run/netns/{self.names[host]}", *words)

    def connect(self):
        """Connect the hosts by a veth pair, whose speed depends on the CPUs only."""
        command(
            "ip", "link", "add", "eth0", "netns", self.names["a"], "type", "veth",
            "peer", "name", "eth0", "netns", self.names["b"],
        )  # fmt: skip
        for host, address in self.addresses.items():
            self.run(host, "ip", "address", "add", f"{address}/24", "dev", "eth0")
            self.run(host, "ip", "link", "set", "eth0", "up")
        return self

    def limit_link(self, rate):
        """Limit the link in both directions with a token bucket."""
        for host in self.names:
            self.run(host, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "64kb",
                     "latency", "50ms")  # fmt: skip

    def emulate(self, *, rate_bit_per_s, delay_s, loss=None):
        """Connect the hosts by the emulator of labs, with delay and random loss from A to B."""
        link = {"rate_bit_per_s": rate_bit_per_s, "delay_s": delay_s, "queue_bytes": 4_000_000}
        lossy = None if loss is None else {"kind": "independent", "probability": loss}
        network = {
            "interfaces": {
                f"{host}.eth0": {"host": host, "device": "eth0", "address": address}
                for host, address in self.addresses.items()
            },
            "links": {
                "a>b": {"from": "a.eth0", "to": "b.eth0", **link, "loss": lossy},
                "b>a": {"from": "b.eth0", "to": "a.eth0", **link},
            },
        }
        start = {
            "command": "start", "epoch_unix_ns": 0, "seed": 1, "interval_s": 1, "network": network,
            "namespaces": {host: f"/run/netns/{name}" for host, name in self.names.items()},
        }  # fmt: skip
        emulator = subprocess.Popen(
            [find_engine(), "emulator"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._stack.callback(self._end, emulator)
        emulator.stdin.write(json.dumps(start) + "\n")
        emulator.stdin.flush()
        for line in emulator.stdout:
            record = json.loads(line)["record"]
            assert record != "fatal", line
            if record == "ready":
                break
        for host, address in self.addresses.items():
            self.run(host, "ip", "link", "set", "eth0", "up")
            self.run(host, "ip", "route", "add", "10.98.0.0/16", "dev", "eth0")
            self.run(host, "ip", "address", "add", f"{address}/32", "dev", "eth0")
        emulator.stdin.write('{"command": "go"}\n')
        emulator.stdin.flush()
        return self

    @staticmethod
    def _end(process):
        process.communicate(timeout=30)

    def set(self, host, key, value):
        """Set a sysctl in the network namespace of a host."""
        self.run(host, "sysctl", "-q", "-w", f"{key}={value}")

    def block(self, host):
        """Reject all connections to a host; its own connections stay open."""
        rules = """table inet guard {
            chain input {
                type filter hook input priority 0; policy accept;
                iifname eth0 tcp flags & (syn | ack) == syn reject with tcp reset
            }
        }
        """
        path = self.directory / f"{host}.nft"
        path.write_text(rules)
        self.run(host, "nft", "-f", path)

    def limit_cpu(self, host, cores):
        """Limit all processes of a host to a number of cores."""
        group = CPU_GROUPS / self.names[host]
        group.mkdir()
        self._stack.callback(_remove_group, group)
        (group / "cpu.cfs_quota_us").write_text(str(round(cores * 100_000)))
        self._groups[host] = group

    def endpoint(self, host, path=None, **fields):
        """Return an endpoint on a host."""
        enter = f'exec nsenter --net=/run/netns/{self.names[host]} "$@"'
        if host in self._groups:
            enter = f"echo $$ > {self._groups[host]}/tasks && {enter}"
        return Endpoint(str(path or self.directory / host), connect=("sh", "-c", enter, "sh"), **fields)


@contextmanager
def slow_disk(mount_point, *, read_bytes_per_s=None, write_bytes_per_s=None, size_bytes=2 * 10**9):
    """Mount a file system on a loop device with limited rates.

    The limits are in the root group, because the kernel's writers of dirty pages belong to it.
    """
    image = mount_point.with_suffix(".image")
    with ExitStack() as stack:
        image.touch()
        stack.callback(image.unlink)
        os.truncate(image, size_bytes)
        command("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard", image)
        loop = command("losetup", "--find", "--show", image).strip()
        stack.callback(command, "losetup", "--detach", loop)
        mount_point.mkdir(exist_ok=True)
        command("mount", loop, mount_point)
        stack.callback(command, "umount", mount_point)
        number = Path(loop).stat().st_rdev
        device = f"{os.major(number)}:{os.minor(number)}"
        for kind, rate in (("read", read_bytes_per_s), ("write", write_bytes_per_s)):
            if rate is not None:
                file = BLKIO / f"blkio.throttle.{kind}_bps_device"
                file.write_text(f"{device} {rate}")
                stack.callback(file.write_text, f"{device} 0")
        yield mount_point


def _remove_group(group):
    deadline_s = time.monotonic() + 20
    while (group / "tasks").read_text() and time.monotonic() < deadline_s:
        time.sleep(0.02)
    group.rmdir()


def leftovers(directory, sessions=()):
    """Return measurement directories below a directory, and those of some sessions in memory."""
    found = [path.name for path in Path(directory).rglob(".venturi-measure-*")]
    return found + [
        path.name for path in Path("/dev/shm").glob(".venturi-measure-*") if _session(path.name) in sessions
    ]


def sessions_in(directory):
    """Return the sessions that have directories below a directory."""
    return {_session(path.name) for path in Path(directory).rglob(".venturi-measure-*")}


def _session(name):
    """Return the session in the name of a directory: `.venturi-measure-TIME-KEY-END`, with `-memory` at the end in memory."""
    return "-".join(name.removesuffix("-memory").split("-")[2:4])
