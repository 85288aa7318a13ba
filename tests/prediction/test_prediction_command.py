"""`venturi predict` as a user runs it: the answer, JSON, changes, errors, and the error of the model on a measured run."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from predictionkit import DOCUMENT, PAYLOAD, changed, measured_run
from typer.testing import CliRunner

from venturi.calibration import calibrate
from venturi.calibration.document import costs_text
from venturi.calibration.origin import read_origin
from venturi.calibration.validate import validate
from venturi.cli.root import app
from venturi.cost import CostParameters, MoverCost, MoverRule
from venturi.errors import VenturiError
from venturi.prediction import LoadRequest, RequestedRate, predict_load
from venturi.prediction.changes import change_overrides
from venturi.prediction.offered import offered_load
from venturi.prediction.text import sentence
from venturi.report.toml import as_toml
from venturi.run import Run
from venturi.scenario import scenario_from
from venturi.workload import expand

VENTURI = [sys.executable, "-c", "from venturi.cli import main; main()"]
LIMIT_PER_MIN = 60 * 1.25e9 * PAYLOAD / 100e6
"""Transfers of 100 MB on 10 Gb/s."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("predict") / "small.toml"
    where.write_text(as_toml(DOCUMENT))
    return where


def invoke(*words: str) -> tuple[str, Any]:
    found = CliRunner().invoke(app, ["predict", *words])
    return found.stdout, found.exception


def test_the_first_line_decides_in_at_most_25_words_and_tables_follow(path: Path) -> None:
    done = subprocess.run(
        [*VENTURI, "predict", str(path), "--rate", "900 /min", "--seeds", "4", "--duration", "1 min"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    first, *lines = done.stdout.splitlines()
    assert first.startswith("No: 900 transfers/min are not sustained (probability 0.10 [0.00,")
    assert "link wan (a>b)" in first and len(first.split()) <= 25
    text = "\n".join(lines)
    for part in ("p50", "p95", "p99", "Backlog", "bounds", "queueing", "replay", "storage data (read)"):
        assert part in text
    needed = re.search(r"link wan \(a>b\) from 10 Gb/s to ([0-9.]+) Gb/s", text)
    assert needed is not None
    assert float(needed[1]) == pytest.approx(10 * 900 / LIMIT_PER_MIN / 0.8, rel=0.01)
    assert "--change 'link.wan.rate=" in lines[-1]
    assert done.stderr == ""


def test_json_has_the_numbers_of_the_text_and_a_change_moves_the_limit(path: Path) -> None:
    common = (str(path), "--rate", "900 /min", "--seeds", "4", "--duration", "1 min", "--json")
    before, _ = invoke(*common)
    after, _ = invoke(*common, "--change", "link.wan.rate=40 Gb/s")
    found, changed_found = json.loads(before), json.loads(after)
    assert (found["format"], found["sustained"], changed_found["sustained"]) == ("venturi-prediction", "no", "yes")
    assert found["resources"][0]["use"] == pytest.approx(900 / LIMIT_PER_MIN, rel=0.01)
    assert changed_found["greatest"]["value"] / found["greatest"]["value"] == pytest.approx(4, rel=0.08)
    assert f"{60 * changed_found['greatest']['value']:,.0f} /min" in changed_found["sentence"]
    assert changed_found["latency_s"]["p50"]["value"] < changed_found["latency_s"]["p99"]["value"]
    assert len(found["backlog"]) == 17 and found["backlog"][-1][1] > found["backlog"][4][1]


def test_sizes_replace_those_of_the_workload(path: Path) -> None:
    load = offered_load(expand(scenario_from(DOCUMENT)), (10**8, 3 * 10**8))
    assert [(kind.size_bytes, kind.fraction) for kind in load.kinds] == [(10**8, 0.5), (3 * 10**8, 0.5)]
    assert load.mean_bytes == 2e8 and load.size_variation == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--rate", "600"), "--rate: expected a rate with its unit"),
        ((), "--rate: expected a rate such as"),
        (("--rate", "9 /min", "--change", "link.wann.rate=1 Gb/s"), "link.wann: expected one of the links of the testbed: wan"),
        (("--rate", "9 /min", "--change", "link.wan.speed=1"), "link.wan.speed: expected one of the keys of a link: between, rate"),
        (("--rate", "9 /min", "--change", "net.wan.rate=1"), "net.wan.rate: expected one of the parts of a testbed: link"),
        (("--rate", "9 /min", "--change", "link.wan.rate"), "expected KEY=VALUE"),
        (("--rate", "9 /min", "--change", "link.wan.rate=9"), "testbed.link.wan.rate: expected a rate"),
        (("--rate", "9 /min", "--duration", "9 s"), "--duration: expected a time for 50"),
        (("--rate", "9 /min", "--size", "0 B"), "--size: expected sizes above 0"),
        (("--rate", "9 /min", "--costs", "missing.toml"), "missing.toml: --costs: expected a costs file"),
    ],
)  # fmt: skip
def test_mistakes_name_the_location_the_problem_and_the_next_step(
    path: Path, words: tuple[str, ...], expected: str
) -> None:
    _, error = invoke(str(path), *words)
    assert isinstance(error, VenturiError)
    assert expected in str(error)


