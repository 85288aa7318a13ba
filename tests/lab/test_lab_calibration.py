"""A small lab run is calibrated to costs, and a simulation with these costs is closer to it."""

from testkit import needs_programs, needs_root
from venturi.backend import LabBackend
from venturi.calibration import calibrate
from venturi.calibration.document import costs_text, read_costs
from venturi.calibration.validate import validate
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import scenario_from
from venturi.workload import expand

pytestmark = [
    needs_root,
    needs_programs("globus-url-copy", "globus-gridftp-server"),
]

RTT_S = 0.04
SCENARIO = {
    "venturi": 1,
    "name": "calibrated",
    "testbed": {
        "host": {"client": {}, "server": {}},
        "link": {"wan": {"between": ["client", "server"], "rate": "100 Mb/s", "rtt": f"{RTT_S * 1e3:g} ms"}},
        "storage": {"data": {"host": "server", "path": "data"}, "here": {"host": "client", "path": "here"}},
        "service": {"gridftp": {"kind": "gridftp", "host": "server", "storage": ["data"]}},
    },
    "workload": {
        "kind": "sweep",
        "mover": "globus-url-copy",
        "client": "client",
        "source": "data",
        "source_service": "gridftp",
        "destination": "here",
        "repeat": 2,
        "factors": {"files": [1, 2], "size": ["1 kB", "300 kB", "3 MB"]},
    },
}


def test_a_run_of_the_lab_calibrates_and_validates(parent, tmp_path, engine):
    write_plan(expand(scenario_from(SCENARIO)), tmp_path / "plan.jsonl")
    with RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="lab") as writer:
        outcome = LabBackend(scratch=tmp_path / "scratch", engine=engine).execute(writer)
    assert (outcome.state, outcome.failed) == ("complete", 0)
    run = Run.open(writer.path)
    result = calibrate([run], engine=engine)
    assert (result.fitted.n, result.held_out.n) == (3, 3)
    (tmp_path / "costs.toml").write_text(costs_text(result), encoding="utf-8")
    # A login alone takes about ten round trips; the naive estimate has one.
    output = validate(run, read_costs(tmp_path / "costs.toml"), engine=engine)
    assert len(output.transfers) == 2 * 3 * (1 + 2)
    assert output.of_points.median < 0.3 < output.naive.median
