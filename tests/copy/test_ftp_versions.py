"""FTP downloads contain one version of their file, even if it changes at the server during the copy."""

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
"""Chunk size of files of 128 to 512 MiB."""
LARGE = 16 * CHUNK + 12_345
WHOLE = 6 * CHUNK
"""Size of a file that takes one request, but some time."""
BEFORE_S = 1_600_000_000
TIMEOUT_S = 120


@pytest.fixture(params=["globus", "ours"])
def peer(request, engine, root):
    """Yield a server of either kind."""
    if request.param == "globus":
        needs_programs("globus-gridftp-server")
    found = Globus(root) if request.param == "globus" else Ours(engine, root, "--listen")
    yield found
    found.kill()


@pytest.fixture
def ours(engine, root):
    """Yield our server."""
    found = Ours(engine, root, "--listen")
    yield found
    found.kill()


def write(path, seed, size):
    """Overwrite a file in place with other bytes."""
    with path.open("r+b" if path.exists() else "xb") as file:
        file.write(random.Random(seed).randbytes(size))
        file.truncate()
    path.chmod(0o644)


def source_of(directory, size):
    """Create a file with an old modification time."""
    path = directory / "source"
    write(path, 1, size)
    os.utime(path, (BEFORE_S, BEFORE_S))
    return path


