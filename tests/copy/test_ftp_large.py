"""Large files and interrupted copies: existing bytes are kept, and the same command resumes."""

import contextlib
import json
import os
import random
import signal
import subprocess
import time

import pytest
from copykit import copy, end_of, events, leftovers
from ftpkit import Server, below, content, contents, digest, large
from kills import Globus, Ours

from testkit import needs_programs

pytestmark = needs_programs("globus-gridftp-server")

CHUNK = 8 << 20
"""Size of the first chunks of files of 128 to 512 MiB."""
SIZE = 16 * CHUNK + 12_345
TIMEOUT_S = 300
"""Timeout of a hanging test. With many slow uploads on one core, each takes a minute."""


@pytest.mark.parametrize("words", [[], ["--streams", "4"], ["--concurrency", "4"]])
def test_a_large_file_is_downloaded_and_uploaded_in_chunks(engine, server, here, words):
    large(here / "large", (130 << 20) + 12_345)
    there = below(server, here)
    output = events(engine, *words, f"{there}/large", "down")
    assert [event["method"] for event in output if event["event"] == "file"] == ["ftp in chunks"]
    copy(engine, *words, "large", f"{there}/up")
    assert digest(here / "down") == digest(here / "up") == digest(here / "large")
    assert leftovers(here) == []


