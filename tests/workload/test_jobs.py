"""Plans of batches of jobs."""

from __future__ import annotations

from collections import Counter

import pytest
from problemkit import reports

from venturi.errors import ScenarioError
from venturi.plan import (
    Acquire,
    Compute,
    DropCaches,
    Parallel,
    Prepare,
    Release,
    Signal,
    TransferStep,
    Trial,
    Wait,
    plan_lines,
)
from venturi.scenario import scenario_from
from venturi.workload import expand


def jobs(*, testbed=None, **workload):
    """Return a scenario of three workers, which copy from a server with xrdcp or from a shared directory."""
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
    return [step for child in parallel.children for step in child if isinstance(step, TransferStep)]


def error_of(**workload):
    with pytest.raises(ScenarioError) as error:
        jobs(**workload)
    return str(error.value)


def test_the_plan_is_reproducible_and_a_random_order_is_shuffled():
    many = {"jobs": [1, 2, 3, 4, 5, 6, 7, 8], "order": "random"}
    one, again = ("\n".join(plan_lines(expand(jobs(**many)))) for _ in range(2))
    assert one == again
    order = [trial.factors["jobs"] for _, trial in trials_of(expand(jobs(**many))) if trial.repetition == 0]
    assert order != sorted(order)


def test_each_job_has_its_own_file_and_workers_get_jobs_in_turn():
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


def test_parts_of_a_batch_share_a_point_and_start_after_the_previous_batch():
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


def test_jobs_acquire_and_release_a_slot_if_a_worker_has_more_jobs_than_slots():
    plan = expand(jobs(jobs=[12], slots=2))
    assert plan.header.pools == {"slots": 2}
    for _, trial in trials_of(plan):
        (parallel,) = (step for step in trial.steps if isinstance(step, Parallel))
        assert [[type(step) for step in child] for child in parallel.children] == [
            [Acquire, TransferStep, Release]
        ] * 4
    fitting = trials_of(expand(jobs(jobs=[6], slots=2)))
    assert {type(step) for _, trial in fitting for child in trial.steps[-1].children for step in child} == {
        TransferStep
    }


def test_root_files_are_written_once_with_a_limited_number_of_unique_contents():
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


def test_mounted_files_are_read_on_each_worker_and_created_in_one_storage():
    config = {"mount": {"storage": ["view-{worker}"], "create_through": ["disk"]}}
    application = {"read": {"mover": "read", "size": "1 MB"}}
    plan = expand(jobs(configuration=config, application=application, jobs=[3], cache="cold"))
    sources = {host: transfers_of(trial)[0].source.partition(":")[0] for host, trial in trials_of(plan)}
    assert sources == {"w1": "view-w1", "w2": "view-w2", "w3": "view-w3"}
    made, drop = (line for line in plan.lines if line.actor == "files-server")
    assert [type(step) for step in made.steps] == [Prepare, Signal]
    # A lab has one kernel, so one host drops the caches for all.
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


def test_the_scale_reduces_rates_and_not_compute_times():
    application = {
        "root": {"mover": "root-read", "size": "100 MB", "format": "root", "rate": "8 Mb/s", "compute": "2 s"},
        "bytes": {"mover": "xrdcp", "size": "100 MB", "compute": "2 s"},
    }
    scenario = jobs(application=application, jobs=[3])
    plan = expand(scenario.model_copy(update={"scale": 0.1}))
    assert plan.header.calls["root"].options == {"rate_bytes_per_s": 100_000, "compute_s": 2.0}
    after = {trial.factors["application"]: trial.steps[-1].children[0] for _, trial in trials_of(plan)}
    assert [type(step) for step in after["root"]] == [TransferStep]
    assert after["bytes"][1:] == (Compute(2.0),)


def test_a_window_moves_along_the_workers():
    window = {"workers": 2, "positions": 2}
    testbed = {"service": {"iperf": {"kind": "iperf3", "host": "server", "ports": 2}}}
    config = {"net": {"service": ["iperf"]}}
    application = {"iperf": {"mover": "iperf3", "size": "1 MB"}}
    plan = expand(jobs(testbed=testbed, window=window, jobs=[2], configuration=config, application=application))
    found = [(trial.factors["first_worker"], host) for host, trial in trials_of(plan)]
    assert found == [(1, "w1"), (1, "w2"), (2, "w2"), (2, "w3")]
    assert "expected at least 3 ports of iperf" in error_of(
        testbed=testbed, jobs=[3], configuration=config, application=application
    )


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        ({"workers": ["w9"]}, 'workload.workers[0]: expected one of the hosts: server, w1, w2, w3, found "w9"'),
        ({"jobs": [4, 4]}, "workload.jobs: expected one or more distinct values, found [4, 4]"),
        ({"configuration": {}}, "workload.configuration: expected one or more tables [workload.configuration.NAME], found none"),
        ({"configuration": {"x": {"storage": ["view-{worker}", "disc"]}}}, 'workload.configuration.x.storage[1]: expected one of the storages'),
        ({"configuration": {"x": {}}}, "workload.configuration.x.storage: expected one or more storages for xrdcp (bytes)"),
        ({"application": {"b": {"mover": "write", "size": "1 MB"}}}, "workload.application.b.mover: expected a mover that only reads"),
        ({"application": {"b": {"mover": "xrdcp", "size": "1 MB", "unique": 2}}}, 'workload.application.b.unique: expected it with format = "root" only'),
        ({"application": {"b": {"mover": "read", "size": "1 MB", "rate": "1 MB/s"}}}, "workload.application.b.rate: expected a mover with the option rate"),
        ({"application": {"b": {"mover": "xrdcp", "size": "1 MB", "options": {"stream": 2}}}}, "workload.application.b.options.stream: expected one of the options of xrdcp"),
        ({"window": {"workers": 3, "positions": 2}}, "workload.window: expected a window within the 3 workers, found 3 of them at 2 positions"),
    ],
)  # fmt: skip
def test_reports_errors_with_location(workload, expected):
    assert reports(expected, error_of(**workload))


def test_leaving_out_a_host_removes_its_links_and_storages():
    scenario = jobs(testbed={"without": ["w3"]}, workers=["w1", "w2"])
    assert set(scenario.testbed.host) == {"server", "w1", "w2"} == set(scenario.testbed.link)
    assert "view-w3" not in scenario.testbed.storage
    assert "without" not in scenario.document()["testbed"]
    with pytest.raises(
        ScenarioError, match=r'testbed.without: expected one of the hosts and services: server, w1, .*, found "w4"'
    ):
        jobs(testbed={"without": ["w4"]})


def test_leaving_out_a_service_keeps_its_host():
    services = set(jobs().testbed.service)
    scenario = jobs(testbed={"without": ["xroot*"]}, configuration={"disk": {"storage": ["view-{worker}"]}})
    assert "xrootd" in services
    assert set(scenario.testbed.service) == {name for name in services if not name.startswith("xroot")}
    assert set(scenario.testbed.host) == {"server", "w1", "w2", "w3"}


def test_all_workers_can_be_observed():
    assert jobs(observe=["{worker}"]).workload.observe == ("{worker}",)
