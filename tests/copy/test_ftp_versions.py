"""What is downloaded over FTP is one version of its file, however it is changed at the server meanwhile."""

import contextlib
import json
import os
import random
import signal
import subprocess
import time

import pytest
from copykit import end_of, events
from fakepeer import FakePeer
from ftpkit import digest
from kills import Globus, Ours

from testkit import needs_programs, wait_until

CHUNK = 8 << 20
"""Of files of 128 to 512 MiB."""
LARGE = 16 * CHUNK + 12_345
WHOLE = 6 * CHUNK
"""What comes by one request, and takes a while."""
BEFORE_S = 1_600_000_000
PATIENCE_S = 120


@pytest.fixture(params=["globus", "ours"])
def peer(request, engine, root):
    """A server of either kind."""
    if request.param == "globus":
        needs_programs("globus-gridftp-server")
    found = Globus(root) if request.param == "globus" else Ours(engine, root, "--listen")
    yield found
    found.kill()


@pytest.fixture
def ours(engine, root):
    """Our server."""
    found = Ours(engine, root, "--listen")
    yield found
    found.kill()


def write(path, seed, size):
    """Write other bytes into a file, in place."""
    with path.open("r+b" if path.exists() else "xb") as file:
        file.write(random.Random(seed).randbytes(size))
        file.truncate()
    path.chmod(0o644)


def source_of(folder, size):
    """Make a file that was written to long ago."""
    path = folder / "source"
    write(path, 1, size)
    os.utime(path, (BEFORE_S, BEFORE_S))
    return path


