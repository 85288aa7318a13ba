"""The first line of every plan: what the scenario and its testbed say, and what a workload adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from venturi.plan import Call, Dataset, Header, Measure, Totals
from venturi.scenario.cost import resolve_costs
from venturi.scenario.tools import movers_of

if TYPE_CHECKING:
    from venturi.plan import Service
    from venturi.scenario import Scenario
    from venturi.testbed.plan import ResolvedTestbed

__all__ = ["plan_header"]


def plan_header(
    scenario: Scenario,
    parts: ResolvedTestbed,
    *,
    datasets: Mapping[str, Dataset],
    calls: Mapping[str, Call],
    totals: Totals,
    services: Mapping[str, Service] | None = None,
    pools: Mapping[str, int] | None = None,
    draws: Mapping[str, Mapping[str, Any]] | None = None,
) -> Header:
    """Return the header of a plan.

    Parameters
    ----------
    scenario, parts
        What was written, and its testbed resolved.
    datasets, calls, totals, pools, draws
        As in the plan.
    services
        Those that are needed, if not all of the testbed.
    """
    return Header(
        name=scenario.name,
        seed=scenario.seed,
        scale=scenario.scale,
        scenario=scenario.document(),
        hosts=parts.hosts,
        places=parts.places,
        services=parts.services if services is None else services,
        network=parts.network,
        datasets=datasets,
        calls=calls,
        measure=Measure(scenario.measure.interval, scenario.measure.counters, scenario.measure.transfers),
        pools=pools or {},
        draws=draws or {},
        totals=totals,
        cost=resolve_costs(scenario.testbed, movers_of(scenario)[0]),
    )
