"""The workload `replay`: a trace is planned unchanged, faster, smaller or in part.

An invalid trace is rejected with its line.
"""

import json
from pathlib import Path

import duckdb
import jsonschema
import numpy as np
import pytest
from peerskit import bed_of
from problemkit import reports

from testkit import transfer_record, trial_record, write_plan
from venturi.errors import ScenarioError
from venturi.plan import At, Prepare, Trial, plan_lines
from venturi.report.toml import as_toml
from venturi.run import RunWriter
from venturi.scenario import load_scenario
from venturi.workload import expand
from venturi.workload.replay_plan import _peak
from venturi.workload.trace import read_trace

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "reference" / "plan.schema.json").read_text())
HEAD = "start_s,source,destination,size_bytes"
ROWS = ["100.5,alpha0,beta0,1000", "100,alpha0,Beta,2000", "130,gamma1,alpha0,3000", "115,alpha0,beta0,1000"]


@pytest.fixture
def replay(tmp_path):
    """Return a function that loads a scenario with a trace of these rows, which is in a file in its own directory."""

    def make(rows=ROWS, *, head=HEAD, top=None, **workload):
        (tmp_path / "trace.csv").write_text("\n".join([head, *rows]) + "\n")
        document = {
            "venturi": 1, "name": "r", **(top or {}), "testbed": bed_of(),
            "workload": {"kind": "replay", "mover": "globus-url-copy", "trace": "trace.csv", **workload},
        }  # fmt: skip
        path = tmp_path / "scenario.toml"
        path.write_text(as_toml(document))
        return load_scenario(path)

    return make


def moved(plan):
    """Return (time, source storage, destination storage, bytes) of each transfer, in line order."""
    found = []
    for line in plan.lines:
        if isinstance(line.steps[-1], Trial):
            _, at, trial = line.steps
            assert isinstance(at, At)
            step = trial.steps[0]
            found.append((at.time_s, step.source.partition(":")[0], step.destination.partition(":")[0], step.bytes))
    return found


def test_transfers_start_at_their_recorded_times_in_order(replay):
    plan = expand(replay())
    # Times start at the first transfer, and hosts and sites mean their storage.
    assert moved(plan) == [
        (0, "alpha0", "beta0", 2000),
        (0.5, "alpha0", "beta0", 1000),
        (15, "alpha0", "beta0", 1000),
        (30, "gamma1", "alpha0", 3000),
    ]
    assert plan.header.totals.transfers == plan.header.totals.trials == 4
    assert plan.header.totals.bytes == 7000
    check = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)
    for text in plan_lines(plan):
        check.validate(json.loads(text))
    assert list(plan_lines(plan)) == list(plan_lines(expand(replay())))


def test_a_replay_can_change_speed_size_and_start_and_select_a_window(replay):
    plan = expand(replay(speed=2.0, size_factor=0.5, lead="3 s"))
    assert [(time, size) for time, _, _, size in moved(plan)] == [(3, 1000), (3.25, 500), (10.5, 500), (18, 1500)]
    plan = expand(replay(window={"start": 110.0, "end": 130.0}, top={"scale": 0.1}))
    assert moved(plan) == [(5, "alpha0", "beta0", 100)]


def test_every_size_has_a_file_at_its_source(replay):
    plan = expand(replay())
    for line in plan.lines:
        if not isinstance(line.steps[-1], Trial):
            continue
        step = line.steps[-1].steps[0]
        storage, _, path = step.source.partition(":")
        (dataset,) = [d for d in plan.header.datasets.values() if d.storage == storage]
        number = int(path.rpartition("/")[2])
        assert dataset.range_bytes(number, 1) == step.bytes
        assert path == f"{dataset.path}/{number:06d}"
    made = {p.dataset: p.files for line in plan.lines for p in line.steps if isinstance(p, Prepare)}
    assert made == {"alpha0-replay": 2, "gamma1-replay": 1}


def test_sizes_can_be_rounded_to_reduce_the_number_of_files(replay):
    rows = [f"{n},alpha0,beta0,{size}" for n, size in enumerate((123_456, 123_999, 124_999, 99_999, 7))]
    assert [size for *_, size in moved(expand(replay(rows, digits=2)))] == [120_000, 120_000, 120_000, 100_000, 7]


def test_names_of_the_trace_can_be_mapped_and_devices_are_kept(replay):
    rows = ["0,SITE_A,SITE_B,10", "1,SITE_A,null,20"]
    plan = expand(replay(rows, map={"SITE_A": "alpha1", "SITE_B": "gamma0"}))
    assert moved(plan) == [(0, "alpha1", "gamma0", 10), (1, "alpha1", "null", 20)]


def test_recorded_rows_and_durations_are_kept_as_labels(replay):
    plan = expand(replay(["0,alpha0,beta0,10,1.5", "1,alpha0,beta0,10,"], head=f"{HEAD},duration_s"))
    labels = [line.steps[-1].steps[0].labels for line in plan.lines if isinstance(line.steps[-1], Trial)]
    assert labels == [{"row": 1, "traced_s": 1.5}, {"row": 2}]


def test_parquet_and_csv_traces_give_the_same_plan(replay, tmp_path):
    plan = list(plan_lines(expand(replay())))
    duckdb.sql(f"COPY (FROM read_csv('{tmp_path / 'trace.csv'}')) TO '{tmp_path / 'trace.parquet'}'")
    same = list(plan_lines(expand(replay(trace="trace.parquet"))))
    assert same[1:] == plan[1:]


