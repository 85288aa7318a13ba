"""The backend `sim` from a plan to a run: contents, reproducibility, and early ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from venturi.advice import advise
from venturi.backend import SessionOutcome, SimBackend
from venturi.errors import BackendError
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.run.directory import INFO, JOURNAL
from venturi.scenario import scenario_from
from venturi.workload import expand

WRITE_BYTES_PER_S = 1e9
"""Default of the engine for a storage without a rate in the plan."""

SWEEP: dict[str, Any] = {
    "venturi": 1,
    "name": "simulated",
    "testbed": {"host": {"here": {}}, "storage": {"disk": {"host": "here", "path": "data"}}},
    "workload": {
        "kind": "sweep",
        "mover": "cp",
        "source": "disk",
        "destination": "disk",
        "repeat": 2,
        "factors": {"files": [1, 4], "size": ["1 GB", "2 GB"]},
    },
}


def execute(base: Path, document: dict[str, Any]) -> tuple[Run, SessionOutcome]:
    write_plan(expand(scenario_from(document)), base / "plan.jsonl")
    with RunWriter.create(base / "runs", base / "plan.jsonl", backend="sim") as run:
        outcome = SimBackend().execute(run)
    return Run.open(run.path), outcome


def test_a_sweep_runs_completely_and_copies_share_the_rate_of_their_disk(tmp_path: Path) -> None:
    run, outcome = execute(tmp_path, SWEEP)
    assert (run.backend, run.state, outcome.state, outcome.trials_done, outcome.failed) == (
        "sim",
        "complete",
        "complete",
        8,
        0,
    )
    rows = run.query("SELECT factor_files AS files, requested_bytes, received_bytes, duration_s FROM transfers")
    assert (rows["requested_bytes"] == rows["received_bytes"]).all()
    # Writing limits a copy, and all copies of a trial share it. The start of the tool comes on top.
    least_s = rows["files"] * rows["requested_bytes"] / WRITE_BYTES_PER_S
    assert (rows["duration_s"] >= least_s * (1 - 1e-9)).all()
    assert (rows["duration_s"] <= least_s + 0.1).all()


def test_values_that_are_not_simulated_are_absent_instead_of_zero(tmp_path: Path) -> None:
    run, _ = execute(tmp_path, SWEEP)
    absent = ("exit_code", "user_s", "system_s", "max_rss_bytes", "minor_faults", "read_call_bytes", "tool_bytes")
    counts = run.query("SELECT " + ", ".join(f"count({name}) AS {name}" for name in absent) + " FROM transfers")
    assert {name: int(counts[name][0]) for name in absent} == dict.fromkeys(absent, 0)


def test_bottleneck_fractions_of_a_transfer_add_up_to_one(tmp_path: Path) -> None:
    run, _ = execute(tmp_path, SWEEP)
    bottleneck = [json.loads(text) for text in run.query("SELECT bottleneck FROM transfers")["bottleneck"]]
    assert np.allclose([sum(bottlenecks.values()) for bottlenecks in bottleneck], 1.0, rtol=0, atol=1e-9)
    assert all(bottlenecks["disk:disk:write"] > 0.9 for bottlenecks in bottleneck)


def test_the_same_plan_gives_the_same_run(tmp_path: Path) -> None:
    tables = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        run, _ = execute(tmp_path / name, SWEEP)
        tables.append(run.query("SELECT trial, slot, start_s, end_s, bottleneck FROM transfers ORDER BY ALL"))
    assert all((tables[0][key] == tables[1][key]).all() for key in tables[0])


def test_an_interrupted_simulation_is_run_again_from_its_start(tmp_path: Path) -> None:
    run, _ = execute(tmp_path, SWEEP)
    whole = run.query("SELECT trial, start_s, end_s FROM trials ORDER BY trial")
    run.close()
    journal = run.path / JOURNAL
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:4]))
    info = json.loads((run.path / INFO).read_text())
    (run.path / INFO).write_text(json.dumps({**info, "state": "stopped"}))
    with RunWriter.resume(run.path) as writer:
        assert 0 < len(writer.finished) < 8
        outcome = SimBackend().execute(writer)
    again = Run.open(run.path).query("SELECT trial, start_s, end_s FROM trials ORDER BY trial")
    assert outcome.state == "complete"
    assert all((whole[key] == again[key]).all() for key in whole)


CUT: dict[str, Any] = {
    "venturi": 1,
    "name": "cut",
    "testbed": {
        "host": {"a": {}, "b": {}},
        "link": {"l": {"between": ["a", "b"], "rate": "80 Mb/s", "rtt": "20 ms"}},
        "change": [{"at": "0 s", "link": "l", "up": False}, {"at": "30 s", "link": "l", "up": True}],
        "storage": {"source": {"host": "a", "path": "source"}, "sink": {"host": "b", "path": "sink"}},
        "service": {"web": {"kind": "nginx", "host": "a", "storage": ["source"]}},
    },
    "workload": {
        "kind": "sweep",
        "mover": "wget",
        "source": "source",
        "source_service": "web",
        "destination": "sink",
        "repeat": 2,
        "timeout": "20 s",
        "factors": {"size": ["1 MB"]},
    },
}
"""The first transfer cannot finish in its 20 s; the second has a working link for 10 s of them."""


def test_failed_trials_are_retried_at_the_virtual_time_after_the_other_trials(tmp_path: Path) -> None:
    run, outcome = execute(tmp_path, CUT)
    assert (outcome.state, outcome.failed) == ("complete", 1)
    first = run.query("SELECT outcome, duration_s FROM transfers ORDER BY end_s")
    assert (list(first["outcome"]), first["duration_s"][0]) == (["timeout", "ok"], 20.0)
    run.close()
    with RunWriter.resume(run.path, retry_failed=True) as writer:
        outcome = SimBackend().execute(writer)
    assert (outcome.state, outcome.failed) == ("complete", 0)
    rows = Run.open(run.path).query("SELECT trial, outcome, start_s, end_s FROM trials ORDER BY trial")
    assert list(rows["outcome"]) == ["ok", "ok"]
    # It starts after the end of the other, when the link is up again.
    assert rows["start_s"][0] == rows["end_s"][1] > 30.0
    assert rows["end_s"][0] - rows["start_s"][0] < 1.0


def test_a_plan_with_an_actor_that_waits_forever_is_rejected_with_its_name(tmp_path: Path) -> None:
    header = {
        "format": "venturi-plan",
        "version": 2,
        "name": "waits",
        "seed": 1,
        "scale": 1.0,
        "scenario": {},
        "hosts": {"here": {"ssh": None, "memory_bytes": None}},
        "storages": {},
        "datasets": {},
        "calls": {},
        "draws": {},
        "pools": {},
        "measure": {"interval_s": None, "counters": []},
        "totals": {"trials": 0, "transfers": 0, "bytes": 0, "disk_bytes": {}},
    }
    actor = {"actor": "one", "host": "here", "steps": [{"step": "wait", "counter": "never", "until": 1}]}
    plan = tmp_path / "plan.jsonl"
    plan.write_text(f"{json.dumps(header)}\n{json.dumps(actor)}\n")
    run = RunWriter.create(tmp_path / "runs", plan, backend="sim")
    with pytest.raises(BackendError, match=r"on here, actor `one` waits for .*never"):
        SimBackend().execute(run)


def test_an_impossible_assumption_is_rejected_by_name(tmp_path: Path) -> None:
    write_plan(expand(scenario_from(SWEEP)), tmp_path / "plan.jsonl")
    run = RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="sim")
    with pytest.raises(
        BackendError, match=r"world\.loopback_bytes_per_s: expected a finite number above 0, found -1"
    ):
        SimBackend(assumptions={"loopback_bytes_per_s": -1.0}).execute(run)


def test_the_advice_on_a_simulated_run_has_the_fractions_of_its_time(tmp_path: Path) -> None:
    run, _ = execute(tmp_path, SWEEP)
    found = advise(run).run
    assert (found.cause, found.resource) == ("destination-disk", "the disk of storage disk on here")
    assert sum(one.fraction for one in found.fractions) == pytest.approx(1.0, abs=0.05)
    assert found.fraction > 0.5
