"""Diagram of an emulated testbed from the plan of its run: hosts with their services, routers, and links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from venturi.analysis.result_lab import LinkBundle, Node, TestbedDiagram

__all__ = ["layout"]


def layout(header: Mapping[str, Any]) -> TestbedDiagram:
    """Return the diagram of the network in the header of a plan, which must have one.

    Each link is paired with a link of the opposite direction. Equal pairs between the same two nodes form one bundle.
    """
    network = header["network"]
    hosts = header.get("hosts") or {}
    # A link ends at a router, or at an interface of a host.
    owner = {name: str(interface["host"]) for name, interface in network["interfaces"].items()}
    routers = tuple(network.get("routers") or ())
    return TestbedDiagram(
        nodes=(
            *(Node(name, is_host=False) for name in routers),
            *(_host(name, hosts.get(name) or {}, header) for name in dict.fromkeys((*hosts, *owner.values()))),
        ),
        link_bundles=_link_bundles(network["links"], owner),
    )


def _host(name: str, host: Mapping[str, Any], header: Mapping[str, Any]) -> Node:
    services = header.get("services") or {}
    storages = header.get("storages") or {}
    kinds = [str(service["kind"]) for service in services.values() if service["host"] == name]
    return Node(
        name,
        is_host=True,
        site=(host.get("lab") or {}).get("site"),
        services=tuple((kind, kinds.count(kind)) for kind in dict.fromkeys(kinds)),
        storages=tuple(storage for storage, storage_spec in storages.items() if storage_spec["host"] == name),
    )


def _link_bundles(links: Mapping[str, Mapping[str, Any]], owner: Mapping[str, str]) -> tuple[LinkBundle, ...]:
    waiting: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    found: dict[LinkBundle, int] = {}
    for link in links.values():
        start_node, end = str(link["from"]), str(link["to"])
        other = waiting.get((end, start_node))
        if not other:
            waiting.setdefault((start_node, end), []).append(link)
            continue
        there = other.pop(0)
        bundle = LinkBundle(
            start_node=owner.get(end, end),
            end=owner.get(start_node, start_node),
            rate_bit_per_s=there.get("rate_bit_per_s"),
            back_rate_bit_per_s=link.get("rate_bit_per_s"),
            rtt_s=float(there.get("delay_s") or 0.0) + float(link.get("delay_s") or 0.0),
        )
        found[bundle] = found.get(bundle, 0) + 1
    return tuple(replace(bundle, count=count) for bundle, count in found.items())
