"""Tables: journal, samples, sockets and events made into Parquet, and opened for questions.

The JSON lines are the truth and the tables are made from them alone, by DuckDB and without a row passing through
Python: a million transfers and ten million samples take seconds. Tables are made in a hidden folder and moved into
place one by one; `tables.json`, moved last, says how many bytes of each file they cover. Whoever finds other sizes
makes them anew.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path

import duckdb

from venturi.errors import RunError
from venturi.run import directory
from venturi.run.columns import (
    COLUMNS,
    HEAD_COLUMNS,
    LATER_TABLES,
    SAMPLE_COLUMNS,
    SOCKETS_COLUMNS,
    TABLES,
    TRANSFER_COLUMNS,
)
from venturi.run.connection import connect
from venturi.run.journal import complete_bytes, longest_line
from venturi.run.lock import quiet

__all__ = ["OBJECT_BYTES", "TABLES", "json_lines", "open_tables", "seal"]

SEAL = "tables.json"
TABLES_VERSION = 4
"""Raised when what is made from the same journal changes: tables of another version are made anew."""

MEMORY_LIMIT = "1GB"
"""For DuckDB while sealing; what does not fit goes to the disk. The goal for sealing and reporting is 2 GB in all."""

OBJECT_BYTES = 16 * 2**20
"""Longest line DuckDB takes without being told; a trial of some ten thousand transfers is longer."""

_TRUTH = (directory.JOURNAL, directory.SAMPLES, directory.EVENTS, directory.SOCKETS)


def open_tables(path: Path) -> duckdb.DuckDBPyConnection:
    """Return a connection with one view a table, sealing first if the tables do not cover the journal.

    A run that another process is writing, or that cannot be written to, is sealed into a temporary directory, which
    goes when the connection does.
    """
    home = path
    if not is_sealed(path):
        with quiet(path) as nobody_writes:
            if not (nobody_writes and os.access(path, os.W_OK)):
                home = Path(tempfile.mkdtemp(prefix="venturi-tables-"))
            try:
                _seal_into(path, home, growing=not nobody_writes)
            except BaseException:
                if home != path:
                    shutil.rmtree(home, ignore_errors=True)
                raise
    connection = connect()
    if home != path:
        weakref.finalize(connection, shutil.rmtree, home, ignore_errors=True)
    try:
        for table in TABLES:
            _make_view(connection, table, home / f"{table}.parquet")
    except duckdb.Error as error:
        connection.close()
        raise RunError(
            f"{home}: expected readable tables, found: {error}; delete {SEAL} there to have them made anew"
        ) from error
    return connection


def seal(path: Path) -> None:
    """Make the tables of a run from its journal, samples, sockets and events, unless they are up to date.

    Only for who holds the lock of the run: nothing may be appended meanwhile.

    Raises
    ------
    RunError
        If a line cannot be read, or there is no room for the tables. The journal stays as it is.
    """
    if not is_sealed(path):
        _seal_into(path, path, growing=False)


def is_sealed(path: Path) -> bool:
    """Return whether the tables are there and cover all complete lines of what they are made from."""
    try:
        covered = json.loads((path / SEAL).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    absent = {table for table in TABLES if not (path / f"{table}.parquet").exists()}
    if not (path / directory.JOURNAL).exists():
        return absent <= LATER_TABLES  # somebody kept the tables only
    if absent:
        return False
    sizes = {name: complete_bytes(path / name) for name in _TRUTH}
    return bool(covered == {"version": TABLES_VERSION, "bytes": sizes})


def _seal_into(path: Path, home: Path, *, growing: bool) -> None:
    info = directory.read_info(path)
    work = Path(tempfile.mkdtemp(prefix=".tables-", dir=home))
    try:
        sizes = {name: complete_bytes(path / name) for name in _TRUTH}
        sources = {name: _stable(path / name, size, work, growing) for name, size in sizes.items()}
        with connect(memory_limit=MEMORY_LIMIT, temp_directory=str(work / "spill")) as connection:
            _make_tables(connection, sources, info.backend, work)
        for table in TABLES:
            (work / f"{table}.parquet").replace(home / f"{table}.parquet")
        directory.replace_text(home / SEAL, json.dumps({"version": TABLES_VERSION, "bytes": sizes}) + "\n")
    except (duckdb.Error, OSError) as error:
        raise RunError(
            f"{path}: the tables cannot be made: {error}; the journal is untouched, and any later reader tries again"
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _stable(source: Path, size: int, work: Path, growing: bool) -> Path | None:
    """Return a file that holds the first ``size`` bytes of ``source`` and does not grow; None if that is nothing."""
    if size == 0:
        return None
    if source.stat().st_size == size and not growing:
        return source
    copy = work / source.name
    shutil.copyfile(source, copy)
    os.truncate(copy, size)
    return copy


def _make_tables(
    connection: duckdb.DuckDBPyConnection, sources: Mapping[str, Path | None], backend: str, work: Path
) -> None:
    object_bytes = max((longest_line(source, OBJECT_BYTES) for source in sources.values() if source), default=0)
    journal, samples, events, sockets = (sources[name] for name in _TRUTH)
    # Transfers are nine tenths of a journal and go through in a pass of their own; the rest, routes in place of them too, is small enough to keep.
    connection.execute(
        f"""CREATE TEMP TABLE heads AS SELECT * FROM {json_lines(journal, HEAD_COLUMNS, object_bytes)}
            WHERE session IS NOT NULL OR trial IS NOT NULL OR finding IS NOT NULL"""
    )
    # Of a trial that was carried out again, the last attempt counts.
    connection.execute(
        """CREATE TEMP TABLE earlier AS SELECT trial.position FROM heads WHERE trial IS NOT NULL
           QUALIFY trial.position < max(trial.position) OVER (PARTITION BY trial.trial)"""
    )
    connection.execute("DELETE FROM heads WHERE trial.position IN (FROM earlier)")
    factors = _factors(connection)

    def save(table: str, query: str, more: str = "") -> None:
        kept = ", ".join(f'"{name}"::{kind} AS "{name}"' for name, kind in COLUMNS[table].items())
        target = _quote(str(work / f"{table}.parquet"))
        connection.execute(f"COPY (SELECT {kept}{more} FROM ({query})) TO {target} (FORMAT parquet)")

    kept_factors = "".join(f", {_name(column)}" for column in factors)
    of_factors = "".join(f", {expression} AS {_name(column)}" for column, expression in factors.items())
    cache = "trial.cache.state AS cache_state, trial.cache.method AS cache_method"
    save(
        "trials",
        f"""SELECT unnest(trial), coalesce(trial.attempt, 1) AS attempts, {cache},
                   trial.cache.resident_ratio AS cache_resident_ratio{of_factors}
            FROM heads WHERE trial IS NOT NULL""",
        kept_factors,
    )
    save(
        "transfers",
        f"""SELECT one.* EXCLUDE (session, host), * EXCLUDE (one, session_, host_),
                   coalesce(session_, one.session) AS session, coalesce(host_, one.host) AS host, {_quote(backend)} AS backend
            FROM (SELECT unnest(CASE WHEN trial IS NULL THEN [transfer] ELSE trial.transfers END) AS one,
                         trial.point, trial.repetition, trial.block, trial.position, trial.cache.state AS cache_state,
                         trial.session AS session_, trial.host AS host_{of_factors}
                  FROM {json_lines(journal, TRANSFER_COLUMNS, object_bytes)}
                  WHERE transfer IS NOT NULL OR (trial IS NOT NULL AND trial.position NOT IN (FROM earlier)))""",
        kept_factors,
    )
    save(
        "routes",
        f"""SELECT one.*, * EXCLUDE (one) FROM (
                SELECT unnest(trial.routes) AS one, trial.trial, trial.point, trial.repetition, trial.block, trial.position,
                       trial.session, trial.host, trial.actor, {_quote(backend)} AS backend{of_factors}
                FROM heads WHERE len(trial.routes) > 0)""",
        kept_factors,
    )
    save(
        "findings",
        """SELECT unnest(finding) FROM heads WHERE finding IS NOT NULL
           UNION ALL BY NAME
           SELECT unnest(trial.findings, max_depth := 2), trial.trial AS trial, trial.host AS host
           FROM heads WHERE len(trial.findings) > 0""",
    )
    _make_environment(connection, work)
    save("environment", "SELECT * FROM environment_facts ORDER BY session, host, key")
    save("samples", _samples(json_lines(samples, SAMPLE_COLUMNS, object_bytes)))
    save(
        "sockets",
        f"""SELECT host, time_s, unnest(sockets, max_depth := 2)
            FROM {json_lines(sockets, SOCKETS_COLUMNS, object_bytes)} WHERE len(sockets) > 0""",
    )
    save("events", f"SELECT * FROM {json_lines(events, COLUMNS['events'], object_bytes)}")


def _samples(lines: str) -> str:
    """Return the SQL that makes one row a counter of lines that name their counters, or the set that names them.

    Names and values are two lists out of the text, for a MAP costs twice that: it looks for keys that stand there twice.
    """
    return f"""SELECT * FROM (
        SELECT host, time_s, unnest(names) AS counter, unnest(numbers) AS value FROM (
            SELECT host, time_s,
                   CASE WHEN "values" IS NULL THEN json_keys(counters)
                        WHEN len(set_names) = len("values") THEN set_names
                        ELSE error('samples at ' || time_s || ' s of ' || host || ' do not fit their set of counters')
                   END AS names,
                   coalesce("values", json_extract_string(counters, '$.*')::DOUBLE[]) AS numbers
            FROM {lines} LEFT JOIN (
                SELECT "set", any_value(json_keys(counters)) AS set_names FROM {lines}
                WHERE "set" IS NOT NULL AND counters IS NOT NULL GROUP BY "set") USING ("set"))) WHERE value IS NOT NULL"""


def _factors(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Return the columns of the factors, each with the SQL that takes its value out of ``trial.factors``."""
    texts = connection.execute(
        "SELECT DISTINCT trial.factors FROM heads WHERE trial.factors IS NOT NULL ORDER BY 1"
    ).fetchall()
    kinds: dict[str, str] = {}
    for (text,) in texts:
        for name, value in json.loads(text).items():
            kinds[name] = _wider(kinds.get(name), value)
    columns = {}
    for name, kind in kinds.items():
        pointer = "/" + name.replace("~", "~0").replace("/", "~1")
        columns[f"factor_{name}"] = f"CAST(trial.factors ->> {_quote(pointer)} AS {kind or 'VARCHAR'})"
    return columns


