"""How long a sweep takes over its network, by closed forms."""

from __future__ import annotations

import pytest

from venturi.plan import estimate
from venturi.scenario import scenario_from
from venturi.testbed.pace import LOGIN_ROUND_TRIPS, moving_s
from venturi.workload import expand

RTT_S = 0.1
RATE = 10e6 / 8
"""Bytes per second of the link."""


def plan(*, repeat=1, link=True, **factors):
    options = {name: factors.pop(name) for name in list(factors) if name in ("time",)}
    testbed = {
        "host": {"a": {}, "b": {}},
        "storage": {"here": {"host": "a", "path": "x"}, "there": {"host": "b", "path": "y"}},
        "service": {
            "server": {"kind": "gridftp", "host": "b", "storage": ["there"]},
            "probe": {"kind": "iperf3", "host": "b"},
        },
        "link": {"ab": {"between": ["a", "b"], "rate": "10 Mb/s", "rtt": "100 ms"}},
    }
    workload = {"kind": "sweep", "source": "here", "destination": "there", "client": "a", "repeat": repeat, "mover": "globus-url-copy",
                "factors": {"size": ["1 MB"], **factors}, "options": options}  # fmt: skip
    if not link:
        testbed = {"host": {"a": {}}, "storage": {"here": {"host": "a", "path": "x"}}}
        workload |= {"mover": "cp", "destination": "here"}
        del workload["client"]
    elif options:
        workload["mover"] = "iperf3"
    return expand(scenario_from({"venturi": 1, "name": "x", "testbed": testbed, "workload": workload}))


def test_a_transfer_takes_its_bytes_over_the_link_and_the_round_trips_of_logging_in():
    assert moving_s(plan(), 1e9) == pytest.approx(1e6 / RATE + LOGIN_ROUND_TRIPS * RTT_S)


def test_a_window_limits_and_streams_multiply_it():
    login = LOGIN_ROUND_TRIPS * RTT_S
    assert moving_s(plan(window=["16 KiB"]), 1e9) == pytest.approx(1e6 * RTT_S / 16384 + login)
    assert moving_s(plan(window=["16 KiB"], streams=[4]), 1e9) == pytest.approx(1e6 * RTT_S / 65536 + login)


def test_files_at_the_same_time_share_the_link_and_slow_storage_limits_them():
    assert moving_s(plan(files=[4]), 1e9) == pytest.approx(4e6 / RATE)  # longer than any login
    assert moving_s(plan(), 1e5) == pytest.approx(10 + LOGIN_ROUND_TRIPS * RTT_S)


def test_a_test_by_the_clock_takes_its_time_whatever_its_size():
    assert moving_s(plan(time="7 s"), 1e9) == pytest.approx(7 + LOGIN_ROUND_TRIPS * RTT_S)


def test_all_trials_follow_each_other():
    assert moving_s(plan(repeat=20, size=["1 MB", "3 MB"]), 1e9) == pytest.approx(
        20 * (4e6 / RATE + 2 * LOGIN_ROUND_TRIPS * RTT_S)
    )


def test_without_a_network_there_is_nothing_to_tell():
    assert moving_s(plan(link=False), 1e9) is None


def test_the_estimate_of_a_plan_with_a_network_rests_on_it_and_says_so():
    sweep = plan(repeat=3)
    cost = estimate(sweep.header, moving=lambda rate: moving_s(sweep, rate))
    made_s = 1e6 / 200e6
    assert cost.time_s == pytest.approx(3 * (1e6 / RATE + LOGIN_ROUND_TRIPS * RTT_S) + made_s + 3 * 0.05)
    assert cost.assumption.startswith(
        "transfers are as fast as links and windows let them, and every byte moves at most at 200 MB/s"
    )
    local = plan(link=False)
    assert estimate(local.header, moving=lambda rate: moving_s(local, rate)) == estimate(local.header)
