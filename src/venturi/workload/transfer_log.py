"""Transfer logs of FTS and Rucio as traces: JSON Lines, also compressed with gzip, with one record per line.

Three formats, recognized from the fields of their records:

``fts``
    Messages *transfer complete* of FTS3 (WLCG Transfer Monitoring, "FTS transfer complete message"; fields as FTS writes
    them in ``msg-ifce.cpp``). A record can be the object ``data`` of another record, as in the archive of MONIT.
``rucio-event``
    Events of the daemon Hermes (Rucio documentation, "Rucio daemons: hermes"; fields as in ``add_monitor_message`` of
    ``rucio.core.request``): ``event_type`` and ``payload``. The fields of ``payload`` can be in the record itself.
``rucio-trace``
    Traces of clients and pilots (Rucio documentation, "Traces"; schemas of ``rucio.core.trace``; PanDA Pilot wiki, "Rucio
    Traces").

All of them can also be the object ``_source`` of a record, as exported by Elasticsearch and OpenSearch. DuckDB reads the
file as a stream and extracts the fields below. The first field with a value counts:

================  ==========================  =====================================  ==================================
column            fts                         rucio-event                            rucio-trace
================  ==========================  =====================================  ==================================
start_s           timestamp_tr_st,            started_at, transferred_at - duration, transferStart, timeStart
                  tr_timestamp_start          submitted_at
end               timestamp_tr_comp,          transferred_at                         transferEnd, timeEnd
                  tr_timestamp_complete
size_bytes        f_size, file_size           bytes, file-size                       filesize
source (host)     src_hostname, src_se,       src-url
                  source_se, src_url,
                  t_channel
source (RSE)      file_metadata.src_rse       src-rse                                remoteSite; localSite of an upload
state             t_final_transfer_state,     event_type                             clientState, stateReason
                  t_final_transfer_state_flag
================  ==========================  =====================================  ==================================

The fields of the destination correspond. Times are Unix times in s, ms, µs or ns, or texts in ISO 8601; texts without an
offset are UTC.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import duckdb

__all__ = ["LOG_FORMATS", "EndpointKind", "LogCounts", "LogFormat", "TransferLogError", "is_json", "load_log"]

LogFormat = Literal["fts", "rucio-event", "rucio-trace"]
LOG_FORMATS: tuple[LogFormat, ...] = ("fts", "rucio-event", "rucio-trace")
EndpointKind = Literal["host", "rse"]

SEEN_LINES = 1000
"""Number of first lines that determine the format. Logs can start with records of other events."""
_GZIP = b"\x1f\x8b"
_TITLES = {"fts": "FTS records", "rucio-event": "Rucio events", "rucio-trace": "Rucio traces"}
_OFFSET = r":\d\d(?:[.]\d+)?[+-]\d\d(?::?\d\d)?$"
_HOST = r"^(?:[A-Za-z][A-Za-z0-9+.-]*://)?(?:[^@/]*@)?(\[[^\]]+\]|[^:/?]+)"


class TransferLogError(Exception):
    """Unreadable log; the message has the location, the expected and the found value."""


@dataclass(frozen=True)
class LogCounts:
    """Records of a log.

    Attributes
    ----------
    format
        Format of the records.
    records
        Number of all records.
    failed
        Failed transfers.
    other
        Records of other events, and of transfers without a final state.
    incomplete
        Successful transfers without a size above 0, a start or an endpoint.
    """

    format: LogFormat
    records: int
    failed: int
    other: int
    incomplete: int

    def text(self) -> str:
        """Return the counts as a sentence without a period.

        Examples
        --------
        >>> LogCounts("fts", 1200, 30, 0, 1).text()
        '1,200 FTS records; left out: 30 failed transfers, 1 without size, time or endpoint'
        """
        left_out = [
            text
            for count, text in (
                (self.failed, f"{self.failed:,} failed transfer{'s' * (self.failed != 1)}"),
                (self.other, f"{self.other:,} record{'s' * (self.other != 1)} of other events"),
                (self.incomplete, f"{self.incomplete:,} without size, time or endpoint"),
            )
            if count
        ]
        return f"{self.records:,} {_TITLES[self.format]}; left out: {', '.join(left_out) or 'none'}"


def is_json(path: Path) -> bool:
    """Return whether a file, after decompression, starts like JSON.

    Raises
    ------
    TransferLogError
        If it is not a complete gzip file.
    """
    with _open(path) as file:
        return file.read(4096).lstrip()[:1] in (b"{", b"[")


@contextmanager
def _open(path: Path) -> Iterator[BufferedIOBase]:
    """Open a file, and decompress it if it is in the format of gzip."""
    try:
        with gzip.open(path, "rb") if _is_gzip(path) else path.open("rb") as file:
            yield file
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise TransferLogError(
            f"{path}: expected a complete gzip file, found {error}; copy the file again"
        ) from error


def load_log(
    connection: duckdb.DuckDBPyConnection, path: Path, log_format: LogFormat | None, endpoints: EndpointKind | None
) -> LogCounts:
    """Create the table ``written`` of successful transfers, with the columns of a trace and ``row``.

    Parameters
    ----------
    connection
        DuckDB connection without such a table.
    path
        JSON Lines, also with gzip.
    log_format
        Format of the records. None: recognize it.
    endpoints
        Whether names are hosts or RSEs. None: hosts for FTS, RSEs for Rucio.

    Raises
    ------
    TransferLogError
        If the format is unknown or ambiguous, or no successful transfer has all values.
    """
    found, prefix = _recognize(path, log_format)
    kind = endpoints or ("host" if found == "fts" else "rse")
    if found == "rucio-trace" and kind == "host":
        raise TransferLogError(
            f'{path}: workload.endpoints: expected "rse", because Rucio traces name sites, found "host"; omit the key'
        )
    fields = _FIELDS[found]
    paths = [f"{prefix(name)}" for name in fields]
    selected = ", ".join(f"nullif(f[{number}], '') AS {_column(name)}" for number, name in enumerate(fields, 1))
    # One call extracts all fields, so that each line is parsed once.
    listed = ", ".join("'" + text + "'" for text in paths)
    compression = "gzip" if _is_gzip(path) else "none"
    connection.execute(
        f"""CREATE TEMP VIEW fields AS SELECT {selected}, row_number() OVER () AS row FROM (
            SELECT json_extract_string(json, [{listed}]) AS f
            FROM read_json_objects('{_quoted(path)}', format = 'newline_delimited', compression = '{compression}',
                maximum_object_size = 16777216))"""
    )
    connection.execute(f"CREATE TEMP TABLE records AS SELECT {_columns(found, kind)}, row FROM fields")
    usable = (
        "size_bytes BETWEEN 1 AND 9007199254740992 AND start_s IS NOT NULL AND source <> '' AND destination <> ''"
    )
    counted = connection.execute(
        f"""SELECT count(*), count(*) FILTER (state = 'failed'), count(*) FILTER (state = 'other'),
            count(*) FILTER (state = 'ok' AND NOT coalesce({usable}, false)) FROM records"""
    ).fetchone()
    assert counted is not None
    counts = LogCounts(found, *map(int, counted))
    connection.execute(
        f"""CREATE TEMP TABLE written AS SELECT start_s, source, destination, size_bytes,
            CASE WHEN duration_s >= 0 THEN duration_s END AS duration_s, row
            FROM records WHERE state = 'ok' AND coalesce({usable}, false)"""
    )
    connection.execute("DROP TABLE records")
    if counts.records == counts.failed + counts.other + counts.incomplete:
        advice = (
            f' set workload.endpoints = "{"rse" if kind == "host" else "host"}" if names are there'
            if counts.incomplete and found != "rucio-trace"
            else " use a log with successful transfers"
        )
        raise TransferLogError(f"{path}: expected successful transfers, found {counts.text()};{advice}")
    return counts


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == _GZIP


def _quoted(path: Path) -> str:
    """Return a path for SQL, in which no character is a wildcard."""
    escaped = "".join(f"[{one}]" if one in "*?[" else one for one in str(path))
    return escaped.replace("'", "''")


class _Prefix:
    """JSON path of a field, inside of the objects that wrap a record."""

    def __init__(self, wrappers: tuple[str, ...]) -> None:
        self.wrappers = wrappers

    def __call__(self, field: str) -> str:
        # The type of an event is next to its payload.
        wrappers = (
            self.wrappers[:-1] if field == "event_type" and self.wrappers[-1:] == ("payload",) else self.wrappers
        )
        return "$" + "".join(f'."{part}"' for part in (*wrappers, *field.split(".")))


def _recognize(path: Path, expected: LogFormat | None) -> tuple[LogFormat, _Prefix]:
    """Return the format of a log, and where its fields are."""
    seen: Counter[tuple[LogFormat, tuple[str, ...]]] = Counter()
    first: dict[str, Any] | None = None
    with _open(path) as file:
        lines = list(islice(file, SEEN_LINES))
    for number, line in enumerate(lines, 1):
        text = line.strip().decode("utf-8", "replace")
        if not text:
            continue
        if text.startswith("["):
            raise TransferLogError(
                f"{path}: line {number}: expected one JSON object per line, found an array; convert it with"
                " `jq -c '.[]'`"
            )
        try:
            record = json.loads(text)
        except ValueError as error:
            raise TransferLogError(
                f"{path}: line {number}: expected a JSON object, found {error}; correct the line"
            ) from error
        if isinstance(record, dict):
            first = first or record
            seen.update(_formats(record, ()))
    formats = list(dict.fromkeys(name for name, _ in seen if expected in (None, name)))
    if not formats:
        what = _TITLES[expected] if expected else "FTS records, Rucio events or Rucio traces"
        raise TransferLogError(
            f"{path}: expected {what}, found records with {', '.join(list(first or ())[:8]) or 'no fields'}; use another"
            " log, or write a CSV file"
        )
    if len(formats) > 1:
        raise TransferLogError(
            f"{path}: expected records of one log, found {' and '.join(_TITLES[one] for one in formats)}; select one"
            f' with workload.format = "{formats[0]}"'
        )
    wrappers = max((pair for pair in seen if pair[0] == formats[0]), key=lambda pair: seen[pair])[1]
    return formats[0], _Prefix(wrappers)


def _formats(record: dict[str, Any], wrappers: tuple[str, ...]) -> list[tuple[LogFormat, tuple[str, ...]]]:
    if {"t_channel", "tr_id", "t_final_transfer_state", "tr_timestamp_start"} & record.keys():
        return [("fts", wrappers)]
    if isinstance(record.get("event_type"), str):
        payload = record.get("payload")
        return [("rucio-event", (*wrappers, "payload") if isinstance(payload, dict) else wrappers)]
    if isinstance(record.get("eventType"), str) and {"clientState", "remoteSite", "localSite"} & record.keys():
        return [("rucio-trace", wrappers)]
    inner = [(key, record[key]) for key in ("_source", "data") if isinstance(record.get(key), dict)]
    return [one for key, value in inner if len(wrappers) < 2 for one in _formats(value, (*wrappers, key))]


_FIELDS: dict[LogFormat, tuple[str, ...]] = {
    "fts": (
        "timestamp_tr_st", "timestamp_tr_comp", "tr_timestamp_start", "tr_timestamp_complete", "f_size", "file_size",
        "src_hostname", "src_se", "source_se", "src_url", "dst_hostname", "dst_se", "dest_se", "dst_url", "t_channel",
        "file_metadata", "t_final_transfer_state", "t_final_transfer_state_flag",
    ),
    "rucio-event": (
        "event_type", "started_at", "submitted_at", "transferred_at", "duration", "bytes", "file-size", "src-rse",
        "dst-rse", "src-url", "dst-url",
    ),
    "rucio-trace": (
        "eventType", "clientState", "stateReason", "localSite", "remoteSite", "hostname", "filesize", "transferStart",
        "transferEnd", "timeStart", "timeEnd",
    ),
}  # fmt: skip


def _column(field: str) -> str:
    return '"' + field + '"'


def _time(column: str) -> str:
    """Return SQL for a time in Unix seconds; NULL if it is absent, 0 or not a time.

    Numbers below 1e11 are seconds (until the year 5138), below 1e14 ms, below 1e17 µs, and others ns.
    """
    number = f"try_cast({column} AS DOUBLE)"
    # A cast to TIMESTAMP ignores the offset, and a cast to TIMESTAMPTZ without an offset uses the zone of this machine.
    written = (
        f"CASE WHEN regexp_matches({column}, '{_OFFSET}') THEN epoch(try_cast({column} AS TIMESTAMPTZ))"
        f" ELSE epoch(try_cast({column} AS TIMESTAMP)) END"
    )
    return (
        f"CASE WHEN {number} IS NULL THEN {written} WHEN NOT isfinite({number}) OR {number} <= 0 THEN NULL"
        f" WHEN {number} < 1e11 THEN {number} WHEN {number} < 1e14 THEN {number} / 1e3"
        f" WHEN {number} < 1e17 THEN {number} / 1e6 ELSE {number} / 1e9 END"
    )


def _size(*columns: str) -> str:
    return f"coalesce({', '.join(f'try_cast({one} AS DOUBLE)' for one in columns)})::BIGINT"


def _host(column: str) -> str:
    return f"nullif(regexp_extract({column}, '{_HOST}', 1), '')"


def _columns(log_format: LogFormat, kind: EndpointKind) -> str:
    """Return the SQL of ``state``, ``start_s``, ``duration_s``, ``size_bytes``, ``source`` and ``destination``."""
    return {"fts": _fts, "rucio-event": _event, "rucio-trace": _trace}[log_format](kind)


def _fts(kind: EndpointKind) -> str:
    inner, outer = (
        (_time("timestamp_tr_st"), _time("timestamp_tr_comp")),
        (
            _time("tr_timestamp_start"),
            _time("tr_timestamp_complete"),
        ),
    )
    if kind == "host":
        # The regular expressions are slow, and most records have the names of hosts.
        source = ", ".join(
            ["src_hostname", *map(_host, ("src_se", "source_se", "src_url", "split_part(t_channel, '__', 1)"))]
        )
        destination = ", ".join(
            ["dst_hostname", *map(_host, ("dst_se", "dest_se", "dst_url", "split_part(t_channel, '__', 2)"))]
        )
        names = f"coalesce({source}) AS source, coalesce({destination}) AS destination"
    else:
        names = ", ".join(
            f"json_extract_string(CASE WHEN json_valid(file_metadata) THEN file_metadata END, '$.{field}') AS {name}"
            for field, name in (("src_rse", "source"), ("dst_rse", "destination"))
        )
    state = "lower(t_final_transfer_state)"
    flag = "t_final_transfer_state_flag"
    return f"""CASE WHEN {state} = 'ok' OR ({state} IS NULL AND {flag} = '1') THEN 'ok'
            WHEN {state} IS NULL AND {flag} IS NULL THEN 'other' ELSE 'failed' END AS state,
        coalesce({inner[0]}, {outer[0]}) AS start_s,
        coalesce({inner[1]} - {inner[0]}, {outer[1]} - {outer[0]}) AS duration_s,
        {_size("f_size", "file_size")} AS size_bytes, {names}"""


def _event(kind: EndpointKind) -> str:
    taken = "nullif(greatest(try_cast(duration AS DOUBLE), 0), 0)"
    start, end = _time("started_at"), _time("transferred_at")
    names = ('"src-rse"', '"dst-rse"') if kind == "rse" else (_host('"src-url"'), _host('"dst-url"'))
    return f"""CASE WHEN event_type = 'transfer-done' THEN 'ok'
            WHEN event_type LIKE 'transfer-%failed' OR event_type = 'transfer-lost' THEN 'failed' ELSE 'other' END AS state,
        coalesce({start}, {end} - {taken}, {_time("submitted_at")}) AS start_s,
        coalesce({end} - {start}, {taken}) AS duration_s,
        {_size("bytes", '"file-size"')} AS size_bytes, {names[0]} AS source, {names[1]} AS destination"""


def _trace(_kind: EndpointKind) -> str:
    event = 'lower("eventType")'
    upload = f"({event} = 'upload' OR {event} LIKE 'put%' OR {event} LIKE 'sm_put%')"
    download = f"({event} = 'download' OR {event} LIKE 'get%' OR {event} LIKE 'sm_get%')"
    start, end = (
        f"coalesce({_time('transferStart')}, {_time('timeStart')})",
        (f"coalesce({_time('transferEnd')}, {_time('timeEnd')})"),
    )
    local = 'coalesce("localSite", hostname)'
    done = "upper(coalesce(\"clientState\", CASE WHEN upper(\"stateReason\") = 'OK' THEN 'DONE' END, ''))"
    return f"""CASE WHEN NOT ({upload} OR {download}) OR {done} IN ('FOUND', 'ALREADY_DONE', 'INIT_REPORT') THEN 'other'
            WHEN {done} = 'DONE' THEN 'ok' ELSE 'failed' END AS state,
        {start} AS start_s, {end} - {start} AS duration_s, {_size("filesize")} AS size_bytes,
        CASE WHEN {upload} THEN {local} ELSE "remoteSite" END AS source,
        CASE WHEN {upload} THEN "remoteSite" ELSE {local} END AS destination"""
