"""What is called done is one version of the source and all of it, where a server does not say which version it gives, or how much."""

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
    """Take the body of a request that it does not matter for."""
    handler.rfile.read(int(handler.headers.get("Content-Length", 0)))


def listing(path, size, date):
    """Return a listing of one file, with its time if there is one."""
    time_of = f"<D:getlastmodified>{date}</D:getlastmodified>" if date else ""
    facts = f"<D:resourcetype/><D:getcontentlength>{size}</D:getcontentlength>{time_of}"
    text = f"<D:response><D:href>{path}</D:href><D:propstat><D:prop>{facts}</D:prop>"
    text += "<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
    return f'<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">{text}</D:multistatus>'.encode()


class Unmarked:
    """A server with ranges, as XRootD 5 has them: nothing in an answer says which version it is of.

    The first answer in which the file is `replaced` breaks off after 3 MB, and what comes later is of the other version.
    """

    def __init__(self, *, replaced, dated):
        self.replaced, self.dated, self.broken = replaced, dated, 0

    def __call__(self, handler, _):
        unasked(handler)
        version = int(self.replaced and self.broken > 0)
        if handler.command == "PROPFIND":
            return handler.say(207, listing("/x", SIZE, DATES[version])) if self.dated else handler.say(405)
        content, asked = (OLD, NEW)[version], handler.headers.get("Range")
        first, last = map(int, asked.removeprefix("bytes=").split("-")) if asked else (0, SIZE - 1)
        fields = {"Accept_Ranges": "bytes"}
        if asked:
            fields["Content_Range"] = f"bytes {first}-{last}/{SIZE}"
        part = content[first : last + 1]
        # The answer that a client drops to learn the time first is not the one.
        if self.broken or (self.dated and not asked):
            return handler.say(206 if asked else 200, part, **fields)
        self.broken += 1
        handler.say(206 if asked else 200, part[:3_000_000], length=len(part), **fields)
        handler.close_connection = True
        return handler.connection.close()


@pytest.mark.parametrize("dated", [False, True], ids=["nothing tells", "listings do"])
def test_versions_do_not_mix_where_answers_do_not_tell_them_apart(engine, tmp_path, dated):
    with puppet(Unmarked(replaced=True, dated=dated)) as (url, _):
        if dated:
            told = copy(engine, f"{url}/x", tmp_path / "x", code=3).stderr.decode()
            assert "it was replaced while it was copied" in told
            assert list(tmp_path.iterdir()) == []
        else:
            copy(engine, f"{url}/x", tmp_path / "x")
            assert (tmp_path / "x").read_bytes() == NEW


def test_pieces_are_fetched_where_listings_tell_that_the_file_is_the_same(engine, tmp_path):
    with puppet(Unmarked(replaced=False, dated=True)) as (url, seen):
        copy(engine, "--concurrency", "1", f"{url}/x", tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == OLD
    assert [fields.get("Range") for method, _, fields in seen if method == "GET"][-1] == f"bytes=3000000-{SIZE - 1}"


@pytest.mark.parametrize("more", [5, -5], ids=["grown", "shrunk"])
def test_what_goes_through_the_client_is_all_of_the_file_or_fails(engine, more):
    there = {}

    def answer(handler, _):
        if handler.command == "PUT":
            handler.send_response_only(100)
            handler.end_headers()
            content = handler.rfile.read(int(handler.headers["Content-Length"]))
            if len(content) == SIZE:
                there["y"] = content
            return handler.say(201)
        unasked(handler)
        if handler.command == "DELETE":
            return handler.say(204 if there.pop("y", None) else 404)
        if handler.command == "HEAD" and handler.path == "/x":
            return handler.say(200, length=SIZE)
        if handler.command != "GET":
            return handler.say(501 if handler.command == "COPY" else 404)
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for part in (OLD[: min(SIZE, SIZE + more)], NEW[: max(more, 0)]):
            handler.wfile.write(b"%x\r\n%b\r\n" % (len(part), part) if part else b"")
            # What is surplus comes when the destination has all that it was told of.
            time.sleep(0.3)
        return handler.wfile.write(b"0\r\n\r\n")

    with puppet(answer) as (url, _):
        told = copy(engine, f"{url}/x", f"{url}/y", code=3).stderr.decode()
    assert "it was replaced while it was copied" in told
    assert there == {}


@pytest.mark.parametrize(("left", "code"), [(7, 3), (17, 0)], ids=["a part", "all"])
def test_a_part_that_an_attempt_of_our_own_has_left_is_not_kept_for_the_copy(engine, tmp_path, left, code):
    (tmp_path / "x").write_bytes(OLD[:17])
    there = {}

    def answer(handler, _):
        unasked(handler)
        if handler.command != "PUT":
            return handler.say(200, length=there["x"]) if there else handler.say(404)
        if there:
            return handler.say(412)
        there["x"] = left
        handler.close_connection = True
        return handler.connection.close()

    with puppet(answer) as (url, _):
        told = events(engine, "--existing", "keep", tmp_path / "x", f"{url}/x", code=code)
    assert (end_of(told)["kept"], end_of(told)["errors"]) == ((0, 1) if code else (1, 0))


def test_a_link_to_nothing_is_told_when_links_are_followed_to_a_server(engine, tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "gone").symlink_to("nowhere")

    def answer(handler, _):
        unasked(handler)
        return handler.say(201)

    with puppet(answer) as (url, _):
        words = ["-r", "-T", "-L", "--existing", "replace"]
        told = copy(engine, *words, tmp_path / "d", f"{url}/d", code=3).stderr.decode()
    assert "gone" in told


@needs_programs("strace")
def test_a_file_that_another_copy_names_before_ours_has_locked_it_stays_whole(engine, tmp_path):
    def answer(handler, _):
        asked = handler.headers.get("Range")
        first, last = map(int, asked.removeprefix("bytes=").split("-")) if asked else (0, SIZE - 1)
        fields = {"Content_Range": f"bytes {first}-{last}/{SIZE}"} if asked else {}
        handler.say(206 if asked else 200, OLD[first : last + 1], ETag='"1"', Accept_Ranges="bytes", **fields)

    with puppet(answer) as (url, _):
        words = ["copy", "--existing", "replace", f"{url}/x", tmp_path / "x"]
        # Where the other takes longer than that, ours is refused for its lock.
        late = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=flock:delay_enter=2s"]
        ours = subprocess.Popen([*late, engine, *words], stderr=subprocess.PIPE)
        wait_until(lambda: any(tmp_path.glob(".venturi-*.part")), "ours to have made it", 20)
        subprocess.run([engine, *words], check=True, timeout=60)
        told = ours.communicate(timeout=60)[1].decode()
    assert (ours.returncode, "another copy of the same" in told) == (3, True), told
    assert (tmp_path / "x").read_bytes() == OLD
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
