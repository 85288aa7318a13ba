"""Pacing, measured by the minimum duration of a transfer, because other load cannot make it faster."""

import json

import pytest
from servekit import content, run, serving

RATE_BYTES_PER_S = 24_000_000
PACED = ("--pacing", f"{RATE_BYTES_PER_S}B/s")
SIZE = 2 * RATE_BYTES_PER_S
MIN_S = 0.9 * SIZE / RATE_BYTES_PER_S
"""Minimum duration of a paced copy.

The first ten segments of a connection are not paced, which is 0.65 MB on loopback.
"""
RENO = ("--congestion", "reno")
"""Congestion control that leaves all pacing to the kernel, unlike BBR. Every user can select it."""


def copied_s(engine, *arguments):
    """Copy one file, and return the duration and the decisions."""
    output = run(engine, "copy", "--json", "--fixed", *arguments).stdout.splitlines()
    output = [json.loads(line) for line in output]
    return output[-1]["duration_s"], {
        event["setting"]: event["value"] for event in output if event["event"] == "decision"
    }


@pytest.fixture
def own(tmp_path):
    """A directory with a file."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "file").write_bytes(content("paced", SIZE))
    return tmp_path / "own"


@pytest.fixture
def existing(tmp_path):
    """A directory to serve."""
    (tmp_path / "there").mkdir()
    return tmp_path / "there"


def web_url(server):
    """Return the HTTP URL of the server."""
    return f"http://{server.events('start')[0]['http'][0]}"


def test_uploads_are_paced_on_each_connection(engine, own, existing, tmp_path):
    with serving(engine, existing, tmp_path, "--write", "--http", "127.0.0.1:0") as server:
        for url, streams in ((server.url, 1), (server.url, 4), (web_url(server), 1)):
            arguments = (*PACED, *RENO, "--streams", streams, own / "file", f"{url}/copy")
            paced_s, decided = copied_s(engine, *arguments)
            assert paced_s >= MIN_S / streams, (url, streams)
            assert decided["pacing_bytes_per_s"] == RATE_BYTES_PER_S
            assert (existing / "copy").read_bytes() == content("paced", SIZE)
            (existing / "copy").unlink()
        took_s, decided = copied_s(engine, *RENO, own / "file", f"{web_url(server)}/copy")
        assert took_s < paced_s and "pacing_bytes_per_s" not in decided


def test_downloads_are_paced_by_the_server_on_each_connection(engine, own, tmp_path):
    with serving(engine, own, tmp_path, "--http", "127.0.0.1:0", *PACED) as server:
        for url, streams in ((server.url, 1), (server.url, 4), (web_url(server), 1)):
            took_s, _ = copied_s(engine, "--streams", streams, f"{url}/file", tmp_path / "copy")
            assert took_s >= MIN_S / streams, (url, streams)
            assert (tmp_path / "copy").read_bytes() == content("paced", SIZE)
            (tmp_path / "copy").unlink()


def test_a_pacing_rate_without_a_unit_is_rejected(engine, own):
    output = run(engine, "serve", "--pacing", "500", own, code=2).stderr
    assert "expected a rate from 64 kb/s to 1 Tb/s, such as 500 Mb/s" in output
