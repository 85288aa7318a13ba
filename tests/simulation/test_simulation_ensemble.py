"""Ensembles: results independent of the number of workers, resumed and failed members, and interruption."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import venturi
from testkit import living_processes
from venturi.errors import BackendError, RunError, ScenarioError
from venturi.run import Run
from venturi.simulation import Member, summarise
from venturi.simulation.ensemble import MEMBERS, WORKING

SCENARIO: dict[str, Any] = {
    "venturi": 1,
    "name": "arrivals",
    "testbed": {
        "host": {"a": {}, "b": {}},
        "router": {"core": {}},
        "link": {name: {"between": [name, "core"], "rate": "10 Gb/s", "delay": "2 ms"} for name in ("a", "b")},
        "storage": {
            name: {
                "host": name,
                "path": "data",
                "kind": "disk",
                "size": "100 TB",
                "read_rate": "8 Gb/s",
                "write_rate": "8 Gb/s",
            }
            for name in ("a", "b")
        },
        "service": {name: {"kind": "xrootd", "host": name, "storage": [name]} for name in ("a", "b")},
    },
    "workload": {
        "kind": "inject",
        "mover": "xrdcp",
        "flow": {"export": {"source": "a", "destination": "b", "rate": "4 Gb/s", "end": "20 s", "size": ["1 GB"]}},
    },
}
RATE = "testbed.link.b.rate"


def test_equal_seeds_simulate_equal_runs_and_different_seeds_differ() -> None:
    ends = []
    for seed in (3, 3, 4):
        with venturi.simulate(SCENARIO, seed=seed) as run:
            assert (run.backend, run.state, run.header["seed"]) == ("sim", "complete", seed)
            ends.append(run.query("SELECT end_s FROM transfers ORDER BY trial")["end_s"].tolist())
    assert ends[0] == ends[1] != ends[2]


def test_a_run_without_a_directory_is_deleted_with_its_object() -> None:
    run = venturi.simulate(SCENARIO)
    path = run.path
    assert path.exists()
    run.close()
    del run
    assert not path.parent.exists()


def test_an_existing_directory_is_rejected_and_kept(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(RunError, match="expected a new directory"):
        venturi.simulate(SCENARIO, directory=tmp_path)
    assert (tmp_path / "mine").read_text() == "precious"


def test_members_are_the_same_regardless_of_the_number_of_workers(tmp_path: Path) -> None:
    vary = {RATE: ["10 Gb/s", "2 Gb/s"]}
    one = venturi.ensemble(SCENARIO, seeds=[1, 2], vary=vary, directory=tmp_path / "one", workers=1)
    many = venturi.ensemble(SCENARIO, seeds=[1, 2], vary=vary, directory=tmp_path / "many", workers=3)
    assert one.members == many.members and not one.failed
    assert [(member.seed, member.parameters[RATE]) for member in one.members] == [
        (1, "10 Gb/s"), (2, "10 Gb/s"), (1, "2 Gb/s"), (2, "2 Gb/s"),
    ]  # fmt: skip
    with venturi.simulate(SCENARIO, seed=2, overrides=[f'{RATE}="2 Gb/s"']) as run:
        makespan_s = run.query("SELECT max(end_s) - min(start_s) AS s FROM transfers")["s"][0]
    assert one.members[3].figures["makespan_s"] == makespan_s
    assert one.table()["makespan_s"][3] == makespan_s


def test_existing_members_are_reused_and_more_members_can_be_added(tmp_path: Path) -> None:
    first = venturi.ensemble(SCENARIO, seeds=[1, 2], directory=tmp_path, keep_runs=True, workers=2)
    with (tmp_path / MEMBERS).open("a") as lines:
        lines.write('{"seed": 3, "param')  # an incomplete line after a crash
    output: list[tuple[int, int, int]] = []
    more = venturi.ensemble(
        SCENARIO, seeds=[1, 2, 3], directory=tmp_path, workers=1, on_progress=lambda *now: output.append(now)
    )
    assert output == [(2, 3, 0), (3, 3, 0)]
    assert more.members[:2] == first.members
    assert len((tmp_path / MEMBERS).read_text().splitlines()) == 3
    kept = first.members[0].run
    assert kept is not None and Run.open(tmp_path / kept).header["seed"] == 1


def test_the_directory_of_an_ensemble_rejects_another_scenario(tmp_path: Path) -> None:
    venturi.ensemble(SCENARIO, directory=tmp_path, workers=1)
    other = copy.deepcopy(SCENARIO)
    other["workload"]["flow"]["export"]["end"] = "10 s"
    with pytest.raises(RunError, match="different scenario"):
        venturi.ensemble(other, directory=tmp_path)


def test_a_failed_member_is_reported_and_the_others_continue(tmp_path: Path) -> None:
    vary = {"testbed.storage.b.host": ["b", "nowhere"]}
    found = venturi.ensemble(SCENARIO, vary=vary, directory=tmp_path, workers=1)
    assert [bool(member.error) for member in found.members] == [False, True]
    assert "nowhere" in found.failed[0].error and "nowhere" in found.failed[0].name
    again: list[tuple[int, int, int]] = []
    venturi.ensemble(SCENARIO, vary=vary, directory=tmp_path, workers=1, on_progress=lambda *now: again.append(now))
    assert again[0] == (1, 2, 0), "what failed is tried again"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": []}, "seeds: expected at least one seed"),
        ({"seeds": [1, 1]}, "expected each member once, found one twice: seed 1"),
        ({"vary": {RATE: "10 Gb/s"}}, "expected a list of values"),
        ({"workers": 0}, "workers: expected at least 1, found 0"),
        ({"seeds": range(200_000)}, "expected at most 100000 members, found 200000"),
        ({"vary": {RATE: ["fast"]}}, "testbed.link.b.rate"),
    ],
)
def test_invalid_ensembles_are_rejected_before_the_directory_is_created(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ScenarioError, match=message):
        venturi.ensemble(SCENARIO, directory=tmp_path / "new", **change)
    assert not (tmp_path / "new").exists()


def test_a_custom_figure_is_computed_for_each_run(tmp_path: Path) -> None:
    figures = {"slowest_s": "SELECT max(duration_s) FROM transfers"}
    found = venturi.ensemble(SCENARIO, figures=figures, directory=tmp_path, workers=1)
    assert found.members[0].figures["slowest_s"] >= found.members[0].figures["duration_p95_s"]


def test_a_summary_has_the_median_and_an_interval_that_covers_the_true_value() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(100.0, 5.0, 200)
    members = [Member(seed, {"x": 1}, "", {"time_s": value}) for seed, value in enumerate(values)]
    (group,) = summarise([*members, Member(200, {"x": 1}, "it broke")])
    found = group.figures["time_s"]
    assert (group.members, group.failed, found.n, found.median) == (201, 1, 200, float(np.median(values)))
    assert found.mean is not None and found.median_interval is not None
    # The standard error of the median of normal values is sqrt(pi / 2) sigma / sqrt(n), so 95 % are about ±0.87 here.
    assert found.median_interval.contains(100.0) and 0.4 < found.median_interval.half_width < 1.6
    assert summarise(members)[0].figures["time_s"].median_interval == found.median_interval


def test_ctrl_c_keeps_finished_members_and_leaves_no_process_or_temporary_file(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.json"
    scenario.write_text(json.dumps(SCENARIO))
    token = f"ensemble-{os.getpid()}"
    program = (
        "import json, sys, venturi\n"
        "venturi.ensemble(json.load(open(sys.argv[1])), seeds=range(500), directory=sys.argv[2], workers=2)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(scenario), str(tmp_path / "found")],
        env=os.environ | {"VENTURI_TEST": token}, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    members = tmp_path / "found" / MEMBERS
    deadline_s = time.monotonic() + 60
    while not (members.exists() and members.read_text().count("\n") >= 2):
        assert process.poll() is None and time.monotonic() < deadline_s
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert not (tmp_path / "found" / WORKING).exists()
    assert living_processes(token) == []
    assert 2 <= members.read_text().count("\n") < 500


def test_a_dask_cluster_gives_the_same_members_as_this_machine(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        there = venturi.ensemble(
            SCENARIO, seeds=[1, 2, 3], directory=tmp_path / "dask", dask=cluster.scheduler_address
        )
    here = venturi.ensemble(SCENARIO, seeds=[1, 2, 3], directory=tmp_path / "here", workers=1)
    assert there.members == here.members and not here.failed


def test_an_unreachable_cluster_is_reported_with_its_address(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    with pytest.raises(BackendError, match="--dask nonsense: expected the scheduler of a cluster"):
        venturi.ensemble(SCENARIO, directory=tmp_path / "new", dask="nonsense")
