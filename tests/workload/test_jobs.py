"""The plan that batches of jobs expand to."""

from __future__ import annotations

from collections import Counter

import pytest

from venturi.errors import ScenarioError
from venturi.plan import (
    Acquire,
    Compute,
    DropCaches,
    Parallel,
    Prepare,
    Release,
    Signal,
    Transfer,
    Trial,
    Wait,
    plan_lines,
)
from venturi.scenario import scenario_from
from venturi.workload import expand


def jobs(*, testbed=None, **workload):
    """Return a scenario of three workers that copy from a server by xrdcp, or from a directory that they share."""
    hosts = ("server", "w1", "w2", "w3")
    return scenario_from(
        {
            "venturi": 1,
            "name": "batches",
            "seed": 7,
            "testbed": {
                "host": {name: {} for name in hosts},
                "router": {"r": {}},
                "link": {name: {"between": [name, "r"], "rate": "1 Gb/s", "delay": "1 ms"} for name in hosts},
                "storage": {"disk": {"host": "server", "path": "disk"}, "more": {"host": "server", "path": "more"}}
                | {f"view-{name}": {"host": name, "path": "view"} for name in hosts[1:]},
                "service": {"xrootd": {"kind": "xrootd", "host": "server", "storage": ["disk", "more"]}},
                **(testbed or {}),
            },
            "workload": {
                "kind": "jobs",
                "jobs": [4, 7],
                "workers": ["w1", "w2", "w3"],
                "slots": 3,
                "configuration": {"server": {"storage": ["disk"], "service": ["xrootd"]}},
                "application": {"bytes": {"mover": "xrdcp", "size": "1 MB"}},
                **workload,
            },
            "analyse": {"against": ["jobs"]},
        }
    )


def trials_of(plan):
    return [(line.host, step) for line in plan.lines for step in line.steps if isinstance(step, Trial)]


def transfers_of(trial):
    (parallel,) = (step for step in trial.steps if isinstance(step, Parallel))
    return [step for child in parallel.children for step in child if isinstance(step, Transfer)]


def refusal(**workload):
    with pytest.raises(ScenarioError) as error:
        jobs(**workload)
    return str(error.value)


def test_the_same_scenario_gives_the_same_plan_and_another_seed_another_order():
    many = {"jobs": [1, 2, 3, 4, 5, 6, 7, 8], "order": "random"}
    one, again = ("\n".join(plan_lines(expand(jobs(**many)))) for _ in range(2))
    assert one == again
    order = [trial.factors["jobs"] for _, trial in trials_of(expand(jobs(**many))) if trial.repetition == 0]
    assert order != sorted(order)


def test_each_job_has_a_file_of_its_own_and_goes_to_the_workers_in_turn():
    plan = expand(jobs())
    batch = [
        (host, transfer)
        for host, trial in trials_of(plan)
        if trial.factors["jobs"] == 7
        for transfer in transfers_of(trial)
    ]
    assert Counter(host for host, _ in batch) == {"w1": 3, "w2": 2, "w3": 2}
    assert sorted(transfer.source[-6:] for _, transfer in batch) == [f"{number:06d}" for number in range(7)]
    assert {transfer.source_via for _, transfer in batch} == {"xrootd/root"}
    assert plan.header.datasets["bytes@disk"].files == 7
    assert (plan.header.totals.trials, plan.header.totals.transfers) == (6, 11)
    assert plan.header.totals.bytes == 11_000_000