@contextlib.contextmanager
def while_it_comes(engine, server, source, reached, *words):
    """Have a slow download wait for a block of code, when `reached` says so; give its process, which ends by itself behind that."""
    command = [engine, "copy", "--json", "--fixed", "--pipelining", "2", "--window", "4KiB", *words]
    command += [server.url(source), source.parent / "copied"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_until(lambda: reached() or process.poll() is not None, "some of the file to come", PATIENCE_S)
        process.send_signal(signal.SIGSTOP)
        assert process.poll() is None and not (source.parent / "copied").exists(), "it was done too early"
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
        process.told, process.said = process.communicate(timeout=PATIENCE_S)


def seen(folder, pattern, look):
    """Return what `look` finds of each file of that name, but of those that go meanwhile."""
    found = []
    for path in folder.glob(pattern):
        with contextlib.suppress(FileNotFoundError):
            found.append(look(path))
    return found


def chunks_of(folder):
    """Return how many chunks the record of a copy has."""
    return sum(seen(folder, ".venturi-*.progress", lambda path: path.read_bytes()[512:].count(b"1")))


def bytes_of(folder):
    """Return how long the temporary file of a copy is."""
    return sum(seen(folder, ".venturi-*.part", lambda path: path.stat().st_size))


def versions_of(folder):
    """Return which temporary files of a copy there are."""
    return set(seen(folder, ".venturi-*.part", lambda path: path.stat().st_ino))


def again(process):
    """Return how often a file came as a new one."""
    lines = process.told.splitlines()
    return sum(json.loads(line).get("what") == "again" for line in lines)


def rest(folder):
    """Return the names in a folder but that of the source."""
    return sorted(path.name for path in folder.iterdir() if path.name != "source")


@pytest.mark.parametrize("how", ["in place", "by another file", "longer", "shorter"])
def test_a_large_file_that_is_changed_between_its_chunks_comes_as_a_new_one(engine, peer, here, how):
    source = source_of(here, LARGE)
    with while_it_comes(engine, peer, source, lambda: chunks_of(here) >= 2) as process:
        if how == "by another file":
            write(here / "other", 2, LARGE)
            (here / "other").rename(source)
        else:
            write(source, 2, LARGE + {"in place": 0, "longer": 3 * CHUNK, "shorter": -5 * CHUNK}[how])
    assert process.returncode == 0, process.said
    assert digest(here / "copied") == digest(source)
    assert again(process) == 1
    assert (here / "copied").stat().st_mtime == int(source.stat().st_mtime)
    assert rest(here) == ["copied"]


@pytest.mark.parametrize("how", ["in place", "shorter"])
def test_a_file_that_is_changed_while_it_comes_by_one_request_comes_as_a_new_one(engine, peer, here, how):
    source = source_of(here, WHOLE)
    with while_it_comes(engine, peer, source, lambda: bytes_of(here) >= 1 << 20) as process:
        write(source, 2, WHOLE - (0 if how == "in place" else CHUNK))
    assert process.returncode == 0, process.said
    assert digest(here / "copied") == digest(source)
    assert again(process) == 1
    assert rest(here) == ["copied"]


@pytest.mark.parametrize("size", [LARGE, WHOLE])
def test_our_server_tells_of_a_change_that_neither_size_nor_time_show(engine, ours, here, size):
    source = source_of(here, size)
    reached = (lambda: chunks_of(here) >= 2) if size == LARGE else lambda: bytes_of(here) >= 1 << 20
    with while_it_comes(engine, ours, source, reached) as process:
        write(source, 2, size)
        os.utime(source, (BEFORE_S, BEFORE_S))
    assert process.returncode == 0, process.said
    assert digest(here / "copied") == digest(source)
    assert b"changed while it was sent" in process.told
    assert again(process) == 1
    assert rest(here) == ["copied"]


@pytest.mark.parametrize("gone", [False, True])
def test_a_file_that_does_not_stay_gets_no_name(engine, peer, here, gone):
    source = source_of(here, LARGE)
    with while_it_comes(engine, peer, source, lambda: chunks_of(here) >= 2) as process:
        write(source, 2, LARGE)
        first = versions_of(here)
        if gone:
            source.unlink()
        process.send_signal(signal.SIGCONT)
        if not gone:
            # The second version has chunks of its own.
            wait_until(lambda: chunks_of(here) >= 2 and versions_of(here) != first, "the new one to come", PATIENCE_S)
            process.send_signal(signal.SIGSTOP)
            write(source, 3, LARGE + 1)
    assert process.returncode == 3, process.said
    if not gone:
        assert b"a file that stays as it is while it is copied" in process.told
        assert rest(here) == []
        return
    # Its next chunk may have been refused first; what is kept then is of no use to another file of that name.
    assert "copied" not in rest(here)
    write(source, 4, LARGE)
    events(engine, peer.url(source), here / "copied")
    assert digest(here / "copied") == digest(source)
    assert rest(here) == ["copied"]


class Writing(FakePeer):
    """A server of which a file is written to, in its middle, while it is sent: as often as there are `versions`. Sending takes a while."""

    def __init__(self, versions, *, takes_s=0.0, answer="", **words):
        self.versions, self.takes_s, self.answer = list(versions), takes_s, answer
        self.written, self.asked = 0, []
        super().__init__({"/a": self.versions.pop(0), "/b": b"b"}, **words)

    def facts(self, path):
        return super().facts(path).replace("20200101000000", f"2020010100000{self.written}")

    def sending(self, path, offset):
        if path == "/a" and offset == len(self.files["/a"]) // 2 and self.versions:
            self.files["/a"], self.written = self.versions.pop(0), self.written + 1
            time.sleep(self.takes_s)  # what takes long is what is tested
            return self.answer
        return ""


SIZE = 16 * 4096
OLD, NEW, NEWER = (bytes([digit]) * SIZE for digit in b"123")


def fetched(engine, folder, peer, code=0):
    """Copy the file; return what was told."""
    try:
        return events(engine, peer.url("/a"), folder / "a", code=code)
    finally:
        peer.stop()


def test_a_small_file_that_takes_long_is_asked_about_again(engine, tmp_path):
    told = fetched(engine, tmp_path, Writing([OLD, NEW], takes_s=1.1))
    assert (tmp_path / "a").read_bytes() == NEW
    assert [event["value"] for event in told if event.get("what") == "again"] == [1]


def test_a_file_that_is_written_to_each_time_is_told_and_leaves_nothing(engine, tmp_path):
    told = fetched(engine, tmp_path, Writing([OLD, NEW, NEWER], takes_s=1.1), code=3)
    found = [event for event in told if event["event"] == "error"]
    assert [event["expected"] for event in found] == ["a file that stays as it is while it is copied"]
    assert end_of(told)["errors"] == 1
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_the_server_gives_up_in_its_middle_is_asked_about_before_it_comes_again(engine, tmp_path):
    peer = Writing([OLD, NEW], answer="451 It was changed.")
    fetched(engine, tmp_path, peer)
    assert (tmp_path / "a").read_bytes() == NEW
    steps = [step for step in peer.steps if step in ("do MLST", "do RETR")]
    assert steps == ["do MLST", "do RETR", "do MLST", "do RETR", "do MLST"]


def test_a_file_that_comes_soon_after_it_was_given_up_is_asked_about_again(engine, tmp_path):
    told = fetched(engine, tmp_path, Writing([OLD, NEW, NEWER], answer="451 It was changed."), code=3)
    assert [event["event"] for event in told].count("error") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_comes_at_once_is_asked_about_once(engine, tmp_path):
    peer = FakePeer({"/a": OLD})
    fetched(engine, tmp_path, peer)
    assert peer.steps.count("do MLST") == 1
