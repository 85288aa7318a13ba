r"""Arrival times of the bytes of flows, from the records of transfers and the counters of links.

A transfer record has a start, an end and a number of bytes. Bytes are spread evenly between them. In overload, the rate
of a transfer changes while it runs, so the even spread shifts bytes by up to a fifth of a rate. If links have byte
counters, the spread is fitted to them by iterative proportional fitting. Each pass scales the bytes of the flows of a
link in each interval to its counter, then the bytes of each flow to its total. Source: Deming and Stephan, *Annals of
Mathematical Statistics* 11 (1940).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from venturi.analysis.values import FloatArray, IntArray
from venturi.run import Run

__all__ = ["EVENLY", "LINKS", "FlowBytes", "fit_to_links", "spread_evenly"]

EVENLY = "spread evenly over each transfer"
LINKS = "timed by the byte counters of links"

PASSES = 50
"""Maximum number of passes of the fit. A tree of links needs fewer than ten."""
CLOSE = 1e-4
"""Relative change of a pass below which the fit ends."""
MAX_CELLS = 2_000_000
"""Maximum number of flows times intervals for a fit."""
RATIO = (0.8, 1.02)
"""File data divided by the bytes of a link. Outside, the link has other traffic, or its counter lacks bytes."""
MIN_SAMPLES = 2
"""Minimum number of samples per interval, so that the interpolation of a counter is good."""


@dataclass(frozen=True, slots=True)
class FlowBytes:
    """Cumulative bytes of flows, shape (flows, edges), and how their times were obtained."""

    total: FloatArray
    times: str


def spread_evenly(
    flow: IntArray, start_s: FloatArray, end_s: FloatArray, size_bytes: FloatArray, edges_s: FloatArray, flows: int
) -> FloatArray:
    """Return the bytes of each flow until each edge, shape (flows, edges).

    Parameters
    ----------
    flow, start_s, end_s, size_bytes
        Number of the flow, times and bytes of each transfer. Without a duration, all bytes arrive at the end.

    Examples
    --------
    >>> spread_evenly(np.array([0]), np.array([0.0]), np.array([4.0]), np.array([8.0]), np.array([1.0, 2.0, 9.0]), 1).tolist()
    [[2.0, 4.0, 8.0]]
    """
    took_s = end_s - start_s
    safe_s = np.where(took_s > 0, took_s, 1.0)
    found = np.empty((flows, len(edges_s)))
    for number, edge in enumerate(edges_s):
        part = np.where(took_s > 0, np.clip((edge - start_s) / safe_s, 0.0, 1.0), edge >= end_s)
        found[:, number] = np.bincount(flow, weights=part * size_bytes, minlength=flows)
    return found


def fit_to_links(run: Run, even: FloatArray, edges_s: FloatArray, routes: Sequence[tuple[str, ...]]) -> FlowBytes:
    """Return the bytes of flows with their times from the counters of links, or evenly without usable counters.

    A link is usable if its samples cover the time, and if the file data of its flows are most of its bytes.

    Parameters
    ----------
    even
        Bytes of each flow until each edge, evenly spread, shape (flows, edges).
    routes
        Links of each flow; empty if unknown.
    """
    flows, edges = even.shape
    by_link: dict[str, list[int]] = {}
    for number, links in enumerate(routes):
        for link in links:
            by_link.setdefault(link, []).append(number)
    if edges < MIN_SAMPLES or not by_link or flows * edges > MAX_CELLS:
        return FlowBytes(even, EVENLY)
    bytes_ = np.diff(even, axis=1)
    totals = bytes_.sum(axis=1)
    targets: list[tuple[npt.NDArray[np.int64], FloatArray]] = []
    covered: set[int] = set()
    until_s = float(edges_s[int(np.argmax(even.sum(axis=0)))])
    for link, counted in _counters(run, tuple(by_link), edges_s, until_s).items():
        own = np.array(by_link[link])
        data, wire = float(totals[own].sum()), float(counted.sum())
        if wire > 0 and RATIO[0] <= data / wire <= RATIO[1]:
            targets.append((own, counted * data / wire))
            covered.update(by_link[link])
    if not targets or any(number not in covered for number in np.flatnonzero(totals > 0)):
        return FlowBytes(even, EVENLY)
    for _ in range(PASSES):
        before = bytes_.copy()
        for own, target in targets:
            sums = bytes_[own].sum(axis=0)
            bytes_[own] *= np.divide(target, sums, out=np.ones_like(sums), where=sums > 0)
        sums = bytes_.sum(axis=1)
        bytes_ *= np.divide(totals, sums, out=np.ones_like(sums), where=sums > 0)[:, None]
        if float(np.abs(bytes_ - before).max(initial=0.0)) <= CLOSE * float(bytes_.max(initial=0.0)):
            break
    start = even[:, :1]
    return FlowBytes(np.concatenate((start, start + np.cumsum(bytes_, axis=1)), axis=1), LINKS)


def _counters(run: Run, links: Sequence[str], edges_s: FloatArray, until_s: float) -> Mapping[str, FloatArray]:
    """Return link → bytes in each interval, for the links with enough samples until the interval of the last byte."""
    rows = run.query(
        """SELECT counter, list(time_s ORDER BY time_s) AS time_s, list(value ORDER BY time_s) AS value FROM samples
           WHERE list_contains($names::VARCHAR[], counter) GROUP BY counter ORDER BY counter""",
        {"names": [f"link.{link}.bytes" for link in links]},
    )
    found = {}
    for name, times, values in zip(rows["counter"], rows["time_s"], rows["value"], strict=True):
        time_s, value = np.asarray(times, dtype=np.float64), np.asarray(values, dtype=np.float64)
        width_s = float(np.diff(edges_s).min())
        inside = np.diff(time_s[(time_s >= edges_s[0] - width_s) & (time_s <= until_s + width_s)])
        whole = time_s[0] <= edges_s[0] + width_s / MIN_SAMPLES and time_s[-1] >= until_s - width_s
        if not whole or float(inside.max(initial=np.inf if not len(inside) else 0.0)) > width_s / MIN_SAMPLES:
            continue
        if (np.diff(value) >= 0).all():  # A counter that fell was reset by another session.
            found[str(name).removeprefix("link.").removesuffix(".bytes")] = np.diff(np.interp(edges_s, time_s, value))
    return found
