"""Automatic tuning of `venturi copy` on unknown paths: the lab emulates one of each kind."""

import json
import os

import pytest
from labkit import header_of

from testkit import needs_root

pytestmark = [needs_root, pytest.mark.alone]

BYTES = 160_000_000


def brought(bring_up, engine, directory, path, files, service):
    """Download over a path; check that all files arrived and return the events."""
    (port, option), words, url = service
    served = directory / "served"
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
    sink = directory / "sink"
    sink.mkdir()
    call = [str(engine), "copy", "--json", *words, f"{url}{served}/{'' if words else '000'}", f"{sink}/"]
    done = lab.shell("a").run(call, timeout_s=120, environment=lab.client_environment)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-1000:]
    for path in served.iterdir():
        assert (sink / path.name).read_bytes() == path.read_bytes()
    return list(map(json.loads, done.stdout.splitlines()))


def decided(output, what):
    """Return value and reason of the decisions about a setting."""
    return [(one["value"], one["reason"]) for one in output if one["event"] == "decision" and one["setting"] == what]


GRIDFTP = ("[2811]", 'kind = "gridftp"'), ["-r"], "ftp://b.lab.test:2811"
HTTPS = ("[1094, 8443]", 'kind = "xrootd"\noptions = { http = true, tls = true }'), [], "https://b.lab.test:8443"


@pytest.mark.parametrize("file_bytes", [2_000_000, 500_000, 50_000], ids=["wide", "weighed", "counted"])
def test_a_path_with_a_full_queue_gets_no_additional_sessions(bring_up, engine, parent, file_bytes):
    files = [file_bytes] * (BYTES // file_bytes)
    path = 'rate = "100 Mb/s"\nrtt = "40 ms"\nqueue = "1 BDP"'
    output = decided(brought(bring_up, engine, parent.parent, path, files, GRIDFTP), "sessions")
    assert "path is saturated" in output[-1][1]
    assert not any("trying twice" in reason or "packet losses" in reason for _, reason in output)


LOSSY = 'rate = "2 Gb/s"\nrtt = "40 ms"\nqueue = "1 BDP"\nloss = '


def test_a_lossy_path_with_free_capacity_gets_more_sessions(bring_up, engine, parent):
    files = [2_000_000] * (BYTES // 2_000_000)
    output = decided(brought(bring_up, engine, parent.parent, LOSSY + "0.02", files, GRIDFTP), "sessions")
    assert any("packet losses" in reason for _, reason in output), output
    assert output[-1][0] > output[0][0]
    assert not any("path is saturated" in reason for _, reason in output)


def test_a_large_file_by_https_uses_more_connections_on_a_lossy_path(bring_up, engine, parent):
    ((streams, reason),) = decided(
        brought(bring_up, engine, parent.parent, LOSSY + "0.005", [40_000_000], HTTPS), "streams"
    )
    assert streams == 4
    assert "packet losses" in reason


def test_a_large_file_by_https_uses_one_connection_if_it_fills_the_path(bring_up, engine, parent):
    path = 'rate = "100 Mb/s"\nrtt = "40 ms"\nqueue = "1 BDP"'
    output = brought(bring_up, engine, parent.parent, path, [60_000_000], HTTPS)
    ((streams, reason),) = decided(output, "streams")
    assert streams == 1
    assert "path is full" in reason
