"""Closed-loop clients in a lab: processes and the load generator agree, and the results show a killed proxy."""

import os
import shutil
import signal
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from labkit import below

from testkit import needs_root
from venturi.analysis import analyse
from venturi.backend import LabBackend
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import scenario_from
from venturi.testbed.lab import registered
from venturi.workload import expand

LACKING = [
    program
    for program in ("squid", "nginx", "wget")
    if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None
]
pytestmark = [needs_root, pytest.mark.skipif(bool(LACKING), reason=f"not installed: {', '.join(LACKING)}")]

SCENARIO = """
venturi = 1
name = "clients"
testbed.host = { c1 = {}, c2 = {}, s = {}, origin = {} }
testbed.router.core = {}
testbed.link.c1 = { between = ["c1", "core"], rate = "100 Mb/s", delay = "20 ms" }
testbed.link.c2 = { between = ["c2", "core"], rate = "100 Mb/s", delay = "20 ms" }
testbed.link.s0 = { between = ["s", "core"], rate = "100 Mb/s", delay = "10 ms" }
testbed.link.s1 = { between = ["s", "core"], rate = "100 Mb/s", delay = "10 ms" }
testbed.link.origin = { between = ["origin", "core"], rate = "100 Mb/s" }
testbed.storage.web = { host = "origin", path = "web" }
testbed.service.http = { kind = "nginx", host = "origin", storage = ["web"] }
testbed.service.squid = { kind = "squid", host = "s", options = { instances = 2, all_interfaces = true } }
measure = { interval = "100 ms", counters = ["nic"] }
analyse = { against = ["clients"], families = ["linear"] }

[workload]
kind = "clients"
source = "web"
size = "50 kB"
clients = 8
duration = "3 s"
ramp = "1 s"
repeat = 2
factors = { mover = ["wget", "http-load"] }
group.both = { services = ["squid"], clients = ["c1", "c2"] }
"""


def execute(tmp_path, engine, scenario, **options):
    """Run a scenario in the lab; return the outcome and the run."""
    plan = tmp_path / "plan.jsonl"
    write_plan(expand(scenario), plan)
    run = RunWriter.create(tmp_path / "runs", plan, backend="lab")
    outcome = LabBackend(scratch=tmp_path / "scratch", engine=engine).execute(run, **options)
    return outcome, Run.open(run.path)


def section_table(analysis, name):
    """Return the rows of a table of the report section."""
    (table,) = [table for section in analysis.sections for table in section.tables if table.name == name]
    names = [column.name for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in table.rows]


@pytest.mark.alone
def test_wget_processes_and_the_load_generator_agree_on_the_rate_and_with_the_proxy_log(tmp_path, parent, engine):
    outcome, run = execute(tmp_path, engine, scenario_from(tomllib.loads(SCENARIO)))
    assert (outcome.state, outcome.trials_done, outcome.failed) == ("complete", 8, 0)
    analysis = analyse(run)
    rates = {row["mover"]: row for row in section_table(analysis, "clients-rates")}
    assert {row["errors"] for row in rates.values()} == {0} and {row["n"] for row in rates.values()} == {2}
    # A fetch takes four or five round trips of 60 ms. A wget also starts and exits, which takes about 10 ms on a busy
    # machine.
    ratio = rates["wget"]["rate_bit_per_s"] / rates["http-load"]["rate_bit_per_s"]
    assert 0.8 <= ratio <= 1.1, rates
    fetch_s = [row["fetch_s"] for row in rates.values()]
    assert all(0.18 <= time_s <= 0.6 for time_s in fetch_s), fetch_s
    # External reference: the network carries the bodies, 52 bytes of headers per 1448 bytes, and the handshakes. For a
    # wget, that is 50 kB in 35 segments, one header and four short segments: 0.955. The count of the generator is
    # compared with samples at intervals of 0.1 s.
    for row in section_table(analysis, "clients-hosts"):
        low, high = (0.93, 0.965) if row["mover"] == "wget" else (0.85, 1.0)
        assert row["host"] in ("c1", "c2", "all") and low <= row["wire_ratio"] <= high, row
    (squid,) = [row for row in section_table(analysis, "clients-servers") if row["service"] == "squid"]
    done = run.query(
        """SELECT sum(coalesce((tool->>'fetches')::BIGINT, 1))::BIGINT AS fetches,
                  sum(coalesce(tool_bytes, requested_bytes))::BIGINT AS bytes FROM transfers"""
    )
    assert squid["requests"] == done["fetches"][0] and squid["client_bytes"] == done["bytes"][0]
    assert squid["agrees"] and squid["hits"] > 0.9 * squid["requests"]
    assert registered(parent) == []


def test_a_killed_squid_process_is_a_finding_and_the_other_process_continues(tmp_path, parent, engine):
    document = tomllib.loads(SCENARIO)
    document["workload"] |= {
        "mover": "wget",
        "factors": {},
        "repeat": 2,
        "duration": "2 s",
        "ramp": "0 s",
        "timeout": "5 s",
    }
    killed = []

    def kill_one(progress):
        if progress.trials_done >= 2 and not killed:
            for pid in below(os.getpid()):
                with suppress(OSError):  # the process has exited
                    if not killed and b"squid\0-n\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        os.kill(pid, signal.SIGKILL)
                        killed.append(pid)

    outcome, run = execute(tmp_path, engine, scenario_from(document), on_progress=kill_one)
    assert killed and (outcome.state, outcome.trials_done) == ("complete", 4)
    assert ("service-exited", "squid") in {(finding.code, finding.subject) for finding in run.findings()}
    after = run.query("SELECT count(*) FILTER (outcome = 'ok') AS ok FROM transfers WHERE repetition = 1")["ok"][0]
    assert after > 0, "the process that is left serves both interfaces"
    trials = run.query("SELECT count(*) AS n, count(DISTINCT trial) AS ids FROM trials")
    assert (trials["n"][0], trials["ids"][0]) == (4, 4)
    assert section_table(analyse(run), "clients-rates")
    assert registered(parent) == []
