"""Limits of a run: a plan that exceeds them is rejected, and a time limit stops a run in an orderly way."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

from venturi.errors import ScenarioError
from venturi.scenario import scenario_from
from venturi.workload import expand
from venturi.workload.limits import max_concurrent


def scenario(limits=None, workload=None, **testbed):
    return scenario_from(
        {
            "venturi": 1,
            "name": "x",
            **({"limits": limits} if limits is not None else {}),
            "testbed": {"host": {"a": {}}, "storage": {"s": {"host": "a", "path": "d"}}, **testbed},
            "workload": workload
            or {"kind": "sweep", "mover": "read", "source": "s", "repeat": 2, "factors": {"size": ["1 MB"], "files": [1, 4]}},
        }
    )  # fmt: skip


def test_limits_do_not_change_a_plan_within_them():
    limited, free = (
        expand(scenario(limits)) for limits in ({"bytes": "10 MB", "concurrent": 4, "time": "2 h"}, None)
    )
    assert list(limited.lines) == list(free.lines)
    assert limited.header.scenario["limits"] == {"bytes": "10 MB", "time": "7200 s", "concurrent": 4}
    assert "limits" not in free.header.scenario
    assert scenario_from(limited.header.scenario).limits == scenario(limited.header.scenario["limits"]).limits


def test_a_plan_above_a_limit_is_rejected_with_both_numbers():
    with pytest.raises(ScenarioError) as caught:
        expand(scenario({"bytes": "9 MB", "concurrent": 3}))
    assert "limits.bytes: expected at most 9 MB, found a plan of 10 MB" in str(caught.value)
    assert "limits.concurrent: expected at most 3 transfers at a time, found up to 4" in str(caught.value)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"bytes": "0 B"}, "limits.bytes: expected 1 or more"),
        ({"bytes": 5}, 'limits.bytes: expected a size such as "100 MB", found 5'),
        ({"concurrent": 0}, "limits.concurrent: expected 1 or more, found 0"),
        ({"time": "0 s"}, "limits.time: expected"),
        ({"rate": "0 Gb/s"}, "limits.rate: expected"),
        ({"size": "1 GB"}, "limits.size: expected one of the keys bytes, time, concurrent, rate"),
    ],
)
def test_a_limit_is_a_positive_value(limits, message):
    with pytest.raises(ScenarioError) as caught:
        scenario(limits)
    assert message in str(caught.value)


LINKS = {
    "host": {"a": {"site": "a"}, "b": {"site": "b"}},
    "storage": {"s": {"host": "a", "path": "d"}, "t": {"host": "b", "path": "d"}},
    "link": {"l": {"between": ["a", "b"], "rate": "1 Gb/s"}},
}
PEERS = {
    "kind": "peers", "mover": "venturi", "sizes": ["1 MB"], "duration": "10 s",
    "site": {"a": {"bandwidth": "1 Gb/s"}, "b": {"bandwidth": "1 Gb/s"}},
}  # fmt: skip


def test_a_byte_limit_rejects_transfers_that_repeat_until_a_time():
    with pytest.raises(ScenarioError, match="found transfers that repeat until a time"):
        expand(scenario({"bytes": "1 TB"}, PEERS, **LINKS))


def test_actors_run_at_the_same_time_except_in_a_sweep():
    plan = expand(scenario(None, PEERS, **LINKS))
    single = max_concurrent(plan, together=False)
    assert max_concurrent(plan, together=True) == 2 * single > 0
    with pytest.raises(
        ScenarioError, match=r"limits.concurrent: expected at most 1 transfers at a time, found up to"
    ):
        expand(scenario({"concurrent": 1}, PEERS, **LINKS))


def test_a_load_generator_counts_with_the_number_of_its_clients():
    workload = {
        "kind": "sweep", "mover": "http-load", "source": "s", "factors": {"size": ["1 kB"], "files": [2]},
        "options": {"clients": 50},
    }  # fmt: skip
    plan = expand(scenario(None, workload, service={"w": {"kind": "nginx", "host": "a", "storage": ["s"]}}))
    assert max_concurrent(plan, together=False) == 100


def test_arrivals_at_a_rate_have_unlimited_concurrency():
    workload = {
        "kind": "inject", "mover": "venturi", "form": "arrivals",
        "flow": {"f": {"source": "a", "destination": "b", "rate": "10 Mb/s", "end": "10 s", "size": "1 MB"}},
    }  # fmt: skip
    plan = expand(scenario(None, workload, **LINKS))
    assert math.isinf(max_concurrent(plan, together=True))


STOP = """\
import sys, time
from venturi.cli.time_limit import TimeLimit, stop_after
limit = TimeLimit(float(sys.argv[1]) or None)
try:
    with stop_after(limit):
        time.sleep(float(sys.argv[2]))
    print("complete", limit.is_over)
except KeyboardInterrupt:
    print("stopped", limit.is_over)
"""


@pytest.mark.parametrize(
    ("limit_s", "work_s", "outcome"),
    [("0.2", "30", "stopped True"), ("30", "0.1", "complete False"), ("0", "0.1", "complete False")],
)
def test_the_time_limit_stops_the_process_like_ctrl_c(limit_s, work_s, outcome):
    done = subprocess.run(
        [sys.executable, "-c", STOP, limit_s, work_s], capture_output=True, text=True, timeout=25, check=True
    )
    assert done.stdout.strip() == outcome
