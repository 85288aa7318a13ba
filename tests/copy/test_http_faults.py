"""Servers that fail, lie, or lead elsewhere: no corruption, no hang, no secret to a stranger."""

import os
import time
import zlib

import pytest
from copykit import copy, end_of, events, leftovers
from httpkit import puppet

SIZE = 9 << 20
CONTENT = os.urandom(SIZE)


def given(handler, content=CONTENT, tag='"1"', **fields):
    """Answer a GET with a range, as a good server does."""
    asked = handler.headers.get("Range")
    if asked is None:
        return handler.say(200, content, ETag=tag, **fields)
    first, last = asked.removeprefix("bytes=").split("-")
    first, last = int(first), min(int(last), len(content) - 1)
    content_range = f"bytes {first}-{last}/{len(content)}"
    return handler.say(206, content[first : last + 1], ETag=tag, Content_Range=content_range, **fields)


def hang_up(handler):
    """End a connection in the middle of what it was said to bring."""
    handler.close_connection = True
    handler.connection.close()


def test_a_body_that_breaks_off_goes_on_where_it_was(engine, tmp_path):
    def answer(handler, count):
        if count > 1:
            return given(handler)
        handler.send_response(206)
        handler.send_header("ETag", '"1"')
        handler.send_header("Content-Range", f"bytes 0-{SIZE - 1}/{SIZE}")
        handler.send_header("Content-Length", str(SIZE))
        handler.end_headers()
        handler.wfile.write(CONTENT[:3_000_000])
        return hang_up(handler)

    with puppet(answer) as (url, seen):
        end = end_of(events(engine, f"{url}/x", tmp_path / "x"))
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert end["moved_bytes"] == SIZE
    assert (seen[1][2]["Range"], seen[1][2]["If-Range"]) == (f"bytes=3000000-{SIZE - 1}", '"1"')


def test_two_versions_of_a_file_do_not_mix(engine, tmp_path):
    def answer(handler, count):
        if count > 1:
            return handler.say(200, os.urandom(SIZE), ETag='"2"')
        handler.send_response(206)
        handler.send_header("ETag", '"1"')
        handler.send_header("Content-Range", f"bytes 0-{SIZE - 1}/{SIZE}")
        handler.send_header("Content-Length", str(SIZE))
        handler.end_headers()
        handler.wfile.write(CONTENT[:3_000_000])
        return hang_up(handler)

    with puppet(answer) as (url, _):
        told = copy(engine, f"{url}/x", tmp_path / "x", code=3).stderr.decode()
    assert "it was replaced while it was copied" in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [100, SIZE], ids=["small", "large"])
def test_bytes_that_are_not_those_of_the_checksum_get_no_name(engine, tmp_path, size):
    wrong = f"adler32={zlib.adler32(CONTENT[:size]) ^ 1:08x}"
    with puppet(lambda handler, _: given(handler, CONTENT[:size], Digest=wrong)) as (url, _):
        told = copy(engine, f"{url}/x", tmp_path / "x", code=3).stderr.decode()
    assert f"expected bytes of adler32 {wrong[8:]}, found others" in told
    assert list(tmp_path.iterdir()) == []


def test_a_short_answer_is_no_file(engine, tmp_path):
    def answer(handler, _):
        handler.say(200, b"abc", length=10)
        hang_up(handler)

    with puppet(answer) as (url, seen):
        told = copy(engine, f"{url}/x", tmp_path / "x", code=3).stderr.decode()
    assert "expected an answer" in told
    assert len(seen) > 1
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_busy_is_asked_again_and_one_that_refuses_is_not(engine, tmp_path):
    busy = lambda handler, count: handler.say(503, b"later", Retry_After="0") if count < 3 else given(handler, b"1")  # noqa: E731
    with puppet(busy) as (url, seen):
        copy(engine, f"{url}/x", tmp_path / "x")
    assert (len(seen), (tmp_path / "x").read_bytes()) == (3, b"1")
    with puppet(lambda handler, _: handler.say(403, b"not yours")) as (url, seen):
        told = copy(engine, f"{url}/x", tmp_path / "y", code=3).stderr.decode()
    assert "403 Forbidden (not yours)" in told
    assert len(seen) == 1


