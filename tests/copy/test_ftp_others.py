"""Servers of FTP that are neither ours nor of the Globus toolkit, and do one thing at a time."""

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
"""What vsftpd has not."""


@contextlib.contextmanager
def served(folder, *lacking, address="127.0.0.1"):
    """Have a directory served without these commands, by a server that takes this for its address; yields its URL and what the server was told."""
    port, log = free_port(), Path(f"{folder}.log")
    command = [sys.executable, Path(__file__).with_name("otherftp.py"), folder, str(port), address, *lacking]
    with log.open("wb") as out, Path(f"{folder}.err").open("wb") as errors:
        process = subprocess.Popen(command, stdout=out, stderr=errors)
    try:
        wait_until(lambda: b"starting" in Path(f"{folder}.err").read_bytes(), "the server to listen", 20)
        yield f"ftp://user:sesame@127.0.0.1:{port}", lambda: log.read_text().splitlines()
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def places(tmp_path):
    """Return a directory to serve, and one with a tree."""
    served_, tree = tmp_path / "served", tmp_path / "tree"
    served_.mkdir()
    for name, size in SIZES.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
        os.utime(path, (1_600_000_000, 1_600_000_000))
    return served_, tree


def files_of(folder):
    """Return names and bytes below a directory."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_tree_goes_up_and_comes_down_one_file_at_a_time(engine, places, tmp_path):
    folder, tree = places
    with served(folder) as (url, told):
        done = events(engine, "-r", "--concurrency", "2", "--pipelining", "8", "--streams", "4", tree, f"{url}/there")
        streams, pipelining = (event for event in done if event.get("what") in ("streams", "pipelining"))
        assert (streams["what"], streams["value"], pipelining["value"]) == ("streams", 1, 1)
        assert "MODE E" in streams["reason"]
        end = end_of(done)
        assert (end["files"], end["errors"]) == (len(SIZES), 0)
        kept = end_of(events(engine, "-r", "-T", tree, f"{url}/there"))
        assert (kept["kept"], kept["moved_bytes"]) == (len(SIZES), 0)
        copy(engine, "-r", "--concurrency", "2", f"{url}/there", tmp_path / "back")
        copy(engine, f"{url}/there/d/e/[12]*", f"{tmp_path}/some/")
        assert len([line for line in told() if line.startswith("STOR ")]) == len(SIZES)
    assert files_of(folder / "there") == files_of(tree)
    # Its clock has whole seconds, and its directories the times at which they were made.
    assert tree_of(tmp_path / "back", times=False) == tree_of(tree, times=False)
    assert {path.stat().st_mtime for path in (tmp_path / "back").rglob("*") if path.is_file()} == {1_600_000_000}
    assert set(files_of(tmp_path / "some")) == {name[4:] for name in SIZES if name.startswith(("d/e/1", "d/e/2"))}


def test_an_address_behind_a_translation_is_not_gone_to(engine, places, tmp_path):
    """RFC 5737: an address of nobody. Who gives others' addresses would have us knock there, too."""
    folder, tree = places
    with served(folder, address="192.0.2.1") as (url, _):
        copy(engine, tree / "a", f"{url}/a")
        copy(engine, f"{url}/a", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == (tree / "a").read_bytes()


def test_without_mlst_a_file_is_seen_by_its_size_and_time_and_a_directory_by_entering_it(engine, places, tmp_path):
    folder, tree = places
    with served(folder, *PLAIN) as (url, told):
        end = end_of(events(engine, "-r", tree, f"{url}/there"))
        assert (end["files"], end["errors"]) == (len(SIZES), 0)
        (folder / "into").mkdir()
        copy(engine, tree / "a", f"{url}/into")
        copy(engine, tree / "a", f"{url}/into/named")
        os.utime(folder / "into" / "named", (1_500_000_000, 1_500_000_000))
        copy(engine, f"{url}/into/named", tmp_path / "back")
        kept = end_of(events(engine, f"{url}/into/named", tmp_path / "back"))
        said = copy(engine, f"{url}/into/none", tmp_path / "none", code=3).stderr.decode()
        said += copy(engine, f"{url}/into", tmp_path / "none", code=3).stderr.decode()
        assert not any(line.startswith("MLST") for line in told())
    assert files_of(folder / "there") == files_of(tree)
    assert files_of(folder / "into") == dict.fromkeys(("a", "named"), (tree / "a").read_bytes())
    assert (tmp_path / "back").read_bytes() == (tree / "a").read_bytes()
    assert (tmp_path / "back").stat().st_mtime == 1_500_000_000
    assert kept["kept"] == 1
    assert "/into/none: expected a file or directory, found 550" in said
    assert "/into: expected a file, found a directory; say --recursive" in said


def test_without_mlsd_a_directory_is_listed_for_people(engine, places, tmp_path):
    """That tells no times which count; the server is asked for them."""
    folder, tree = places
    (tree / ".hidden").write_bytes(b"x")
    (tree / "d" / "[a]*").write_bytes(b"y")
    (tree / "d" / "link").symlink_to("../a")
    with served(folder, *PLAIN) as (url, told):
        copy(engine, "-r", f"{url}/none", tmp_path / "none", code=3)
        tree.rename(folder / "there")
        copy(engine, "-r", "--concurrency", "2", f"{url}/there", tmp_path / "back")
        kept = end_of(events(engine, "-r", "-T", f"{url}/there", tmp_path / "back"))
        assert (kept["kept"], kept["moved_bytes"]) == (kept["files"] + kept["kept"], 0)
        copy(engine, f"{url}/there/d/e/[12]*", f"{tmp_path}/some/")
        # One line for each command that lists.
        assert {line for line in told() if line.startswith(("MLSD", "LIST"))} == {"LIST -a"}
    assert tree_of(tmp_path / "back", times=False) == tree_of(folder / "there", times=False)
    assert (tmp_path / "back" / "a").stat().st_mtime == 1_600_000_000
    assert set(files_of(tmp_path / "some")) == {name[4:] for name in SIZES if name.startswith(("d/e/1", "d/e/2"))}


LARGE_BYTES = 140_000_000
HOLD = "HOLD=60000000"


def large_file(path, seed):
    """Make a file that goes on after a kill, with a time of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(random.Random(seed).randbytes(LARGE_BYTES))
    os.utime(path, (1_600_000_000 + seed, 1_600_000_000 + seed))
    return path


def killed(engine, source, destination, moved):
    """Kill a copy when so many of its bytes are there."""
    process = subprocess.Popen([engine, "copy", "--quiet", source, destination])
    try:
        wait_until(lambda: moved() > 40_000_000, "some of the file", 30)
    finally:
        process.kill()
        ended = process.wait()
    assert ended == -signal.SIGKILL, "it was done before it was killed"


def bytes_in(folder):
    """Return how much all files of a directory have."""
    return sum(path.stat().st_size for path in folder.iterdir())


def noted_down(folder):
    """Return how much of a large file is there by its record: behind a head of 512 bytes it has one for each chunk, the first of 8 MiB each."""
    records = [path.read_bytes()[512:] for path in folder.glob(".*.progress")]
    return sum(record.count(b"1") for record in records) << 23


def rests(told):
    """Return the bytes behind which a server was told to go on."""
    return [int(line.split()[1]) for line in told if line.startswith("REST ")]


def kept(done, what):
    """What was there already, as an event tells it, and what was moved."""
    told = [event["value"] for event in done if event.get("what") == what]
    return told, end_of(done)["moved_bytes"]


@pytest.mark.parametrize("rest", ["REST=heard", "REST=deaf"])
def test_a_large_download_goes_on_after_a_kill(engine, tmp_path, rest):
    folder = tmp_path / "served"
    source = large_file(folder / "large", 1)
    with served(folder, HOLD, rest) as (url, told):
        to = tmp_path / "to"
        to.mkdir()
        killed(engine, f"{url}/large", to / "large", lambda: noted_down(to))
        done = events(engine, f"{url}/large", to / "large")
        (chunks,), moved = kept(done, "chunks_kept")
        assert chunks >= 2
        assert rests(told())
        assert (moved < LARGE_BYTES) == (rest == "REST=heard")
    assert (to / "large").read_bytes() == source.read_bytes()
    assert [path.name for path in to.iterdir()] == ["large"]


@pytest.mark.parametrize("rest", ["REST=heard", "REST=deaf"])
def test_a_download_whose_connection_breaks_goes_on_in_the_same_session(engine, tmp_path, rest):
    folder = tmp_path / "served"
    source = large_file(folder / "large", 1)
    with served(folder, "BREAK=60000000", rest) as (url, told):
        moved = end_of(events(engine, f"{url}/large", tmp_path / "large"))["moved_bytes"]
        commands = [line.split()[0] for line in told()]
        (offset,) = rests(told())
    # The reply may be heard before all that was sent has been read: what lies in the buffers then is fetched once more.
    assert 0 < offset < 62_000_000
    assert (moved == LARGE_BYTES) == (rest == "REST=heard")
    assert commands.count("USER") == 1
    assert (tmp_path / "large").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("is_upload", [False, True])
def test_connections_may_break_many_times_as_long_as_a_file_gets_on(engine, tmp_path, is_upload):
    folder, here = tmp_path / "served", tmp_path / "here"
    source = large_file((here if is_upload else folder) / "large", 1)
    (folder if is_upload else here).mkdir()
    with served(folder, "BREAK=25000000", "BREAKS=5") as (url, told):
        places = (source, f"{url}/large") if is_upload else (f"{url}/large", here / "large")
        copy(engine, *places)
        commands = [line.split()[0] for line in told()]
        offsets = rests(told())
    # Of a download it goes on behind what is written by then.
    assert (len(offsets), min(offsets) > 0) == (5, True)
    assert (commands.count("USER"), commands.count("DELE")) == (1, 0)
    assert (folder / "large").read_bytes() == (here / "large").read_bytes()
    assert [path.name for path in (*folder.iterdir(), *here.iterdir())] == ["large", "large"]


def test_a_server_that_goes_on_at_the_first_byte_and_breaks_off_each_time_is_given_up(engine, tmp_path):
    folder = tmp_path / "served"
    large_file(folder / "large", 1)
    with served(folder, "BREAK=60000000", "BREAKS=1000", "REST=deaf") as (url, told):
        copy(engine, f"{url}/large", tmp_path / "large", code=3)
        assert 0 < len(rests(told())) < 30
    assert not (tmp_path / "large").exists()


def test_an_upload_whose_connection_breaks_begins_anew_where_the_server_takes_no_part_of_it(engine, tmp_path):
    folder, source = tmp_path / "served", large_file(tmp_path / "large", 1)
    folder.mkdir()
    with served(folder, "BREAK=60000000", "REST=read") as (url, told):
        moved = end_of(events(engine, source, f"{url}/large"))["moved_bytes"]
        assert len(rests(told())) == 1
    assert moved > LARGE_BYTES
    assert (folder / "large").read_bytes() == source.read_bytes()
    assert [path.name for path in folder.iterdir()] == ["large"]


def test_where_nothing_tells_versions_apart_a_download_whose_connection_breaks_begins_anew(engine, tmp_path):
    folder = tmp_path / "served"
    source = large_file(folder / "large", 1)
    with served(folder, "BREAK=60000000", "MDTM") as (url, told):
        moved = end_of(events(engine, f"{url}/large", tmp_path / "large"))["moved_bytes"]
        assert not rests(told())
    assert moved > LARGE_BYTES
    assert (tmp_path / "large").read_bytes() == source.read_bytes()


def test_what_came_of_another_version_of_a_file_is_not_gone_on_with(engine, tmp_path):
    folder, to = tmp_path / "served", tmp_path / "to"
    large_file(folder / "large", 1)
    to.mkdir()
    with served(folder, HOLD) as (url, told):
        killed(engine, f"{url}/large", to / "large", lambda: noted_down(to))
        source = large_file(folder / "large", 2)
        done = events(engine, f"{url}/large", to / "large")
        assert kept(done, "chunks_kept") == ([], LARGE_BYTES)
        assert not rests(told())
    assert (to / "large").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("rest", ["REST=heard", "REST=read"])
def test_a_large_upload_goes_on_after_a_kill(engine, tmp_path, rest):
    folder, source = tmp_path / "served", large_file(tmp_path / "large", 1)
    folder.mkdir()
    with served(folder, HOLD, rest) as (url, told):
        killed(engine, source, f"{url}/large", lambda: bytes_in(folder))
        done = events(engine, source, f"{url}/large")
        (bytes_there,), moved = kept(done, "bytes_kept")
        assert bytes_there > 40_000_000
        assert rests(told())
        assert (moved < LARGE_BYTES) == (rest == "REST=heard")
    assert (folder / "large").read_bytes() == source.read_bytes()
    assert [path.name for path in folder.iterdir()] == ["large"]


def test_of_a_source_that_was_changed_nothing_is_gone_on_with(engine, tmp_path):
    folder, source = tmp_path / "served", large_file(tmp_path / "large", 1)
    folder.mkdir()
    with served(folder, HOLD) as (url, _):
        killed(engine, source, f"{url}/large", lambda: bytes_in(folder))
        large_file(source, 2)
        assert kept(events(engine, source, f"{url}/large"), "bytes_kept") == ([], LARGE_BYTES)
    assert (folder / "large").read_bytes() == source.read_bytes()


def test_times_are_set_by_mdtm_where_that_takes_them(engine, places):
    folder, tree = places
    with served(folder, *PLAIN, "MDTM=set") as (url, _):
        copy(engine, "-r", tree, f"{url}/there")
        again = end_of(events(engine, "-r", "-T", tree, f"{url}/there"))
        assert (again["kept"], again["moved_bytes"]) == (len(SIZES), 0)
    assert {path.stat().st_mtime for path in (folder / "there").rglob("*") if path.is_file()} == {1_600_000_000}
