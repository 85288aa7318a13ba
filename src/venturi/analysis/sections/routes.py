"""Transfers counted by route (``measure.transfers = "routes"``), which show whether the network sustains the requested load.

The section has rates, durations and delays by flow and between groups of sites, full links with their times, and
bottlenecks. The *delay* of a transfer is its duration minus the duration of the same transfer without other traffic.
*Slowdown* is the ratio of the two. A link is *full* in a sampling interval with a use of at least :data:`FULL`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from venturi.analysis.format import format_sentences
from venturi.analysis.links import busiest, link_counters
from venturi.analysis.result import About
from venturi.analysis.section import Column, Figure, Panel, ReportSection, Scalar, Series, Table
from venturi.analysis.sketches import quantiles, values_and_counts
from venturi.analysis.values import FloatArray, IntArray
from venturi.run import Run
from venturi.units import BITS_PER_BYTE, format_bit_rate, format_bytes, format_duration

__all__ = ["FULL", "limit_use", "routes_section"]

FULL = 0.95
"""Minimum use of a full link; the rest is lost at the ends of an interval."""
MAX_ROWS = 20
"""Maximum number of routes, links and bottlenecks in a table, the most important first."""
MAX_GROUPS = 40
"""Maximum number of pairs of site groups for a table by groups."""
BINS = 400
"""Points of a figure against time."""
_QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True)
class _Routes:
    """Table ``routes``, one array for each column, with its sketches as buckets."""

    columns: Mapping[str, Any]
    value_s: FloatArray
    count: IntArray
    route: IntArray

    def summary(self, chosen: Any, span_s: float) -> tuple[Scalar, ...]:  # noqa: ANN401 - a mask or indices
        """Return the cells of the columns after the name, for some routes."""
        mask = np.zeros(len(self.columns["transfers"]), dtype=bool)
        mask[chosen] = True
        own = mask[self.route]
        alone = self.columns["unloaded_s"][self.route[own]]
        known = np.isfinite(alone) & (alone > 0)
        took = quantiles(self.value_s[own], self.count[own], _QUANTILES)
        slowdown = quantiles(self.value_s[own][known] / alone[known], self.count[own][known], _QUANTILES[1:])
        number = float(self.columns["transfers"][mask].sum())
        late = self.columns["duration_s"] - self.columns["transfers"] * self.columns["unloaded_s"]
        moved = float(np.nansum(self.columns["received_bytes"][mask]))
        ok = float(self.columns["ok"][mask].sum())
        return (
            int(number), _or_none(ok / number if number else None), int(moved), moved * BITS_PER_BYTE / span_s if span_s else None,
            *map(_or_none, took), _or_none(float(np.nansum(late[mask])) / number if number else None), *map(_or_none, slowdown),
        )  # fmt: skip


_SUMMARY = (
    Column("transfers", "Transfers"), Column("ok_ratio", "Successful"), Column("moved_bytes", "Moved"), Column("rate_bit_per_s", "Rate"),
    Column("p50_s", "Median"), Column("p95_s", "95th percentile"), Column("p99_s", "99th percentile"),
    Column("late_s", "Mean delay"), Column("p95_stretch", "Slowdown, 95th percentile"), Column("p99_stretch", "Slowdown, 99th percentile"),
)  # fmt: skip
_SUMMARY_NOTE = (
    "Rate: mean over the whole time. Durations are accurate to 1 %, slowdowns to 2 %. Delay: duration minus the duration of the same"
    " transfer without other traffic. Slowdown: ratio of the two."
)


def routes_section(run: Run, about: About) -> ReportSection | None:
    """Return the section of a run whose transfers were counted by route, or ``None`` for another run."""
    del about
    routes = _routes(run)
    if routes is None:
        return None
    span_s = float(np.nanmax(routes.columns["end_s"]) - np.nanmin(routes.columns["start_s"]))
    whole = routes.summary(slice(None), span_s)
    links = _links_table(run)
    bottleneck = _bottleneck_table(run)
    tables = [*_by(routes, span_s), _busiest_table(routes, span_s), *([links] if links else []), bottleneck]
    sentence = _sentence(whole, span_s, routes, links, bottleneck)
    return ReportSection(
        "routes", "Sustained load", sentence, tuple(tables), tuple(_figures(run)), note=_SUMMARY_NOTE,
        headline=_headline(whole, span_s),
    )  # fmt: skip


def _routes(run: Run) -> _Routes | None:
    factors = {
        name: f'"factor_{name}"' if name in run.factors else "NULL" for name in ("flow", "source", "destination")
    }
    rows = run.query(
        f"""SELECT coalesce({factors["flow"]}::VARCHAR, mover) AS flow, coalesce({factors["source"]}::VARCHAR, source) AS source,
                   coalesce({factors["destination"]}::VARCHAR, destination) AS destination, size_bytes, transfers,
                   coalesce((outcomes->>'ok')::BIGINT, 0) AS ok, received_bytes::DOUBLE AS received_bytes, start_s, end_s, duration_s,
                   unloaded_s::DOUBLE AS unloaded_s, sketch_first, sketch_counts
            FROM routes WHERE start_s IS NOT NULL ORDER BY flow, source, destination, size_bytes"""
    )
    if not len(rows["flow"]):
        return None
    return _Routes(rows, *values_and_counts(rows["sketch_first"], list(rows["sketch_counts"])))


def _by(routes: _Routes, span_s: float) -> Iterator[Table]:
    """Yield the table by flow, and the table by groups of sites if there are groups."""
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
    if 1 < len(pairs) <= MAX_GROUPS and len(pairs) < len(flows):
        rows = tuple(
            (one, other, *routes.summary((ends[0] == one) & (ends[1] == other), span_s)) for one, other in pairs
        )
        columns = (Column("source", "From"), Column("destination", "To"), *_SUMMARY)
        note = "Sites whose names agree up to the first hyphen, such as t1 and t2, form a group."
        yield Table("routes-groups", "Groups of sites", columns, rows, note)


def _group(site: str) -> str:
    return site.partition("-")[0]


def _busiest_table(routes: _Routes, span_s: float) -> Table:
    late = routes.columns["duration_s"] - routes.columns["transfers"] * routes.columns["unloaded_s"]
    order = np.argsort(-np.nan_to_num(late), kind="stable")[:MAX_ROWS]
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
    title = "Routes with the longest total delay" + (
        f" (the first {MAX_ROWS} of {len(late):,})" if len(late) > MAX_ROWS else ""
    )
    return Table("routes-late", title, columns, rows, "Ordered by the total delay of their transfers.")


def _links_table(run: Run) -> Table | None:
    rates = {
        name: link.get("rate_bit_per_s")
        for name, link in ((run.header.get("network") or {}).get("links") or {}).items()
    }
    rows = run.query(
        """WITH steps AS (
               SELECT regexp_extract(counter, '^link\\.(.*)\\.busy_s$', 1) AS link, time_s, time_s - lag(time_s) OVER w AS dt,
                      value - lag(value) OVER w AS busy
               FROM samples WHERE counter LIKE 'link.%.busy_s' WINDOW w AS (PARTITION BY counter ORDER BY time_s))
           SELECT link, list(dt ORDER BY time_s) AS dt, list(busy ORDER BY time_s) AS busy
           FROM steps WHERE dt > 0 GROUP BY link HAVING sum(busy) > 0 ORDER BY link""",
    )
    if not len(rows["link"]):
        return None
    found: list[tuple[str, float | None, float, float, float, float]] = []
    for link, dt, busy in zip(rows["link"], rows["dt"], rows["busy"], strict=True):
        width_s = np.asarray(dt, dtype=np.float64)
        use = limit_use(np.asarray(busy, dtype=np.float64), width_s) / width_s
        mean = float(use @ width_s / width_s.sum())
        full_s = float(width_s[use >= FULL].sum())
        found.append((str(link), rates.get(str(link)), mean, float(np.quantile(use, 0.95)), float(use.max()), full_s))
    shown = tuple(sorted(found, key=lambda row: (-row[5], -row[3], row[0]))[:MAX_ROWS])
    columns = (
        Column("link", "Link"), Column("link_bit_per_s", "Rate"), Column("mean_use_ratio", "Use, mean"),
        Column("p95_use_ratio", "Use, 95th percentile"), Column("most_use_ratio", "Use, maximum"), Column("full_s", f"Time above {FULL:.0%}"),
    )  # fmt: skip
    note = (
        "Use: traffic divided by the capacity of the link, in each sampling interval. The bytes of a transfer count evenly over its"
        " duration; traffic above the capacity of an interval counts in the nearest intervals with free capacity."
    )
    return Table(
        "routes-links", f"Links with the highest use, of {len(rows['link'])} with traffic", columns, shown, note
    )


def limit_use(busy_s: FloatArray, width_s: FloatArray) -> FloatArray:
    """Return the busy time of intervals, limited to their width; the excess moves to free intervals before and after.

    Bytes are counted evenly over the duration of a transfer, so an interval can show more than its link can carry. The
    remainder is dropped only if all intervals together show more than that.

    Examples
    --------
    >>> limit_use(np.array([0.2, 1.5, 0.9]), np.ones(3)).round(3).tolist()
    [0.6, 1.0, 1.0]
    """
    excess = np.maximum(busy_s - width_s, 0.0) / 2
    limited = np.minimum(busy_s, width_s)
    if not excess.any():
        return limited
    left = _fill(limited, excess, width_s, 0.0)
    left = _fill(limited[::-1], excess[::-1], width_s[::-1], left)
    _fill(limited, np.zeros(len(limited)), width_s, left)
    return limited


def _fill(limited: FloatArray, excess: FloatArray, width_s: FloatArray, left: float) -> float:
    """Move the excess of each interval to the next free ones, in place; return the remainder at the end."""
    for index in range(len(limited)):
        left += float(excess[index])
        moved = min(left, float(width_s[index] - limited[index]))
        limited[index] += moved
        left -= moved
    return left


def _bottleneck_table(run: Run) -> Table:
    rows = run.query(
        "SELECT bottleneck, sum(duration_s) AS time_s FROM routes WHERE bottleneck IS NOT NULL GROUP BY bottleneck"
    )
    spent: dict[str, float] = {}
    for text, time_s in zip(rows["bottleneck"], rows["time_s"], strict=True):
        for name, fraction in json.loads(text).items():
            spent[name] = spent.get(name, 0.0) + float(fraction) * float(time_s)
    whole_s = sum(spent.values())
    order = sorted(spent, key=lambda name: (-spent[name], name))[:MAX_ROWS]
    columns = (
        Column("bottleneck", "Bottleneck"),
        Column("time_ratio", "Fraction of transfer time"),
        Column("time_s", "Total time"),
    )
    return Table(
        "routes-bounds", "Bottleneck", columns, tuple((name, spent[name] / whole_s, spent[name]) for name in order)
    )


def _sentence(whole: Sequence[Any], span_s: float, routes: _Routes, links: Table | None, bottleneck: Table) -> str:
    transfers, good, moved, rate, p50, p95, _, late, slowdown, _ = whole
    texts = [
        f"In {_format_long(span_s)} {transfers:,} transfers moved {format_bytes(moved)}, {format_bit_rate(rate or 0.0)} on average, over"
        f" {len(routes.columns['flow']):,} routes",
        f"the median duration was {_format_long(p50)}, the 95th percentile {_format_long(p95)}",
    ]
    if slowdown is not None:
        texts.append(f"compared with a network without other traffic, 95 % took at most {slowdown:.3g} times as long; on average, they took {_format_long(max(late or 0.0, 0.0))} longer")  # fmt: skip
    if good is not None and good < 1:
        texts.append(f"{100 * (1 - good):.3g} % of them failed")
    full = [row for row in links.rows if float(row[5] or 0.0) > 0] if links else []
    if full:
        worst = full[0]
        more = f" and {len(full) - 1} more" if len(full) > 1 else ""
        texts.append(f"full links: {worst[0]}{more}, the first for {_format_long(float(worst[5] or 0.0))}")
    elif links:
        top = max(links.rows, key=lambda row: float(row[4] or 0.0))
        texts.append(f"no link was full: the highest use was {float(top[4] or 0.0):.0%}, of {top[0]}")
    if bottleneck.rows:
        texts.append(
            f"the main bottleneck, for {float(bottleneck.rows[0][1] or 0.0):.0%} of the transfer time, was {bottleneck.rows[0][0]}"
        )
    return format_sentences(texts)


def _headline(whole: Sequence[Any], span_s: float) -> str:
    transfers, good, moved, rate, *_ = whole
    failed = "" if good is None or good == 1 else f"; {100 * (1 - good):.3g} % failed"
    return f"{format_bit_rate(rate or 0.0)} over {_format_long(span_s)}; {transfers:,} transfers moved {format_bytes(moved)}{failed}"


def _format_long(duration_s: float) -> str:
    return f"{duration_s / 86400:.3g} d" if duration_s >= 2 * 86400 else format_duration(duration_s)


def _figures(run: Run) -> Iterator[Figure]:
    """Yield the figures of transfers in progress and of the use of the busiest links, against time."""
    live = _in_time(run, "transfers.live", gauge=True)
    if live is not None:
        panel = Panel("Transfers in progress", "time_s", "transfers", (Series("mean", *live),), round_x=True)
        yield Figure(
            "routes-live", "Transfers in progress", (panel,), f"Means over intervals of at least 1/{BINS} of the run."
        )
    names = busiest(link_counters(run))
    found = [(name, _in_time(run, f"link.{name}.busy_s", gauge=False)) for name in names]
    series = tuple(Series(name, *points) for name, points in found if points is not None)
    if series:
        panel = Panel("Use of links", "time_s", "use_ratio", series, round_x=True)
        yield Figure("routes-use", "Use of the busiest links", (panel,), "Means over the same intervals.")


def _in_time(run: Run, counter: str, *, gauge: bool) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    rows = run.query(
        "SELECT time_s, value FROM samples WHERE counter = $counter ORDER BY time_s", {"counter": counter}
    )
    time_s, value = rows["time_s"].astype(np.float64), rows["value"].astype(np.float64)
    if len(time_s) < 3:
        return None
    edges = np.unique(np.linspace(0, len(time_s) - 1, min(BINS, len(time_s) - 1) + 1).astype(np.int64))
    if gauge:
        total = np.concatenate([[0.0], np.cumsum(value[:-1] * np.diff(time_s))])
    else:
        total = np.concatenate([[0.0], np.cumsum(limit_use(np.diff(value), np.diff(time_s)))])
    mean = np.diff(total[edges]) / np.diff(time_s[edges])
    middle = (time_s[edges[1:]] + time_s[edges[:-1]]) / 2
    return tuple(middle.tolist()), tuple(mean.tolist())


def _or_none(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)
