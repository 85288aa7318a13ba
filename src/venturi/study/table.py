"""Published tables: CSV files of a study or of the library of claims."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["PublishedTable", "read_table"]


@dataclass(frozen=True)
class PublishedTable:
    """Published table: a CSV file of a study, listed in ``[[published.tables]]`` of its ``study.toml``.

    Attributes
    ----------
    name, about
        Title, and one sentence about its source.
    storage
        Storage of the rates ``read_bytes_per_s`` and ``write_bytes_per_s``.
    columns, rows
        Content of the file: factors, values in base units, and optionally ``errata`` (ids separated by spaces) and
        ``note``. Numbers are parsed; an empty cell is None.
    id
        Id for claims. The default is the file name without its suffix.
    """

    name: str
    about: str
    storage: str | None
    columns: tuple[str, ...]
    rows: tuple[dict[str, str | int | float | None], ...]
    id: str = ""


def read_table(directory: Path, row: Mapping[str, Any]) -> PublishedTable:
    """Return the table of a row of ``[[published.tables]]``.

    The row has ``name``, ``about``, ``file`` (relative to the directory), and optionally ``storage`` and ``id``.
    """
    with (directory / row["file"]).open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        rows = tuple({name: _parse_cell(text) for name, text in line.items()} for line in reader)
        columns = tuple(reader.fieldnames or ())
    return PublishedTable(
        row["name"], row["about"], row.get("storage"), columns, rows, str(row.get("id", Path(row["file"]).stem))
    )


def _parse_cell(text: str) -> str | int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None
