"""Closed-loop clients: the rate of each set-up beside the published one, hosts and their sums, options on against off, what limits.

A rate is that of a stretch in which all clients are at work: from the latest first fetch of any host plus ``ramp`` to the earliest end of a
client's last fetch. How the bytes of fetches that lie in it in part are counted is told in :mod:`.clients_cells`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from venturi.analysis.chapter import Chapter, Column, Figure, Panel, Scalar, Series, Table
from venturi.analysis.chapters.clients_cells import Cell, cells_of
from venturi.analysis.chapters.clients_comparisons import (
    KEYS,
    column_of,
    comparisons_table,
    directions_table,
    interfaces_table,
    key_of,
    labels_of,
)
from venturi.analysis.chapters.clients_servers import server_counts
from venturi.analysis.result import About
from venturi.analysis.words import bit_rate
from venturi.run import Run
from venturi.study import study

__all__ = ["clients_chapter"]

_PUBLISHED_NAMES = {"clients": "clients_per_machine"}
NEAR = 0.85
"""A resource that is used up to this share of what it can give is what limits."""
SUM_WITHIN = 0.02
"""Share by which what clients hold may differ from what servers logged of the same fetches: heads, and fetches cut off by a killed server."""


def clients_chapter(run: Run, about: About) -> Chapter | None:
    """Return what a run of the workload ``clients`` says, ``None`` for any other, or before the first point is done."""
    workload = about.scenario.get("workload")
    if not isinstance(workload, Mapping) or workload.get("kind") != "clients":
        return None
    cells = cells_of(run, about.scenario)
    if not cells:
        return None
    published = _published(about, workload)
    rates = _rates_table(cells, published, about)
    tables = [
        rates, _hosts_table(cells), comparisons_table(cells, published), directions_table(cells, published), interfaces_table(cells),
        _servers_table(run),
    ]  # fmt: skip
    return Chapter(
        "clients",
        "Closed-loop clients",
        _sentence(cells, published, about),
        tuple(table for table in tables if table.rows),
        _figures(cells, published, about),
    )


def _published(about: About, workload: Mapping[str, Any]) -> Mapping[tuple[Scalar, ...], float]:
    """Return the published rates by the values of :data:`KEYS`."""
    if about.study is None:
        return {}
    told = study(about.study).published
    tables = [
        table
        for table in (*told.tables, *told.evidence)
        if {"rate_bit_per_s", *(_PUBLISHED_NAMES.get(key, key) for key in KEYS)} <= set(table.columns)
    ]
    return {
        tuple(row[_PUBLISHED_NAMES.get(key, key)] for key in KEYS): float(str(row["rate_bit_per_s"]))
        for table in tables
        for row in table.rows
        if row["rate_bit_per_s"] is not None
    }


def _rates_table(cells: Sequence[Cell], published: Mapping[tuple[Scalar, ...], float], about: About) -> Table:
    names = labels_of(cells)
    keys, others = [name for name in names if name in KEYS], [name for name in names if name not in KEYS]
    printed = [
        Column("published_bit_per_s", "published", published=True),
        Column("published_ratio", "ours to published"),
    ]
    columns = [
        *(column_of(name) for name in keys),
        Column("rate_bit_per_s", "rate"),
        *(printed if published else ()),
        Column("limit", "limited by"),
        Column("put_in_bit_per_s", "processes may send (put in)"),
        Column("process_ratio", "of what they may send"),
        Column("busy_ratio", "about so much so many clients get"),
        Column("link_ratio", "of the busiest link"),
        Column("link", "busiest link"),
        Column("fetch_s", "mean time of a fetch"),
        Column("errors", "failed fetches"),
        Column("n", "repetitions"),
        *(column_of(name) for name in others),
    ]
    rows: list[tuple[Scalar, ...]] = []
    for cell in cells:
        theirs = (published.get(key_of(cell)), _to_published(cell, published, about.scale)) if published else ()
        found = (
            _limit(cell),
            cell.put_in_bit_per_s,
            cell.process_ratio,
            cell.busy_ratio,
            cell.link_ratio,
            cell.link,
            cell.fetch_s,
            cell.errors,
            cell.repetitions,
        )
        first, last = ([cell.factors.get(name) for name in some] for some in (keys, others))
        rows.append((*first, cell.rate_bit_per_s, *theirs, *found, *last))
    note = "Goodput while all clients of all hosts were at work, the ramp left out."
    if any(cell.put_in_bit_per_s for cell in cells):
        note += (
            " What a process may send is put in: a rate of the testbed. That more processes send more, up to there, is therefore no finding; found "
            "are where the network or the clients limit instead, and by how much."
        )
    if published and about.scale != 1:
        note += f" Rates are at scale {about.scale:g}; for `ours to published` they are divided by it."
    return Table("clients-rates", "Rate of each set-up", tuple(columns), tuple(rows), note)


def _to_published(cell: Cell, published: Mapping[tuple[Scalar, ...], float], scale: float) -> float | None:
    """Return our rate at full scale over the published one."""
    printed = published.get(key_of(cell))
    return None if not printed or cell.rate_bit_per_s is None else cell.rate_bit_per_s / scale / printed


def _limit(cell: Cell) -> str | None:
    if cell.rate_bit_per_s is None:
        return None
    link, process = cell.link_ratio or 0.0, cell.process_ratio or 0.0
    if max(link, process) >= NEAR:
        return "network" if link >= process else "servers"
    return "clients" if cell.process_ratio is not None else None


def _hosts_table(cells: Sequence[Cell]) -> Table:
    names = ("group", *(name for name in ("pairing", "clients", "mover") if name in labels_of(cells)))
    columns = (
        *(column_of(name) for name in names),
        Column("host", "client host"),
        Column("rate_bit_per_s", "rate"),
        Column("fetch_s", "mean time of a fetch"),
        Column("fetches", "fetches"),
        Column("volume_bytes", "volume"),
        Column("wire_bytes", "on the wire"),
        Column("wire_ratio", "volume to wire"),
    )
    rows: list[tuple[Scalar, ...]] = []
    for cell in cells:
        head = tuple(cell.factors.get(name) for name in names)
        for host in (*cell.hosts, *cell.total):
            counts = (host.fetches, host.volume_bytes, host.wire_bytes, host.kept_ratio)
            rows.append((*head, host.name, host.rate_bit_per_s, host.fetch_s, *counts))
    note = (
        "Of the stretch in which all were at work. Sums stand under `all`. The wire counts what reached the hosts' interfaces, heads and "
        "segments sent again too, so a ratio beyond 1 would be a mistake of the count, and one far below 1 bytes that no fetch kept. Of clients "
        "that are a process each the ratio is that of the whole trial, where no fetch is cut, and the volume is that share of the wire's; where "
        "no link is counted, fetches that the stretch cuts are divided by time."
    )
    return Table("clients-hosts", "Hosts and their sums", columns, tuple(rows), note)


def _servers_table(run: Run) -> Table:
    columns = (
        Column("service", "service"), Column("requests", "requests"), Column("hits", "from its cache"), Column("sent_bytes", "sent, heads too"),
        Column("client_bytes", "clients hold"), Column("agree_ratio", "clients to servers"), Column("agrees", "agrees"),
    )  # fmt: skip
    rows: list[tuple[Scalar, ...]] = []
    for one in server_counts(run):
        ratio = one.client_bytes / one.sent_bytes if one.sent_bytes and one.client_bytes is not None else None
        agrees = None if ratio is None else abs(ratio - 1) <= SUM_WITHIN
        rows.append((one.service, one.requests, one.hits, one.sent_bytes, one.client_bytes, ratio, agrees))
    note = f"From the access logs, all of the run; they agree within {SUM_WITHIN:.0%}, as servers count heads too."
    return Table("clients-servers", "What the servers logged", columns, tuple(rows), note)


def _figures(
    cells: Sequence[Cell], published: Mapping[tuple[Scalar, ...], float], about: About
) -> tuple[Figure, ...]:
    """Redraw figures 1 and 2 of report 002: rate against processes, one panel a direction."""
    found = []
    for number, direction in enumerate(dict.fromkeys(cell.factors.get("direction") for cell in cells), 1):
        here = [cell for cell in cells if cell.factors.get("direction") == direction and "processes" in cell.factors]
        if len({cell.factors["processes"] for cell in here}) < 2:
            continue
        ours = _series(((key_of(cell), cell.rate_bit_per_s) for cell in here), published=False)
        theirs = _series(
            ((key, rate * about.scale) for key, rate in published.items() if key[0] == direction), published=True
        )
        scaled = "" if about.scale == 1 else f" Published rates times the scale, {about.scale:g}."
        found.append(
            Figure(
                f"clients-{number}", f"{direction}: rate against processes", (Panel(str(direction), "processes", "rate_bit_per_s", (*ours, *theirs)),),
                f"Series: pairing, clients a machine, affinity.{scaled}",
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


def _sentence(cells: Sequence[Cell], published: Mapping[tuple[Scalar, ...], float], about: About) -> str:
    known = [cell for cell in cells if cell.rate_bit_per_s]
    if not known:
        return "No set-up was measured with all clients at work."
    parts = [
        _direction_words(direction, known) for direction in dict.fromkeys(c.factors.get("direction") for c in known)
    ]
    compared = [ratio for cell in known if (ratio := _to_published(cell, published, about.scale)) is not None]
    if compared:
        parts.append(
            f"against the {len(compared)} published cells ours are {min(compared):.2f} to {max(compared):.2f} of the printed rate"
        )
    return "; ".join(parts) + "."


def _direction_words(direction: Scalar, cells: Sequence[Cell]) -> str:
    here = sorted((c for c in cells if c.factors.get("direction") == direction), key=lambda c: c.rate_bit_per_s or 0)
    low, high = here[0], here[-1]
    what = f"{direction}: " if direction is not None else ""
    counts = ""
    if "processes" in high.factors and len({c.factors["processes"] for c in here}) > 1:
        counts = f" with {low.factors['processes']} processes and {high.factors['processes']}"
    rates = f"{_rate(low)} to {_rate(high)}{counts}"
    return f"{what}{rates}; {_limits_words(here)}"


def _limits_words(cells: Sequence[Cell]) -> str:
    said = []
    for limit in ("servers", "network", "clients"):
        found = [cell for cell in cells if _limit(cell) == limit]
        if found:
            best = max(found, key=lambda cell: cell.rate_bit_per_s or 0)
            said.append(
                f"{limit} limit {len(found)} of {len(cells)} set-ups (in the fastest {_evidence(best, limit)})"
            )
    return ", ".join(said) or "what limits is not known"


def _evidence(cell: Cell, limit: str) -> str:
    sent = f"the processes sent {cell.process_ratio or 0:.0%} of what they may"
    full = f"{cell.link} was {cell.link_ratio or 0:.0%} full"
    return {"servers": f"{sent}, which is put in", "network": full}.get(
        limit, f"{sent}, and the busiest link, {full}"
    )


def _rate(cell: Cell) -> str:
    return bit_rate(cell.rate_bit_per_s or 0.0)
