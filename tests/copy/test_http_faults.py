"""HTTP servers that fail, lie or redirect: no corruption, no hang, and no secret for other hosts."""

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


def received(handler, content=CONTENT, tag='"1"', **fields):
    """Reply to a GET with a range, like a correct server."""
    requests = handler.headers.get("Range")
    if requests is None:
        return handler.reply(200, content, ETag=tag, **fields)
    first, last = requests.removeprefix("bytes=").split("-")
    first, last = int(first), min(int(last), len(content) - 1)
    content_range = f"bytes {first}-{last}/{len(content)}"
    return handler.reply(206, content[first : last + 1], ETag=tag, Content_Range=content_range, **fields)


def hang_up(handler):
    """Close a connection in the middle of its response."""
    handler.close_connection = True
    handler.connection.close()


def disconnect(handler, **fields):
    """Reply with the whole file as a range, and close the connection after 3 MB."""
    handler.reply(206, CONTENT[:3_000_000], length=SIZE, Content_Range=f"bytes 0-{SIZE - 1}/{SIZE}", **fields)
    return hang_up(handler)


def test_an_interrupted_body_resumes_at_the_same_offset(engine, tmp_path):
    def respond(handler, count):
        if count > 1:
            return received(handler)
        return disconnect(handler, ETag='"1"')

    with puppet(respond) as (url, recorded):
        end = end_of(events(engine, f"{url}/x", tmp_path / "x"))
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert end["moved_bytes"] == SIZE
    (request,) = [fields for _, _, fields in recorded if "If-Range" in fields]
    assert (request["Range"], request["If-Range"]) == (f"bytes=3000000-{SIZE - 1}", '"1"')


def test_two_versions_of_a_file_do_not_mix(engine, tmp_path):
    def respond(handler, count):
        if count > 1:
            return handler.reply(200, os.urandom(SIZE), ETag='"2"')
        return disconnect(handler, ETag='"1"')

    with puppet(respond) as (url, _):
        output = copy(engine, f"{url}/x", tmp_path / "x", code=3).stderr.decode()
    assert "written during the copy" in output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [100, SIZE], ids=["small", "large"])
def test_a_download_with_a_wrong_checksum_is_not_created(engine, tmp_path, size):
    wrong = f"adler32={zlib.adler32(CONTENT[:size]) ^ 1:08x}"
    with puppet(lambda handler, _: received(handler, CONTENT[:size], Digest=wrong)) as (url, _):
        output = copy(engine, f"{url}/x", tmp_path / "x", code=3).stderr.decode()
    assert f"{tmp_path}/x: expected bytes of adler32 {wrong[8:]}, found a checksum" in output
    assert list(tmp_path.iterdir()) == []


def test_a_truncated_response_is_retried_and_not_saved(engine, tmp_path):
    def respond(handler, _):
        handler.reply(200, b"abc", length=10)
        hang_up(handler)

    with puppet(respond) as (url, recorded):
        output = copy(engine, f"{url}/x", tmp_path / "x", code=3).stderr.decode()
    assert "expected a response" in output
    assert len(recorded) > 1
    assert list(tmp_path.iterdir()) == []


def test_a_busy_server_is_retried_and_a_rejection_is_not(engine, tmp_path):
    def busy(handler, count):
        if count < 3:
            return handler.reply(503, b"later", Retry_After="0")
        return received(handler, b"1")

    with puppet(busy) as (url, recorded):
        copy(engine, f"{url}/x", tmp_path / "x")
    whole = [fields for _, _, fields in recorded if "Range" not in fields]
    assert (len(whole), (tmp_path / "x").read_bytes()) == (3, b"1")
    with puppet(lambda handler, _: handler.reply(403, b"not yours")) as (url, recorded):
        output = copy(engine, f"{url}/x", tmp_path / "y", code=3).stderr.decode()
    assert "403 Forbidden (not yours)" in output
    assert len(recorded) == 1


