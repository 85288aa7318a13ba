"""Whatever kills the keeper of a lab, and whenever: the next lab command removes what is left, and nothing else."""

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

KEEPER = """
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
    """Start a process that keeps a lab, and return it."""
    keeper = subprocess.Popen(
        [sys.executable, "-c", KEEPER, str(engine), str(parent.parent / "scratch")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"VENTURI_LAB": str(parent)},
    )
    keeper.stdin.write(json.dumps(HEADER.emit(header)) + "\n")
    keeper.stdin.flush()
    return keeper


def lines_until(keeper, beginning):
    """Read what a keeper says until it says something; return that line."""
    for line in keeper.stdout:
        if line.startswith(beginning):
            return line
    raise AssertionError(f"the keeper ended before it said {beginning}")


def claims_on_memory():
    """Return what stands in the file of claims, None if there is none: other labs on this machine make it and remove it."""
    try:
        return json.loads(memory.CLAIMS.read_text())
    except FileNotFoundError:
        return None


def machine_tcp_mem():
    """Return what the bound is when no lab has raised it, as other labs on this machine may have."""
    while True:
        setting = Path("/proc/sys/net/ipv4/tcp_mem").read_text()
        claims = claims_on_memory()
        if claims is not None:
            return claims["original"].split()
        if Path("/proc/sys/net/ipv4/tcp_mem").read_text() == setting:
            return setting.split()


def kill(keeper):
    """End a keeper as the out-of-memory killer would."""
    keeper.kill()
    keeper.wait()
    keeper.stdin.close()
    keeper.stdout.close()


@needs_root
@pytest.mark.parametrize("moment", ["making", "connecting", "trying", "up"])
@pytest.mark.parametrize("delay_s", [0.0, 0.01, 0.04])
def test_what_a_killed_keeper_leaves_is_removed_by_the_next_command(parent, engine, moment, delay_s):
    original = machine_tcp_mem()
    # A path this fat needs more memory for TCP than machines have by default, so that the bound is raised.
    text = pair(rate="10 Gb/s", delay="30 ms", more=EVERYTHING).replace("[host.a]", "[host.a]\ncpu_limit = 0.5")
    keeper = keep(parent, engine, header_of(text))
    lines_until(keeper, moment)
    # Not a synchronisation: it spreads the moments of death.
    signal.sigtimedwait([], delay_s)
    (entry,) = registered(parent)
    remains = Remains(entry.id, below(keeper.pid)[1:])
    kill(keeper)
    assert not entry.kept
    assert sweep(parent) == []
    assert registered(parent) == []
    assert remains.in_the_end() == NOTHING
    assert inhabitants(parent) == []
    assert not entry.folder.exists()
    assert not list(Path("/sys/fs/cgroup").glob(f"*/venturi-{entry.id}*"))
    assert not list((parent.parent / "scratch").glob(".venturi-*"))
    assert entry.id not in (claims_on_memory() or {"labs": {}})["labs"]
    assert machine_tcp_mem() == original


@needs_root
def test_bringing_a_lab_up_removes_a_dead_one_and_leaves_a_living_one_alone(parent, engine, bring_up):
    living = bring_up(header_of(pair()), probe=False)
    keeper = keep(parent, engine, header_of(pair()))
    dead = lines_until(keeper, "up").split()[1]
    assert {entry.id for entry in registered(parent)} == {living.id, dead}
    kill(keeper)
    third = bring_up(header_of(pair()), probe=False)
    assert {entry.id for entry in registered(parent)} == {living.id, third.id}
    assert living.machine("a").run(["ping", "-c", "1", "-W", "2", "b"], timeout_s=5).returncode == 0


@needs_root
def test_a_lab_whose_keeper_was_killed_ends_at_once_even_if_nobody_cleans_up(parent, engine):
    keeper = keep(parent, engine, header_of(pair()))
    lines_until(keeper, "up")
    (entry,) = registered(parent)
    remains = Remains(entry.id, below(keeper.pid)[1:])
    kill(keeper)
    for identity in remains.processes:
        deadline = 1000
        while identity.alive and deadline:
            signal.sigtimedwait([], 0.01)
            deadline -= 1
    assert remains.left()["namespaces"] == set()
    assert remains.left()["processes"] == []


def test_a_reused_pid_is_not_taken_for_a_keeper(tmp_path):
    entry = new_entry("gone", tmp_path)
    entry.keeper = type(entry.keeper)(os.getpid(), entry.keeper.start_ticks - 1)
    entry.write()
    entry.folder.mkdir()
    (entry.folder / "file").touch()
    assert not entry.kept
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
registry.new_entry("gone", Path(sys.argv[1])).will_make("cgroup", path="/sys/fs/cgroup/venturi-none")
"""


