"""Large files, and copies that something ends: what is there is kept, and the same command goes on."""

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
"""The first ones of files of 128 to 512 MiB."""
SIZE = 16 * CHUNK + 12_345
PATIENCE_S = 300
"""What ends a test that hangs. Slow uploads are slow: of many on one core each takes a minute."""


@pytest.mark.parametrize("words", [[], ["--streams", "4"], ["--concurrency", "4"]])
def test_a_large_file_comes_in_chunks_over_all_sessions(engine, server, here, words):
    large(here / "large", (130 << 20) + 12_345)
    there = below(server, here)
    told = events(engine, *words, f"{there}/large", "down")
    assert [event["how"] for event in told if event["event"] == "file"] == ["ftp in chunks"]
    copy(engine, *words, "large", f"{there}/up")
    assert digest(here / "down") == digest(here / "up") == digest(here / "large")
    assert leftovers(here) == []


def test_a_large_file_goes_on_with_the_chunks_that_are_missing(engine, server, here):
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
    told = events(engine, f"{below(server, here)}/large", "down")
    kept = [event["value"] for event in told if event.get("what") == "chunks_kept"]
    assert kept and kept[0] >= len(there)
    assert end_of(told)["moved_bytes"] <= size - sum(there)
    assert digest(here / "down") == digest(here / "large")
    assert leftovers(here) == []


@pytest.mark.parametrize("way", ["up", "down"])
def test_whatever_ended_a_copy_the_same_command_goes_on(engine, server, here, way):
    (here / "many").mkdir()
    for number in range(800):
        (here / "many" / f"f{number:04}").write_bytes(content(number, 20_000))
    there = below(server, here)
    words = ["-r", "many", f"{there}/copied"] if way == "up" else ["-r", f"{there}/many", "copied"]
    process = subprocess.Popen([engine, "copy", "--fixed", "--pipelining", "8", *words], stderr=subprocess.DEVNULL)
    end = time.monotonic() + 20
    while not any((here / "copied").glob("f*")) and process.poll() is None:
        assert time.monotonic() < end
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = sum(1 for _ in (here / "copied").glob("f*"))
    told = end_of(events(engine, *words))
    # It is the copy, and no directory to put another into.
    assert told["files"] + told["kept"] == 800 and told["kept"] >= before
    if way == "down":
        assert leftovers(here) == []
    mine = {name: what for name, what in contents(here / "copied").items() if not name.startswith(b".venturi-")}
    assert mine == contents(here / "many")


