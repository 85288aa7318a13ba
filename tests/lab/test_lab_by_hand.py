"""Commands for interactive use: up, shell, status, link, down."""

import json
import os
import re
import subprocess
import sys

import pytest

from testkit import needs_root
from venturi.testbed.lab import registered

pytestmark = needs_root

SCENARIO = """
venturi = 1
name = "by-hand"
[testbed.host.a]
[testbed.host.b]
[testbed.link.path]
between = ["a", "b"]
rate = "1 Gb/s"
delay = "5 ms"
[testbed.storage.disk]
host = "a"
path = "data"
[workload]
kind = "sweep"
mover = "cp"
source = "disk"
destination = "disk"
[workload.factors]
files = [1]
size = ["1 MB"]
"""


@pytest.fixture
def venturi(parent, engine, tmp_path):
    """Return a function that runs `venturi lab` with labs in a directory of the test."""
    (tmp_path / "by-hand.toml").write_text(SCENARIO)
    environment = os.environ | {"VENTURI_LAB": str(parent), "VENTURI_ENGINE": str(engine)}

    def run(*words):
        return subprocess.run(
            [sys.executable, "-c", "from venturi.cli import main; main()", "lab", *words],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    yield run
    run("down", "--all")


def rtt_ms(done):
    """Return the minimum round-trip time that ping printed. A busy machine delays some packets, but not all."""
    return min(map(float, re.findall(r"time=([0-9.]+) ms", done.stdout)))


def test_the_lab_commands_work_from_up_to_down(venturi, parent):
    up = venturi("up", "by-hand.toml")
    assert up.returncode == 0, up.stderr
    assert "10.77.0.1" in up.stdout and "venturi lab shell a" in up.stderr
    assert 9.9 < rtt_ms(venturi("shell", "a", "--", "ping", "-c", "10", "-i", "0.1", "b")) < 15
    assert venturi("shell", "b", "--", "sh", "-c", "exit 7").returncode == 7
    (status,) = json.loads(venturi("status", "--json").stdout)
    assert status["network_running"] and set(status["hosts"]) == {"a", "b"}
    assert venturi("link", "path", "delay=20ms").returncode == 0
    assert 39.9 < rtt_ms(venturi("shell", "a", "--", "ping", "-c", "10", "-i", "0.1", "b")) < 45
    assert venturi("link", "a>b", "up=false").returncode == 0
    assert venturi("shell", "a", "--", "ping", "-c", "1", "-W", "1", "b").returncode in (1, 2)
    (status,) = json.loads(venturi("status", "--json").stdout)
    assert (status["links"]["a>b"]["up"], status["links"]["b>a"]["delay_s"]) == (False, 0.02)
    down = venturi("down")
    assert down.returncode == 0 and "is down" in down.stderr
    assert registered(parent) == []


def test_a_command_requires_the_name_of_the_lab_if_two_labs_exist(venturi, parent):
    ids = [json.loads(venturi("up", "by-hand.toml", "--no-probe", "--json").stdout)["id"] for _ in range(2)]
    rejected = venturi("shell", "a", "--", "true")
    assert rejected.returncode == 1 and all(id_ in rejected.stderr for id_ in ids)
    assert venturi("shell", "--lab", ids[1], "a", "--", "true").returncode == 0
    assert venturi("down", "--lab", ids[0]).returncode == 0
    assert [entry.id for entry in registered(parent)] == [ids[1]]
    assert venturi("down", "--all").returncode == 0
    assert registered(parent) == []


def test_invalid_arguments_are_rejected_with_the_valid_choices(venturi):
    assert "expected one lab" in venturi("shell", "a").stderr
    assert venturi("up", "by-hand.toml", "--no-probe").returncode == 0
    assert "expected one of the hosts a, b" in venturi("shell", "c", "--", "true").stderr
    assert "expected one of the links path, a>b, b>a" in venturi("link", "x-y", "rate=1Gb/s").stderr
    assert "rate=100Mb/s" in venturi("link", "path", "speed=1").stderr
