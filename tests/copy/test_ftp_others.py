"""FTP servers other than ours and Globus, which run one transfer at a time."""

import contextlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from copykit import copy, end_of, events, tree_of
from ftpkit import free_port

from testkit import wait_until

SIZES = {"a": 3000, "large": 5 << 20, "d/empty": 0, "d/odd name #1%": 70_000} | {
    f"d/e/{n}": n * 700 for n in range(30)
}
PLAIN = ("MLST", "MLSD", "MFMT")
"""Commands that vsftpd lacks."""


@contextlib.contextmanager
def served(directory, *lacking, address="127.0.0.1"):
    """Serve a directory without these commands, and yield the URL and a function that returns received commands.

    The server reports `address` as its own.
    """
    port, log = free_port(), Path(f"{directory}.log")
    command = [sys.executable, Path(__file__).with_name("otherftp.py"), directory, str(port), address, *lacking]
    with log.open("wb") as out, Path(f"{directory}.err").open("wb") as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors)
    try:
        wait_until(lambda: b"starting" in Path(f"{directory}.err").read_bytes(), "the server to listen", 20)
        yield f"ftp://user:sesame@127.0.0.1:{port}", lambda: log.read_text().splitlines()
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def locations(tmp_path):
    """Return a directory to serve, and one with a tree."""
    served_, tree = tmp_path / "served", tmp_path / "tree"
    served_.mkdir()
    for name, size in SIZES.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
        os.utime(path, (1_600_000_000, 1_600_000_000))
    return served_, tree


def files_of(directory):
    """Return the names and bytes of files below a directory."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_tree_is_uploaded_and_downloaded_without_streams_and_pipelining(engine, locations, tmp_path):
    directory, tree = locations
    with served(directory) as (url, output):
        done = events(engine, "-r", "--concurrency", "2", "--pipelining", "8", "--streams", "4", tree, f"{url}/there")
        streams, pipelining = (event for event in done if event.get("setting") in ("streams", "pipelining"))
        assert (streams["setting"], streams["value"], pipelining["value"]) == ("streams", 1, 1)
        assert "MODE E" in streams["reason"]
        end = end_of(done)
        assert (end["files"], end["errors"]) == (len(SIZES), 0)
        kept = end_of(events(engine, "-r", "-T", tree, f"{url}/there"))
        assert (kept["kept"], kept["moved_bytes"]) == (len(SIZES), 0)
        copy(engine, "-r", "--concurrency", "2", f"{url}/there", tmp_path / "back")
        copy(engine, f"{url}/there/d/e/[12]*", f"{tmp_path}/some/")
        assert len([line for line in output() if line.startswith("STOR ")]) == len(SIZES)
    assert files_of(directory / "there") == files_of(tree)
    # The server reports whole seconds, and its directories have their creation times.
    assert tree_of(tmp_path / "back", times=False) == tree_of(tree, times=False)
    assert {path.stat().st_mtime for path in (tmp_path / "back").rglob("*") if path.is_file()} == {1_600_000_000}
    assert set(files_of(tmp_path / "some")) == {name[4:] for name in SIZES if name.startswith(("d/e/1", "d/e/2"))}


def test_an_unreachable_address_in_a_passive_reply_is_ignored(engine, locations, tmp_path):
    """RFC 5737: an unassigned address. A malicious server could direct the client to other hosts."""
    directory, tree = locations
    with served(directory, address="192.0.2.1") as (url, _):
        copy(engine, tree / "a", f"{url}/a")
        copy(engine, f"{url}/a", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == (tree / "a").read_bytes()


def test_without_mlst_files_are_detected_by_size_and_time_and_directories_by_entering_them(
    engine, locations, tmp_path
):
    directory, tree = locations
    with served(directory, *PLAIN) as (url, output):
        end = end_of(events(engine, "-r", tree, f"{url}/there"))
        assert (end["files"], end["errors"]) == (len(SIZES), 0)
        (directory / "into").mkdir()
        copy(engine, tree / "a", f"{url}/into")
        copy(engine, tree / "a", f"{url}/into/named")
        os.utime(directory / "into" / "named", (1_500_000_000, 1_500_000_000))
        copy(engine, f"{url}/into/named", tmp_path / "back")
        kept = end_of(events(engine, f"{url}/into/named", tmp_path / "back"))
        printed = copy(engine, f"{url}/into/none", tmp_path / "none", code=3).stderr.decode()
        printed += copy(engine, f"{url}/into", tmp_path / "none", code=3).stderr.decode()
        assert not any(line.startswith("MLST") for line in output())
    assert files_of(directory / "there") == files_of(tree)
    assert files_of(directory / "into") == dict.fromkeys(("a", "named"), (tree / "a").read_bytes())
    assert (tmp_path / "back").read_bytes() == (tree / "a").read_bytes()
    assert (tmp_path / "back").stat().st_mtime == 1_500_000_000
    assert kept["kept"] == 1
    assert "/into/none: expected a file or directory, found 550" in printed
    assert "/into: expected a file, found a directory; add --recursive" in printed


def test_without_mlsd_directories_are_listed_with_the_list_command(engine, locations, tmp_path):
    """These listings have no exact times, so the client requests the times from the server."""
    directory, tree = locations
    (tree / ".hidden").write_bytes(b"x")
    (tree / "d" / "[a]*").write_bytes(b"y")
    (tree / "d" / "link").symlink_to("../a")
    with served(directory, *PLAIN) as (url, output):
        copy(engine, "-r", f"{url}/none", tmp_path / "none", code=3)
        tree.rename(directory / "there")
        copy(engine, "-r", "--concurrency", "2", f"{url}/there", tmp_path / "back")
        kept = end_of(events(engine, "-r", "-T", f"{url}/there", tmp_path / "back"))
        assert (kept["kept"], kept["moved_bytes"]) == (kept["files"] + kept["kept"], 0)
        copy(engine, f"{url}/there/d/e/[12]*", f"{tmp_path}/some/")
        # All listing commands are the same.
        assert {line for line in output() if line.startswith(("MLSD", "LIST"))} == {"LIST -a"}
    assert tree_of(tmp_path / "back", times=False) == tree_of(directory / "there", times=False)
    assert (tmp_path / "back" / "a").stat().st_mtime == 1_600_000_000
    assert set(files_of(tmp_path / "some")) == {name[4:] for name in SIZES if name.startswith(("d/e/1", "d/e/2"))}


LARGE_BYTES = 140_000_000
HOLD = "HOLD=60000000"


def large_file(path, seed):
    """Create a large file, which a copy can resume after a kill, with its own time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(random.Random(seed).randbytes(LARGE_BYTES))
    os.utime(path, (1_600_000_000 + seed, 1_600_000_000 + seed))
    return path


