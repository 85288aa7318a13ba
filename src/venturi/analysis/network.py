"""The emulated testbed of a run, from its plan: hosts, services, links, and the ways that the bytes took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from venturi.analysis.layout import layout
from venturi.analysis.result import About
from venturi.analysis.result_lab import Link, NetworkPath, ServiceFacts, Testbed
from venturi.run import Run

__all__ = ["ends", "testbed", "way_rate_and_rtt"]

LAB = "network"
"""The host under whose name the network of a lab records itself."""
_PACKAGES = "lab.packages."
MOST_HOPS = 32

Counters = Mapping[str, Mapping[str, float]]


def testbed(run: Run, about: About, counters: Counters) -> Testbed | None:
    """Return the emulated testbed, or None if the plan has none.

    Parameters
    ----------
    counters
        Of each link (:func:`venturi.analysis.links.link_counters`).
    """
    network = run.header.get("network")
    if network is None:
        return None
    pairs = ends(run)
    paths = tuple(_path(network, *pair, count) for pair, count in pairs.items() if pair[0] != pair[1])
    rated = any(path.rate_bit_per_s for path in paths) or _throttled(run)
    return Testbed(
        scale=about.scale,
        rates_scale=about.scale if rated else 1.0,
        hosts=tuple(run.header.get("hosts") or {}),
        links=tuple(_link(name, link, counters.get(name, {})) for name, link in network["links"].items()),
        paths=paths,
        local_transfers=sum(count for pair, count in pairs.items() if pair[0] == pair[1]),
        local_hosts=tuple(pair[0] for pair in pairs if pair[0] == pair[1]),
        services=tuple(
            ServiceFacts(name, str(service["kind"]), str(service["host"]), service.get("options") or {})
            for name, service in (run.header.get("services") or {}).items()
        ),
        packages={
            key.removeprefix(_PACKAGES): value
            for key, value in about.environment.get(LAB, {}).items()
            if key.startswith(_PACKAGES)
        },
        changes=tuple(network.get("changes") or ()),
        layout=layout(run.header),
    )


def ends(run: Run) -> dict[tuple[str, str], int]:
    """Return how many transfers went from which host to which: a service's, else that of the actor."""
    services = run.header.get("services") or {}
    rows = run.query(
        """SELECT host, split_part(coalesce(source_via, ''), '/', 1) AS source,
                  split_part(coalesce(destination_via, ''), '/', 1) AS destination, sum(n)::BIGINT AS n
           FROM (SELECT host, source_via, destination_via, 1 AS n FROM transfers
                 UNION ALL SELECT host, source_via, destination_via, transfers FROM routes)
           GROUP BY ALL ORDER BY ALL"""
    )
    found: dict[tuple[str, str], int] = {}
    for index, host in enumerate(rows["host"]):
        source, destination = (
            str(services[rows[side][index]]["host"]) if rows[side][index] in services else str(host)
            for side in ("source", "destination")
        )
        found[source, destination] = found.get((source, destination), 0) + int(rows["n"][index])
    return found


def way_rate_and_rtt(run: Run, source: str, destination: str) -> tuple[float | None, float | None]:
    """Return the rate in bit/s of the slowest link from one host to another, and the delays there and back in seconds.

    None of what nothing tells: there is no emulated network, no way, or no link with a rate.
    """
    network = run.header.get("network")
    if network is None or source == destination:
        return None, None
    path = _path(network, source, destination, 0)
    return path.rate_bit_per_s, path.rtt_s


def _throttled(run: Run) -> bool:
    storages = ((place.get("storage") or {}) for place in (run.header.get("places") or {}).values())
    return any(s.get("read_bytes_per_s") or s.get("write_bytes_per_s") for s in storages)


def _link(name: str, link: Mapping[str, Any], counted: Mapping[str, float]) -> Link:
    return Link(
        name=name,
        begin=str(link["from"]),
        end=str(link["to"]),
        rate_bit_per_s=link.get("rate_bit_per_s"),
        delay_s=float(link.get("delay_s") or 0.0),
        jitter_s=float(link.get("jitter_s") or 0.0),
        queue_bytes=link.get("queue_bytes"),
        loss=_loss(link.get("loss")),
        reorder_probability=float(link.get("reorder_probability") or 0.0),
        overhead_bytes=int(link.get("overhead_bytes") or 0),
        bytes=counted.get("bytes"),
        packets=counted.get("packets"),
        queue_drops=counted.get("queue_drops"),
        loss_drops=counted.get("loss_drops"),
        queue_high_bytes=counted.get("queue_high_bytes"),
    )


def _loss(loss: Mapping[str, Any] | None) -> str | None:
    if not loss:
        return None
    if loss["kind"] == "independent":
        return f"{loss['probability']:g}"
    return f"bursty: enter {loss['enter']:g}, leave {loss['leave']:g}, then {loss['probability']:g}"


def _path(network: Mapping[str, Any], source: str, destination: str, transfers: int) -> NetworkPath:
    there = _way(network, source, destination)
    back = _way(network, destination, source)
    links = network["links"]
    rates = [links[name]["rate_bit_per_s"] for name in there if links[name].get("rate_bit_per_s")]
    rtt_s = sum(float(links[name].get("delay_s") or 0.0) for name in (*there, *back)) if there and back else None
    return NetworkPath(source, destination, transfers, there, min(rates, default=None), rtt_s)


def _way(network: Mapping[str, Any], source: str, destination: str) -> tuple[str, ...]:
    """Return the links from a host to another by the routes; empty if they lead elsewhere (translated addresses)."""
    begins, targets = (
        [name for name, interface in network["interfaces"].items() if interface["host"] == host]
        for host in (source, destination)
    )
    ways = [way for begin in begins for target in targets if (way := tuple(_hops(network, begin, target)))]
    complete = [way for way in ways if network["links"][way[-1]]["to"] in targets]
    return min(complete, key=len, default=())


def _hops(network: Mapping[str, Any], begin: str, target: str) -> Iterator[str]:
    links, routes = network["links"], network.get("routes") or {}
    name = next((key for key, link in links.items() if link["from"] == begin), None)
    for _ in range(MOST_HOPS):
        if name is None:
            return
        yield name
        here = links[name]["to"]
        table = routes.get(here)
        if here == target or table is None:
            return
        name = table.get(target, table.get("*"))
