"""Existing hosts on the command line: the list of ``venturi plan``, and consent before ``venturi run``."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

TIMEOUT_S = 60

SCENARIO = """
venturi = 1
name = "two"
[testbed.host.a]
ssh = "alice@a.invalid"
[testbed.host.b]
connect = ["false"]
open_ports = "50000-50100"
[testbed.storage.sa]
host = "a"
path = "/scratch/alice"
[testbed.storage.sb]
host = "b"
path = "/data/alice"
[testbed.service.perf]
kind = "iperf3"
url = "tcp://perf.invalid:5201"
[workload]
kind = "sweep"
mover = "venturi"
source = "sa"
destination = "sb"
[workload.factors]
size = ["1 MB"]
"""


@pytest.fixture
def venturi(tmp_path):
    (tmp_path / "two.toml").write_text(SCENARIO)

    def run(*arguments):
        environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}
        return subprocess.run(
            [sys.executable, "-c", "from venturi.cli import main; main()", *arguments], cwd=tmp_path, env=environment,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip

    return run


def test_the_plan_lists_hosts_and_servers(venturi):
    done = venturi("plan", "two.toml")
    assert done.returncode == 0, done.stderr
    rows = [line.split("  ", 1) for line in done.stdout.splitlines()]
    texts = [text.strip() for _, text in (row if len(row) == 2 else ("", row[0]) for row in rows)]
    for expected in (
        "reached by: ssh alice@a.invalid",
        "runs sh, venturi-engine",
        "stores sa in /scratch/alice, 1 MB at the peak",
        "reached by: false",
        "starts venturi-serve-b of kind venturi-serve on ports 50000-50100 with sb",
        "tcp://perf.invalid:5201 (iperf3)",
    ):
        assert expected in texts
    document = json.loads(venturi("plan", "two.toml", "--json").stdout)
    assert document["hosts"]["a"]["connection"] == ["ssh", "alice@a.invalid"]
    assert document["hosts"]["b"]["services"]["venturi-serve-b"]["storages"] == ["sb"]
    assert document["servers"]["perf"]["urls"] == ["tcp://perf.invalid:5201"]


def test_a_hosts_file_replaces_connections_in_the_list_and_not_in_the_plan(venturi, tmp_path):
    (tmp_path / "hosts.toml").write_text('a = { ssh = "bob@c.invalid" }\n')
    done = venturi("plan", "two.toml", "--hosts", "hosts.toml")
    assert "reached by: ssh bob@c.invalid" in done.stdout
    assert "alice@a.invalid" not in done.stdout
    plans = [venturi("plan", "two.toml", "--lines", *more).stdout for more in ((), ("--hosts", "hosts.toml"))]
    assert plans[0] == plans[1] != ""


@pytest.mark.parametrize("hosts", [(), ("--hosts", "hosts.toml")])
def test_a_run_without_a_terminal_needs_consent_before_any_contact(venturi, tmp_path, hosts):
    (tmp_path / "hosts.toml").write_text('b = { connect = ["touch", "contacted"] }\n')
    done = venturi("run", "two.toml", *hosts)
    assert done.returncode == 1
    assert "first contact with ssh alice@a.invalid, " in done.stderr
    assert "tcp://perf.invalid:5201: expected consent" in done.stderr
    assert "then add --yes" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"two.toml", "hosts.toml"}


def test_the_lab_rejects_hosts_without_links_and_existing_servers(venturi, tmp_path):
    done = venturi("run", "two.toml", "--on", "lab")
    assert done.returncode == 1
    assert "found perf, an existing server" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_every_backend_runs_the_same_plan(venturi, tmp_path):
    """This includes --hosts: the stored plan does not contain the targets of a site."""
    scenario = SCENARIO.replace('ssh = "alice@a.invalid"', "").replace('connect = ["false"]', "")
    scenario = scenario.partition("[testbed.service.perf]")[0] + "[workload]" + scenario.partition("[workload]")[2]
    scenario = scenario.replace("/scratch/alice", "a").replace("/data/alice", "b")
    links = '[testbed.link.l]\nbetween = ["a", "b"]\nrate = "1 Gb/s"\n'
    (tmp_path / "two.toml").write_text(scenario.replace("[workload]", f"{links}[workload]", 1))
    (tmp_path / "hosts.toml").write_text('a = {}\nb = { connect = ["env"], address = "127.0.0.1" }\n')
    plans = []
    for number, options in enumerate((("--on", "sim"), ("--on", "hosts"), ("--hosts", "hosts.toml", "--yes"))):
        done = venturi("run", "two.toml", "--runs", f"runs{number}", "-q", *options)
        assert done.returncode == 0, done.stderr
        (plan,) = (tmp_path / f"runs{number}").glob("*/plan.jsonl")
        plans.append(plan.read_bytes())
    # The hosts file of a run is also accepted. A simulation has no hosts.
    finished = next((tmp_path / "runs2").glob("*/plan.jsonl")).parent
    done = venturi("run", "--resume", str(finished), "--hosts", str(finished / "hosts.toml"), "--runs", "runs2")
    assert done.returncode == 0, done.stderr
    simulated = next((tmp_path / "runs0").glob("*/plan.jsonl")).parent
    done = venturi("run", "--resume", str(simulated), "--hosts", "hosts.toml", "--runs", "runs0")
    assert done.returncode == 1
    assert "expected a run on hosts for --hosts, found --on sim; omit --hosts" in done.stderr
    assert plans[0] == plans[1] == plans[2] == venturi("plan", "two.toml", "--lines").stdout.encode()
    assert list((tmp_path / "state" / "venturi").iterdir()) == [tmp_path / "state" / "venturi" / "contacts.json"]
