"""Costs of third-party copies and of jobs with many calls, compared with durations of calls in the lab."""

from __future__ import annotations

import math

import pytest

from venturi.cost import FILE, MoverCost, find_mover_default
from venturi.mover import managed
from venturi.mover.base import Mover, resolve_options
from venturi.mover.table import BUILT_IN
from venturi.testbed.services.table import SERVICES
from venturi.transfer_jobs import choice

KEY_S = SERVICES["gridftp"].costs[0].cost.auth_core_s
SRM_S = SERVICES["srm"].costs[0].cost.session_core_s
CORES = 2
"""Cores of the lab of the runs below."""


def cost_of(mover: Mover, source: str, destination: str, **options: object) -> MoverCost:
    found = find_mover_default(getattr(mover, "costs", ()), resolve_options(mover, options), source, destination)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("source", "rtt_s", "near_s", "measured_s"),
    [
        # Means of 3 to 7 calls; the round trip of the nearer server counts 0.6.
        ("gsiftp", 0.06, 0.0, 9.19),
        ("gsiftp", 0.06, 0.06, 11.78),
        ("gsiftp", 0.02, 0.02, 6.07),
        ("srm", 0.06, 0.0, 3.43),
        ("srm", 0.06, 0.06, 4.65),
        ("srm", 0.02, 0.02, 2.34),
    ],
)
def test_predicted_times_of_small_gfal_copy_third_party_copies_match_measurements(
    source: str, rtt_s: float, near_s: float, measured_s: float
) -> None:
    cost = cost_of(BUILT_IN["gfal-copy"], source, "gsiftp")
    keys_s = 2 * (cost.logins or 1.0) * KEY_S + (SRM_S if source == "srm" else 0.0)
    reported_s = cost.start_s + cost.start_core_s + cost.session_round_trips * (rtt_s + 0.6 * near_s) + keys_s
    assert reported_s == pytest.approx(measured_s, rel=0.15)


@pytest.mark.parametrize(
    ("files", "bundle", "verify", "measured_s"),
    # Small files of the study ani/managed, with 53 ms from the service to both sites: means of two jobs.
    [(30, 1, "none", 24.0), (30, 64, "none", 8.92), (30, 64, "adler32", 23.7)],
)
def test_predicted_times_of_jobs_of_small_files_match_measurements(
    files: int, bundle: int, verify: str, measured_s: float
) -> None:
    cost = cost_of(
        BUILT_IN["managed"], "gsiftp", "gsiftp", tool="globus-url-copy", bundle=bundle, verify=verify, fast=True
    )
    rtt_s, concurrency = 1.6 * 0.053, 4
    calls = math.ceil(files / bundle)
    side_by_side = min(concurrency, calls)
    rounds = math.ceil(calls / side_by_side)
    session_s = rounds * (cost.session_s + cost.session_round_trips * rtt_s)
    worked_s = calls * (cost.session_core_s + 2 * KEY_S) / min(side_by_side, CORES)
    moved_s = math.ceil(files / side_by_side) * cost.file_round_trips * rtt_s
    reported_s = cost.start_s + cost.start_core_s + session_s + worked_s + moved_s
    if verify != "none":
        work_s = 2 * files * (cost.check_core_s + KEY_S) / CORES
        each_s = cost.check_s + cost.check_round_trips * rtt_s + cost.check_core_s + KEY_S
        reported_s += max(work_s, math.ceil(2 * files / cost.checks) * each_s)
    assert reported_s == pytest.approx(measured_s, rel=0.2)


@pytest.mark.parametrize(
    ("tool", "source", "destination", "options"),
    [
        ("globus-url-copy", "gsiftp", "gsiftp", {"fast": True}),
        ("globus-url-copy", "ftp", FILE, {}),
        ("xrdcp", "root", FILE, {}),
        ("curl", FILE, "http", {}),
        ("gfal-copy", "gsiftp", "gsiftp", {}),
    ],
)
def test_a_call_of_a_job_has_the_costs_of_its_tool(
    tool: str, source: str, destination: str, options: dict[str, object]
) -> None:
    alone = cost_of(BUILT_IN[tool], source, destination, **options)
    called = cost_of(BUILT_IN["managed"], source, destination, tool=tool, verify="none", **options)
    assert called.session_s >= alone.start_s and called.session_core_s >= alone.start_core_s
    for name in ("session_round_trips", "file_round_trips", "file_s", "file_core_s", "keeps_connection", "logins"):
        assert getattr(called, name) == getattr(alone, name), name
    assert called.start_core_s > 0.3 and called.check_s is None


def test_the_default_tool_of_a_job_has_the_costs_of_that_tool() -> None:
    # ``choice._BY_PROTOCOL`` has the default tools of `venturi transfer`, and the mover must have the same.
    usual = {scheme: tool for tool, schemes in managed._USUAL.items() for scheme in schemes}
    assert usual == {scheme: tool for scheme, tool in choice._BY_PROTOCOL.items() if scheme != "file"}
    own = cost_of(BUILT_IN["managed"], "gsiftp", "gsiftp", verify="none")
    named = cost_of(BUILT_IN["managed"], "gsiftp", "gsiftp", verify="none", tool="globus-url-copy")
    assert own == named
