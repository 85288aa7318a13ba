"""A simulation testbed from a saved measurement: the simulated copy has the rate of the minimum rule or the sum rule."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from measurekit import DESCRIPTION, rounds, with_description

from venturi.backend import SimBackend
from venturi.errors import MeasureError
from venturi.measure import Endpoint, save
from venturi.measure.evaluate import evaluate_path, harmonic_sum
from venturi.measure.load import HostLoad
from venturi.measure.result import Measurement
from venturi.measure.simulation import simulation_text
from venturi.plan import write_plan
from venturi.run import Run, RunWriter
from venturi.scenario import load_scenario
from venturi.workload import expand

VENTURI = Path(sys.executable).with_name("venturi")
MB = 1e6
FAST = {"network": 400 * MB, "read": 500 * MB, "write": 450 * MB, "mover": 390 * MB, "copy": 380 * MB}


@pytest.fixture
def saved(tmp_path):
    """Return a function that saves a measurement with planted rates and returns its directory."""

    def work(rates, *, rtt_s=1e-4, description=DESCRIPTION, changes=None, back=None):
        paths = [evaluate_path(rounds({**FAST, **rates}, changes=changes), description)]
        if back is not None:
            paths.append(evaluate_path(rounds({**FAST, **back}), description))
        hosts = {name: {"directory": f"/{name}", "cores": 8} for name in ("a", "b")}
        environment = {"hosts": hosts, "paths": [{"connect_rtt_s": rtt_s} for _ in paths]}
        measurement = Measurement(tuple(paths), 5, True, 4, (0.01,), 60.0, environment, 1.8e9, None)
        return save(measurement, Endpoint("/a"), Endpoint("/b"), tmp_path / "runs")

    return work


def simulated_rate(text, tmp_path):
    """Return the rate of the simulated copy in bytes/s."""
    (tmp_path / "sim.toml").write_text(text)
    write_plan(expand(load_scenario(tmp_path / "sim.toml")), tmp_path / "plan.jsonl")
    run = RunWriter.create(tmp_path / "simulated", tmp_path / "plan.jsonl", backend="sim")
    outcome = SimBackend().execute(run)
    assert (outcome.state, outcome.failed) == ("complete", 0)
    with Run.open(run.path) as result:
        rows = result.query("SELECT requested_bytes / duration_s AS rate FROM transfers")
    (rate,) = rows["rate"]
    return float(rate)


@pytest.mark.parametrize(
    ("rates", "rtt_s", "expected"),
    [
        ({"network": 100 * MB, "mover": 98 * MB, "copy": 97 * MB}, 0.02, 100 * MB),
        ({"read": 60 * MB, "copy": 59 * MB}, 1e-4, 60 * MB),
        ({"write": 40 * MB, "copy": 39 * MB}, 1e-3, 40 * MB),
        ({"mover": 150 * MB, "copy": 140 * MB}, 1e-4, 150 * MB),
    ],
    ids=["network", "read", "write", "mover"],
)
def test_the_simulated_copy_is_as_fast_as_the_slowest_part(saved, tmp_path, rates, rtt_s, expected):
    rate = simulated_rate(simulation_text(saved(rates, rtt_s=rtt_s)), tmp_path)
    # A copy of 2 s includes connection and start-up.
    assert 0.85 * expected <= rate <= 1.02 * expected


def test_the_simulated_rate_of_parts_that_take_turns_follows_the_sum_of_times(saved, tmp_path):
    busy = {side: HostLoad(cores=4, busy_cores=3.9) for side in ("source", "destination")}
    changes = {"copy": {"load": busy}}
    rates = {"network": 100 * MB, "read": 110 * MB, "write": 105 * MB, "mover": 98 * MB, "copy": 35 * MB}
    path = saved(rates, description=with_description(same_machine=True), changes=changes)
    (one, *_) = json.loads((path / "measure.json").read_text())["paths"][0]["shared"]
    expected = one["rate_bytes_per_s"]
    assert expected == pytest.approx(harmonic_sum([rates[part] for part in one["parts"]]), rel=0.01)
    text = simulation_text(path)
    assert "take turns" in text
    assert 0.85 * expected <= simulated_rate(text, tmp_path) <= 1.02 * expected


def test_measurements_in_both_directions_give_a_link_with_two_rates(saved):
    document = tomllib.loads(simulation_text(saved({}, back={"network": 200 * MB})))
    rates = [float(rate.removesuffix(" Mb/s")) for rate in document["testbed"]["link"]["path"]["rate"]]
    # The measured bytes are the 1448 payload bytes of each packet of 1500 bytes.
    assert rates == pytest.approx([3200 * 1500 / 1448, 1600 * 1500 / 1448], rel=1e-3)


def test_the_command_writes_the_file_and_a_cached_read_has_no_rate(saved, tmp_path):
    path = saved({}, changes={"read": {"cached": True}})
    done = subprocess.run(
        [VENTURI, "calibrate", path.name, "--runs", path.parent, "-o", "sim.toml"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "wrote sim.toml" in done.stderr
    text = (tmp_path / "sim.toml").read_text()
    assert "# Reading came from the page cache: the source has no read_rate." in text
    assert "read_rate =" not in text


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"format": "venturi-measure", "version": 9}', '{"format": "venturi-measure", "version": 1}'],
)
def test_an_invalid_measurement_file_is_rejected_with_its_path(tmp_path, content):
    (tmp_path / "measure.json").write_text(content)
    with pytest.raises(MeasureError) as caught:
        simulation_text(tmp_path)
    assert str(tmp_path / "measure.json") in str(caught.value)
    assert "run venturi measure again" in str(caught.value)
