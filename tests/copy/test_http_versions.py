"""A successful copy is one complete version of the source, even if the server reports no version or size."""

import os
import subprocess
import time

import pytest
from copykit import copy, end_of, events
from httpkit import puppet

from testkit import needs_programs, wait_until

SIZE = 9 << 20
OLD, NEW = os.urandom(SIZE), os.urandom(SIZE)
DATES = ["Sat, 14 Nov 2020 08:49:37 GMT", "Sat, 14 Nov 2020 08:49:38 GMT"]


def unasked(handler):
    """Read a request body that the test ignores."""
    handler.rfile.read(int(handler.headers.get("Content-Length", 0)))


def listing(path, size, date):
    """Return a listing of one file, with its time if `date` is not empty."""
    modification_time = f"<D:getlastmodified>{date}</D:getlastmodified>" if date else ""
    metadata = f"<D:resourcetype/><D:getcontentlength>{size}</D:getcontentlength>{modification_time}"
    text = f"<D:response><D:href>{path}</D:href><D:propstat><D:prop>{metadata}</D:prop>"
    text += "<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
    return f'<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">{text}</D:multistatus>'.encode()


class Unmarked:
    """A server with ranges that, like XRootD 5, sends no version of the file.

    If the file is `replaced`, the first response breaks off after 3 MB, and later ones have the other version.
    """

    def __init__(self, *, replaced, dated):
        self.replaced, self.dated, self.broken = replaced, dated, 0

    def __call__(self, handler, _):
        unasked(handler)
        version = int(self.replaced and self.broken > 0)
        if handler.command == "PROPFIND":
            return handler.reply(207, listing("/x", SIZE, DATES[version])) if self.dated else handler.reply(405)
        content, byte_range = (OLD, NEW)[version], handler.headers.get("Range")
        first, last = map(int, byte_range.removeprefix("bytes=").split("-")) if byte_range else (0, SIZE - 1)
        fields = {"Accept_Ranges": "bytes"}
        if byte_range:
            fields["Content_Range"] = f"bytes {first}-{last}/{SIZE}"
        part = content[first : last + 1]
        # The response that a client drops after reading the time does not count as the first.
        if self.broken or (self.dated and not byte_range):
            return handler.reply(206 if byte_range else 200, part, **fields)
        self.broken += 1
        handler.reply(206 if byte_range else 200, part[:3_000_000], length=len(part), **fields)
        handler.close_connection = True
        return handler.connection.close()


@pytest.mark.parametrize("dated", [False, True], ids=["nothing tells", "listings do"])
def test_versions_do_not_mix_if_responses_do_not_distinguish_them(engine, tmp_path, dated):
    with puppet(Unmarked(replaced=True, dated=dated)) as (url, _):
        if dated:
            output = copy(engine, f"{url}/x", tmp_path / "x", code=3).stderr.decode()
            assert "written during the copy" in output
            assert list(tmp_path.iterdir()) == []
        else:
            copy(engine, f"{url}/x", tmp_path / "x")
            assert (tmp_path / "x").read_bytes() == NEW


def test_chunks_are_fetched_if_listings_confirm_that_the_file_is_unchanged(engine, tmp_path):
    with puppet(Unmarked(replaced=False, dated=True)) as (url, recorded):
        copy(engine, "--concurrency", "1", f"{url}/x", tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == OLD
    assert [fields.get("Range") for method, _, fields in recorded if method == "GET"][
        -1
    ] == f"bytes=3000000-{SIZE - 1}"


@pytest.mark.parametrize("more", [5, -5], ids=["grown", "shrunk"])
def test_a_copy_through_the_client_fails_if_the_size_of_the_source_changes(engine, more):
    there = {}

    def respond(handler, _):
        if handler.command == "PUT":
            handler.send_response_only(100)
            handler.end_headers()
            content = handler.rfile.read(int(handler.headers["Content-Length"]))
            if len(content) == SIZE:
                there["y"] = content
            return handler.reply(201)
        unasked(handler)
        if handler.command == "DELETE":
            return handler.reply(204 if there.pop("y", None) else 404)
        if handler.command == "HEAD" and handler.path == "/x":
            return handler.reply(200, length=SIZE)
        if handler.command != "GET":
            return handler.reply(501 if handler.command == "COPY" else 404)
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for part in (OLD[: min(SIZE, SIZE + more)], NEW[: max(more, 0)]):
            handler.wfile.write(b"%x\r\n%b\r\n" % (len(part), part) if part else b"")
            # The surplus bytes arrive after the destination has all announced bytes.
            time.sleep(0.3)
        return handler.wfile.write(b"0\r\n\r\n")

    with puppet(respond) as (url, _):
        output = copy(engine, f"{url}/x", f"{url}/y", code=3).stderr.decode()
    assert "written during the copy" in output
    assert there == {}


@pytest.mark.parametrize(("remaining", "code"), [(7, 3), (17, 0)], ids=["a part", "all"])
def test_a_partial_file_of_an_own_failed_attempt_does_not_count_as_existing(engine, tmp_path, remaining, code):
    (tmp_path / "x").write_bytes(OLD[:17])
    there = {}

    def respond(handler, _):
        unasked(handler)
        if handler.command != "PUT":
            return handler.reply(200, length=there["x"]) if there else handler.reply(404)
        if there:
            return handler.reply(412)
        there["x"] = remaining
        handler.close_connection = True
        return handler.connection.close()

    with puppet(respond) as (url, _):
        output = events(engine, "--existing", "keep", tmp_path / "x", f"{url}/x", code=code)
    assert (end_of(output)["kept"], end_of(output)["errors"]) == ((0, 1) if code else (1, 0))


def test_a_dangling_link_is_reported_if_links_are_followed_to_a_server(engine, tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "gone").symlink_to("nowhere")

    def respond(handler, _):
        unasked(handler)
        return handler.reply(201)

    with puppet(respond) as (url, _):
        arguments = ["-r", "-T", "-L", "--existing", "replace"]
        output = copy(engine, *arguments, tmp_path / "d", f"{url}/d", code=3).stderr.decode()
    assert "gone" in output


@needs_programs("strace")
def test_a_file_renamed_by_another_copy_before_our_lock_stays_complete(engine, tmp_path):
    def respond(handler, _):
        requests = handler.headers.get("Range")
        first, last = map(int, requests.removeprefix("bytes=").split("-")) if requests else (0, SIZE - 1)
        fields = {"Content_Range": f"bytes {first}-{last}/{SIZE}"} if requests else {}
        handler.reply(206 if requests else 200, OLD[first : last + 1], ETag='"1"', Accept_Ranges="bytes", **fields)

    with puppet(respond) as (url, _):
        arguments = ["copy", "--existing", "replace", f"{url}/x", tmp_path / "x"]
        # If the other copy takes longer, ours is rejected because of its lock.
        late = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=flock:delay_enter=2s"]
        ours = subprocess.Popen([*late, engine, *arguments], stderr=subprocess.PIPE)
        wait_until(lambda: any(tmp_path.glob(".venturi-*.part")), "ours to have made it", 20)
        subprocess.run([engine, *arguments], check=True, timeout=60)
        output = ours.communicate(timeout=60)[1].decode()
    assert (ours.returncode, "another copy of the same" in output) == (3, True), output
    assert (tmp_path / "x").read_bytes() == OLD
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
