"""The layout of an emulated testbed, from the plan of its run: hosts with what they serve, routers, and the cables between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from venturi.analysis.result_lab import Cable, Layout, Node

__all__ = ["layout"]


def layout(header: Mapping[str, Any]) -> Layout:
    """Return the layout of the network in the header of a plan, which must have one.

    Links of one direction make a cable with those of the other; cables between the same two nodes stand together if they are alike.
    """
    network = header["network"]
    hosts = header.get("hosts") or {}
    # A link ends at a router, or at an interface of a host.
    owner = {name: str(interface["host"]) for name, interface in network["interfaces"].items()}
    routers = tuple(network.get("routers") or ())
    return Layout(
        nodes=(
            *(Node(name, is_host=False) for name in routers),
            *(_host(name, hosts.get(name) or {}, header) for name in dict.fromkeys((*hosts, *owner.values()))),
        ),
        cables=_cables(network["links"], owner),
    )


def _host(name: str, host: Mapping[str, Any], header: Mapping[str, Any]) -> Node:
    services = header.get("services") or {}
    places = header.get("places") or {}
    kinds = [str(service["kind"]) for service in services.values() if service["host"] == name]
    return Node(
        name,
        is_host=True,
        site=(host.get("lab") or {}).get("site"),
        services=tuple((kind, kinds.count(kind)) for kind in dict.fromkeys(kinds)),
        storages=tuple(place for place, told in places.items() if told["host"] == name),
    )


def _cables(links: Mapping[str, Mapping[str, Any]], owner: Mapping[str, str]) -> tuple[Cable, ...]:
    waiting: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    found: dict[Cable, int] = {}
    for link in links.values():
        begin, end = str(link["from"]), str(link["to"])
        other = waiting.get((end, begin))
        if not other:
            waiting.setdefault((begin, end), []).append(link)
            continue
        there = other.pop(0)
        cable = Cable(
            begin=owner.get(end, end),
            end=owner.get(begin, begin),
            rate_bit_per_s=there.get("rate_bit_per_s"),
            back_rate_bit_per_s=link.get("rate_bit_per_s"),
            rtt_s=float(there.get("delay_s") or 0.0) + float(link.get("delay_s") or 0.0),
        )
        found[cable] = found.get(cable, 0) + 1
    return tuple(replace(cable, count=count) for cable, count in found.items())
