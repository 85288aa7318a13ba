"""Parquet tables of a run, created from journal, samples, sockets and events, and opened for queries.

The JSON lines are the authoritative data, and the tables are created only from them. DuckDB does all work, without Python
code per row, so a million transfers and ten million samples take seconds. Tables are created in a hidden directory and
renamed into place one by one. ``tables.json``, written last, has the number of covered bytes of each file. A reader that
finds other sizes creates the tables again.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from venturi.errors import RunError
from venturi.run import directory
from venturi.run.columns import (
    COLUMNS,
    DERIVED_TABLES,
    HEAD_COLUMNS,
    LATER_TABLES,
    SAMPLE_COLUMNS,
    SOCKETS_COLUMNS,
    TABLES,
    TRANSFER_COLUMNS,
)
from venturi.run.connection import connect
from venturi.run.journal import complete_bytes, max_line_bytes
from venturi.run.lock import exclusive_if_free
from venturi.run.upgrade import (
    CODES,
    COLUMNS_BEFORE,
    COUNTER_PREFIXES,
    EVENT_KINDS,
    LABELS,
    PROPERTY_PREFIXES,
    upgrade_lines,
)

if TYPE_CHECKING:
    import duckdb

__all__ = ["OBJECT_BYTES", "TABLES", "json_lines", "open_tables", "seal"]

SEAL = "tables.json"
TABLES_VERSION = 5
"""Increase it when the same journal would give other tables; tables of another version are created again."""

MEMORY_LIMIT = "1GB"
"""Memory limit of DuckDB during sealing; it spills other data to disk. Sealing and reporting should use at most 2 GB."""

OBJECT_BYTES = 16 * 2**20
"""Default limit of DuckDB for the length of a line; a trial of about ten thousand transfers exceeds it."""

_TRUTH = (directory.JOURNAL, directory.SAMPLES, directory.EVENTS, directory.SOCKETS)


def open_tables(path: Path) -> duckdb.DuckDBPyConnection:
    """Return a connection with one view per table; create the tables first if they do not cover the journal.

    If another process writes the run, or the run is not writable, the tables are created in a temporary directory. This
    directory is deleted together with the connection.
    """
    import duckdb

    home = path
    if not is_sealed(path):
        with exclusive_if_free(path) as writer_absent:
            if not (writer_absent and os.access(path, os.W_OK)):
                home = Path(tempfile.mkdtemp(prefix="venturi-tables-"))
            try:
                _seal_into(path, home, growing=not writer_absent)
            except BaseException:
                if home != path:
                    shutil.rmtree(home, ignore_errors=True)
                raise
    connection = connect()
    if home != path:
        weakref.finalize(connection, shutil.rmtree, home, ignore_errors=True)
    try:
        for table in TABLES:
            _make_view(connection, table, (path if table in DERIVED_TABLES else home) / f"{table}.parquet")
    except duckdb.Error as error:
        connection.close()
        raise RunError(
            f"{home}: cannot read the tables: {error}. Delete {SEAL} in this directory; Venturi then creates the tables again."
        ) from error
    return connection


def seal(path: Path) -> None:
    """Create the tables of a run from its journal, samples, sockets and events, unless they are up to date.

    The caller must hold the lock of the run, so that no lines are appended at the same time.

    Raises
    ------
    RunError
        If a line cannot be read, or the tables cannot be written. The journal does not change.
    """
    if not is_sealed(path):
        _seal_into(path, path, growing=False)


def is_sealed(path: Path) -> bool:
    """Return whether the tables exist and cover all complete lines of their source files."""
    try:
        covered = json.loads((path / SEAL).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    absent = {table for table in TABLES if table not in DERIVED_TABLES and not (path / f"{table}.parquet").exists()}
    if not (path / directory.JOURNAL).exists():
        return absent <= LATER_TABLES  # only the tables were kept
    if absent:
        return False
    sizes = {name: complete_bytes(path / name) for name in _TRUTH}
    return bool(covered == {"version": TABLES_VERSION, "bytes": sizes})


def _seal_into(path: Path, home: Path, *, growing: bool) -> None:
    import duckdb

    info = directory.read_info(path)
    work = Path(tempfile.mkdtemp(prefix=".tables-", dir=home))
    try:
        sizes = {name: complete_bytes(path / name) for name in _TRUTH}
        sources = {name: _stable(path / name, size, work, growing) for name, size in sizes.items()}
        with connect(memory_limit=MEMORY_LIMIT, temp_directory=str(work / "spill")) as connection:
            if info.version < directory.RUN_VERSION:
                sources = _upgraded(sources, work)
            _make_tables(connection, sources, info.backend, work)
        for table in TABLES:
            if table in DERIVED_TABLES:
                continue
            (work / f"{table}.parquet").replace(home / f"{table}.parquet")
        directory.replace_text(home / SEAL, json.dumps({"version": TABLES_VERSION, "bytes": sizes}) + "\n")
    except (duckdb.Error, OSError, ValueError) as error:
        raise RunError(
            f"{path}: cannot create the tables: {error}. The journal is unchanged; fix the cause and read the run again."
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _stable(source: Path, size: int, work: Path, growing: bool) -> Path | None:
    """Return a file with the first ``size`` bytes of ``source`` that does not grow, or None if ``size`` is 0."""
    if size == 0:
        return None
    if source.stat().st_size == size and not growing:
        return source
    copy = work / source.name
    shutil.copyfile(source, copy)
    os.truncate(copy, size)
    return copy


def _upgraded(sources: Mapping[str, Path | None], work: Path) -> dict[str, Path | None]:
    """Return the files of a run of version 1, those with renamed keys as upgraded copies in ``work``."""
    found = dict(sources)
    for name in (directory.JOURNAL, directory.EVENTS):
        if (source := found[name]) is not None:
            found[name] = work / f"upgraded-{name}"
            upgrade_lines(source, work / f"upgraded-{name}")
    return found


def _make_tables(
    connection: duckdb.DuckDBPyConnection, sources: Mapping[str, Path | None], backend: str, work: Path
) -> None:
    object_bytes = max((max_line_bytes(source, OBJECT_BYTES) for source in sources.values() if source), default=0)
    journal, samples, events, sockets = (sources[name] for name in _TRUTH)
    # Transfers are nine tenths of a journal and have a separate pass. The rest, including routes, is small enough for a table.
    connection.execute(
        f"""CREATE TEMP TABLE heads AS SELECT * FROM {json_lines(journal, HEAD_COLUMNS, object_bytes)}
            WHERE session IS NOT NULL OR trial IS NOT NULL OR finding IS NOT NULL"""
    )
    # Only the last attempt of a repeated trial counts.
    connection.execute(
        """CREATE TEMP TABLE earlier AS SELECT trial.position FROM heads WHERE trial IS NOT NULL
           QUALIFY trial.position < max(trial.position) OVER (PARTITION BY trial.trial)"""
    )
    connection.execute("DELETE FROM heads WHERE trial.position IN (FROM earlier)")
    factors = _factors(connection)

    def save(table: str, query: str, more: str = "") -> None:
        columns_sql = ", ".join(f'"{name}"::{kind} AS "{name}"' for name, kind in COLUMNS[table].items())
        target = _quote(str(work / f"{table}.parquet"))
        connection.execute(f"COPY (SELECT {columns_sql}{more} FROM ({query})) TO {target} (FORMAT parquet)")

    factor_columns = "".join(f", {_name(column)}" for column in factors)
    of_factors = "".join(f", {expression} AS {_name(column)}" for column, expression in factors.items())
    cache = "trial.cache.state AS cache_state, trial.cache.method AS cache_method"
    save(
        "trials",
        f"""SELECT unnest(trial), coalesce(trial.attempt, 1) AS attempts, {cache},
                   trial.cache.resident_ratio AS cache_resident_ratio{of_factors}
            FROM heads WHERE trial IS NOT NULL""",
        factor_columns,
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
        factor_columns,
    )
    save(
        "routes",
        f"""SELECT one.*, * EXCLUDE (one) FROM (
                SELECT unnest(trial.routes) AS one, trial.trial, trial.point, trial.repetition, trial.block, trial.position,
                       trial.session, trial.host, trial.actor, {_quote(backend)} AS backend{of_factors}
                FROM heads WHERE len(trial.routes) > 0)""",
        factor_columns,
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
    """Return SQL that converts lines of samples to one row per counter; a line has the names or refers to a set of names.

    Names and values are extracted as two lists, because a MAP takes twice the time: it checks for duplicate keys.
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
    """Return the columns of the factors, each with the SQL expression of its value in ``trial.factors``."""
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
    """Return the SQL type for the previous values of a name and this value; "" if all are null."""
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
    """Create the table ``environment_facts`` from the sessions, with one row per property."""
    path = work / "environment.jsonl"
    texts = connection.execute("SELECT session FROM heads WHERE session IS NOT NULL").fetchall()
    with path.open("w", encoding="utf-8") as lines:
        for (text,) in texts:
            session = json.loads(text)
            for host, properties in (session.get("hosts") or {}).items():
                for key, value in _flatten(properties):
                    row = {"session": session.get("number"), "host": host, "key": key, "value": value}
                    lines.write(json.dumps(row) + "\n")
    source = json_lines(path if path.stat().st_size else None, COLUMNS["environment"], OBJECT_BYTES)
    connection.execute(f"CREATE TABLE environment_facts AS FROM {source}")


