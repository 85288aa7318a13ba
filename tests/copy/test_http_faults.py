"""Servers that fail, lie, or lead elsewhere: no corruption, no hang, no secret to a stranger."""

import base64
import itertools
import os
import signal
import subprocess
import threading
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


def break_off(handler, **fields):
    """Answer with all as a range, and end after 3 MB of it."""
    handler.say(206, CONTENT[:3_000_000], length=SIZE, Content_Range=f"bytes 0-{SIZE - 1}/{SIZE}", **fields)
    return hang_up(handler)


def test_a_body_that_breaks_off_goes_on_where_it_was(engine, tmp_path):
    def answer(handler, count):
        if count > 1:
            return given(handler)
        return break_off(handler, ETag='"1"')

    with puppet(answer) as (url, seen):
        end = end_of(events(engine, f"{url}/x", tmp_path / "x"))
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert end["moved_bytes"] == SIZE
    (asked,) = [fields for _, _, fields in seen if "If-Range" in fields]
    assert (asked["Range"], asked["If-Range"]) == (f"bytes=3000000-{SIZE - 1}", '"1"')


def test_two_versions_of_a_file_do_not_mix(engine, tmp_path):
    def answer(handler, count):
        if count > 1:
            return handler.say(200, os.urandom(SIZE), ETag='"2"')
        return break_off(handler, ETag='"1"')

    with puppet(answer) as (url, _):
        told = copy(engine, f"{url}/x", tmp_path / "x", code=3).stderr.decode()
    assert "it was replaced while it was copied" in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [100, SIZE], ids=["small", "large"])
def test_bytes_that_are_not_those_of_the_checksum_get_no_name(engine, tmp_path, size):
    wrong = f"adler32={zlib.adler32(CONTENT[:size]) ^ 1:08x}"
    with puppet(lambda handler, _: given(handler, CONTENT[:size], Digest=wrong)) as (url, _):
        told = copy(engine, f"{url}/x", tmp_path / "x", code=3).stderr.decode()
    assert f"{tmp_path}/x: expected bytes of adler32 {wrong[8:]}, found others" in told
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
    whole = [fields for _, _, fields in seen if "Range" not in fields]
    assert (len(whole), (tmp_path / "x").read_bytes()) == (3, b"1")
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
    puts = []

    def door(handler, _):
        if handler.command != "PUT":
            handler.rfile.read(int(handler.headers["Content-Length"]))
            return handler.say(404)
        handler.close_connection = True
        return handler.say(307, Location=f"{pool}/y")

    with puppet(lambda handler, _: puts.append(stored(handler))) as (pool, _), puppet(door) as (url, seen):
        end = end_of(events(engine, "--existing", "replace", tmp_path / "x", f"{url}/y"))
    assert [method for method, *_ in seen if method == "PUT"] == ["PUT"]
    assert (puts == [CONTENT], end["moved_bytes"] >= SIZE) == (True, True)


@pytest.mark.parametrize(
    ("status", "location"), [(302, "../there/y?b=1"), (307, "//{server}/there/y?b=1"), (303, "/there/y?b=1#c")]
)
def test_a_redirection_may_be_relative_or_to_see_something_else(engine, tmp_path, status, location):
    def answer(handler, _):
        if handler.path == "/there/y?b=1":
            return given(handler)
        server = handler.headers["Host"]
        return handler.say(status, Location=location.format(server=server))

    with puppet(answer) as (url, _):
        copy(engine, f"{url}/here/x?a=1", tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == CONTENT


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
    left = threading.Event()
    with puppet(lambda *_: left.wait(5)) as (url, seen):
        process = subprocess.Popen([engine, "copy", f"{url}/x", tmp_path / "x"], stderr=subprocess.DEVNULL)
        while not seen:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=3) == 130
        left.set()


