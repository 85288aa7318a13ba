"""Terminal form of report sections: the sentence, then tables that fit."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table as Drawn
from rich.text import Text

from venturi.analysis.format import plural
from venturi.analysis.quantity import column_is_text, format_quantity
from venturi.analysis.section import Column, ReportSection, Table
from venturi.report.terminal_table import MAX_ROWS, new_table

__all__ = ["fitted_table", "section_parts"]

MAX_WIDTH = 78
"""Maximum width of a table, in characters. The page and the CSV files have the other columns."""
MIN_COLUMNS = 3
"""Minimum number of columns, independent of their width."""
MAX_CELL_LEN = 24
"""Maximum characters of a cell that count for the width. Longer cells are folded."""


def section_parts(section: ReportSection) -> list[RenderableType]:
    """Return the title, sentence and tables of a section, cut to 80 columns."""
    texts = [Text(text) for text in (section.sentence, section.note) if text]
    parts: list[RenderableType] = [Text(section.title, style="bold"), *texts, Text()]
    for table in section.tables:
        if table.rows:
            parts += [*_table(table), Text()]
    return parts


def _table(table: Table) -> list[RenderableType]:
    """Return title, table and notes on separate lines. A narrow table would fold them."""
    drawn, visible = fitted_table(table, MAX_ROWS)
    return [Text(table.title, style="bold"), drawn, *(Text(line, style="dim") for line in _notes(table, visible))]


def fitted_table(table: Table, max_rows: int) -> tuple[Drawn, list[int]]:
    """Return the first rows and columns of a table that fit, and the indices of these columns."""
    rows = table.rows[:max_rows]
    texts = [[format_quantity(c.name, row[i]) for row in rows] for i, c in enumerate(table.columns)]
    visible = _fitting(table.columns, texts)
    drawn = new_table("")
    for index in visible:
        column = table.columns[index]
        left = column_is_text(column, [row[index] for row in rows])
        drawn.add_column(_head(column), justify="left" if left else "right", overflow="fold")
    for number in range(len(rows)):
        drawn.add_row(*(texts[index][number] for index in visible))
    return drawn, visible


def _head(column: Column) -> str:
    return (
        f"{column.title}, published" if column.published and "publish" not in column.title.lower() else column.title
    )


def _fitting(columns: tuple[Column, ...], texts: list[list[str]]) -> list[int]:
    """Return the indices of the first columns that fit. Headings fold at spaces."""
    visible: list[int] = []
    used = 0
    for index, column in enumerate(columns):
        word_width = max(map(len, _head(column).split()), default=1)
        cell_width = max((min(len(text), MAX_CELL_LEN) for text in texts[index]), default=1)
        used += max(word_width, cell_width) + 3
        if used > MAX_WIDTH and len(visible) >= MIN_COLUMNS:
            break
        visible.append(index)
    return visible


def _notes(table: Table, visible: list[int]) -> list[str]:
    more = [table.note] if table.note else []
    if len(visible) < len(table.columns):
        names = ", ".join(_head(column) for column in table.columns[len(visible) :])
        more.append(
            f"{plural(len(table.columns) - len(visible), 'more column')} in the HTML page and {table.name}.csv: {names}"
        )
    if len(table.rows) > MAX_ROWS:
        more.append(f"{plural(len(table.rows) - MAX_ROWS, 'more row')} in the HTML page and {table.name}.csv")
    return more
