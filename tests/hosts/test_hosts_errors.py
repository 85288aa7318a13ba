"""Problems of real hosts: each ends the run or is reported, in one line with host, cause and next step.

Other situations are tested in ``tests/backend`` (rejected host keys, cache directories) and ``tests/existing``
(tokens).
"""

import os
import shutil
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from hostkit import UID

from testkit import needs_programs, needs_root, wait_until
from venturi.run import Run
from venturi.testbed.pki import Pki

pytestmark = [needs_root, needs_programs("nft", "setarch", "ssh-keygen", "globus-gridftp-server")]

SCENARIO = """
venturi = 1
name = "{name}"
seed = 1
[testbed.host.a]
[testbed.host.b]
[testbed.storage.sa]
host = "a"
path = "data"
[testbed.storage.sb]
host = "b"
path = "{path}"
{more}
[workload]
kind = "sweep"
mover = "{mover}"
source = "sa"
destination = "{destination}"
repeat = {repeat}
[workload.factors]
size = ["1 MB"]
"""

SERVICE = '[testbed.service.server]\nkind = "venturi-serve"\nhost = "b"\nstorage = ["sb"]\n'
MANY = 10_000
"""More trials than any machine finishes before a test ends the run."""
LIMIT_S = 120


class Situation:
    """One run on hosts a and b; a test changes the parts that cause the problem."""

    def __init__(self, hosts, name):
        self.hosts, self.name = hosts, name
        self.a, self.b = 'ssh = "a"', 'ssh = "b"'
        self.path, self.more, self.mover, self.destination, self.repeat = "data", "", "venturi", "sb", 1
        self.environment = {}

    def command(self):
        """Write the files of the scenario and return the command."""
        work = self.hosts.work
        parts = {key: getattr(self, key) for key in ("name", "path", "more", "mover", "destination", "repeat")}
        (work / f"{self.name}.toml").write_text(SCENARIO.format(**parts))
        (work / f"{self.name}-hosts.toml").write_text(f"a = {{ {self.a} }}\nb = {{ {self.b} }}\n")
        return ["run", f"{self.name}.toml", "--hosts", f"{self.name}-hosts.toml", "--yes", "--runs", "runs"]

    def run(self):
        """Run and return the finished process."""
        return self.hosts.venturi(*self.command(), check=False, environment=self.environment)

    def use_key(self, name, *, passphrase="", before=""):
        """Log in with another key, which the hosts accept; ``before`` precedes it in ``authorized_keys``."""
        key = self.hosts.work / f"key-{name}"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", key], check=True)
        line = f"{before}{key.with_suffix('.pub').read_text()}"
        for host in "ab":
            with (self.hosts.base / host / "home/alice/.ssh/authorized_keys").open("a") as keys:
                keys.write(line)
        self.change_ssh(str(self.hosts.work / "key\n"), f"{key}\n")

    def change_ssh(self, old, new):
        """Use another configuration of ssh."""
        changed = self.hosts.work / f"ssh-{self.name}"
        changed.write_text((self.hosts.work / "ssh_config").read_text().replace(old, new))
        self.environment = {"VENTURI_SSH": f"-F '{changed}'"}


SITUATIONS = {}


@dataclass
class _Case:
    make: object
    code: int
    expected: tuple


def case(code, *expected):
    """Register a situation with its exit code and texts that one line contains."""

    def register(make):
        SITUATIONS[make.__name__] = _Case(contextmanager(make), code, expected)
        return make

    return register


@contextmanager
def filtered(hosts, host, rule):
    """Filter packets that arrive at a host."""
    chain = "add chain inet guard input { type filter hook input priority 0; policy accept; }"
    shell = hosts.lab.shell(host)
    shell.run(
        ["nft", f"add table inet guard; {chain}; add rule inet guard input iifname eth0 tcp dport != 22 {rule}"],
        timeout_s=20,
    ).check_returncode()
    try:
        yield
    finally:
        shell.run(["nft", "delete table inet guard"], timeout_s=20).check_returncode()


@contextmanager
def as_root(hosts, host, script, undo):
    """Change a host, and undo the change at the end."""
    hosts.sh(host, script, user=False)
    try:
        yield
    finally:
        hosts.sh(host, undo, user=False)


@case(1, "b: cannot connect: connection refused", "Start an SSH server there")
def no_sshd(one):
    one.b = f'ssh = "alice@{one.hosts.address("c")}"'
    yield


# Both hosts have this problem; the message names the first that fails.
@case(1, ": cannot connect: its host key is unknown", "Connect once with `ssh ", ", compare the fingerprint")
def unknown_host_key(one):
    one.change_ssh("/known_hosts", "/no_known_hosts")
    yield


@case(1, "b: cannot connect: the login was rejected", "bob@", "Make `ssh -o BatchMode=yes bob@b true` work")
def wrong_user(one):
    one.b = 'ssh = "bob@b"'
    yield


