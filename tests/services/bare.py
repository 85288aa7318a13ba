"""Two or three hosts without an emulated network: what a service needs of a lab, so that it can be tried alone.

One mount, PID and network namespace holds a bridge, an ``/etc/hosts`` and fresh ``/run`` and ``/dev/shm``; each host is a
network and UTS namespace below it. When its first process ends, the kernel ends and removes everything in it.
"""

import os
import pwd
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from testkit import wait_until
from venturi.testbed.pki import Pki
from venturi.testbed.services.base import ServiceSpec
from venturi.testbed.services.calls import patient
from venturi.testbed.services.table import SERVICES

NEEDED = ("unshare", "nsenter", "setsid", "ip", "mount", "bash")
_READY_S = 60.0

# bash reaps what is orphaned; `read` returns when the test process has gone, however that ended, and all goes with it.
_HOLD = """
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=777 none /run
mount -t tmpfs -o mode=1777 none /dev/shm
mount --bind "$1/etc/hosts" /etc/hosts
mount --bind "$1/etc/nsswitch.conf" /etc/nsswitch.conf
mount --bind "$1/etc/resolv.conf" /etc/resolv.conf
ip link add br0 type bridge
ip link set br0 up
number=0
folder=$1
shift
for host in "$@"; do
  number=$((number + 1))
  unshare --net --uts sleep infinity </dev/null &
  held=$!
  until [ "$(readlink /proc/$held/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do :; done
  ip link add "p$number" master br0 type veth peer name eth0 netns "$held"
  ip link set "p$number" up
  nsenter --target "$held" --net --uts sh -c "
    hostname $host.lab.test; ip link set lo up; ip addr add 10.77.0.$number/24 dev eth0; ip link set eth0 up"
  echo "$host $held"
done
echo ready
read -r _ || true
"""


def lacking(*services):
    """Return why the kit cannot be used here for these kinds of service, None if it can."""
    programs = [*NEEDED, *(package.program for kind in services for package in SERVICES[kind].packages)]
    missing = [program for program in programs if not _found(program)]
    if os.geteuid() != 0:
        return "not root: no network namespaces with veth"
    return f"not installed: {', '.join(missing)}" if missing else None


def _found(program):
    return any(os.access(f"{folder}/{program}", os.X_OK) for folder in (*os.get_exec_path(), "/usr/sbin", "/sbin"))


