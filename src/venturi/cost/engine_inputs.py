"""Costs of a plan for the engine: defaults of movers and services, overridden by the scenario."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from venturi.cost.defaults import FILE, find_mover_default, find_service_default
from venturi.cost.parameters import HostCost, MoverCost, MoverRule, ServiceCost, StorageCost, merge_cost
from venturi.mover.base import Mover
from venturi.mover.table import movers
from venturi.plan import Call, Header
from venturi.testbed.services.table import SERVICES

__all__ = [
    "ASSUMED_LOOPBACK_BYTES_PER_S",
    "ASSUMED_STORAGE_READ_BYTES_PER_S",
    "ASSUMED_STORAGE_WRITE_BYTES_PER_S",
    "resolve_plan_costs",
]

ASSUMED_STORAGE_READ_BYTES_PER_S, ASSUMED_STORAGE_WRITE_BYTES_PER_S = 2e9, 1e9
"""Rates of storages without a rate in the plan and the costs. They equal the defaults of the engine (``docs/reference/sim.md``)."""

ASSUMED_LOOPBACK_BYTES_PER_S = 2e9
"""Rate of a loopback interface, which also equals the default of the engine."""


def resolve_plan_costs(header: Header, known: Mapping[str, Mover] | None = None) -> dict[str, Any]:
    """Return the costs of a plan as JSON for the engine: ``calls``, ``services``, ``storages``, ``hosts``.

    Unknown parameters are absent. A call has an entry for each pair of endpoints with known costs.

    Parameters
    ----------
    header
        Header of the plan.
    known
        Movers by name. Default: the table of movers.

    Examples
    --------
    >>> from venturi.scenario import scenario_from
    >>> from venturi.workload import expand
    >>> document = {"venturi": 1, "name": "tiny", "testbed": {"host": {"here": {}},
    ...     "storage": {"disk": {"host": "here", "path": "data"}}, "cost": {"storage": {"disk": {"open": "1 ms"}}}},
    ...     "workload": {"kind": "sweep", "mover": "rclone", "source": "disk", "destination": "disk",
    ...     "factors": {"size": ["1 kB"]}}}
    >>> resolve_plan_costs(expand(scenario_from(document)).header)["storages"]
    {'disk': {'open_s': 0.001}}
    """
    scenario_cost = header.cost
    tools = movers() if known is None else known
    rules = scenario_cost.movers if scenario_cost else ()
    service_ports = tuple(
        dict.fromkeys(service_port for service in header.services.values() for service_port in service.service_ports)
    )
    calls = {
        name: found
        for name, call in header.calls.items()
        if (found := _endpoint_costs(call, tools.get(call.mover), service_ports, rules))
    }
    services: dict[str, ServiceCost] = {}
    for name, service in header.services.items():
        kind = SERVICES.get(service.kind)
        cost = find_service_default(getattr(kind, "costs", ()), service.options)
        services[name] = (
            merge_cost(cost, scenario_cost.services[name])
            if scenario_cost and name in scenario_cost.services
            else cost
        )
    return {
        "calls": calls,
        "services": _set_values(services),
        "storages": _set_values(scenario_cost.storages if scenario_cost else {}),
        "hosts": _set_values(scenario_cost.hosts if scenario_cost else {}),
    }


def _endpoint_costs(
    call: Call, mover: Mover | None, service_ports: tuple[str, ...], rules: Iterable[MoverRule]
) -> list[dict[str, Any]]:
    """Return the costs of a call for each pair of endpoints with known costs."""
    measured = getattr(mover, "costs", ())
    # User-defined movers are unknown here and can use any service port.
    endpoints = (*(mover.protocols if mover else service_ports), FILE)
    found = []
    for source, destination in itertools.product(endpoints, endpoints):
        cost = find_mover_default(measured, call.options, source, destination)
        for rule in rules:
            if rule.fits(call.mover, call.options, source, destination):
                cost = merge_cost(cost or MoverCost(), rule.cost)
        if cost is not None:
            found.append({"source": source, "destination": destination, "cost": _parameters(cost)})
    return found


def _set_values(
    parameters: Mapping[str, ServiceCost] | Mapping[str, StorageCost] | Mapping[str, HostCost],
) -> dict[str, dict[str, Any]]:
    return {name: values for name, part in parameters.items() if (values := _parameters(part))}


def _parameters(part: MoverCost | ServiceCost | StorageCost | HostCost) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(part).items() if value is not None}
