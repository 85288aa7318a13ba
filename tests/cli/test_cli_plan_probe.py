"""``venturi plan --probe``: hosts and paths of a plan, probed without a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from testkit import free_port

TIMEOUT_S = 120

SCENARIO = """
venturi = 1
name = "two"
[testbed.host.a]
connect = ["env", "HOME={home}/a"]
address = "127.0.0.1"
[testbed.host.b]
connect = ["env", "HOME={home}/b"]
address = "{address}"
open_ports = "{ports}-{last}"
[testbed.storage.sa]
host = "a"
path = "data"
[testbed.storage.sb]
host = "b"
path = "data"
[workload]
kind = "sweep"
mover = "venturi"
source = "sa"
destination = "sb"
[workload.factors]
size = ["1 MB"]
"""

EXISTING = """
venturi = 1
name = "perf"
[testbed.host.here]
[testbed.service.perf]
kind = "iperf3"
url = "tcp://127.0.0.1:{port}"
[workload]
kind = "sweep"
client = "here"
mover = "iperf3"
destination_service = "perf"
[workload.factors]
size = ["1 MB"]
[limits]
bytes = "1 GB"
"""


@pytest.fixture
def venturi(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()

    def run(*arguments, text):
        (tmp_path / "scenario.toml").write_text(text)
        environment = os.environ | {
            "XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path), "COLUMNS": "200"
        }  # fmt: skip
        return subprocess.run(
            [sys.executable, "-c", "from venturi.cli import main; main()", "plan", "scenario.toml", *arguments],
            cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S,
            check=False,
        )  # fmt: skip

    return run


def two_hosts(tmp_path, address="127.0.0.1"):
    ports = free_port()
    return SCENARIO.format(home=tmp_path, address=address, ports=ports, last=ports + 9), ports


def test_both_directions_are_probed_and_nothing_is_started_or_written(venturi, tmp_path):
    text, ports = two_hosts(tmp_path)
    done = venturi("--probe", "--yes", "--json", text=text)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["problem"] is None
    forth, back = document["paths"]
    assert (forth["from"], forth["to"], forth["service"], forth["needed"]) == ("a", "b", "venturi-serve-b", True)
    assert ports <= forth["port"] <= ports + 9
    assert (back["from"], back["to"], back["needed"]) == ("b", "a", False)
    for path in (forth, back):
        assert (path["family"], path["remote_address"], path["interface"]) == ("ipv4", "127.0.0.1", "lo")
        assert 0 < path["rtt_s"] < 1
        assert path["path_mtu_bytes"] > 1000
    for properties in document["hosts"].values():
        assert abs(properties["clock_offset_s"]) <= properties["clock_uncertainty_s"]
    left = {path.name for name in ("a", "b") for path in (tmp_path / name).rglob("*") if path.is_file()}
    assert {name for name in left if not name.startswith("engine-")} <= {".lock"}
    assert not (tmp_path / "runs").exists()


def test_the_probe_table_lists_the_paths(venturi, tmp_path):
    text, _ = two_hosts(tmp_path)
    done = venturi("--probe", "--yes", text=text)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert any(row[:3] == ["a", "b", "venturi-serve-b"] and row[-1] == "open" for row in rows)
    assert any(row[:2] == ["b", "a"] and row[-3:] == ["open,", "not", "needed"] for row in rows)


def test_a_closed_port_is_named_and_the_exit_code_is_1(venturi):
    port = free_port()
    done = venturi("--probe", "--yes", "--json", text=EXISTING.format(port=port))
    assert done.returncode == 1
    (path,) = json.loads(done.stdout)["paths"]
    assert f"perf: no path from host here to 127.0.0.1 port {port}" in path["error"]
    assert "connection refused" in path["error"]
    assert f"venturi: {path['error']}" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_address_unknown_to_clients_is_reported_with_the_key_to_set(venturi, tmp_path):
    text, _ = two_hosts(tmp_path, address="no-such-host.invalid")
    done = venturi("--probe", "--yes", text=text)
    assert done.returncode == 1
    assert "Set testbed.host.b.address to a name or address that this host knows." in done.stderr


def test_a_probe_needs_consent_and_prints_only_its_own_result(venturi, tmp_path):
    text, _ = two_hosts(tmp_path)
    done = venturi("--probe", text=text)
    assert done.returncode == 1
    assert "expected consent" in done.stderr
    assert list((tmp_path / "a").iterdir()) == []
    done = venturi("--probe", "--lines", text=text)
    assert done.returncode == 1
    assert "--probe: expected no --lines" in done.stderr
