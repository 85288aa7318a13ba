"""Control groups of a lab: files of version 2 on any machine, and groups of threads on kernels with version 2."""

import os
import subprocess
from pathlib import Path

import pytest

from testkit import needs_root
from venturi.errors import BackendError
from venturi.testbed.lab import groups
from venturi.testbed.lab.groups import HostLimits, make_groups, pressure_root, remove_group


class Entry:
    """The attributes of a lab entry that groups need."""

    id = "0a1b2c"

    def __init__(self):
        self.made = []

    def register(self, kind, **about):
        """Record an object before it is created."""
        self.made.append((kind, about))


@pytest.fixture
def version_2(tmp_path, monkeypatch):
    """Return the directory of a machine that mounts only version 2; files keep the text written for the kernel."""
    root = tmp_path / "cgroup"
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    (root / "cgroup.subtree_control").write_text("memory pids\n")
    mounts = tmp_path / "mounts"
    mounts.write_text(f"proc /proc proc rw 0 0\ncgroup2 {root} cgroup2 rw,nosuid 0 0\n")
    monkeypatch.setattr(groups, "_MOUNTS", mounts)
    return root


def test_cgroup_v2_limits_are_written_in_the_kernel_format(version_2):
    entry = Entry()
    limits = {"a": HostLimits(cpu_cores=0.5, memory_bytes=2**28), "b": HostLimits(disks=True), "c": HostLimits()}
    made = make_groups(entry, limits, root=True)
    lab = version_2 / "venturi-0a1b2c"
    assert (version_2 / "cgroup.subtree_control").read_text() == "+cpu +io"
    assert entry.made[0] == ("controllers", {"path": str(version_2), "controllers": "cpu io"})
    assert (lab / "cgroup.subtree_control").read_text() == "+cpu +io +memory"
    assert (lab / "a" / "memory.max").read_text() == str(2**28)
    assert (lab / "a" / "work" / "cpu.max").read_text() == "10000 20000"
    for name in ("agent", "work"):
        assert (lab / "a" / name / "cgroup.type").read_text() == "threaded"
    # The agent is in the group of its host and outside of the CPU limit; its movers join the limit.
    assert made["a"].processes == made["a"].work == (lab / "a" / "work",)
    assert made["a"].agent == (lab / "a" / "agent",)
    assert made["a"].counters["cpu"] == lab / "a" / "work" and made["a"].counters["memory"] == lab / "a"
    assert made["c"].processes == made["c"].agent == (lab / "c",) and made["c"].work == ()
    made["b"].limit_disk("7:3", {"read": 15e6, "write": 20e6}, entry)
    assert (lab / "b" / "io.max").read_text() == "7:3 rbps=15000000 wbps=20000000"
    paths = {about["path"] for kind, about in entry.made if kind == "cgroup"}
    assert paths == {str(path) for path in (lab, *lab.glob("*/"), *lab.glob("*/*/"))}


def test_cgroup_v2_counters_are_read_in_seconds_and_bytes(version_2):
    made = make_groups(Entry(), {"a": HostLimits(memory_bytes=2**28)}, root=True)["a"]
    group = version_2 / "venturi-0a1b2c" / "a"
    (group / "cpu.stat").write_text("usage_usec 1750000\nuser_usec 1500000\nsystem_usec 250000\n")
    assert made.cpu_used_s() == 1.75
    assert made.memory_limit_bytes() == 2**28
    assert made.memory_peak_bytes() is None
    (group / "memory.peak").write_text("4096\n")
    assert made.memory_peak_bytes() == 4096


def test_a_limit_without_a_cgroup_controller_is_rejected_with_its_setting(version_2):
    (version_2 / "cgroup.controllers").write_text("hugetlb\n")
    with pytest.raises(BackendError, match=r"testbed\.host\.a\.cpu_limit: expected a writable cgroup controller"):
        make_groups(Entry(), {"a": HostLimits(cpu_cores=1.0)}, root=True)


def test_a_group_that_cannot_enable_controllers_is_an_error_with_the_next_step(version_2):
    (version_2 / "cgroup.subtree_control").unlink()
    (version_2 / "cgroup.subtree_control").symlink_to("/proc/version")  # rejects writing
    with pytest.raises(BackendError, match="cannot enable the cgroup controllers cpu, io, memory"):
        make_groups(Entry(), {"a": HostLimits(cpu_cores=1.0)}, root=True)


@needs_root
def test_child_processes_of_an_agent_join_a_threaded_cgroup_v2():
    root = pressure_root()
    if root is None:
        pytest.skip("no writable cgroups of version 2")
    host = root / f"venturi-test-{os.getpid()}"
    agent, work = host / "agent", host / "work"
    try:
        for directory in (host, agent, work):
            directory.mkdir()
        for directory in (agent, work):
            (directory / "cgroup.type").write_text("threaded")
        # Like an agent and its child: a process joins from outside, and its child moves to the limit.
        script = 'echo 0 > "$1/cgroup.procs" && (echo 0 > "$2/cgroup.threads" && cat /proc/self/cgroup); cat /proc/$$/cgroup'
        out = subprocess.run(
            ["sh", "-c", script, "agent", agent, work], capture_output=True, text=True, timeout=30, check=True
        ).stdout
        joined = [Path(line.rpartition(":")[2]).name for line in out.splitlines() if host.name in line]
        assert joined == ["work", "agent"]
        # Like a server, which joins the limit directly; its group is removed with it.
        server = subprocess.Popen(["sh", "-c", 'echo 0 > "$1/cgroup.procs" && echo ready && exec sleep 600', "x", work],
                                  stdout=subprocess.PIPE)  # fmt: skip
        assert server.stdout.readline() == b"ready\n"
        assert remove_group(work)
        assert server.wait(timeout=30) == -9
        server.stdout.close()
    finally:
        assert all(remove_group(directory) for directory in (work, agent, host))
