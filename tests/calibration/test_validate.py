"""``validate`` compares a run with its simulation, transfer by transfer, and reports the result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from calibrationkit import planted, scenario, simulated_run
from typer.testing import CliRunner

from venturi.calibration import calibrate
from venturi.calibration.sections import validation_section
from venturi.calibration.validate import validate
from venturi.cli.root import app
from venturi.cost import CostParameters, ServiceCost
from venturi.errors import ScenarioError
from venturi.run import Run

COST = planted({"start_s": 0.3}, {"process_bytes_per_s": 30e6})


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("validation")


@pytest.fixture(scope="module")
def run(base: Path) -> Run:
    return simulated_run(base, scenario("20 ms"), COST, scatter=0.05, seed=3)


def test_true_costs_have_only_the_scatter_of_the_measurement_as_error(run: Run) -> None:
    validation = validate(run, COST)
    assert len(validation.transfers) == 6 * 5 * (1 + 4) and validation.left_out == 0
    # The median of |log| of a normal deviation is 0.674 of the standard deviation, which is 5 % here.
    assert validation.of_transfers.median == pytest.approx(0.674 * 0.05, rel=0.25)
    assert validation.of_points.median is not None and validation.of_points.median < 0.04
    assert validation.floor.median is not None and validation.floor.median < 0.04
    slow = [one for one in validation.transfers if one.point.bytes == 100e6 and one.point.together == 1]
    assert {one.bottleneck for one in slow} == {"server_process"}


def test_wrong_costs_give_large_errors_and_the_worst_transfers_are_listed(run: Run) -> None:
    validation = validate(run)
    assert validation.of_points.median is not None and validation.of_points.median > 0.2
    section = validation_section(validation)
    tables = {table.name: table for table in section.tables}
    worst = tables["validation-worst"]
    assert len(worst.rows) == 10 and all(row[1] for row in worst.rows)
    assert "more than for a good prediction" in section.sentence and "a perfect model" in section.sentence
    assert {"validation-by-size", "validation-by-together"} <= set(tables)


def test_costs_with_names_of_another_testbed_are_rejected(run: Run) -> None:
    with pytest.raises(
        ScenarioError, match=r"testbed\.cost\.service\.other: expected one of the services of the run"
    ):
        validate(run, CostParameters(services={"other": ServiceCost(file_core_s=1.0)}))


def test_the_command_writes_page_tables_figures_and_json(run: Run, tmp_path: Path) -> None:
    validation = CliRunner().invoke(app, ["validate", str(run.path), "-o", str(tmp_path / "out")])
    assert validation.exit_code == 0, validation.output
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"validation.html", "validation-points.csv", "validation-worst.csv"} <= names
    assert sum(name.endswith(".png") for name in names) == 2
    page = (tmp_path / "out" / "validation.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2 and "Transfers with the largest errors" in page
    validation = CliRunner().invoke(app, ["validate", str(run.path), "--json"])
    document = json.loads(validation.stdout)
    assert document["format"] == "venturi-validation" and len(document["transfers"]) == 150


def test_validate_reproduces_the_errors_of_calibrate_for_the_held_out_points(run: Run) -> None:
    result = calibrate([run], seed=3)
    validation = validate(run, result.cost, hold_out=0.5, seed=3)
    held = {(p.point.point, p.point.mover): p.calibrated_s for p in result.points if p.held_out}
    assert {(p.point.point, p.point.mover) for p in validation.points} == set(held) and len(held) == 5
    assert (validation.of_points.n, validation.naive, validation.defaults) == (5, result.naive, result.defaults)
    # The file has six digits of each cost, and the calibration has all of them.
    for one in validation.points:
        assert one.calibrated_s == pytest.approx(held[one.point.point, one.point.mover], rel=1e-4)
    assert {one.point.point for one in validation.transfers} == {
        point for point, _ in held
    } and validation.left_out == 0
    assert "for 5 points held out" in validation_section(validation).sentence.lower()


def test_a_simulated_run_is_accepted_with_one_message_on_stderr(base: Path, tmp_path: Path) -> None:
    circular = simulated_run(base, scenario("1 ms"), COST, backend="sim")
    for words in (["validate"], ["calibrate", "-o", str(tmp_path / "costs.toml")]):
        validation = CliRunner().invoke(app, [words[0], str(circular.path), *words[1:]])
        assert validation.exit_code == 0, validation.output
        assert validation.stderr.count(f"{circular.path.name}: expected measured times, found simulated times") == 1


def test_hosts_with_shared_cores_wait_for_each_other(run: Run) -> None:
    services = {"gridftp": ServiceCost(session_core_s=0.2)}
    free, few = (validate(run, CostParameters(services=services, machine_cores=cores)) for cores in (8.0, 1.0))
    four = [
        (one.simulated_s, other.simulated_s)
        for one, other in zip(free.transfers, few.transfers, strict=True)
        if one.point.together == 4
    ]
    # On one core, four sessions of 0.2 s of a core end after 0.8 s instead of 0.2 s.
    assert all(late == pytest.approx(early + 0.6, abs=0.05) for early, late in four) and four


def test_a_measured_run_gives_no_message_about_simulated_times(run: Run) -> None:
    validation = CliRunner().invoke(app, ["validate", str(run.path)])
    assert validation.exit_code == 0 and "simulated ones" not in validation.stderr


def test_validate_accepts_the_costs_that_calibrate_writes(run: Run, tmp_path: Path) -> None:
    costs = tmp_path / "costs.toml"
    validation = CliRunner().invoke(app, ["calibrate", str(run.path), "-o", str(costs)])
    assert validation.exit_code == 0, validation.output
    assert costs.read_text(encoding="utf-8").startswith("# Costs of transfers")
    validation = CliRunner().invoke(app, ["validate", str(costs), str(run.path), "--json"])
    assert validation.exit_code == 0, validation.output
    assert json.loads(validation.stdout)["of_points"]["median"] < 0.05