def listing(*entries, size=1, changed=None):
    """Return a multistatus of paths and whether each is a directory; of their size, and when they were changed last."""
    kind = {True: "<D:collection/>", False: ""}
    time_of = f"<D:getlastmodified>{changed}</D:getlastmodified>" if changed else ""
    texts = [
        f"<D:response><D:href>{path}</D:href><D:propstat><D:prop><D:resourcetype>{kind[is_directory]}</D:resourcetype>"
        f"<D:getcontentlength>{size}</D:getcontentlength>{time_of}</D:prop></D:propstat></D:response>"
        for path, is_directory in entries
    ]
    return f'<D:multistatus xmlns:D="DAV:">{"".join(texts)}</D:multistatus>'.encode()


def body_of(handler):
    """Read the body of a request to its end."""
    return handler.rfile.read(int(handler.headers.get("Content-Length", 0)))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (listing(("/d/", True), ("/d/a%00b", False)), "/d/a%00b"),
        (listing(), "nothing"),
        (b'<D:multistatus xmlns:D="DAV:"><D:response/></D:multistatus>', "without a path"),
    ],
    ids=["zero byte", "no directory", "no path"],
)
def test_a_listing_that_names_what_cannot_be_is_told(engine, tmp_path, given, found):
    def answer(handler, _):
        body_of(handler)
        handler.say(207, given)

    with puppet(answer) as (url, _):
        told = copy(engine, "-r", f"{url}/d", tmp_path / "d", code=3).stderr.decode()
    assert found in told


def test_a_tree_of_many_files_is_listed_once_and_more_of_them_are_under_way_than_there_are_threads(engine, tmp_path):
    at_once = 32
    names = [f"/d/{number:03d}" for number in range(10 * at_once)]
    # None is answered before so many have been asked for.
    asked, enough = itertools.count(1), threading.Event()

    def answer(handler, _):
        if handler.command == "PROPFIND":
            body_of(handler)
            return handler.say(207, listing(("/d/", True), *((name, False) for name in names)))
        if next(asked) >= at_once:
            enough.set()
        assert enough.wait(timeout=30)
        return handler.say(200, handler.path.encode())

    with puppet(answer) as (url, seen):
        copy(engine, "-r", f"{url}/d", tmp_path / "d")
    assert [method for method, *_ in seen].count("PROPFIND") == 1
    assert {f"/d/{path.name}": path.read_text() for path in (tmp_path / "d").iterdir()} == {
        name: name for name in names
    }


@pytest.mark.parametrize("status", [201, 405], ids=["called new", "there"])
def test_what_is_there_is_kept_whatever_the_server_says_of_its_directory(engine, tmp_path, status):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x").write_bytes(b"2")

    def answer(handler, _):
        body_of(handler)
        if handler.command == "MKCOL":
            return handler.say(status)
        return handler.say(207, listing(("/d/", True), ("/d/x", False)))

    with puppet(answer) as (url, seen):
        end = end_of(events(engine, "-r", "-T", "--existing", "keep", tmp_path / "d", f"{url}/d"))
    assert (end["files"], end["kept"]) == (0, 1)
    assert "PUT" not in [method for method, *_ in seen]


