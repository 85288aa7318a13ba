"""Pacing, told by the time that bytes take at least: nothing else that the machine does makes them faster."""

import json

import pytest
from servekit import content, run, serving

RATE_BYTES_PER_S = 24_000_000
PACED = ("--pacing", f"{RATE_BYTES_PER_S}B/s")
SIZE = 2 * RATE_BYTES_PER_S
LEAST_S = 0.9 * SIZE / RATE_BYTES_PER_S
"""The first ten segments of a connection are not paced; on loopback they are 0.65 MB."""
RENO = ("--congestion", "reno")
"""Which leaves all pacing to the kernel, where BBR would do some by itself; everybody may have it."""


def copied_s(engine, *words):
    """Copy one file over as many connections as are asked for, and return how long it took, and what was decided."""
    told = run(engine, "copy", "--json", "--fixed", *words).stdout.splitlines()
    told = [json.loads(line) for line in told]
    return told[-1]["duration_s"], {event["what"]: event["value"] for event in told if event["event"] == "decision"}


@pytest.fixture
def own(tmp_path):
    """A folder with a file."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "file").write_bytes(content("paced", SIZE))
    return tmp_path / "own"


@pytest.fixture
def there(tmp_path):
    """A folder to serve."""
    (tmp_path / "there").mkdir()
    return tmp_path / "there"


def web_of(server):
    """Return the URL of its door for HTTP."""
    return f"http://{server.events('start')[0]['http'][0]}"


def test_what_goes_up_over_each_connection_is_paced(engine, own, there, tmp_path):
    with serving(engine, there, tmp_path, "--write", "--http", "127.0.0.1:0") as server:
        for url, streams in ((server.url, 1), (server.url, 4), (web_of(server), 1)):
            words = (*PACED, *RENO, "--streams", streams, own / "file", f"{url}/copy")
            paced_s, decided = copied_s(engine, *words)
            assert paced_s >= LEAST_S / streams, (url, streams)
            assert decided["pacing_bytes_per_s"] == RATE_BYTES_PER_S
            assert (there / "copy").read_bytes() == content("paced", SIZE)
            (there / "copy").unlink()
        took_s, decided = copied_s(engine, *RENO, own / "file", f"{web_of(server)}/copy")
        assert took_s < paced_s and "pacing_bytes_per_s" not in decided


def test_what_comes_down_over_each_connection_is_paced_by_the_server(engine, own, tmp_path):
    with serving(engine, own, tmp_path, "--http", "127.0.0.1:0", *PACED) as server:
        for url, streams in ((server.url, 1), (server.url, 4), (web_of(server), 1)):
            took_s, _ = copied_s(engine, "--streams", streams, f"{url}/file", tmp_path / "copy")
            assert took_s >= LEAST_S / streams, (url, streams)
            assert (tmp_path / "copy").read_bytes() == content("paced", SIZE)
            (tmp_path / "copy").unlink()


def test_a_pace_without_its_unit_is_refused_with_what_was_expected(engine, own):
    told = run(engine, "serve", "--pacing", "500", own, code=2).stderr
    assert "expected a rate from 64 kb/s to 1 Tb/s, such as 500 Mb/s" in told