def killed(engine, source, destination, moved):
    """Kill a copy after more than 40 MB of its bytes are stored."""
    process = subprocess.Popen([engine, "copy", "--quiet", source, destination])
    try:
        wait_until(lambda: moved() > 40_000_000, "some of the file", 30)
    finally:
        process.kill()
        ended = process.wait()
    assert ended == -signal.SIGKILL, "it was done before it was killed"


def bytes_in(directory):
    """Return the total size of the files of a directory."""
    return sum(path.stat().st_size for path in directory.iterdir())


def noted_down(directory):
    """Return the bytes of a large file in its chunk map.

    After a head of 512 bytes, the map has one byte per chunk; the first chunks have 8 MiB each.
    """
    records = [path.read_bytes()[512:] for path in directory.glob(".*.progress")]
    return sum(record.count(b"1") for record in records) << 23


def rests(output):
    """Return the restart positions sent to a server."""
    return [int(line.split()[1]) for line in output if line.startswith("REST ")]


def kept(done, what):
    """Return the values of a setting in the events, and the moved bytes."""
    output = [event["value"] for event in done if event.get("setting") == what]
    return output, end_of(done)["moved_bytes"]


@pytest.mark.parametrize("rest", ["REST=heard", "REST=deaf"])
def test_a_large_download_resumes_after_a_kill(engine, tmp_path, rest):
    directory = tmp_path / "served"
    source = large_file(directory / "large", 1)
    with served(directory, HOLD, rest) as (url, output):
        to = tmp_path / "to"
        to.mkdir()
        killed(engine, f"{url}/large", to / "large", lambda: noted_down(to))
        done = events(engine, f"{url}/large", to / "large")
        (chunks,), moved = kept(done, "chunks_kept")
        assert chunks >= 2
        assert rests(output())
        assert (moved < LARGE_BYTES) == (rest == "REST=heard")
    assert (to / "large").read_bytes() == source.read_bytes()
    assert [path.name for path in to.iterdir()] == ["large"]


@pytest.mark.parametrize("rest", ["REST=heard", "REST=deaf"])
def test_a_download_resumes_in_the_same_session_after_its_connection_breaks(engine, tmp_path, rest):
    directory = tmp_path / "served"
    source = large_file(directory / "large", 1)
    with served(directory, "BREAK=60000000", rest) as (url, output):
        moved = end_of(events(engine, f"{url}/large", tmp_path / "large"))["moved_bytes"]
        commands = [line.split()[0] for line in output()]
        (offset,) = rests(output())
    # The reply can arrive before all sent bytes are read, so bytes in the buffers are sent again.
    assert 0 < offset < 62_000_000
    assert (moved == LARGE_BYTES) == (rest == "REST=heard")
    assert commands.count("USER") == 1
    assert (tmp_path / "large").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("is_upload", [False, True])
