"""CSV files of the tables of report sections. Column names contain base units."""

from __future__ import annotations

import csv
import re
from collections.abc import Container, Sequence
from pathlib import Path

from venturi.analysis.section import ReportSection, Table

__all__ = ["write_sections"]


def write_sections(sections: Sequence[ReportSection], home: Path, taken: Container[str] = ()) -> list[Path]:
    """Write every table of every section as ``NAME.csv``, and return the paths.

    Tables without rows still have a heading. A name in ``taken``, or the name of another section's table, gets the name
    of its section as prefix.
    """
    written: list[Path] = []
    for section in sections:
        for table in section.tables:
            name = _safe(table.name)
            if name in taken or home / f"{name}.csv" in written:
                name = f"{_safe(section.name)}-{name}"
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
