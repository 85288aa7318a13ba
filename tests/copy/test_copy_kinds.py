"""What is more than one file with one name: hard links; and what is no file: pipes, sockets, devices, on either side."""

import os
import socket
import stat

import pytest
from copykit import copy, end_of, events, leftovers

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")


@pytest.mark.parametrize("there", [["a"], ["b"], ["a", "c"], ["a", "b", "c"]])
def test_what_is_kept_is_not_what_new_names_of_a_file_are_links_to(engine, tmp_path, there):
    source, ours = tmp_path / "source", tmp_path / "copy"
    for folder in (source, ours):
        folder.mkdir()
    (source / "a").write_bytes(b"new")
    for name in "bc":
        (source / name).hardlink_to(source / "a")
    for name in there:
        (ours / name).write_bytes(b"other")
    told = end_of(events(engine, "-r", "-T", "--preserve", "all", "--existing", "keep", source, ours))
    assert {name: (ours / name).read_bytes() for name in "abc"} == {
        name: b"other" if name in there else b"new" for name in "abc"
    }
    made = [ours / name for name in "abc" if name not in there]
    assert {path.stat().st_nlink for path in made} <= {len(made)}
    assert (told["kept"], told["errors"]) == (len(there), 0)
    assert leftovers(ours) == []


def test_what_an_earlier_copy_has_made_is_linked_to_when_the_rest_comes_though_nothing_is_replaced(engine, tmp_path):
    source, ours = tmp_path / "source", tmp_path / "copy"
    source.mkdir()
    (source / "a").write_bytes(b"new")
    copy(engine, "-r", source, ours)
    for name in "bc":
        (source / name).hardlink_to(source / "a")
    copy(engine, "-r", "-T", "--preserve", "all", "--existing", "keep", source, ours)
    assert (ours / "a").stat().st_nlink == 3


def make(path, kind):
    """Make a thing that is no file."""
    if kind == "a named pipe":
        os.mkfifo(path)
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    else:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))


@pytest.mark.parametrize("kind", ["a named pipe", "a socket", pytest.param("a device", marks=ROOT)])
def test_what_others_write_to_is_not_replaced_by_a_copy(engine, tmp_path, kind):
    source, ours = tmp_path / "source", tmp_path / "copy"
    for folder in (source, ours):
        folder.mkdir()
    (source / "a").write_bytes(b"x")
    (source / "b").hardlink_to(source / "a")
    (source / "link").symlink_to("a")
    for name in ("b", "link"):
        make(ours / name, kind)
    before = {name: (ours / name).lstat() for name in ("b", "link")}
    expected = f"b: expected a file or nothing, found {kind}; name another destination, or remove it"
    for words in ((), ("--existing", "replace"), ("--dry-run",)):
        assert expected in copy(engine, *words, source / "a", ours / "b", code=3).stderr.decode()
    for words in ((), ("--preserve", "all")):
        told = copy(engine, "-r", "-T", *words, source, ours, code=3).stderr.decode()
        assert expected in told
        assert f"link: expected a link or nothing, found {kind}; name another" in told
        assert (ours / "a").read_bytes() == b"x"
    copy(engine, "--existing", "keep", source / "a", ours / "b")
    assert {name: (ours / name).lstat() for name in ("b", "link")} == before


@pytest.mark.parametrize("kind", ["a named pipe", "a socket", pytest.param("a device", marks=ROOT)])
def test_pipes_and_devices_are_what_they_were_and_those_behind_links_too(engine, tmp_path, kind):
    source = tmp_path / "source"
    source.mkdir()
    make(source / "thing", kind)
    (source / "thing").chmod(0o626)
    os.utime(source / "thing", (5, 5))
    (source / "link").symlink_to("thing")
    copy(engine, "-r", "-L", "--preserve", "all", source, tmp_path / "tree", umask=0o077)
    copy(engine, "--preserve", "all", source / "link", tmp_path / "named", umask=0o077)
    wanted = (source / "thing").lstat()
    for made in (tmp_path / "tree" / "thing", tmp_path / "tree" / "link", tmp_path / "named"):
        found = made.lstat()
        assert (found.st_mode, found.st_rdev, found.st_mtime) == (wanted.st_mode, wanted.st_rdev, 5), made
    copy(engine, "-r", "--preserve", "special", source, tmp_path / "bare", umask=0o077)
    assert (tmp_path / "bare" / "thing").lstat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("words", [(), ("-r",), ("-L",), ("--dry-run",)])
@pytest.mark.parametrize("kind", ["a named pipe", "a socket", pytest.param("a device", marks=ROOT)])
def test_a_pipe_that_is_named_is_not_left_out_in_silence(engine, tmp_path, words, kind):
    make(tmp_path / "thing", kind)
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "to").mkdir()
    told = copy(engine, *words, tmp_path / "thing", tmp_path / "file", tmp_path / "to", code=3).stderr.decode()
    assert f"thing: expected a file or directory, found {kind}; say --preserve special" in told
    assert (tmp_path / "to" / "file").exists() == ("--dry-run" not in words)
    copy(engine, *words, "--preserve", "special", tmp_path / "thing", tmp_path / "to")