def test_a_transfer_survives_many_broken_connections_while_it_makes_progress(engine, tmp_path, is_upload):
    directory, here = tmp_path / "served", tmp_path / "here"
    source = large_file((here if is_upload else directory) / "large", 1)
    (directory if is_upload else here).mkdir()
    with served(directory, "BREAK=25000000", "BREAKS=5") as (url, output):
        locations = (source, f"{url}/large") if is_upload else (f"{url}/large", here / "large")
        copy(engine, *locations)
        commands = [line.split()[0] for line in output()]
        offsets = rests(output())
    # A download resumes after the bytes written so far.
    assert (len(offsets), min(offsets) > 0) == (5, True)
    assert (commands.count("USER"), commands.count("DELE")) == (1, 0)
    assert (directory / "large").read_bytes() == (here / "large").read_bytes()
    assert [path.name for path in (*directory.iterdir(), *here.iterdir())] == ["large", "large"]


def test_a_download_that_always_restarts_at_the_first_byte_and_breaks_fails(engine, tmp_path):
    directory = tmp_path / "served"
    large_file(directory / "large", 1)
    with served(directory, "BREAK=60000000", "BREAKS=1000", "REST=deaf") as (url, output):
        copy(engine, f"{url}/large", tmp_path / "large", code=3)
        assert 0 < len(rests(output())) < 30
    assert not (tmp_path / "large").exists()


def test_a_broken_upload_restarts_if_the_server_cannot_resume_uploads(engine, tmp_path):
    directory, source = tmp_path / "served", large_file(tmp_path / "large", 1)
    directory.mkdir()
    with served(directory, "BREAK=60000000", "REST=read") as (url, output):
        moved = end_of(events(engine, source, f"{url}/large"))["moved_bytes"]
        assert len(rests(output())) == 1
    assert moved > LARGE_BYTES
    assert (directory / "large").read_bytes() == source.read_bytes()
    assert [path.name for path in directory.iterdir()] == ["large"]


def test_a_broken_download_restarts_if_versions_cannot_be_distinguished(engine, tmp_path):
    directory = tmp_path / "served"
    source = large_file(directory / "large", 1)
    with served(directory, "BREAK=60000000", "MDTM") as (url, output):
        moved = end_of(events(engine, f"{url}/large", tmp_path / "large"))["moved_bytes"]
        assert not rests(output())
    assert moved > LARGE_BYTES
    assert (tmp_path / "large").read_bytes() == source.read_bytes()


def test_a_partial_download_of_another_version_is_not_resumed(engine, tmp_path):
    directory, to = tmp_path / "served", tmp_path / "to"
    large_file(directory / "large", 1)
    to.mkdir()
    with served(directory, HOLD) as (url, output):
        killed(engine, f"{url}/large", to / "large", lambda: noted_down(to))
        source = large_file(directory / "large", 2)
        done = events(engine, f"{url}/large", to / "large")
        assert kept(done, "chunks_kept") == ([], LARGE_BYTES)
        assert not rests(output())
    assert (to / "large").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("rest", ["REST=heard", "REST=read"])
def test_a_large_upload_resumes_after_a_kill(engine, tmp_path, rest):
    directory, source = tmp_path / "served", large_file(tmp_path / "large", 1)
    directory.mkdir()
    with served(directory, HOLD, rest) as (url, output):
        killed(engine, source, f"{url}/large", lambda: bytes_in(directory))
        done = events(engine, source, f"{url}/large")
        (bytes_there,), moved = kept(done, "bytes_kept")
        assert bytes_there > 40_000_000
        assert rests(output())
        assert (moved < LARGE_BYTES) == (rest == "REST=heard")
    assert (directory / "large").read_bytes() == source.read_bytes()
    assert [path.name for path in directory.iterdir()] == ["large"]


def test_a_partial_upload_of_a_changed_source_is_not_resumed(engine, tmp_path):
    directory, source = tmp_path / "served", large_file(tmp_path / "large", 1)
    directory.mkdir()
    with served(directory, HOLD) as (url, _):
        killed(engine, source, f"{url}/large", lambda: bytes_in(directory))
        large_file(source, 2)
        assert kept(events(engine, source, f"{url}/large"), "bytes_kept") == ([], LARGE_BYTES)
    assert (directory / "large").read_bytes() == source.read_bytes()


def test_times_are_set_with_mdtm_if_the_server_supports_it(engine, locations):
    directory, tree = locations
    with served(directory, *PLAIN, "MDTM=set") as (url, _):
        copy(engine, "-r", tree, f"{url}/there")
        again = end_of(events(engine, "-r", "-T", tree, f"{url}/there"))
        assert (again["kept"], again["moved_bytes"]) == (len(SIZES), 0)
    assert {path.stat().st_mtime for path in (directory / "there").rglob("*") if path.is_file()} == {1_600_000_000}