@contextlib.contextmanager
def while_it_comes(engine, server, source, reached, *words):
    """Suspend a slow download for a block of code, once `reached` is true. Yield its process, which then continues."""
    command = [engine, "copy", "--json", "--fixed", "--pipelining", "2", "--window", "4KiB", *words]
    command += [server.url(source), source.parent / "copied"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_until(lambda: reached() or process.poll() is not None, "some of the file to come", TIMEOUT_S)
        process.send_signal(signal.SIGSTOP)
        assert process.poll() is None and not (source.parent / "copied").exists(), "it was done too early"
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
        process.output, process.printed = process.communicate(timeout=TIMEOUT_S)


def seen(directory, pattern, look):
    """Return the result of `look` for each matching file, ignoring files that disappear."""
    found = []
    for path in directory.glob(pattern):
        with contextlib.suppress(FileNotFoundError):
            found.append(look(path))
    return found


def chunks_of(directory):
    """Return the number of complete chunks in the chunk map of a copy."""
    return sum(seen(directory, ".venturi-*.progress", lambda path: path.read_bytes()[512:].count(b"1")))


def bytes_of(directory):
    """Return the size of the temporary file of a copy."""
    return sum(seen(directory, ".venturi-*.part", lambda path: path.stat().st_size))


def versions_of(directory):
    """Return the inodes of the temporary files of a copy."""
    return set(seen(directory, ".venturi-*.part", lambda path: path.stat().st_ino))


def again(process):
    """Return the number of restarted downloads."""
    lines = process.output.splitlines()
    return sum(json.loads(line).get("setting") == "restarted" for line in lines)


def rest(directory):
    """Return the names in a directory except the source."""
    return sorted(path.name for path in directory.iterdir() if path.name != "source")


@pytest.mark.parametrize("how", ["in place", "by another file", "longer", "shorter"])
def test_a_large_file_changed_between_its_chunks_is_copied_in_its_new_version(engine, peer, here, how):
    source = source_of(here, LARGE)
    with while_it_comes(engine, peer, source, lambda: chunks_of(here) >= 2) as process:
        if how == "by another file":
            write(here / "other", 2, LARGE)
            (here / "other").rename(source)
        else:
            write(source, 2, LARGE + {"in place": 0, "longer": 3 * CHUNK, "shorter": -5 * CHUNK}[how])
    assert process.returncode == 0, process.printed
    assert digest(here / "copied") == digest(source)
    assert again(process) == 1
    assert (here / "copied").stat().st_mtime == int(source.stat().st_mtime)
    assert rest(here) == ["copied"]


@pytest.mark.parametrize("how", ["in place", "shorter"])
def test_a_file_changed_during_its_only_request_is_copied_in_its_new_version(engine, peer, here, how):
    source = source_of(here, WHOLE)
    with while_it_comes(engine, peer, source, lambda: bytes_of(here) >= 1 << 20) as process:
        write(source, 2, WHOLE - (0 if how == "in place" else CHUNK))
    assert process.returncode == 0, process.printed
    assert digest(here / "copied") == digest(source)
    assert again(process) == 1
    assert rest(here) == ["copied"]


@pytest.mark.parametrize("size", [LARGE, WHOLE])
def test_our_server_reports_a_change_that_size_and_time_do_not_show(engine, ours, here, size):
    source = source_of(here, size)
    reached = (lambda: chunks_of(here) >= 2) if size == LARGE else lambda: bytes_of(here) >= 1 << 20
    with while_it_comes(engine, ours, source, reached) as process:
        write(source, 2, size)
        os.utime(source, (BEFORE_S, BEFORE_S))
    assert process.returncode == 0, process.printed
    assert digest(here / "copied") == digest(source)
    assert b"changed while it was sent" in process.output
    assert again(process) == 1
    assert rest(here) == ["copied"]


@pytest.mark.parametrize("gone", [False, True])
def test_a_file_that_keeps_changing_or_is_removed_is_not_copied(engine, peer, here, gone):
    source = source_of(here, LARGE)
    with while_it_comes(engine, peer, source, lambda: chunks_of(here) >= 2) as process:
        write(source, 2, LARGE)
        first = versions_of(here)
        if gone:
            source.unlink()
        process.send_signal(signal.SIGCONT)
        if not gone:
            # The second version has its own chunks.
            wait_until(lambda: chunks_of(here) >= 2 and versions_of(here) != first, "the new one to come", TIMEOUT_S)
            process.send_signal(signal.SIGSTOP)
            write(source, 3, LARGE + 1)
    assert process.returncode == 3, process.printed
    if not gone:
        assert b"a file that does not change during the copy" in process.output
        assert rest(here) == []
        return
    # The server may have rejected the next chunk first; the kept bytes are useless for another file of the same name.
    assert "copied" not in rest(here)
    write(source, 4, LARGE)
    events(engine, peer.url(source), here / "copied")
    assert digest(here / "copied") == digest(source)
    assert rest(here) == ["copied"]


class Writing(FakePeer):
    """A slow server whose file changes half-way through a download, once per entry of `versions`."""

    def __init__(self, versions, *, takes_s=0.0, reply="", **words):
        self.versions, self.takes_s, self.reply = list(versions), takes_s, reply
        self.written, self.requested = 0, []
        super().__init__({"/a": self.versions.pop(0), "/b": b"b"}, **words)

    def metadata(self, path):
        return super().metadata(path).replace("20200101000000", f"2020010100000{self.written}")

    def sending(self, path, offset):
        if path == "/a" and offset == len(self.files["/a"]) // 2 and self.versions:
            self.files["/a"], self.written = self.versions.pop(0), self.written + 1
            time.sleep(self.takes_s)  # the test needs a slow transfer
            return self.reply
        return ""


SIZE = 16 * 4096
OLD, NEW, NEWER = (bytes([digit]) * SIZE for digit in b"123")


def fetched(engine, directory, peer, code=0):
    """Copy the file; return the events."""
    try:
        return events(engine, peer.url("/a"), directory / "a", code=code)
    finally:
        peer.stop()


def test_a_small_file_is_checked_for_changes_after_a_slow_download(engine, tmp_path):
    output = fetched(engine, tmp_path, Writing([OLD, NEW], takes_s=1.1))
    assert (tmp_path / "a").read_bytes() == NEW
    assert [event["value"] for event in output if event.get("setting") == "restarted"] == [1]


def test_a_file_that_changes_during_every_attempt_is_reported_and_leaves_nothing(engine, tmp_path):
    output = fetched(engine, tmp_path, Writing([OLD, NEW, NEWER], takes_s=1.1), code=3)
    found = [event for event in output if event["event"] == "error"]
    assert [event["expected"] for event in found] == ["a file that does not change during the copy"]
    assert end_of(output)["errors"] == 1
    assert list(tmp_path.iterdir()) == []


def test_an_aborted_download_queries_the_metadata_before_it_restarts(engine, tmp_path):
    peer = Writing([OLD, NEW], reply="451 It was changed.")
    fetched(engine, tmp_path, peer)
    assert (tmp_path / "a").read_bytes() == NEW
    steps = [step for step in peer.steps if step in ("do MLST", "do RETR")]
    assert steps == ["do MLST", "do RETR", "do MLST", "do RETR", "do MLST"]


def test_a_fast_download_after_an_aborted_one_is_checked_for_changes(engine, tmp_path):
    output = fetched(engine, tmp_path, Writing([OLD, NEW, NEWER], reply="451 It was changed."), code=3)
    assert [event["event"] for event in output].count("error") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_metadata_of_a_fast_download_is_queried_once(engine, tmp_path):
    peer = FakePeer({"/a": OLD})
    fetched(engine, tmp_path, peer)
    assert peer.steps.count("do MLST") == 1
