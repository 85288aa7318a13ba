"""What a kind of experiment says beyond throughput against files and sizes: tables and figures as plain data.

A chapter is made by one function in :mod:`venturi.analysis.chapters` and shown by :mod:`venturi.report` without
knowing what it is about: in the terminal, on the page, as CSV and as JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Band", "Chapter", "Column", "Figure", "Message", "Panel", "Scalar", "Sequence", "Series", "Table"]

Scalar = str | int | float | bool | None
"""A cell. None: it was not measured."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    name
        As in CSV, JSON and claims, its unit as the last part: ``rate_bytes_per_s``, ``wall_s``, ``rate_bit_per_s``, ``size_bytes``; a share of
        one as ``…_ratio``; a count or a text without.
    title
        For people, without a unit: values are shown with theirs.
    published
        Whether it holds what a report printed.
    """

    name: str
    title: str
    published: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells, one a column each; ``name`` is unique in the run (``squid-rates``) and names the CSV file."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Scalar, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Series:
    """Points of one curve or one set of bars, ``x`` and ``y`` of one length; of bars ``x`` may be texts.

    Attributes
    ----------
    low, high
        Ends of an interval around each ``y``, or empty; what they are says the caption.
    published
        Whether it is what a report printed.
    """

    name: str
    x: tuple[float | str, ...]
    y: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    style: Literal["line", "points", "steps", "bars"] = "line"
    published: bool = False


@dataclass(frozen=True)
class Band:
    """A stretch of the x axis with a word for it, such as the slice that a mean is taken over."""

    low: float
    high: float
    text: str


@dataclass(frozen=True)
class Panel:
    """Axes. ``x`` and ``y`` are named as columns are, so that the last part tells the unit: ``time_s``, ``rate_bit_per_s``.

    The x axis is marked at the values where something was measured, or with ``round_x`` at round ones.
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
    """Panels beside each other; ``source`` tells what it redraws (``"002, figure 1"``), ``name`` names the picture."""

    name: str
    title: str
    panels: tuple[Panel, ...]
    caption: str
    source: str = ""


@dataclass(frozen=True)
class Message:
    """Something that one party said to another."""

    time_s: float
    sender: str
    receiver: str
    text: str


@dataclass(frozen=True)
class Sequence:
    """A message sequence diagram: time runs down, parties stand in the order given."""

    name: str
    title: str
    parties: tuple[str, ...]
    messages: tuple[Message, ...]
    caption: str
    source: str = ""


@dataclass(frozen=True)
class Chapter:
    """A part of a report.

    Attributes
    ----------
    name, title
        For links, and for people.
    sentence
        What it comes to, with the numbers that matter.
    note
        What has to be known to read it, such as what was put in; it is no part of the answer.
    """

    name: str
    title: str
    sentence: str
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    sequences: tuple[Sequence, ...] = ()
    note: str = ""
