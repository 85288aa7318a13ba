"""Reader of recorded runs, trace files and transfer logs, with DuckDB: a million rows in a few seconds.

:mod:`venturi.workload.transfer_log` reads logs of FTS and Rucio. Any other trace is a CSV file with a header line, or a Parquet file, with one row per transfer: ``start_s`` (seconds from any
origin), ``source`` and ``destination`` (names), ``size_bytes``, and optionally ``duration_s``. Other columns are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from venturi.errors import RunError
from venturi.messages import quote_value, suggestion
from venturi.run import Run
from venturi.run.connection import connect
from venturi.workload.transfer_log import EndpointKind, LogCounts, LogFormat, TransferLogError, is_json, load_log

__all__ = ["Trace", "TraceError", "read_trace"]

NEEDED = ("start_s", "source", "destination", "size_bytes")
_OPTIONAL = ("duration_s",)
_MAX_SIZE_BYTES = 2**53
"""Maximum size: larger integers are inexact as doubles."""

_RUN_QUERY = """
    SELECT coalesce(intended_s, start_s) AS start_s, split_part(source, ':', 1) AS source,
        split_part(destination, ':', 1) AS destination, requested_bytes AS size_bytes, duration_s
    FROM transfers WHERE start_s IS NOT NULL ORDER BY start_s, trial, slot
"""


class TraceError(Exception):
    """Unreadable trace; the message contains the location, the expected and the found value."""


@dataclass(frozen=True)
class Trace:
    """Columns of equal length, sorted by ``start_s``, then by row.

    ``source`` and ``destination`` are indices of ``names``. ``duration_s`` is NaN if unknown. ``row`` counts from 1.
    ``log`` counts the records of a transfer log; None for other traces.
    """

    names: tuple[str, ...]
    start_s: npt.NDArray[np.float64]
    source: npt.NDArray[np.int64]
    destination: npt.NDArray[np.int64]
    size_bytes: npt.NDArray[np.int64]
    duration_s: npt.NDArray[np.float64]
    row: npt.NDArray[np.int64]
    log: LogCounts | None = None

    def __len__(self) -> int:
        return len(self.start_s)

    def counts(self) -> dict[str, int]:
        """Return the number of transfers from or to each name."""
        ends = np.bincount(self.source, minlength=len(self.names)) + np.bincount(
            self.destination, minlength=len(self.names)
        )
        ends -= np.bincount(self.source[self.source == self.destination], minlength=len(self.names))
        return dict(zip(self.names, ends.tolist(), strict=True))


def read_trace(
    path: Path,
    start_s: float | None,
    end_s: float | None,
    max_rows: int,
    *,
    log_format: LogFormat | None = None,
    endpoints: EndpointKind | None = None,
) -> Trace:
    """Return the transfers of a run directory, a trace file or a log that start within ``[start_s, end_s)``.

    Parameters
    ----------
    path
        Run directory, CSV or Parquet file, or JSON Lines of FTS or Rucio.
    start_s, end_s
        Part of the trace, in seconds of the trace: Unix time for logs.
    max_rows
        Largest number of transfers.
    log_format, endpoints
        Arguments of :func:`venturi.workload.transfer_log.load_log`.

    Raises
    ------
    TraceError
        If the file or a column is missing, a value is invalid, or there are more than ``max_rows`` rows.
    """
    with connect(threads=2) as connection:
        try:
            log = _load(connection, path, log_format, endpoints)
            return _selected(connection, path, start_s, end_s, max_rows, log)
        except TransferLogError as error:
            raise TraceError(str(error)) from error
        except (duckdb.Error, RunError, OSError) as error:
            raise TraceError(
                f"{path}: expected a run, a trace in CSV or Parquet, or a log in JSON Lines, found {_first_line(error)}; check the file"
            ) from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _load(
    connection: duckdb.DuckDBPyConnection, path: Path, log_format: LogFormat | None, endpoints: EndpointKind | None
) -> LogCounts | None:
    """Create the table ``written`` with the unchanged columns and ``row``."""
    if path.is_dir():
        columns = Run.open(path).query(_RUN_QUERY)
        connection.register("recorded", {name: np.asarray(values) for name, values in columns.items()})
        connection.execute("CREATE TEMP TABLE written AS SELECT *, row_number() OVER () AS row FROM recorded")
        return None
    if not path.exists():
        raise TraceError(f"{path}: expected a run directory or a trace file, found no file; check the path")
    if path.is_file() and path.suffix != ".parquet" and (log_format is not None or is_json(path)):
        return load_log(connection, path, log_format, endpoints)
    # Read all columns as text, to find the line of an invalid value.
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
    selected = ", ".join(f'"{name}"' for name in (*NEEDED, *(it for it in _OPTIONAL if it in found)))
    optional = "" if "duration_s" in found else ", NULL AS duration_s"
    connection.execute(
        f"CREATE TEMP TABLE written AS SELECT {selected}{optional}, row_number() OVER () AS row FROM {read}",
        [str(path)],
    )
    return None


_CHECKS = (
    ("start_s", "a number of seconds", "isfinite(try_cast(start_s AS DOUBLE))"),
    ("source", "a name", "source <> ''"),
    ("destination", "a name", "destination <> ''"),
    (
        "size_bytes", f"a whole number of bytes, 1 to {_MAX_SIZE_BYTES}",
        f"try_cast(size_bytes AS DOUBLE) BETWEEN 1 AND {_MAX_SIZE_BYTES} AND try_cast(size_bytes AS DOUBLE) = floor(try_cast(size_bytes AS DOUBLE))",
    ),
    ("duration_s", "a number of seconds, 0 or more, or an empty value", "duration_s IS NULL OR try_cast(duration_s AS DOUBLE) >= 0"),
)  # fmt: skip


def _check(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    for column, expected, holds in _CHECKS:
        found = connection.execute(
            f"SELECT row, {column} FROM written WHERE NOT coalesce({holds}, false) ORDER BY row LIMIT 1"
        ).fetchone()
        if found is not None:
            # Line 1 of a CSV file contains the names.
            where = f"line {found[0] + 1}" if path.suffix != ".parquet" and path.is_file() else f"row {found[0]}"
            raise TraceError(
                f"{path}: {where}: {column}: expected {expected}, found {quote_value(found[1])}; correct the row"
            )


def _selected(
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    start_s: float | None,
    end_s: float | None,
    max_rows: int,
    log: LogCounts | None,
) -> Trace:
    if log is None:
        _check(connection, path)
    low, high = (-np.inf if start_s is None else start_s), (np.inf if end_s is None else end_s)
    connection.execute(
        "CREATE TEMP TABLE chosen AS SELECT * FROM written WHERE start_s::DOUBLE >= $low AND start_s::DOUBLE < $high",
        {"low": low, "high": high},
    )
    rows = connection.execute("SELECT count(*), (SELECT count(*) FROM written) FROM chosen").fetchone()
    assert rows is not None
    if not rows[0]:
        within = "" if start_s is None and end_s is None else f" of {rows[1]} in the window"
        raise TraceError(f"{path}: expected transfers, found none{within}; change the trace or workload.window")
    if rows[0] > max_rows:
        raise TraceError(
            f"{path}: expected at most {max_rows} transfers, found {rows[0]}; select a part with workload.window"
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
    return Trace(names, **{name: np.asarray(values) for name, values in columns.items()}, log=log)
