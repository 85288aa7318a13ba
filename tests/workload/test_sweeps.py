"""Plans of sweeps."""

from __future__ import annotations

import json
from collections import Counter
from itertools import product
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import venturi.workload
from venturi.errors import ScenarioError
from venturi.plan import DropCaches, Parallel, Prepare, Signal, Trial, Wait, plan_lines, read_plan, trials, write_plan
from venturi.scenario import scenario_from
from venturi.workload import expand
from venturi.workload.streams import shuffled

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "reference" / "plan.schema.json").read_text())


def sweep(factors, *, top=None, hosts=None, storages=None, **workload):
    """Return the scenario of a sweep over `factors`, by default with `cp` on one storage."""
    ends = {"mover": "cp", "source": "disk", "destination": "disk"}
    ends = {key: value for key, value in ends.items() if key not in factors}
    return scenario_from(
        {
            "venturi": 1,
            "name": "s",
            **(top or {}),
            "testbed": {
                "host": hosts or {"here": {"memory": "1 MiB"}},
                "storage": storages
                or {"disk": {"host": "here", "path": "data"}, "tmp": {"host": "here", "path": "/tmp"}},
            },
            "workload": {"kind": "sweep", **ends, **workload, "factors": factors},
        }
    )


def trials_of(scenario):
    return [step for line in expand(scenario).lines for step in line.steps if isinstance(step, Trial)]


def transfers_of(trial):
    (parallel,) = [step for step in trial.steps if isinstance(step, Parallel)]
    return [step for child in parallel.children for step in child]


def text_of(scenario):
    return "\n".join(plan_lines(expand(scenario)))


SIZES = ["1 kB", "2 kB", "5 kB", "0"]
scenarios = st.builds(
    lambda files, sizes, movers, cache, repeat, order, seed, data: sweep(
        {"files": files, "size": sizes, "mover": movers, "cache": cache},
        top={"seed": seed}, repeat=repeat, order=order, **data,
    ),
    st.lists(st.integers(1, 5), min_size=1, max_size=3, unique=True),
    st.lists(st.sampled_from(SIZES), min_size=1, max_size=3, unique=True),
    st.lists(st.sampled_from(["cp", "read", "rsync", "read+write", "cp+read"]), min_size=1, max_size=2, unique=True),
    st.lists(st.sampled_from(["as_is", "cold", "warm"]), min_size=1, max_size=2, unique=True),
    st.integers(1, 4),
    st.sampled_from(["random", "given"]),
    st.integers(0, 2**63 - 1),
    st.sampled_from([{}, {"data_at_least": "40 kB"}, {"data_at_least": "2 x memory"}]),
)  # fmt: skip


@given(scenarios)
@settings(max_examples=60, deadline=None)
def test_the_plan_is_reproducible_from_the_scenario_and_from_its_document(scenario):
    text = text_of(scenario)
    assert text == text_of(scenario)
    assert text == text_of(scenario_from(json.loads(json.dumps(scenario.document()))))


@given(scenarios)
@settings(max_examples=60, deadline=None)
def test_every_block_holds_every_point_once_and_trials_are_numbered_in_order(scenario):
    factors = scenario.workload.factors
    points = len(list(product(*factors.values())))
    found = trials_of(scenario)
    assert len(found) == points * scenario.workload.repeat
    assert [trial.id for trial in found] == [f"t{n:07d}" for n in range(len(found))]
    for block in range(scenario.workload.repeat):
        of_block = found[block * points : (block + 1) * points]
        assert sorted(trial.point for trial in of_block) == list(range(points))
        assert {(trial.block, trial.repetition) for trial in of_block} == {(block, block)}


@given(scenarios)
@settings(max_examples=60, deadline=None)
def test_an_additional_repetition_does_not_change_earlier_blocks(scenario):
    more = scenario.model_copy(
        update={"workload": scenario.workload.model_copy(update={"repeat": scenario.workload.repeat + 1})}
    )
    earlier, later = list(expand(scenario).lines), list(expand(more).lines)
    assert len(later) > len(earlier)
    assert later[: len(earlier)] == earlier


