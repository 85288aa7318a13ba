"""Two or three hosts without an emulated network: the parts of a lab that a single service needs.

One mount, PID and network namespace contains a bridge, an ``/etc/hosts`` and fresh ``/run`` and ``/dev/shm``. Each host
is a network and UTS namespace below it. When its first process exits, the kernel kills and removes everything in it.
"""

import os
import pwd
import signal as signals
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from testkit import wait_until
from venturi.backend.engine import find_engine
from venturi.testbed.lab.host_shell import LabHostShell, _in_group, _open_descendants
from venturi.testbed.pki import Pki
from venturi.testbed.service_context import SharedServices, ShellServiceContext
from venturi.testbed.services.base import ServiceSpec
from venturi.testbed.services.client_calls import client_timeout_s
from venturi.testbed.services.table import SERVICES

NEEDED = ("unshare", "nsenter", "setsid", "ip", "mount", "bash")
_READY_S = 60.0

# bash reaps orphans. `read` returns when the test process exits for any reason, and then all processes end.
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
    """Return the reason why the kit cannot run these kinds of service here, or None."""
    programs = [*NEEDED, *(package.program for kind in services for package in SERVICES[kind].packages)]
    missing = [program for program in programs if not _found(program)]
    if os.geteuid() != 0:
        return "not root: no network namespaces with veth"
    return f"not installed: {', '.join(missing)}" if missing else None


def _found(program):
    return any(
        os.access(f"{directory}/{program}", os.X_OK) for directory in (*os.get_exec_path(), "/usr/sbin", "/sbin")
    )


@dataclass
class BareProcess:
    """A server in its own session within the lab."""

    log: Path
    pid: int
    _entered: subprocess.Popen

    def poll(self):
        return self._entered.poll()

    def stop(self, *, signal=signals.SIGTERM, grace_s=5.0):
        """Signal the group; after the grace period, send SIGKILL to the rest of the group and to descendants outside of it."""
        with ExitStack() as opened:
            others = [
                descriptor for pid, descriptor in _open_descendants(self.pid, opened) if not _in_group(pid, self.pid)
            ]
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal)
            with suppress(subprocess.TimeoutExpired):
                self._entered.wait(grace_s)
            with suppress(ProcessLookupError):
                os.killpg(self.pid, 9)
            self._entered.wait(10)
            for descriptor in others:
                with suppress(ProcessLookupError):
                    signals.pidfd_send_signal(descriptor, signals.SIGKILL)
        wait_until(lambda: not _group_lives(self.pid), f"process group {self.pid} to end")


