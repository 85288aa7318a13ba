"""Table ``verdicts`` with conclusions about a run, which any version of Venturi can write again."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from venturi.run.columns import COLUMNS
from venturi.run.connection import connect
from venturi.run.lock import exclusive_if_free

__all__ = ["VERDICTS", "write_verdicts"]

VERDICTS = "verdicts.parquet"


def write_verdicts(path: Path, rows: Sequence[Mapping[str, object]]) -> bool:
    """Replace the verdicts of a run; return False if the run is in use or not writable.

    Parameters
    ----------
    path
        Run directory.
    rows
        Values of the columns of the table (``docs/reference/run.md``).
    """
    columns = ", ".join(f"{name}: '{kind}'" for name, kind in COLUMNS["verdicts"].items())
    with exclusive_if_free(path) as free:
        if not (free and os.access(path, os.W_OK)):
            return False
        with tempfile.TemporaryDirectory(prefix=".verdicts-", dir=path) as directory:
            lines, table = Path(directory, "rows.jsonl"), Path(directory, VERDICTS)
            lines.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
            with connect() as connection:
                source = f"read_json('{_quoted(lines)}', format='newline_delimited', columns={{{columns}}})"
                connection.execute(f"COPY (SELECT * FROM {source}) TO '{_quoted(table)}' (FORMAT parquet)")
            table.replace(path / VERDICTS)
    return True


def _quoted(path: Path) -> str:
    return str(path.absolute()).replace("'", "''")
