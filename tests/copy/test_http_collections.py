"""Several files that go to one collection of a server: it is made once and listed once, and none of them is asked for by itself, where that is less."""

from collections import Counter

import pytest
from copykit import end_of, events
from httpkit import nginx, puppet
from test_http_faults import body_of, listing

FILES = 40
LATER = "Sat, 06 Nov 2094 08:49:37 GMT"


@pytest.fixture
def sources(tmp_path):
    """Files of one byte."""
    found = [tmp_path / f"{number:02d}" for number in range(FILES)]
    for path in found:
        path.write_bytes(b"1")
    return found


def pairs(sources, url, place):
    """Write a list of where each goes."""
    place.write_text("".join(f"{path} {url}/d/{path.name}\n" for path in sources))
    return place


def methods(seen):
    """Count what was asked."""
    return Counter(method for method, *_ in seen)


def test_what_the_files_of_a_list_would_replace_is_seen_in_one_listing(engine, tmp_path, sources):
    there = [f"/d/{path.name}" for path in sources[::4]]

    def answer(handler, _):
        body_of(handler)
        if handler.command == "PROPFIND":
            return handler.say(207, listing(("/d/", True), *((path, False) for path in there), changed=LATER))
        return handler.say(201)

    with puppet(answer) as (url, seen):
        end = end_of(events(engine, "--list", pairs(sources, url, tmp_path / "list")))
    assert (end["files"], end["kept"]) == (FILES - len(there), len(there))
    assert methods(seen) == {"PROPFIND": 1, "PUT": FILES - len(there)}
    assert not {path for method, path, _ in seen if method == "PUT"} & set(there)


# Of a longer listing no more is read than of one that would be worth it.
@pytest.mark.parametrize("answered", ["without WebDAV", "other names by the thousand"])
def test_each_file_of_a_list_is_asked_for_where_a_listing_is_no_help(engine, tmp_path, sources, answered):
    many = listing(("/d/", True), *((f"/d/other-{number}", False) for number in range(5000)))

    def answer(handler, _):
        body_of(handler)
        if handler.command == "PROPFIND":
            return handler.say(405) if answered == "without WebDAV" else handler.say(207, many)
        if handler.command == "HEAD" and handler.path == "/d/07":
            return handler.say(200, length=1, Last_Modified=LATER)
        return handler.say(404 if handler.command == "HEAD" else 201)

    with puppet(answer) as (url, seen):
        end = end_of(events(engine, "--list", pairs(sources, url, tmp_path / "list")))
    assert (end["files"], end["kept"]) == (FILES - 1, 1)
    assert methods(seen) == {"PROPFIND": 1, "HEAD": FILES, "PUT": FILES - 1}


def test_of_a_collection_that_is_missing_no_file_is_asked_for(engine, tmp_path, sources):
    def answer(handler, _):
        body_of(handler)
        return handler.say(201 if handler.command == "PUT" else 404)

    with puppet(answer) as (url, seen):
        end = end_of(events(engine, "--list", pairs(sources, url, tmp_path / "list")))
    assert end["files"] == FILES
    assert methods(seen) == {"PROPFIND": 1, "PUT": FILES}


def test_no_listing_is_believed_where_what_is_there_is_to_be_kept(engine, tmp_path, sources):
    """That of one server of a cluster lacks what the others have."""

    def answer(handler, _):
        body_of(handler)
        return handler.say(200, length=1) if handler.command == "HEAD" else handler.say(207, listing(("/d/", True)))

    with puppet(answer) as (url, seen):
        words = ["--existing", "keep", "--list", pairs(sources, url, tmp_path / "list")]
        end = end_of(events(engine, *words))
    assert (end["files"], end["kept"]) == (0, FILES)
    assert methods(seen)["PUT"] == 0


def test_no_listing_of_a_tree_is_believed_that_lacks_what_is_to_be_kept(engine, tmp_path, sources):
    """Of these the server of a cluster that is asked for the listing has some, and others have the rest."""
    names = [path.name for path in sources]
    (tmp_path / "tree").mkdir()
    for path in sources:
        path.rename(tmp_path / "tree" / path.name)

    def answer(handler, _):
        body_of(handler)
        if handler.command == "PROPFIND":
            return handler.say(207, listing(("/up/", True), *((f"/up/{name}", False) for name in names[::2])))
        if handler.command == "HEAD":
            return handler.say(200, length=1) if handler.path[4:] in names[1::4] else handler.say(404)
        return handler.say(201)

    with puppet(answer) as (url, seen):
        end = end_of(events(engine, "-r", "--existing", "keep", f"{tmp_path / 'tree'}/.", f"{url}/up"))
    assert (end["files"], end["kept"]) == (FILES // 4, FILES * 3 // 4)
    assert methods(seen) == {"MKCOL": 1, "PROPFIND": 1, "HEAD": FILES // 2, "PUT": FILES // 4}
    assert {path[4:] for method, path, _ in seen if method == "PUT"} == set(names[3::4])


def test_where_files_go_from_server_to_server_is_seen_in_one_listing(engine, tmp_path):
    names = [f"{number:02d}" for number in range(FILES)]
    there = names[::4]

    def answer(handler, _):
        body_of(handler)
        if handler.command == "PROPFIND":
            entries = (("/d/", True), *((f"/d/{name}", False) for name in there))
            return handler.say(207, listing(*entries, changed=LATER))
        if handler.command == "HEAD":
            return handler.say(200, length=1, Last_Modified="Sun, 06 Nov 1994 08:49:37 GMT")
        return handler.say(201)

    with puppet(answer) as (url, seen):
        (tmp_path / "list").write_text("".join(f"{url}/s/{name} {url}/d/{name}\n" for name in names))
        end = end_of(events(engine, "--list", tmp_path / "list"))
    assert (end["files"], end["kept"]) == (FILES - len(there), len(there))
    assert methods(seen)["PROPFIND"] == 1
    assert methods(seen)["COPY"] == FILES - len(there)
    assert not [path for method, path, _ in seen if method == "HEAD" and path.startswith("/d/")]


def test_the_collection_that_several_files_are_named_for_is_made_and_listed_once(engine, tmp_path, sources):
    root, folder = tmp_path / "root", tmp_path / "nginx"
    root.mkdir()
    folder.mkdir()
    with nginx(root, folder) as url:
        first = end_of(events(engine, *sources, f"{url}/d/"))
        again = end_of(events(engine, *sources, f"{url}/d/"))
    assert (first["files"], first["kept"], again["files"], again["kept"]) == (FILES, 0, 0, FILES)
    assert [path.name for path in sorted((root / "d").iterdir())] == [path.name for path in sources]
    asked = Counter(line.split('"')[1].split()[0] for line in (folder / "access.log").read_text().splitlines())
    assert asked == {"MKCOL": 2, "PROPFIND": 2, "PUT": FILES}