@pytest.mark.parametrize("moment", ["first", "again"])
def test_what_is_left_of_an_entry_whose_writer_was_killed_is_removed(tmp_path, moment):
    assert subprocess.run([sys.executable, "-c", WRITER, tmp_path, moment], check=False).returncode == -signal.SIGKILL
    (torn,) = tmp_path.glob("*/*.new")
    assert len(registered(tmp_path)) == (moment == "again")
    being_written = torn.with_name(f"abcdef.{os.getpid()}-{new_entry('living', tmp_path).keeper.start_ticks}.new")
    not_ours = torn.with_name("other.new")
    for path in (being_written, not_ours):
        path.touch()
    assert sweep(tmp_path) == []
    assert [entry.name for entry in registered(tmp_path)] == ["living"]
    assert sorted(tmp_path.glob("*/*.new")) == sorted([being_written, not_ours])


def test_nothing_is_left_of_the_registry_of_a_process_that_was_killed_at_its_first_entry(tmp_path):
    subprocess.run([sys.executable, "-c", WRITER, tmp_path, "first"], check=False)
    assert list(tmp_path.glob("*/*.new"))
    assert sweep(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_an_entry_that_goes_while_labs_are_listed_is_no_lab(tmp_path):
    entry = new_entry("living", tmp_path)
    entry.path.with_name("abcdef.json").symlink_to(tmp_path / "gone")
    assert [found.name for found in registered(tmp_path)] == ["living"]
    entry.path.with_name("abcdef.json").unlink()
    entry.close()
    assert registered(tmp_path) == []


def test_a_claim_on_memory_that_was_never_made_whole_is_removed(tmp_path, monkeypatch):
    claims, setting = tmp_path / "claims.json", tmp_path / "tcp_mem"
    setting.write_text("1 2 3")
    beside = claims.with_suffix(".new")
    beside.write_text('{"boot"')
    for name, path in (("CLAIMS", claims), ("_BESIDE", beside), ("SETTING", setting)):
        monkeypatch.setattr(memory, name, path)
    memory.release_tcp_memory("gone")
    assert [path.name for path in tmp_path.iterdir()] == ["tcp_mem"]
    assert setting.read_text() == "1 2 3"


def test_what_is_not_listed_is_not_removed_whatever_its_name(tmp_path):
    entry = new_entry("gone", tmp_path)
    entry.boot = "another boot"
    entry.write()
    other = tmp_path / "venturi-abcdef"
    other.mkdir()
    assert sweep(tmp_path) == []
    assert other.is_dir()
    assert not entry.path.exists()


@needs_root
def test_a_folder_with_a_foreign_mount_in_it_is_left_and_told_of(tmp_path):
    entry = new_entry("gone", tmp_path)
    entry.boot = "another boot"
    entry.write()
    inside = entry.folder / "hosts" / "a"
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
@pytest.mark.alone  # other labs that come up meanwhile ask for memory, too
def test_the_memory_for_tcp_goes_back_when_the_last_lab_that_needs_it_is_down(bring_up):
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
def test_an_error_on_the_way_up_leaves_nothing(parent, engine, monkeypatch):
    def broken(self, **options):
        self._make_hosts()
        self._connect()
        raise KeyboardInterrupt

    monkeypatch.setattr(Lab, "_come_up", broken)
    with pytest.raises(KeyboardInterrupt):
        Lab.up(header_of(pair(more=EVERYTHING)), engine=engine, parent=parent)
    assert registered(parent) == []
