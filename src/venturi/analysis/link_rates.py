"""Rates of links in time: the planned rate, and each change of a link during the run (``[[testbed.change]]``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from venturi.run import Run

__all__ = ["LinkRates", "change_times", "link_rates", "rate_changes"]


@dataclass(frozen=True, slots=True)
class LinkRates:
    """Rate of each link in bit/s as steps in time.

    Attributes
    ----------
    steps
        Link → (start of the step in s, rate), ascending. The first step starts with the run. Links without a rate are
        absent.
    """

    steps: Mapping[str, tuple[tuple[float, float], ...]]

    def at(self, link: str, time_s: float) -> float | None:
        """Return the rate at a time, or None if the link has no rate."""
        rates = [rate for start_s, rate in self.steps.get(link, ()) if start_s <= time_s]
        return rates[-1] if rates else None

    def highest(self, link: str, start_s: float, end_s: float) -> float | None:
        """Return the highest rate within a window, or None if the link has no rate."""
        first = self.at(link, start_s)
        later = [rate for time_s, rate in self.steps.get(link, ()) if start_s < time_s < end_s]
        return None if first is None else max(first, *later) if later else first

    def mean(self, link: str, start_s: float, end_s: float) -> float | None:
        """Return the mean rate over a window, or None if the link has no rate."""
        first = self.at(link, start_s)
        if first is None or not end_s > start_s:
            return first
        inside = [(time_s, rate) for time_s, rate in self.steps[link] if start_s < time_s < end_s]
        edges = [(start_s, first), *inside, (end_s, 0.0)]
        return sum(rate * (until - since) for (since, rate), (until, _) in pairwise(edges)) / (end_s - start_s)


def link_rates(run: Run) -> LinkRates:
    """Return the rates of the links of a run. The result is empty without a network."""
    links = (run.header.get("network") or {}).get("links") or {}
    steps = {
        str(name): [(float("-inf"), float(link["rate_bit_per_s"]))]
        for name, link in links.items()
        if link.get("rate_bit_per_s")
    }
    for time_s, link, rate in rate_changes(run):
        if link in steps:
            steps[link].append((time_s, rate))
    return LinkRates({name: tuple(own) for name, own in steps.items()})


def rate_changes(run: Run) -> list[tuple[float, str, float]]:
    """Return (time in s, link, new rate in bit/s) of each change of a rate.

    Recorded changes take precedence over planned changes. The times of a plan count from the start of the work, which
    is later than the start of the run.
    """
    rows = run.query(
        """SELECT time_s, detail->>'link' AS link, (detail->'set'->>'rate_bit_per_s')::DOUBLE AS rate FROM events
           WHERE kind = 'network-change' AND (detail->'set'->>'rate_bit_per_s') IS NOT NULL ORDER BY time_s"""
    )
    seen = [(float(at), str(link), float(rate)) for at, link, rate in zip(*rows.values(), strict=True)]
    return seen or [
        (float(change["time_s"]), str(change["link"]), float(change["set"]["rate_bit_per_s"]))
        for change in _planned(run)
        if "rate_bit_per_s" in change["set"]
    ]


def change_times(run: Run) -> tuple[float, ...]:
    """Return the times in s of all link changes, ascending."""
    rows = run.query("SELECT DISTINCT time_s FROM events WHERE kind = 'network-change' ORDER BY time_s")
    seen = tuple(float(at) for at in rows["time_s"])
    return seen or tuple(sorted({float(change["time_s"]) for change in _planned(run)}))


def _planned(run: Run) -> Sequence[Mapping[str, Any]]:
    return (run.header.get("network") or {}).get("changes") or ()
