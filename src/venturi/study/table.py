"""Published tables: CSV files that came with a study, or with the library of claims."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["PublishedTable", "read_table"]


@dataclass(frozen=True)
class PublishedTable:
    """A published table: a CSV file of the study's folder, named by ``[[published.tables]]`` in its ``study.toml``.

    Attributes
    ----------
    name, about
        Its title, and in a sentence how it was read.
    storage
        Whose rates ``read_bytes_per_s`` and ``write_bytes_per_s`` are.
    columns, rows
        As in the file: factors, values in base units, and where there are any ``errata`` (ids, a blank between) and ``note``.
        What reads as a number is one; an empty cell is None.
    id
        By which claims name it: the name of the file without its end.
    """

    name: str
    about: str
    storage: str | None
    columns: tuple[str, ...]
    rows: tuple[dict[str, str | int | float | None], ...]
    id: str = ""


def read_table(folder: Path, told: Mapping[str, Any]) -> PublishedTable:
    """Return the table that a row of ``[[published.tables]]`` names: ``name``, ``about``, ``file`` in the folder, ``storage``."""
    with (folder / told["file"]).open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        rows = tuple({name: _cell(text) for name, text in row.items()} for row in reader)
        columns = tuple(reader.fieldnames or ())
    return PublishedTable(
        told["name"], told["about"], told.get("storage"), columns, rows, str(told.get("id", Path(told["file"]).stem))
    )


def _cell(text: str) -> str | int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text or None
