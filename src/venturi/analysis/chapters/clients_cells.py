"""The set-ups of a run of closed-loop clients, measured: one cell a point, its hosts, what its servers and links did meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from venturi.analysis.chapter import Scalar
from venturi.errors import UnitError
from venturi.run import Run
from venturi.units import BITS_PER_BYTE, parse_duration

__all__ = ["Cell", "HostShare", "ServerCount", "cells_of", "server_counts"]


@dataclass(frozen=True, slots=True)
class HostShare:
    """What the clients of one host did in the stretch: means over repetitions.

    ``wire_bytes``: what the network delivered to the host meanwhile.
    """

    name: str
    fetches: float
    volume_bytes: float
    fetch_s: float | None
    rate_bit_per_s: float
    wire_bytes: float | None


@dataclass(frozen=True, slots=True)
class Cell:
    """One point: means over repetitions; ``None`` where hosts were never at work together.

    ``process_ratio``: of the rate that the scenario lets the processes send; ``link_ratio``: of the rate of the busiest link.
    """

    point: int
    factors: Mapping[str, Scalar]
    repetitions: int
    rate_bit_per_s: float | None
    window_s: float | None
    fetch_s: float | None
    errors: int
    process_ratio: float | None
    link_ratio: float | None
    link: str | None
    hosts: tuple[HostShare, ...]

    @property
    def total(self) -> tuple[HostShare, ...]:
        """The sums over hosts, as of a host named ``all``; nothing where there is no host."""
        if not self.hosts:
            return ()
        wires = [host.wire_bytes for host in self.hosts]
        known = [size for size in wires if size is not None]
        return (
            HostShare(
                "all",
                sum(host.fetches for host in self.hosts),
                sum(host.volume_bytes for host in self.hosts),
                self.fetch_s,
                sum(host.rate_bit_per_s for host in self.hosts),
                sum(known) if len(known) == len(wires) else None,
            ),
        )


@dataclass(frozen=True, slots=True)
class ServerCount:
    """Requests in a server's log, over the whole run, and what clients hold of the same service."""

    service: str
    requests: int
    hits: int
    sent_bytes: int
    client_bytes: int | None


# A process that is many clients tells the bytes of its own stretch; of all others the fetches themselves do.
_SHARES = """
    WITH fetched AS (
        SELECT point, repetition, host, slot, outcome, start_s, end_s, duration_s, asked_bytes::DOUBLE AS bytes,
               (tool->>'steady_start_s')::DOUBLE AS steady_start_s, (tool->>'steady_end_s')::DOUBLE AS steady_end_s,
               (tool->>'steady_bytes')::DOUBLE AS steady_bytes, (tool->>'steady_fetches')::DOUBLE AS steady_fetches,
               (tool->>'latency_mean_s')::DOUBLE AS latency_s, tool->>'steady_bytes' IS NOT NULL AS many
        FROM transfers WHERE point IS NOT NULL AND start_s IS NOT NULL AND end_s > start_s),
    hosts AS (SELECT point, repetition, host, min(start_s) AS first_s FROM fetched GROUP BY ALL),
    slots AS (SELECT point, repetition, host, slot, max(if(many, start_s + steady_end_s, end_s)) AS last_s FROM fetched GROUP BY ALL),
    stretch AS (
        SELECT point, repetition, max(first_s) + $ramp AS low_s, (SELECT min(last_s) FROM slots s
               WHERE s.point = hosts.point AND s.repetition = hosts.repetition) AS high_s, count(*) AS hosts
        FROM hosts GROUP BY ALL),
    shared AS (
        SELECT f.*, s.low_s, s.high_s,
               greatest(0, least(f.end_s, s.high_s) - greatest(f.start_s, s.low_s)) / f.duration_s AS part,
               f.end_s BETWEEN s.low_s AND s.high_s AS ended
        FROM fetched f JOIN stretch s USING (point, repetition))
    SELECT point, repetition, host, low_s, high_s, any_value(high_s - low_s) AS window_s,
           sum(if(many, steady_bytes * (high_s - low_s) / (steady_end_s - steady_start_s), bytes * part)) FILTER (outcome = 'ok') AS bytes,
           sum(if(many, steady_fetches, ended::INTEGER::DOUBLE)) FILTER (outcome = 'ok') AS fetches,
           sum(if(many, latency_s * steady_fetches, if(ended, duration_s, 0))) FILTER (outcome = 'ok') AS waited_s
    FROM shared WHERE high_s > low_s GROUP BY ALL ORDER BY point, repetition, host
"""

