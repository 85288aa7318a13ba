"""Servers of FTP that are neither ours nor of the Globus toolkit, and do one thing at a time."""

import contextlib
import os
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
        done = events(engine, "-r", "--concurrency", "2", "--pipelining", "8", tree, f"{url}/there")
        assert [event["value"] for event in done if event.get("what") == "pipelining"] == [1]
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
