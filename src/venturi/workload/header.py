"""Header of a plan, from the scenario, its testbed and the workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from venturi.mover.table import BUILT_IN
from venturi.plan import Call, Dataset, Header, Measure, Totals
from venturi.scenario.cost import resolve_costs
from venturi.scenario.tools import resolve_movers

if TYPE_CHECKING:
    from venturi.plan import PlanService
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed

__all__ = ["LOCAL_COUNTERS", "plan_header"]

LOCAL_COUNTERS = ("cpu", "disk", "memory", "nic", "pressure", "process")
"""Families of counters that every run samples by default."""


def plan_header(
    scenario: Scenario,
    parts: ResolvedTestbed,
    *,
    datasets: Mapping[str, Dataset],
    calls: Mapping[str, Call],
    totals: Totals,
    services: Mapping[str, PlanService] | None = None,
    pools: Mapping[str, int] | None = None,
    draws: Mapping[str, Mapping[str, Any]] | None = None,
) -> Header:
    """Return the header of a plan.

    Parameters
    ----------
    scenario, parts
        The scenario and its resolved testbed.
    datasets, calls, totals, pools, draws
        Tables of the plan.
    services
        Required services. Default: all services of the testbed.
    """
    services = parts.services if services is None else services
    chosen = scenario.measure.counters
    counters = _default_counters(parts, services, calls) if chosen is None else chosen
    return Header(
        name=scenario.name,
        seed=scenario.seed,
        scale=scenario.scale,
        scenario=scenario.document(),
        hosts=parts.hosts,
        storages=parts.storages,
        services=services,
        network=parts.network,
        datasets=datasets,
        calls=calls,
        measure=Measure(scenario.measure.interval, counters, scenario.measure.transfers),
        pools=pools or {},
        draws=draws or {},
        totals=totals,
        cost=resolve_costs(scenario.testbed, resolve_movers(scenario)[0]),
    )


def _default_counters(
    parts: ResolvedTestbed, services: Mapping[str, PlanService], calls: Mapping[str, Call]
) -> tuple[str, ...]:
    """Return all families; without TCP if only built-in movers on one host copy local files: then there is no connection."""
    local = not services and len(parts.hosts) == 1 and all(call.mover in BUILT_IN for call in calls.values())
    return LOCAL_COUNTERS if local else (*LOCAL_COUNTERS, "tcp")
