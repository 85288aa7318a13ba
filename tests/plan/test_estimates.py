"""What a plan will cost, and whether it fits."""

from __future__ import annotations

import dataclasses

import pytest

from venturi.errors import PlanError
from venturi.plan import Dataset, Header, Host, LabHost, Measure, Place, Storage, Totals, check_fits, estimate

HEADER = Header(
    name="x",
    seed=1,
    scale=1.0,
    scenario={"testbed": {"storage": {"fast": {"rate": "8 Gb/s"}, "slow": {"rate": "100 MB/s"}, "mute": {}}}},
    hosts={"h": Host(), "i": Host()},
    places={
        "fast": Place("h", "data"),
        "slow": Place("h", "/slow"),
        "also": Place("h", "other"),
        "far": Place("i", "x"),
    },
    datasets={"d": Dataset("fast", "sets", 10, 10**8, 1)},
    calls={},
    measure=Measure(None, ()),
    totals=Totals(100, 200, 9 * 10**9, {"fast": 2 * 10**9, "slow": 10**9, "also": 10**9}),
)


def test_the_time_is_bytes_over_the_slowest_stated_rate_plus_a_share_for_each_trial():
    cost = estimate(HEADER)
    assert cost.time_s == pytest.approx((9e9 + 1e9) / 100e6 + 100 * 0.05)
    assert cost.assumption == (
        "every byte moves at 100 MB/s (the rate stated for slow), making the data sets included, and a trial costs "
        "50 ms beside its transfers"
    )
    assert (cost.trials, cost.transfers, cost.bytes) == (100, 200, 9 * 10**9)


def test_without_a_stated_rate_the_assumption_says_so():
    cost = estimate(dataclasses.replace(HEADER, scenario={"testbed": 3}))
    assert cost.time_s == pytest.approx(10e9 / 200e6 + 5)
    assert "(assumed, as no storage states a rate)" in cost.assumption
    assert estimate(HEADER, rate_bytes_per_s=1e9).time_s == pytest.approx(10 + 5)


def test_a_plan_that_does_not_fix_its_bytes_has_no_time():
    assert estimate(dataclasses.replace(HEADER, totals=Totals(1, None, None, {}))).time_s is None


def test_places_below_one_scratch_directory_share_its_space():
    cost = estimate(HEADER)
    check_fits(cost, {"fast": 3 * 10**9, "also": 3 * 10**9, "slow": 10**9})
    with pytest.raises(PlanError) as caught:
        check_fits(cost, {"fast": 3 * 10**9 - 1, "also": 3 * 10**9 - 1, "slow": 10**9 - 1})
    assert str(caught.value).splitlines() == [
        "fast (data) and also (other) on h: expected 3 GB of free space, found 3 GB; use a smaller --scale (below 0.9), or "
        "another --scratch directory, or leave out the largest sizes",
        "slow (/slow) on h: expected 1 GB of free space, found 1 GB; use a smaller --scale (below 0.9), or a path on a "
        "larger file system, or leave out the largest sizes",
    ]


def test_the_advice_on_scale_takes_the_present_scale_into_account():
    cost = estimate(dataclasses.replace(HEADER, scale=0.1))
    with pytest.raises(PlanError, match=r"below 0\.045\)"):
        check_fits(cost, {"slow": 5 * 10**8})


def test_data_sets_that_are_there_already_need_no_more_space():
    cost = estimate(HEADER)
    check_fits(cost, {"fast": 10**9}, present_bytes={"fast": 10**9})
    with pytest.raises(PlanError):
        check_fits(cost, {"fast": 10**9 - 1}, present_bytes={"fast": 10**9})


def test_a_place_of_unknown_space_is_not_checked():
    check_fits(estimate(HEADER), {})


def test_a_full_disk_gets_no_advice_on_scale():
    with pytest.raises(PlanError, match="found 0 B; use a path on a larger file system, or leave"):
        check_fits(estimate(HEADER), {"slow": 0})


def test_hosts_of_a_lab_share_the_disk_of_this_machine_but_not_what_the_lab_makes():
    header = dataclasses.replace(
        HEADER,
        hosts={"h": Host(lab=LabHost()), "i": Host(lab=LabHost())},
        places={
            "fast": Place("h", "data", Storage("directory")),
            "far": Place("i", "x"),
            "memory": Place("i", "m", Storage("tmpfs", 10**9)),
        },
        totals=Totals(1, 1, 1, {"fast": 10**9, "far": 10**9, "memory": 2 * 10**9}),
    )
    cost = estimate(header)
    check_fits(cost, {"fast": 2 * 10**9, "far": 2 * 10**9, "memory": 2 * 10**9})
    with pytest.raises(PlanError) as caught:
        check_fits(cost, {"fast": 10**9, "far": 10**9, "memory": 10**9})
    assert str(caught.value).splitlines() == [
        "fast (data) and far (x) on this machine: expected 2 GB of free space, found 1 GB; use a smaller --scale (below "
        "0.45), or another --scratch directory, or leave out the largest sizes",
        "memory (m) on i: expected 2 GB of free space, found 1 GB; use a smaller --scale (below 0.45), or a larger size "
        "for this storage, or leave out the largest sizes",
    ]
