"""Progress of transfers by the markers of GridFTP servers: bytes and rate in time, and what was not sent again after a break."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from statistics import median

from venturi.analysis.chapter import Column, Figure, Panel, Scalar, Series, Table
from venturi.analysis.words import describe, factor_name
from venturi.testbed.markers import Progress

__all__ = ["progress_figure", "progress_table"]

Marked = Sequence[tuple[Mapping[str, Scalar], Sequence[Progress]]]
"""Factors of each point, and its transfers with markers."""

MOST_DRAWN = 8
"""Transfers that are drawn: the longest of each point, and of the points the first."""
_TELLING = 3
"""Markers from which a transfer is drawn: one has them at its begin and its end anyway."""


def progress_table(marked: Marked, varied: Sequence[str]) -> Table | None:
    """Return what markers told, a row a point; None where no server sent any."""
    rows = [(*(factors[name] for name in varied), *_cells(told)) for factors, told in marked if told]
    if not rows:
        return None
    columns = (
        *(Column(name, factor_name(name).capitalize()) for name in varied),
        Column("marked_transfers", "Transfers with markers"),
        Column("markers", "Performance markers"),
        Column("range_markers", "Range markers"),
        Column("stripes", "Stripes, at most"),
        Column("interval_s", "Between markers, median"),
        Column("least_rate_bytes_per_s", "Least rate between two"),
        Column("greatest_rate_bytes_per_s", "Greatest"),
        Column("broken", "Transfers that broke"),
        Column("resumed", "Taken up where they stopped"),
        Column("skipped_bytes", "Not sent again"),
    )
    note = (
        "Of all repetitions. The server that receives tells its client every five seconds, at the begin and at the end how much has come "
        "(112), and which ranges are safe (111), in mode E. Where a client begins again it names these (REST), and they are not sent again."
    )
    return Table("gridftp-markers", "Progress by the servers' markers", columns, tuple(rows), note)


def _cells(told: Sequence[Progress]) -> tuple[Scalar, ...]:
    # The last marker of a whole transfer comes with its end, whenever that is.
    regular = [one.times_s[:-1] if one.complete else one.times_s for one in told]
    gaps = [after - before for times_s in regular for before, after in itertools.pairwise(times_s)]
    rates = [rate for one in told if len(one.times_s) >= _TELLING for rate in _rates(one)[1]]
    return (
        len(told),
        sum(len(one.times_s) for one in told),
        sum(one.range_markers for one in told),
        max(one.stripes for one in told),
        median(gaps) if gaps else None,
        min(rates, default=None),
        max(rates, default=None),
        sum(not one.complete for one in told),
        sum(one.skipped_bytes > 0 for one in told),
        sum(one.skipped_bytes for one in told),
    )


def progress_figure(marked: Marked, varied: Sequence[str]) -> Figure | None:
    """Return bytes and rates in time of the longest transfer of each of the first points; None if all were over at the second marker."""
    drawn = []
    for factors, told in marked:
        longest = max(told, key=lambda one: one.times_s[-1], default=None)
        if longest is None:
            continue
        # What broke off and was taken up is one transfer to whoever waits for it.
        parts = [one for one in told if one.path == longest.path and (one.skipped_bytes > 0 or not one.complete)]
        if parts or len(longest.times_s) >= _TELLING:
            drawn += [(describe(factors, varied), one) for one in parts or [longest]]
    if not drawn:
        return None
    names = [f"{words}{', taken up' if one.skipped_bytes else ''}".lstrip(", ") or "transfer" for words, one in drawn]
    shown = list(zip(names, (one for _, one in drawn), strict=True))[:MOST_DRAWN]
    return Figure(
        "progress",
        "Progress of transfers, as the receiving servers told it",
        (
            Panel("Bytes so far", "time_s", "moved_bytes", tuple(
                Series(name, one.times_s, tuple(one.skipped_bytes + count for count in one.bytes)) for name, one in shown)),
            Panel("Rate between two markers", "time_s", "rate_bytes_per_s", tuple(
                Series(name, *_rates(one), style="steps") for name, one in shown)),
        ),
        "By the performance markers on the control channels, from the first one; of each point the transfer that took longest. One that was taken up "
        "begins at what had arrived before.",
    )  # fmt: skip


def _rates(one: Progress) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the begin of each stretch between two markers, and its rate; one of no time, by the server's clock, is left out."""
    pairs = [
        (begin, (after - before) / (end - begin))
        for (begin, end), (before, after) in zip(
            itertools.pairwise(one.times_s), itertools.pairwise(one.bytes), strict=True
        )
        if end > begin
    ]
    return tuple(begin for begin, _ in pairs), tuple(rate for _, rate in pairs)
