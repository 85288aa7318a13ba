"""Transfers that were counted by route (``measure.transfers = "routes"``): whether the network carries what is asked of it.

Rates, durations and how late transfers are by flow and between groups of sites, the links that were full and for how long, what the time of
transfers went to. *Late* is how much longer a transfer took than the same one takes while nothing else moves; *stretch* is the ratio of the two.
A link is *full* in a sampling interval in which it carried more than :data:`FULL` of what it can.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from venturi.analysis.chapter import Chapter, Column, Figure, Panel, Scalar, Series, Table
from venturi.analysis.links import busiest, link_counters
from venturi.analysis.result import About
from venturi.analysis.sketches import quantiles, values_and_counts
from venturi.analysis.values import FloatArray, IntArray
from venturi.analysis.words import bit_rate
from venturi.run import Run
from venturi.units import BITS_PER_BYTE, format_bytes, format_duration

__all__ = ["FULL", "routes_chapter"]

FULL = 0.95
"""Use of a link from which it is full: the rest is what an interval loses at its ends."""
MOST_ROWS = 20
"""Routes, links and bounds that are shown, the most important first."""
MOST_GROUPS = 40
"""Pairs of groups of sites up to which they are shown."""
BINS = 400
"""Points of a picture in time."""
_SHARES = (0.5, 0.95, 0.99)


@dataclass(frozen=True)
class _Routes:
    """The table ``routes``, an array each, with its sketches as buckets."""

    columns: Mapping[str, Any]
    value_s: FloatArray
    count: IntArray
    route: IntArray

    def summary(self, chosen: Any, span_s: float) -> tuple[Scalar, ...]:  # noqa: ANN401 - a mask or indices
        """Return what the columns after the name show of some routes."""
        mask = np.zeros(len(self.columns["transfers"]), dtype=bool)
        mask[chosen] = True
        own = mask[self.route]
        alone = self.columns["alone_s"][self.route[own]]
        known = np.isfinite(alone) & (alone > 0)
        took = quantiles(self.value_s[own], self.count[own], _SHARES)
        stretch = quantiles(self.value_s[own][known] / alone[known], self.count[own][known], _SHARES[1:])
        number = float(self.columns["transfers"][mask].sum())
        late = self.columns["duration_s"] - self.columns["transfers"] * self.columns["alone_s"]
        moved = float(np.nansum(self.columns["received_bytes"][mask]))
        ok = float(self.columns["ok"][mask].sum())
        return (
            int(number), _or_none(ok / number if number else None), int(moved), moved * BITS_PER_BYTE / span_s if span_s else None,
            *map(_or_none, took), _or_none(float(np.nansum(late[mask])) / number if number else None), *map(_or_none, stretch),
        )  # fmt: skip


_SUMMARY = (
    Column("transfers", "Transfers"), Column("ok_ratio", "Good"), Column("moved_bytes", "Moved"), Column("rate_bit_per_s", "Rate"),
    Column("p50_s", "Half take less than"), Column("p95_s", "19 of 20"), Column("p99_s", "99 of 100"),
    Column("late_s", "Late, mean"), Column("p95_stretch", "Stretch, 19 of 20"), Column("p99_stretch", "Stretch, 99 of 100"),
)  # fmt: skip
_SUMMARY_NOTE = (
    "Rate: over the whole time. Durations are right to 1 %, stretches to 2 %. Late: longer than the same transfer takes while nothing"
    " else moves; stretch: how many times as long."
)


def routes_chapter(run: Run, about: About) -> Chapter | None:
    """Return the chapter of a run whose transfers were counted by route, ``None`` for any other."""
    del about
    routes = _routes(run)
    if routes is None:
        return None
    span_s = float(np.nanmax(routes.columns["end_s"]) - np.nanmin(routes.columns["start_s"]))
    whole = routes.summary(slice(None), span_s)
    links = _links_table(run)
    bound = _bound_table(run)
    tables = [*_by(routes, span_s), _busiest_table(routes, span_s), *([links] if links else []), bound]
    sentence = _sentence(whole, span_s, routes, links, bound)
    return Chapter(
        "routes", "Does it sustain this?", sentence, tuple(tables), tuple(_figures(run)), note=_SUMMARY_NOTE
    )


def _routes(run: Run) -> _Routes | None:
    factors = {
        name: f'"factor_{name}"' if name in run.factors else "NULL" for name in ("flow", "source", "destination")
    }
    rows = run.query(
        f"""SELECT coalesce({factors["flow"]}::VARCHAR, mover) AS flow, coalesce({factors["source"]}::VARCHAR, source) AS source,
                   coalesce({factors["destination"]}::VARCHAR, destination) AS destination, size_bytes, transfers,
                   coalesce((outcomes->>'ok')::BIGINT, 0) AS ok, received_bytes::DOUBLE AS received_bytes, start_s, end_s, duration_s,
                   alone_s::DOUBLE AS alone_s, sketch_first, sketch_counts
            FROM routes WHERE start_s IS NOT NULL ORDER BY flow, source, destination, size_bytes"""
    )
    if not len(rows["flow"]):
        return None
    return _Routes(rows, *values_and_counts(rows["sketch_first"], list(rows["sketch_counts"])))


def _by(routes: _Routes, span_s: float) -> Iterator[Table]:
    """Yield the table by flow, and that by groups of sites if there are some."""
    flows = routes.columns["flow"].astype(str)
    rows = tuple((name, *routes.summary(flows == name, span_s)) for name in dict.fromkeys(flows.tolist()))
    yield Table(
        "routes-flows",
        "Flows",
        (Column("flow", "Flow"), *_SUMMARY),
        (("all", *routes.summary(slice(None), span_s)), *rows),
    )
    ends = [np.array([_group(str(name)) for name in routes.columns[end]]) for end in ("source", "destination")]
    pairs = sorted(set(zip(*(end.tolist() for end in ends), strict=True)))
    if 1 < len(pairs) <= MOST_GROUPS and len(pairs) < len(flows):
        rows = tuple(
            (one, other, *routes.summary((ends[0] == one) & (ends[1] == other), span_s)) for one, other in pairs
        )
        columns = (Column("source", "From"), Column("destination", "To"), *_SUMMARY)
        note = "Sites are of one group whose names are alike up to the first hyphen, such as t1 and t2."
        yield Table("routes-groups", "Groups of sites", columns, rows, note)


def _group(site: str) -> str:
    return site.partition("-")[0]


def _busiest_table(routes: _Routes, span_s: float) -> Table:
    late = routes.columns["duration_s"] - routes.columns["transfers"] * routes.columns["alone_s"]
    order = np.argsort(-np.nan_to_num(late), kind="stable")[:MOST_ROWS]
    named = ("flow", "source", "destination")
    rows = tuple(
        (
            *(str(routes.columns[name][one]) for name in named),
            int(routes.columns["size_bytes"][one]),
            *routes.summary([one], span_s),
        )
        for one in order
    )
    columns = (
        Column("flow", "Flow"), Column("source", "From"), Column("destination", "To"), Column("size_bytes", "Size"), *_SUMMARY,
    )  # fmt: skip
    title = "Routes that wait most" + (f" (the first {MOST_ROWS} of {len(late):,})" if len(late) > MOST_ROWS else "")
    return Table("routes-late", title, columns, rows, "By the time that all of their transfers together are late.")


def _links_table(run: Run) -> Table | None:
    rates = {
        name: link.get("rate_bit_per_s")
        for name, link in ((run.header.get("network") or {}).get("links") or {}).items()
    }
    rows = run.query(
        """WITH steps AS (
               SELECT regexp_extract(counter, '^link\\.(.*)\\.busy_s$', 1) AS link, time_s - lag(time_s) OVER w AS dt,
                      value - lag(value) OVER w AS busy
               FROM samples WHERE counter LIKE 'link.%.busy_s' WINDOW w AS (PARTITION BY counter ORDER BY time_s))
           SELECT link, sum(busy) / sum(dt) AS mean, quantile_cont(busy / dt, 0.95) AS high, max(busy / dt) AS most,
                  coalesce(sum(dt) FILTER (busy >= $full * dt), 0.0) AS full_s
           FROM steps WHERE dt > 0 GROUP BY link HAVING sum(busy) > 0 ORDER BY full_s DESC, high DESC, link""",
        {"full": FULL},
    )
    if not len(rows["link"]):
        return None
    shown = tuple(
        (
            str(rows["link"][i]),
            rates.get(str(rows["link"][i])),
            *(float(rows[name][i]) for name in ("mean", "high", "most", "full_s")),
        )
        for i in range(min(MOST_ROWS, len(rows["link"])))
    )
    columns = (
        Column("link", "Link"), Column("link_bit_per_s", "Rate"), Column("mean_use_ratio", "Use, mean"),
        Column("p95_use_ratio", "In 19 of 20 intervals below"), Column("most_use_ratio", "Highest"), Column("full_s", f"Above {FULL:.0%} for"),
    )  # fmt: skip
    note = "Use: what passed over what can, in each sampling interval."
    return Table("routes-links", f"Fullest links of {len(rows['link'])} that carried something", columns, shown, note)


def _bound_table(run: Run) -> Table:
    rows = run.query("SELECT bound, sum(duration_s) AS time_s FROM routes WHERE bound IS NOT NULL GROUP BY bound")
    spent: dict[str, float] = {}
    for text, time_s in zip(rows["bound"], rows["time_s"], strict=True):
        for name, share in json.loads(text).items():
            spent[name] = spent.get(name, 0.0) + float(share) * float(time_s)
    whole_s = sum(spent.values())
    order = sorted(spent, key=lambda name: (-spent[name], name))[:MOST_ROWS]
    columns = (
        Column("bound", "What bound"),
        Column("time_ratio", "Share of transfer time"),
        Column("time_s", "Time in all"),
    )
    return Table(
        "routes-bounds", "What bound", columns, tuple((name, spent[name] / whole_s, spent[name]) for name in order)
    )


def _sentence(whole: Sequence[Any], span_s: float, routes: _Routes, links: Table | None, bound: Table) -> str:
    transfers, good, moved, rate, p50, p95, _, late, stretch, _ = whole
    said = [
        f"In {_long(span_s)} {transfers:,} transfers moved {format_bytes(moved)}, {bit_rate(rate or 0.0)} on average, over"
        f" {len(routes.columns['flow']):,} routes; half took less than {_long(p50)}, 19 of 20 less than {_long(p95)}"
    ]
    if stretch is not None:
        said.append(f"19 of 20 take at most {stretch:.3g} times as long as while nothing else moves, and {_long(max(late or 0.0, 0.0))} longer on average")  # fmt: skip
    if good is not None and good < 1:
        said.append(f"{(1 - good):.3g} of them did not end well")
    full = [row for row in links.rows if float(row[5] or 0.0) > 0] if links else []
    if full:
        worst = full[0]
        more = f" and {len(full) - 1} more links" if len(full) > 1 else ""
        said.append(f"{worst[0]} is full for {_long(float(worst[5] or 0.0))}{more}")
    elif links:
        top = max(links.rows, key=lambda row: float(row[4] or 0.0))
        said.append(f"no link is ever full: the fullest, {top[0]}, comes to {float(top[4] or 0.0):.0%}")
    if bound.rows:
        said.append(
            f"most of the time of transfers ({float(bound.rows[0][1] or 0.0):.0%}) goes to {bound.rows[0][0]}"
        )
    return "; ".join(said)


def _long(duration_s: float) -> str:
    return f"{duration_s / 86400:.3g} d" if duration_s >= 2 * 86400 else format_duration(duration_s)


def _figures(run: Run) -> Iterator[Figure]:
    """Yield transfers under way, and the use of the busiest links, against time."""
    live = _in_time(run, "transfers.live", gauge=True)
    if live is not None:
        panel = Panel("Transfers under way", "time_s", "transfers", (Series("mean", *live),), round_x=True)
        yield Figure(
            "routes-live", "Transfers under way", (panel,), f"Means over stretches of at least a {BINS}th of the run."
        )
    names = busiest(link_counters(run))
    found = [(name, _in_time(run, f"link.{name}.busy_s", gauge=False)) for name in names]
    series = tuple(Series(name, *points) for name, points in found if points is not None)
    if series:
        panel = Panel("Use of links", "time_s", "use_ratio", series, round_x=True)
        yield Figure("routes-use", "Use of the busiest links", (panel,), "Means over the same stretches.")


def _in_time(run: Run, counter: str, *, gauge: bool) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    rows = run.query(
        "SELECT time_s, value FROM samples WHERE counter = $counter ORDER BY time_s", {"counter": counter}
    )
    time_s, value = rows["time_s"].astype(np.float64), rows["value"].astype(np.float64)
    if len(time_s) < 3:
        return None
    edges = np.unique(np.linspace(0, len(time_s) - 1, min(BINS, len(time_s) - 1) + 1).astype(np.int64))
    held = np.concatenate([[0.0], np.cumsum(value[:-1] * np.diff(time_s))]) if gauge else value
    mean = np.diff(held[edges]) / np.diff(time_s[edges])
    middle = (time_s[edges[1:]] + time_s[edges[:-1]]) / 2
    return tuple(middle.tolist()), tuple(mean.tolist())


def _or_none(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)