@given(scenarios)
@settings(max_examples=60, deadline=None)
def test_totals_and_datasets_match_the_trials(scenario):
    plan = expand(scenario)
    header = plan.header
    all_transfers = [(trial, transfer) for trial in trials_of(scenario) for transfer in transfers_of(trial)]
    assert header.totals.trials == len(trials_of(scenario))
    assert header.totals.transfers == len(all_transfers)
    assert header.totals.bytes == sum(transfer.bytes for _, transfer in all_transfers)
    written = Counter()
    for trial, transfer in all_transfers:
        written[trial.id] += transfer.bytes if transfer.destination != "null:" else 0
    sets = sum(data.files * data.size_bytes for data in header.datasets.values())
    assert header.totals.disk_bytes.get("disk", 0) == sets + max(written.values())
    read = {transfer.source for _, transfer in all_transfers} - {"zero:"}
    assert read <= {data.endpoint(i) for data in header.datasets.values() for i in range(data.files)}


@given(scenarios)
@settings(max_examples=60, deadline=None)
def test_no_file_is_read_twice_in_a_trial_or_written_twice_in_a_run(scenario):
    destinations = []
    for trial in trials_of(scenario):
        moved = transfers_of(trial)
        sources = [transfer.source for transfer in moved if transfer.source != "zero:"]
        assert len(sources) == len(set(sources))
        destinations += [transfer.destination for transfer in moved if transfer.destination != "null:"]
        assert {transfer.slot for transfer in moved} == set(range(trial.factors["files"]))
        prepared = [step for step in trial.steps if isinstance(step, Prepare)]
        assert sum(step.files for step in prepared) == len(sources)
    assert len(destinations) == len(set(destinations))


@given(scenarios)
@settings(max_examples=30, deadline=None)
def test_every_line_of_a_sweep_matches_the_plan_schema(scenario):
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for line in plan_lines(expand(scenario)):
        validator.validate(json.loads(line))


def test_a_plan_is_equal_when_read_back_from_its_file(tmp_path):
    scenario = sweep({"files": [1, 3], "size": ["1 kB", "0"], "mover": ["cp", "read+write"]}, repeat=2)
    write_plan(expand(scenario), tmp_path / "plan.jsonl")
    again = read_plan(tmp_path / "plan.jsonl")
    assert list(again.lines) == list(expand(scenario).lines)
    assert again.header == expand(scenario).header
    rows = list(trials(tmp_path / "plan.jsonl"))
    assert sum(row.bytes for row in rows) == again.header.totals.bytes
    assert scenario_from(again.header.scenario) == scenario


def test_the_bytes_of_a_known_plan_do_not_change():
    # The order of blocks, the names of files and the form of a line determine the meaning of a resumed run and of a
    # published plan. This test detects a change of them.
    given = sweep({"files": [1, 2], "size": ["1 kB", "2 kB"], "cache": ["cold"]}, repeat=2, top={"seed": 7})
    order = [trial.point for trial in trials_of(given)]
    assert order == [2, 0, 3, 1, 2, 0, 1, 3]
    line = list(plan_lines(expand(given)))[1]
    assert line == (
        '{"actor":"sweep","host":"here","steps":[{"step":"trial","id":"t0000000","point":2,"repetition":0,"block":0,'
        '"factors":{"files":2,"size_bytes":1000,"cache":"cold"},"steps":[{"step":"prepare","dataset":"disk-1kB","first":0,'
        '"files":2,"cache":"as_is"},{"step":"drop_caches","dataset":"disk-1kB","first":0,"files":2},{"step":"parallel",'
        '"children":[[{"step":"transfer","call":"cp","slot":0,"source":"disk:sets/seed7/1kB/000000",'
        '"destination":"disk:out/t0000000-000000","files":1,"bytes":1000}],[{"step":"transfer","call":"cp","slot":1,'
        '"source":"disk:sets/seed7/1kB/000001","destination":"disk:out/t0000000-000001","files":1,"bytes":1000}]]}]}]}'
    )