def test_a_signal_stops_it_and_no_file_is_half_there(engine, server, here):
    large(here / "large", 300 << 20)
    command = [engine, "copy", "--fixed", "--window", "4KiB", f"{below(server, here)}/large", "down"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    end = time.monotonic() + 20
    while not any(here.glob(".venturi-*.part")):
        assert time.monotonic() < end
    process.send_signal(signal.SIGTERM)
    told = process.communicate(timeout=20)[1]
    assert process.returncode == 130 and b"Run the same command again" in told
    assert not (here / "down").exists()


def test_a_file_that_is_cut_while_it_is_sent_gets_no_name(engine, server, here):
    """It is told, and the other files arrive."""
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
    told = process.communicate(timeout=PATIENCE_S)[1].decode()
    assert process.returncode == 3 and "written to while it was copied" in told, told
    assert not (here / "up" / "growing").exists()
    for name in ("b", "c"):
        assert (here / "up" / name).read_bytes() == content(name, 5000)


def test_a_server_that_goes_away_is_told_and_what_is_there_stays(engine, here, root):
    gone = Server(root)
    (here / "many").mkdir()
    for number in range(300):
        (here / "many" / f"f{number:04}").write_bytes(content(number, 100_000))
    command = [engine, "copy", "--fixed", "-r", f"{below(gone, here)}/many", "copied"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    end = time.monotonic() + 20
    while not any((here / "copied").glob("f*")):
        assert time.monotonic() < end
    # Sessions of this server are processes of their own, which would go on.
    with stopped(process):
        sessions = gone.sessions()
        gone.stop()
        for session in sessions:
            with contextlib.suppress(ProcessLookupError):
                os.kill(session, signal.SIGKILL)
    told = process.communicate(timeout=40)[1].decode()
    if process.returncode == 0:
        pytest.fail("it was done before the server went away")
    assert process.returncode == 3 and "expected a session" in told
    for path in (here / "copied").glob("f*"):
        assert path.read_bytes() == content(int(path.name[1:]), 100_000)


def chunks_of(size):
    """Return the sizes of the chunks of a file of 128 to 512 MiB: towards the end they become smaller."""
    first = (size - (96 << 20)) // CHUNK
    left = size - first * CHUNK - 16 * CHUNK // 2
    last = [CHUNK // 4] * (left // (CHUNK // 4)) + [left % (CHUNK // 4)]
    return [CHUNK] * first + [CHUNK // 2] * 16 + [size for size in last if size]


def recorded(folder, size):
    """Return the sizes of the chunks that the record of a copy has."""
    for path in folder.glob(".venturi-*.progress"):
        marks = path.read_bytes()[512:].ljust(len(chunks_of(size)), b"\0")
        return [chunk for chunk, mark in zip(chunks_of(size), marks, strict=True) if mark == ord("1")]
    return []


@pytest.fixture(params=["globus", "ours"])
def killable(request, engine, root):
    """A server that can be killed, and begun again where it was."""
    server = Globus(root) if request.param == "globus" else Ours(engine, root, "--listen")
    yield server
    server.kill()


def source_of(folder, seed):
    """Write a large file that has no holes, so that none at the server can pass for its bytes."""
    path = folder / "large"
    path.write_bytes(random.Random(seed).randbytes(SIZE))
    path.chmod(0o644)
    return path


def begin_upload(engine, source, server, reached):
    """Begin a slow upload; return it when so many bytes are at the server."""
    command = [engine, "copy", "--json", "--fixed", "--window", "4KiB", source, server.url(source.parent / "up")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    end = time.monotonic() + PATIENCE_S
    while sum(part.stat().st_blocks * 512 for part in source.parent.glob(".venturi-*.part")) < reached:
        assert process.poll() is None, "it was done before it was killed"
        assert time.monotonic() < end
        time.sleep(0.002)
    return process


@contextlib.contextmanager
def stopped(process):
    """Have a process wait, so that it is not done with what a test needs it for."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def kill_upload(engine, source, server, reached):
    process = begin_upload(engine, source, server, reached)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (source.parent / "up").exists()
    # What it has of a client that was killed it still writes.
    server.rest()


def kept_of(told):
    return sum(event["value"] for event in told if event.get("what") == "chunks_kept")


def test_a_large_upload_goes_on_with_the_chunks_that_are_missing(engine, here, killable):
    source = source_of(here, 1)
    kept = []
    for reached in (1, 2 * CHUNK, 4 * CHUNK):
        kill_upload(engine, source, killable, reached)
        parts = list(here.glob(".venturi-*.part"))
        assert len(parts) == 1
        there = whole_chunks(parts[0], source)
        kept.append(len(there))
    assert kept == sorted(kept) and kept[-1] >= 2
    told = events(engine, source, killable.url(here / "up"))
    assert kept_of(told) == kept[-1]
    assert end_of(told)["moved_bytes"] == SIZE - sum(there)
    assert digest(here / "up") == digest(source)
    assert (here / "up").stat().st_mtime == int(source.stat().st_mtime)
    assert leftovers(here) == []


def whole_chunks(part, source):
    """Return the sizes of the chunks of a file that are as they are to be."""
    with part.open("rb") as mine, source.open("rb") as other:
        return [chunk for chunk in chunks_of(SIZE) if mine.read(chunk) == other.read(chunk)]


@pytest.mark.parametrize("reached", [CHUNK + CHUNK // 2, 2 * CHUNK])
def test_an_upload_goes_on_by_itself_when_its_server_was_killed_and_is_back(engine, here, killable, reached):
    source = source_of(here, 2)
    process = begin_upload(engine, source, killable, reached)
    killable.kill()
    killable.start()
    told = [json.loads(line) for line in process.communicate(timeout=PATIENCE_S)[0].splitlines()]
    assert process.returncode == 0
    # What had come of the chunk that was under way goes again, and no more: without pipelining there is one at a time.
    assert SIZE <= end_of(told)["moved_bytes"] <= SIZE + CHUNK
    assert digest(here / "up") == digest(source)
    assert leftovers(here) == []


def test_no_hole_no_damage_and_no_other_version_is_taken_for_what_is_there(engine, here, killable):
    source = source_of(here, 3)
    kill_upload(engine, source, killable, 3 * CHUNK)
    part = next(here.glob(".venturi-*.part"))
    # As long as the file, and what was written last is lost: so a server's machine may come back.
    os.truncate(part, SIZE)
    with part.open("r+b") as file:
        file.seek(CHUNK + 4096)
        file.write(bytes(4096))
    there = whole_chunks(part, source)
    told = events(engine, source, killable.url(here / "up"))
    assert kept_of(told) == len(there)
    assert digest(here / "up") == digest(source)
    (here / "up").unlink()
    kill_upload(engine, source, killable, 3 * CHUNK)
    source = source_of(here, 4)
    told = events(engine, source, killable.url(here / "up"))
    assert (kept_of(told), end_of(told)["moved_bytes"]) == (0, SIZE)
    assert digest(here / "up") == digest(source)


def test_a_large_upload_that_is_refused_is_told_once_and_its_other_chunks_do_not_go(engine, server, here):
    source = source_of(here, 5)
    (here / "closed").mkdir(mode=0o755)
    told = events(engine, source, f"{below(server, here)}/closed/up", code=3)
    assert [event["expected"] for event in told if event["event"] == "error"] == ["a copy there"]
    assert end_of(told)["moved_bytes"] < SIZE
    assert list((here / "closed").iterdir()) == []


def test_a_large_upload_is_verified_chunk_by_chunk(engine, here, killable):
    source = source_of(here, 6)
    kill_upload(engine, source, killable, 2 * CHUNK)
    told = events(engine, "--verify", source, killable.url(here / "up"))
    assert [event["how"] for event in told if event["event"] == "file"] == ["ftp in chunks"]
    assert digest(here / "up") == digest(source)
    assert leftovers(here) == []


def test_of_two_copies_of_the_same_one_is_refused(engine, here, killable):
    source = source_of(here, 7)
    first = begin_upload(engine, source, killable, CHUNK)
    with stopped(first):
        told = copy(engine, source, killable.url(here / "up"), code=3).stderr
    assert b"another copy of the same that is writing it" in told
    first.communicate(timeout=PATIENCE_S)
    assert first.returncode == 0
    assert digest(here / "up") == digest(source)
    assert leftovers(here) == []


@pytest.mark.parametrize("reached", [CHUNK + CHUNK // 2, 2 * CHUNK])
def test_a_copy_whose_temporary_file_another_one_named_gives_its_own_no_name(engine, here, killable, reached):
    """On another host nothing tells of the first: the file would have its size, and holes."""
    source = source_of(here, 8)
    second = begin_upload(engine, source, killable, reached)
    with stopped(second):
        part = next(here.glob(".venturi-*.part"))
        part.write_bytes(source.read_bytes())
        part.rename(here / "up")
    told = second.communicate(timeout=PATIENCE_S)[0]
    assert second.returncode == 3 and b"another copy of the same" in told
    assert digest(here / "up") == digest(source)


def test_a_large_upload_that_gets_no_name_keeps_its_chunks(engine, here, killable):
    source = source_of(here, 9)
    process = begin_upload(engine, source, killable, 2 * CHUNK)
    with stopped(process):
        (here / "up" / "in the way").mkdir(parents=True)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 3
    part = next(here.glob(".venturi-*.part"))
    assert digest(part) == digest(source)
    (here / "up" / "in the way").rmdir()
    (here / "up").rmdir()
    told = events(engine, source, killable.url(here / "up"))
    assert end_of(told)["moved_bytes"] == 0
    assert digest(here / "up") == digest(source)
    assert leftovers(here) == []