@dataclass
class BareShell:
    """A host of the kit; ``outer`` is the PID of a process in it."""

    name: str
    address: str
    outer: int
    privileged: bool = True

    @property
    def host_name(self):
        return f"{self.name}.lab.test"

    @property
    def engine(self):
        return str(find_engine())

    @property
    def session(self):
        return Path("/nonexistent")

    # The kit has the files of a lab, but commands enter a host by another route.
    put, get, exists, remove = LabHostShell.put, LabHostShell.get, LabHostShell.exists, LabHostShell.remove
    make_directory, converse = LabHostShell.make_directory, LabHostShell.converse
    which, free_ports, _change_files = LabHostShell.which, LabHostShell.free_ports, LabHostShell._change_files

    def _enter(self, argv, own=()):
        spaces = ["nsenter", "--target", str(self.outer), "--mount", "--net", "--uts", "--pid", "--"]
        return [*spaces, "setsid", *own, "sh", "-c", 'umask 0; exec "$@"', "sh", *map(str, argv)]

    def _environment(self, environment):
        path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
        return {"PATH": path, "HOME": "/root", "LANG": "C", **(environment or {})}

    def run(self, argv, *, timeout_s, environment=None, directory=None):
        process = subprocess.Popen(
            self._enter(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace", env=self._environment(environment), cwd=directory,
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

    def start(self, argv, *, log, environment=None, directory=None):
        own = () if self.privileged else _as_ordinary_user()
        with log.open("ab") as output:
            entered = subprocess.Popen(
                self._enter(argv, own), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env=self._environment(environment), cwd=directory,
            )  # fmt: skip
        wait_until(lambda: entered.poll() is not None or _led(entered.pid), "the server to lead a group")
        children = _children(entered.pid)
        return BareProcess(log, children[0] if children else entered.pid, entered)


@dataclass
class BareLab:
    """Hosts with a directory, storages, a CA and service contexts."""

    directory: Path
    shells: dict[str, BareShell]
    pki: Pki
    shared: SharedServices = None

    def __post_init__(self):
        self.storages = {}
        make_open(self.directory / "clients")
        self.shared = SharedServices(self.shells, self.storages, str(self.directory / "clients"))

    @property
    def contexts(self):
        return self.shared.contexts

    @property
    def client_environment(self):
        return self.shared.client_environment

    def storage(self, name, host="a"):
        """Create a storage and return its path."""
        self.storages[name] = self.directory / "hosts" / host / name
        make_open(self.storages[name])
        return self.storages[name]

    def context(self, name, kind, host="a", *, storages=(), after=(), ports=None, **options):
        """Return the context of a service, with defaults for missing options, and its first port."""
        service = SERVICES[kind]
        values = {option.key: option.default for option in service.options}
        unknown = set(options) - set(values)
        assert not unknown, unknown
        spec = ServiceSpec(
            name, kind, host, f"{host}.eth0", tuple(storages), values | options, tuple(after),
            service.default_ports[:1] if ports is None else tuple(ports),
        )  # fmt: skip
        shell = self.shells[host]
        context = ShellServiceContext(
            spec, self.shared, address=shell.address, host_name=shell.host_name,
            directory=self.directory / "services" / name, pki=self.pki,
        )  # fmt: skip
        make_open(context.directory)
        self.contexts[name] = context
        return context

    @contextmanager
    def running(self, context):
        """Configure, start and stop a service around a block; yield its service ports."""
        service = SERVICES[context.spec.kind]
        service.configure(context)
        processes = service.start(context)
        try:
            wait_until_ready(service, context, processes)
            templates = service.service_ports(context.spec, context.host_name)
            one = context.spec.ports[0] if context.spec.kind.startswith("xrootd") else "{port}"
            yield {name: template.replace("{port}", str(one)) for name, template in templates.items()}
        finally:
            service.stop(context, processes)

    def run(self, host, *argv, timeout_s=30, environment=None):
        """Run a client on a host, with the environment that services define for clients."""
        return self.shells[host].run(
            argv, timeout_s=timeout_s, environment={**self.client_environment, **(environment or {})}
        )

    def processes(self):
        """Return the names of all processes in the lab by PID, except those that keep its namespaces."""
        space = Path(f"/proc/{next(iter(self.shells.values())).outer}/ns/pid").readlink()
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
            for shell in self.shells.values()
            for line in shell.run(["ss", "-Hltn"], timeout_s=5).stdout.splitlines()
        ]
        return sorted(int(line.split()[3].rpartition(":")[2]) for line in lines)

    def shared_memory(self):
        """Return the names of the files in the lab's /dev/shm."""
        shell = next(iter(self.shells.values()))
        return shell.run(["ls", "-A", "/dev/shm"], timeout_s=5).stdout.split()


@contextmanager
def bare_lab(directory, hosts=("a", "b", "c")):
    """Start hosts ``a`` (10.77.0.1), ``b`` … below a directory; everything is removed at the end of the block."""
    make_open(directory)
    make_open(directory / "etc")
    names = "".join(f"10.77.0.{number} {host}.lab.test {host}\n" for number, host in enumerate(hosts, 1))
    (directory / "etc/hosts").write_text(f"127.0.0.1 localhost\n{names}")
    (directory / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\nservices: files\n")
    (directory / "etc/resolv.conf").write_text("")
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
    with (directory / "namespaces.log").open("w") as printed:
        holder = subprocess.Popen(
            [*spaces, "bash", "-c", _HOLD, "bash", str(directory), *hosts],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=printed, text=True,
        )  # fmt: skip
    try:
        inner = {}
        for line in holder.stdout:
            if line == "ready\n":
                break
            host, pid = line.split()
            inner[host] = int(pid)
        else:
            raise RuntimeError((directory / "namespaces.log").read_text())
        outer = _outer(_children(holder.pid)[0])
        shells = {
            host: BareShell(host, f"10.77.0.{number}", outer[inner[host]]) for number, host in enumerate(hosts, 1)
        }
        yield BareLab(directory, shells, Pki(directory / "pki"))
    finally:
        # The first process exits, and the kernel kills the others. `unshare` returns after the last one, when the
        # mounts are gone.
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
    """A kit of three hosts for the tests of a file."""
    reason = lacking()
    if reason:
        pytest.skip(reason)
    # Each run of pytest restricts its own directory, but servers without root need access.
    with tempfile.TemporaryDirectory(prefix="venturi-bare-") as directory, bare_lab(Path(directory)) as made:
        yield made


def make_open(directory):
    """Create a directory that all users can write."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o777)


def check_nothing_left(lab):
    """Fail if a process, a listening port or shared memory of a service remains."""
    wait_until(lambda: not lab.processes(), "all processes of the service to end")
    assert lab.listening() == []
    assert lab.shared_memory() == []


def wait_until_ready(service, context, processes, limit_s=_READY_S):
    """Probe a service until it is ready; on failure, report its last answer and its logs."""
    started_s, lack = time.monotonic(), "it was not asked yet"
    while lack is not None:
        with client_timeout_s(time.monotonic() - started_s):
            lack = service.ready(context)
        ended = [process.poll() for process in processes if process.poll() is not None]
        if lack is not None and (ended or time.monotonic() > started_s + limit_s):
            logs = [
                f"{log}: {log.read_text(errors='replace')[-2000:]}" for log in service.logs(context) if log.exists()
            ]
            raise AssertionError(f"{context.spec.name}: {lack}; exit codes {ended}\n" + "\n".join(logs))
        time.sleep(0.02)


def _as_ordinary_user():
    """Return a prefix for servers (not for commands) that run as an ordinary user, as in a lab without root."""
    entry = pwd.getpwnam("nobody")
    return ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]


def _children(pid):
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _led(pid):
    """Return whether the child of ``nsenter`` already leads a process group."""
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
    """Return the outer PIDs of all processes in the PID namespace of ``first``, by inner PID."""
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