def test_a_mistake_has_exit_code_1_and_no_traceback(path: Path) -> None:
    done = subprocess.run([*VENTURI, "predict", str(path), "--rate", "600"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("venturi: --rate:") and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (
            changed(
                testbed={"host": {"a": {}}, "storage": {"data": {"host": "a", "path": "d"}}},
                workload={"kind": "sweep", "mover": "cp", "source": "data", "destination": "data", "factors": {"size": ["1 MB"]}},
            ),
            "testbed: expected a rate on the route from data to data, found none",
        ),
        (changed(testbed__link={}), "expected links between the hosts"),
        (changed(workload__timeout="20 ms"), "workload.timeout: expected a transfer"),
    ],
)  # fmt: skip
def test_testbeds_without_a_prediction_are_rejected(document: dict[str, Any], expected: str) -> None:
    with pytest.raises(VenturiError, match=re.escape(expected)) as caught:
        predict_load(scenario_from(document), LoadRequest(RequestedRate.parse("60 /min")))
    assert "--on hosts" not in str(caught.value)


def test_changes_are_overrides_of_the_testbed() -> None:
    scenario = scenario_from(DOCUMENT)
    assert change_overrides(["link.wan.rate=1 Gb/s", "testbed.cost.host.a.cores=2"], scenario) == [
        "testbed.link.wan.rate=1 Gb/s",
        "testbed.cost.host.a.cores=2",
    ]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run as measured in a lab in which the tool takes longer to start than by default."""
    document = changed(testbed__cost={}, workload__factors={"size": ["1 MB", "10 MB", "50 MB", "100 MB", "200 MB"]})
    del document["testbed"]["cost"]
    slow = CostParameters((MoverRule("curl", MoverCost(start_s=0.2)),))
    return measured_run(tmp_path_factory.mktemp("measured"), document, slow)


def test_a_measured_run_widens_the_intervals_by_the_error_of_the_model(run: Run) -> None:
    scenario = scenario_from(run.header["scenario"])
    request = LoadRequest(RequestedRate.parse("900 /min"), seeds=4, duration_s=60)
    found, without = predict_load(scenario, request, run=run), predict_load(scenario, request)
    compared = validate(run)
    assert found.support is not None
    assert (found.support.median, found.support.p90) == (compared.of_points.median, compared.of_points.p90)
    logs = [math.log(one.point.time_s / one.calibrated_s) for one in compared.points if one.calibrated_s]
    deviation = math.sqrt(sum(one**2 for one in logs) / len(logs))
    ratio = (found.greatest.high / found.greatest.low) / (without.greatest.high / without.greatest.low)
    assert ratio == pytest.approx(math.exp(2 * 1.645 * deviation), rel=1e-6)
    assert deviation > 0.3
    assert any(caveat.startswith("The run reached") for caveat in found.caveats)
    assert any("defaults" in caveat for caveat in found.caveats)
    assert without.caveats[0].startswith("No measurement supports this prediction")


def test_calibrated_costs_reduce_the_error_and_only_held_out_points_count(run: Run, tmp_path: Path) -> None:
    calibrated = calibrate([run])
    costs = tmp_path / "costs.toml"
    costs.write_text(costs_text(calibrated))
    origin = read_origin(costs)
    assert (origin.runs, origin.hold_out, origin.seed) == ((run.path.name,), 0.5, 1)
    estimated = {one.name: one for one in calibrated.parameters if one.state == "estimated"}
    assert origin.intervals is not None and set(origin.intervals) == set(estimated) != set()
    for name, interval in origin.intervals.items():
        expected = (estimated[name].low, estimated[name].value, estimated[name].high)
        assert interval == pytest.approx(expected, rel=5e-3)
    scenario = scenario_from(run.header["scenario"])
    request = LoadRequest(RequestedRate.parse("300 /min"), seeds=4, duration_s=60, costs=costs)
    found = predict_load(scenario, request, run=run)
    assert found.support is not None
    assert found.support.points == calibrated.held_out.n < 5
    assert found.support.median < 0.1
    assert found.varied_parameters == len(estimated)


def test_a_simulated_run_is_no_measurement(path: Path, tmp_path: Path) -> None:
    CliRunner().invoke(app, ["run", str(path), "--on", "sim", "--runs", str(tmp_path), "-q"], catch_exceptions=False)
    name = next(one.name for one in tmp_path.iterdir() if one.is_dir())
    text, error = invoke(
        name, "--runs", str(tmp_path), "--rate", "300 /min", "--seeds", "4", "--duration", "1 min", "--json"
    )
    assert error is None
    found = json.loads(text)
    assert found["support"] is None
    assert "The run is simulated, so no measurement supports this prediction." in found["caveats"]


def test_sentences_have_at_most_25_words() -> None:
    scenario = scenario_from(changed(testbed__storage__copies={"host": "b", "path": "copies"}))
    for rate, clients in ((None, 40), ("700 /min", 40), ("8 Gb/s", None)):
        request = LoadRequest(None if rate is None else RequestedRate.parse(rate), clients, seeds=4, duration_s=30)
        words = sentence(predict_load(scenario, request)).split()
        assert 8 < len(words) <= 25, words
