"""What the mover decides on a path that it cannot know beforehand: the lab makes one of each kind."""

import json
import os

import pytest
from labkit import header_of

from testkit import needs_root

pytestmark = [needs_root, pytest.mark.alone]

BYTES = 160_000_000


def decided(bring_up, engine, folder, path, file_bytes=2_000_000):
    """Return the decisions about sessions of a download over a path: how many, and why; all files must be here."""
    served = folder / "served"
    served.mkdir(mode=0o755)
    for number in range(BYTES // file_bytes):
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
[service.gridftp]
kind = "gridftp"
host = "b"
storage = ["files"]
ports = [2811]
"""),
        probe=False,
    )
    sink = folder / "sink"
    url = f"ftp://b.lab.test:2811{served}/"
    words = [str(engine), "copy", "--json", "-r", url, str(sink)]
    done = lab.machine("a").run(words, timeout_s=120, environment=lab.client_environment)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-1000:]
    for path in served.iterdir():
        assert (sink / path.name).read_bytes() == path.read_bytes()
    told = map(json.loads, done.stdout.splitlines())
    return [(one["value"], one["reason"]) for one in told if one["event"] == "decision" and one["what"] == "sessions"]


@pytest.mark.parametrize("file_bytes", [2_000_000, 500_000], ids=["weighed", "counted"])
def test_a_path_whose_queue_fills_gets_no_more_sessions(bring_up, engine, parent, file_bytes):
    told = decided(bring_up, engine, parent.parent, 'rate = "100 Mb/s"\nrtt = "40 ms"\nqueue = "1 BDP"', file_bytes)
    assert "the path is full" in told[-1][1]
    assert not any("tries twice" in reason for _, reason in told)


def test_a_path_that_loses_and_has_room_gets_more_sessions(bring_up, engine, parent):
    told = decided(bring_up, engine, parent.parent, 'rate = "2 Gb/s"\nrtt = "40 ms"\nqueue = "1 BDP"\nloss = 0.02')
    assert any("tries twice" in reason for _, reason in told), told
    assert not any("the path is full" in reason for _, reason in told)
