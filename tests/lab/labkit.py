"""Tools for tests of the lab: headers from scenario texts, and the state of a machine before and after."""

import os
import subprocess
import time
import tomllib
from contextlib import suppress
from pathlib import Path

from venturi.plan import Header, Measure, Totals
from venturi.scenario.testbed import TestbedTable
from venturi.testbed.lab.process_id import ProcessId, children
from venturi.testbed.plan import resolve_testbed


def header_of(text, *, name="test", seed=1):
    """Return the header of a plan for a testbed in TOML, whose tables need no ``testbed.`` prefix."""
    problems = []
    testbed = tomllib.loads(text)
    parts = resolve_testbed(TestbedTable.model_validate(testbed), 1.0, problems)
    assert not problems, problems
    return Header(
        name, seed, 1.0, {"testbed": testbed}, parts.hosts, parts.storages, {}, {}, Measure(None, ()), Totals(0, 0, 0, {}),
        services=parts.services, network=parts.network,
    )  # fmt: skip


def pair(*, delay="5 ms", rate="1 Gb/s", more=""):
    """Return a testbed of two hosts, a and b, and a router between them."""
    return f"""
    [host.a]
    [host.b]
    [router.core]
    [link.a-core]
    between = ["a", "core"]
    rate = "{rate}"
    delay = "{delay}"
    [link.b-core]
    between = ["b", "core"]
    rate = "{rate}"
    delay = "{delay}"
    {more}
    """


def sites(count, hosts):
    """Return a testbed with ``count`` sites around one exchange, with the hosts assigned to them in turn."""
    lines = ["[router.exchange]"]
    for site in range(count):
        lines += [f"[router.site{site}]", f"[link.site{site}-exchange]", f'between = ["site{site}", "exchange"]']
        lines += ['rate = "10 Gb/s"', f'delay = "{1 + site} ms"']
    for number in range(hosts):
        site = number % count
        lines += [f"[host.m{number}]", f'site = "site{site}"', f"[link.m{number}-site{site}]"]
        lines += [f'between = ["m{number}", "site{site}"]', 'rate = "1 Gb/s"', 'delay = "0.1 ms"']
    return "\n".join(lines)


def traces(parent):
    """Return possible remains of labs in ``parent`` on this machine; other tests can have labs in other directories."""
    return {
        "processes": [words for words in command_lines() if str(parent) in words],
        "mounts": [line.split()[4] for line in _lines("/proc/self/mountinfo") if str(parent) in line],
        "loops": [path.read_text() for path in _backing_files() if str(parent) in path.read_text()],
        "files": sorted(str(path.relative_to(parent)) for path in Path(parent).rglob("*")),
    }


class Remains:
    """Parts of a running lab outside of its directory, which must be gone after it is down."""

    def __init__(self, lab_id, daemon_children):
        ours = namespaces_of("self")
        self.namespaces = {name for pid in daemon_children for name in namespaces_of(pid)} - ours
        self.processes = [identity for pid in daemon_children if (identity := ProcessId.of(pid)) is not None]
        self.groups = list(Path("/sys/fs/cgroup").glob(f"*/venturi-{lab_id}*"))
        self.noted_ticks = float(Path("/proc/uptime").read_text().split()[0]) * os.sysconf("SC_CLK_TCK")

    def left(self):
        """Return the remaining parts."""
        namespaces = set()
        for directory in Path("/proc").glob("[0-9]*"):
            identity = ProcessId.of(int(directory.name))
            # The kernel reuses the number of a removed namespace, so skip processes that started later.
            if identity is None or identity.start_ticks > self.noted_ticks:
                continue
            namespaces |= namespaces_of(directory.name)
        return {
            "namespaces": self.namespaces & namespaces,
            "processes": [identity for identity in self.processes if identity.alive],
            "groups": [group for group in self.groups if group.exists()],
        }

    def in_the_end(self):
        """Return the parts that remain after a time limit, because the `nsenter` of a client exits shortly after its child."""
        deadline_s = time.monotonic() + 30
        while (left := self.left()) != NOTHING and time.monotonic() < deadline_s:
            time.sleep(0.01)
        return left


NOTHING = {"namespaces": set(), "processes": [], "groups": []}


def namespaces_of(pid):
    """Return the kinds and names of the namespaces of a process; empty if it has exited."""
    found = set()
    for kind in ("net", "mnt", "uts", "pid"):
        with suppress(OSError):
            found.add((kind, str(Path(f"/proc/{pid}/ns/{kind}").readlink())))
    return found


def below(pid):
    """Return the PIDs of a process and all its descendants."""
    found = [pid]
    for parent in found:
        found += children(parent)
    return found


def inhabitants(parent):
    """Return the processes that see a mount in a directory."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            mounts = (directory / "mountinfo").read_text().splitlines()
            if any(str(parent) in line.split()[4] for line in mounts):
                found.append(int(directory.name))
        except OSError:
            continue
    return found


def command_lines():
    """Return the command lines of all processes."""
    return subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True, check=True).stdout.splitlines()


def shell(lab, host, script, timeout_s=20):
    """Run a script on a host of a lab and return its output; it must succeed."""
    done = lab.shell(host).run(["sh", "-c", script], timeout_s=timeout_s)
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _lines(path):
    return Path(path).read_text().splitlines()


def _backing_files():
    return Path("/sys/block").glob("loop*/loop/backing_file")
