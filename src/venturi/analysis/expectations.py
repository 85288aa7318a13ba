"""Testbed of a scenario compared with the existing hosts of a run: round-trip times, rates, CPU cores and memory.

The lab creates links and limits. On existing hosts they are expectations: a report that compares the run with a publication or a
simulation is about another testbed if they differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from venturi.analysis.network import forward_links, path_rate_and_rtt
from venturi.analysis.result import FindingSummary
from venturi.analysis.run_columns import DELIVERED_BYTES
from venturi.run import Run
from venturi.units import BITS_PER_BYTE, format_bit_rate, format_bytes, format_duration

__all__ = ["expectation_findings"]

RTT_TOLERANCE = 0.25
"""Relative difference of round-trip times that needs no finding."""
RTT_TOLERANCE_S = 1e-3
"""Difference that needs no finding. Hosts that share a switch, and CPUs that wake up, differ by less."""
RATE_TOLERANCE = 0.05
"""Headers and the method of counting explain this part of a rate."""
MIN_TRIAL_BYTES = 1_000_000
"""Minimum bytes of a trial. Smaller trials can fit into buffers, so their rate does not measure the network."""
CORES_TOLERANCE = 0.5
MEMORY_TOLERANCE = 0.25

_ADVICE = (
    "The scenario describes another testbed. Compare this run with a simulation or a publication only after you correct the"
    " testbed of the scenario."
)

Environment = Mapping[str, Mapping[str, str]]


def expectation_findings(run: Run) -> list[FindingSummary]:
    """Return one finding for each property of the hosts that differs from the scenario.

    The result is empty in the lab and the simulator.
    """
    if run.backend != "hosts":
        return []
    environment = run.environment()
    found = list(_host_findings(run, environment))
    network = run.header.get("network") or {}
    if network.get("links"):
        found += _path_findings(run, network, environment)
    return found


def _finding(subject: str, evidence: str) -> FindingSummary:
    return FindingSummary("testbed-differs", subject, evidence, _ADVICE, severity="note")


def _host_findings(run: Run, environment: Environment) -> Iterable[FindingSummary]:
    for name, host in (run.header.get("hosts") or {}).items():
        lab, known = host.get("lab") or {}, environment.get(name, {})
        limits = [lab.get("cpu_limit_cores"), len(lab["cpus"]) if lab.get("cpus") else None]
        expected = min((limit for limit in limits if limit is not None), default=None)
        cores = _number(known, "cpu.usable") or _number(known, "cpu.count")
        if expected is not None and cores is not None and abs(cores - expected) > CORES_TOLERANCE:
            yield _finding(f"host {name}", f"expected {expected:g} CPU cores, found {cores:g}")
        memory, limit = _number(known, "memory_bytes"), lab.get("memory_limit_bytes")
        if memory is not None and limit and abs(memory - limit) > MEMORY_TOLERANCE * limit:
            yield _finding(f"host {name}", f"expected {format_bytes(limit)} of memory, found {format_bytes(memory)}")


def _path_findings(run: Run, network: Mapping[str, Any], environment: Environment) -> Iterable[FindingSummary]:
    scale = float(run.header.get("scale") or 1.0)
    achieved = _achieved_bit_per_s(run)
    compared: set[frozenset[str]] = set()
    for client, server in _probed_paths(run, environment):
        rate, rtt_s = path_rate_and_rtt(network, client, server)
        rate = rate / scale if rate is not None else None
        where = _link_names(run, network, client, server)
        measured_s = _number(environment[client], f"path.{server}.rtt_s")
        is_new = frozenset((client, server)) not in compared
        if is_new and rtt_s is not None and measured_s is not None and _differ(measured_s, rtt_s):
            compared.add(frozenset((client, server)))
            yield _finding(
                where,
                f"expected an RTT of {format_duration(rtt_s)} between {client} and {server}, found {format_duration(measured_s)}",
            )
        if rate is None:
            continue
        interface = environment[client].get(f"path.{server}.interface", "network interface")
        speed = _number(environment[client], f"path.{server}.interface_bit_per_s")
        if speed is not None and speed < rate * (1 - RATE_TOLERANCE):
            yield _finding(
                where, f"expected {format_bit_rate(rate)}, found {format_bit_rate(speed)} at {interface} of {client}"
            )
    for (source, destination), found in achieved.items():
        rate, _ = path_rate_and_rtt(network, source, destination)
        if rate is not None and found > rate / scale * (1 + RATE_TOLERANCE):
            yield _finding(
                _link_names(run, network, source, destination),
                f"expected at most {format_bit_rate(rate / scale)} from {source} to {destination},"
                f" found a trial with {format_bit_rate(found)}",
            )


def _differ(found_s: float, expected_s: float) -> bool:
    return abs(found_s - expected_s) > max(RTT_TOLERANCE_S, RTT_TOLERANCE * expected_s)


def _probed_paths(run: Run, environment: Environment) -> list[tuple[str, str]]:
    """Return the pairs of hosts whose path was probed: client and server."""
    hosts = run.header.get("hosts") or {}
    return [
        (client, server)
        for client in hosts
        for server in hosts
        if client != server and f"path.{server}.rtt_s" in environment.get(client, {})
    ]


def _achieved_bit_per_s(run: Run) -> dict[tuple[str, str], float]:
    """Return the highest rate of a trial by source and destination host, for trials with a single pair of hosts."""
    services = run.header.get("services") or {}
    rows = run.query(
        f"""SELECT host, source, destination, max(bytes / seconds) AS rate FROM (
                SELECT trial, any_value(host) AS host,
                       any_value(split_part(coalesce(source_via, ''), '/', 1)) AS source,
                       any_value(split_part(coalesce(destination_via, ''), '/', 1)) AS destination,
                       count(DISTINCT (host, coalesce(source_via, ''), coalesce(destination_via, ''))) AS paths,
                       sum({DELIVERED_BYTES}) AS bytes, max(end_s) - min(start_s) AS seconds
                FROM transfers WHERE trial IS NOT NULL AND outcome = 'ok' GROUP BY trial)
            WHERE paths = 1 AND bytes >= $bytes AND seconds > 0 GROUP BY ALL""",
        {"bytes": MIN_TRIAL_BYTES},
    )
    found: dict[tuple[str, str], float] = {}
    for host, source, destination, rate in zip(
        *(rows[key] for key in ("host", "source", "destination", "rate")), strict=True
    ):
        ends = [services[name].get("host") if name in services else host for name in (source, destination)]
        if None not in ends and ends[0] != ends[1]:
            pair = (str(ends[0]), str(ends[1]))
            found[pair] = max(found.get(pair, 0.0), float(rate) * BITS_PER_BYTE)
    return found


def _link_names(run: Run, network: Mapping[str, Any], source: str, destination: str) -> str:
    """Return the names of the scenario for the links of a path: ``link wan``."""
    written = ((run.header.get("scenario") or {}).get("testbed") or {}).get("link") or {}
    names = {}
    for name, link in written.items():
        ends = [str(end) for end in link.get("between") or ()]
        for first, second in (ends, ends[::-1]) if len(ends) == 2 else ():
            names[f"{first}>{second}"] = names[f"{first}>{second}@{name}"] = name
    links = forward_links(network, source, destination)
    used = list(dict.fromkeys(names.get(link, link) for link in links))
    return f"{'link' if len(used) == 1 else 'links'} {', '.join(used)}"


def _number(properties: Mapping[str, str], key: str) -> float | None:
    try:
        return float(properties[key])
    except (KeyError, ValueError):
        return None