def test_orders_of_blocks_are_uniform_and_independent():
    # Chi-square of 24 permutations of 4, 4800 draws, 23 degrees of freedom: one in a thousand seeds exceeds 49.7.
    counts = Counter(tuple(shuffled(4, 1, "order", block)) for block in range(4800))
    assert len(counts) == 24
    assert sum((count - 200) ** 2 / 200 for count in counts.values()) < 49.7


def test_another_seed_gives_another_order_and_a_given_order_is_kept():
    factors = {"files": list(range(1, 9)), "size": ["1 kB"]}
    orders = [[trial.point for trial in trials_of(sweep(factors, top={"seed": seed}))] for seed in (1, 2)]
    assert orders[0] != orders[1]
    assert [trial.point for trial in trials_of(sweep(factors, order="given", repeat=2))] == [*range(8), *range(8)]


def test_points_are_numbered_with_the_last_factor_fastest_and_zipped_factors_together():
    scenario = sweep(
        {"files": [1, 2], "cache": ["cold", "warm"], "size": ["1 kB", "2 kB"]},
        order="given", sweep={"zip": [["files", "size"]]},
    )  # fmt: skip
    found = [tuple(trial.factors[key] for key in ("files", "cache", "size_bytes")) for trial in trials_of(scenario)]
    assert found == [(1, "cold", 1000), (1, "warm", 1000), (2, "cold", 2000), (2, "warm", 2000)]


def test_a_filter_uses_the_unscaled_sizes():
    factors = {"files": [1, 2, 5], "size": ["1 GB", "4 GB"]}
    scenario = sweep(factors, order="given", top={"scale": 1e-6}, sweep={"filter": ["files * size <= '8 GB'"]})
    found = [(trial.factors["files"], trial.factors["size_bytes"]) for trial in trials_of(scenario)]
    assert found == [(1, 1000), (1, 4000), (2, 1000), (2, 4000), (5, 1000)]


def test_the_grid_of_the_first_study_has_the_expected_totals():
    # Experiment 000-S1: 11 file counts, 6 sizes, 200 repetitions; 228 files over all counts, 3.81 GB over all sizes.
    scenario = sweep(
        {"files": [1, 2, 5, 10, 15, 20, 25, 30, 35, 40, 45], "size": ["10 MB", "0.1 GB", "0.2 GB", "0.5 GB", "1 GB", "2 GB"]},
        repeat=200,
    )  # fmt: skip
    totals = expand(scenario).header.totals
    assert (totals.trials, totals.transfers, totals.bytes) == (66 * 200, 228 * 6 * 200, 173_736 * 10**9)
    assert totals.disk_bytes == {"disk": 45 * 3_810_000_000 + 45 * 2 * 10**9}


def test_cold_drops_prepared_files_from_the_cache_warm_reads_them_as_is_does_neither():
    steps = {}
    for trial in trials_of(sweep({"files": [2], "size": ["1 kB"], "cache": ["as_is", "cold", "warm"]})):
        steps[trial.factors["cache"]] = trial.steps[:-1]
    assert steps == {
        "as_is": (Prepare("disk-1kB", 0, 2, "as_is"),),
        "cold": (Prepare("disk-1kB", 0, 2, "as_is"), DropCaches("disk-1kB", 0, 2)),
        "warm": (Prepare("disk-1kB", 0, 2, "warm"),),
    }


