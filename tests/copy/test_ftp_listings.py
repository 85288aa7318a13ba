"""`venturi-engine copy` with a server that loses sessions amid listings, or fails with them: nothing goes twice, nothing is left out unsaid."""

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


def tree(folder, names=NAMES):
    return {f"{folder}/{name}": name.encode() for name in names}


def test_a_listing_that_is_asked_for_again_has_each_file_fetched_once(engine, tmp_path):
    files = {**tree("/d"), **tree("/d/e")}
    with peer_of(files, folders=["/d", "/d/e"], lost=["/d/e"]) as peer:
        told = events(engine, "--fixed", "-r", peer.url("/d"), str(tmp_path / "copied"))
    assert peer.lost == set()
    assert (end_of(told)["files"], end_of(told)["errors"]) == (len(files), 0)
    for path, content in files.items():
        assert (tmp_path / "copied" / path.removeprefix("/d/")).read_bytes() == content
    assert leftovers(tmp_path) == []


def test_an_empty_folder_is_one_and_no_failure(engine, tmp_path):
    with peer_of(tree("/d"), folders=["/d", "/d/empty"]) as peer, peer_of({}) as other:
        copy(engine, "-r", peer.url("/d"), str(tmp_path / "copied"))
        copy(engine, "-r", peer.url("/d"), other.url("/d"))
        assert other.folders == {"/", "/d", "/d/empty"}
    assert list((tmp_path / "copied" / "empty").iterdir()) == []


@pytest.mark.parametrize("existing", ["keep", "update"])
def test_a_listing_that_fails_does_not_make_what_is_there_count_as_nothing(engine, tmp_path, existing):
    (tmp_path / "d").mkdir()
    for name in NAMES:
        (tmp_path / "d" / name).write_bytes(name.encode())
        os.utime(tmp_path / "d" / name, (1_577_836_800, 1_577_836_800))
    there = {path: b"???" if existing == "keep" else content for path, content in tree("/d").items()}
    with peer_of(there, folders=["/d"], broken=["/d"]) as peer:
        told = events(engine, "-r", "--existing", existing, f"{tmp_path}/d/", peer.url("/d"))
    assert (end_of(told)["files"], end_of(told)["kept"]) == (0, len(NAMES))
    assert peer.files == there
    assert "do STOR" not in peer.steps


def test_a_folder_of_the_source_that_cannot_be_listed_is_told_between_servers_too(engine, tmp_path):
    files = {**tree("/d"), **tree("/d/e")}
    with peer_of(files, folders=["/d", "/d/e"], broken=["/d/e"]) as source, peer_of({}) as destination:
        told = copy(engine, "-r", source.url("/d"), destination.url("/up"), code=3).stderr.decode()
    assert "/d/e: expected a directory that can be read, found 550" in told, told


def test_a_folder_of_the_copy_that_cannot_be_listed_is_asked_file_by_file_between_servers(engine):
    files = tree("/d")
    there = dict.fromkeys(files, b"???")
    with (
        peer_of(files, folders=["/d"]) as source,
        peer_of(there, folders=["/d"], broken=["/d"]) as destination,
    ):
        told = events(engine, "-r", "--existing", "keep", source.url("/d/"), destination.url("/d"))
        assert (end_of(told)["files"], end_of(told)["kept"]) == (0, len(files))
        assert destination.files == there


def test_a_directory_on_the_way_that_cannot_be_made_is_told_between_servers_too(engine):
    with peer_of({"/f": b"1"}) as source, peer_of({"/closed": b"a file"}) as destination:
        words = ["--mkpath", source.url("/f"), destination.url("/closed/x/y")]
        told = copy(engine, *words, code=3).stderr.decode()
    assert "/closed/x: expected a directory, or a place for one, found 553" in told, told
    assert told.count("expected a directory, or a place for one") == 1


@pytest.mark.parametrize("way", ["up", "between"])
def test_a_session_that_is_lost_amid_a_listing_is_opened_again(engine, tmp_path, way):
    files = {**tree("/d", ["f"]), **tree("/d/e")}
    folders = ["/d", "/d/e"]

    def words(peer, other):
        return [peer.url("/d/"), other.url("/up")] if way == "between" else [f"{tmp_path}/d/", peer.url("/d")]

    (tmp_path / "d" / "e").mkdir(parents=True)
    for path, content in files.items():
        (tmp_path / path[1:]).write_bytes(content)
        os.utime(tmp_path / path[1:], (1_577_836_800, 1_577_836_800))
    with peer_of(files, folders=folders, lost=["/d/e"]) as peer, peer_of({}) as other:
        told = end_of(events(engine, "--fixed", "-r", *words(peer, other)))
    assert peer.lost == set()
    assert (told["files"] + told["kept"], told["errors"]) == (len(files), 0)
