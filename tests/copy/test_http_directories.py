"""Several files for one collection of a server: it is created once, and listed once if this takes fewer requests."""

from collections import Counter

import pytest
from copykit import end_of, events
from httpkit import nginx, puppet
from test_http_faults import listing, read_body

FILES = 40
LATER = "Sat, 06 Nov 2094 08:49:37 GMT"


@pytest.fixture
def sources(tmp_path):
    """Return files of one byte."""
    found = [tmp_path / f"{number:02d}" for number in range(FILES)]
    for path in found:
        path.write_bytes(b"1")
    return found


def pairs(sources, url, location):
    """Write a list of destinations, one per file."""
    location.write_text("".join(f"{path} {url}/d/{path.name}\n" for path in sources))
    return location


def methods(recorded):
    """Return the number of requests per method."""
    return Counter(method for method, *_ in recorded)


def test_existing_destinations_of_a_list_are_found_by_one_listing(engine, tmp_path, sources):
    there = [f"/d/{path.name}" for path in sources[::4]]

    def respond(handler, _):
        read_body(handler)
        if handler.command == "PROPFIND":
            return handler.reply(207, listing(("/d/", True), *((path, False) for path in there), changed=LATER))
        return handler.reply(201)

    with puppet(respond) as (url, recorded):
        end = end_of(events(engine, "--list", pairs(sources, url, tmp_path / "list")))
    assert (end["files"], end["kept"]) == (FILES - len(there), len(there))
    assert methods(recorded) == {"PROPFIND": 1, "PUT": FILES - len(there)}
    assert not {path for method, path, _ in recorded if method == "PUT"} & set(there)


# The client reads no more of a long listing than of a useful one.
@pytest.mark.parametrize("responded", ["without WebDAV", "other names by the thousand"])
def test_each_file_of_a_list_is_queried_if_a_listing_does_not_help(engine, tmp_path, sources, responded):
    many = listing(("/d/", True), *((f"/d/other-{number}", False) for number in range(5000)))

    def respond(handler, _):
        read_body(handler)
        if handler.command == "PROPFIND":
            return handler.reply(405) if responded == "without WebDAV" else handler.reply(207, many)
        if handler.command == "HEAD" and handler.path == "/d/07":
            return handler.reply(200, length=1, Last_Modified=LATER)
        return handler.reply(404 if handler.command == "HEAD" else 201)

    with puppet(respond) as (url, recorded):
        end = end_of(events(engine, "--list", pairs(sources, url, tmp_path / "list")))
    assert (end["files"], end["kept"]) == (FILES - 1, 1)
    assert methods(recorded) == {"PROPFIND": 1, "HEAD": FILES, "PUT": FILES - 1}


def test_files_of_a_missing_collection_are_not_queried(engine, tmp_path, sources):
    def respond(handler, _):
        read_body(handler)
        return handler.reply(201 if handler.command == "PUT" else 404)

    with puppet(respond) as (url, recorded):
        end = end_of(events(engine, "--list", pairs(sources, url, tmp_path / "list")))
    assert end["files"] == FILES
    assert methods(recorded) == {"PROPFIND": 1, "PUT": FILES}


def test_a_listing_is_not_trusted_if_existing_files_must_be_kept(engine, tmp_path, sources):
    """The listing of one server of a cluster lacks the files of the others."""

    def respond(handler, _):
        read_body(handler)
        return (
            handler.reply(200, length=1) if handler.command == "HEAD" else handler.reply(207, listing(("/d/", True)))
        )

    with puppet(respond) as (url, recorded):
        arguments = ["--existing", "keep", "--list", pairs(sources, url, tmp_path / "list")]
        end = end_of(events(engine, *arguments))
    assert (end["files"], end["kept"]) == (0, FILES)
    assert methods(recorded)["PUT"] == 0


def test_files_missing_from_a_tree_listing_are_queried_if_existing_files_must_be_kept(engine, tmp_path, sources):
    """The server of a cluster that sends the listing has some of the files; other servers have the rest."""
    names = [path.name for path in sources]
    (tmp_path / "tree").mkdir()
    for path in sources:
        path.rename(tmp_path / "tree" / path.name)

    def respond(handler, _):
        read_body(handler)
        if handler.command == "PROPFIND":
            return handler.reply(207, listing(("/up/", True), *((f"/up/{name}", False) for name in names[::2])))
        if handler.command == "HEAD":
            return handler.reply(200, length=1) if handler.path[4:] in names[1::4] else handler.reply(404)
        return handler.reply(201)

    with puppet(respond) as (url, recorded):
        end = end_of(events(engine, "-r", "--existing", "keep", f"{tmp_path / 'tree'}/.", f"{url}/up"))
    assert (end["files"], end["kept"]) == (FILES // 4, FILES * 3 // 4)
    assert methods(recorded) == {"MKCOL": 1, "PROPFIND": 1, "HEAD": FILES // 2, "PUT": FILES // 4}
    assert {path[4:] for method, path, _ in recorded if method == "PUT"} == set(names[3::4])


def test_existing_destinations_between_servers_are_found_by_one_listing(engine, tmp_path):
    names = [f"{number:02d}" for number in range(FILES)]
    there = names[::4]

    def respond(handler, _):
        read_body(handler)
        if handler.command == "PROPFIND":
            entries = (("/d/", True), *((f"/d/{name}", False) for name in there))
            return handler.reply(207, listing(*entries, changed=LATER))
        if handler.command == "HEAD":
            return handler.reply(200, length=1, Last_Modified="Sun, 06 Nov 1994 08:49:37 GMT")
        return handler.reply(201)

    with puppet(respond) as (url, recorded):
        (tmp_path / "list").write_text("".join(f"{url}/s/{name} {url}/d/{name}\n" for name in names))
        end = end_of(events(engine, "--list", tmp_path / "list"))
    assert (end["files"], end["kept"]) == (FILES - len(there), len(there))
    assert methods(recorded)["PROPFIND"] == 1
    assert methods(recorded)["COPY"] == FILES - len(there)
    assert not [path for method, path, _ in recorded if method == "HEAD" and path.startswith("/d/")]


def test_the_destination_collection_of_several_files_is_created_and_listed_once(engine, tmp_path, sources):
    root, directory = tmp_path / "root", tmp_path / "nginx"
    root.mkdir()
    directory.mkdir()
    with nginx(root, directory) as url:
        first = end_of(events(engine, *sources, f"{url}/d/"))
        again = end_of(events(engine, *sources, f"{url}/d/"))
    assert (first["files"], first["kept"], again["files"], again["kept"]) == (FILES, 0, 0, FILES)
    assert [path.name for path in sorted((root / "d").iterdir())] == [path.name for path in sources]
    requests = Counter(line.split('"')[1].split()[0] for line in (directory / "access.log").read_text().splitlines())
    assert requests == {"MKCOL": 2, "PROPFIND": 2, "PUT": FILES}
