"""Links from and to Globus servers, with existing entries at the destination."""

import pytest
from copykit import copy, end_of, events, leftovers
from ftpkit import below

from testkit import needs_programs

pytestmark = needs_programs("globus-gridftp-server")


def linked(here):
    """Create a tree with a file and links to it, and return the names of the links."""
    (here / "tree").mkdir()
    (here / "tree" / "file").write_bytes(b"1")
    names = ["same", "other", "file-there", "folder-there", "new"]
    for name in names:
        (here / "tree" / name).symlink_to("file")
    return names


def copied(directory):
    """Create existing entries: the same link, another link, a file, a directory."""
    directory.mkdir()
    directory.chmod(0o777)
    (directory / "file").write_bytes(b"1")
    (directory / "same").symlink_to("file")
    (directory / "other").symlink_to("same")
    (directory / "file-there").write_bytes(b"mine")
    (directory / "folder-there").mkdir()


@pytest.mark.parametrize("method", ["down", "up"])
def test_existing_files_and_directories_are_kept_instead_of_links_on_request(engine, server, here, method):
    linked(here)
    copied(here / "copy")
    there = below(server, here)
    words = [f"{there}/tree/", "copy"] if method == "down" else ["tree/", f"{there}/copy"]
    output = copy(engine, "-r", "--existing", "keep", *words)
    assert not output.stderr
    assert (here / "copy" / "other").readlink().name == "same"
    assert (here / "copy" / "file-there").read_bytes() == b"mine"
    assert (here / "copy" / "folder-there").is_dir()
    assert (here / "copy" / "new").resolve() == here / "copy" / "file"
    assert leftovers(here) == []


@pytest.mark.parametrize("existing", ["update", "replace"])
@pytest.mark.parametrize("method", ["down", "up"])
def test_a_link_replaces_a_file_or_another_link_but_not_a_directory(engine, server, here, method, existing):
    linked(here)
    copied(here / "copy")
    there = below(server, here)
    words = [f"{there}/tree/", "copy"] if method == "down" else ["tree/", f"{there}/copy"]
    output = events(engine, "-r", "--existing", existing, *words, code=3)
    assert end_of(output)["errors"] == 1
    assert [event["found"] for event in output if event["event"] == "error"] == ["a directory"]
    for name in ("same", "other", "file-there", "new"):
        assert (here / "copy" / name).is_symlink(), name
        assert (here / "copy" / name).resolve() == here / "copy" / "file", name
    assert (here / "copy" / "folder-there").is_dir()
    assert [name for name in leftovers(here) if not name.endswith(".journal")] == []