_ERRORS = """
    SELECT point, count(*) FILTER (outcome <> 'ok') + coalesce(sum(list_sum([(tool->>key)::DOUBLE FOR key IN json_keys(tool)
           IF starts_with(key, 'errors_')])), 0) AS errors
    FROM transfers WHERE point IS NOT NULL GROUP BY point
"""


def cells_of(run: Run, scenario: Mapping[str, Any]) -> list[Cell]:
    """Return the cells of the points that have a trial, in their order.

    A point some of whose hosts are not done is left out: with a part of its clients it is another point.
    """
    ramp_s = _seconds(scenario["workload"].get("ramp"))
    shares = run.query(_SHARES, {"ramp": ramp_s})
    errors = dict(zip(*_columns(run.query(_ERRORS), "point", "errors"), strict=True))
    factors = _factors(run)
    groups = scenario["workload"].get("group", {})
    found = []
    for point, told in factors.items():
        group = groups.get(str(told.get("group")), {})
        rows = [
            {name: column[index] for name, column in shares.items()}
            for index, number in enumerate(shares["point"])
            if int(number) == point
        ]
        found.append(_cell(run, point, told, group, rows, int(errors.get(point, 0) or 0)))
    return found


def _cell(
    run: Run,
    point: int,
    factors: Mapping[str, Scalar],
    group: Mapping[str, Any],
    rows: list[dict[str, Any]],
    errors: int,
) -> Cell:
    expected = set(group.get("clients", ()))
    repetitions: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        repetitions.setdefault(int(row["repetition"]), []).append(row)
    whole = [one for one in repetitions.values() if {str(row["host"]) for row in one} == expected or not expected]
    if not whole:
        return Cell(point, factors, 0, None, None, None, errors, None, None, None, ())
    rates = [sum(_number(row["bytes"]) for row in one) * BITS_PER_BYTE / _number(one[0]["window_s"]) for one in whole]
    stretches = [(float(one[0]["low_s"]), float(one[0]["high_s"])) for one in whole]
    rates_of = _link_rates(run, stretches)
    names = sorted({str(row["host"]) for one in whole for row in one})
    hosts = tuple(
        _host(run, name, [row for one in whole for row in one if row["host"] == name], rates_of) for name in names
    )
    fetches = sum(_number(row["fetches"]) for one in whole for row in one)
    waited = sum(_number(row["waited_s"]) for one in whole for row in one)
    rate = float(np.mean(rates))
    link, link_ratio = _busiest(run, rates_of)
    can = _capacity_bit_per_s(run, group)
    return Cell(
        point,
        factors,
        len(whole),
        rate,
        float(np.mean([_number(one[0]["window_s"]) for one in whole])),
        waited / fetches if fetches else None,
        errors,
        rate / can if can else None,
        link_ratio,
        link,
        hosts,
    )


def _host(run: Run, name: str, rows: list[dict[str, Any]], rates: Mapping[str, float]) -> HostShare:
    fetches = sum(_number(row["fetches"]) for row in rows)
    waited = sum(_number(row["waited_s"]) for row in rows)
    found = [_number(row["bytes"]) * BITS_PER_BYTE / _number(row["window_s"]) for row in rows]
    window_s = float(np.mean([_number(row["window_s"]) for row in rows]))
    network = run.header.get("network") or {}
    own = {key for key, interface in (network.get("interfaces") or {}).items() if interface["host"] == name}
    into = [key for key, link in (network.get("links") or {}).items() if link["to"] in own]
    counted = [rates[key] for key in into if key in rates]
    return HostShare(
        name,
        fetches / len(rows),
        float(np.mean([_number(row["bytes"]) for row in rows])),
        waited / fetches if fetches else None,
        float(np.mean(found)),
        sum(counted) * window_s / BITS_PER_BYTE if into and len(counted) == len(into) else None,
    )


