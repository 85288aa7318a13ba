"""Progress of transfers from the markers of GridFTP servers: bytes, rate, and bytes not sent again after a break."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from statistics import median

from venturi.analysis.format import format_factor_name, format_factors
from venturi.analysis.section import Column, Figure, Panel, Scalar, Series, Table
from venturi.testbed.markers import MarkerProgress

__all__ = ["progress_figure", "progress_table"]

Marked = Sequence[tuple[Mapping[str, Scalar], Sequence[MarkerProgress]]]
"""Factors of each point, and its transfers with markers."""

MAX_DRAWN = 8
"""Transfers that the figure shows: the longest one of each point, starting with the first point."""
MIN_MARKERS = 3
"""Markers that a transfer needs to be drawn. Every transfer has one at its start and one at its end."""


def progress_table(marked: Marked, varied: Sequence[str]) -> Table | None:
    """Return the data of the markers, one row for each point; None if no server sent markers."""
    rows = [(*(factors[name] for name in varied), *_cells(progress)) for factors, progress in marked if progress]
    if not rows:
        return None
    columns = (
        *(Column(name, format_factor_name(name).capitalize()) for name in varied),
        Column("marked_transfers", "Transfers with markers"),
        Column("markers", "Performance markers"),
        Column("range_markers", "Range markers"),
        Column("stripes", "Stripes, maximum"),
        Column("interval_s", "Interval of markers, median"),
        Column("least_rate_bytes_per_s", "Lowest rate between two markers"),
        Column("greatest_rate_bytes_per_s", "Highest rate"),
        Column("broken", "Interrupted transfers"),
        Column("resumed", "Resumed transfers"),
        Column("skipped_bytes", "Not sent again"),
    )
    note = (
        "Over all repetitions. The receiving server reports the received bytes to its client at the start, every five seconds, and at the end "
        "(reply 112). In mode E it also reports the stored byte ranges (reply 111). A client that resumes lists these in REST, so they are not sent again."
    )
    return Table("gridftp-markers", "Progress from the markers of the servers", columns, tuple(rows), note)


def _cells(progress: Sequence[MarkerProgress]) -> tuple[Scalar, ...]:
    # The last marker of a complete transfer comes at its end, not at the regular interval.
    regular = [one.times_s[:-1] if one.complete else one.times_s for one in progress]
    gaps = [after - before for times_s in regular for before, after in itertools.pairwise(times_s)]
    rates = [rate for one in progress if len(one.times_s) >= MIN_MARKERS for rate in _rates(one)[1]]
    return (
        len(progress),
        sum(len(one.times_s) for one in progress),
        sum(one.range_markers for one in progress),
        max(one.stripes for one in progress),
        median(gaps) if gaps else None,
        min(rates, default=None),
        max(rates, default=None),
        sum(not one.complete for one in progress),
        sum(one.skipped_bytes > 0 for one in progress),
        sum(one.skipped_bytes for one in progress),
    )


def progress_figure(marked: Marked, varied: Sequence[str]) -> Figure | None:
    """Return bytes and rates against time, for the longest transfer of each of the first points.

    None if all transfers have too few markers.
    """
    drawn = []
    for factors, progress in marked:
        longest = max(progress, key=lambda one: one.times_s[-1], default=None)
        if longest is None:
            continue
        # An interrupted and resumed transfer is drawn with all its parts, because for the user it is one transfer.
        parts = [one for one in progress if one.path == longest.path and (one.skipped_bytes > 0 or not one.complete)]
        if parts or len(longest.times_s) >= MIN_MARKERS:
            drawn += [(format_factors(factors, varied), one) for one in parts or [longest]]
    if not drawn:
        return None
    names = [f"{words}{', resumed' if one.skipped_bytes else ''}".lstrip(", ") or "transfer" for words, one in drawn]
    shown = list(zip(names, (one for _, one in drawn), strict=True))[:MAX_DRAWN]
    return Figure(
        "progress",
        "Progress of transfers, from the markers of the receiving servers",
        (
            Panel("Bytes so far", "time_s", "moved_bytes", tuple(
                Series(name, one.times_s, tuple(one.skipped_bytes + count for count in one.bytes)) for name, one in shown)),
            Panel("Rate between two markers", "time_s", "rate_bytes_per_s", tuple(
                Series(name, *_rates(one), style="steps") for name, one in shown)),
        ),
        "From the performance markers on the control connections. Time since the first marker. The longest transfer of each point. A resumed transfer starts "
        "at the bytes that had arrived before.",
    )  # fmt: skip


def _rates(one: MarkerProgress) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the start of each interval between two markers, and its rate.

    Intervals of zero length by the server's clock are omitted.
    """
    pairs = [
        (start, (after - before) / (end - start))
        for (start, end), (before, after) in zip(
            itertools.pairwise(one.times_s), itertools.pairwise(one.bytes), strict=True
        )
        if end > start
    ]
    return tuple(start for start, _ in pairs), tuple(rate for _, rate in pairs)
