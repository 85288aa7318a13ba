"""Tables and figures of a report section, as plain data.

A section covers one kind of experiment, beyond throughput against files and sizes. One function in
:mod:`venturi.analysis.sections` creates it. :mod:`venturi.report` displays any section in the terminal, on the page, as
CSV and as JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = [
    "Band",
    "Column",
    "Figure",
    "HeatMap",
    "Message",
    "Panel",
    "ReportSection",
    "Scalar",
    "Sequence",
    "Series",
    "Table",
]

Scalar = str | int | float | bool | None
"""A cell. None if it was not measured."""


@dataclass(frozen=True)
class Column:
    """Column of a table.

    Attributes
    ----------
    name
        Name in CSV, JSON and claims, with the unit as its last part: ``rate_bytes_per_s``, ``rate_bit_per_s``,
        ``wall_s``, ``size_bytes``. A fraction ends with ``_ratio``. A count or a text has no unit.
    title
        Title for readers, without a unit, because values are displayed with their units.
    published
        True if it holds values printed in a report.
    """

    name: str
    title: str
    published: bool = False


@dataclass(frozen=True)
class Table:
    """Rows with one cell per column.

    ``name`` is unique in the run (``squid-rates``) and names the CSV file. ``max_shown`` limits the rows of the page. CSV and
    JSON have all.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Scalar, ...], ...]
    note: str = ""
    max_shown: int | None = None


@dataclass(frozen=True)
class Series:
    """Points of one curve or one set of bars. ``x`` and ``y`` have the same length.

    Attributes
    ----------
    x
        Positions. Texts are allowed for bars.
    low, high
        Ends of an interval around each ``y``, or empty. The caption defines the interval.
    published
        True if it holds values printed in a report.
    """

    name: str
    x: tuple[float | str, ...]
    y: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    style: Literal["line", "dashes", "points", "steps", "bars"] = "line"
    published: bool = False


@dataclass(frozen=True)
class Band:
    """Part of the x axis with a label, such as the slice of a mean."""

    low: float
    high: float
    text: str


@dataclass(frozen=True)
class Panel:
    """Axes with their series.

    ``x`` and ``y`` have names like columns, with the unit as the last part: ``time_s``, ``rate_bit_per_s``. Ticks of
    the x axis are at measured values, or at round values with ``round_x``.
    """

    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    x_log: bool = False
    y_log: bool = False
    bands: tuple[Band, ...] = ()
    round_x: bool = False


@dataclass(frozen=True)
class Figure:
    """Panels next to each other.

    ``source`` names the redrawn figure (``"002, figure 1"``), and ``name`` names the image.
    """

    name: str
    title: str
    panels: tuple[Panel, ...]
    caption: str
    source: str = ""


@dataclass(frozen=True)
class HeatMap:
    """Ratios from 0 to 1 for pairs of a row (source) and a column (destination).

    ``values`` has (row, column, ratio). ``name`` names the image.
    """

    name: str
    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[str, str, float], ...]
    caption: str


@dataclass(frozen=True)
class Message:
    """Message from one party to another."""

    time_s: float
    sender: str
    receiver: str
    text: str


@dataclass(frozen=True)
class Sequence:
    """Message sequence diagram. Time runs downwards, and the parties have the given order."""

    name: str
    title: str
    parties: tuple[str, ...]
    messages: tuple[Message, ...]
    caption: str
    source: str = ""


@dataclass(frozen=True)
class ReportSection:
    """Part of a report.

    Attributes
    ----------
    name, title
        Name for links, and title for readers.
    sentence
        Result with the numbers that matter.
    note
        Information that a reader needs, such as the inputs. It is not part of the result.
    headline
        Quantity of the workload in at most 17 words, for the headline of the report. Empty if another section has it. Its
        parts after a semicolon can be left out.
    """

    name: str
    title: str
    sentence: str
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    sequences: tuple[Sequence, ...] = ()
    note: str = ""
    headline: str = ""
    heat_maps: tuple[HeatMap, ...] = ()
