"""Third-party copies of our server: recipients of its credentials and requests."""

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
    """Yield the URL of our server, which is allowed to copy between servers."""
    (tmp_path / "root").mkdir()
    (tmp_path / "tokens").write_text("sesame\n")
    arguments = ["--write", "--third-party", "--tokens", tmp_path / "tokens"]
    with venturi(engine, tmp_path / "root", tmp_path, *arguments) as url:
        yield url


def order(url, **fields):
    """Request a copy from a server; return the last line of its response."""
    named = {name.replace("_", "-"): value for name, value in fields.items()}
    requests = urllib.request.Request(url, method="COPY", headers={"Authorization": "Bearer sesame", **named})
    with urllib.request.urlopen(requests, timeout=20) as respond:
        return respond.read().decode().strip().split("\n")[-1]


@pytest.mark.parametrize("case", ["Source", "Destination"])
def test_transfer_headers_are_sent_only_to_the_named_server(ours, tmp_path, case):
    (tmp_path / "root" / "x").write_bytes(CONTENT)

    def pool(handler, _):
        if handler.command == "GET":
            return handler.reply(200, CONTENT)
        handler.send_response_only(100)
        handler.end_headers()
        handler.rfile.read(int(handler.headers["Content-Length"]))
        return handler.reply(201)

    def service_port(handler, _):
        handler.close_connection = True
        handler.reply(307, Location=f"{there}/y")

    secrets = {"TransferHeaderAuthorization": "Bearer theirs", "TransferHeaderCookie": "a=b", "Credential": "none"}
    with puppet(pool) as (there, recorded), puppet(service_port) as (here, requests):
        assert order(f"{ours}/x", **{case: f"{here}/y"}, **secrets).startswith("success")
    assert (requests[0][2]["Authorization"], requests[0][2]["Cookie"]) == ("Bearer theirs", "a=b")
    assert not {"Authorization", "Cookie"} & recorded[0][2].keys()
    output = b"".join(path.read_bytes() for path in tmp_path.glob("serve-*.jsonl"))
    assert b"theirs" not in output
    assert b"sesame" not in output


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"Digest": f"adler32={zlib.adler32(CONTENT) ^ 1:08x}"}, "checksum"),
        ({"Location": "/elsewhere"}, "redirections"),
    ],
)
def test_a_failed_pull_leaves_the_old_file(ours, tmp_path, fields, found):
    (tmp_path / "root" / "x").write_bytes(b"old")
    status = 302 if "Location" in fields else 200
    with puppet(lambda handler, _: handler.reply(status, CONTENT, **fields)) as (url, _):
        output = order(f"{ours}/x", Source=f"{url}/y")
    assert output.startswith("failure")
    assert found in output
    assert (tmp_path / "root" / "x").read_bytes() == b"old"
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(("name", "requests"), [("XrootD/v5.5.4", [False]), ("another", [False, True])])
def test_a_pull_requests_a_checksum_after_the_bytes_but_not_from_xrootd(ours, tmp_path, name, requests):
    """XRootD 5.5 crashes at about one in several hundred GETs that request a checksum with the old field."""

    def respond(handler, _):
        handler.version_string = lambda: name
        wrong = {"Digest": "adler32=00000001"} if "Want-Digest" in handler.headers else {}
        handler.reply(200, CONTENT, **wrong)

    with puppet(respond) as (url, recorded):
        output = order(f"{ours}/x", Source=f"{url}/y")
    assert ["Want-Digest" in fields for _, _, fields in recorded] == requests
    assert output.startswith("success") == (requests == [False])
    assert (tmp_path / "root" / "x").exists() == (requests == [False])


def source_only(copied):
    """Return the response function of a server with only the file `/x`; `copied` handles COPY and DELETE."""

    def respond(handler, _):
        if handler.command == "HEAD":
            return handler.reply(200, length=5) if handler.path == "/x" else handler.reply(404)
        if handler.command == "PROPFIND":
            handler.rfile.read(int(handler.headers["Content-Length"]))
            return handler.reply(404)
        return handler.reply(*copied(handler))

    return respond


def test_a_third_party_copy_is_retried_while_its_destination_is_locked(engine):
    copies = []

    def copied(handler):
        copies.append(handler.command)
        return 202, b"success: Created\n" if copies[1:] else b"failure: /y: found 423 Locked\n"

    with puppet(source_only(copied)) as (url, _):
        copy(engine, f"{url}/x", f"{url}/y")
    assert copies == ["COPY", "COPY"]


@pytest.mark.parametrize(
    ("arguments", "requests"), [([], ["4", "", "1"]), (["--streams", "4"], ["4"])], ids=["tuned", "fixed"]
)
def test_a_pull_falls_back_to_one_stream_if_the_server_has_no_free_buffers(engine, arguments, requests):
    """XRootD 5.5.3 reports this error if all of its buffers are full, although it could write them."""
    recorded = []

    def copied(handler):
        recorded.append(handler.headers.get("X-Number-Of-Streams", ""))
        if handler.command == "DELETE":
            return 204, b""
        stuck = b"failure: Internal logic error led to early abort; current offset is 4 while full size is 5\n"
        return 202, b"success: Created\n" if recorded[-1] == "1" else stuck

    with puppet(source_only(copied)) as (url, _):
        output = events(engine, *arguments, f"{url}/x", f"{url}/y", code=3 if arguments else 0)
    assert (recorded, end_of(output)["files"]) == (requests, 0 if arguments else 1)
    decided = [event["value"] for event in output if event["event"] == "decision" and event["setting"] == "streams"]
    assert decided == ([] if arguments else [1])


@pytest.mark.parametrize(("there", "code"), [(len(CONTENT), 0), (17, 3)], ids=["all of it", "a part"])
@pytest.mark.parametrize(
    "output", [b"Created", b"<html>\n<title>201 Created</title>\n</html>\n"], ids=["a word", "a page"]
)
def test_a_copy_within_a_webdav_server_succeeds_if_its_status_and_size_confirm_it(engine, output, there, code):
    copied = []

    def respond(handler, _):
        handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        if handler.command == "COPY":
            copied.append(1)
            return handler.reply(201, output)
        if handler.command == "HEAD" and handler.path == "/x":
            return handler.reply(200, length=len(CONTENT))
        return handler.reply(200, length=there) if copied and handler.command == "HEAD" else handler.reply(404)

    with puppet(respond) as (url, _):
        output = events(engine, f"{url}/x", f"{url}/y", code=code)
    assert (end_of(output)["files"], len(copied)) == (1 - bool(code), 1)


@needs_programs("rclone")
def test_an_rclone_server_copies_within_itself(engine, tmp_path):
    (tmp_path / "served" / "d").mkdir(parents=True)
    (tmp_path / "served" / "d" / "x").write_bytes(CONTENT)
    port = free_port()
    command = ["rclone", "serve", "webdav", tmp_path / "served", "--config=", "--addr", f"127.0.0.1:{port}"]
    with running(command, port, tmp_path / "out") as url:
        output = events(engine, "-r", f"{url}/d", f"{url}/e")
    assert [event["method"] for event in output if event["event"] == "file"] == ["by the server"]
    assert (tmp_path / "served" / "e" / "x").read_bytes() == CONTENT
