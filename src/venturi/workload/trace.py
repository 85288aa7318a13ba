"""Transfers of a recorded run, or of a trace file, as columns: read, checked and put in order by DuckDB, a million rows in a second or two.

A trace is a CSV (with a line of names) or Parquet file, a row a transfer: ``start_s`` (seconds from any origin), ``source`` and
``destination`` (names), ``size_bytes``; ``duration_s`` where it was measured. Further columns are passed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from venturi.errors import RunError
from venturi.plan.words import shown, suggestion
from venturi.run import Run
from venturi.run.connection import connect

__all__ = ["Trace", "TraceError", "read_trace"]

NEEDED = ("start_s", "source", "destination", "size_bytes")
_OPTIONAL = ("duration_s",)
_LARGEST = 2**53
"""Sizes are exact as doubles up to here."""

_OF_A_RUN = """
    SELECT coalesce(intended_s, start_s) AS start_s, split_part(source, ':', 1) AS source,
        split_part(destination, ':', 1) AS destination, asked_bytes AS size_bytes, duration_s
    FROM transfers WHERE start_s IS NOT NULL ORDER BY start_s, trial, slot
"""


class TraceError(Exception):
    """A trace that cannot be read: what was expected, found, and where in it."""


@dataclass(frozen=True)
class Trace:
    """Columns of the same length, in the order of ``start_s``, of equal ones in that of the file.

    ``source`` and ``destination`` are places in ``names``; ``duration_s`` is NaN where it is not known; ``row`` counts from 1.
    """

    names: tuple[str, ...]
    start_s: npt.NDArray[np.float64]
    source: npt.NDArray[np.int64]
    destination: npt.NDArray[np.int64]
    size_bytes: npt.NDArray[np.int64]
    duration_s: npt.NDArray[np.float64]
    row: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.start_s)


def read_trace(path: Path, begin_s: float | None, end_s: float | None, most: int) -> Trace:
    """Return the transfers of a run directory or a trace file that start within ``[begin_s, end_s)``.

    Raises
    ------
    TraceError
        If there is no such file, a column is missing, a value is not what it must be, or there are more than ``most`` rows.
    """
    with connect(threads=2) as connection:
        try:
            _load(connection, path)
            return _selected(connection, path, begin_s, end_s, most)
        except (duckdb.Error, RunError, OSError) as error:
            raise TraceError(
                f"{path}: expected a run, or a trace in CSV or Parquet, found: {_first_line(error)}"
            ) from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _load(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Make the view ``written`` (columns as they are, and ``row``) of the file or run."""
    if path.is_dir():
        columns = Run.open(path).query(_OF_A_RUN)
        connection.register("recorded", {name: np.asarray(values) for name, values in columns.items()})
        connection.execute("CREATE TEMP TABLE written AS SELECT *, row_number() OVER () AS row FROM recorded")
        return
    if not path.exists():
        raise TraceError(f"{path}: expected a run directory or a trace file, found nothing there")
    # All as text: a value that is none is then found with its line, not by a guess of the whole column's type.
    read = (
        "read_parquet(?)"
        if path.suffix == ".parquet"
        else "read_csv(?, header = true, all_varchar = true, null_padding = false)"
    )
    found = [str(name) for name, *_ in connection.execute(f"DESCRIBE SELECT * FROM {read}", [str(path)]).fetchall()]
    for name in NEEDED:
        if name not in found:
            hint = suggestion(name, found)
            raise TraceError(f"{path}: expected the columns {', '.join(NEEDED)}, found {', '.join(found)}{hint}")
    wanted = ", ".join(f'"{name}"' for name in (*NEEDED, *(it for it in _OPTIONAL if it in found)))
    optional = "" if "duration_s" in found else ", NULL AS duration_s"
    connection.execute(
        f"CREATE TEMP TABLE written AS SELECT {wanted}{optional}, row_number() OVER () AS row FROM {read}",
        [str(path)],
    )


_CHECKS = (
    ("start_s", "a number of seconds", "isfinite(try_cast(start_s AS DOUBLE))"),
    ("source", "a name", "source <> ''"),
    ("destination", "a name", "destination <> ''"),
    (
        "size_bytes", f"a whole number of bytes, 1 to {_LARGEST}",
        f"try_cast(size_bytes AS DOUBLE) BETWEEN 1 AND {_LARGEST} AND try_cast(size_bytes AS DOUBLE) = floor(try_cast(size_bytes AS DOUBLE))",
    ),
    ("duration_s", "a number of seconds, 0 or more, or nothing", "duration_s IS NULL OR try_cast(duration_s AS DOUBLE) >= 0"),
)  # fmt: skip


def _check(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    for column, expected, holds in _CHECKS:
        found = connection.execute(
            f"SELECT row, {column} FROM written WHERE NOT coalesce({holds}, false) ORDER BY row LIMIT 1"
        ).fetchone()
        if found is not None:
            # Line 1 of a CSV file has the names.
            where = f"line {found[0] + 1}" if path.suffix != ".parquet" and path.is_file() else f"row {found[0]}"
            raise TraceError(f"{path}: {where}: {column}: expected {expected}, found {shown(found[1])}")


def _selected(
    connection: duckdb.DuckDBPyConnection, path: Path, begin_s: float | None, end_s: float | None, most: int
) -> Trace:
    _check(connection, path)
    low, high = (-np.inf if begin_s is None else begin_s), (np.inf if end_s is None else end_s)
    connection.execute(
        "CREATE TEMP TABLE chosen AS SELECT * FROM written WHERE start_s::DOUBLE >= $low AND start_s::DOUBLE < $high",
        {"low": low, "high": high},
    )
    rows = connection.execute("SELECT count(*), (SELECT count(*) FROM written) FROM chosen").fetchone()
    assert rows is not None
    if not rows[0]:
        within = "" if begin_s is None and end_s is None else f" within the time that is asked for, of {rows[1]}"
        raise TraceError(f"{path}: expected transfers, found none{within}")
    if rows[0] > most:
        raise TraceError(
            f"{path}: expected at most {most} transfers, found {rows[0]}; choose a part with begin and end"
        )
    connection.execute(
        "CREATE TEMP TABLE names AS SELECT name, row_number() OVER (ORDER BY name) - 1 AS number FROM "
        "(SELECT DISTINCT source::VARCHAR AS name FROM chosen UNION SELECT DISTINCT destination::VARCHAR FROM chosen)"
    )
    names = tuple(str(name) for (name,) in connection.execute("SELECT name FROM names ORDER BY number").fetchall())
    columns: dict[str, Any] = connection.execute(
        "SELECT start_s::DOUBLE AS start_s, one.number AS source, other.number AS destination, "
        "size_bytes::DOUBLE::BIGINT AS size_bytes, coalesce(duration_s::DOUBLE, 'nan'::DOUBLE) AS duration_s, row "
        "FROM chosen JOIN names one ON one.name = source::VARCHAR JOIN names other ON other.name = destination::VARCHAR "
        "ORDER BY start_s::DOUBLE, row"
    ).fetchnumpy()
    return Trace(names, **{name: np.asarray(values) for name, values in columns.items()})