def test_a_recorded_run_can_be_replayed(tmp_path, replay):
    lines = []
    for n in range(3):
        step = {
            "step": "transfer", "call": "cp", "slot": 0, "source": "alpha0:set/000000",
            "destination": f"beta0:out/{n}", "files": 1, "bytes": 1000 + n,
        }  # fmt: skip
        lines.append({"id": n, "step": step})
    run = recorded(tmp_path, lines)
    plan = expand(replay(trace=str(run)))
    assert moved(plan) == [(0, "alpha0", "beta0", 1000), (2, "alpha0", "beta0", 1001), (4, "alpha0", "beta0", 1002)]


def recorded(tmp_path, lines):
    """Return a run of these transfers. They start every 2 s from 10 s on and take 0.5 s each."""
    storages = {name: {"host": "node1", "path": name, "spec": None} for name in ("alpha0", "beta0")}
    trials = [
        {
            "actor": "sweep", "host": "node1",
            "steps": [{"step": "trial", "id": f"t{line['id']:07d}", "point": 0, "repetition": line["id"], "block": 0,
                       "factors": {"files": 1}, "steps": [line["step"]]}],
        }
        for line in lines
    ]  # fmt: skip
    run = RunWriter.create(
        tmp_path / "runs", write_plan(tmp_path / "plan.jsonl", trials, storages=storages), backend="hosts"
    )
    run.start_session({"node1": {"kernel": "6.1"}})
    for line in lines:
        name, step = f"t{line['id']:07d}", line["step"]
        start = 10.0 + 2 * line["id"]
        details = {key: step[key] for key in ("source", "destination")} | {
            "requested_bytes": step["bytes"],
            "received_bytes": step["bytes"],
        }
        run.trial(
            trial_record(name, transfers=[transfer_record(name, start_s=start, end_s=start + 0.5, **details)]),
            "node1",
        )
    run.finish("complete")
    return run.path


def test_a_trace_of_a_million_rows_is_read_into_columns(tmp_path):
    path = tmp_path / "trace.parquet"
    duckdb.sql(
        "COPY (SELECT (hash(i) % 100000000) / 1000 AS start_s, 's' || (hash(i + 1) % 100) AS source, 's' || (hash(i + 2) % 100) AS destination, "
        f"1 + hash(i + 3) % 1000000 AS size_bytes FROM range(1000000) t(i)) TO '{path}'"
    )
    trace = read_trace(path, None, None, 10**7)
    assert len(trace) == 1_000_000 and len(trace.names) == 100
    assert np.all(np.diff(trace.start_s) >= 0)
    total = duckdb.sql(f"SELECT sum(size_bytes), sum(start_s) FROM '{path}'").fetchall()[0]
    assert trace.size_bytes.sum() == total[0]
    assert trace.start_s.sum() == pytest.approx(total[1])
    assert sorted(trace.row) == list(range(1, 1_000_001))


def test_disk_space_is_the_peak_of_bytes_in_flight():
    start, end, size = np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 4.0]), np.array([10, 20, 40])
    assert _peak(start, end, size) == 60
    assert _peak(start, np.array([1.5, 3.0, 4.0]), size) == 60
    assert _peak(start, np.array([2.5, 3.0, 4.0]), size) == 70


@pytest.mark.parametrize(
    ("rows", "more", "problem"),
    [
        (["1,alpha0,beta0,1", "x,alpha0,beta0,1"], {}, 'trace.csv: line 3: start_s: expected a number of seconds, found "x"'),
        (["nan,alpha0,beta0,1"], {}, 'trace.csv: line 2: start_s: expected a number of seconds, found "nan"'),
        (["1,,beta0,1"], {}, "trace.csv: line 2: source: expected a name, found"),
        (["1,alpha0,beta0,-5"], {}, 'trace.csv: line 2: size_bytes: expected a whole number of bytes, 1 to 9007199254740992, found "-5"'),
        (["1,alpha0,beta0,1.5"], {}, 'trace.csv: line 2: size_bytes: expected a whole number of bytes, 1 to 9007199254740992, found "1.5"'),
        (["1,alpha0,beta0,1,-1"], {"head": f"{HEAD},duration_s"}, 'line 2: duration_s: expected a number of seconds, 0 or more, or an empty value, found "-1"'),
        (["1,alpha0,beta0"], {"head": "start_s,source,destinaton"}, "expected the columns start_s, source, destination, size_bytes, found start_s, source, destinaton; did you mean destinaton?"),
        ([], {}, "trace.csv: expected transfers, found none"),
        (ROWS, {"window": {"start": 500.0}}, "trace.csv: expected transfers, found none of 4 in the window"),
        (["1,alpha9,beta0,1"], {}, 'workload.map: expected one of the storages, hosts and sites: alpha0,'),
        (["1,Alpha,beta0,1"], {}, "workload.map: expected one storage of Alpha, found alpha0, alpha1, alpha2 in the trace"),
        (ROWS, {"map": {"alpha7": "alpha1"}}, "workload.map.alpha7: expected one of the names in the trace: Beta, alpha0, beta0, gamma1"),
        (ROWS, {"map": {"alpha0": "nowhere"}}, "workload.map.alpha0: expected one of the storages, hosts and sites"),
        (ROWS, {"trace": "none.csv"}, "none.csv: expected a run directory or a trace file, found no file"),
    ],
)  # fmt: skip
def test_rejects_invalid_trace_with_location(replay, rows, more, problem):
    with pytest.raises(ScenarioError) as error:
        replay(rows, **more)
    assert reports(problem, error.value)


def test_too_many_sizes_are_rejected_with_advice(replay, monkeypatch):
    monkeypatch.setattr("venturi.workload.replay_plan.MAX_SIZES", 2)
    with pytest.raises(
        ScenarioError,
        match=r"workload.digits: expected at most 2 files of different sizes, found 3; .*digits",
    ):
        replay()
