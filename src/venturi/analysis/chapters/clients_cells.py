"""The set-ups of a run of closed-loop clients, measured: one cell a point, its hosts, what its servers and links did meanwhile.

A rate is that of a stretch in which all clients are at work. A client that is a process of its own tells when a fetch began and ended, and
not when its bytes came: early or late, and at the same time as those of all who began with it. So a fetch that the ends of the stretch cut
is not divided by time. The links into the client's host tell how much came in the stretch; how much of that fetches kept is the
share over the whole trial, in which every fetch lies whole:

    bytes in the stretch = wire in the stretch × bytes of all fetches of the trial ÷ wire of the trial

for each host. Samples are taken now and then, so where a trial begins and ends its wire is cut halfway to its neighbours: what the
counters moved between two samples there goes to one or the other, and none of it is lost. Clients that are many in one process count the bytes of the stretch as they come. Where no link is counted (hosts that are no
lab) time divides after all; that is right in the mean only if clients are out of step with each other and with the stretch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from venturi.analysis.chapter import Scalar
from venturi.analysis.chapters.clients_network import InterfaceShare, Network, Wire, network_of
from venturi.analysis.chapters.clients_servers import clients_of, put_in
from venturi.errors import UnitError
from venturi.run import Run
from venturi.units import BITS_PER_BYTE, parse_duration

__all__ = ["Cell", "HostShare", "cells_of"]


@dataclass(frozen=True, slots=True)
class HostShare:
    """What the clients of one host did in the stretch: means over repetitions.

    ``wire_bytes``: what the network delivered to the host meanwhile; ``kept_ratio``: the share of that which fetches kept.
    """

    name: str
    fetches: float
    volume_bytes: float
    fetch_s: float | None
    rate_bit_per_s: float
    wire_bytes: float | None

    @property
    def kept_ratio(self) -> float | None:
        """Volume to wire."""
        return self.volume_bytes / self.wire_bytes if self.wire_bytes else None


@dataclass(frozen=True, slots=True)
class Cell:
    """One point: means over repetitions; ``None`` where hosts were never at work together.

    Attributes
    ----------
    put_in_bit_per_s
        What the testbed lets all processes send together; ``process_ratio``: the share of it that they sent.
    busy_ratio
        The share of it that so few clients can use, whose connections are spread over the processes at random
        (:func:`venturi.analysis.chapters.clients_servers.busy_share`).
    link, link_ratio
        The busiest link but those of ``worse``, and the share of its rate that it carried.
    worse
        Interfaces with less rate, or more loss, than others of the same host.
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
    hosts: tuple[HostShare, ...]
    worse: tuple[InterfaceShare, ...]

    @property
    def process_ratio(self) -> float | None:
        """Of what the testbed lets the processes send."""
        return self.rate_bit_per_s / self.put_in_bit_per_s if self.rate_bit_per_s and self.put_in_bit_per_s else None

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


EDGE_SAMPLES = 2.0
"""No more than so many times the interval of samples belongs to a trial before its first fetch and after its last."""

# `from_s` to `to_s`: the trial on the wire. `bytes`: in the stretch, fetches that its ends cut divided by time.
_SHARES = """
    WITH fetched AS (
        SELECT point, repetition, host, slot, outcome, start_s, end_s, duration_s, coalesce(tool_bytes, asked_bytes)::DOUBLE AS bytes,
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


def cells_of(run: Run, scenario: Mapping[str, Any]) -> list[Cell]:
    """Return the cells of the points that have a trial, in their order.

    A point some of whose hosts are not done is left out: with a part of its clients it is another point.
    """
    edge_s = EDGE_SAMPLES * float((run.header.get("measure") or {}).get("interval_s") or 0.0)
    shares = run.query(_SHARES, {"ramp": _seconds(scenario["workload"].get("ramp")), "edge": edge_s})
    errors = dict(zip(*_columns(run.query(_ERRORS), "point", "errors"), strict=True))
    clients, network = clients_of(run), network_of(run)
    groups = scenario["workload"].get("group", {})
    found = []
    for point, told in _factors(run).items():
        group = groups.get(str(told.get("group")), {})
        rows = [
            {name: column[index] for name, column in shares.items()}
            for index, number in enumerate(shares["point"])
            if int(number) == point
        ]
        repetitions = _whole(rows, set(group.get("clients", ())))
        may_send = put_in(run, group, clients.get(point, {}))
        found.append(_cell(network, point, told, repetitions, int(errors.get(point, 0) or 0), may_send))
    return found


def _whole(rows: list[dict[str, Any]], expected: set[str]) -> list[list[dict[str, Any]]]:
    """Return the rows of each repetition that all hosts of the group took part in."""
    repetitions: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        repetitions.setdefault(int(row["repetition"]), []).append(row)
    return [one for one in repetitions.values() if {str(row["host"]) for row in one} == expected or not expected]


def _cell(
    network: Network,
    point: int,
    factors: Mapping[str, Scalar],
    whole: list[list[dict[str, Any]]],
    errors: int,
    may_send: tuple[float | None, float | None],
) -> Cell:
    if not whole:
        return Cell(point, factors, 0, None, None, None, errors, *may_send, None, None, (), ())
    names = sorted({str(row["host"]) for one in whole for row in one})
    hosts = tuple(
        _host(network, name, [row for one in whole for row in one if row["host"] == name]) for name in names
    )
    fetches = sum(_number(row["fetches"]) for one in whole for row in one)
    waited = sum(_number(row["waited_s"]) for one in whole for row in one)
    rates = network.rates_bit_per_s([(float(one[0]["low_s"]), float(one[0]["high_s"])) for one in whole])
    worse = tuple(network.worse(rates))
    link, link_ratio = network.busiest(rates, without={one.name for one in worse})
    return Cell(
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


def _host(network: Network, name: str, rows: list[dict[str, Any]]) -> HostShare:
    fetches = sum(_number(row["fetches"]) for row in rows)
    waited = sum(_number(row["waited_s"]) for row in rows)
    links = network.into(name)
    volumes = [_stretch_bytes(network.wire, links, row) for row in rows]
    wires = [network.wire.sum_bytes(links, float(row["low_s"]), float(row["high_s"])) for row in rows]
    known = [size for size in wires if size is not None]
    return HostShare(
        name,
        fetches / len(rows),
        float(np.mean(volumes)),
        waited / fetches if fetches else None,
        float(np.mean([size * BITS_PER_BYTE / _window_s(row) for size, row in zip(volumes, rows, strict=True)])),
        float(np.mean(known)) if len(known) == len(rows) else None,
    )


def _stretch_bytes(wire: Wire, links: list[str], row: Mapping[str, Any]) -> float:
    """Return what the fetches of a host brought in the stretch: see the top of this file."""
    if not row["many"]:
        trial = wire.sum_bytes(links, float(row["from_s"]), float(row["to_s"]))
        stretch = wire.sum_bytes(links, float(row["low_s"]), float(row["high_s"]))
        if trial and stretch is not None:
            return stretch * _number(row["trial_bytes"]) / trial
    return _number(row["bytes"])


def _window_s(row: Mapping[str, Any]) -> float:
    return float(row["high_s"]) - float(row["low_s"])


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
