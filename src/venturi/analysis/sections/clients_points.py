"""Results of the design points of closed-loop clients: rates, hosts, and the use of servers and links.

Rates cover the window while all clients are active. A client that is a separate process reports when a fetch started
and ended, but not when its bytes arrived. Bytes arrive early or late in a fetch, and at the same time for all clients
that started together. Fetches that cross the ends of the window are therefore not divided by time. Instead, the
counters of the links into a host give the bytes that arrived in the window. The fraction of these bytes that fetches
kept is taken from the whole trial, which contains every fetch completely. For each host:

    bytes in the window = link bytes in the window × bytes of all fetches of the trial ÷ link bytes of the trial

Link counters are sampled at intervals. Between two trials, the link bytes are split halfway, so no bytes are lost. If
many clients share one process, this process counts the bytes of the window as they arrive. Without link counters (on
hosts outside a lab), crossing fetches are divided by time. This is right on average only if clients are out of step
with each other and with the window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from venturi.analysis.section import Scalar
from venturi.analysis.sections.clients_network import LinkCounters, NetworkUse, SlowInterface, network_of
from venturi.analysis.sections.clients_servers import clients_of, put_in
from venturi.errors import UnitError
from venturi.run import Run
from venturi.units import BITS_PER_BYTE, parse_duration

__all__ = ["ClientsPointResult", "HostClients", "cells_of"]


@dataclass(frozen=True, slots=True)
class HostClients:
    """Activity of the clients of one host in the window, as means over repetitions.

    ``wire_bytes`` are the bytes that the network delivered to the host. ``kept_ratio`` is the fraction of them that
    fetches kept.
    """

    name: str
    fetches: float
    volume_bytes: float
    fetch_s: float | None
    rate_bit_per_s: float
    wire_bytes: float | None

    @property
    def kept_ratio(self) -> float | None:
        """Ratio of the fetched volume to the bytes on the links."""
        return self.volume_bytes / self.wire_bytes if self.wire_bytes else None


@dataclass(frozen=True, slots=True)
class ClientsPointResult:
    """Result of one design point, as means over repetitions; ``None`` if the hosts were never active together.

    Attributes
    ----------
    put_in_bit_per_s
        Configured limit of all processes together. ``process_ratio`` is the measured rate over this limit.
    busy_ratio
        Fraction of this limit that the clients can use if they choose processes at random; see
        :func:`venturi.analysis.sections.clients_servers.usable_fraction`.
    link, link_ratio
        Link with the highest use, except those of ``worse``, and its use.
    worse
        Interfaces with a lower rate, or more loss, than others of the same host.
    """

    point: int
    factors: Mapping[str, Scalar]
    repetitions: int
    rate_bit_per_s: float | None
    window_s: float | None
    fetch_s: float | None
    errors: int
    put_in_bit_per_s: float | None
    busy_ratio: float | None
    link_ratio: float | None
    link: str | None
    hosts: tuple[HostClients, ...]
    worse: tuple[SlowInterface, ...]

    @property
    def process_ratio(self) -> float | None:
        """Measured rate over the configured limit of the processes."""
        return self.rate_bit_per_s / self.put_in_bit_per_s if self.rate_bit_per_s and self.put_in_bit_per_s else None

    @property
    def total(self) -> tuple[HostClients, ...]:
        """Sums over the hosts, as one host with the name ``all``; empty without hosts."""
        if not self.hosts:
            return ()
        carried_bytes = [host.wire_bytes for host in self.hosts]
        known = [size for size in carried_bytes if size is not None]
        return (
            HostClients(
                "all",
                sum(host.fetches for host in self.hosts),
                sum(host.volume_bytes for host in self.hosts),
                self.fetch_s,
                sum(host.rate_bit_per_s for host in self.hosts),
                sum(known) if len(known) == len(carried_bytes) else None,
            ),
        )


EDGE_SAMPLES = 2.0
"""Maximum number of sampling intervals that a trial extends before its first fetch and after its last one."""

# `from_s` to `to_s`: the trial in the link counters. `bytes`: in the window, with crossing fetches divided by time.
_HOST_CLIENTS = """
    WITH fetched AS (
        SELECT point, repetition, host, slot, outcome, start_s, end_s, duration_s, coalesce(tool_bytes, requested_bytes)::DOUBLE AS bytes,
               (tool->>'steady_start_s')::DOUBLE AS steady_start_s, (tool->>'steady_end_s')::DOUBLE AS steady_end_s,
               (tool->>'steady_bytes')::DOUBLE AS steady_bytes, (tool->>'steady_fetches')::DOUBLE AS steady_fetches,
               (tool->>'latency_mean_s')::DOUBLE AS latency_s, tool->>'steady_bytes' IS NOT NULL AS many
        FROM transfers WHERE point IS NOT NULL AND start_s IS NOT NULL AND end_s > start_s),
    hosts AS (SELECT point, repetition, host, min(start_s) AS first_s, max(end_s) AS last_s FROM fetched GROUP BY ALL),
    trials AS (SELECT point, repetition, min(first_s) AS first_s, max(last_s) AS last_s FROM hosts GROUP BY ALL),
    spans AS (
        SELECT point, repetition, greatest(first_s - $edge, coalesce((lag(last_s) OVER in_turn + first_s) / 2, first_s - $edge)) AS from_s,
               least(last_s + $edge, coalesce((last_s + lead(first_s) OVER in_turn) / 2, last_s + $edge)) AS to_s
        FROM trials WINDOW in_turn AS (ORDER BY first_s)),
    slots AS (SELECT point, repetition, host, slot, max(if(many, start_s + steady_end_s, end_s)) AS last_s FROM fetched GROUP BY ALL),
    stretch AS (
        SELECT point, repetition, max(first_s) + $ramp AS low_s, (SELECT min(last_s) FROM slots s
               WHERE s.point = hosts.point AND s.repetition = hosts.repetition) AS high_s
        FROM hosts GROUP BY ALL),
    shared AS (
        SELECT f.*, s.low_s, s.high_s, t.from_s, t.to_s,
               greatest(0, least(f.end_s, s.high_s) - greatest(f.start_s, s.low_s)) / f.duration_s AS part,
               f.end_s BETWEEN s.low_s AND s.high_s AS ended
        FROM fetched f JOIN stretch s USING (point, repetition) JOIN spans t USING (point, repetition))
    SELECT point, repetition, host, low_s, high_s, from_s, to_s, bool_and(many) AS many,
           sum(bytes) FILTER (outcome = 'ok') AS trial_bytes,
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


