"""Counters of the links of an emulated network: over the run, in time, and during the trials of each point.

The counters are cumulative, except ``queue_high_bytes``, which is the maximum of the queue since the previous sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from venturi.analysis.link_rates import LinkRates
from venturi.analysis.result import PointResult, Trials
from venturi.analysis.result_lab import LinkSeries, LinkUse
from venturi.analysis.series import BINS, MAX_GAP
from venturi.analysis.values import FloatArray, IntArray
from venturi.run import Run

__all__ = ["busiest", "link_counters", "link_series", "link_use"]

MAX_LINKS = 4
"""Maximum number of links in a figure: the busiest links."""
MIN_SHOWN_FRACTION = 0.05
"""Minimum bytes of a displayed link, relative to the busiest link. Below it, a link carries acknowledgements."""
FULL_QUANTILE = 0.9
"""Quantile of the sampling intervals of a trial that estimates the traffic of a link while bytes flowed."""


def link_counters(run: Run) -> dict[str, dict[str, float]]:
    """Return link → counter → growth over the run (maximum for the queue).

    A decreasing counter belongs to a new network of a resumed run, so it counts from zero.
    """
    rows = run.query(
        """SELECT counter, max(value) AS high,
                  sum(CASE WHEN grown IS NULL THEN 0 WHEN grown < 0 THEN value ELSE grown END) AS total
           FROM (SELECT counter, value, value - lag(value) OVER (PARTITION BY counter ORDER BY time_s) AS grown
                 FROM samples WHERE counter LIKE 'link.%')
           GROUP BY counter ORDER BY counter"""
    )
    found: dict[str, dict[str, float]] = {}
    for index, counter in enumerate(rows["counter"]):
        name, _, what = str(counter).removeprefix("link.").rpartition(".")
        value = rows["high" if what == "queue_high_bytes" else "total"][index]
        found.setdefault(name, {})[what] = float(value)
    return found


def busiest(counters: Mapping[str, Mapping[str, float]]) -> tuple[str, ...]:
    """Return the links with the most bytes, at most :data:`MAX_LINKS`."""
    by_bytes = sorted(counters, key=lambda name: -counters[name].get("bytes", 0.0))
    most = counters[by_bytes[0]].get("bytes", 0.0) if by_bytes else 0.0
    return tuple(
        name for name in by_bytes[:MAX_LINKS] if most > 0 and counters[name]["bytes"] >= MIN_SHOWN_FRACTION * most
    )


def link_series(run: Run, names: Sequence[str], rates: Mapping[str, float | None]) -> tuple[LinkSeries, ...]:
    """Return the links in time, in the order of ``names``."""
    if not names:
        return ()
    ends = run.query("SELECT min(time_s) AS first, max(time_s) AS last FROM samples WHERE counter LIKE 'link.%'")
    first, last = float(ends["first"][0]), float(ends["last"][0])
    if not last > first:
        return ()
    rows = run.query(
        _BINNED,
        {"names": list(names), "first": first, "width": (last - first) / BINS, "bins": BINS, "gap": MAX_GAP},
    )
    width = (last - first) / BINS
    found = []
    for name in names:
        own = rows["link"] == name
        if own.any():
            column = {key: np.asarray(rows[key][own], dtype=np.float64) for key in _SHOWN}
            time_s = first + (rows["bin"][own].astype(np.float64) + 0.5) * width
            found.append(LinkSeries(name, rates.get(name), time_s, *(column[key] for key in _SHOWN)))
    return tuple(found)


_SHOWN = ("low", "mean", "high", "queue", "drops")
_MOMENTS = """moments AS (
        SELECT regexp_extract(counter, '^link\\.(.*)\\.[a-z_]+$', 1) AS link, time_s,
               max(value) FILTER (suffix(counter, '.bytes')) AS carried,
               max(value) FILTER (suffix(counter, '.queue_high_bytes')) AS queue,
               sum(value) FILTER (suffix(counter, '_drops')) AS dropped
        FROM samples WHERE counter LIKE 'link.%' GROUP BY ALL),
    steps AS (
        SELECT link, time_s, queue, time_s - lag(time_s) OVER w AS dt, carried - lag(carried) OVER w AS carried,
               dropped - lag(dropped) OVER w AS dropped
        FROM moments WHERE list_contains($names::VARCHAR[], link) WINDOW w AS (PARTITION BY link ORDER BY time_s))"""
_BINNED = f"""WITH {_MOMENTS}
    SELECT link, least(floor((time_s - dt / 2 - $first) / $width), $bins - 1)::INTEGER AS bin, min(carried / dt) AS low,
           sum(carried) / sum(dt) AS mean, max(carried / dt) AS high, max(queue) AS queue, sum(dropped) / sum(dt) AS drops
    FROM steps WHERE dt > 0 AND carried >= 0 AND dt < $gap * (SELECT median(dt) FROM steps WHERE dt > 0)
    GROUP BY ALL ORDER BY ALL"""
_BY_TRIAL = f"""WITH {_MOMENTS},
    windows AS (
        SELECT position, min(start_s) AS start_s, max(end_s) AS end_s FROM transfers
        WHERE outcome = 'ok' AND point IS NOT NULL AND duration_s > 0 GROUP BY position)
    SELECT link, w.position AS position, sum(carried) / sum(dt) AS mean, sum(dropped) AS drops,
           quantile_cont(carried / dt, {FULL_QUANTILE}) AS high
    FROM steps s ASOF JOIN windows w ON s.time_s - dt / 2 >= w.start_s
    WHERE dt > 0 AND carried >= 0 AND s.time_s - dt / 2 < w.end_s GROUP BY ALL HAVING count(*) >= 3 ORDER BY ALL"""


def link_use(
    run: Run, names: Sequence[str], rates: LinkRates, points: Sequence[PointResult], trials: Trials
) -> tuple[LinkUse, ...]:
    """Return the load of each link by point. Trials with fewer than three sampling intervals are excluded."""
    if not names:
        return ()
    rows = run.query(_BY_TRIAL, {"names": list(names)})
    point_of = dict(zip(trials.position.tolist(), trials.point.tolist(), strict=True))
    point = np.array([point_of.get(int(position), -1) for position in rows["position"]], dtype=np.int64)
    found = []
    for one in points:
        for name in names:
            own = (point == one.point) & (rows["link"] == name)
            if own.any():
                found.append(_use(one, name, _rate_in_force(name, rates, trials, rows["position"][own]), rows, own))
    return tuple(found)


def _rate_in_force(name: str, rates: LinkRates, trials: Trials, positions: IntArray) -> float | None:
    """Return the mean over trials of the highest link rate in each trial."""
    own = np.isin(trials.position, np.asarray(positions, dtype=np.int64))
    found = [
        rates.highest(name, start, end) for start, end in zip(trials.start_s[own], trials.end_s[own], strict=True)
    ]
    known = [rate for rate in found if rate is not None]
    return float(np.mean(known)) if known else None


def _use(point: PointResult, name: str, rate: float | None, rows: Mapping[str, FloatArray], own: IntArray) -> LinkUse:
    full = 8 * rows["high"][own]
    return LinkUse(
        point=point.point,
        factors=point.factors,
        link=name,
        trials=len(full),
        mean_bit_per_s=8 * float(rows["mean"][own].mean()),
        full_bit_per_s=float(full.mean()),
        full_error_bit_per_s=float(full.std(ddof=1) / np.sqrt(len(full))) if len(full) > 1 else None,
        rate_bit_per_s=rate,
        drops=float(np.nansum(rows["drops"][own])),
    )
