"""Links of a route, from the network in the header of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["forward_links"]

MAX_HOPS = 32


def forward_links(network: Mapping[str, Any], source: str, destination: str) -> tuple[str, ...]:
    """Return the links of the shortest route between two hosts; empty if no route ends there (translated addresses)."""
    starts, targets = (
        [name for name, interface in network["interfaces"].items() if interface["host"] == host]
        for host in (source, destination)
    )
    routes = [route for start in starts for target in targets if (route := tuple(_hops(network, start, target)))]
    complete = [route for route in routes if network["links"][route[-1]]["to"] in targets]
    return min(complete, key=len, default=())


def _hops(network: Mapping[str, Any], start: str, target: str) -> Iterator[str]:
    links, routes = network["links"], network.get("routes") or {}
    name = next((key for key, link in links.items() if link["from"] == start), None)
    for _ in range(MAX_HOPS):
        if name is None:
            return
        yield name
        here = links[name]["to"]
        table = routes.get(here)
        if here == target or table is None:
            return
        name = table.get(target, table.get("*"))
