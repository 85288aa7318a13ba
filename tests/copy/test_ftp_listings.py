"""`venturi-engine copy` with failed listings or lost sessions: no duplicate copies, and every omission is reported."""

import contextlib
import os

import pytest
from copykit import copy, end_of, events, leftovers
from fakepeer import FakePeer

NAMES = [f"f{number:02}" for number in range(40)]


@contextlib.contextmanager
def peer_of(files, **faults):
    peer = FakePeer(files, **faults)
    try:
        yield peer
    finally:
        peer.stop()


def tree(directory, names=NAMES):
    return {f"{directory}/{name}": name.encode() for name in names}


def test_a_repeated_listing_does_not_fetch_files_twice(engine, tmp_path):
    files = {**tree("/d"), **tree("/d/e")}
    with peer_of(files, directories=["/d", "/d/e"], lost=["/d/e"]) as peer:
        output = events(engine, "--fixed", "-r", peer.url("/d"), str(tmp_path / "copied"))
    assert peer.lost == set()
    assert (end_of(output)["files"], end_of(output)["errors"]) == (len(files), 0)
    for path, content in files.items():
        assert (tmp_path / "copied" / path.removeprefix("/d/")).read_bytes() == content
    assert leftovers(tmp_path) == []


def test_an_empty_directory_is_copied_without_an_error(engine, tmp_path):
    with peer_of(tree("/d"), directories=["/d", "/d/empty"]) as peer, peer_of({}) as other:
        copy(engine, "-r", peer.url("/d"), str(tmp_path / "copied"))
        copy(engine, "-r", peer.url("/d"), other.url("/d"))
        assert other.directories == {"/", "/d", "/d/empty"}
    assert list((tmp_path / "copied" / "empty").iterdir()) == []


@pytest.mark.parametrize("existing", ["keep", "update"])
def test_a_failed_listing_does_not_make_existing_files_count_as_missing(engine, tmp_path, existing):
    (tmp_path / "d").mkdir()
    for name in NAMES:
        (tmp_path / "d" / name).write_bytes(name.encode())
        os.utime(tmp_path / "d" / name, (1_577_836_800, 1_577_836_800))
    there = {path: b"???" if existing == "keep" else content for path, content in tree("/d").items()}
    with peer_of(there, directories=["/d"], broken=["/d"]) as peer:
        output = events(engine, "-r", "--existing", existing, f"{tmp_path}/d/", peer.url("/d"))
    assert (end_of(output)["files"], end_of(output)["kept"]) == (0, len(NAMES))
    assert peer.files == there
    assert "do STOR" not in peer.steps


def test_an_unreadable_source_directory_is_reported_in_a_copy_between_servers(engine, tmp_path):
    files = {**tree("/d"), **tree("/d/e")}
    with peer_of(files, directories=["/d", "/d/e"], broken=["/d/e"]) as source, peer_of({}) as destination:
        output = copy(engine, "-r", source.url("/d"), destination.url("/up"), code=3).stderr.decode()
    assert "/d/e: expected a readable directory, found 550" in output, output


def test_files_of_an_unlistable_destination_are_queried_one_by_one_between_servers(engine):
    files = tree("/d")
    there = dict.fromkeys(files, b"???")
    with (
        peer_of(files, directories=["/d"]) as source,
        peer_of(there, directories=["/d"], broken=["/d"]) as destination,
    ):
        output = events(engine, "-r", "--existing", "keep", source.url("/d/"), destination.url("/d"))
        assert (end_of(output)["files"], end_of(output)["kept"]) == (0, len(files))
        assert destination.files == there


def test_a_parent_directory_that_cannot_be_created_is_reported_between_servers(engine):
    with peer_of({"/f": b"1"}) as source, peer_of({"/closed": b"a file"}) as destination:
        words = ["--mkpath", source.url("/f"), destination.url("/closed/x/y")]
        output = copy(engine, *words, code=3).stderr.decode()
    assert "/closed/x: expected a directory, or permission to create it, found 553" in output, output
    assert output.count("expected a directory, or permission to create it") == 1


@pytest.mark.parametrize("method", ["up", "between"])
def test_a_session_lost_during_a_listing_is_reopened(engine, tmp_path, method):
    files = {**tree("/d", ["f"]), **tree("/d/e")}
    directories = ["/d", "/d/e"]

    def words(peer, other):
        return [peer.url("/d/"), other.url("/up")] if method == "between" else [f"{tmp_path}/d/", peer.url("/d")]

    (tmp_path / "d" / "e").mkdir(parents=True)
    for path, content in files.items():
        (tmp_path / path[1:]).write_bytes(content)
        os.utime(tmp_path / path[1:], (1_577_836_800, 1_577_836_800))
    with peer_of(files, directories=directories, lost=["/d/e"]) as peer, peer_of({}) as other:
        output = end_of(events(engine, "--fixed", "-r", *words(peer, other)))
    assert peer.lost == set()
    assert (output["files"] + output["kept"], output["errors"]) == (len(files), 0)
