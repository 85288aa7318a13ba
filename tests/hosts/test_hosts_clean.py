"""`venturi clean` removes and lists the remains of a lost session on its hosts, and keeps active runs and later files."""

import os
import signal

import pytest

from testkit import needs_root, wait_until

pytestmark = needs_root

SCENARIO = """
venturi = 1
name = "{name}"
seed = 1
[testbed.host.a]
ssh = "a"
[testbed.host.b]
ssh = "b"
[testbed.storage.sa]
host = "a"
path = "data"
[testbed.storage.sb]
host = "b"
path = "{path}"
[workload]
kind = "sweep"
mover = "venturi"
source = "sa"
destination = "sb"
repeat = 3
[workload.factors]
size = ["{size}"]
files = [{files}]
"""

SLOW_BIT_PER_S, FAST_BIT_PER_S = 1e7, 1e9
"""At the slow rate, a transfer takes many seconds."""

LIMIT_S = 120

# All hosts of a lab share one PID namespace. The processes of a host are those in its network namespace.
KILL_ALL = """
own=$(readlink /proc/self/ns/net)
of_host() { for pid in $(ps -o pid= -u alice); do [ "$(readlink /proc/$pid/ns/net)" = "$own" ] && echo $pid; done; }
# First they are all stopped: one that lives on for a moment would clean up.
kill -STOP $(of_host)
while pids=$(of_host) && [ -n "$pids" ]; do kill -9 $pids 2>/dev/null; done
true
"""

FILES = r"""
find ~ /tmp -user alice -type f \( -path '*/sessions/2*' -o -path '/tmp/*runs*/*.json' -o -path '*/out/*' \)
"""
"""Files of a run on a host that later runs do not need."""


@pytest.mark.parametrize(("path", "files"), [("data", 1), ("/home/alice/mine", 4)], ids=["scratch", "own"])
def test_clean_removes_and_lists_the_remains_of_a_lost_session(path, files, real_hosts):
    name = f"lost-{files}"
    scenario = real_hosts.work / f"{name}.toml"
    scenario.write_text(SCENARIO.format(name=name, path=path, files=files, size=f"{20 // files} MB"))
    real_hosts.sh("b", "mkdir -p ~/mine/out && echo keep >~/mine/out/keep && echo keep >~/mine/keep")
    runs = real_hosts.work / "runs"
    real_hosts.venturi("plan", scenario, "--on", "hosts", "--probe", "--yes")  # copies the engine
    real_hosts.lab.change("b-core", {"rate_bit_per_s": SLOW_BIT_PER_S})
    process = real_hosts.start_venturi("run", scenario, "--on", "hosts", "--yes", "--runs", runs)
    try:
        wait_until(lambda: _partial(real_hosts) or process.poll() is not None, "the start of a transfer", LIMIT_S)
        assert process.poll() is None, process.communicate()
        active = real_hosts.venturi("clean", name, "--runs", runs, check=False)
        assert active.returncode == 1
        assert "uses the run. Wait for it, or stop it there with Ctrl-C." in active.stderr
        assert process.poll() is None, process.communicate()
        # Simulates a power failure of the hosts: no process there can remove files.
        os.killpg(process.pid, signal.SIGSTOP)
        for host in "ab":
            real_hosts.sh(host, KILL_ALL, user=False)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        real_hosts.lab.change("b-core", {"rate_bit_per_s": FAST_BIT_PER_S})
    left = {host: set(real_hosts.sh(host, FILES).split()) - KEPT for host in "ab"}
    assert all(any("/sessions/2" in file for file in left[host]) for host in "ab"), left
    assert any("/out/" in file for file in left["b"]), left
    removed = _clean(real_hosts, name, runs)
    for host in "ab":
        covered = {
            file for file in left[host] if any(file == one or file.startswith(f"{one}/") for one in removed[host])
        }
        assert covered == left[host], (left, removed)
        assert set(real_hosts.sh(host, FILES).split()) - KEPT == set(), host
        real_hosts.wait_for_nothing_left(host)
    assert real_hosts.sh("b", "cat ~/mine/out/keep ~/mine/keep").split() == ["keep", "keep"]
    assert _clean(real_hosts, name, runs) == {"a": set(), "b": set()}


KEPT = {"/home/alice/mine/out/keep"}


def _partial(real_hosts):
    """Return the files that a transfer is writing on host b."""
    return set(real_hosts.sh("b", "find ~ -type f -path '*/out/*' -size +100k").split())


def _clean(real_hosts, name, runs):
    """Return the removed paths by host, as the command prints them."""
    done = real_hosts.venturi("clean", name, "--runs", runs)
    lines = [line.removeprefix("removed ").partition(":") for line in done.stdout.splitlines()]
    assert lines or "nothing to remove" in done.stderr, done.stderr
    return {host: {path for name, _, path in lines if name == host} for host in "ab"}
