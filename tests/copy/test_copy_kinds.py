"""Special files as source or destination: hard links, pipes, sockets and devices."""

import os
import socket
import stat

import pytest
from copykit import copy, end_of, events, leftovers

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")


@pytest.mark.parametrize("there", [["a"], ["b"], ["a", "c"], ["a", "b", "c"]])
def test_new_hard_links_do_not_link_to_kept_destination_files(engine, tmp_path, there):
    source, ours = tmp_path / "source", tmp_path / "copy"
    for directory in (source, ours):
        directory.mkdir()
    (source / "a").write_bytes(b"new")
    for name in "bc":
        (source / name).hardlink_to(source / "a")
    for name in there:
        (ours / name).write_bytes(b"other")
    output = end_of(events(engine, "-r", "-T", "--preserve", "all", "--existing", "keep", source, ours))
    assert {name: (ours / name).read_bytes() for name in "abc"} == {
        name: b"other" if name in there else b"new" for name in "abc"
    }
    made = [ours / name for name in "abc" if name not in there]
    assert {path.stat().st_nlink for path in made} <= {len(made)}
    assert (output["kept"], output["errors"]) == (len(there), 0)
    assert leftovers(ours) == []


def test_new_names_are_hard_linked_to_a_file_of_an_earlier_copy_with_existing_keep(engine, tmp_path):
    source, ours = tmp_path / "source", tmp_path / "copy"
    source.mkdir()
    (source / "a").write_bytes(b"new")
    copy(engine, "-r", source, ours)
    for name in "bc":
        (source / name).hardlink_to(source / "a")
    # One worker copies the names in order. Another worker could copy `b` before the first finds `a`.
    copy(engine, "-r", "-T", "--preserve", "all", "--existing", "keep", "--concurrency", "1", source, ours)
    assert (ours / "a").stat().st_nlink == 3


def make(path, kind):
    """Create a pipe, a socket or a device."""
    if kind == "a named pipe":
        os.mkfifo(path)
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    else:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))


@pytest.mark.parametrize("kind", ["a named pipe", "a socket", pytest.param("a device", marks=ROOT)])
def test_an_existing_special_file_is_not_replaced_by_a_copy(engine, tmp_path, kind):
    source, ours = tmp_path / "source", tmp_path / "copy"
    for directory in (source, ours):
        directory.mkdir()
    (source / "a").write_bytes(b"x")
    (source / "b").hardlink_to(source / "a")
    (source / "link").symlink_to("a")
    for name in ("b", "link"):
        make(ours / name, kind)
    before = {name: (ours / name).lstat() for name in ("b", "link")}
    expected = f", found {kind}; "
    for words in ((), ("--existing", "replace"), ("--dry-run",)):
        output = copy(engine, *words, source / "a", ours / "b", code=3).stderr.decode()
        assert f"{ours / 'b'}: expected" in output
        assert expected in output
    for words in ((), ("--preserve", "all")):
        output = copy(engine, "-r", "-T", *words, source, ours, code=3).stderr.decode()
        assert "b: expected a file" in output
        assert "link: expected a link" in output
        assert output.count(expected) == 2
        assert (ours / "a").read_bytes() == b"x"
    copy(engine, "--existing", "keep", source / "a", ours / "b")
    assert {name: (ours / name).lstat() for name in ("b", "link")} == before


@pytest.mark.parametrize("kind", ["a named pipe", "a socket", pytest.param("a device", marks=ROOT)])
def test_pipes_and_devices_keep_type_mode_and_time_directly_and_through_links(engine, tmp_path, kind):
    source = tmp_path / "source"
    source.mkdir()
    make(source / "thing", kind)
    (source / "thing").chmod(0o626)
    os.utime(source / "thing", (5, 5))
    (source / "link").symlink_to("thing")
    copy(engine, "-r", "-L", "--preserve", "all", source, tmp_path / "tree", umask=0o077)
    copy(engine, "--preserve", "all", source / "link", tmp_path / "named", umask=0o077)
    required = (source / "thing").lstat()
    for made in (tmp_path / "tree" / "thing", tmp_path / "tree" / "link", tmp_path / "named"):
        found = made.lstat()
        assert (found.st_mode, found.st_rdev, found.st_mtime) == (required.st_mode, required.st_rdev, 5), made
    copy(engine, "-r", "--preserve", "special", source, tmp_path / "bare", umask=0o077)
    assert (tmp_path / "bare" / "thing").lstat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("words", [(), ("-r",), ("-L",), ("--dry-run",)])
@pytest.mark.parametrize("kind", ["a named pipe", "a socket", pytest.param("a device", marks=ROOT)])
def test_a_special_file_named_as_source_is_reported_and_not_skipped_silently(engine, tmp_path, words, kind):
    make(tmp_path / "thing", kind)
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "to").mkdir()
    output = copy(engine, *words, tmp_path / "thing", tmp_path / "file", tmp_path / "to", code=3).stderr.decode()
    assert f"thing: expected a file or directory, found {kind}; add --preserve special" in output
    assert (tmp_path / "to" / "file").exists() == ("--dry-run" not in words)
    copy(engine, *words, "--preserve", "special", tmp_path / "thing", tmp_path / "to")