def _wider(kind: str | None, value: object) -> str:
    """Return the type that holds all values seen so far under a name, and this one; "" while only nulls were seen."""
    match value:
        case None:
            return kind or ""
        case bool():
            own = "BOOLEAN"
        case int() if -(2**63) <= value < 2**63:
            own = "BIGINT"
        case int() | float():
            own = "DOUBLE"
        case _:
            own = "VARCHAR"
    if kind in (None, "", own):
        return own
    return "DOUBLE" if {kind, own} == {"BIGINT", "DOUBLE"} else "VARCHAR"


def _make_environment(connection: duckdb.DuckDBPyConnection, work: Path) -> None:
    """Make the table ``environment_facts`` from the sessions: one row a fact."""
    path = work / "environment.jsonl"
    texts = connection.execute("SELECT session FROM heads WHERE session IS NOT NULL").fetchall()
    with path.open("w", encoding="utf-8") as lines:
        for (text,) in texts:
            session = json.loads(text)
            for host, facts in (session.get("hosts") or {}).items():
                for key, value in _flatten(facts):
                    row = {"session": session.get("number"), "host": host, "key": key, "value": value}
                    lines.write(json.dumps(row) + "\n")
    source = json_lines(path if path.stat().st_size else None, COLUMNS["environment"], OBJECT_BYTES)
    connection.execute(f"CREATE TABLE environment_facts AS FROM {source}")


