"""The look of a table on the terminal."""

from __future__ import annotations

from rich import box
from rich.table import Table

__all__ = ["MOST_ROWS", "SHORT_NAMES", "new_table"]

MOST_ROWS = 30
"""Rows listed; the page and the CSV tables have all."""

SHORT_NAMES = {"files": "files", "size_bytes": "size", "streams": "streams", "destination": "dest."}
"""Factors that head many columns, where 80 of them must do."""


def new_table(title: str) -> Table:
    """Return an empty table with this title (empty: none): one line below its head, no frame."""
    return Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
        caption_justify="left",
    )
