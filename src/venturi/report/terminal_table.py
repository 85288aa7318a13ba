"""Style of terminal tables."""

from __future__ import annotations

from rich import box
from rich.table import Table
from rich.text import Text

__all__ = ["MAX_ROWS", "SHORT_NAMES", "new_table"]

MAX_ROWS = 30
"""Maximum rows. The page and the CSV tables have all."""

SHORT_NAMES = {"files": "files", "size_bytes": "size", "streams": "streams", "destination": "dest."}
"""Short column headings of common factors, for 80 columns."""


def new_table(title: str) -> Table:
    """Return an empty table with this title ("" for none), a line below the heading and no frame."""
    return Table(
        # Text: a path in brackets is not a style of rich.
        title=Text(title, "bold") if title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1),
        caption_justify="left",
    )