def test_a_token_is_sent_only_to_the_named_server(engine, tmp_path):
    env = {**os.environ, "BEARER_TOKEN": "sesame"}
    with (
        puppet(lambda handler, _: received(handler, b"1")) as (pool, there),
        puppet(lambda handler, _: handler.reply(307, Location=f"{pool}/x?authz=ticket")) as (service_port, here),
    ):
        output = copy(engine, "-v", f"{service_port}/x", tmp_path / "x", env=env)
    assert here[0][2]["Authorization"] == "Bearer sesame"
    assert there[0][1] == "/x?authz=ticket"
    assert "Authorization" not in there[0][2]
    assert b"sesame" not in output.stdout + output.stderr
    assert b"ticket" not in output.stdout + output.stderr


def test_an_upload_is_redirected_before_its_bytes_are_sent(engine, tmp_path):
    (tmp_path / "x").write_bytes(CONTENT)
    puts = []

    def service_port(handler, _):
        if handler.command != "PUT":
            handler.rfile.read(int(handler.headers["Content-Length"]))
            return handler.reply(404)
        handler.close_connection = True
        return handler.reply(307, Location=f"{pool}/y")

    with (
        puppet(lambda handler, _: puts.append(stored(handler))) as (pool, _),
        puppet(service_port) as (url, recorded),
    ):
        end = end_of(events(engine, "--existing", "replace", tmp_path / "x", f"{url}/y"))
    assert [method for method, *_ in recorded if method == "PUT"] == ["PUT"]
    assert (puts == [CONTENT], end["moved_bytes"] >= SIZE) == (True, True)


@pytest.mark.parametrize(
    ("status", "location"), [(302, "../there/y?b=1"), (307, "//{server}/there/y?b=1"), (303, "/there/y?b=1#c")]
)
def test_relative_and_see_other_redirections_are_followed(engine, tmp_path, status, location):
    def respond(handler, _):
        if handler.path == "/there/y?b=1":
            return received(handler)
        server = handler.headers["Host"]
        return handler.reply(status, Location=location.format(server=server))

    with puppet(respond) as (url, _):
        copy(engine, f"{url}/here/x?a=1", tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_a_redirection_loop_ends(engine, tmp_path):
    with puppet(lambda handler, _: handler.reply(302, Location="/x")) as (url, recorded):
        output = copy(engine, f"{url}/x", tmp_path / "x", code=3).stderr.decode()
    assert "redirections" in output
    assert len(recorded) < 20


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("Perf Marker\n Stripe Bytes Transferred: 5\nEnd\n", "a response without a result"),
        ("success\nfailure: disk is full\n", "disk is full"),
        ("", "a response without a result"),
    ],
)
def test_a_third_party_copy_succeeds_only_if_its_last_line_confirms_it(engine, body, found):
    def respond(handler, _):
        if handler.command == "HEAD":
            return handler.reply(200, length=5) if handler.path == "/x" else handler.reply(404)
        return handler.reply(202, body.encode())

    with puppet(respond) as (url, _):
        output = copy(engine, f"{url}/x", f"{url}/y", code=3).stderr.decode()
    assert found in output


def test_a_listing_cannot_name_files_outside_the_destination(engine, tmp_path):
    def respond(handler, _):
        handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        entry = "<D:response><D:href>{}</D:href><D:propstat><D:prop><D:resourcetype>{}</D:resourcetype></D:prop></D:propstat></D:response>"
        own = entry.format("/d/", "<D:collection/>")
        evil = entry.format("/d/%2e%2e%2fevil", "")
        handler.reply(207, f'<D:multistatus xmlns:D="DAV:">{own}{evil}</D:multistatus>'.encode())

    with puppet(respond) as (url, _):
        output = copy(engine, "-r", f"{url}/d", tmp_path / "d", code=3).stderr.decode()
    assert "outside of the directory" in output
    assert not (tmp_path / "evil").exists()
    assert leftovers(tmp_path) == []