def test_parts_of_a_batch_share_point_and_repetition_and_begin_when_the_one_before_has_ended():
    plan = expand(jobs(repeat=2))
    found = Counter((trial.point, trial.repetition) for _, trial in trials_of(plan))
    assert set(found.values()) == {3}
    lines = [line for line in plan.lines if line.actor.startswith("jobs-")]
    for ended, line in enumerate(lines):
        waits = {step.counter: step.until for step in line.steps if isinstance(step, Wait)}
        assert waits.get("jobs.ended", 0) == 3 * (ended // 3)
        assert line.steps[-1] == Signal("jobs.ended", 1)
    together = [step.until for _, trial in trials_of(plan) for step in trial.steps if isinstance(step, Wait)]
    assert together == [3] * 3 + [6] * 3 + [9] * 3 + [12] * 3


def test_jobs_beyond_the_slots_of_a_worker_wait_for_one_and_give_it_back():
    plan = expand(jobs(jobs=[12], slots=2))
    assert plan.header.pools == {"slots": 2}
    for _, trial in trials_of(plan):
        (parallel,) = (step for step in trial.steps if isinstance(step, Parallel))
        assert [[type(step) for step in child] for child in parallel.children] == [[Acquire, Transfer, Release]] * 4
    fitting = trials_of(expand(jobs(jobs=[6], slots=2)))
    assert {type(step) for _, trial in fitting for child in trial.steps[-1].children for step in child} == {Transfer}


def test_files_of_root_are_written_once_and_few_of_them_have_contents_of_their_own():
    application = {
        "root": {"mover": "root-read", "size": "10 MB", "unique": 3, "format": "root", "shape": {"baskets": 2}}
    }
    plan = expand(jobs(application=application, jobs=[5]))
    (maker,) = (line for line in plan.lines if line.actor == "files-server")
    transfer, signal = maker.steps
    assert (transfer.files, transfer.bytes, transfer.keep) == (5, 50_000_000, True)
    assert signal == Signal("jobs.data", 1)
    call = plan.header.calls[transfer.call]
    assert (call.mover, call.options["unique"], call.options["baskets"]) == ("root-write", 3, 2)


def test_a_mount_on_each_worker_is_read_where_the_job_runs_and_made_in_one_place():
    told = {"mount": {"storage": ["view-{worker}"], "made_in": ["disk"]}}
    application = {"read": {"mover": "read", "size": "1 MB"}}
    plan = expand(jobs(configuration=told, application=application, jobs=[3], cache="cold"))
    sources = {host: transfers_of(trial)[0].source.partition(":")[0] for host, trial in trials_of(plan)}
    assert sources == {"w1": "view-w1", "w2": "view-w2", "w3": "view-w3"}
    made, drop = (line for line in plan.lines if line.actor == "files-server")
    assert [type(step) for step in made.steps] == [Prepare, Signal]
    # A lab has one kernel: one host drops what all of them have cached.
    assert DropCaches("read@disk", 0, 3) in drop.steps


def test_two_storages_are_read_in_turn_by_the_jobs_of_each_worker():
    plan = expand(
        jobs(configuration={"both": {"storage": ["disk", "more"], "service": ["xrootd"]}}, jobs=[12], slots=4)
    )
    for _, trial in trials_of(plan):
        assert Counter(transfer.source.partition(":")[0] for transfer in transfers_of(trial)) == {
            "disk": 2,
            "more": 2,
        }


def test_a_rate_shrinks_with_the_scale_and_computing_does_not():
    application = {
        "root": {"mover": "root-read", "size": "100 MB", "format": "root", "rate": "8 Mb/s", "compute": "2 s"},
        "bytes": {"mover": "xrdcp", "size": "100 MB", "compute": "2 s"},
    }
    scenario = jobs(application=application, jobs=[3])
    plan = expand(scenario.model_copy(update={"scale": 0.1}))
    assert plan.header.calls["root"].options == {"rate_bytes_per_s": 100_000, "compute_s": 2.0}
    after = {trial.factors["application"]: trial.steps[-1].children[0] for _, trial in trials_of(plan)}
    assert [type(step) for step in after["root"]] == [Transfer]
    assert after["bytes"][1:] == (Compute(2.0),)


def test_a_window_moves_along_the_workers():
    window = {"workers": 2, "positions": 2}
    testbed = {"service": {"iperf": {"kind": "iperf3", "host": "server", "ports": 2}}}
    told = {"net": {"service": ["iperf"]}}
    application = {"iperf": {"mover": "iperf3", "size": "1 MB"}}
    plan = expand(jobs(testbed=testbed, window=window, jobs=[2], configuration=told, application=application))
    found = [(trial.factors["first_worker"], host) for host, trial in trials_of(plan)]
    assert found == [(1, "w1"), (1, "w2"), (2, "w2"), (2, "w3")]
    assert "expected 3 ports or more of iperf" in refusal(
        testbed=testbed, jobs=[3], configuration=told, application=application
    )


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        ({"workers": ["w9"]}, 'workload.workers[0]: expected one of the hosts: server, w1, w2, w3, found "w9"'),
        ({"jobs": [4, 4]}, "workload.jobs: expected distinct values, one or more, found [4, 4]"),
        ({"configuration": {}}, "workload.configuration: expected a table [workload.configuration.NAME] or more, found none"),
        ({"configuration": {"x": {"storage": ["view-{worker}", "disc"]}}}, 'workload.configuration.x.storage[1]: expected one of the storages'),
        ({"configuration": {"x": {}}}, "workload.configuration.x.storage: expected storages that xrdcp reads from (for bytes)"),
        ({"application": {"b": {"mover": "write", "size": "1 MB"}}}, "workload.application.b.mover: expected a mover that only reads"),
        ({"application": {"b": {"mover": "xrdcp", "size": "1 MB", "unique": 2}}}, 'workload.application.b.unique: expected format = "root" beside it'),
        ({"application": {"b": {"mover": "read", "size": "1 MB", "rate": "1 MB/s"}}}, "workload.application.b.rate: expected a mover with the option rate"),
        ({"application": {"b": {"mover": "xrdcp", "size": "1 MB", "options": {"stream": 2}}}}, "workload.application.b.options.stream: expected one of the options of xrdcp"),
        ({"window": {"workers": 3, "positions": 2}}, "workload.window: expected a window within the 3 workers, found 3 of them at 2 positions"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(workload, expected):
    assert expected in refusal(**workload)


def test_hosts_that_are_left_out_take_their_links_storages_and_services_with_them():
    scenario = jobs(testbed={"without": ["w3"]}, workers=["w1", "w2"])
    assert set(scenario.testbed.host) == {"server", "w1", "w2"} == set(scenario.testbed.link)
    assert "view-w3" not in scenario.testbed.storage
    assert "without" not in scenario.document()["testbed"]
    with pytest.raises(
        ScenarioError, match=r'testbed.without: expected one of the hosts: server, w1, w2, w3, found "w4"'
    ):
        jobs(testbed={"without": ["w4"]})
