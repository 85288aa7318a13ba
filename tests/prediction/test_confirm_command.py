"""`venturi predict --confirm` as a user runs it: simulated probes against a known capacity, runs, interruption, errors."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from predictionkit import DOCUMENT, PAYLOAD, changed
from typer.testing import CliRunner

from venturi.cli.root import app
from venturi.errors import BackendError, PlanError, ScenarioError, VenturiError
from venturi.prediction import LoadRequest, RequestedRate
from venturi.prediction.caches import load_caches
from venturi.prediction.confirm import ConfirmBudget, RunBackend, confirm_limit, peak_finder, warm_up
from venturi.prediction.load_probe import LoadTarget
from venturi.prediction.load_scenario import load_scenario_of
from venturi.prediction.peak_finder import LoadOrder, LoadProbe
from venturi.prediction.result import Estimate
from venturi.prediction.system import LoadSystem, load_system
from venturi.report.toml import as_toml
from venturi.run import Run
from venturi.scenario import Scenario, scenario_from
from venturi.simulation import simulate
from venturi.workload import expand

VENTURI = [sys.executable, "-c", "from venturi.cli import main; main()"]
MIXED = changed(testbed__link__wan__rate="1 Gb/s", workload__factors={"size": ["10 MB", "30 MB"]})
LIMIT_PER_MIN = 60 * 125e6 * PAYLOAD / 20e6
"""Transfers of 20 MB on 1 Gb/s."""


@pytest.fixture
def predict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs the command in a directory with the scenario."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mixed.toml").write_text(as_toml(MIXED))

    def run(*words: str) -> Any:
        return CliRunner().invoke(app, ["predict", "mixed.toml", "--rate", "300 /min", "--seeds", "4", *words])

    return run


def system_of(document: dict[str, Any]) -> tuple[Scenario, LoadSystem]:
    scenario = scenario_from(document)
    return scenario, load_system(scenario, LoadRequest(RequestedRate.parse("60 /min")), None)


def test_simulated_probes_find_the_capacity_and_are_runs_that_a_report_opens(predict: Any, tmp_path: Path) -> None:
    done = predict("--confirm", "--on", "sim", "--duration", "4 min", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["confirmation"]
    measured = found["measured"]
    assert 60 * measured["low"] <= LIMIT_PER_MIN <= 60 * measured["high"]
    assert measured["high"] / measured["low"] < 1.15
    assert 60 * measured["value"] == pytest.approx(LIMIT_PER_MIN, rel=0.05)
    assert found["ratio"] == pytest.approx(measured["value"] / found["predicted"]["value"])
    assert found["inside"] == (found["predicted"]["low"] <= measured["value"] <= found["predicted"]["high"])
    probes = found["probes"]
    assert {probe["holds"] for probe in probes} == {True, False} and len(probes) <= 16
    assert all(probe["bytes"] > 0 and probe["failed"] == 0 for probe in probes)
    assert (found["caches"], found["caches_filled"], found["interrupted"]) == ([], None, False)
    with Run.open(tmp_path / "runs" / probes[0]["run"]) as run:
        rows = run.query("SELECT count(*) AS n, max(intended_s) - min(intended_s) AS s FROM transfers")
        # Each size starts at even intervals with its own phase.
        assert rows["n"][0] == pytest.approx(probes[0]["per_s"] * probes[0]["duration_s"], abs=2)
        assert float(rows["s"][0]) <= probes[0]["duration_s"]
    assert CliRunner().invoke(app, ["report", probes[-1]["run"]]).exit_code == 0


def test_the_text_has_the_prediction_the_comparison_and_a_row_for_each_probe(tmp_path: Path) -> None:
    (tmp_path / "mixed.toml").write_text(as_toml(MIXED))
    words = [
        "--rate",
        "300 /min",
        "--seeds",
        "4",
        "--duration",
        "2 min",
        "--confirm",
        "--on",
        "sim",
        "--max-probes",
        "3",
    ]
    done = subprocess.run(
        [*VENTURI, "predict", "mixed.toml", *words], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("Yes: 300 transfers/min are sustained")
    (sentence,) = (line for line in lines if line.startswith("Measured"))
    assert len(sentence.split()) <= 25
    assert len([line for line in lines if re.match(r"[1-9]\s+\d+ /min\s+(yes|no)", line)]) == 3
    assert "Ended: 3 probes." in done.stdout
    assert "probe 1: " in done.stderr and "probe 3: " in done.stderr


def test_a_latency_requirement_holds_for_the_prediction_and_for_the_probes(predict: Any) -> None:
    words = ("--p95", "1 s", "--duration", "4 min", "--confirm", "--on", "sim", "--max-probes", "6", "--json")
    done = predict(*words)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    confirmed = found["confirmation"]
    assert confirmed["arrivals"] == "poisson"
    assert found["p95_s"] == 1.0
    assert 60 * found["greatest"]["value"] < 0.95 * LIMIT_PER_MIN
    held = [probe["latency_s"][1] for probe in confirmed["probes"] if probe["holds"]]
    assert held and max(held) <= 1.0
    assert confirmed["ratio"] == pytest.approx(1, abs=0.15)


class Stopped:
    """Backend that ends in its third probe."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def measure(self, order: LoadOrder, number: int) -> LoadProbe:
        if number == 3:
            raise self.error
        return LoadProbe(order.per_s, order.duration_s, number == 1, 0.02)


