"""Chapters on the terminal: the sentence, then tables that fit."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from venturi.analysis.chapter import Chapter, Column, Table
from venturi.analysis.quantity import column_is_text, quantity_text
from venturi.analysis.words import plural
from venturi.report.terminal_table import MOST_ROWS, new_table

__all__ = ["chapter_parts"]

WIDEST = 78
"""Columns of a terminal that a table may need before its last columns are left to the other forms."""
FEWEST = 3
"""Columns of a table that are shown however wide they are."""
LONGEST_CELL = 24
"""Letters of a cell that count for the width; longer ones are folded."""


def chapter_parts(chapter: Chapter) -> list[RenderableType]:
    """Return a chapter: title, sentence and tables, cut to what a terminal of 80 columns can show."""
    said = [Text(words) for words in (chapter.sentence, chapter.note) if words]
    parts: list[RenderableType] = [Text(chapter.title, style="bold"), *said, Text()]
    for table in chapter.tables:
        if table.rows:
            parts += [*_table(table), Text()]
    return parts


def _table(table: Table) -> list[RenderableType]:
    """Return title, table and note, each on lines of its own: a narrow table would fold them."""
    rows = table.rows[:MOST_ROWS]
    cells = [[quantity_text(c.name, row[i]) for row in rows] for i, c in enumerate(table.columns)]
    shown = _fitting(table.columns, cells)
    drawn = new_table("")
    for place in shown:
        column = table.columns[place]
        left = column_is_text(column, [row[place] for row in rows])
        drawn.add_column(_head(column), justify="left" if left else "right", overflow="fold")
    for number in range(len(rows)):
        drawn.add_row(*(cells[place][number] for place in shown))
    return [Text(table.title, style="bold"), drawn, *(Text(line, style="dim") for line in _notes(table, shown))]


def _head(column: Column) -> str:
    return (
        f"{column.title}, published" if column.published and "publish" not in column.title.lower() else column.title
    )


def _fitting(columns: tuple[Column, ...], cells: list[list[str]]) -> list[int]:
    """Return the columns that fit beside each other, in their order: the first ones, a word of a head folded at blanks."""
    shown: list[int] = []
    used = 0
    for place, column in enumerate(columns):
        longest_word = max(map(len, _head(column).split()), default=1)
        widest = max((min(len(cell), LONGEST_CELL) for cell in cells[place]), default=1)
        used += max(longest_word, widest) + 3
        if used > WIDEST and len(shown) >= FEWEST:
            break
        shown.append(place)
    return shown


def _notes(table: Table, shown: list[int]) -> list[str]:
    more = [table.note] if table.note else []
    if len(shown) < len(table.columns):
        names = ", ".join(_head(column) for column in table.columns[len(shown) :])
        more.append(
            f"{plural(len(table.columns) - len(shown), 'more column')} in the page and {table.name}.csv: {names}"
        )
    if len(table.rows) > MOST_ROWS:
        more.append(f"{plural(len(table.rows) - MOST_ROWS, 'more row')} in the page and {table.name}.csv")
    return more
