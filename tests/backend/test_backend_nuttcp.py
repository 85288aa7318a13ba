"""nuttcp between two hosts: a trial directly after another finds a server and its data ports."""

from testkit import needs_programs
from venturi.backend import HostsBackend
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import load_scenario
from venturi.workload import expand

pytestmark = needs_programs("nuttcp")

SCENARIO = """
venturi = 1
name = "back-to-back"
seed = 1
[testbed.host.a]
connect = ["env", "HOME={home}/a"]
address = "127.0.0.1"
[testbed.host.b]
connect = ["env", "HOME={home}/b"]
address = "127.0.0.1"
[testbed.service.server]
kind = "nuttcp"
host = "b"
[workload]
kind = "sweep"
client = "a"
mover = "nuttcp"
destination_service = "server"
repeat = 20
[workload.factors]
size = ["1 MB"]
streams = [1, 4]
"""


def test_forty_consecutive_trials_reach_their_nuttcp_server(tmp_path, engine):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "nuttcp.toml").write_text(SCENARIO.format(home=tmp_path))
    write_plan(expand(load_scenario(tmp_path / "nuttcp.toml")), tmp_path / "plan.jsonl")
    run = RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="hosts")
    outcome = HostsBackend(engine=engine).execute(run)
    with Run.open(run.path) as result:
        errors = result.query("SELECT error, count(*) AS n FROM transfers WHERE outcome != 'ok' GROUP BY error")
    assert errors["error"].tolist() == []
    assert (outcome.state, outcome.failed, outcome.trials_done) == ("complete", 0, 40)