def test_an_interruption_or_error_keeps_the_finished_probes() -> None:
    _, system = system_of(MIXED)
    predicted = Estimate(6.0, 5.8, 6.2)
    finder = peak_finder(system, predicted, LoadRequest(None), ConfirmBudget(), 2.0)
    failed = confirm_limit(system, predicted, finder, Stopped(BackendError("b: no route")), even=True)
    assert (failed.failure, failed.interrupted, len(failed.probes)) == ("b: no route", False, 2)
    found = confirm_limit(system, predicted, finder, Stopped(KeyboardInterrupt()), even=True)
    assert found.interrupted and len(found.probes) == 2
    assert found.measured is not None and found.measured.low == pytest.approx(6.0 / 1.02)
    assert found.has_both_ends and found.inside is not None


def test_ctrl_c_prints_the_finished_probes_and_exits_with_130(predict: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = RunBackend.measure

    def stop(self: RunBackend, order: LoadOrder, number: int) -> LoadProbe:
        if number == 2:
            raise KeyboardInterrupt
        return measure(self, order, number)

    monkeypatch.setattr(RunBackend, "measure", stop)
    done = predict("--confirm", "--on", "sim", "--duration", "1 min", "--json")
    assert done.exit_code == 130
    found = json.loads(done.stdout)["confirmation"]
    assert found["interrupted"] and len(found["probes"]) == 1


def cached(**cost: Any) -> dict[str, Any]:
    document = changed(
        testbed__link__wan__rate="1 Gb/s",
        testbed__service={
            "web": {"kind": "nginx", "host": "a", "storage": ["data"]},
            "squid": {"kind": "squid", "host": "b", "options": {"cache_memory": "100 MB", "instances": 2}},
        },
        workload__factors={"size": ["1 MB"]},
        workload__options={"proxy": "http://b.lab.test:3128"},
    )
    document["testbed"]["cost"].update(cost)
    return document


def test_caches_are_those_of_the_proxies_storages_and_limited_hosts_of_the_load() -> None:
    document = cached(host={"a": {"page_cache": "50 MB"}})
    document["testbed"]["host"]["b"] = {"memory_limit": "1 GB"}
    _, system = system_of(document)
    found = {cache.name: (cache.size_bytes, cache.fraction) for cache in load_caches(system.load)}
    assert found == {
        "service squid": (200e6, 1.0),
        "page cache of host a": (50e6, 1.0),
        "page cache of host b": (1e9, 1.0),
    }
    assert warm_up(system) == 0.75 and load_caches(system_of(MIXED)[1].load) == ()


@pytest.mark.parametrize(("time_s", "filled"), [(math.inf, True), (30.0, False)])
def test_a_probe_fills_the_caches_twice_unless_the_time_is_too_short(time_s: float, filled: bool) -> None:
    scenario, system = system_of(cached())
    predicted = Estimate(20.0, 19.0, 21.0)
    budget = ConfirmBudget(time_s, max_probes=2, simulated=True)
    probes = load_scenario_of(scenario, system.load, even=True, directory=Path.cwd())
    finder = peak_finder(system, predicted, LoadRequest(None), budget, probes.lead_s)
    backend = RunBackend(probes, simulate, LoadTarget(), warm_up(system), None)
    found = confirm_limit(system, predicted, finder, backend, even=True)
    assert found.filled is filled
    # Twice 200 MB.
    assert (found.passed_bytes >= 0.98 * 400e6) is filled
    assert sum(probe.time_s for probe in found.probes) <= time_s


def test_probes_have_the_endpoints_options_sizes_and_mix_of_the_load() -> None:
    document = changed(
        testbed__link__wan__rate="1 Gb/s",
        workload__factors={"size": ["10 MB", "30 MB"]},
        workload__options={"rate": "80 Mb/s"},
    )
    scenario, system = system_of(document)
    probes = load_scenario_of(scenario, system.load, even=True, directory=Path.cwd())
    plan = expand(probes.at(LoadOrder(5.0, 20.0)))
    steps = [step for line in plan.lines for trial in line.steps for step in getattr(trial, "steps", ())]
    assert len(steps) == 100
    assert sorted({step.bytes for step in steps}) == [10**7, 3 * 10**7]
    assert {(step.source_via, step.destination.partition(":")[0]) for step in steps} == {("web/http", "copies")}
    assert {plan.header.calls[step.call].options["rate_bytes_per_s"] for step in steps} == {10e6}


@pytest.mark.parametrize(
    ("words", "kind", "expected"),
    [
        (("--on", "sim"), VenturiError, "--on: expected --confirm, found none"),
        (("--time", "9 s"), VenturiError, "--time: expected --confirm, found none"),
        (("--confirm", "--clients", "4"), PlanError, "--confirm: expected an open load with --rate, found --clients"),
        (("--p95", "9 s", "--clients", "4"), PlanError, "--p95: expected an open load with --rate"),
        (("--p95", "1 ms", "--duration", "1 min"), PlanError, "--p95: expected more than the"),
        (("--confirm", "--on", "moon"), ScenarioError, "--on: expected one of hosts, lab, sim"),
        (("--confirm", "--on", "sim", "--time", "0 s"), VenturiError, "--time: expected a time above 0"),
        (("--confirm", "--on", "sim", "--time", "3 s", "--duration", "1 min"), PlanError, "--time: expected at least"),
        (("--confirm", "--on", "sim", "--probe", "1 s", "--duration", "1 min"), PlanError, "--probe: expected at least"),
        (("--confirm", "--on", "sim", "--set", "workload.source_service=other"), ScenarioError, "workload.source_service"),
        (("--change", "link.wan.rate=9"), ScenarioError, "(from --change link.wan.rate)"),
        (("--change", "testbed.link.wan.rtt=x"), ScenarioError, "(from --change testbed.link.wan.rtt)"),
    ],
)  # fmt: skip
def test_mistakes_name_the_option_and_the_next_step(
    predict: Any, words: tuple[str, ...], kind: type[Exception], expected: str
) -> None:
    done = predict(*words)
    assert isinstance(done.exception, kind), done.output
    assert expected in str(done.exception)
    assert "--set testbed" not in str(done.exception)


def test_set_is_still_named_next_to_a_change(predict: Any) -> None:
    done = predict("--set", "testbed.link.wan.rate=9", "--change", "link.wan.rtt=3 ms")
    assert "(from --set testbed.link.wan.rate)" in str(done.exception)


def test_a_rate_is_required(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(as_toml(DOCUMENT))
    done = CliRunner().invoke(app, ["predict", str(path), "--confirm"])
    assert "--rate: expected a rate such as" in str(done.exception)


def test_a_load_of_one_host_has_no_probes() -> None:
    document = changed(
        testbed__storage__copies={"host": "a", "path": "c", "kind": "disk", "size": "1 TB", "write_rate": "1 Gb/s"},
        workload__source_service="web",
    )
    document["workload"]["client"] = "a"
    scenario, system = system_of(document)
    with pytest.raises(PlanError, match="storages of different hosts and sites for --confirm"):
        load_scenario_of(scenario, system.load, even=True, directory=Path.cwd())


def test_only_failed_transfers_are_an_error_that_names_the_run() -> None:
    mixed, system = system_of(MIXED)
    probes = load_scenario_of(mixed, system.load, even=True, directory=Path.cwd())

    def too_slow(scenario: Scenario) -> Run:
        document = scenario.document()
        document["workload"]["timeout"] = "1 ms"
        return simulate(document)

    backend = RunBackend(probes, too_slow, LoadTarget(), 0.25, None)
    with pytest.raises(BackendError, match="expected successful transfers, found only failed ones"):
        backend.measure(LoadOrder(5.0, 5.0), 1)
