"""Closed-loop clients: rates of set-ups and their published values, hosts and sums, comparisons of options, and limits.

Rates cover the window while all clients are active. The window starts ``ramp`` after the latest first fetch of any
host. It ends when the first client finishes its last fetch. :mod:`venturi.analysis.sections.clients_points` describes the count of fetches that
cross its ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from venturi.analysis.format import format_sentences
from venturi.analysis.result import About
from venturi.analysis.section import Column, Figure, Panel, ReportSection, Scalar, Series, Table
from venturi.analysis.sections.clients_comparisons import (
    KEYS,
    column_of,
    comparisons_table,
    directions_table,
    interfaces_table,
    key_of,
    labels_of,
)
from venturi.analysis.sections.clients_points import ClientsPointResult, cells_of
from venturi.analysis.sections.clients_servers import server_counts
from venturi.run import Run
from venturi.study import study
from venturi.units import format_bit_rate, format_bit_rate_ends

__all__ = ["clients_section"]

_SUBJECTS = {"servers": "the servers limit", "network": "the network limits", "clients": "the clients limit"}
_PUBLISHED_NAMES = {"clients": "clients_per_machine"}
NEAR = 0.85
"""Minimum use of a resource that counts as the limit."""
SUM_WITHIN = 0.02
"""Accepted relative difference between client and server byte counts: headers, and fetches that a killed server cut off."""


def clients_section(run: Run, about: About) -> ReportSection | None:
    """Return the section of the workload ``clients``, or ``None`` for another workload or before the first point is done."""
    workload = about.scenario.get("workload")
    if not isinstance(workload, Mapping) or workload.get("kind") != "clients":
        return None
    points = cells_of(run, about.scenario)
    if not points:
        return None
    published = _published(about, workload)
    rates = _rates_table(points, published, about)
    tables = [
        rates, _hosts_table(points), comparisons_table(points, published), directions_table(points, published), interfaces_table(points),
        _servers_table(run),
    ]  # fmt: skip
    return ReportSection(
        "clients",
        "Closed-loop clients",
        _sentence(points, published, about),
        tuple(table for table in tables if table.rows),
        _figures(points, published, about),
        headline=_headline(points),
    )


def _published(about: About, workload: Mapping[str, Any]) -> Mapping[tuple[Scalar, ...], float]:
    """Return the published rates by the values of :data:`KEYS`."""
    if about.study is None:
        return {}
    publications = study(about.study).published
    tables = [
        table
        for table in (*publications.tables, *publications.evidence)
        if {"rate_bit_per_s", *(_PUBLISHED_NAMES.get(key, key) for key in KEYS)} <= set(table.columns)
    ]
    return {
        tuple(row[_PUBLISHED_NAMES.get(key, key)] for key in KEYS): float(str(row["rate_bit_per_s"]))
        for table in tables
        for row in table.rows
        if row["rate_bit_per_s"] is not None
    }


def _rates_table(
    points: Sequence[ClientsPointResult], published: Mapping[tuple[Scalar, ...], float], about: About
) -> Table:
    names = labels_of(points)
    keys, others = [name for name in names if name in KEYS], [name for name in names if name not in KEYS]
    printed = [
        Column("published_bit_per_s", "rate", published=True),
        Column("published_ratio", "ratio to published"),
    ]
    columns = [
        *(column_of(name) for name in keys),
        Column("rate_bit_per_s", "rate"),
        *(printed if published else ()),
        Column("limit", "limited by"),
        Column("process_limit_bit_per_s", "configured limit of the processes"),
        Column("process_ratio", "fraction of this limit"),
        Column("busy_ratio", "usable fraction with these clients (estimate)"),
        Column("link_ratio", "use of the busiest link"),
        Column("link", "busiest link"),
        Column("fetch_s", "mean time of a fetch"),
        Column("errors", "failed fetches"),
        Column("n", "repetitions"),
        *(column_of(name) for name in others),
    ]
    rows: list[tuple[Scalar, ...]] = []
    for point in points:
        theirs = (published.get(key_of(point)), _to_published(point, published, about.scale)) if published else ()
        found = (
            _limit(point),
            point.put_in_bit_per_s,
            point.process_ratio,
            point.busy_ratio,
            point.link_ratio,
            point.link,
            point.fetch_s,
            point.errors,
            point.repetitions,
        )
        first, last = ([point.factors.get(name) for name in some] for some in (keys, others))
        rows.append((*first, point.rate_bit_per_s, *theirs, *found, *last))
    note = "Goodput while all clients of all hosts were active, without the ramp-up."
    if any(point.put_in_bit_per_s for point in points):
        note += (
            " The limit of a process is a setting of the testbed. The growth with the number of processes up to this limit is therefore no result. "
            "The results are the points at which the network or the clients limit the rate, and the size of this effect."
        )
    if published and about.scale != 1:
        note += f" Rates are at scale {about.scale:g}; `ratio to published` divides them by the scale."
    return Table("clients-rates", "Rate by set-up", tuple(columns), tuple(rows), note)


def _to_published(
    point: ClientsPointResult, published: Mapping[tuple[Scalar, ...], float], scale: float
) -> float | None:
    """Return our rate at full scale divided by the published one."""
    printed = published.get(key_of(point))
    return None if not printed or point.rate_bit_per_s is None else point.rate_bit_per_s / scale / printed


def _limit(point: ClientsPointResult) -> str | None:
    if point.rate_bit_per_s is None:
        return None
    link, process = point.link_ratio or 0.0, point.process_ratio or 0.0
    if max(link, process) >= NEAR:
        return "network" if link >= process else "servers"
    return "clients" if point.process_ratio is not None else None


def _hosts_table(points: Sequence[ClientsPointResult]) -> Table:
    names = ("group", *(name for name in ("pairing", "clients", "mover") if name in labels_of(points)))
    columns = (
        *(column_of(name) for name in names),
        Column("host", "client host"),
        Column("rate_bit_per_s", "rate"),
        Column("fetch_s", "mean time of a fetch"),
        Column("fetches", "fetches"),
        Column("volume_bytes", "volume"),
        Column("wire_bytes", "bytes on the links"),
        Column("wire_ratio", "volume ÷ bytes on the links"),
    )
    rows: list[tuple[Scalar, ...]] = []
    for point in points:
        head = tuple(point.factors.get(name) for name in names)
        for host in (*point.hosts, *point.total):
            counts = (host.fetches, host.volume_bytes, host.wire_bytes, host.kept_ratio)
            rows.append((*head, host.name, host.rate_bit_per_s, host.fetch_s, *counts))
    note = (
        "Values are for the window in which all clients were active. Row `all` has the sums. The bytes on the links are those that reached the "
        "interfaces of the hosts, with headers and retransmissions. A ratio above 1 would be a counting error. A ratio far below 1 means that "
        "fetches discarded bytes. If each client is a process, the ratio is that of the whole trial, and the volume is the bytes on the links "
        "times this ratio. Without link counters, a fetch at the edge of the window counts by the fraction of its time in the window."
    )
    return Table("clients-hosts", "Hosts and their sums", columns, tuple(rows), note)


def _servers_table(run: Run) -> Table:
    columns = (
        Column("service", "service"), Column("requests", "requests"), Column("hits", "cache hits"), Column("sent_bytes", "sent, with headers"),
        Column("client_bytes", "received by clients"), Column("agree_ratio", "received ÷ sent"), Column("agrees", "agrees"),
    )  # fmt: skip
    rows: list[tuple[Scalar, ...]] = []
    for one in server_counts(run):
        ratio = one.client_bytes / one.sent_bytes if one.sent_bytes and one.client_bytes is not None else None
        agrees = None if ratio is None else abs(ratio - 1) <= SUM_WITHIN
        rows.append((one.service, one.requests, one.hits, one.sent_bytes, one.client_bytes, ratio, agrees))
    note = f"From the access logs of the whole run. The counts agree if they differ by at most {SUM_WITHIN:.0%}, because servers also count headers."
    return Table("clients-servers", "Server logs", columns, tuple(rows), note)


def _figures(
    points: Sequence[ClientsPointResult], published: Mapping[tuple[Scalar, ...], float], about: About
) -> tuple[Figure, ...]:
    """Return figures 1 and 2 of report 002: rate against processes, with one figure for each direction."""
    found = []
    for number, direction in enumerate(dict.fromkeys(point.factors.get("direction") for point in points), 1):
        own_points = [
            point for point in points if point.factors.get("direction") == direction and "processes" in point.factors
        ]
        if len({point.factors["processes"] for point in own_points}) < 2:
            continue
        ours = _series(((key_of(point), point.rate_bit_per_s) for point in own_points), published=False)
        theirs = _series(
            ((key, rate * about.scale) for key, rate in published.items() if key[0] == direction), published=True
        )
        scaled = "" if about.scale == 1 else f" Published rates are multiplied by the scale, {about.scale:g}."
        found.append(
            Figure(
                f"clients-{number}", f"{direction}: rate against processes", (Panel(str(direction), "processes", "rate_bit_per_s", (*ours, *theirs)),),
                f"Series: pairing, clients per machine, affinity.{scaled}",
                {"ANL to NERSC": "002, figure 1", "NERSC to ANL": "002, figure 2"}.get(str(direction), ""),
            )
        )  # fmt: skip
    return tuple(found)


def _series(points: Any, *, published: bool) -> list[Series]:  # noqa: ANN401 - pairs of key and rate
    curves: dict[tuple[Scalar, ...], list[tuple[float, float]]] = {}
    for (_, processes, affinity, pairing, clients), rate in points:
        if rate is not None and isinstance(processes, (int, float)):
            curves.setdefault((pairing, clients, affinity), []).append((float(processes), float(rate)))
    found = []
    for (pairing, clients, affinity), values in sorted(curves.items(), key=str):
        x, y = zip(*sorted(values), strict=True)
        name = f"{pairing}, {clients} clients, affinity {affinity}" + (", published" if published else "")
        found.append(Series(name, x, y, style="points" if published else "line", published=published))
    return found


def _sentence(
    points: Sequence[ClientsPointResult], published: Mapping[tuple[Scalar, ...], float], about: About
) -> str:
    known = [point for point in points if point.rate_bit_per_s]
    if not known:
        return "No set-up was measured with all clients active."
    parts = [
        clause
        for direction in dict.fromkeys(c.factors.get("direction") for c in known)
        for clause in _format_direction(direction, known)
    ]
    compared = [ratio for point in known if (ratio := _to_published(point, published, about.scale)) is not None]
    if compared:
        parts.append(
            f"the {len(compared)} rates with a published value are {min(compared):.2f} to {max(compared):.2f} times this value"
        )
    return format_sentences(parts)


def _headline(points: Sequence[ClientsPointResult]) -> str:
    known = sorted((point for point in points if point.rate_bit_per_s), key=lambda point: point.rate_bit_per_s or 0.0)
    if not known:
        return "No set-up was measured with all clients active"
    best = known[-1].factors
    where = [str(best["direction"])] if best.get("direction") is not None else []
    where += [f"{best['processes']} processes"] if best.get("processes") is not None else []
    rates = format_bit_rate_ends(known[0].rate_bit_per_s or 0.0, known[-1].rate_bit_per_s or 0.0)
    most = f"; highest with {', '.join(where)}" if where and len(known) > 1 else ""
    return f"{rates} with all clients active{most}"


def _format_direction(direction: Scalar, points: Sequence[ClientsPointResult]) -> list[str]:
    own_points = sorted(
        (c for c in points if c.factors.get("direction") == direction), key=lambda c: c.rate_bit_per_s or 0
    )
    low, high = own_points[0], own_points[-1]
    what = f"{direction}: " if direction is not None else ""
    rates = f"{_rate(low)} to {_rate(high)}"
    if "processes" in high.factors and len({c.factors["processes"] for c in own_points}) > 1:
        rates = f"{_rate(low)} with {low.factors['processes']} processes to {_rate(high)} with {high.factors['processes']} processes"
    return [f"{what}{rates}", *_format_limits(own_points)]


def _format_limits(points: Sequence[ClientsPointResult]) -> list[str]:
    texts = []
    for limit in _SUBJECTS:
        found = [point for point in points if _limit(point) == limit]
        if found:
            best = max(found, key=lambda point: point.rate_bit_per_s or 0)
            texts.append(
                f"{_SUBJECTS[limit]} {len(found)} of {len(points)} set-ups; in the fastest of them, {_evidence(best, limit)}"
            )
    return texts or ["the limit is unknown"]


def _evidence(point: ClientsPointResult, limit: str) -> str:
    sent = f"the processes sent {100 * (point.process_ratio or 0):.0f} % of their configured limit"
    full = f"the use of the link {point.link} was {100 * (point.link_ratio or 0):.0f} %"
    return {"servers": sent, "network": full}.get(limit, f"{sent}, and {full}")


def _rate(point: ClientsPointResult) -> str:
    return format_bit_rate(point.rate_bit_per_s or 0.0)