@case(1, ": cannot connect: the login was rejected", "`ssh-add` if the key has a passphrase")
def key_with_a_passphrase(one):
    one.use_key(one.name, passphrase="secret")
    yield


@case(1, "b: cannot connect: its name is unknown", "no-such-host.invalid", "Correct the destination")
def unknown_host_name(one):
    one.b = 'ssh = "no-such-host.invalid"'
    yield


@case(1, ": expected a host with Linux on ", "found Linux on i686", "set VENTURI_ENGINE_I686")
def wrong_architecture(one):
    one.use_key(one.name, before='command="exec setarch i686 sh -c \\"$SSH_ORIGINAL_COMMAND\\"" ')
    yield


@case(1, "b: found no directory for the engine", "(noexec)", "Set testbed.host.b.cache to a directory of yours")
def cache_without_programs(one):
    one.b = 'ssh = "b", cache = "/home/alice/noexec"'
    make = "mkdir /home/alice/noexec && mount -t tmpfs -o noexec,uid=2001 none /home/alice/noexec"
    with as_root(one.hosts, "b", make, "umount /home/alice/noexec && rmdir /home/alice/noexec"):
        yield


@case(1, "b: expected a directory in which alice can write at /home/alice/ro (tmpfs)", "use another path")
def read_only_path(one):
    one.path = "/home/alice/ro"
    make = "mkdir /home/alice/ro && mount -t tmpfs -o ro none /home/alice/ro"
    with as_root(one.hosts, "b", make, "umount /home/alice/ro && rmdir /home/alice/ro"):
        yield


@case(1, "b: expected a directory in which alice can write at /srv/none/data", "correct the permission")
def path_of_another_user(one):
    one.path = "/srv/none/data"
    yield


@case(1, "/home/alice/full", "on b", "expected 1 MB of free space", "a path on a larger file system")
def full_path(one):
    one.path = "/home/alice/full"
    make = "mkdir /home/alice/full && mount -t tmpfs -o size=64k,uid=2001 none /home/alice/full"
    with as_root(one.hosts, "b", make, "umount /home/alice/full && rmdir /home/alice/full"):
        yield


@case(1, "no path from host a to", "(host b)", "no response", "set testbed.host.b.open_ports")
def blocked_port(one):
    one.more = SERVICE
    with filtered(one.hosts, "b", "drop"):
        yield


@case(1, "no path from host a to", "(host b)", "large packets are lost", "Allow ICMP 'packet too big'")
def lost_large_packets(one):
    one.more = SERVICE
    with filtered(one.hosts, "b", "ip length > 1000 drop"):
        yield


@case(
    1, "no path from host a to 192.168.77.5", "(host b)", "Host a reaches b at {b}: set testbed.host.b.address to it"
)
def wrong_interface(one):
    one.more = SERVICE
    one.b = 'ssh = "b", address = "192.168.77.5"'
    with as_root(one.hosts, "b", "ip address add 192.168.77.5/24 dev lo", "ip address del 192.168.77.5/24 dev lo"):
        yield


@case(1, "no path from host a to fd77::5", "(host b)", "no route", "set testbed.host.b.address to")
def address_of_another_family(one):
    one.more = SERVICE
    one.b = 'ssh = "b", address = "fd77::5"'
    yield


@case(1, "xrootd on b", "found none", "install the Debian package xrootd-server")
def missing_server(one):
    one.more, one.mover = SERVICE.replace("venturi-serve", "xrootd"), "xrdcp"
    with as_root(one.hosts, "b", "mount --bind /dev/null /usr/bin/xrootd", "umount /usr/bin/xrootd"):
        yield


@case(1, "a: xrdcp was not found", "apt-get install xrootd-client")
def missing_tool(one):
    one.more, one.mover = SERVICE.replace("venturi-serve", "xrootd"), "xrdcp"
    with as_root(one.hosts, "a", "mount --bind /dev/null /usr/bin/xrdcp", "umount /usr/bin/xrdcp"):
        yield