def test_two_movers_in_a_slot_run_together_with_separate_endpoints():
    (trial,) = trials_of(sweep({"files": [2], "size": ["1 kB"], "mover": ["read+write"]}))
    moved = [(t.call, t.slot, t.source, t.destination) for t in transfers_of(trial)]
    assert moved == [
        ("read", 0, "disk:sets/seed1/1kB/000000", "null:"),
        ("write", 0, "zero:", "disk:out/t0000000-000000-write"),
        ("read", 1, "disk:sets/seed1/1kB/000001", "null:"),
        ("write", 1, "zero:", "disk:out/t0000000-000001-write"),
    ]
    (trial,) = trials_of(sweep({"files": [2], "size": ["1 kB"], "mover": ["cp+read"]}))
    assert [t.source[-6:] for t in transfers_of(trial)] == ["000000", "000002", "000001", "000003"]


def test_files_of_size_zero_are_prepared_and_moved_too():
    (trial,) = trials_of(sweep({"files": [3], "size": ["0"]}, data_at_least="1 GB"))
    assert trial.steps[0] == Prepare("disk-0B", 0, 3, "as_is")
    assert [transfer.bytes for transfer in transfers_of(trial)] == [0, 0, 0]


@pytest.mark.parametrize("files", [[1], [1, 3, 4], [2, 5, 1, 9]])
@pytest.mark.parametrize(("data", "least"), [("10 kB", 10_000), ("0.01 x memory", 10_486)])
def test_successive_trials_read_different_files_up_to_the_minimum_data_volume(files, data, least):
    scenario = sweep({"files": files, "size": ["1 kB"]}, repeat=40, data_at_least=data)
    last_read = {}
    read_bytes = 0
    for trial in trials_of(scenario):
        for transfer in transfers_of(trial):
            if transfer.source in last_read:
                assert read_bytes - last_read[transfer.source] >= least
        read_bytes += sum(transfer.bytes for transfer in transfers_of(trial))
        last_read |= {transfer.source: read_bytes for transfer in transfers_of(trial)}
    assert read_bytes > 2 * least
    assert len(last_read) <= expand(scenario).header.datasets["disk-1kB"].files


def test_a_dataset_is_not_larger_than_the_data_read_by_the_whole_sweep():
    scenario = sweep({"files": [2], "size": ["1 kB"]}, repeat=3, data_at_least="1 GB")
    assert expand(scenario).header.datasets["disk-1kB"].files == 6


