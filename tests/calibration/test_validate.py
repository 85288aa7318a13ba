"""``validate``: a run beside its simulation, transfer by transfer, and what the report of it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from calibrationkit import planted, scenario, simulated_run
from typer.testing import CliRunner

from venturi.calibration import calibrate
from venturi.calibration.chapters import validation_chapter
from venturi.calibration.validate import validate
from venturi.cli.root import app
from venturi.cost import Cost, ServiceCost
from venturi.errors import ScenarioError
from venturi.run import Run

COST = planted({"start_s": 0.3}, {"process_bytes_per_s": 30e6})


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("validation")


@pytest.fixture(scope="module")
def run(base: Path) -> Run:
    return simulated_run(base, scenario("20 ms"), COST, scatter=0.05, seed=3)


def test_true_costs_leave_only_the_scatter_of_the_measurement(run: Run) -> None:
    told = validate(run, COST)
    assert len(told.transfers) == 6 * 5 * (1 + 4) and told.left_out == 0
    # |log| of a normal deviation has its median at 0.674 of the standard deviation, here of 5 %.
    assert told.of_transfers.median == pytest.approx(0.674 * 0.05, rel=0.25)
    assert told.of_points.median is not None and told.of_points.median < 0.04
    assert told.floor.median is not None and told.floor.median < 0.04
    slow = [one for one in told.transfers if one.point.bytes == 100e6 and one.point.together == 1]
    assert {one.bound for one in slow} == {"server_process"}


def test_wrong_costs_show_and_the_worst_are_named_with_what_bounds_them(run: Run) -> None:
    told = validate(run)
    assert told.of_points.median is not None and told.of_points.median > 0.2
    chapter = validation_chapter(told)
    tables = {table.name: table for table in chapter.tables}
    worst = tables["validation-worst"]
    assert len(worst.rows) == 10 and all(row[1] for row in worst.rows)
    assert "more than a good prediction" in chapter.sentence and "a perfect model" in chapter.sentence
    assert {"validation-by-size", "validation-by-together"} <= set(tables)


def test_costs_of_another_testbed_are_refused_by_the_names_in_them(run: Run) -> None:
    with pytest.raises(
        ScenarioError, match=r"testbed\.cost\.service\.other: expected one of the services of the run"
    ):
        validate(run, Cost(services={"other": ServiceCost(file_core_s=1.0)}))


def test_the_command_writes_page_tables_and_figures_and_speaks_json(run: Run, tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["validate", str(run.path), "-o", str(tmp_path / "out")])
    assert told.exit_code == 0, told.output
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"validation.html", "validation-points.csv", "validation-worst.csv"} <= names
    assert sum(name.endswith(".png") for name in names) == 2
    page = (tmp_path / "out" / "validation.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2 and "Transfers that are farthest off" in page
    told = CliRunner().invoke(app, ["validate", str(run.path), "--json"])
    document = json.loads(told.stdout)
    assert document["format"] == "venturi-validation" and len(document["transfers"]) == 150


def test_validate_gives_the_errors_that_calibrate_has_told_of_the_points_held_out(run: Run) -> None:
    result = calibrate([run], seed=3)
    told = validate(run, result.cost, hold_out=0.5, seed=3)
    held = {(p.point.point, p.point.mover): p.calibrated_s for p in result.points if p.held_out}
    assert {(p.point.point, p.point.mover) for p in told.points} == set(held) and len(held) == 5
    assert (told.of_points.n, told.naive, told.defaults) == (5, result.naive, result.defaults)
    # The file has six digits of each cost, the calibration all of them.
    for one in told.points:
        assert one.calibrated_s == pytest.approx(held[one.point.point, one.point.mover], rel=1e-4)
    assert {one.point.point for one in told.transfers} == {point for point, _ in held} and told.left_out == 0
    assert "of 5 points held out" in validation_chapter(told).sentence.lower()


def test_a_run_that_was_simulated_is_named_once_on_stderr_and_compared_all_the_same(
    base: Path, tmp_path: Path
) -> None:
    circular = simulated_run(base, scenario("1 ms"), COST, backend="sim")
    for words in (["validate"], ["calibrate", "-o", str(tmp_path / "costs.toml")]):
        told = CliRunner().invoke(app, [words[0], str(circular.path), *words[1:]])
        assert told.exit_code == 0, told.output
        assert told.stderr.count(f"{circular.path.name}: expected measured times, found simulated ones") == 1


def test_cores_that_all_hosts_share_make_them_wait_for_each_other(run: Run) -> None:
    services = {"gridftp": ServiceCost(session_core_s=0.2)}
    free, few = (validate(run, Cost(services=services, machine_cores=cores)) for cores in (8.0, 1.0))
    four = [
        (one.simulated_s, other.simulated_s)
        for one, other in zip(free.transfers, few.transfers, strict=True)
        if one.point.together == 4
    ]
    # Four sessions of 0.2 s of a core on one core end after 0.8 s in place of 0.2 s.
    assert all(late == pytest.approx(early + 0.6, abs=0.05) for early, late in four) and four


def test_a_measured_run_is_not_said_to_be_simulated(run: Run) -> None:
    told = CliRunner().invoke(app, ["validate", str(run.path)])
    assert told.exit_code == 0 and "simulated ones" not in told.stderr


def test_calibrate_writes_costs_that_validate_takes(run: Run, tmp_path: Path) -> None:
    costs = tmp_path / "costs.toml"
    told = CliRunner().invoke(app, ["calibrate", str(run.path), "-o", str(costs)])
    assert told.exit_code == 0, told.output
    assert costs.read_text(encoding="utf-8").startswith("# Costs of transfers")
    told = CliRunner().invoke(app, ["validate", str(run.path), "--costs", str(costs), "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["of_points"]["median"] < 0.05
