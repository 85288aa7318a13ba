"""A GridFTP session is killed during a transfer: the client resumes it, and the report shows the restart."""

import os
import signal
import tomllib
from contextlib import suppress
from pathlib import Path

from faultkit import gridftp_server

from testkit import needs_programs, needs_root
from venturi.analysis import analyse
from venturi.backend import LabBackend
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import scenario_from
from venturi.testbed.lab.process_id import children
from venturi.workload import expand

pytestmark = [
    needs_root,
    needs_programs("globus-url-copy", "globus-gridftp-server"),
]
SIZE = 6_500_000
"""Size of the file. At 8 Mb/s, it takes longer than 5 s, when a server first reports the received byte ranges."""

SCENARIO = f"""
venturi = 1
name = "restart"
[testbed]
host = {{ a = {{}}, b = {{}}, c = {{}} }}
router = {{ r = {{}} }}
storage = {{ source = {{ host = "a", path = "source" }}, sink = {{ host = "b", path = "sink" }} }}
[testbed.link]
a-r = {{ between = ["a", "r"], rate = "8 Mb/s" }}
b-r = {{ between = ["b", "r"], rate = "1 Gb/s" }}
c-r = {{ between = ["c", "r"], rate = "1 Gb/s" }}
[testbed.service]
a = {{ kind = "gridftp", host = "a", storage = ["source"] }}
b = {{ kind = "gridftp", host = "b", storage = ["sink"] }}
[measure]
interval = "500 ms"
counters = ["cpu"]
[workload]
kind = "sweep"
source = "source"
destination = "sink"
client = "c"
mover = "globus-url-copy"
repeat = 1
options = {{ streams = 2, restarts = 2, restart_interval = "1 s" }}
factors = {{ size = ["{SIZE} B"] }}
"""


def test_a_broken_transfer_between_servers_resumes_and_its_progress_is_recorded(tmp_path, labs, engine):
    write_plan(expand(scenario_from(tomllib.loads(SCENARIO))), tmp_path / "plan.jsonl")
    run = RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="lab")
    killed = []

    def look(progress):
        """Kill the sessions of the receiving server after its first range marker."""
        if killed or not any("111 Range Marker" in log for log in logs(labs)):
            return
        for session in children(gridftp_server(labs, "b")):
            killed.append(session)
            os.kill(session, signal.SIGKILL)

    outcome = LabBackend(scratch=tmp_path / "scratch", engine=engine).execute(run, on_progress=look)
    assert (outcome.state, len(killed)) == ("complete", 1)
    with Run.open(run.path) as done:
        assert list(done.query("SELECT outcome, received_bytes FROM transfers")["received_bytes"]) == [SIZE]
        (section,) = [section for section in analyse(done).sections if section.name == "gridftp"]
        logged = done.query(
            "SELECT (detail->>'received_bytes')::BIGINT AS n FROM events WHERE kind = 'server-transfer' AND detail->>'service' = 'b'"
        )
    (table,) = [table for table in section.tables if table.name == "gridftp-markers"]
    (output,) = [dict(zip((column.name for column in table.columns), row, strict=True)) for row in table.rows]
    assert (output["marked_transfers"], output["broken"], output["resumed"], output["interval_s"]) == (2, 1, 1, 5.0)
    # The bytes of the second attempt in the server log and the skipped bytes add up to the file.
    assert list(logged["n"]) == [SIZE - output["skipped_bytes"]]
    assert 0 < output["skipped_bytes"] < SIZE
    (figure,) = section.figures
    assert [series.name for series in figure.panels[0].series] == ["transfer", "resumed"]
    assert figure.panels[0].series[1].y[-1] == SIZE


def logs(labs):
    """Yield the control logs of a lab as written so far."""
    with suppress(OSError):
        for pid in children(os.getpid()):
            yield from (
                path.read_text(errors="replace") for path in Path(f"/proc/{pid}/root{labs}").rglob("control.log")
            )