def test_ctrl_c_ends_a_copy_from_a_silent_server(engine, tmp_path):
    remaining = threading.Event()
    with puppet(lambda *_: remaining.wait(5)) as (url, recorded):
        process = subprocess.Popen([engine, "copy", f"{url}/x", tmp_path / "x"], stderr=subprocess.DEVNULL)
        while not recorded:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=3) == 130
        remaining.set()


def listing(*entries, size=1, changed=None):
    """Return a multistatus of paths, each with a flag for directories; `size` and `changed` apply to all."""
    kind = {True: "<D:collection/>", False: ""}
    modification_time = f"<D:getlastmodified>{changed}</D:getlastmodified>" if changed else ""
    texts = [
        f"<D:response><D:href>{path}</D:href><D:propstat><D:prop><D:resourcetype>{kind[is_directory]}</D:resourcetype>"
        f"<D:getcontentlength>{size}</D:getcontentlength>{modification_time}</D:prop></D:propstat></D:response>"
        for path, is_directory in entries
    ]
    return f'<D:multistatus xmlns:D="DAV:">{"".join(texts)}</D:multistatus>'.encode()


def read_body(handler):
    """Return the body of a request."""
    return handler.rfile.read(int(handler.headers.get("Content-Length", 0)))


@pytest.mark.parametrize(
    ("received", "found"),
    [
        (listing(("/d/", True), ("/d/a%00b", False)), "/d/a%00b"),
        (listing(), "nothing"),
        (b'<D:multistatus xmlns:D="DAV:"><D:response/></D:multistatus>', "without a path"),
    ],
    ids=["zero byte", "no directory", "no path"],
)
def test_an_invalid_listing_is_reported(engine, tmp_path, received, found):
    def respond(handler, _):
        read_body(handler)
        handler.reply(207, received)

    with puppet(respond) as (url, _):
        output = copy(engine, "-r", f"{url}/d", tmp_path / "d", code=3).stderr.decode()
    assert found in output


def test_a_large_tree_is_listed_once_with_more_requests_in_flight_than_threads(engine, tmp_path):
    at_once = 32
    names = [f"/d/{number:03d}" for number in range(10 * at_once)]
    # The server sends no response before this many requests.
    requests, enough = itertools.count(1), threading.Event()

    def respond(handler, _):
        if handler.command == "PROPFIND":
            read_body(handler)
            return handler.reply(207, listing(("/d/", True), *((name, False) for name in names)))
        if next(requests) >= at_once:
            enough.set()
        assert enough.wait(timeout=30)
        return handler.reply(200, handler.path.encode())

    with puppet(respond) as (url, recorded):
        copy(engine, "-r", f"{url}/d", tmp_path / "d")
    assert [method for method, *_ in recorded].count("PROPFIND") == 1
    assert {f"/d/{path.name}": path.read_text() for path in (tmp_path / "d").iterdir()} == {
        name: name for name in names
    }


@pytest.mark.parametrize("status", [201, 405], ids=["called new", "there"])
def test_existing_files_are_kept_for_any_response_to_the_creation_of_their_directory(engine, tmp_path, status):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x").write_bytes(b"2")

    def respond(handler, _):
        read_body(handler)
        if handler.command == "MKCOL":
            return handler.reply(status)
        return handler.reply(207, listing(("/d/", True), ("/d/x", False)))

    with puppet(respond) as (url, recorded):
        end = end_of(events(engine, "-r", "-T", "--existing", "keep", tmp_path / "d", f"{url}/d"))
    assert (end["files"], end["kept"]) == (0, 1)
    assert "PUT" not in [method for method, *_ in recorded]


