"""The daemon of a lab is killed at any time: the next lab command removes its remains, and nothing else."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from labkit import NOTHING, Remains, below, header_of, inhabitants, pair

from testkit import needs_root
from venturi.plan.codec import HEADER
from venturi.testbed.lab import Lab, memory, registered, sweep
from venturi.testbed.lab.registry import new_entry

DAEMON = """
import json, sys
from pathlib import Path
from venturi.plan.codec import HEADER
from venturi.testbed.lab import Lab
header = HEADER.read(json.loads(sys.stdin.readline()), "header")
lab = Lab.up(header, engine=Path(sys.argv[1]), scratch=Path(sys.argv[2]), on_step=lambda step: print(step, flush=True))
print("up", lab.id, flush=True)
sys.stdin.read()
"""

EVERYTHING = """
[storage.slow]
host = "a"
path = "slow"
kind = "disk"
size = "100 MB"
write_rate = "50 MB/s"
[storage.fast]
host = "b"
path = "fast"
kind = "tmpfs"
size = "10 MB"
"""


def keep(parent, engine, header):
    """Start a process that owns a lab, and return it."""
    daemon = subprocess.Popen(
        [sys.executable, "-c", DAEMON, str(engine), str(parent.parent / "scratch")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"VENTURI_LAB": str(parent)},
    )
    daemon.stdin.write(json.dumps(HEADER.emit(header)) + "\n")
    daemon.stdin.flush()
    return daemon


def lines_until(daemon, prefix):
    """Read the output of a daemon until a line with a prefix; return that line."""
    for line in daemon.stdout:
        if line.startswith(prefix):
            return line
        assert not line.startswith("up "), f"the keeper never said {prefix}"
    raise AssertionError(f"the keeper ended before it said {prefix}")


def claims_on_memory():
    """Return the content of the claims file, or None if there is none. Other labs on this machine create and remove it."""
    try:
        return json.loads(memory.CLAIMS.read_text())
    except FileNotFoundError:
        return None


def machine_tcp_mem():
    """Return the kernel's original limit, because other labs on this machine can have raised it."""
    while True:
        setting = Path("/proc/sys/net/ipv4/tcp_mem").read_text()
        claims = claims_on_memory()
        if claims is not None:
            return claims["original"].split()
        if Path("/proc/sys/net/ipv4/tcp_mem").read_text() == setting:
            return setting.split()


def kill(daemon):
    """Kill a daemon as the out-of-memory killer would."""
    daemon.kill()
    daemon.wait()
    daemon.stdin.close()
    daemon.stdout.close()


@needs_root
@pytest.mark.parametrize("moment", ["creating", "connecting", "probing", "up"])
@pytest.mark.parametrize("delay_s", [0.0, 0.01, 0.04])
def test_the_next_command_removes_all_remains_of_a_killed_daemon(parent, engine, moment, delay_s):
    original = machine_tcp_mem()
    # The bandwidth-delay product of this path needs more TCP memory than the default, so the limit is raised.
    text = pair(rate="10 Gb/s", delay="30 ms", more=EVERYTHING).replace("[host.a]", "[host.a]\ncpu_limit = 0.5")
    daemon = keep(parent, engine, header_of(text))
    lines_until(daemon, moment)
    # This delay is not a synchronisation: it varies the time of the kill.
    signal.sigtimedwait([], delay_s)
    (entry,) = registered(parent)
    remains = Remains(entry.id, below(daemon.pid)[1:])
    kill(daemon)
    assert not entry.active
    assert sweep(parent) == []
    assert registered(parent) == []
    assert remains.in_the_end() == NOTHING
    assert inhabitants(parent) == []
    assert not entry.directory.exists()
    assert not list(Path("/sys/fs/cgroup").glob(f"*/venturi-{entry.id}*"))
    assert not list((parent.parent / "scratch").glob(".venturi-*"))
    assert entry.id not in (claims_on_memory() or {"labs": {}})["labs"]
    assert machine_tcp_mem() == original


@needs_root
def test_starting_a_lab_removes_dead_labs_and_keeps_active_ones(parent, engine, bring_up):
    living = bring_up(header_of(pair()), probe=False)
    daemon = keep(parent, engine, header_of(pair()))
    dead = lines_until(daemon, "up").split()[1]
    assert {entry.id for entry in registered(parent)} == {living.id, dead}
    kill(daemon)
    third = bring_up(header_of(pair()), probe=False)
    assert {entry.id for entry in registered(parent)} == {living.id, third.id}
    assert living.shell("a").run(["ping", "-c", "1", "-W", "2", "b"], timeout_s=5).returncode == 0


@needs_root
def test_a_lab_with_a_killed_daemon_ends_without_a_cleanup_command(parent, engine):
    daemon = keep(parent, engine, header_of(pair()))
    lines_until(daemon, "up")
    (entry,) = registered(parent)
    remains = Remains(entry.id, below(daemon.pid)[1:])
    kill(daemon)
    for identity in remains.processes:
        polls = 1000
        while identity.alive and polls:
            signal.sigtimedwait([], 0.01)
            polls -= 1
    assert remains.left()["namespaces"] == set()
    assert remains.left()["processes"] == []


