"""Datasets: sizes and counts, pairs of interfaces, calls of a trial, synchronized hosts."""

import itertools

import pytest

from venturi.errors import ScenarioError
from venturi.plan import emit_line
from venturi.scenario import scenario_from
from venturi.workload import expand
from venturi.workload.filesets import CATEGORIES


def scenario(workload, **keys):
    """Return a scenario with two sites, two hosts per site, two interfaces per host, and a GridFTP server on each interface."""
    testbed = {"router": {"r": {}}, "host": {}, "link": {}, "storage": {}, "service": {}}
    for side, number in itertools.product("ab", (1, 2)):
        host = f"{side}{number}"
        testbed["host"][host] = {}
        testbed["storage"][f"disk-{host}"] = {"host": host, "path": "data"}
        for nic in (0, 1):
            testbed["link"][f"{host}-{nic}"] = {"between": [host, "r"], "rate": "1 Gb/s", "rtt": "10 ms"}
            testbed["service"][f"{host}-{nic}"] = {
                "kind": "gridftp", "host": host, "interface": f"eth{nic}", "storage": [f"disk-{host}"],
            }  # fmt: skip
    usual = {
        "kind": "dataset", "mover": "globus-url-copy", "source_service": "a*", "destination_service": "b*", "destination": "null",
        "set": "mixed", "sets": {"mixed": {"sizes": ["8 KiB", "16 KiB"], "volume": "64 KiB"}},
    }  # fmt: skip
    output = {key: value for key, value in {**usual, **workload}.items() if value is not None}
    document = {"venturi": 1, "name": "x", "testbed": testbed, "workload": output, **keys}
    return scenario_from(document)


def trials_of(plan):
    return [(line.host, step) for line in plan.lines for step in line.steps if hasattr(step, "factors")]


def calls_of(trial):
    return [list(child) for child in trial.steps[-1].children]


def test_the_categories_match_the_report():
    sizes = {name: files.sizes for name, files in CATEGORIES.items()}
    assert {name: (len(own), own[0], own[-1]) for name, own in sizes.items()} == {
        "small": (10, 8 << 10, 4 << 20), "medium": (8, 8 << 20, 1 << 30), "large": (3, 2 << 30, 8 << 30),
    }  # fmt: skip
    assert all(after == 2 * before for own in sizes.values() for before, after in itertools.pairwise(own))


def test_file_counts_rise_as_sizes_fall_with_equal_volume_per_size():
    sets = {"small": {"sizes": [f"{8 << n} KiB" for n in range(10)], "volume": "40 MiB"}}
    plan = expand(scenario({"set": "small", "sets": sets}))
    mix = plan.header.datasets["disk-a1-small"].mix
    assert [group.files for group in mix] == [512, 256, 128, 64, 32, 16, 8, 4, 2, 1]
    assert {group.files * group.size_bytes for group in mix} == {4 << 20}


def test_every_source_interface_sends_to_every_destination_interface():
    plan = expand(scenario({}))
    pairs = [call.labels["pair"] for _, trial in trials_of(plan) for child in calls_of(trial) for call in child]
    services = [f"{number}-{nic}" for number in (1, 2) for nic in (0, 1)]
    assert sorted(pairs) == sorted(f"a{one}>b{other}" for one in services for other in services)
    one_to_one = expand(scenario({"pairs": "one to one"}))
    pairs = [call.labels["pair"] for _, trial in trials_of(one_to_one) for child in calls_of(trial) for call in child]
    assert sorted(pairs) == [f"a{name}>b{name}" for name in services]


def test_a_call_moves_the_whole_dataset_with_the_bytes_of_its_files():
    plan = expand(scenario({}))
    _, trial = trials_of(plan)[0]
    (call,) = calls_of(trial)[0]
    assert (call.files, call.bytes) == (6, 4 * 8192 + 2 * 16384)
    assert plan.header.totals.bytes == 16 * call.bytes
    assert plan.header.totals.transfers == 16


