"""A MooseFS with two chunk servers, accessed through its mount."""

import os
import signal
import time as clock
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from bare import check_nothing_left, lacking

from venturi.errors import BackendError
from venturi.testbed.services.base import ServiceSpec
from venturi.testbed.services.table import SERVICES

KINDS = ("moosefs-master", "moosefs-chunkserver", "moosefs-mount")
pytestmark = pytest.mark.skipif(lacking(*KINDS) is not None, reason=str(lacking(*KINDS)))


def contexts(lab, time, **mount):
    """Return the contexts of a file system with chunks on a and b, which is mounted on c."""
    for name, host in {"chunks-a": "a", "chunks-b": "b", "shared": "c"}.items():
        lab.storage(name, host)
    names = {part: f"{part}{time}" for part in ("master", "one", "two", "mount")}
    servers = {"one": "a", "two": "b"}
    return [
        lab.context(names["master"], "moosefs-master", "c"),
        *(
            lab.context(names[part], "moosefs-chunkserver", host, storages=[f"chunks-{host}"], master=names["master"])
            for part, host in servers.items()
        ),
        lab.context(
            names["mount"], "moosefs-mount", "c", storages=["shared"], master=names["master"],
            chunkservers=f"{names['one']}, {names['two']}", **mount,
        ),
    ]  # fmt: skip


@pytest.mark.parametrize(("time", "cache"), [(1, "auto"), (2, "direct")])
def test_a_file_is_spread_over_the_servers_and_read_back_and_the_servers_clean_up(lab, time, cache):
    all_contexts = contexts(lab, time, cache=cache)
    shared, chunks = lab.storages["shared"], [lab.storages["chunks-a"], lab.storages["chunks-b"]]
    with ExitStack() as stack:
        for context in all_contexts:
            stack.enter_context(lab.running(context))
        written = lab.run(
            "c", "dd", "if=/dev/urandom", f"of={shared}/file", "bs=1M", "count=80", "conv=fsync", "iflag=fullblock"
        )
        assert written.returncode == 0, written.stderr
        sums = {host: lab.run(host, "md5sum", f"{shared}/file").stdout for host in "ab"}
        assert len(sums["a"]) > 32
        assert sums["a"] == sums["b"]
        stored = lab.run("c", "mfsfileinfo", f"{shared}/file").stdout
        assert "10.77.0.1:9422" in stored
        assert "10.77.0.2:9422" in stored
        on_disk = [int(lab.run("a", "du", "-sm", str(directory)).stdout.split()[0]) for directory in chunks]
        assert min(on_disk) >= 80 - 64
        assert 80 <= sum(on_disk) < 100
        other = lab.run("b", "setpriv", "--reuid=nobody", "--clear-groups", "touch", f"{shared}/of-nobody")
        assert other.returncode == 0, other.stderr
    check_nothing_left(lab)
    assert str(shared) not in lab.run("c", "cat", "/proc/mounts").stdout
    assert list(shared.iterdir()) == []
    assert [list(directory.iterdir()) for directory in chunks] == [[], []]


def test_a_mount_in_use_is_unmounted(lab):
    master, one, _, mount = contexts(lab, "busy")
    shared = lab.storages["shared"]
    with ExitStack() as stack:
        for context in (master, one, mount):
            stack.enter_context(lab.running(context))
        user = lab.shells["c"].start(
            ["sh", "-c", f"exec 3> {shared}/open; sleep 1000"], log=mount.directory / "user.out"
        )
        while not lab.run("c", "ls", str(shared)).stdout:
            assert user.poll() is None
    assert str(shared) not in lab.run("c", "cat", "/proc/mounts").stdout
    user.stop(signal=9)
    check_nothing_left(lab)


def pid_of(lab, name):
    """Wait for the only process of the lab with this name and return its PID."""
    end = clock.monotonic() + 10
    while clock.monotonic() < end:
        if found := [pid for pid, of in lab.processes().items() if of == name]:
            return found[0]
    raise AssertionError(f"no {name} in {lab.processes()}")