def test_a_token_goes_to_the_server_that_is_named_and_to_no_other(engine, tmp_path):
    env = {**os.environ, "BEARER_TOKEN": "sesame"}
    with (
        puppet(lambda handler, _: given(handler, b"1")) as (pool, there),
        puppet(lambda handler, _: handler.say(307, Location=f"{pool}/x?authz=ticket")) as (door, here),
    ):
        told = copy(engine, "-v", f"{door}/x", tmp_path / "x", env=env)
    assert here[0][2]["Authorization"] == "Bearer sesame"
    assert there[0][1] == "/x?authz=ticket"
    assert "Authorization" not in there[0][2]
    assert b"sesame" not in told.stdout + told.stderr
    assert b"ticket" not in told.stdout + told.stderr


def test_an_upload_is_led_elsewhere_before_its_bytes_are_sent(engine, tmp_path):
    (tmp_path / "x").write_bytes(CONTENT)
    stored = []

    def store(handler, _):
        handler.send_response_only(100)
        handler.end_headers()
        stored.append(handler.rfile.read(int(handler.headers["Content-Length"])))
        handler.say(201)

    def door(handler, _):
        if handler.command != "PUT":
            handler.rfile.read(int(handler.headers["Content-Length"]))
            return handler.say(404)
        handler.close_connection = True
        return handler.say(307, Location=f"{pool}/y")

    with puppet(store) as (pool, _), puppet(door) as (url, seen):
        end = end_of(events(engine, "--existing", "replace", tmp_path / "x", f"{url}/y"))
    assert [method for method, *_ in seen if method == "PUT"] == ["PUT"]
    assert (stored == [CONTENT], end["moved_bytes"] >= SIZE) == (True, True)


def test_redirections_in_a_circle_end(engine, tmp_path):
    with puppet(lambda handler, _: handler.say(302, Location="/x")) as (url, seen):
        told = copy(engine, f"{url}/x", tmp_path / "x", code=3).stderr.decode()
    assert "redirections" in told
    assert len(seen) < 20


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("Perf Marker\n Stripe Bytes Transferred: 5\nEnd\n", "without saying what came of it"),
        ("success\nfailure: disk is full\n", "disk is full"),
        ("", "without saying what came of it"),
    ],
)
def test_a_third_party_copy_is_done_only_if_its_last_line_says_so(engine, body, found):
    def answer(handler, _):
        if handler.command == "HEAD":
            return handler.say(200, length=5) if handler.path == "/x" else handler.say(404)
        return handler.say(202, body.encode())

    with puppet(answer) as (url, _):
        told = copy(engine, f"{url}/x", f"{url}/y", code=3).stderr.decode()
    assert found in told


def test_a_listing_cannot_lead_out_of_the_destination(engine, tmp_path):
    def answer(handler, _):
        handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        entry = "<D:response><D:href>{}</D:href><D:propstat><D:prop><D:resourcetype>{}</D:resourcetype></D:prop></D:propstat></D:response>"
        own = entry.format("/d/", "<D:collection/>")
        evil = entry.format("/d/%2e%2e%2fevil", "")
        handler.say(207, f'<D:multistatus xmlns:D="DAV:">{own}{evil}</D:multistatus>'.encode())

    with puppet(answer) as (url, _):
        told = copy(engine, "-r", f"{url}/d", tmp_path / "d", code=3).stderr.decode()
    assert "which is not in it" in told
    assert not (tmp_path / "evil").exists()
    assert leftovers(tmp_path) == []


def test_a_server_that_says_nothing_is_left_at_ctrl_c(engine, tmp_path):
    import signal
    import subprocess

    with puppet(lambda *_: time.sleep(5)) as (url, seen):
        process = subprocess.Popen([engine, "copy", f"{url}/x", tmp_path / "x"], stderr=subprocess.DEVNULL)
        while not seen:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=3) == 130
