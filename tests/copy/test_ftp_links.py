"""Links from and to servers of the Globus toolkit, and what is already where they are to be."""

import pytest
from copykit import copy, end_of, events, leftovers
from ftpkit import below

from testkit import needs_programs

pytestmark = needs_programs("globus-gridftp-server")


def linked(here):
    """Make a tree with a file and links to it, and return the names of the links."""
    (here / "tree").mkdir()
    (here / "tree" / "file").write_bytes(b"1")
    names = ["same", "other", "file-there", "folder-there", "new"]
    for name in names:
        (here / "tree" / name).symlink_to("file")
    return names


def copied(folder):
    """Make what is there already: the same link, another, a file, a folder."""
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "file").write_bytes(b"1")
    (folder / "same").symlink_to("file")
    (folder / "other").symlink_to("same")
    (folder / "file-there").write_bytes(b"mine")
    (folder / "folder-there").mkdir()


@pytest.mark.parametrize("way", ["down", "up"])
def test_what_is_where_a_link_is_to_be_is_kept_if_that_is_asked_for(engine, server, here, way):
    linked(here)
    copied(here / "copy")
    there = below(server, here)
    words = [f"{there}/tree/", "copy"] if way == "down" else ["tree/", f"{there}/copy"]
    told = copy(engine, "-r", "--existing", "keep", *words)
    assert not told.stderr
    assert (here / "copy" / "other").readlink().name == "same"
    assert (here / "copy" / "file-there").read_bytes() == b"mine"
    assert (here / "copy" / "folder-there").is_dir()
    assert (here / "copy" / "new").resolve() == here / "copy" / "file"
    assert leftovers(here) == []


@pytest.mark.parametrize("existing", ["update", "replace"])
@pytest.mark.parametrize("way", ["down", "up"])
def test_a_link_replaces_a_file_or_another_link_and_no_folder(engine, server, here, way, existing):
    linked(here)
    copied(here / "copy")
    there = below(server, here)
    words = [f"{there}/tree/", "copy"] if way == "down" else ["tree/", f"{there}/copy"]
    told = events(engine, "-r", "--existing", existing, *words, code=3)
    assert end_of(told)["errors"] == 1
    assert [event["found"] for event in told if event["event"] == "error"] == ["a directory"]
    for name in ("same", "other", "file-there", "new"):
        assert (here / "copy" / name).is_symlink(), name
        assert (here / "copy" / name).resolve() == here / "copy" / "file", name
    assert (here / "copy" / "folder-there").is_dir()
    assert [name for name in leftovers(here) if not name.endswith(".journal")] == []
