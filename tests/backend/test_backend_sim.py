"""The backend `sim` from a plan to a run: what is in it, that it is the same twice, and how it ends before its end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from venturi.analysis.explain import explain
from venturi.backend import Outcome, SimBackend
from venturi.errors import BackendError, RunError
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.run.directory import INFO, JOURNAL
from venturi.scenario import scenario_from
from venturi.workload import expand

WRITE_BYTES_PER_S = 1e9
"""What the engine assumes of a place that the plan gives no rate."""

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


def carry_out(base: Path, document: dict[str, Any]) -> tuple[Run, Outcome]:
    write_plan(expand(scenario_from(document)), base / "plan.jsonl")
    with RunWriter.create(base / "runs", base / "plan.jsonl", backend="sim") as run:
        outcome = SimBackend().carry_out(run)
    return Run.open(run.path), outcome


def test_a_sweep_is_carried_out_whole_and_copies_share_the_rate_of_their_disk(tmp_path: Path) -> None:
    run, outcome = carry_out(tmp_path, SWEEP)
    assert (run.backend, run.state, outcome.state, outcome.trials_done, outcome.failed) == (
        "sim",
        "complete",
        "complete",
        8,
        0,
    )
    rows = run.query("SELECT factor_files AS files, asked_bytes, received_bytes, duration_s FROM transfers")
    assert (rows["asked_bytes"] == rows["received_bytes"]).all()
    # A copy is bound by the writing, which all copies of a trial share; the tool's own start comes besides.
    least_s = rows["files"] * rows["asked_bytes"] / WRITE_BYTES_PER_S
    assert (rows["duration_s"] >= least_s * (1 - 1e-9)).all()
    assert (rows["duration_s"] <= least_s + 0.1).all()


def test_what_is_not_simulated_is_absent_and_never_zero(tmp_path: Path) -> None:
    run, _ = carry_out(tmp_path, SWEEP)
    absent = ("exit_code", "user_s", "system_s", "max_rss_bytes", "minor_faults", "read_call_bytes", "tool_bytes")
    counts = run.query("SELECT " + ", ".join(f"count({name}) AS {name}" for name in absent) + " FROM transfers")
    assert {name: int(counts[name][0]) for name in absent} == dict.fromkeys(absent, 0)


def test_what_bound_a_transfer_adds_up_to_its_time(tmp_path: Path) -> None:
    run, _ = carry_out(tmp_path, SWEEP)
    bound = [json.loads(text) for text in run.query("SELECT bound FROM transfers")["bound"]]
    assert np.allclose([sum(shares.values()) for shares in bound], 1.0, rtol=0, atol=1e-9)
    assert all(shares["disk:disk:write"] > 0.9 for shares in bound)


def test_the_same_plan_gives_the_same_run(tmp_path: Path) -> None:
    tables = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        run, _ = carry_out(tmp_path / name, SWEEP)
        tables.append(run.query("SELECT trial, slot, start_s, end_s, bound FROM transfers ORDER BY ALL"))
    assert all((tables[0][key] == tables[1][key]).all() for key in tables[0])


def test_a_run_that_was_cut_off_is_carried_out_again_from_its_beginning(tmp_path: Path) -> None:
    run, _ = carry_out(tmp_path, SWEEP)
    whole = run.query("SELECT trial, start_s, end_s FROM trials ORDER BY trial")
    run.close()
    journal = run.path / JOURNAL
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:4]))
    info = json.loads((run.path / INFO).read_text())
    (run.path / INFO).write_text(json.dumps({**info, "state": "stopped"}))
    with RunWriter.resume(run.path) as writer:
        assert 0 < len(writer.finished) < 8
        outcome = SimBackend().carry_out(writer)
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
"""The first transfer has no chance in its 20 s, the second has 10 s of them."""


def test_trials_that_failed_are_carried_out_once_more_at_the_time_that_has_come_by_then(tmp_path: Path) -> None:
    run, outcome = carry_out(tmp_path, CUT)
    assert (outcome.state, outcome.failed) == ("complete", 1)
    first = run.query("SELECT outcome, duration_s FROM transfers ORDER BY end_s")
    assert (list(first["outcome"]), first["duration_s"][0]) == (["timeout", "ok"], 20.0)
    run.close()
    with RunWriter.resume(run.path, retry_failed=True) as writer:
        outcome = SimBackend().carry_out(writer)
    assert (outcome.state, outcome.failed) == ("complete", 0)
    rows = Run.open(run.path).query("SELECT trial, outcome, start_s, end_s FROM trials ORDER BY trial")
    assert list(rows["outcome"]) == ["ok", "ok"]
    # It begins when the other has ended, on a link that is whole again.
    assert rows["start_s"][0] == rows["end_s"][1] > 30.0
    assert rows["end_s"][0] - rows["start_s"][0] < 1.0


def test_a_plan_in_which_somebody_waits_for_ever_is_refused_with_his_name(tmp_path: Path) -> None:
    header = {
        "format": "venturi-plan",
        "version": 1,
        "name": "waits",
        "seed": 1,
        "scale": 1.0,
        "scenario": {},
        "hosts": {"here": {"ssh": None, "memory_bytes": None}},
        "places": {},
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
        SimBackend().carry_out(run)


def test_an_assumption_that_cannot_be_is_refused_by_its_name(tmp_path: Path) -> None:
    write_plan(expand(scenario_from(SWEEP)), tmp_path / "plan.jsonl")
    run = RunWriter.create(tmp_path / "runs", tmp_path / "plan.jsonl", backend="sim")
    with pytest.raises(
        BackendError, match=r"world\.loopback_bytes_per_s: expected a finite number above 0, found -1"
    ):
        SimBackend(assumptions={"loopback_bytes_per_s": -1.0}).carry_out(run)


def test_a_run_is_explained_by_the_shares_of_its_time(tmp_path: Path) -> None:
    run, _ = carry_out(tmp_path, SWEEP)
    found = explain(run)
    assert found.transfers == 20
    assert found.shares[0].name == "disk:disk:write"
    assert sum(one.share for one in found.shares) == pytest.approx(1.0, abs=1e-9)
    assert explain(run, "t0000000").transfers in (1, 4)
    with pytest.raises(RunError, match="of the trial t0000099"):
        explain(run, "t0000099")