def test_nothing_is_replaced_if_a_listing_fails_and_existing_files_must_be_kept(engine, tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x").write_bytes(b"2")

    def respond(handler, _):
        read_body(handler)
        return handler.reply(405 if handler.command == "MKCOL" else 403)

    with puppet(respond) as (url, recorded):
        output = copy(engine, "-r", "-T", "--existing", "keep", tmp_path / "d", f"{url}/d", code=3).stderr.decode()
    assert "403 Forbidden" in output
    assert "PUT" not in [method for method, *_ in recorded]


@pytest.mark.parametrize("existing", ["keep", "update"])
def test_each_file_is_queried_if_the_server_has_no_listings(engine, tmp_path, existing):
    (tmp_path / "d").mkdir()
    for name in ("there", "new"):
        (tmp_path / "d" / name).write_bytes(b"2")

    def respond(handler, _):
        read_body(handler)
        if handler.command == "HEAD" and handler.path == "/d/there":
            return handler.reply(200, length=1, Last_Modified="Sat, 06 Nov 2094 08:49:37 GMT")
        return handler.reply({"PROPFIND": 405, "HEAD": 404}.get(handler.command, 201))

    with puppet(respond) as (url, recorded):
        end = end_of(events(engine, "-r", "-T", "--existing", existing, tmp_path / "d", f"{url}/d"))
    assert (end["files"], end["kept"], end["errors"]) == (1, 1, 0)
    assert [path for method, path, _ in recorded if method == "PUT"] == ["/d/new"]


def test_a_file_created_during_the_copy_is_kept_if_the_server_checks_if_none_match(engine, tmp_path):
    (tmp_path / "x").write_bytes(b"2")

    def respond(handler, _):
        read_body(handler)
        return handler.reply(412 if handler.headers.get("If-None-Match") == "*" else 404)

    with puppet(respond) as (url, _):
        end = end_of(events(engine, "--existing", "keep", tmp_path / "x", f"{url}/x"))
    assert (end["files"], end["kept"], end["errors"]) == (0, 1, 0)


def test_an_upload_whose_source_changes_is_deleted_from_the_server(engine, tmp_path):
    (tmp_path / "x").write_bytes(CONTENT)

    def respond(handler, _):
        if handler.command == "PUT":
            handler.send_response_only(100)
            handler.end_headers()
            read_body(handler)
            (tmp_path / "x").write_bytes(b"another")
        return handler.reply(201 if handler.command == "PUT" else 204)

    with puppet(respond) as (url, recorded):
        output = copy(engine, "--existing", "replace", tmp_path / "x", f"{url}/x", code=3).stderr.decode()
    assert "changed during the copy" in output
    assert [method for method, *_ in recorded][-2:] == ["PUT", "DELETE"]


def test_a_body_of_unknown_length_is_rejected(engine, tmp_path):
    def respond(handler, _):
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(b"abc")
        hang_up(handler)

    with puppet(respond) as (url, _):
        output = copy(engine, f"{url}/x", tmp_path / "x", code=3).stderr.decode()
    assert "expected a body of known length" in output
    assert list(tmp_path.iterdir()) == []


def stored(handler):
    """Request the body of an upload, store it, and return it."""
    handler.send_response_only(100)
    handler.end_headers()
    content = read_body(handler)
    handler.reply(201)
    return content


def unable(handler):
    """Reply like a server that cannot copy and has one file of `SIZE` bytes, `/x`."""
    read_body(handler)
    if handler.command == "HEAD" and handler.path == "/x":
        return handler.reply(200, length=SIZE)
    return handler.reply(501 if handler.command == "COPY" else 404)


def test_a_copy_through_the_client_follows_redirections_of_the_destination(engine):
    puts = []

    def service_port(handler, _):
        if handler.command == "GET":
            return received(handler)
        if handler.command != "PUT":
            return unable(handler)
        handler.close_connection = True
        return handler.reply(307, Location=f"{pool}/y")

    with puppet(lambda handler, _: puts.append(stored(handler))) as (pool, _), puppet(service_port) as (url, _):
        output = events(engine, f"{url}/x", f"{url}/y")
    assert puts == [CONTENT]
    assert [event["method"] for event in output if event["event"] == "file"] == ["through the client"]


def test_a_copy_through_the_client_is_repeated_if_the_source_disconnects(engine):
    get_count, puts = [], []

    def respond(handler, _):
        if handler.command == "PUT":
            return puts.append(stored(handler))
        if handler.command != "GET":
            return unable(handler)
        get_count.append(1)
        if len(get_count) > 1:
            return received(handler)
        handler.reply(200, CONTENT[:1_000_000], length=SIZE)
        return hang_up(handler)

    with puppet(respond) as (url, _):
        end = end_of(events(engine, f"{url}/x", f"{url}/y"))
    assert (puts[-1], len(get_count), end["errors"]) == (CONTENT, 2, 0)


@pytest.mark.parametrize("rejected", [405, 500, None], ids=["405", "500", "silence"])
@pytest.mark.parametrize("known", [False, True], ids=["a stranger", "known"])
def test_a_server_that_fails_on_checksum_requests_gets_requests_without_them(engine, tmp_path, rejected, known):
    over = threading.Event()

    def respond(handler, _):
        if handler.command == "PROPFIND":
            read_body(handler)
            return handler.reply(207, listing(("/d/", True), ("/d/x", False)))
        if "Want-Digest" not in handler.headers:
            return received(handler, b"1")
        return handler.reply(rejected) if rejected else over.wait(timeout=60)

    with puppet(respond) as (url, recorded):
        operands = ["-r", f"{url}/d/", tmp_path] if known else [f"{url}/x", tmp_path / "x"]
        copy(engine, "--concurrency", "1", *operands)
        over.set()
    assert (tmp_path / "x").read_bytes() == b"1"
    # After silence on a reused connection, the client tries another one, because the connection can be the cause.
    assert [method for method, *_ in recorded].count("GET") == (3 if known and rejected is None else 2)


def test_an_unknown_server_silent_after_a_checksum_request_gets_no_second_one(engine, tmp_path):
    over = threading.Event()

    def respond(handler, _):
        return over.wait(timeout=60) if "Want-Digest" in handler.headers else received(handler, b"1")

    with puppet(respond) as (url, recorded):
        (tmp_path / "list").write_text("".join(f"{url}/{name} {tmp_path}/{name}\n" for name in "xyz"))
        copy(engine, "--concurrency", "1", "--list", tmp_path / "list")
        over.set()
    assert [(tmp_path / name).read_bytes() for name in "xyz"] == [b"1"] * 3
    assert [("Want-Digest" in fields, path) for _, path, fields in recorded] == [
        (False, "/x"),
        (True, "/x"),
        (False, "/y"),
        (False, "/z"),
    ]


def test_an_unrequested_checksum_is_ignored(engine, tmp_path):
    def respond(handler, _):
        if "Want-Digest" in handler.headers:
            return handler.reply(405)
        return handler.reply(200, b"1", Digest="adler32=12345678")

    with puppet(respond) as (url, _):
        copy(engine, f"{url}/x", tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == b"1"


@pytest.mark.parametrize("size", [100, SIZE], ids=["small", "large"])
@pytest.mark.parametrize("field", ["Digest", "Repr-Digest"])
def test_an_unknown_server_gets_both_checksum_headers_and_its_checksum_is_trusted(engine, tmp_path, size, field):
    wrong = zlib.adler32(CONTENT[:size]) ^ 1
    coded = {
        "Digest": f"adler32={wrong:08x}",
        "Repr-Digest": f"adler=:{base64.b64encode(wrong.to_bytes(4, 'big')).decode()}:",
    }

    def respond(handler, _):
        output = {field: coded[field]} if f"Want-{field}" in handler.headers else {}
        return received(handler, CONTENT[:size], **output)

    with puppet(respond) as (url, _):
        output = copy(engine, f"{url}/x", tmp_path / "x", code=3).stderr.decode()
    assert f"{tmp_path}/x: expected bytes of adler32 {wrong:08x}, found a checksum" in output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [100, SIZE], ids=["small", "large"])
def test_xrootd_gets_no_checksum_request_that_would_delay_its_response(engine, tmp_path, size):
    """The client opens no unnecessary connections: each prepared connection is used."""
    # The server sends no chunk before each session has requested one.
    ranges, enough = itertools.count(1), threading.Event()

    def respond(handler, _):
        handler.version_string = lambda: "XrootD/v5.5.3"
        if handler.command == "PROPFIND":
            read_body(handler)
            return handler.reply(207, listing(("/x", False), size=size, changed="Sun, 06 Nov 1994 08:49:37 GMT"))
        if "Range" in handler.headers:
            if next(ranges) == 2:
                enough.set()
            assert enough.wait(timeout=30)
        return received(handler, CONTENT[:size], tag='W/"1"')

    met = []
    with puppet(respond, met) as (url, recorded):
        copy(engine, "--concurrency", "2", f"{url}/x", tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == CONTENT[:size]
    assert (tmp_path / "x").stat().st_mtime == 784_111_777
    # One for the first response. For a large file, the client drops it and requests chunks on two others.
    assert len(met) == (1 if size == 100 else 3)
    assert not any("Want-Digest" in fields for _, _, fields in recorded)


def test_a_checksum_that_xrootd_does_not_return_is_requested_again(engine, tmp_path):
    over, forgotten = threading.Event(), itertools.count()

    def respond(handler, _):
        handler.version_string = lambda: "XrootD/v5.5.3"
        if handler.command == "PROPFIND":
            read_body(handler)
            return handler.reply(207, listing(("/d/", True), ("/d/x", False), size=1))
        if handler.command == "HEAD" and next(forgotten) == 0:
            return over.wait(timeout=60)
        return received(handler, b"1", Digest=f"adler32={zlib.adler32(b'1'):08x}")

    started = time.monotonic()
    with puppet(respond) as (url, recorded):
        copy(engine, "-r", "--verify", f"{url}/d/", tmp_path)
        over.set()
    # On a reused connection, the client waits as long as the checksum of a small file can take.
    assert 9 < time.monotonic() - started < 30
    assert (tmp_path / "x").read_bytes() == b"1"
    assert [method for method, *_ in recorded].count("HEAD") == 2


@pytest.mark.parametrize("change", [1, 2, 3])
def test_a_change_visible_only_in_listings_is_detected_at_any_request(engine, tmp_path, change):
    """From a given request on, the server has another file of the same size."""
    files = [CONTENT, CONTENT[::-1]]

    def respond(handler, count):
        handler.version_string = lambda: "XrootD/v5.5.3"
        version = int(count > change)
        if handler.command == "PROPFIND":
            read_body(handler)
            return handler.reply(
                207, listing(("/x", False), size=SIZE, changed=f"Sun, 06 Nov 1994 08:49:3{version} GMT")
            )
        return received(handler, files[version], tag='W/"1"')

    with puppet(respond) as (url, _):
        done = subprocess.run(
            [engine, "copy", "--fixed", f"{url}/x", tmp_path / "x"], capture_output=True, check=False
        )
    if done.returncode:
        assert b"written during the copy" in done.stderr
        assert list(tmp_path.iterdir()) == []
    else:
        assert (tmp_path / "x").read_bytes() in files
    assert done.returncode == (0 if change == 1 else 3)


def test_a_failed_copy_can_be_resumed_if_only_listings_distinguish_versions(engine, tmp_path):
    rejected, changed = threading.Event(), "Sun, 06 Nov 1994 08:49:37 GMT"

    def respond(handler, _):
        handler.version_string = lambda: "XrootD/v5.5.3"
        if handler.command == "PROPFIND":
            read_body(handler)
            return handler.reply(207, listing(("/x", False), size=SIZE, changed=changed))
        if rejected.is_set() or "Range" not in handler.headers:
            return received(handler, tag='W/"1"')
        if handler.headers["Range"] != f"bytes=0-{SIZE - 1}":
            rejected.set()
            return handler.reply(403)
        return disconnect(handler)

    with puppet(respond) as (url, recorded):
        copy(engine, "--concurrency", "1", f"{url}/x", tmp_path / "x", code=3)
        before = len(recorded)
        copy(engine, "--concurrency", "1", f"{url}/x", tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == CONTENT
    requests = [fields["Range"] for _, _, fields in recorded[before:] if "Range" in fields]
    assert requests == [f"bytes={2 << 20}-{SIZE - 1}"]
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
