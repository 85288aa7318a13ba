"""Emulated testbed of a run, from its plan: hosts, services, links, and the paths of the bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from venturi.analysis.result import About
from venturi.analysis.result_lab import LinkResult, NetworkPath, ServiceProperties, TestbedResult
from venturi.analysis.testbed_diagram import layout
from venturi.run import Run
from venturi.run.route_links import forward_links

__all__ = ["endpoint_pairs", "forward_links", "path_rate_and_rtt", "route_rate_and_rtt", "testbed"]

LAB = "network"
"""Name of the host that records the network of a lab."""
_PACKAGES = "lab.packages."

Counters = Mapping[str, Mapping[str, float]]


def testbed(run: Run, about: About, counters: Counters) -> TestbedResult | None:
    """Return the emulated or simulated testbed. None without a network in the plan, and on existing hosts.

    Parameters
    ----------
    counters
        Counters of each link (:func:`venturi.analysis.links.link_counters`).
    """
    network = run.header.get("network")
    # On existing hosts, the links of the plan are expectations.
    if network is None or about.backend == "hosts":
        return None
    pairs = endpoint_pairs(run)
    paths = tuple(_path(network, *pair, count) for pair, count in pairs.items() if pair[0] != pair[1])
    rated = any(path.rate_bit_per_s for path in paths) or _throttled(run)
    return TestbedResult(
        scale=about.scale,
        rates_scale=about.scale if rated else 1.0,
        hosts=tuple(run.header.get("hosts") or {}),
        links=tuple(_link(name, link, counters.get(name, {})) for name, link in network["links"].items()),
        paths=paths,
        local_transfers=sum(count for pair, count in pairs.items() if pair[0] == pair[1]),
        local_hosts=tuple(pair[0] for pair in pairs if pair[0] == pair[1]),
        services=tuple(
            ServiceProperties(name, str(service["kind"]), str(service["host"]), service.get("options") or {})
            for name, service in (run.header.get("services") or {}).items()
        ),
        packages={
            key.removeprefix(_PACKAGES): value
            for key, value in about.environment.get(LAB, {}).items()
            if key.startswith(_PACKAGES)
        },
        changes=tuple(network.get("changes") or ()),
        layout=layout(run.header),
        simulated=about.backend == "sim",
    )


def endpoint_pairs(run: Run) -> dict[tuple[str, str], int]:
    """Return the number of transfers by source and destination host.

    A service determines the host of its endpoint. Otherwise it is the host of the actor.
    """
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


def route_rate_and_rtt(run: Run, source: str, destination: str) -> tuple[float | None, float | None]:
    """Return the rate in bit/s of the slowest link from one host to another, and the round-trip delay in seconds.

    A value is None if the run has no emulated network, no path between the hosts, or no link with a rate. On existing
    hosts both are None, because the links of a plan are expectations there.
    """
    network = run.header.get("network")
    if network is None or source == destination or run.backend == "hosts":
        return None, None
    return path_rate_and_rtt(network, source, destination)


def path_rate_and_rtt(network: Mapping[str, Any], source: str, destination: str) -> tuple[float | None, float | None]:
    """Return the rate in bit/s of the slowest link of a plan's network from one host to another, and the RTT in seconds."""
    path = _path(network, source, destination, 0)
    return path.rate_bit_per_s, path.rtt_s


def _throttled(run: Run) -> bool:
    storages = ((storage.get("spec") or {}) for storage in (run.header.get("storages") or {}).values())
    return any(s.get("read_bytes_per_s") or s.get("write_bytes_per_s") for s in storages)


def _link(name: str, link: Mapping[str, Any], counted: Mapping[str, float]) -> LinkResult:
    return LinkResult(
        name=name,
        start_node=str(link["from"]),
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
    forward = forward_links(network, source, destination)
    back = forward_links(network, destination, source)
    links = network["links"]
    rates = [links[name]["rate_bit_per_s"] for name in forward if links[name].get("rate_bit_per_s")]
    rtt_s = sum(float(links[name].get("delay_s") or 0.0) for name in (*forward, *back)) if forward and back else None
    return NetworkPath(source, destination, transfers, forward, min(rates, default=None), rtt_s)