def test_nothing_is_replaced_where_a_listing_fails_and_all_is_to_be_kept(engine, tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x").write_bytes(b"2")

    def answer(handler, _):
        body_of(handler)
        return handler.say(405 if handler.command == "MKCOL" else 403)

    with puppet(answer) as (url, seen):
        told = copy(engine, "-r", "-T", "--existing", "keep", tmp_path / "d", f"{url}/d", code=3).stderr.decode()
    assert "403 Forbidden" in told
    assert "PUT" not in [method for method, *_ in seen]


@pytest.mark.parametrize("existing", ["keep", "update"])
def test_each_file_is_asked_for_where_there_are_no_listings(engine, tmp_path, existing):
    (tmp_path / "d").mkdir()
    for name in ("there", "new"):
        (tmp_path / "d" / name).write_bytes(b"2")

    def answer(handler, _):
        body_of(handler)
        if handler.command == "HEAD" and handler.path == "/d/there":
            return handler.say(200, length=1, Last_Modified="Sat, 06 Nov 2094 08:49:37 GMT")
        return handler.say({"PROPFIND": 405, "HEAD": 404}.get(handler.command, 201))

    with puppet(answer) as (url, seen):
        end = end_of(events(engine, "-r", "-T", "--existing", existing, tmp_path / "d", f"{url}/d"))
    assert (end["files"], end["kept"], end["errors"]) == (1, 1, 0)
    assert [path for method, path, _ in seen if method == "PUT"] == ["/d/new"]


def test_a_file_that_came_to_be_meanwhile_is_kept_if_the_server_understands_that(engine, tmp_path):
    (tmp_path / "x").write_bytes(b"2")

    def answer(handler, _):
        body_of(handler)
        return handler.say(412 if handler.headers.get("If-None-Match") == "*" else 404)

    with puppet(answer) as (url, _):
        end = end_of(events(engine, "--existing", "keep", tmp_path / "x", f"{url}/x"))
    assert (end["files"], end["kept"], end["errors"]) == (0, 1, 0)


def test_what_was_written_to_while_it_was_sent_does_not_stay(engine, tmp_path):
    (tmp_path / "x").write_bytes(CONTENT)

    def answer(handler, _):
        if handler.command == "PUT":
            handler.send_response_only(100)
            handler.end_headers()
            body_of(handler)
            (tmp_path / "x").write_bytes(b"another")
        return handler.say(201 if handler.command == "PUT" else 204)

    with puppet(answer) as (url, seen):
        told = copy(engine, "--existing", "replace", tmp_path / "x", f"{url}/x", code=3).stderr.decode()
    assert "it was written to while it was copied" in told
    assert [method for method, *_ in seen][-2:] == ["PUT", "DELETE"]


def test_a_body_that_ends_with_its_connection_is_no_file(engine, tmp_path):
    def answer(handler, _):
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(b"abc")
        hang_up(handler)

    with puppet(answer) as (url, _):
        told = copy(engine, f"{url}/x", tmp_path / "x", code=3).stderr.decode()
    assert "expected bytes whose end is told" in told
    assert list(tmp_path.iterdir()) == []


def stored(handler):
    """Say that the body of an upload is wanted, take it, and return it."""
    handler.send_response_only(100)
    handler.end_headers()
    content = body_of(handler)
    handler.say(201)
    return content


def unable(handler):
    """Answer as a server that does not copy, and has one file of `SIZE` bytes, `/x`."""
    body_of(handler)
    if handler.command == "HEAD" and handler.path == "/x":
        return handler.say(200, length=SIZE)
    return handler.say(501 if handler.command == "COPY" else 404)


def test_what_goes_through_the_client_is_led_elsewhere_by_the_destination(engine):
    puts = []

    def door(handler, _):
        if handler.command == "GET":
            return given(handler)
        if handler.command != "PUT":
            return unable(handler)
        handler.close_connection = True
        return handler.say(307, Location=f"{pool}/y")

    with puppet(lambda handler, _: puts.append(stored(handler))) as (pool, _), puppet(door) as (url, _):
        told = events(engine, f"{url}/x", f"{url}/y")
    assert puts == [CONTENT]
    assert [event["how"] for event in told if event["event"] == "file"] == ["through the client"]


def test_what_goes_through_the_client_is_sent_again_when_the_source_breaks_off(engine):
    gets, puts = [], []

    def answer(handler, _):
        if handler.command == "PUT":
            return puts.append(stored(handler))
        if handler.command != "GET":
            return unable(handler)
        gets.append(1)
        if len(gets) > 1:
            return given(handler)
        handler.say(200, CONTENT[:1_000_000], length=SIZE)
        return hang_up(handler)

    with puppet(answer) as (url, _):
        end = end_of(events(engine, f"{url}/x", f"{url}/y"))
    assert (puts[-1], len(gets), end["errors"]) == (CONTENT, 2, 0)


@pytest.mark.parametrize("refused", [405, 500, None], ids=["405", "500", "silence"])
@pytest.mark.parametrize("known", [False, True], ids=["a stranger", "known"])
def test_a_server_that_stumbles_over_a_checksum_is_asked_for_bytes_alone(engine, tmp_path, refused, known):
    over = threading.Event()

    def answer(handler, _):
        if handler.command == "PROPFIND":
            body_of(handler)
            return handler.say(207, listing(("/d/", True), ("/d/x", False)))
        if "Want-Digest" not in handler.headers:
            return given(handler, b"1")
        return handler.say(refused) if refused else over.wait(timeout=60)

    with puppet(answer) as (url, seen):
        places = ["-r", f"{url}/d/", tmp_path] if known else [f"{url}/x", tmp_path / "x"]
        copy(engine, "--concurrency", "1", *places)
        over.set()
    assert (tmp_path / "x").read_bytes() == b"1"
    # Who is silent over a file on a connection that was kept is asked on another, too: the connection may be at fault.
    assert [method for method, *_ in seen].count("GET") == (3 if known and refused is None else 2)


def test_a_stranger_that_is_silent_over_a_checksum_is_asked_for_no_other(engine, tmp_path):
    over = threading.Event()

    def answer(handler, _):
        return over.wait(timeout=60) if "Want-Digest" in handler.headers else given(handler, b"1")

    with puppet(answer) as (url, seen):
        (tmp_path / "list").write_text("".join(f"{url}/{name} {tmp_path}/{name}\n" for name in "xyz"))
        copy(engine, "--concurrency", "1", "--list", tmp_path / "list")
        over.set()
    assert [(tmp_path / name).read_bytes() for name in "xyz"] == [b"1"] * 3
    assert [("Want-Digest" in fields, path) for _, path, fields in seen] == [
        (False, "/x"),
        (True, "/x"),
        (False, "/y"),
        (False, "/z"),
    ]


def test_a_checksum_that_nobody_asked_for_is_of_another_file(engine, tmp_path):
    def answer(handler, _):
        if "Want-Digest" in handler.headers:
            return handler.say(405)
        return handler.say(200, b"1", Digest="adler32=12345678")

    with puppet(answer) as (url, _):
        copy(engine, f"{url}/x", tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == b"1"


@pytest.mark.parametrize("size", [100, SIZE], ids=["small", "large"])
@pytest.mark.parametrize("field", ["Digest", "Repr-Digest"])
def test_a_stranger_is_asked_for_the_checksum_in_both_ways_and_believed(engine, tmp_path, size, field):
    wrong = zlib.adler32(CONTENT[:size]) ^ 1
    coded = {
        "Digest": f"adler32={wrong:08x}",
        "Repr-Digest": f"adler=:{base64.b64encode(wrong.to_bytes(4, 'big')).decode()}:",
    }

    def answer(handler, _):
        told = {field: coded[field]} if f"Want-{field}" in handler.headers else {}
        return given(handler, CONTENT[:size], **told)

    with puppet(answer) as (url, _):
        told = copy(engine, f"{url}/x", tmp_path / "x", code=3).stderr.decode()
    assert f"{tmp_path}/x: expected bytes of adler32 {wrong:08x}, found others" in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [100, SIZE], ids=["small", "large"])
def test_xrootd_is_not_asked_for_a_checksum_that_it_would_compute_first(engine, tmp_path, size):
    """Nor has it more connections than are of use: each that is opened before it is needed is used."""
    # No piece is there before as many are asked for as there are sessions, so that each session has one.
    ranges, enough = itertools.count(1), threading.Event()

    def answer(handler, _):
        handler.version_string = lambda: "XrootD/v5.5.3"
        if handler.command == "PROPFIND":
            body_of(handler)
            return handler.say(207, listing(("/x", False), size=size, changed="Sun, 06 Nov 1994 08:49:37 GMT"))
        if "Range" in handler.headers:
            if next(ranges) == 2:
                enough.set()
            assert enough.wait(timeout=30)
        return given(handler, CONTENT[:size], tag='W/"1"')

    met = []
    with puppet(answer, met) as (url, seen):
        copy(engine, "--concurrency", "2", f"{url}/x", tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == CONTENT[:size]
    assert (tmp_path / "x").stat().st_mtime == 784_111_777
    # One for the first answer, which of a large file is left for those to the pieces.
    assert len(met) == (1 if size == 100 else 3)
    assert not any("Want-Digest" in fields for _, _, fields in seen)


def test_a_checksum_that_xrootd_forgets_to_tell_is_asked_for_again(engine, tmp_path):
    over, forgotten = threading.Event(), itertools.count()

    def answer(handler, _):
        handler.version_string = lambda: "XrootD/v5.5.3"
        if handler.command == "PROPFIND":
            body_of(handler)
            return handler.say(207, listing(("/d/", True), ("/d/x", False), size=1))
        if handler.command == "HEAD" and next(forgotten) == 0:
            return over.wait(timeout=60)
        return given(handler, b"1", Digest=f"adler32={zlib.adler32(b'1'):08x}")

    began = time.monotonic()
    with puppet(answer) as (url, seen):
        copy(engine, "-r", "--verify", f"{url}/d/", tmp_path)
        over.set()
    # It is on a connection that was kept, and is waited for as long as a small file's checksum may take.
    assert 9 < time.monotonic() - began < 30
    assert (tmp_path / "x").read_bytes() == b"1"
    assert [method for method, *_ in seen].count("HEAD") == 2


@pytest.mark.parametrize("change", [1, 2, 3])
def test_a_change_that_only_listings_tell_is_seen_whenever_it_comes(engine, tmp_path, change):
    """What is at the server is another file from its so-manieth request on, of the same size."""
    files = [CONTENT, CONTENT[::-1]]

    def answer(handler, count):
        handler.version_string = lambda: "XrootD/v5.5.3"
        version = int(count > change)
        if handler.command == "PROPFIND":
            body_of(handler)
            return handler.say(
                207, listing(("/x", False), size=SIZE, changed=f"Sun, 06 Nov 1994 08:49:3{version} GMT")
            )
        return given(handler, files[version], tag='W/"1"')

    with puppet(answer) as (url, _):
        done = subprocess.run(
            [engine, "copy", "--fixed", f"{url}/x", tmp_path / "x"], capture_output=True, check=False
        )
    if done.returncode:
        assert b"it was replaced while it was copied" in done.stderr
        assert list(tmp_path.iterdir()) == []
    else:
        assert (tmp_path / "x").read_bytes() in files
    assert done.returncode == (0 if change == 1 else 3)


def test_what_a_refused_copy_has_left_is_of_use_where_listings_alone_tell_versions(engine, tmp_path):
    refused, changed = threading.Event(), "Sun, 06 Nov 1994 08:49:37 GMT"

    def answer(handler, _):
        handler.version_string = lambda: "XrootD/v5.5.3"
        if handler.command == "PROPFIND":
            body_of(handler)
            return handler.say(207, listing(("/x", False), size=SIZE, changed=changed))
        if refused.is_set() or "Range" not in handler.headers:
            return given(handler, tag='W/"1"')
        if handler.headers["Range"] != f"bytes=0-{SIZE - 1}":
            refused.set()
            return handler.say(403)
        return break_off(handler)

    with puppet(answer) as (url, seen):
        copy(engine, "--concurrency", "1", f"{url}/x", tmp_path / "x", code=3)
        before = len(seen)
        copy(engine, "--concurrency", "1", f"{url}/x", tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == CONTENT
    asked = [fields["Range"] for _, _, fields in seen[before:] if "Range" in fields]
    assert asked == [f"bytes={2 << 20}-{SIZE - 1}"]
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
