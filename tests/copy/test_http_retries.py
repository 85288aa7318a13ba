"""A request that fails because of a busy server or a broken connection is sent four times in total, for any method."""

import itertools
import time

import pytest
from copykit import copy, end_of, events
from httpkit import puppet

TIMES = 4


def read_body(handler):
    """Return the body of a request."""
    return handler.rfile.read(int(handler.headers.get("Content-Length", 0)))


def hang_up(handler):
    """Close a connection without a response, or in the middle of one."""
    handler.close_connection = True
    handler.connection.close()


def listing(*entries):
    """Return a multistatus of paths, each with a flag for directories."""
    kind = {True: "<D:collection/>", False: ""}
    texts = [
        f"<D:response><D:href>{path}</D:href><D:propstat><D:prop><D:resourcetype>{kind[is_directory]}</D:resourcetype>"
        "<D:getcontentlength>1</D:getcontentlength></D:prop></D:propstat></D:response>"
        for path, is_directory in entries
    ]
    return f'<D:multistatus xmlns:D="DAV:">{"".join(texts)}</D:multistatus>'.encode()


def sound(handler):
    """Reply like a server that has `/d/x` and `/x` of one byte, stores all uploads, and copies internally."""
    read_body(handler)
    match handler.command, handler.path.rstrip("/"):
        case "PROPFIND", path if path in ("/d", "/up"):
            return handler.reply(207, listing((f"{path}/", True), *([("/d/x", False)] if path == "/d" else [])))
        case "GET", _:
            return handler.reply(200, b"1", ETag='"1"')
        case "HEAD", path if path.endswith("/y"):
            return handler.reply(404)
        case "HEAD", _:
            return handler.reply(200, length=1)
        case "PROPFIND", _:
            return handler.reply(404)
    return handler.reply(201)


CASES = {
    "GET": ["{url}/x", "{directory}/x"],
    "PROPFIND": ["-r", "{url}/d", "{directory}/d"],
    "HEAD": ["{url}/x", "{url}/y"],
    "PUT": ["--existing", "replace", "{directory}/one", "{url}/x"],
    "MKCOL": ["-r", "-T", "{directory}/tree", "{url}/up"],
    "COPY": ["{url}/x", "{url}/y"],
}
"""Copies that send a request with each method."""


def arguments(method, url, directory):
    """Return the arguments of a copy for a method, after creating its sources."""
    (directory / "one").write_bytes(b"1")
    (directory / "tree").mkdir()
    return [word.format(url=url, directory=directory) for word in CASES[method]]


@pytest.mark.parametrize("method", CASES)
@pytest.mark.parametrize("broken", [False, True], ids=["busy", "broken"])
def test_a_request_that_succeeds_at_the_fourth_attempt_is_retried(engine, tmp_path, method, broken):
    requests = itertools.count(1)

    def respond(handler, _):
        if handler.command != method or next(requests) >= TIMES:
            return sound(handler)
        if broken:
            return hang_up(handler)
        read_body(handler)
        return handler.reply(429, Retry_After="0")

    with puppet(respond) as (url, recorded):
        end = end_of(events(engine, *arguments(method, url, tmp_path)))
    assert end["errors"] == 0
    # A listing is requested again if a later step needs one.
    assert [command for command, *_ in recorded].count(method) in (TIMES, TIMES + 1)


@pytest.mark.parametrize("status", [423, 503])
@pytest.mark.parametrize("method", CASES)
def test_a_server_that_stays_busy_gets_four_requests(engine, tmp_path, method, status):
    def respond(handler, _):
        if handler.command != method:
            return sound(handler)
        read_body(handler)
        return handler.reply(status, b"" if method == "HEAD" else b"later", Retry_After="0")

    with puppet(respond) as (url, recorded):
        output = copy(engine, *arguments(method, url, tmp_path), code=3).stderr.decode()
    assert f"found {status}" in output
    assert [command for command, *_ in recorded].count(method) == TIMES


def test_pauses_before_retries_at_a_busy_server_grow(engine, tmp_path):
    requests = []

    def respond(handler, _):
        requests.append(time.monotonic())
        return handler.reply(503)

    with puppet(respond) as (url, _):
        copy(engine, f"{url}/x", tmp_path / "x", code=3)
    pauses = [later - earlier for earlier, later in itertools.pairwise(requests)]
    assert len(pauses) == TIMES - 1
    assert all(pause >= min_count for pause, min_count in zip(pauses, [0.4, 1.6, 6.4], strict=True)), pauses


def test_an_interrupted_listing_is_requested_again(engine, tmp_path):
    requests = itertools.count(1)

    def respond(handler, _):
        if handler.command != "PROPFIND" or next(requests) > 1:
            return sound(handler)
        read_body(handler)
        text = listing(("/d/", True), ("/d/x", False))
        handler.reply(207, text[: len(text) // 2], length=len(text))
        return hang_up(handler)

    with puppet(respond) as (url, _):
        copy(engine, "-r", f"{url}/d", tmp_path / "d")
    assert (tmp_path / "d" / "x").read_bytes() == b"1"


@pytest.mark.parametrize("status", [503, 403])
def test_a_copy_through_the_client_limits_the_requests_to_its_source(engine, status):
    def respond(handler, _):
        if handler.command == "COPY":
            return handler.reply(501)
        if handler.command != "GET":
            return sound(handler)
        return handler.reply(status, b"not now", Retry_After="0")

    with puppet(respond) as (url, recorded):
        output = copy(engine, f"{url}/x", f"{url}/y", code=3).stderr.decode()
    assert f"{url}/x: expected the server to execute the request, found {status}" in output
    assert [command for command, *_ in recorded].count("GET") == (TIMES if status == 503 else 1)


def test_an_interrupted_copy_between_servers_is_requested_again(engine):
    requests = itertools.count(1)

    def respond(handler, _):
        if handler.command != "COPY" or next(requests) > 1:
            return sound(handler)
        handler.reply(202, b"Perf Marker\n", length=1000)
        return hang_up(handler)

    with puppet(respond) as (url, recorded):
        end = end_of(events(engine, f"{url}/x", f"{url}/y"))
    assert (end["files"], end["errors"]) == (1, 0)
    assert [command for command, *_ in recorded].count("COPY") == 2