@dataclass
class BareProcess:
    """A server; it leads a session of its own within the lab."""

    log: Path
    pid: int
    _entered: subprocess.Popen

    def poll(self):
        return self._entered.poll()

    def stop(self, *, signal=signal.SIGTERM, grace_s=5.0):
        """Signal the group, SIGKILL what is left of it after the grace."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal)
        with suppress(subprocess.TimeoutExpired):
            self._entered.wait(grace_s)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, 9)
        self._entered.wait(10)
        wait_until(lambda: not _group_lives(self.pid), f"process group {self.pid} to end")


@dataclass
class BareMachine:
    """A host of the kit; ``outer`` is the PID of a process in it."""

    name: str
    address: str
    outer: int
    privileged: bool = True

    @property
    def host_name(self):
        return f"{self.name}.lab.test"

    def _enter(self, argv, own=()):
        spaces = ["nsenter", "--target", str(self.outer), "--mount", "--net", "--uts", "--pid", "--"]
        return [*spaces, "setsid", *own, "sh", "-c", 'umask 0; exec "$@"', "sh", *map(str, argv)]

    def _environment(self, environment):
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        return {"PATH": path, "HOME": "/root", "LANG": "C", **(environment or {})}

    def run(self, argv, *, timeout_s, environment=None, folder=None):
        process = subprocess.Popen(
            self._enter(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", env=self._environment(environment), cwd=folder,
        )  # fmt: skip
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            for child in _children(process.pid):
                with suppress(ProcessLookupError):
                    os.killpg(child, 9)
            process.kill()
            process.communicate()
            raise
        return subprocess.CompletedProcess(list(argv), process.returncode, out, err)

    def start(self, argv, *, log, environment=None, folder=None):
        own = () if self.privileged else _as_nobody()
        with log.open("ab") as output:
            entered = subprocess.Popen(
                self._enter(argv, own), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env=self._environment(environment), cwd=folder,
            )  # fmt: skip
        wait_until(lambda: entered.poll() is not None or _led(entered.pid), "the server to lead a group")
        children = _children(entered.pid)
        return BareProcess(log, children[0] if children else entered.pid, entered)


@dataclass
class BareRoom:
    spec: ServiceSpec
    machine: BareMachine
    lab: "BareLab"
    folder: Path

    @property
    def address(self):
        return self.machine.address

    @property
    def host_name(self):
        return self.machine.host_name

    @property
    def pki(self):
        return self.lab.pki

    @property
    def client_environment(self):
        return self.lab.client_environment

    def path(self, place):
        return self.lab.places[place]

    def peer(self, service):
        return self.lab.rooms[service]

    def hosts(self):
        return self.lab.machines


@dataclass
class BareLab:
    """Hosts with a folder, places, a CA and rooms."""

    folder: Path
    machines: dict[str, BareMachine]
    pki: Pki
    places: dict[str, Path] = field(default_factory=dict)
    rooms: dict[str, BareRoom] = field(default_factory=dict)
    client_environment: dict[str, str] = field(default_factory=dict)

    def place(self, name, host="a"):
        """Make a place and return its path."""
        self.places[name] = self.folder / "hosts" / host / name
        make_open(self.places[name])
        return self.places[name]

    def room(self, name, kind, host="a", *, places=(), after=(), ports=None, **options):
        """Return the room of a service, with the defaults of the options that are not given, and its first port."""
        service = SERVICES[kind]
        values = {option.key: option.default for option in service.options}
        unknown = set(options) - set(values)
        assert not unknown, unknown
        spec = ServiceSpec(
            name, kind, host, f"{host}.eth0", tuple(places), values | options, tuple(after),
            service.default_ports[:1] if ports is None else tuple(ports),
        )  # fmt: skip
        room = BareRoom(spec, self.machines[host], self, self.folder / "services" / name)
        make_open(room.folder)
        self.rooms[name] = room
        return room

    @contextmanager
    def running(self, room):
        """Configure, start and stop a service around a block; yield its doors."""
        service = SERVICES[room.spec.kind]
        service.configure(room)
        processes = service.start(room)
        try:
            wait_until_ready(service, room, processes)
            yield dict(service.doors(room.spec, room.host_name))
        finally:
            service.stop(room, processes)

    def run(self, host, *argv, timeout_s=30, environment=None):
        """Run a client on a host, with the environment that services gave to clients."""
        return self.machines[host].run(
            argv, timeout_s=timeout_s, environment={**self.client_environment, **(environment or {})}
        )

    def processes(self):
        """Return PID → name of all processes in the lab but those that hold it."""
        space = Path(f"/proc/{next(iter(self.machines.values())).outer}/ns/pid").readlink()
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                name = (entry / "comm").read_text().strip()
                if (entry / "ns/pid").readlink() == space and name not in {"bash", "sleep"}:
                    found[int(entry.name)] = name
        return found

    def listening(self):
        """Return the listening TCP ports of all hosts."""
        lines = [
            line
            for machine in self.machines.values()
            for line in machine.run(["ss", "-Hltn"], timeout_s=5).stdout.splitlines()
        ]
        return sorted(int(line.split()[3].rpartition(":")[2]) for line in lines)

    def shared_memory(self):
        """Return the names of what is in the lab's /dev/shm."""
        machine = next(iter(self.machines.values()))
        return machine.run(["ls", "-A", "/dev/shm"], timeout_s=5).stdout.split()