@case(1, "testbed.storage.far: a: ", "found one that expired 36", "create a proxy (grid-proxy-init, voms-proxy-init)")
def expired_proxy(one):
    pki, address = Pki(one.hosts.work / "pki"), one.hosts.address("c")
    home = one.hosts.base / "a/home/alice/grid"
    home.mkdir()
    shutil.copytree(pki.certificates, home / "certificates")
    shutil.copy(pki.proxy(lifetime_s=-3600), home / "proxy")
    for path in (home, *home.rglob("*")):
        os.chown(path, UID, UID)
    variables = 'X509_USER_PROXY = "/home/alice/grid/proxy", X509_CERT_DIR = "/home/alice/grid/certificates"'
    one.a = f'ssh = "a", environment = {{ {variables} }}'
    one.mover, one.destination = "globus-url-copy", "far"
    one.more = (
        f'[limits]\nbytes = "1 GB"\ntime = "10 min"\n[testbed.storage.far]\nhost = "a"\n'
        f'url = "gsiftp://{address}:2811/tmp"\n'
    )
    server = pki.host("c.lab.test", [address])
    variables = {"X509_CERT_DIR": pki.certificates, "X509_USER_CERT": server.certificate, "X509_USER_KEY": server.key}
    shell, log = one.hosts.lab.shell("c"), one.hosts.work / "gridftp.log"
    process = shell.start(
        ["globus-gridftp-server", "-c", "none", "-p", "2811", "-allow-root"],
        log=log,
        environment={key: str(value) for key, value in variables.items()},
    )
    try:
        ports = ["ss", "-Hltn", "sport = :2811"]
        wait_until(lambda: shell.run(ports, timeout_s=20).stdout or process.poll() is not None, "the server", LIMIT_S)
        assert process.poll() is None, log.read_text()
        yield
    finally:
        process.stop()


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_problem_is_reported_in_one_line_with_host_cause_and_next_step(name, real_hosts):
    found = SITUATIONS[name]
    one = Situation(real_hosts, name.replace("_", "-"))
    with found.make(one):
        done = one.run()
    assert done.returncode == found.code, f"{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    expected = [text.format(b=real_hosts.address("b")) for text in found.expected]
    lines = [line for line in done.stderr.splitlines() if all(text in line for text in expected)]
    assert len(lines) == 1, f"{expected}\n{done.stderr}"
    assert lines == [line for line in done.stderr.splitlines() if line.startswith("venturi: ")]
    assert not list((real_hosts.work / "runs").glob(f"{one.name}-2*")), "a run without results hides earlier runs"
    for host in "ab":
        real_hosts.wait_for_nothing_left(host)


_CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
  int (*kernel)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
  int code = kernel(clock, now);
  if (!code && clock == CLOCK_REALTIME) now->tv_sec += 5;
  return code;
}
"""


@needs_programs("cc", "globus-gridftp-server", "globus-url-copy")
def test_hosts_with_clocks_five_seconds_off_are_reported_and_their_times_corrected(real_hosts):
    """The controller's clock is 5 s ahead of those of both hosts. Certificates made by the controller are still valid there."""
    library = real_hosts.work / "clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-xc", "-", "-o", library, "-ldl"], input=_CLOCK, text=True, check=True)
    one = Situation(real_hosts, "clock")
    one.mover, one.more = (
        "globus-url-copy",
        SERVICE.replace("venturi-serve", "gridftp") + 'options = { auth = "gsi" }\n',
    )
    one.environment = {"LD_PRELOAD": str(library)}
    done = one.run()
    assert done.returncode == 0, done.stderr
    for host in "ab":
        (line,) = [line for line in done.stderr.splitlines() if f"the clock of {host} is " in line]
        assert "5.0 s behind the controller's" in line
        assert "synchronize it with NTP or PTP" in line
    (path,) = (real_hosts.work / "runs").glob("clock-2*")
    run = Run.open(path)
    assert {finding.host for finding in run.findings() if finding.code == "clock-offset"} == {"a", "b"}
    assert all(start_s > 0 for start_s in run.query("SELECT start_s FROM transfers")["start_s"])
    for host in "ab":
        real_hosts.wait_for_nothing_left(host)


@contextmanager
def active(one):
    """Start a run that does not end, wait for its first trial, and stop it at the end."""
    process = one.hosts.start_venturi(*one.command(), environment=one.environment)
    has_trial = lambda: any(  # noqa: E731 - a condition to wait for
        '"trial"' in path.read_text() for path in (one.hosts.work / "runs").glob(f"{one.name}-2*/journal.jsonl")
    )
    try:
        wait_until(lambda: has_trial() or process.poll() is not None, "a finished trial", LIMIT_S)
        assert process.poll() is None, process.communicate()
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=LIMIT_S)
    for host in "ab":
        one.hosts.wait_for_nothing_left(host)


def test_a_killed_server_ends_its_trials_with_host_and_cause(real_hosts):
    one = Situation(real_hosts, "dies")
    one.more, one.repeat = SERVICE, MANY
    with active(one) as process:
        servers = real_hosts.sh("b", "pgrep -u alice -f 'engine-[^ ]* serve'", user=False).split()
        real_hosts.sh("b", f"kill -9 {' '.join(servers)}", user=False)
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 3, err
    assert "Traceback" not in err
    assert "trials at server (its server on b exited with signal 9; 5 failures in a row) were not run" in err
    assert "when the server works again, resume with: venturi run --resume " in err


def test_a_second_run_in_the_same_directories_is_rejected_with_the_first_run_and_its_owner(real_hosts):
    first, second = Situation(real_hosts, "first"), Situation(real_hosts, "second")
    first.repeat = MANY
    with active(first) as process:
        done = second.run()
        assert process.poll() is None, process.communicate()
    assert done.returncode == 1, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("venturi: ")]
    assert "to be free, found that run first-2" in line
    assert "of alice (controller " in line
    assert line.removeprefix("venturi: ").startswith(("a: expected /", "b: expected /"))
    assert line.endswith("Wait until that run has ended, or set another --scratch or path of the storage.")