def cells_of(run: Run, scenario: Mapping[str, Any]) -> list[ClientsPointResult]:
    """Return the results of the points that have a trial, in their order.

    A repetition without all hosts of the group is excluded, because fewer clients are a different design point.
    """
    edge_s = EDGE_SAMPLES * float((run.header.get("measure") or {}).get("interval_s") or 0.0)
    fractions = run.query(_HOST_CLIENTS, {"ramp": _seconds(scenario["workload"].get("ramp")), "edge": edge_s})
    errors = dict(zip(*_columns(run.query(_ERRORS), "point", "errors"), strict=True))
    clients, network = clients_of(run), network_of(run)
    groups = scenario["workload"].get("group", {})
    found = []
    for point, values in _factors(run).items():
        group = groups.get(str(values.get("group")), {})
        rows = [
            {name: column[index] for name, column in fractions.items()}
            for index, number in enumerate(fractions["point"])
            if int(number) == point
        ]
        repetitions = _whole(rows, set(group.get("clients", ())))
        may_send = put_in(run, group, clients.get(point, {}))
        found.append(_cell(network, point, values, repetitions, int(errors.get(point, 0) or 0), may_send))
    return found


def _whole(rows: list[dict[str, Any]], expected: set[str]) -> list[list[dict[str, Any]]]:
    """Return the rows of each repetition with all hosts of the group."""
    repetitions: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        repetitions.setdefault(int(row["repetition"]), []).append(row)
    return [one for one in repetitions.values() if {str(row["host"]) for row in one} == expected or not expected]


