"""A request that a busy server or a broken connection has refused is asked four times in all, whatever it asks for."""

import itertools
import time

import pytest
from copykit import copy, end_of, events
from httpkit import puppet

TIMES = 4


def body_of(handler):
    """Read the body of a request to its end."""
    return handler.rfile.read(int(handler.headers.get("Content-Length", 0)))


def hang_up(handler):
    """End a connection without an answer, or in the middle of one."""
    handler.close_connection = True
    handler.connection.close()


def listing(*entries):
    """Return a multistatus of paths and whether each is a directory."""
    kind = {True: "<D:collection/>", False: ""}
    texts = [
        f"<D:response><D:href>{path}</D:href><D:propstat><D:prop><D:resourcetype>{kind[is_directory]}</D:resourcetype>"
        "<D:getcontentlength>1</D:getcontentlength></D:prop></D:propstat></D:response>"
        for path, is_directory in entries
    ]
    return f'<D:multistatus xmlns:D="DAV:">{"".join(texts)}</D:multistatus>'.encode()


def sound(handler):
    """Answer as a server that has `/d/x` and `/x` of one byte, takes all that comes, and copies within itself."""
    body_of(handler)
    match handler.command, handler.path.rstrip("/"):
        case "PROPFIND", path if path in ("/d", "/up"):
            return handler.say(207, listing((f"{path}/", True), *([("/d/x", False)] if path == "/d" else [])))
        case "GET", _:
            return handler.say(200, b"1", ETag='"1"')
        case "HEAD", path if path.endswith("/y"):
            return handler.say(404)
        case "HEAD", _:
            return handler.say(200, length=1)
        case "PROPFIND", _:
            return handler.say(404)
    return handler.say(201)


WAYS = {
    "GET": ["{url}/x", "{folder}/x"],
    "PROPFIND": ["-r", "{url}/d", "{folder}/d"],
    "HEAD": ["{url}/x", "{url}/y"],
    "PUT": ["--existing", "replace", "{folder}/one", "{url}/x"],
    "MKCOL": ["-r", "-T", "{folder}/tree", "{url}/up"],
    "COPY": ["{url}/x", "{url}/y"],
}
"""What is copied so that a server is asked by a method."""


def words(method, url, folder):
    """Return the words of a copy by a method, with its sources made."""
    (folder / "one").write_bytes(b"1")
    (folder / "tree").mkdir()
    return [word.format(url=url, folder=folder) for word in WAYS[method]]


@pytest.mark.parametrize("method", WAYS)
@pytest.mark.parametrize("broken", [False, True], ids=["busy", "broken"])
def test_the_fourth_time_a_server_does_what_it_is_asked_for(engine, tmp_path, method, broken):
    asked = itertools.count(1)

    def answer(handler, _):
        if handler.command != method or next(asked) >= TIMES:
            return sound(handler)
        if broken:
            return hang_up(handler)
        body_of(handler)
        return handler.say(429, Retry_After="0")

    with puppet(answer) as (url, seen):
        end = end_of(events(engine, *words(method, url, tmp_path)))
    assert end["errors"] == 0
    # A listing is asked for again where what follows needs one.
    assert [command for command, *_ in seen].count(method) in (TIMES, TIMES + 1)


@pytest.mark.parametrize("status", [423, 503])
@pytest.mark.parametrize("method", WAYS)
def test_a_server_that_stays_busy_is_asked_no_more_often(engine, tmp_path, method, status):
    def answer(handler, _):
        if handler.command != method:
            return sound(handler)
        body_of(handler)
        return handler.say(status, b"" if method == "HEAD" else b"later", Retry_After="0")

    with puppet(answer) as (url, seen):
        told = copy(engine, *words(method, url, tmp_path), code=3).stderr.decode()
    assert f"found {status}" in told
    assert [command for command, *_ in seen].count(method) == TIMES


def test_who_is_busy_is_left_alone_for_longer_each_time(engine, tmp_path):
    asked = []

    def answer(handler, _):
        asked.append(time.monotonic())
        return handler.say(503)

    with puppet(answer) as (url, _):
        copy(engine, f"{url}/x", tmp_path / "x", code=3)
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert len(pauses) == TIMES - 1
    assert all(pause >= least for pause, least in zip(pauses, [0.4, 1.6, 6.4], strict=True)), pauses


def test_a_listing_that_breaks_off_is_asked_for_again(engine, tmp_path):
    asked = itertools.count(1)

    def answer(handler, _):
        if handler.command != "PROPFIND" or next(asked) > 1:
            return sound(handler)
        body_of(handler)
        text = listing(("/d/", True), ("/d/x", False))
        handler.say(207, text[: len(text) // 2], length=len(text))
        return hang_up(handler)

    with puppet(answer) as (url, _):
        copy(engine, "-r", f"{url}/d", tmp_path / "d")
    assert (tmp_path / "d" / "x").read_bytes() == b"1"


@pytest.mark.parametrize("status", [503, 403])
def test_what_goes_through_the_client_asks_its_source_no_more_often(engine, status):
    def answer(handler, _):
        if handler.command == "COPY":
            return handler.say(501)
        if handler.command != "GET":
            return sound(handler)
        return handler.say(status, b"not now", Retry_After="0")

    with puppet(answer) as (url, seen):
        told = copy(engine, f"{url}/x", f"{url}/y", code=3).stderr.decode()
    assert f"{url}/x: expected that the server does it, found {status}" in told
    assert [command for command, *_ in seen].count("GET") == (TIMES if status == 503 else 1)


def test_a_copy_between_servers_that_breaks_off_is_asked_for_again(engine):
    asked = itertools.count(1)

    def answer(handler, _):
        if handler.command != "COPY" or next(asked) > 1:
            return sound(handler)
        handler.say(202, b"Perf Marker\n", length=1000)
        return hang_up(handler)

    with puppet(answer) as (url, seen):
        end = end_of(events(engine, f"{url}/x", f"{url}/y"))
    assert (end["files"], end["errors"]) == (1, 0)
    assert [command for command, *_ in seen].count("COPY") == 2
