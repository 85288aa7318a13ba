"""A GridFTP session that is killed under way: the client goes on where the file stopped, and the report shows it."""

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
from venturi.testbed.lab.living import children
from venturi.workload import expand

pytestmark = [
    needs_root,
    needs_programs("globus-url-copy", "globus-gridftp-server"),
]
SIZE = 6_500_000
"""At 8 Mb/s more than the five seconds after which a server tells for the first time which ranges are safe."""

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


def test_a_transfer_between_servers_goes_on_where_it_stopped_and_its_progress_is_recorded(tmp_path, labs, engine):
    write_plan(expand(scenario_from(tomllib.loads(SCENARIO))), tmp_path / "plan.jsonl")
    run = RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="lab")
    killed = []

    def look(progress):
        """Kill the sessions of the receiving server once it has said which ranges are safe."""
        if killed or not any("111 Range Marker" in log for log in logs(labs)):
            return
        for session in children(gridftp_server(labs, "b")):
            killed.append(session)
            os.kill(session, signal.SIGKILL)

    outcome = LabBackend(scratch=tmp_path / "scratch", engine=engine).carry_out(run, on_progress=look)
    assert (outcome.state, len(killed)) == ("complete", 1)
    with Run.open(run.path) as done:
        assert list(done.query("SELECT outcome, received_bytes FROM transfers")["received_bytes"]) == [SIZE]
        (chapter,) = [chapter for chapter in analyse(done).chapters if chapter.name == "gridftp"]
        logged = done.query(
            "SELECT (detail->>'received_bytes')::BIGINT AS n FROM events WHERE kind = 'server-transfer' AND detail->>'service' = 'b'"
        )
    (table,) = [table for table in chapter.tables if table.name == "gridftp-markers"]
    (told,) = [dict(zip((column.name for column in table.columns), row, strict=True)) for row in table.rows]
    assert (told["marked_transfers"], told["broken"], told["resumed"], told["interval_s"]) == (2, 1, 1, 5.0)
    # What its log says came the second time, and what was not sent again, are the file.
    assert list(logged["n"]) == [SIZE - told["skipped_bytes"]]
    assert 0 < told["skipped_bytes"] < SIZE
    (figure,) = chapter.figures
    assert [series.name for series in figure.panels[0].series] == ["transfer", "taken up"]
    assert figure.panels[0].series[1].y[-1] == SIZE


def logs(labs):
    """Yield the control logs of a lab, as far as they are written."""
    with suppress(OSError):
        for pid in children(os.getpid()):
            yield from (
                path.read_text(errors="replace") for path in Path(f"/proc/{pid}/root{labs}").rglob("control.log")
            )
