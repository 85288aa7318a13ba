"""What is more than one file with one name: hard links; and what is no file: pipes, sockets, devices, on either side."""

import pytest
from copykit import copy, end_of, events, leftovers


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