def test_files_per_call_splits_a_dataset_into_consecutive_calls():
    plan = expand(scenario({"files_per_call": 4, "destination": None}))
    _, trial = trials_of(plan)[0]
    child = calls_of(trial)[0]
    assert [(call.files, call.bytes, call.source[-6:]) for call in child] == [
        (4, 4 * 8192, "000000"), (2, 2 * 16384, "000004"),
    ]  # fmt: skip
    assert len({call.destination for each in calls_of(trial) for call in each}) == 2 * len(calls_of(trial))


def test_calls_with_their_own_files_read_different_files_of_the_same_sizes():
    plan = expand(scenario({"files": "own", "pairs": "one to one", "calls": 3}))
    _, trial = trials_of(plan)[0]
    firsts = [child[0].source for child in calls_of(trial)]
    assert len(set(firsts)) == len(firsts) == 6
    assert {child[0].bytes for child in calls_of(trial)} == {65536}
    assert plan.header.datasets["disk-a1-mixed"].files == 6 * 6


def test_trials_of_several_hosts_start_together_and_points_take_turns():
    plan = expand(scenario({"factors": {"streams": [1, 2]}, "repeat": 2}))
    trials = trials_of(plan)
    assert [host for host, _ in trials] == ["a1", "a2"] * 4
    assert len({trial.id for _, trial in trials}) == 8
    assert [(a.point, a.repetition) for (_, a), (_, b) in zip(trials[::2], trials[1::2], strict=True)] == [
        (b.point, b.repetition) for _, b in trials[1::2]
    ]
    waits = [step for _, trial in trials for step in trial.steps if hasattr(step, "until")]
    assert [wait.until for wait in waits] == [2, 2, 4, 4, 6, 6, 8, 8]


def test_a_transfer_from_a_local_file_to_a_server_uses_one_service_port():
    plan = expand(scenario({"source": "disk-a1", "source_service": "none"}))
    ((host, trial),) = trials_of(plan)
    assert host == "a1"
    assert {(call.source_via, call.destination_via is None) for child in calls_of(trial) for call in child} == {
        (None, False)
    }


def test_the_same_scenario_gives_the_same_plan_byte_for_byte():
    def lines():
        return [emit_line(line) for line in expand(scenario({"factors": {"streams": [1, 2, 4]}, "repeat": 5})).lines]

    assert lines() == lines()


def test_scale_shrinks_sizes_and_leaves_counts():
    plan = expand(scenario({}, scale=0.5))
    assert [(p.files, p.size_bytes) for p in plan.header.datasets["disk-a1-mixed"].mix] == [(4, 4096), (2, 8192)]


@pytest.mark.parametrize(
    ("workload", "where", "detail"),
    [
        ({"set": "smal"}, "workload.set", "did you mean"),
        ({"set": "large"}, "workload.sets.large", "found neither"),
        ({"sets": {"mixed": {"sizes": ["1 KB", "1 MB"], "volume": "1 MB"}}}, "workload.sets.mixed", "at least 2 MB"),
        ({"source_service": "c*"}, "workload.source_service", "expected one of the services"),
        ({"pairs": "one to one", "source_service": "a1-*"}, "workload.pairs", "found 2 and 4"),
        ({"mover": "gfal-copy", "files_per_call": 2}, "workload.files_per_call", "expected 1 (gfal-copy"),
        ({"factors": {"streems": [1]}}, "workload.factors.streems", "expected one of the factors"),
        ({"mover": None}, "workload.mover", "expected one of the movers"),
        ({"source_service": None}, "workload.source", "expected the name of a storage, or of a service"),
    ],
)  # fmt: skip
def test_reports_errors_with_location(workload, where, detail):
    with pytest.raises(ScenarioError) as caught:
        expand(scenario(workload))
    assert any(location == where and detail in problem for location, problem in caught.value.problems), (
        caught.value.problems
    )