def test_a_reused_pid_is_not_mistaken_for_a_daemon(tmp_path):
    entry = new_entry("gone", tmp_path)
    entry.daemon = type(entry.daemon)(os.getpid(), entry.daemon.start_ticks - 1)
    entry.write()
    entry.directory.mkdir()
    (entry.directory / "file").touch()
    assert not entry.active
    assert sweep(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


WRITER = """
import os, signal, sys
from pathlib import Path
from venturi.testbed.lab import registry
replace = Path.replace
def killed(beside, path):
    if sys.argv[2] == "again":
        sys.argv[2] = "first"
        return replace(beside, path)
    os.kill(os.getpid(), signal.SIGKILL)
Path.replace = killed
registry.new_entry("gone", Path(sys.argv[1])).register("cgroup", path="/sys/fs/cgroup/venturi-none")
"""


@pytest.mark.parametrize("moment", ["first", "again"])
def test_a_partial_entry_of_a_killed_writer_is_removed(tmp_path, moment):
    assert subprocess.run([sys.executable, "-c", WRITER, tmp_path, moment], check=False).returncode == -signal.SIGKILL
    (torn,) = tmp_path.glob("*/*.new")
    assert len(registered(tmp_path)) == (moment == "again")
    being_written = torn.with_name(f"abcdef.{os.getpid()}-{new_entry('living', tmp_path).daemon.start_ticks}.new")
    not_ours = torn.with_name("other.new")
    for path in (being_written, not_ours):
        path.touch()
    assert sweep(tmp_path) == []
    assert [entry.name for entry in registered(tmp_path)] == ["living"]
    assert sorted(tmp_path.glob("*/*.new")) == sorted([being_written, not_ours])


def test_the_registry_of_a_process_killed_at_its_first_entry_is_removed(tmp_path):
    subprocess.run([sys.executable, "-c", WRITER, tmp_path, "first"], check=False)
    assert list(tmp_path.glob("*/*.new"))
    assert sweep(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_an_entry_that_disappears_during_listing_is_ignored(tmp_path):
    entry = new_entry("living", tmp_path)
    entry.path.with_name("abcdef.json").symlink_to(tmp_path / "gone")
    assert [found.name for found in registered(tmp_path)] == ["living"]
    entry.path.with_name("abcdef.json").unlink()
    entry.close()
    assert registered(tmp_path) == []


def test_an_incomplete_file_of_memory_claims_is_removed(tmp_path, monkeypatch):
    claims, setting = tmp_path / "claims.json", tmp_path / "tcp_mem"
    setting.write_text("1 2 3")
    sibling = claims.with_suffix(".new")
    sibling.write_text('{"boot"')
    for name, path in (("CLAIMS", claims), ("_TEMPORARY", sibling), ("SETTING", setting)):
        monkeypatch.setattr(memory, name, path)
    memory.release_tcp_memory("gone")
    assert [path.name for path in tmp_path.iterdir()] == ["tcp_mem"]
    assert setting.read_text() == "1 2 3"


def test_an_unregistered_directory_is_kept_regardless_of_its_name(tmp_path):
    entry = new_entry("gone", tmp_path)
    entry.boot = "another boot"
    entry.write()
    other = tmp_path / "venturi-abcdef"
    other.mkdir()
    assert sweep(tmp_path) == []
    assert other.is_dir()
    assert not entry.path.exists()


@needs_root
def test_a_directory_with_a_foreign_mount_is_kept_and_reported(tmp_path):
    entry = new_entry("gone", tmp_path)
    entry.boot = "another boot"
    entry.write()
    inside = entry.directory / "hosts" / "a"
    inside.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "venturi-test", str(inside)], check=True)
    try:
        (inside / "precious").touch()
        (problem,) = sweep(tmp_path)
        assert str(inside) in problem and "unmount" in problem
        assert (inside / "precious").exists()
    finally:
        subprocess.run(["umount", str(inside)], check=True)
    assert sweep(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@needs_root
@pytest.mark.alone  # other labs that start at the same time also claim memory
def test_the_tcp_memory_limit_is_restored_when_the_last_lab_that_needs_it_ends(bring_up):
    setting = Path("/proc/sys/net/ipv4/tcp_mem")
    original = setting.read_text()
    if memory.CLAIMS.exists():
        pytest.skip("another lab on this machine has raised net.ipv4.tcp_mem")
    fat = header_of(pair(rate="10 Gb/s", delay="50 ms"))
    first = bring_up(fat, probe=False)
    once = int(setting.read_text().split()[1])
    second = bring_up(fat, probe=False)
    twice = int(setting.read_text().split()[1])
    assert int(original.split()[1]) < once <= twice
    first.down()
    assert int(setting.read_text().split()[1]) == once
    second.down()
    if memory.CLAIMS.exists():
        pytest.skip("another lab on this machine has raised net.ipv4.tcp_mem meanwhile")
    assert setting.read_text() == original
    assert not memory.CLAIMS.exists()


@needs_root
def test_an_error_during_lab_start_leaves_no_lab(parent, engine, monkeypatch):
    def broken(self, **options):
        self._create_hosts()
        self._connect()
        raise KeyboardInterrupt

    monkeypatch.setattr(Lab, "_come_up", broken)
    with pytest.raises(KeyboardInterrupt):
        Lab.up(header_of(pair(more=EVERYTHING)), engine=engine, parent=parent)
    assert registered(parent) == []