def test_a_resumed_large_download_transfers_only_missing_chunks(engine, server, here):
    large(here / "large", (200 << 20) + 1)
    command = [engine, "copy", "--fixed", "--window", "4KiB", f"{below(server, here)}/large", "down"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 20
    size = (200 << 20) + 1
    while not recorded(here, size) and process.poll() is None:
        assert time.monotonic() < end
    process.send_signal(signal.SIGKILL)
    process.wait()
    if (here / "down").exists():
        pytest.fail("it was done before it was killed: the file is too small for this machine")
    there = recorded(here, size)
    output = events(engine, f"{below(server, here)}/large", "down")
    kept = [event["value"] for event in output if event.get("setting") == "chunks_kept"]
    assert kept and kept[0] >= len(there)
    assert end_of(output)["moved_bytes"] <= size - sum(there)
    assert digest(here / "down") == digest(here / "large")
    assert leftovers(here) == []


@pytest.mark.parametrize("method", ["up", "down"])
def test_a_killed_directory_copy_resumes_with_the_same_command(engine, server, here, method):
    (here / "many").mkdir()
    for number in range(800):
        (here / "many" / f"f{number:04}").write_bytes(content(number, 20_000))
    there = below(server, here)
    words = ["-r", "many", f"{there}/copied"] if method == "up" else ["-r", f"{there}/many", "copied"]
    process = subprocess.Popen([engine, "copy", "--fixed", "--pipelining", "8", *words], stderr=subprocess.DEVNULL)
    end = time.monotonic() + 20
    while not any((here / "copied").glob("f*")) and process.poll() is None:
        assert time.monotonic() < end
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = sum(1 for _ in (here / "copied").glob("f*"))
    output = end_of(events(engine, *words))
    # The directory is the unfinished copy, so the source is not copied into it.
    assert output["files"] + output["kept"] == 800 and output["kept"] >= before
    if method == "down":
        assert leftovers(here) == []
    mine = {name: what for name, what in contents(here / "copied").items() if not name.startswith(b".venturi-")}
    assert mine == contents(here / "many")


def test_a_signal_stops_a_download_before_its_destination_exists(engine, server, here):
    large(here / "large", 300 << 20)
    command = [engine, "copy", "--fixed", "--window", "4KiB", f"{below(server, here)}/large", "down"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    end = time.monotonic() + 20
    while not any(here.glob(".venturi-*.part")):
        assert time.monotonic() < end
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=20)[1]
    assert process.returncode == 130 and b"Run the same command again" in output
    assert not (here / "down").exists()


def test_a_file_truncated_during_its_upload_is_reported_and_not_created(engine, server, here):
    """The failure is reported, and the other files arrive."""
    large(here / "growing", 400 << 20)
    (here / "list").write_text("".join(f"{name} {below(server, here)}/up/{name}\n" for name in ("growing", "b", "c")))
    for name in ("b", "c"):
        (here / name).write_bytes(content(name, 5000))
    (here / "up").mkdir()
    (here / "up").chmod(0o777)
    process = subprocess.Popen(
        [engine, "copy", "--fixed", "--window", "4KiB", "--list", "list"], stderr=subprocess.PIPE
    )
    end = time.monotonic() + 20
    while not any((here / "up").glob(".venturi-*.part")):
        assert time.monotonic() < end
    with stopped(process), (here / "growing").open("r+b") as file:
        file.truncate(1000)
    output = process.communicate(timeout=TIMEOUT_S)[1].decode()
    assert (
        process.returncode == 3
        and "up/growing: expected a copy at the server, found a change during the copy" in output
    ), output
    assert not (here / "up" / "growing").exists()
    for name in ("b", "c"):
        assert (here / "up" / name).read_bytes() == content(name, 5000)


def test_a_lost_server_is_reported_and_complete_files_stay(engine, here, root):
    gone = Server(root)
    (here / "many").mkdir()
    for number in range(300):
        (here / "many" / f"f{number:04}").write_bytes(content(number, 100_000))
    command = [engine, "copy", "--fixed", "-r", f"{below(gone, here)}/many", "copied"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    end = time.monotonic() + 20
    while not any((here / "copied").glob("f*")):
        assert time.monotonic() < end
    # Sessions of this server are separate processes, which would continue.
    with stopped(process):
        sessions = gone.sessions()
        gone.stop()
        for session in sessions:
            with contextlib.suppress(ProcessLookupError):
                os.kill(session, signal.SIGKILL)
    output = process.communicate(timeout=40)[1].decode()
    if process.returncode == 0:
        pytest.fail("it was done before the server went away")
    assert process.returncode == 3 and "expected a session" in output
    for path in (here / "copied").glob("f*"):
        assert path.read_bytes() == content(int(path.name[1:]), 100_000)


def chunks_of(size):
    """Return the chunk sizes of a file of 128 to 512 MiB; chunks become smaller towards the end."""
    first = (size - (96 << 20)) // CHUNK
    left = size - first * CHUNK - 16 * CHUNK // 2
    last = [CHUNK // 4] * (left // (CHUNK // 4)) + [left % (CHUNK // 4)]
    return [CHUNK] * first + [CHUNK // 2] * 16 + [size for size in last if size]


def recorded(directory, size):
    """Return the sizes of the chunks in the chunk map of a copy."""
    for path in directory.glob(".venturi-*.progress"):
        marks = path.read_bytes()[512:].ljust(len(chunks_of(size)), b"\0")
        return [chunk for chunk, mark in zip(chunks_of(size), marks, strict=True) if mark == ord("1")]
    return []


@pytest.fixture(params=["globus", "ours"])
def killable(request, engine, root):
    """Yield a server that can be killed and restarted in place."""
    server = Globus(root) if request.param == "globus" else Ours(engine, root, "--listen")
    yield server
    server.kill()


def source_of(directory, seed):
    """Write a large file without holes, so that holes at the server cannot look like its bytes."""
    path = directory / "large"
    path.write_bytes(random.Random(seed).randbytes(SIZE))
    path.chmod(0o644)
    return path


def start_upload(engine, source, server, reached):
    """Start a slow upload; return it once `reached` bytes are at the server."""
    command = [engine, "copy", "--json", "--fixed", "--window", "4KiB", source, server.url(source.parent / "up")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    end = time.monotonic() + TIMEOUT_S
    while sum(part.stat().st_blocks * 512 for part in source.parent.glob(".venturi-*.part")) < reached:
        assert process.poll() is None, "it was done before it was killed"
        assert time.monotonic() < end
        time.sleep(0.002)
    return process


@contextlib.contextmanager
def stopped(process):
    """Stop a process temporarily, so that it does not finish during the test."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def kill_upload(engine, source, server, reached):
    process = start_upload(engine, source, server, reached)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (source.parent / "up").exists()
    # The server still writes data of a killed client.
    server.rest()


def kept_of(output):
    return sum(event["value"] for event in output if event.get("setting") == "chunks_kept")


def test_a_resumed_large_upload_transfers_only_missing_chunks(engine, here, killable):
    source = source_of(here, 1)
    kept = []
    for reached in (1, 2 * CHUNK, 4 * CHUNK):
        kill_upload(engine, source, killable, reached)
        parts = list(here.glob(".venturi-*.part"))
        assert len(parts) == 1
        there = whole_chunks(parts[0], source)
        kept.append(len(there))
    assert kept == sorted(kept) and kept[-1] >= 2
    output = events(engine, source, killable.url(here / "up"))
    assert kept_of(output) == kept[-1]
    assert end_of(output)["moved_bytes"] == SIZE - sum(there)
    assert digest(here / "up") == digest(source)
    assert (here / "up").stat().st_mtime == int(source.stat().st_mtime)
    assert leftovers(here) == []


def whole_chunks(part, source):
    """Return the sizes of the chunks with correct bytes."""
    with part.open("rb") as mine, source.open("rb") as other:
        return [chunk for chunk in chunks_of(SIZE) if mine.read(chunk) == other.read(chunk)]


@pytest.mark.parametrize("reached", [CHUNK + CHUNK // 2, 2 * CHUNK])
def test_an_upload_resumes_automatically_after_its_server_restarts(engine, here, killable, reached):
    source = source_of(here, 2)
    process = start_upload(engine, source, killable, reached)
    killable.kill()
    killable.start()
    output = [json.loads(line) for line in process.communicate(timeout=TIMEOUT_S)[0].splitlines()]
    assert process.returncode == 0
    # Only the interrupted chunk is sent again; without pipelining there is one at a time.
    assert SIZE <= end_of(output)["moved_bytes"] <= SIZE + CHUNK
    assert digest(here / "up") == digest(source)
    assert leftovers(here) == []


def test_a_resumed_upload_keeps_no_damaged_chunks_and_none_of_another_version(engine, here, killable):
    source = source_of(here, 3)
    kill_upload(engine, source, killable, 3 * CHUNK)
    part = next(here.glob(".venturi-*.part"))
    # As after a crash of the server's machine: the size is complete, but the last writes are lost.
    os.truncate(part, SIZE)
    with part.open("r+b") as file:
        file.seek(CHUNK + 4096)
        file.write(bytes(4096))
    there = whole_chunks(part, source)
    output = events(engine, source, killable.url(here / "up"))
    assert kept_of(output) == len(there)
    assert digest(here / "up") == digest(source)
    (here / "up").unlink()
    kill_upload(engine, source, killable, 3 * CHUNK)
    source = source_of(here, 4)
    output = events(engine, source, killable.url(here / "up"))
    assert (kept_of(output), end_of(output)["moved_bytes"]) == (0, SIZE)
    assert digest(here / "up") == digest(source)


def test_a_rejected_large_upload_is_reported_once_and_its_other_chunks_are_not_sent(engine, server, here):
    source = source_of(here, 5)
    (here / "closed").mkdir(mode=0o755)
    output = events(engine, source, f"{below(server, here)}/closed/up", code=3)
    assert [event["expected"] for event in output if event["event"] == "error"] == ["a copy at the server"]
    assert end_of(output)["moved_bytes"] < SIZE
    assert list((here / "closed").iterdir()) == []


def test_a_large_upload_is_verified_chunk_by_chunk(engine, here, killable):
    source = source_of(here, 6)
    kill_upload(engine, source, killable, 2 * CHUNK)
    output = events(engine, "--verify", source, killable.url(here / "up"))
    assert [event["method"] for event in output if event["event"] == "file"] == ["ftp in chunks"]
    assert digest(here / "up") == digest(source)
    assert leftovers(here) == []


def test_a_second_concurrent_upload_of_the_same_file_is_rejected(engine, here, killable):
    source = source_of(here, 7)
    first = start_upload(engine, source, killable, CHUNK)
    with stopped(first):
        output = copy(engine, source, killable.url(here / "up"), code=3).stderr
    assert b"another running copy of the same source" in output
    first.communicate(timeout=TIMEOUT_S)
    assert first.returncode == 0
    assert digest(here / "up") == digest(source)
    assert leftovers(here) == []


@pytest.mark.parametrize("reached", [CHUNK + CHUNK // 2, 2 * CHUNK])
def test_an_upload_whose_temporary_file_was_renamed_by_another_copy_fails(engine, here, killable, reached):
    """Another host does not detect the first copy, so the file would have its size, but holes."""
    source = source_of(here, 8)
    second = start_upload(engine, source, killable, reached)
    with stopped(second):
        part = next(here.glob(".venturi-*.part"))
        part.write_bytes(source.read_bytes())
        part.rename(here / "up")
    output = second.communicate(timeout=TIMEOUT_S)[0]
    assert second.returncode == 3 and b"another copy of the same" in output
    assert digest(here / "up") == digest(source)


def test_a_large_upload_that_cannot_be_renamed_keeps_its_chunks(engine, here, killable):
    source = source_of(here, 9)
    process = start_upload(engine, source, killable, 2 * CHUNK)
    with stopped(process):
        (here / "up" / "in the way").mkdir(parents=True)
    process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 3
    part = next(here.glob(".venturi-*.part"))
    assert digest(part) == digest(source)
    (here / "up" / "in the way").rmdir()
    (here / "up").rmdir()
    output = events(engine, source, killable.url(here / "up"))
    assert end_of(output)["moved_bytes"] == 0
    assert digest(here / "up") == digest(source)
    assert leftovers(here) == []
