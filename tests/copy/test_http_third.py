"""Copies between servers that our server carries out: whom it tells what."""

import os
import urllib.request
import zlib

import pytest
from copykit import copy, end_of, events, leftovers
from httpkit import puppet, running, venturi

from testkit import free_port, needs_programs

CONTENT = os.urandom(3_000_000)


@pytest.fixture
def ours(engine, tmp_path):
    """Our server, which may copy between servers; its URL."""
    (tmp_path / "root").mkdir()
    (tmp_path / "tokens").write_text("sesame\n")
    words = ["--write", "--third-party", "--tokens", tmp_path / "tokens"]
    with venturi(engine, tmp_path / "root", tmp_path, *words) as url:
        yield url


def order(url, **fields):
    """Have a server copy; return the last line that it says."""
    named = {name.replace("_", "-"): value for name, value in fields.items()}
    asked = urllib.request.Request(url, method="COPY", headers={"Authorization": "Bearer sesame", **named})
    with urllib.request.urlopen(asked, timeout=20) as answer:
        return answer.read().decode().strip().split("\n")[-1]


@pytest.mark.parametrize("way", ["Source", "Destination"])
def test_what_is_passed_on_goes_to_the_server_that_is_named_and_to_no_other(ours, tmp_path, way):
    (tmp_path / "root" / "x").write_bytes(CONTENT)

    def pool(handler, _):
        if handler.command == "GET":
            return handler.say(200, CONTENT)
        handler.send_response_only(100)
        handler.end_headers()
        handler.rfile.read(int(handler.headers["Content-Length"]))
        return handler.say(201)

    def door(handler, _):
        handler.close_connection = True
        handler.say(307, Location=f"{there}/y")

    secrets = {"TransferHeaderAuthorization": "Bearer theirs", "TransferHeaderCookie": "a=b", "Credential": "none"}
    with puppet(pool) as (there, seen), puppet(door) as (here, asked):
        assert order(f"{ours}/x", **{way: f"{here}/y"}, **secrets).startswith("success")
    assert (asked[0][2]["Authorization"], asked[0][2]["Cookie"]) == ("Bearer theirs", "a=b")
    assert not {"Authorization", "Cookie"} & seen[0][2].keys()
    told = b"".join(path.read_bytes() for path in tmp_path.glob("serve-*.jsonl"))
    assert b"theirs" not in told
    assert b"sesame" not in told


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"Digest": f"adler32={zlib.adler32(CONTENT) ^ 1:08x}"}, "checksum"),
        ({"Location": "/elsewhere"}, "redirections"),
    ],
)
def test_a_pull_of_what_is_not_whole_leaves_the_old_file(ours, tmp_path, fields, found):
    (tmp_path / "root" / "x").write_bytes(b"old")
    status = 302 if "Location" in fields else 200
    with puppet(lambda handler, _: handler.say(status, CONTENT, **fields)) as (url, _):
        said = order(f"{ours}/x", Source=f"{url}/y")
    assert said.startswith("failure")
    assert found in said
    assert (tmp_path / "root" / "x").read_bytes() == b"old"
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(("name", "asked"), [("XrootD/v5.5.4", [False]), ("another", [False, True])])
def test_a_pull_asks_xrootd_for_no_checksum_and_others_when_their_bytes_are_there(ours, tmp_path, name, asked):
    """XRootD 5.5 ends itself over one of some hundred GETs that want a checksum by the old field."""

    def answer(handler, _):
        handler.version_string = lambda: name
        wrong = {"Digest": "adler32=00000001"} if "Want-Digest" in handler.headers else {}
        handler.say(200, CONTENT, **wrong)

    with puppet(answer) as (url, seen):
        said = order(f"{ours}/x", Source=f"{url}/y")
    assert ["Want-Digest" in fields for _, _, fields in seen] == asked
    assert said.startswith("success") == (asked == [False])
    assert (tmp_path / "root" / "x").exists() == (asked == [False])


def source_only(copied):
    """Answer as a server that has a file at /x and nothing else; of COPY and DELETE a function says what comes of them."""

    def answer(handler, _):
        if handler.command == "HEAD":
            return handler.say(200, length=5) if handler.path == "/x" else handler.say(404)
        if handler.command == "PROPFIND":
            handler.rfile.read(int(handler.headers["Content-Length"]))
            return handler.say(404)
        return handler.say(*copied(handler))

    return answer


def test_a_third_party_copy_is_tried_again_while_another_holds_its_place(engine):
    copies = []

    def copied(handler):
        copies.append(handler.command)
        return 202, b"success: Created\n" if copies[1:] else b"failure: /y: found 423 Locked\n"

    with puppet(source_only(copied)) as (url, _):
        copy(engine, f"{url}/x", f"{url}/y")
    assert copies == ["COPY", "COPY"]


@pytest.mark.parametrize(
    ("words", "asked"), [([], ["4", "", "1"]), (["--streams", "4"], ["4"])], ids=["tuned", "fixed"]
)
def test_a_pull_whose_server_has_no_buffer_left_is_asked_for_in_one_stream(engine, words, asked):
    """XRootD 5.5.3 says that where all of its buffers are full, and it could write them."""
    seen = []

    def copied(handler):
        seen.append(handler.headers.get("X-Number-Of-Streams", ""))
        if handler.command == "DELETE":
            return 204, b""
        stuck = b"failure: Internal logic error led to early abort; current offset is 4 while full size is 5\n"
        return 202, b"success: Created\n" if seen[-1] == "1" else stuck

    with puppet(source_only(copied)) as (url, _):
        told = events(engine, *words, f"{url}/x", f"{url}/y", code=3 if words else 0)
    assert (seen, end_of(told)["files"]) == (asked, 0 if words else 1)
    decided = [event["value"] for event in told if event["event"] == "decision" and event["what"] == "streams"]
    assert decided == ([] if words else [1])


@pytest.mark.parametrize(("there", "code"), [(len(CONTENT), 0), (17, 3)], ids=["all of it", "a part"])
@pytest.mark.parametrize(
    "said", [b"Created", b"<html>\n<title>201 Created</title>\n</html>\n"], ids=["a word", "a page"]
)
def test_a_copy_within_a_server_of_webdav_is_done_if_its_status_says_so_and_its_size_agrees(
    engine, said, there, code
):
    copied = []

    def answer(handler, _):
        handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        if handler.command == "COPY":
            copied.append(1)
            return handler.say(201, said)
        if handler.command == "HEAD" and handler.path == "/x":
            return handler.say(200, length=len(CONTENT))
        return handler.say(200, length=there) if copied and handler.command == "HEAD" else handler.say(404)

    with puppet(answer) as (url, _):
        told = events(engine, f"{url}/x", f"{url}/y", code=code)
    assert (end_of(told)["files"], len(copied)) == (1 - bool(code), 1)


@needs_programs("rclone")
def test_rclone_copies_within_itself(engine, tmp_path):
    (tmp_path / "served" / "d").mkdir(parents=True)
    (tmp_path / "served" / "d" / "x").write_bytes(CONTENT)
    port = free_port()
    command = ["rclone", "serve", "webdav", tmp_path / "served", "--config=", "--addr", f"127.0.0.1:{port}"]
    with running(command, port, tmp_path / "out") as url:
        told = events(engine, "-r", f"{url}/d", f"{url}/e")
    assert [event["how"] for event in told if event["event"] == "file"] == ["by the server"]
    assert (tmp_path / "served" / "e" / "x").read_bytes() == CONTENT
