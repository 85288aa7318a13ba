"""Evidence for the limit of a transfer: a lab run records it by default, from movers, servers and control groups of all hosts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from labkit import pair
from test_lab_runs import execute, plan_in_lab

from testkit import call_of, needs_programs, needs_root
from venturi.run import Run, RunWriter

pytestmark = [needs_root, needs_programs("globus-gridftp-server")]

SIZE_BYTES = 12_000_000
READ_RATE = 4_000_000.0

THIRD_PARTY = f"""
venturi = 1
name = "third-party"
seed = 1

[testbed.host.client]
[testbed.host.source]
[testbed.host.sink]
memory_limit = "512 MiB"
[testbed.router.core]
[testbed.link.client-core]
between = ["client", "core"]
rate = "1 Gb/s"
delay = "1 ms"
[testbed.link.source-core]
between = ["source", "core"]
rate = "1 Gb/s"
delay = "1 ms"
[testbed.link.sink-core]
between = ["sink", "core"]
rate = "1 Gb/s"
delay = "1 ms"
[testbed.storage.slow]
host = "source"
path = "slow"
kind = "disk"
size = "100 MB"
read_rate = "{READ_RATE / 1e6:g} MB/s"
[testbed.storage.fast]
host = "sink"
path = "fast"
[testbed.service.giver]
kind = "gridftp"
host = "source"
storage = ["slow"]
[testbed.service.taker]
kind = "gridftp"
host = "sink"
storage = ["fast"]

[workload]
kind = "sweep"
mover = "venturi"
client = "client"
source = "slow"
destination = "fast"
repeat = 1
cache = "cold"
factors = {{ size = ["{SIZE_BYTES / 1e6:g} MB"] }}
"""


@pytest.fixture
def third_party(tmp_path, parent, engine):
    """A run of one third-party copy from a slow disk, with the default counters."""
    (tmp_path / "copy.toml").write_text(THIRD_PARTY)
    words = [Path(sys.executable).with_name("venturi"), "run", "copy.toml", "--on", "lab"]
    environment = os.environ | {"VENTURI_ENGINE": str(engine), "VENTURI_SCRATCH": str(tmp_path / "scratch")}
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Run.open(next((tmp_path / "runs").glob("third-party-*")))


def growth(run, host, counter, *, start_s=0.0, end_s=1e12):
    """Return the increase of a counter between the first and the last sample of an interval."""
    rows = run.query(
        """SELECT max(value) - min(value) AS grown FROM samples
           WHERE host = $host AND counter = $counter AND time_s BETWEEN $start AND $end""",
        {"host": host, "counter": counter, "start": start_s, "end": end_s},
    )
    return float(rows["grown"][0])


def counters(run, host):
    """Return the names of the counters of a host."""
    return set(run.query("SELECT DISTINCT counter FROM samples WHERE host = $host", {"host": host})["counter"])


def test_both_ends_of_a_third_party_copy_are_measured_by_default(third_party):
    run = third_party
    transfer = run.query("SELECT start_s, end_s, outcome FROM transfers")
    assert list(transfer["outcome"]) == ["ok"]
    start_s, end_s = float(transfer["start_s"][0]), float(transfer["end_s"][0])
    # The client moves no bytes; the servers move all of them.
    assert "process.mover.user_s" in counters(run, "client")
    # A server process of one connection ends with the transfer; its bytes are counted once.
    assert SIZE_BYTES <= growth(run, "source", "process.server.giver.read_call_bytes") < 1.1 * SIZE_BYTES
    assert SIZE_BYTES <= growth(run, "sink", "process.server.taker.write_bytes") < 1.1 * SIZE_BYTES
    sockets = run.query(
        """SELECT host, sum(acked_bytes) AS acked, sum(received_bytes) AS received, count(ssthresh_bytes) AS thresholds,
                  count(reordering) AS reordering, count(sent_segments) AS segments
           FROM sockets WHERE closed GROUP BY host ORDER BY host"""
    )
    rows = dict(zip(sockets["host"], zip(sockets["acked"], sockets["received"], strict=True), strict=True))
    assert rows["source"][0] >= SIZE_BYTES and rows["sink"][1] >= SIZE_BYTES
    assert rows["client"][0] < SIZE_BYTES / 10 and rows["client"][1] < SIZE_BYTES / 10
    assert growth(run, "source", "tcp.sent_segments") >= SIZE_BYTES / 1500 / 45  # large packets of up to 64 KiB (GSO)
    for host in ("client", "source", "sink"):
        assert {"cpu.softirq_s", "core.0.busy_s", "softnet.dropped", "nic.lo.rx_errors"} <= counters(run, host)
    environment = run.environment()
    disk = environment["source"]["storages.slow.disk"]
    assert disk.startswith("loop")
    for prefix in ("cgroup.io", "disk"):
        assert growth(run, "source", f"{prefix}.{disk}.read_bytes") >= SIZE_BYTES
    assert growth(run, "source", f"disk.{disk}.read_ios") > 0
    assert f"disk.{disk}.read_wait_s" in counters(run, "source")
    used = run.query(
        "SELECT max(value) AS most FROM samples WHERE host = 'sink' AND counter = 'cgroup.memory.used_bytes'"
    )
    assert 0 < float(used["most"][0]) <= 512 * 2**20
    # The disk of the source is the limit, so only this host has I/O pressure in the kernel.
    if "cgroup.pressure.io.some_s" not in counters(run, "source"):
        pytest.skip("the kernel counts no pressure of control groups")
    waited = {
        host: growth(run, host, "cgroup.pressure.io.some_s", start_s=start_s, end_s=end_s) / (end_s - start_s)
        for host in ("client", "source", "sink")
    }
    assert waited["source"] > 0.5 > max(waited["client"], waited["sink"]), waited


def test_a_cpu_limit_applies_to_movers_but_not_to_the_agent(tmp_path, parent, engine):
    script = "cat /proc/self/cgroup; echo; cat /proc/$PPID/cgroup; timeout 2 sh -c 'while :; do :; done'; cp $0 $1"
    calls = {"cp": call_of(["sh", "-c", script, "{source}", "{destination}"], capture=True)}
    text = pair().replace("[host.a]", "[host.a]\ncpu_limit = 0.05")
    plan = plan_in_lab(tmp_path, 1, text, calls=calls)
    run = RunWriter.create(tmp_path / "runs", plan, backend="lab")
    assert execute(run, tmp_path, engine).failed == 0
    journal = [json.loads(line) for line in (Path(run.path) / "journal.jsonl").read_text().splitlines()]
    (trial,) = [line["trial"] for line in journal if "trial" in line]
    of_mover, _, of_agent = trial["transfers"][0]["stdout"].partition("\n\n")

    def limited(groups):
        lines = (line.split(":") for line in groups.splitlines() if line)
        # Version 1: the controller `cpu`; version 2: the group with the limit.
        return any(
            "venturi-" in path and ("cpu" in controllers.split(",") or path.endswith("/work"))
            for _, controllers, path in lines
        )

    assert limited(of_mover), of_mover
    assert not limited(of_agent), of_agent
    opened = Run.open(run.path)
    # A quota of 1 ms is less than a time slice on a core, so it is used up even on a busy machine.
    throttled = growth(opened, "a", "cgroup.cpu_throttle.throttled_periods")
    assert growth(opened, "a", "cgroup.cpu_throttle.periods") >= throttled > 0
    assert growth(opened, "a", "cgroup.cpu_throttle.throttled_s") > 0
    assert not any(name.startswith("cgroup.cpu_throttle") for name in counters(opened, "b"))
