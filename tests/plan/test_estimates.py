"""Estimated cost of a plan, and whether it fits."""

from __future__ import annotations

import dataclasses

import pytest

from venturi.errors import PlanError
from venturi.plan import Dataset, Header, Host, LabHost, Measure, Storage, StorageSpec, Totals, check_fits, estimate

HEADER = Header(
    name="x",
    seed=1,
    scale=1.0,
    scenario={"testbed": {"storage": {"fast": {"rate": "8 Gb/s"}, "slow": {"rate": "100 MB/s"}, "mute": {}}}},
    hosts={"h": Host(), "i": Host()},
    storages={
        "fast": Storage("h", "data"),
        "slow": Storage("h", "/slow"),
        "also": Storage("h", "other"),
        "far": Storage("i", "x"),
    },
    datasets={"d": Dataset("fast", "sets", 10, 10**8, 1)},
    calls={},
    measure=Measure(None, ()),
    totals=Totals(100, 200, 9 * 10**9, {"fast": 2 * 10**9, "slow": 10**9, "also": 10**9}),
)


def test_the_time_is_bytes_over_the_slowest_stated_rate_plus_an_overhead_per_trial():
    cost = estimate(HEADER)
    assert cost.time_s == pytest.approx((9e9 + 1e9) / 100e6 + 100 * 0.05)
    assert cost.assumption == (
        "all transfers run at 100 MB/s (rate of slow in the scenario), including the creation of datasets, and each "
        "trial has an overhead of 50 ms"
    )
    assert (cost.trials, cost.transfers, cost.bytes) == (100, 200, 9 * 10**9)


def test_without_a_stated_rate_the_estimate_mentions_that_the_rate_is_assumed():
    cost = estimate(dataclasses.replace(HEADER, scenario={"testbed": 3}))
    assert cost.time_s == pytest.approx(10e9 / 200e6 + 5)
    assert "(assumed, because no storage has a rate)" in cost.assumption
    assert estimate(HEADER, rate_bytes_per_s=1e9).time_s == pytest.approx(10 + 5)


def test_a_plan_without_fixed_bytes_has_no_estimated_time():
    assert estimate(dataclasses.replace(HEADER, totals=Totals(1, None, None, {}))).time_s is None


def test_storages_below_one_scratch_directory_share_its_space():
    cost = estimate(HEADER)
    check_fits(cost, {"fast": 3 * 10**9, "also": 3 * 10**9, "slow": 10**9})
    with pytest.raises(PlanError) as caught:
        check_fits(cost, {"fast": 3 * 10**9 - 1, "also": 3 * 10**9 - 1, "slow": 10**9 - 1})
    assert str(caught.value).splitlines() == [
        "fast (data) and also (other) on h: expected 3 GB of free space, found 3 GB; use --set scale=0.9 or less, or "
        "another --scratch directory, or remove the largest sizes",
        "slow (/slow) on h: expected 1 GB of free space, found 1 GB; use --set scale=0.9 or less, or a path on a "
        "larger file system, or remove the largest sizes",
    ]


def test_the_advice_on_scale_takes_the_current_scale_into_account():
    cost = estimate(dataclasses.replace(HEADER, scale=0.1))
    with pytest.raises(PlanError, match=r"--set scale=0\.045 or less"):
        check_fits(cost, {"slow": 5 * 10**8})


def test_each_existing_host_has_its_own_scratch_directory():
    header = dataclasses.replace(
        HEADER,
        hosts={"h": Host(lab=LabHost()), "i": Host(lab=LabHost())},
        storages={"here": Storage("h", "data"), "there": Storage("i", "data")},
        totals=Totals(1, 1, 1, {"here": 10**9, "there": 10**9}),
    )
    check_fits(estimate(header), {"here": 10**9, "there": 10**9}, one_scratch=False)
    with pytest.raises(PlanError) as caught:
        check_fits(estimate(header), {"here": 10**9, "there": 5 * 10**8}, one_scratch=False)
    assert str(caught.value) == (
        "there (data) on i: expected 1 GB of free space, found 500 MB; use --set scale=0.45 or less, or another --scratch"
        " directory or path in --hosts, or remove the largest sizes"
    )


def test_existing_datasets_need_no_additional_space():
    cost = estimate(HEADER)
    check_fits(cost, {"fast": 10**9}, present_bytes={"fast": 10**9})
    with pytest.raises(PlanError):
        check_fits(cost, {"fast": 10**9 - 1}, present_bytes={"fast": 10**9})


def test_a_storage_of_unknown_space_is_not_checked():
    check_fits(estimate(HEADER), {})


def test_a_full_disk_gets_no_advice_on_scale():
    with pytest.raises(PlanError, match="found 0 B; use a path on a larger file system, or remove"):
        check_fits(estimate(HEADER), {"slow": 0})


def test_lab_hosts_share_the_disk_of_this_machine_but_not_lab_file_systems():
    header = dataclasses.replace(
        HEADER,
        hosts={"h": Host(lab=LabHost()), "i": Host(lab=LabHost())},
        storages={
            "fast": Storage("h", "data", StorageSpec("directory")),
            "far": Storage("i", "x"),
            "memory": Storage("i", "m", StorageSpec("tmpfs", 10**9)),
        },
        totals=Totals(1, 1, 1, {"fast": 10**9, "far": 10**9, "memory": 2 * 10**9}),
    )
    cost = estimate(header)
    check_fits(cost, {"fast": 2 * 10**9, "far": 2 * 10**9, "memory": 2 * 10**9})
    with pytest.raises(PlanError) as caught:
        check_fits(cost, {"fast": 10**9, "far": 10**9, "memory": 10**9})
    assert str(caught.value).splitlines() == [
        "fast (data) and far (x) on this machine: expected 2 GB of free space, found 1 GB; use --set scale=0.45 or "
        "less, or another --scratch directory, or remove the largest sizes",
        "memory (m) on i: expected 2 GB of free space, found 1 GB; use --set scale=0.45 or less, or a larger size "
        "for this storage, or remove the largest sizes",
    ]
