"""Connections that become slow during a large file: others take over their rest, and no byte is sent twice."""

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


def requests_for(handler):
    """Return the requested range; without one, only a part, so that the client sends more requests."""
    requests = handler.headers.get("Range", f"bytes=0-{FIRST - 1}").removeprefix("bytes=").split("-")
    return int(requests[0]), int(requests[1])


def start(handler, first, last):
    """Send the header of a response."""
    handler.send_response(206)
    output = {
        "Content-Length": last + 1 - first,
        "Content-Range": f"bytes {first}-{last}/{SIZE}",
        "ETag": '"1"',
        "Repr-Digest": ADLER,
    }
    for name, value in output.items():
        handler.send_header(name, str(value))
    handler.end_headers()


def send(handler, first, last):
    """Send bytes of the file until the client disconnects."""
    try:
        handler.wfile.write(CONTENT[first : last + 1])
    except OSError:
        handler.close_connection = True


# Silence on the first request is tolerated, because there is no file yet.
@pytest.mark.parametrize(
    ("which", "slow"),
    [(1, "a part"), (1, "drips"), (2, "nothing"), (2, "a part"), (5, "nothing"), (5, "drips")],
)
def test_chunks_delayed_by_one_connection_are_fetched_over_others(engine, tmp_path, slow, which):
    """The given request stalls, or its bytes trickle at a rate that would take half an hour."""
    requests, over = itertools.count(1), threading.Event()

    def respond(handler, _):
        first, last = requests_for(handler)
        if next(requests) != which:
            start(handler, first, last)
            return send(handler, first, last)
        if slow != "nothing":
            start(handler, first, last)
            send(handler, first, first + PART - 1)
        at = first + PART
        while not over.wait(timeout=DRIP_S if slow == "drips" else None):
            send(handler, at, at)
            at += 1
        handler.close_connection = True
        return None

    with puppet(respond) as (url, recorded):
        try:
            output = events(engine, f"{url}/x", tmp_path / "x")
        finally:
            over.set()
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert end_of(output)["moved_bytes"] == SIZE
    assert end_of(output)["duration_s"] < 30
    assert leftovers(tmp_path) == []
    assert all(fields["If-Range"] == '"1"' for _, _, fields in recorded if "Range" in fields)


def test_a_download_completes_if_all_its_connections_are_slow_to_start(engine, tmp_path):
    """A slow server is not queried forever: chunks are reassigned less and less often."""
    over, late_s = threading.Event(), 2

    def respond(handler, _):
        first, last = requests_for(handler)
        if first:
            over.wait(timeout=late_s)
        start(handler, first, last)
        return send(handler, first, last)

    with puppet(respond) as (url, _):
        copy(engine, f"{url}/x", tmp_path / "x")
    over.set()
    assert (tmp_path / "x").read_bytes() == CONTENT


def test_versions_do_not_mix_if_a_file_is_replaced_while_a_slow_chunk_is_reassigned(engine, tmp_path):
    requests, paused, disconnected = itertools.count(1), [], threading.Event()

    def respond(handler, _):
        first, last = requests_for(handler)
        if next(requests) == 2:
            paused.append(range(first + 1, last + 1))
            return disconnected.wait(timeout=60)
        if paused and first in paused[0]:
            return handler.reply(200, os.urandom(SIZE), ETag='"2"')
        start(handler, first, last)
        return send(handler, first, last)

    with puppet(respond) as (url, _):
        try:
            output = copy(engine, f"{url}/x", tmp_path / "x", code=3).stderr.decode()
        finally:
            disconnected.set()
    assert "written during the copy" in output
    assert list(tmp_path.iterdir()) == []


def test_a_failed_extra_connection_leaves_the_file_to_the_first_one(engine, tmp_path):
    def respond(handler, _):
        handler.server.socket.shutdown(socket.SHUT_RDWR)
        handler.connection.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, SLOW_BYTES_PER_S)
        start(handler, 0, SIZE - 1)
        send(handler, 0, SIZE - 1)

    with puppet(respond) as (url, recorded):
        output = events(engine, f"{url}/x", tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert len(recorded) == 1
    (decided,) = [event for event in output if event["event"] == "decision" and event["setting"] == "streams"]
    assert decided["value"] == 1
    assert "no more connections" in decided["reason"]


@pytest.mark.parametrize(("streams", "truncated"), [("1", False), ("3", True)])
def test_one_stream_sends_one_request_and_several_streams_request_chunks(engine, tmp_path, streams, truncated):
    """A path is idle for a round trip with each request."""
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
    output = [json.loads(line) for line in log.read_text().splitlines()]
    # The metadata of a file can be requested with its first byte.
    requests = [event for event in output if event["event"] == "transfer" and event["bytes"] > 1]
    assert (len(requests) > 3) if truncated else (len(requests) == 1)
