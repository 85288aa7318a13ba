"""DuckDB as it is used here: in memory, with no extension from elsewhere, and silent."""

from __future__ import annotations

import duckdb

__all__ = ["connect"]


def connect(**config: str | bool | int | float | list[str]) -> duckdb.DuckDBPyConnection:
    """Return a connection to an empty database, with settings of DuckDB."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", **config})
    # In a program that is no file (a prompt, `python -c`) it would draw the progress of long queries on standard output.
    connection.execute("SET enable_progress_bar = false")
    return connection
