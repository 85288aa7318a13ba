"""What the mover decides on a path that it cannot know beforehand: the lab makes one of each kind."""

import json
import os

import pytest
from labkit import header_of

from testkit import needs_root

pytestmark = [needs_root, pytest.mark.alone]

BYTES = 160_000_000


def brought(bring_up, engine, folder, path, files, service):
    """Return what a download over a path tells: its events; all files must be here."""
    (port, option), words, url = service
    served = folder / "served"
    served.mkdir(mode=0o755)
    for number, file_bytes in enumerate(files):
        (served / f"{number:03}").write_bytes(os.urandom(1000) * (file_bytes // 1000))
    hosts = "".join(f'[host.{name}]\ncongestion_control = "cubic"\n' for name in "ab")
    lab = bring_up(
        header_of(f"""
{hosts}
[link.path]
between = ["a", "b"]
{path}
[storage.files]
host = "b"
path = "{served}"
[service.server]
host = "b"
storage = ["files"]
ports = {port}
{option}
"""),
        probe=False,
    )
    sink = folder / "sink"
    sink.mkdir()
    call = [str(engine), "copy", "--json", *words, f"{url}{served}/{'' if words else '000'}", f"{sink}/"]
    done = lab.machine("a").run(call, timeout_s=120, environment=lab.client_environment)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-1000:]
    for path in served.iterdir():
        assert (sink / path.name).read_bytes() == path.read_bytes()
    return list(map(json.loads, done.stdout.splitlines()))


def decided(told, what):
    """Return the decisions about something: how many, and why."""
    return [(one["value"], one["reason"]) for one in told if one["event"] == "decision" and one["what"] == what]


GRIDFTP = ("[2811]", 'kind = "gridftp"'), ["-r"], "ftp://b.lab.test:2811"
HTTPS = ("[1094, 8443]", 'kind = "xrootd"\noptions = { http = true, tls = true }'), [], "https://b.lab.test:8443"


@pytest.mark.parametrize("file_bytes", [2_000_000, 500_000, 50_000], ids=["wide", "weighed", "counted"])
def test_a_path_whose_queue_fills_gets_no_more_sessions(bring_up, engine, parent, file_bytes):
    files = [file_bytes] * (BYTES // file_bytes)
    path = 'rate = "100 Mb/s"\nrtt = "40 ms"\nqueue = "1 BDP"'
    told = decided(brought(bring_up, engine, parent.parent, path, files, GRIDFTP), "sessions")
    assert "the path is full" in told[-1][1]
    assert not any("tries twice" in reason or "packets are lost" in reason for _, reason in told)


LOSSY = 'rate = "2 Gb/s"\nrtt = "40 ms"\nqueue = "1 BDP"\nloss = '


def test_a_path_that_loses_and_has_room_gets_more_sessions(bring_up, engine, parent):
    files = [2_000_000] * (BYTES // 2_000_000)
    told = decided(brought(bring_up, engine, parent.parent, LOSSY + "0.02", files, GRIDFTP), "sessions")
    assert any("packets are lost" in reason for _, reason in told), told
    assert told[-1][0] > told[0][0]
    assert not any("the path is full" in reason for _, reason in told)


def test_one_large_file_by_https_has_more_connections_where_packets_are_lost(bring_up, engine, parent):
    ((streams, reason),) = decided(
        brought(bring_up, engine, parent.parent, LOSSY + "0.005", [40_000_000], HTTPS), "streams"
    )
    assert streams == 4
    assert "packets are lost" in reason


def test_one_large_file_by_https_has_one_connection_where_that_fills_the_path(bring_up, engine, parent):
    path = 'rate = "100 Mb/s"\nrtt = "40 ms"\nqueue = "1 BDP"'
    told = brought(bring_up, engine, parent.parent, path, [60_000_000], HTTPS)
    ((streams, reason),) = decided(told, "streams")
    assert streams == 1
    assert "the path is full" in reason