def _capacity_bit_per_s(run: Run, group: Mapping[str, Any]) -> float | None:
    """Return what the processes of a group may send together, ``None`` where the plan does not limit them."""
    services = run.header.get("services") or {}
    found = 0.0
    for name in group.get("services", ()):
        options = (services.get(name) or {}).get("options") or {}
        rate = options.get("process_rate_bytes_per_s")
        if rate is None:
            return None
        found += float(rate) * BITS_PER_BYTE * int(options.get("instances") or 1) * int(options.get("workers") or 1)
    return found or None


def _link_rates(run: Run, stretches: list[tuple[float, float]]) -> dict[str, float]:
    """Return the mean rate of each link in these stretches, in bit/s, by the samples of its counter."""
    rates: dict[str, list[float]] = {}
    for low_s, high_s in stretches:
        rows = run.query(
            """SELECT counter[6:-7] AS link, (max(value) - min(value)) / (max(time_s) - min(time_s)) AS rate
               FROM samples WHERE counter LIKE 'link.%.bytes' AND time_s BETWEEN $low AND $high
               GROUP BY 1 HAVING max(time_s) > min(time_s)""",
            {"low": low_s, "high": high_s},
        )
        for link, rate in zip(rows["link"], rows["rate"], strict=True):
            rates.setdefault(str(link), []).append(float(rate) * BITS_PER_BYTE)
    return {link: float(np.mean(values)) for link, values in rates.items()}


def _busiest(run: Run, rates: Mapping[str, float]) -> tuple[str | None, float | None]:
    """Return the link that carried most of what it can, and that share."""
    links = (run.header.get("network") or {}).get("links") or {}
    shares = {link: rate / float(links[link]["rate_bit_per_s"]) for link, rate in rates.items() if link in links}
    if not shares:
        return None, None
    best = max(shares, key=lambda link: (shares[link], link))
    return best, shares[best]


def server_counts(run: Run) -> list[ServerCount]:
    """Return what the access logs of proxies and servers hold, service by service; empty while these run."""
    logged = run.query(
        """SELECT detail->>'service' AS service, count(*) AS requests, count(*) FILTER (detail->>'cache' = 'hit') AS hits,
                  sum((detail->>'sent_bytes')::BIGINT)::DOUBLE AS sent
           FROM events WHERE kind = 'server-transfer' AND detail->>'sent_bytes' IS NOT NULL GROUP BY 1 ORDER BY 1"""
    )
    held = run.query(
        """SELECT labels->>'service' AS service, sum(coalesce(tool_bytes, asked_bytes))::DOUBLE AS bytes
           FROM transfers WHERE outcome = 'ok' GROUP BY 1"""
    )
    clients = {str(name): float(size) for name, size in zip(held["service"], held["bytes"], strict=True)}
    return [
        ServerCount(
            str(name),
            int(logged["requests"][i]),
            int(logged["hits"][i]),
            int(logged["sent"][i]),
            round(clients[str(name)]) if str(name) in clients else None,
        )
        for i, name in enumerate(logged["service"])
    ]


def _factors(run: Run) -> dict[int, dict[str, Scalar]]:
    names = run.factors
    wanted = "".join(f', any_value("factor_{name}") AS "{name}"' for name in names)
    rows = run.query(f"SELECT point{wanted} FROM trials WHERE point IS NOT NULL GROUP BY point ORDER BY point")
    return {
        int(point): {name: plain for name in names if (plain := _plain(rows[name][index])) is not None}
        for index, point in enumerate(rows["point"])
    }


def _plain(value: object) -> Scalar:
    if value is None or isinstance(value, (str, bool)):
        return value
    number = float(value)  # type: ignore[arg-type]
    if np.isnan(number):
        return None
    return int(number) if number.is_integer() else number


def _number(value: object) -> float:
    """Return a sum of SQL as a number: over no rows it is null, and there was nothing."""
    return 0.0 if value is None or np.isnan(float(str(value))) else float(str(value))


def _columns(table: Mapping[str, Any], *names: str) -> list[list[Any]]:
    return [[_plain(value) for value in table[name]] for name in names]


def _seconds(text: object) -> float:
    try:
        return parse_duration(text)
    except UnitError:
        return 0.0
