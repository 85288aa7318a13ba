"""A proxy is killed while closed-loop clients use it, in a tiny variant of the Squid study."""

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from test_fault_lab import rows_of, when

from testkit import needs_root
from venturi.analysis import analyse
from venturi.backend import LabBackend
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import load_scenario
from venturi.study import study
from venturi.workload import expand

LACKING = [
    program
    for program in ("squid", "nginx", "wget")
    if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None
]
pytestmark = [
    needs_root,
    pytest.mark.skipif(bool(LACKING), reason=f"not installed: {', '.join(LACKING)}"),
]
# Each host has one process, so a kill ends its proxy. Each machine has 12 clients, which use one host only.
TINY = (
    "scale=0.002", "workload.size=\"10 MB\"", "workload.clients_scale=0.004", 'workload.duration="1 s"', "workload.ramp=\"0 s\"",
    "workload.repeat=3", "workload.timeout=\"5 s\"", "workload.factors.group=[\"anl-10-off\"]", "workload.factors.pairing=[\"one to one\"]",
    "workload.factors.clients=[3000]", "measure.interval=\"off\"",
    *(f"testbed.service.anl{host}-10-off.options.instances=1" for host in (1, 2, 3)),
)  # fmt: skip


def squid_pid(labs, service):
    """Return the PID of the only Squid of a service."""
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has exited
            words = (directory / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if words[0] == "squid" and any(word.startswith(str(labs)) and f"/{service}/" in word for word in words):
                return int(directory.name)
    raise AssertionError(f"no squid of {service}")


def test_a_killed_squid_fails_only_the_clients_of_its_host(tmp_path, labs, engine):
    scenario = load_scenario(study("ani/squid").scenario_path, overrides=list(TINY))
    write_plan(expand(scenario), tmp_path / "plan.jsonl")
    run = RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="lab")
    kill = when(3, lambda: os.kill(squid_pid(labs, "anl2-10-off"), signal.SIGKILL))
    outcome = LabBackend(scratch=tmp_path / "scratch", engine=engine).execute(run, on_progress=kill)
    assert (outcome.state, outcome.trials_done) == ("complete", 9)
    with Run.open(run.path) as found:
        (ended_s,) = found.query("SELECT time_s FROM events WHERE kind = 'service-exited'")["time_s"]
        after = rows_of(found, f"labels->>'service' = 'anl2-10-off' AND start_s > {ended_s}")
        assert after and {row["outcome"] for row in after} == {"failed"}
        assert all("Connection refused" in str(row["error"]) for row in after)
        others = rows_of(found, "labels->>'service' <> 'anl2-10-off'")
        assert {row["outcome"] for row in others} == {"ok"}
        assert {row["repetition"] for row in others if row["start_s"] > ended_s} >= {2}
        assert ("service-exited", "anl2-10-off") in {(finding.code, finding.subject) for finding in found.findings()}
        (section,) = analyse(found).sections
        (rates,) = [table for table in section.tables if table.name == "clients-rates"]
        row = dict(zip([column.name for column in rates.columns], rates.rows[0], strict=True))
        assert row["errors"] == len([one for one in rows_of(found) if one["outcome"] != "ok"])