def _cell(
    network: NetworkUse,
    point: int,
    factors: Mapping[str, Scalar],
    whole: list[list[dict[str, Any]]],
    errors: int,
    may_send: tuple[float | None, float | None],
) -> ClientsPointResult:
    if not whole:
        return ClientsPointResult(point, factors, 0, None, None, None, errors, *may_send, None, None, (), ())
    names = sorted({str(row["host"]) for one in whole for row in one})
    hosts = tuple(
        _host(network, name, [row for one in whole for row in one if row["host"] == name]) for name in names
    )
    fetches = sum(_number(row["fetches"]) for one in whole for row in one)
    waited = sum(_number(row["waited_s"]) for one in whole for row in one)
    windows = [(float(one[0]["low_s"]), float(one[0]["high_s"])) for one in whole]
    rates = network.rates_bit_per_s(windows)
    worse = tuple(network.worse(rates))
    link, link_ratio = network.busiest(rates, windows, without={one.name for one in worse})
    return ClientsPointResult(
        point,
        factors,
        len(whole),
        sum(host.rate_bit_per_s for host in hosts),
        float(np.mean([_window_s(one[0]) for one in whole])),
        waited / fetches if fetches else None,
        errors,
        *may_send,
        link_ratio,
        link,
        hosts,
        worse,
    )


def _host(network: NetworkUse, name: str, rows: list[dict[str, Any]]) -> HostClients:
    fetches = sum(_number(row["fetches"]) for row in rows)
    waited = sum(_number(row["waited_s"]) for row in rows)
    links = network.into(name)
    volumes = [_window_bytes(network.counters, links, row) for row in rows]
    carried_bytes = [network.counters.sum_bytes(links, float(row["low_s"]), float(row["high_s"])) for row in rows]
    known = [size for size in carried_bytes if size is not None]
    return HostClients(
        name,
        fetches / len(rows),
        float(np.mean(volumes)),
        waited / fetches if fetches else None,
        float(np.mean([size * BITS_PER_BYTE / _window_s(row) for size, row in zip(volumes, rows, strict=True)])),
        float(np.mean(known)) if len(known) == len(rows) else None,
    )


def _window_bytes(counters: LinkCounters, links: list[str], row: Mapping[str, Any]) -> float:
    """Return the bytes that the fetches of a host received in the window; see the module docstring."""
    if not row["many"]:
        trial = counters.sum_bytes(links, float(row["from_s"]), float(row["to_s"]))
        window_bytes = counters.sum_bytes(links, float(row["low_s"]), float(row["high_s"]))
        if trial and window_bytes is not None:
            return window_bytes * _number(row["trial_bytes"]) / trial
    return _number(row["bytes"])


def _window_s(row: Mapping[str, Any]) -> float:
    return float(row["high_s"]) - float(row["low_s"])


def _factors(run: Run) -> dict[int, dict[str, Scalar]]:
    names = run.factors
    columns = "".join(f', any_value("factor_{name}") AS "{name}"' for name in names)
    rows = run.query(f"SELECT point{columns} FROM trials WHERE point IS NOT NULL GROUP BY point ORDER BY point")
    return {
        int(point): {name: scalar for name in names if (scalar := _to_scalar(rows[name][index])) is not None}
        for index, point in enumerate(rows["point"])
    }


def _to_scalar(value: object) -> Scalar:
    if value is None or isinstance(value, (str, bool)):
        return value
    number = float(value)  # type: ignore[arg-type]
    if np.isnan(number):
        return None
    return int(number) if number.is_integer() else number


def _number(value: object) -> float:
    """Return a sum of SQL as a number. The sum over no rows is null, which counts as 0."""
    return 0.0 if value is None or np.isnan(float(str(value))) else float(str(value))


def _columns(table: Mapping[str, Any], *names: str) -> list[list[Any]]:
    return [[_to_scalar(value) for value in table[name]] for name in names]


def _seconds(text: object) -> float:
    try:
        return parse_duration(text)
    except UnitError:
        return 0.0
