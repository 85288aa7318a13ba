"""Duration of a sweep over its network, compared with closed forms."""

from __future__ import annotations

import pytest

from venturi.plan import estimate
from venturi.scenario import scenario_from
from venturi.testbed.duration_estimate import LOGIN_ROUND_TRIPS, estimate_transfer_s
from venturi.workload import expand

RTT_S = 0.1
RATE = 10e6 / 8
"""Rate of the link, in bytes per second."""


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


def test_the_estimate_of_a_transfer_has_the_time_on_the_link_and_the_login_round_trips():
    assert estimate_transfer_s(plan(), 1e9) == pytest.approx(1e6 / RATE + LOGIN_ROUND_TRIPS * RTT_S)


def test_the_window_limits_a_transfer_and_streams_multiply_the_window():
    login = LOGIN_ROUND_TRIPS * RTT_S
    assert estimate_transfer_s(plan(window=["16 KiB"]), 1e9) == pytest.approx(1e6 * RTT_S / 16384 + login)
    assert estimate_transfer_s(plan(window=["16 KiB"], streams=[4]), 1e9) == pytest.approx(
        1e6 * RTT_S / 65536 + login
    )


def test_parallel_files_share_the_link_and_slow_storage_limits_a_transfer():
    assert estimate_transfer_s(plan(files=[4]), 1e9) == pytest.approx(4e6 / RATE)  # longer than the login
    assert estimate_transfer_s(plan(), 1e5) == pytest.approx(10 + LOGIN_ROUND_TRIPS * RTT_S)


def test_a_transfer_with_a_time_limit_takes_that_time_regardless_of_its_size():
    assert estimate_transfer_s(plan(time="7 s"), 1e9) == pytest.approx(7 + LOGIN_ROUND_TRIPS * RTT_S)


def test_the_durations_of_all_trials_are_added():
    assert estimate_transfer_s(plan(repeat=20, size=["1 MB", "3 MB"]), 1e9) == pytest.approx(
        20 * (4e6 / RATE + 2 * LOGIN_ROUND_TRIPS * RTT_S)
    )


def test_a_plan_without_a_network_has_no_network_estimate():
    assert estimate_transfer_s(plan(link=False), 1e9) is None


def test_the_plan_estimate_uses_the_network_and_reports_the_assumption():
    sweep = plan(repeat=3)
    cost = estimate(sweep.header, moving=lambda rate: estimate_transfer_s(sweep, rate))
    made_s = 1e6 / 200e6
    assert cost.time_s == pytest.approx(3 * (1e6 / RATE + LOGIN_ROUND_TRIPS * RTT_S) + made_s + 3 * 0.05)
    assert cost.assumption.startswith("transfers run at the speed of links and windows, with storages at 200 MB/s")
    local = plan(link=False)
    assert estimate(local.header, moving=lambda rate: estimate_transfer_s(local, rate)) == estimate(local.header)