def test_the_scale_multiplies_sizes_and_given_volumes_but_neither_counts_nor_memory():
    factors = {"files": [1, 4], "size": ["1 MB", "10 B", "0"]}
    one, small = (
        expand(sweep(factors, top={"scale": scale}, repeat=99, data_at_least="20 MB")) for scale in (1, 0.01)
    )
    sizes = {data.size_bytes for data in small.header.datasets.values()}
    assert sizes == {10_000, 1, 0}
    assert one.header.totals.transfers == small.header.totals.transfers
    assert one.header.datasets["disk-1MB"].files == small.header.datasets["disk-10kB"].files
    assert small.header.scale == 0.01
    memory = expand(sweep(factors, top={"scale": 0.01}, repeat=99, data_at_least="1 x memory"))
    assert memory.header.datasets["disk-10kB"].files == -(-(2**20) // 10_000) + 3 * 4 - 2


def test_each_set_of_options_is_one_call_named_after_the_differences():
    scenario = sweep(
        {"files": [1], "size": ["1 kB"], "mover": ["read", "read+write"], "block": ["4 KiB", "1 MiB"]},
        options={"direct": True}, timeout="3 s",
    )  # fmt: skip
    calls = expand(scenario).header.calls
    assert list(calls) == [
        "read,block_bytes=4096", "read,block_bytes=1048576", "write,block_bytes=4096", "write,block_bytes=1048576",
    ]  # fmt: skip
    assert calls["write,block_bytes=4096"].options == {"block_bytes": 4096, "direct": True, "fsync": False}
    assert {call.timeout_s for call in calls.values()} == {3.0}
    assert {trial.factors["block_bytes"] for trial in trials_of(scenario)} == {4096, 2**20}


def test_a_factor_replaces_a_fixed_value():
    factors = {"files": [1], "size": ["1 kB"], "cache": ["warm"], "block": ["4 KiB", "8 KiB"], "mover": ["read"]}
    scenario = sweep(factors, cache="cold", options={"block": "1 MiB", "direct": True})
    assert [call.options["block_bytes"] for call in expand(scenario).header.calls.values()] == [4096, 8192]
    assert all(trial.steps[0].cache == "warm" and len(trial.steps) == 2 for trial in trials_of(scenario))
    resolved = scenario.document()["workload"]
    assert "cache" not in resolved
    assert resolved["options"] == {"direct": True}


def test_a_factor_without_effect_is_accepted_if_a_filter_leaves_one_value():
    factors = {"files": [1], "size": ["1 kB"], "mover": ["cp", "read"], "fsync": [True, False]}
    with pytest.raises(ScenarioError, match="found read with equal calls for true and false"):
        sweep(factors)
    scenario = sweep(factors, sweep={"filter": ["mover == 'cp' or not fsync"]})
    assert len(trials_of(scenario)) == 3


def test_source_and_destination_can_be_factors_and_the_null_device_is_a_sink():
    factors = {"files": [1], "size": ["1 kB"], "source": ["disk", "tmp"], "destination": ["tmp", "null"]}
    plan = expand(sweep(factors, order="given"))
    found = [
        (t.call, t.source.split(":")[0], t.destination) for line in plan.lines for t in transfers_of(line.steps[0])
    ]
    assert found == [
        ("cp", "disk", "tmp:out/t0000000-000000"), ("cp,null", "disk", "null:"),
        ("cp", "tmp", "tmp:out/t0000002-000000"), ("cp,null", "tmp", "null:"),
    ]  # fmt: skip
    assert (plan.header.calls["cp"].expect, plan.header.calls["cp,null"].expect) == ("destination", "nothing")
    assert plan.header.totals.disk_bytes == {"disk": 1000, "tmp": 2000}


def test_hosts_take_turns_if_the_sources_are_on_several_hosts():
    storages = {"a": {"host": "one", "path": "x"}, "b": {"host": "two", "path": "x"}}
    factors = {"files": [1], "size": ["1 kB"], "mover": ["read"], "source": ["a", "b"]}
    plan = expand(sweep(factors, hosts={"one": {}, "two": {}}, storages=storages, repeat=3, destination=None))
    lines = list(plan.lines)
    assert {(line.actor, line.host) for line in lines} == {("sweep-one", "one"), ("sweep-two", "two")}
    for number, line in enumerate(lines):
        assert line.steps[-1] == Signal("sweep.turn", 1)
        assert number == 0 or line.steps[0] == Wait("sweep.turn", number)


def test_a_custom_tool_is_called_with_its_template():
    scenario = sweep(
        {"files": [1], "size": ["1 kB"], "mover": ["tool"], "streams": [1, 4]},
        top={"mover": {"tool": {
            "argv": ["tool", ["-p", "{streams}"], ["-v", "{verify}"], ["-w", "{window_bytes}"], "{source}"],
            "options": {"streams": "integer", "verify": "boolean", "window": "size"},
        }}},
        options={"verify": True}, destination=None,
    )  # fmt: skip
    calls = expand(scenario).header.calls
    call = calls["tool,streams=4"]
    assert call.argv == ("tool", ("-p", "{streams}"), ("-v",), ("-w", "{window_bytes}"), "{source}")
    assert call.options == {"streams": 4, "verify": True, "window_bytes": None}
    assert (call.requires, call.expect) == (("tool",), "nothing")


def test_the_lines_of_a_long_plan_are_generated_on_demand():
    plan = expand(sweep({"files": [10], "size": ["1 kB"]}, repeat=10**7))
    assert plan.header.totals.transfers == 10**8
    lines = iter(plan.lines)
    assert [next(lines).steps[0].id for _ in range(3)] == ["t0000000", "t0000001", "t0000002"]


def test_the_package_exports_exactly_the_public_names():
    assert set(venturi.workload.__all__) == {"KINDS", "Sweep", "Workload", "expand"}