@contextmanager
def bare_lab(folder, hosts=("a", "b", "c")):
    """Bring up hosts ``a`` (10.77.0.1), ``b`` … below a folder; all is gone at the end of the block."""
    make_open(folder)
    make_open(folder / "etc")
    names = "".join(f"10.77.0.{number} {host}.lab.test {host}\n" for number, host in enumerate(hosts, 1))
    (folder / "etc/hosts").write_text(f"127.0.0.1 localhost\n{names}")
    (folder / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\nservices: files\n")
    (folder / "etc/resolv.conf").write_text("")
    spaces = [
        "unshare",
        "--mount",
        "--pid",
        "--net",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--propagation",
        "private",
    ]
    with (folder / "hold.log").open("w") as said:
        holder = subprocess.Popen(
            [*spaces, "bash", "-c", _HOLD, "bash", str(folder), *hosts],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True,
        )  # fmt: skip
    try:
        inner = {}
        for line in holder.stdout:
            if line == "ready\n":
                break
            host, pid = line.split()
            inner[host] = int(pid)
        else:
            raise RuntimeError((folder / "hold.log").read_text())
        outer = _outer(_children(holder.pid)[0])
        machines = {
            host: BareMachine(host, f"10.77.0.{number}", outer[inner[host]]) for number, host in enumerate(hosts, 1)
        }
        yield BareLab(folder, machines, Pki(folder / "pki"))
    finally:
        # Its first process ends then, and the kernel the others; `unshare` returns when the last has gone, and mounts with it.
        holder.stdin.close()
        try:
            holder.wait(20)
        except subprocess.TimeoutExpired:
            holder.kill()
            holder.wait()
            raise
        finally:
            holder.stdout.close()


@pytest.fixture(scope="module")
def lab():
    """One kit of three hosts for the tests of a file."""
    reason = lacking()
    if reason:
        pytest.skip(reason)
    # Not below pytest's own folder, which each run of pytest closes again for others: servers that are not root must get in.
    with tempfile.TemporaryDirectory(prefix="venturi-bare-") as folder, bare_lab(Path(folder)) as made:
        yield made


def make_open(folder):
    """Make a folder in which everybody may write."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)


def check_nothing_left(lab):
    """Fail if a process, a listening port or shared memory of a service is still there."""
    wait_until(lambda: not lab.processes(), "all processes of the service to end")
    assert lab.listening() == []
    assert lab.shared_memory() == []


def wait_until_ready(service, room, processes, limit_s=_READY_S):
    """Ask a service until it is ready; fail with what it says and its logs."""
    began_s, lack = time.monotonic(), "it was not asked yet"
    while lack is not None:
        with patient(time.monotonic() - began_s):
            lack = service.ready(room)
        ended = [process.poll() for process in processes if process.poll() is not None]
        if lack is not None and (ended or time.monotonic() > began_s + limit_s):
            logs = [f"{log}: {log.read_text(errors='replace')[-2000:]}" for log in service.logs(room) if log.exists()]
            raise AssertionError(f"{room.spec.name}: {lack}; exit codes {ended}\n" + "\n".join(logs))
        time.sleep(0.02)


def _as_nobody():
    """As in a lab without root, servers (but not commands) run as a plain user."""
    entry = pwd.getpwnam("nobody")
    return ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]


def _children(pid):
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _led(pid):
    """Tell whether the child of ``nsenter`` leads a group already."""
    with suppress(ProcessLookupError):
        return any(os.getpgid(child) == child for child in _children(pid))
    return False


def _group_lives(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _outer(first):
    """Return inner → outer PID of all processes in the PID namespace of ``first``."""
    space = Path(f"/proc/{first}/ns/pid").readlink()
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (entry / "ns/pid").readlink() == space:
                numbers = next(
                    line for line in (entry / "status").read_text().splitlines() if line.startswith("NSpid:")
                )
                found[int(numbers.split()[-1])] = int(entry.name)
    return found
