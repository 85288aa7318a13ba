"""Connections that become slow within a large file: others take over what is left on them, and no byte comes twice."""

import base64
import itertools
import json
import os
import socket
import threading
import zlib

import pytest
from copykit import copy, end_of, events, leftovers
from httpkit import puppet, venturi

SIZE = (20 << 20) + 5
FIRST = 4 << 20
CONTENT = os.urandom(SIZE)
ADLER = f"adler=:{base64.b64encode(zlib.adler32(CONTENT).to_bytes(4, 'big')).decode()}:"
PART = 1000
DRIP_S = 0.1
SO_MAX_PACING_RATE = 47
SLOW_BYTES_PER_S = 4_000_000


def asked_of(handler):
    """Return the range that a request asks for; who asks for all is given a part, so that more have to be asked for."""
    asked = handler.headers.get("Range", f"bytes=0-{FIRST - 1}").removeprefix("bytes=").split("-")
    return int(asked[0]), int(asked[1])


def begin(handler, first, last):
    """Send the head of an answer."""
    handler.send_response(206)
    told = {
        "Content-Length": last + 1 - first,
        "Content-Range": f"bytes {first}-{last}/{SIZE}",
        "ETag": '"1"',
        "Repr-Digest": ADLER,
    }
    for name, value in told.items():
        handler.send_header(name, str(value))
    handler.end_headers()


def send(handler, first, last):
    """Send bytes of the file, while somebody takes them."""
    try:
        handler.wfile.write(CONTENT[first : last + 1])
    except OSError:
        handler.close_connection = True


# Who says nothing at all of the first is waited for: there is no file yet.
@pytest.mark.parametrize(
    ("which", "slow"),
    [(1, "a part"), (1, "drips"), (2, "nothing"), (2, "a part"), (5, "nothing"), (5, "drips")],
)
def test_what_one_connection_holds_back_comes_over_others(engine, tmp_path, slow, which):
    """The so-manieth piece begins, or does not, and its end comes when the copy is over, or at a rate that would take half an hour."""
    asked, over = itertools.count(1), threading.Event()

    def answer(handler, _):
        first, last = asked_of(handler)
        if next(asked) != which:
            begin(handler, first, last)
            return send(handler, first, last)
        if slow != "nothing":
            begin(handler, first, last)
            send(handler, first, first + PART - 1)
        at = first + PART
        while not over.wait(timeout=DRIP_S if slow == "drips" else None):
            send(handler, at, at)
            at += 1
        handler.close_connection = True
        return None

    with puppet(answer) as (url, seen):
        try:
            told = events(engine, f"{url}/x", tmp_path / "x")
        finally:
            over.set()
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert end_of(told)["moved_bytes"] == SIZE
    assert end_of(told)["duration_s"] < 30
    assert leftovers(tmp_path) == []
    assert all(fields["If-Range"] == '"1"' for _, _, fields in seen if "Range" in fields)


def test_all_that_were_slow_to_begin_are_waited_for_in_the_end(engine, tmp_path):
    """Who is slow with each answer is not asked anew for ever: pieces are taken over less and less often."""
    over, late_s = threading.Event(), 2

    def answer(handler, _):
        first, last = asked_of(handler)
        if first:
            over.wait(timeout=late_s)
        begin(handler, first, last)
        return send(handler, first, last)

    with puppet(answer) as (url, _):
        copy(engine, f"{url}/x", tmp_path / "x")
    over.set()
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_a_file_that_is_replaced_while_a_slow_piece_is_taken_over_does_not_mix(engine, tmp_path):
    asked, held, gone = itertools.count(1), [], threading.Event()

    def answer(handler, _):
        first, last = asked_of(handler)
        if next(asked) == 2:
            held.append(range(first + 1, last + 1))
            return gone.wait(timeout=60)
        if held and first in held[0]:
            return handler.say(200, os.urandom(SIZE), ETag='"2"')
        begin(handler, first, last)
        return send(handler, first, last)

    with puppet(answer) as (url, _):
        try:
            told = copy(engine, f"{url}/x", tmp_path / "x", code=3).stderr.decode()
        finally:
            gone.set()
    assert "it was replaced while it was copied" in told
    assert list(tmp_path.iterdir()) == []


def test_a_connection_more_that_is_not_to_be_had_leaves_the_file_to_the_one_that_there_is(engine, tmp_path):
    def answer(handler, _):
        handler.server.socket.shutdown(socket.SHUT_RDWR)
        handler.connection.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, SLOW_BYTES_PER_S)
        begin(handler, 0, SIZE - 1)
        send(handler, 0, SIZE - 1)

    with puppet(answer) as (url, seen):
        told = events(engine, f"{url}/x", tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert len(seen) == 1
    (decided,) = [event for event in told if event["event"] == "decision" and event["what"] == "streams"]
    assert (decided["value"], decided["reason"]) == (1, "no more connections to the server are to be had")


@pytest.mark.parametrize(("streams", "is_cut"), [("1", False), ("3", True)])
def test_one_stream_asks_once_and_several_have_pieces(engine, tmp_path, streams, is_cut):
    """A path is empty for a round trip with each request."""
    root, bytes_ = tmp_path / "root", 192 << 20
    root.mkdir()
    with (root / "large").open("wb") as file:
        file.write(CONTENT)
        file.truncate(bytes_)
    with venturi(engine, root, tmp_path) as url:
        copy(engine, "--streams", streams, f"{url}/large", tmp_path / "copy")
    with (tmp_path / "copy").open("rb") as made:
        assert (made.read(SIZE), made.seek(0, os.SEEK_END)) == (CONTENT, bytes_)
    (log,) = tmp_path.glob("serve-*.jsonl")
    told = [json.loads(line) for line in log.read_text().splitlines()]
    # What a file is may be asked for with its first byte.
    asked = [event for event in told if event["event"] == "transfer" and event["bytes"] > 1]
    assert (len(asked) > 3) if is_cut else (len(asked) == 1)
