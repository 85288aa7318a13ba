"""``validate``: a run beside its simulation, transfer by transfer, and what the report of it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from calibrationkit import planted, scenario, simulated_run
from typer.testing import CliRunner

from venturi.calibration.chapters import validation_chapter
from venturi.calibration.validate import validate
from venturi.cli.root import app
from venturi.cost import Cost, ServiceCost
from venturi.errors import ScenarioError
from venturi.run import Run

COST = planted({"start_s": 0.3}, {"process_bytes_per_s": 30e6})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return simulated_run(tmp_path_factory.mktemp("validation"), scenario("20 ms"), COST, scatter=0.05, seed=3)


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


def test_calibrate_writes_costs_that_validate_takes(run: Run, tmp_path: Path) -> None:
    costs = tmp_path / "costs.toml"
    told = CliRunner().invoke(app, ["calibrate", str(run.path), "-o", str(costs)])
    assert told.exit_code == 0, told.output
    assert costs.read_text(encoding="utf-8").startswith("# Costs of transfers")
    told = CliRunner().invoke(app, ["validate", str(run.path), "--costs", str(costs), "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)["of_points"]["median"] < 0.05
