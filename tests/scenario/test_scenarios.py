"""Loaded scenarios."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema
import pytest
from malformed import document

import venturi.scenario
from venturi.errors import ScenarioError
from venturi.scenario import load_scenario, scenario_from, scenario_schema
from venturi.workload import KINDS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"

FULL = """\
venturi = 1
name = "full"
seed = 7
scale = 0.5
study = "cnaf/cp"
[testbed.host.node1]
ssh = "user@node1.example.org"
memory = "16 GiB"
[testbed.storage.gpfs]
host = "node1"
path = "data"
rate = "500 MB/s"
[workload]
kind = "sweep"
source = "gpfs"
destination = "gpfs"
repeat = 3
order = "given"
timeout = "90 ms"
data_at_least = "1.5 x memory"
[workload.factors]
files = [1, 2]
size = ["10 MB", "1 MiB"]
mover = ["mytool", "cp"]
cache = ["cold", "warm"]
[workload.options]
streams = 4
[workload.sweep]
zip = [["files", "size"]]
filter = ["mover == 'cp' or files > 0"]
[mover.mytool]
argv = ["mytool", ["--streams", "{streams}"], ["-v", "{verify}"], "{source}", "{destination}"]
options = { streams = "integer", verify = "boolean", mode = ["a", "b"] }
[measure]
interval = "off"
counters = ["nic"]
[analyse]
confidence = 0.9
against = ["size"]
families = ["power", "share"]
criterion = "r2"
"""


@pytest.fixture
def load(tmp_path):
    def load(text, overrides=(), **files):
        for name, content in files.items():
            (tmp_path / f"{name}.toml").write_text(content)
        (tmp_path / "main.toml").write_text(text)
        return load_scenario(tmp_path / "main.toml", overrides)

    return load


def test_text_is_converted_to_base_units(load):
    scenario = load(FULL)
    assert scenario.testbed.host["node1"].memory == 16 * 2**30
    assert scenario.testbed.storage["gpfs"].rate == 4e9
    assert scenario.workload.timeout == 0.09
    assert scenario.measure.interval is None


@pytest.mark.parametrize("overrides", [[], ["scale=2"], ["workload.data_at_least=3 GB"], ["measure.interval=0.25 s"]])
def test_the_resolved_document_gives_the_same_scenario(load, overrides):
    scenario = load(FULL, overrides)
    written = json.loads(json.dumps(scenario.document()))
    again = scenario_from(written)
    assert again == scenario
    assert again.document() == written


def test_the_keys_of_existing_hosts_are_read_back_equal():
    written = document({})
    written["testbed"]["host"]["disk2"] = {
        "connect": ["podman", "exec", "-i", "dtn"],
        "address": "[2001:db8::1]",
        "open_ports": "50000-50100",
        "cache": "/scratch/cache",
        "environment": {"X509_USER_PROXY": "/tmp/x509up_u1000", "BEARER_TOKEN_FILE": "/home/alice/token", "N": ""},
    }
    written["testbed"]["host"]["disk3"] = {"ssh": "alice@disk3", "address": "192.0.2.7"}
    written["testbed"].setdefault("service", {})["perf"] = {"kind": "iperf3", "url": "tcp://perf.example.org:5201"}
    scenario = scenario_from(written)
    host = scenario.testbed.host["disk2"]
    assert (host.connect, host.address, host.open_ports) == (
        ("podman", "exec", "-i", "dtn"),
        "2001:db8::1",
        (50000, 50100),
    )
    assert scenario.document()["testbed"]["host"]["disk2"]["open_ports"] == "50000-50100"
    assert scenario_from(scenario.document()) == scenario
    jsonschema.validate(scenario.document(), scenario_schema())


def test_a_scenario_cannot_be_changed(load):
    with pytest.raises(ValueError, match="frozen"):
        load(FULL).seed = 2


def test_a_file_overrides_its_includes_and_later_includes_override_earlier_ones(load):
    base = 'include = ["a.toml", "b.toml"]\n' + FULL
    scenario = load(
        base,
        a='seed = 1\n[testbed.host.extra]\nmemory = "1 GiB"\n[analyse]\nconfidence = 0.5',
        b='[testbed.host.extra]\nmemory = "2 GiB"\n[workload.options]\nmode = "a"',
    )
    assert scenario.seed == 7
    assert scenario.analyse.confidence == 0.9
    assert scenario.testbed.host["extra"].memory == 2 * 2**30
    assert scenario.workload.options == {"mode": "a", "streams": 4}


def test_overrides_are_toml_values_or_plain_text(load):
    overrides = ["workload.repeat=20", "workload.timeout=5 min", "name=other", 'workload.factors.size=["1 kB", "2 kB"]',
                 "workload.options.streams = 8", "scale=0.25"]  # fmt: skip
    scenario = load(FULL, overrides)
    assert (scenario.workload.repeat, scenario.workload.timeout, scenario.name) == (20, 300.0, "other")
    assert scenario.workload.factors["size"] == ["1 kB", "2 kB"]
    assert (scenario.workload.options["streams"], scenario.scale) == (8, 0.25)


def test_an_override_can_extend_a_list(load):
    scenario = load(
        FULL, ['workload.factors.size=["1 kB"]', 'workload.factors.size+=["2 kB"]', 'measure.counters+=["cpu"]']
    )
    assert scenario.workload.factors["size"] == ["1 kB", "2 kB"]
    assert "cpu" in scenario.measure.counters


def test_an_override_without_effect_because_of_a_factor_is_rejected(load):
    with pytest.raises(ScenarioError) as caught:
        load(FULL, ["workload.mover=venturi", "workload.options.size=1 kB", "workload.repeat=20"])
    mover, size = str(caught.value).splitlines()
    assert "workload.mover: expected " in mover
    assert mover.endswith("(from --set workload.mover); use --set 'workload.factors.mover=[…]'")
    assert "workload.options.size: expected " in size
    assert "factor size" in size


def test_loading_does_not_change_the_given_document():
    given = document({})
    scenario_from(given)
    assert given == document({})


def test_the_published_schema_matches_the_models():
    published = json.loads((REFERENCE / "scenario.schema.json").read_text())
    assert published == scenario_schema(), (
        "write it again: python -c 'import json, venturi.scenario as s; print(json.dumps(s.scenario_schema(), indent=2))'"
    )


def test_the_schema_accepts_valid_scenarios_and_rejects_others():
    validator = jsonschema.Draft202012Validator(scenario_schema())
    validator.check_schema(scenario_schema())
    validator.validate(tomllib.loads(FULL))
    validator.validate(document({}))
    for edits in (
        {"venturi": 2},
        {"workload.repeat": 0},
        {"workload.kind": "x"},
        {"workload.repet": 1},
        {"scale": 0},
    ):
        assert not validator.is_valid(document(edits)), edits


def test_the_example_of_the_reference_loads(tmp_path):
    page = (REFERENCE / "scenario.md").read_text()
    example = page.split("```toml\n")[1].split("```")[0]
    (tmp_path / "common.toml").write_text("")
    path = tmp_path / "example.toml"
    path.write_text(example)
    assert load_scenario(path).name == "cp-on-one-node"


@pytest.mark.parametrize(
    "first", ["venturi.scenario", "venturi.workload", "venturi.workload.sweep", "venturi.mover", "venturi.plan"]
)
def test_the_packages_can_be_imported_in_any_order(first):
    code = f"import {first}, venturi.workload, venturi.scenario, venturi.plan, venturi.mover"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_package_exports_exactly_the_public_names():
    assert set(venturi.scenario.__all__) == {
        "Analyse", "LinkChangeTable", "Criterion", "HostTable", "LinkTable", "MeasureTable", "MoverTemplate", "RouterTable", "Scenario", "ServiceTable", "StorageTable",
        "TestbedTable", "load_scenario", "resolve_movers", "scenario_from", "scenario_schema",
    }  # fmt: skip


def test_every_workload_kind_is_registered_under_its_own_name():
    for kind, model in KINDS.items():
        assert model.model_fields["kind"].annotation.__args__ == (kind,)


def test_every_problem_of_a_scenario_has_a_location():
    with pytest.raises(ScenarioError) as caught:
        scenario_from(document({"seed": -1, "workload.repeat": 0}))
    assert [where for where, _ in caught.value.problems] == ["seed", "workload.repeat"]
