"""CSV files of the tables of chapters: one each, base units in the names of the columns."""

from __future__ import annotations

import csv
import re
from collections.abc import Container, Sequence
from pathlib import Path

from venturi.analysis.chapter import Chapter, Table

__all__ = ["write_chapters"]


def write_chapters(chapters: Sequence[Chapter], home: Path, taken: Container[str] = ()) -> list[Path]:
    """Write every table of every chapter as ``NAME.csv``, its head also where it has no rows; return the paths.

    A name that is among ``taken``, or that another chapter has used, gets that of its chapter in front.
    """
    written: list[Path] = []
    for chapter in chapters:
        for table in chapter.tables:
            name = _safe(table.name)
            if name in taken or home / f"{name}.csv" in written:
                name = f"{_safe(chapter.name)}-{name}"
            written.append(_write(home / f"{name}.csv", table))
    return written


def _safe(name: str) -> str:
    return re.sub(r"[^\w.-]", "-", name)


def _write(path: Path, table: Table) -> Path:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([column.name for column in table.columns])
        writer.writerows(["" if cell is None else cell for cell in row] for row in table.rows)
    return path