def _flatten(properties: object, prefix: str = "") -> Iterator[tuple[str, str | None]]:
    """Yield nested properties as dotted keys and text; list elements are numbered from 0."""
    items = (
        properties.items()
        if isinstance(properties, dict)
        else enumerate(properties)
        if isinstance(properties, list)
        else None
    )
    if items is None:
        yield prefix, properties if properties is None or isinstance(properties, str) else json.dumps(properties)
        return
    for key, value in items:
        yield from _flatten(value, f"{prefix}.{key}" if prefix else str(key))


def json_lines(source: Path | None, columns: Mapping[str, str], object_bytes: int) -> str:
    """Return SQL that reads a file of JSON lines as these columns, or an empty table if there is no file."""
    if source is None:
        nulls = ", ".join(f"NULL::{kind} AS {_name(name)}" for name, kind in columns.items())
        return f"(SELECT {nulls} WHERE false)"
    types = ", ".join(f"{_quote(name)}: {_quote(kind)}" for name, kind in columns.items())
    return (
        f"read_json({_quote(_literal_path(source))}, format='newline_delimited', compression='none',"
        f" maximum_object_size={object_bytes}, columns={{{types}}})"
    )


def _make_view(connection: duckdb.DuckDBPyConnection, table: str, path: Path) -> None:
    """Create a view of a table; columns missing in older versions are null, and missing tables are empty."""
    if table in LATER_TABLES and not path.exists():
        connection.execute(f"CREATE VIEW {table} AS FROM {json_lines(None, COLUMNS[table], OBJECT_BYTES)}")
        return
    source = f"read_parquet({_quote(_literal_path(path))})"
    before = {old: new for new, old in COLUMNS_BEFORE.items()}
    names = [row[0] for row in connection.execute(f"DESCRIBE FROM {source}").fetchall()]
    columns = {before.get(name, name): _name(name) for name in names}
    match table:
        case "findings":
            columns["code"] = _renamed_values("code", CODES)
        case "events":
            columns["kind"] = _renamed_values("kind", EVENT_KINDS)
        case "environment":
            columns["key"] = _renamed_prefixes("key", PROPERTY_PREFIXES)
        case "samples":
            columns["counter"] = _renamed_prefixes("counter", COUNTER_PREFIXES)
        case "transfers" if "labels" in names:
            columns["labels"] = _replaced_parts("labels", LABELS)
    columns |= {name: f"NULL::{kind}" for name, kind in COLUMNS[table].items() if name not in columns}
    selected = ", ".join(f"{value} AS {_name(name)}" for name, value in columns.items())
    connection.execute(f"CREATE VIEW {table} AS SELECT {selected} FROM {source}")


def _renamed_values(column: str, names: Mapping[str, str]) -> str:
    cases = " ".join(f"WHEN {_quote(old)} THEN {_quote(new)}" for old, new in names.items())
    return f"CASE {_name(column)} {cases} ELSE {_name(column)} END"


def _renamed_prefixes(column: str, prefixes: Mapping[str, str]) -> str:
    cases = " ".join(
        f"WHEN starts_with({_name(column)}, {_quote(old)}) THEN {_quote(new)} || substr({_name(column)}, {len(old) + 1})"
        for old, new in prefixes.items()
    )
    return f"CASE {cases} ELSE {_name(column)} END"


def _replaced_parts(column: str, parts: Mapping[str, str]) -> str:
    found = _name(column)
    for old, new in parts.items():
        found = f"replace({found}, {_quote(old)}, {_quote(new)})"
    return found


def _literal_path(path: Path) -> str:
    """Return a path with ``[``, ``*`` and ``?`` escaped for DuckDB."""
    return "".join(f"[{letter}]" if letter in "[*?" else letter for letter in str(path.absolute()))


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
