"""What everything in a plan costs: the defaults of its movers and services, and above them what its scenario says."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from venturi.cost.defaults import FILE, default_of_mover, default_of_service
from venturi.cost.parameters import HostCost, MoverCost, MoverRule, ServiceCost, StorageCost, over
from venturi.mover.base import Mover
from venturi.mover.table import movers
from venturi.plan import Call, Header
from venturi.testbed.services.table import SERVICES

__all__ = ["costs_of"]


def costs_of(header: Header, known: Mapping[str, Mover] | None = None) -> dict[str, Any]:
    """Return the costs of a plan as JSON, as the engine takes them: ``calls``, ``services``, ``places``, ``hosts``.

    What nobody has measured or said is not in it. Of a call there is an entry for each pair of ends that something is known of.

    Parameters
    ----------
    header
        Of the plan.
    known
        Movers by name; those of the table if not given.

    Examples
    --------
    >>> from venturi.scenario import scenario_from
    >>> from venturi.workload import expand
    >>> document = {"venturi": 1, "name": "tiny", "testbed": {"host": {"here": {}},
    ...     "storage": {"disk": {"host": "here", "path": "data"}}, "cost": {"storage": {"disk": {"open": "1 ms"}}}},
    ...     "workload": {"kind": "sweep", "mover": "rclone", "source": "disk", "destination": "disk",
    ...     "factors": {"size": ["1 kB"]}}}
    >>> costs_of(expand(scenario_from(document)).header)
    {'calls': {}, 'services': {}, 'places': {'disk': {'open_s': 0.001}}, 'hosts': {}}
    """
    said = header.cost
    tools = movers() if known is None else known
    rules = said.movers if said else ()
    doors = tuple(dict.fromkeys(door for service in header.services.values() for door in service.doors))
    calls = {
        name: found
        for name, call in header.calls.items()
        if (found := _ends_of(call, tools.get(call.mover), doors, rules))
    }
    services: dict[str, ServiceCost] = {}
    for name, service in header.services.items():
        kind = SERVICES.get(service.kind)
        cost = default_of_service(getattr(kind, "costs", ()), service.options)
        services[name] = over(cost, said.services[name]) if said and name in said.services else cost
    return {
        "calls": calls,
        "services": _given(services),
        "places": _given(said.places if said else {}),
        "hosts": _given(said.hosts if said else {}),
    }


def _ends_of(
    call: Call, mover: Mover | None, doors: tuple[str, ...], rules: Iterable[MoverRule]
) -> list[dict[str, Any]]:
    """Return what a call costs between each pair of ends that something is known of."""
    measured = getattr(mover, "costs", ())
    # A mover of the scenario's own is not known here: it may use any door that there is.
    ends = (*(mover.speaks if mover else doors), FILE)
    found = []
    for source, destination in itertools.product(ends, ends):
        cost = default_of_mover(measured, call.options, source, destination)
        for rule in rules:
            if rule.fits(call.mover, call.options, source, destination):
                cost = over(cost or MoverCost(), rule.cost)
        if cost is not None:
            found.append({"source": source, "destination": destination, "cost": _parameters(cost)})
    return found


def _given(
    parameters: Mapping[str, ServiceCost] | Mapping[str, StorageCost] | Mapping[str, HostCost],
) -> dict[str, dict[str, Any]]:
    return {name: given for name, part in parameters.items() if (given := _parameters(part))}


def _parameters(part: MoverCost | ServiceCost | StorageCost | HostCost) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(part).items() if value is not None}