def until_it_waits_in(pid, path):
    """Wait until a process has opened a file and sleeps in a read."""
    end = clock.monotonic() + 10
    while clock.monotonic() < end:
        with suppress(OSError):
            opened = {str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()}
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
            if str(path) in opened and state in "SD":
                return
    raise AssertionError(f"process {pid} does not wait in {path}")


@pytest.mark.parametrize(("serial", "waited_s", "code"), [(False, 20, 2), (True, 1, 124)])
def test_a_serial_mount_serves_no_request_while_a_request_waits_for_its_server(lab, serial, waited_s, code):
    master, one, _, mount = contexts(lab, f"serial{serial}", cache="direct", serial=serial)
    shared = lab.storages["shared"]
    with ExitStack() as stack:
        for context in (master, one, mount):
            stack.enter_context(lab.running(context))
        written = lab.run("c", "dd", "if=/dev/urandom", f"of={shared}/file", "bs=100k", "count=1", "conv=fsync")
        assert written.returncode == 0, written.stderr
        server = pid_of(lab, "mfschunkserver")
        # Its parent, nsenter, stops together with it.
        starter = int(Path(f"/proc/{server}/stat").read_text().rpartition(") ")[2].split()[1])
        for stopped in (starter, server):
            stack.callback(os.kill, stopped, signal.SIGCONT)
        os.kill(server, signal.SIGSTOP)
        reader = lab.shells["c"].start(["cat", f"{shared}/file"], log=mount.directory / "reader.out")
        until_it_waits_in(pid_of(lab, "cat"), shared / "file")
        # The master decides whether another file exists, and it replies before the chunk server continues, even on a
        # busy machine.
        assert lab.run("c", "timeout", str(waited_s), "ls", f"{shared}/nothing").returncode == code
        os.kill(server, signal.SIGCONT)
        os.kill(starter, signal.SIGCONT)
        reader.stop(signal=signal.SIGKILL)
    check_nothing_left(lab)


def test_a_mount_without_a_chunk_server_reports_the_missing_server(lab):
    master, _, _, mount = contexts(lab, "alone")
    service = SERVICES["moosefs-mount"]
    with lab.running(master):
        service.configure(mount)
        processes = service.start(mount)
        try:
            lacks = [service.ready(mount)]
            while "not mounted yet" in lacks[-1]:
                assert processes[0].poll() is None, service.logs(mount)[0].read_text()
                lacks.append(service.ready(mount))
            assert lacks[-1] == f"{lab.storages['shared']}: no chunk server has registered"
        finally:
            service.stop(mount, processes)
    check_nothing_left(lab)


def test_needs_and_service_ports_depend_only_on_the_options():
    mount = SERVICES["moosefs-mount"]
    spec = ServiceSpec("m", mount.kind, "c", "c.eth0", ("shared",), {"master": "mm", "chunkservers": "x, y"})
    assert mount.needs(spec) == ("mm", "x", "y")
    assert mount.service_ports(spec, "c.lab.test") == {}
    assert mount.provides_storages
    chunks = SERVICES["moosefs-chunkserver"]
    assert chunks.needs(ServiceSpec("x", chunks.kind, "a", "a.eth0", options={"master": "mm"})) == ("mm",)


def test_missing_or_unsuitable_storages_and_masters_are_reported(lab):
    lab.storage("disk", "a")
    chunks, mount = SERVICES["moosefs-chunkserver"], SERVICES["moosefs-mount"]
    with pytest.raises(BackendError, match="expected a storage for chunks, found none"):
        chunks.configure(lab.context("none", "moosefs-chunkserver", "a"))
    with pytest.raises(BackendError, match=r"expected the option master to name .*, found none"):
        chunks.configure(lab.context("lost", "moosefs-chunkserver", "a", storages=["disk"]))
    with pytest.raises(BackendError, match="found lost of kind moosefs-chunkserver"):
        mount.configure(lab.context("wrong", "moosefs-mount", "a", storages=["disk"], master="lost"))