def _flatten(facts: object, prefix: str = "") -> Iterator[tuple[str, str | None]]:
    """Yield nested facts as dotted keys and text; what stands in a list is numbered from 0."""
    items = facts.items() if isinstance(facts, dict) else enumerate(facts) if isinstance(facts, list) else None
    if items is None:
        yield prefix, facts if facts is None or isinstance(facts, str) else json.dumps(facts)
        return
    for key, value in items:
        yield from _flatten(value, f"{prefix}.{key}" if prefix else str(key))


def json_lines(source: Path | None, columns: Mapping[str, str], object_bytes: int) -> str:
    """Return the SQL that reads a file of JSON lines as these columns; of no file, an empty table of them."""
    if source is None:
        nothing = ", ".join(f"NULL::{kind} AS {_name(name)}" for name, kind in columns.items())
        return f"(SELECT {nothing} WHERE false)"
    types = ", ".join(f"{_quote(name)}: {_quote(kind)}" for name, kind in columns.items())
    return (
        f"read_json({_quote(_literal_path(source))}, format='newline_delimited', compression='none',"
        f" maximum_object_size={object_bytes}, columns={{{types}}})"
    )


def _make_view(connection: duckdb.DuckDBPyConnection, table: str, path: Path) -> None:
    """Make a view on a table; columns that an older Venturi did not write are null, tables empty."""
    if table in LATER_TABLES and not path.exists():
        connection.execute(f"CREATE VIEW {table} AS FROM {json_lines(None, COLUMNS[table], OBJECT_BYTES)}")
        return
    source = f"read_parquet({_quote(_literal_path(path))})"
    there = {row[0] for row in connection.execute(f"DESCRIBE FROM {source}").fetchall()}
    absent = "".join(f", NULL::{kind} AS {_name(name)}" for name, kind in COLUMNS[table].items() if name not in there)
    connection.execute(f"CREATE VIEW {table} AS SELECT *{absent} FROM {source}")


def _literal_path(path: Path) -> str:
    """Return a path in which ``[``, ``*`` and ``?`` mean themselves to DuckDB."""
    return "".join(f"[{letter}]" if letter in "[*?" else letter for letter in str(path.absolute()))


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
