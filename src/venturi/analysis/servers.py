"""Bytes of files in server logs compared with the bytes that receivers hold.

The input is the ``server-transfer`` events of a lab run. The comparison only uses logs with the bytes of the file
itself. GridFTP and nginx log these bytes, but Squid's count includes response headers.
"""

from __future__ import annotations

from dataclasses import dataclass

from venturi.analysis.format import plural
from venturi.analysis.result import FindingSummary
from venturi.analysis.run_columns import DELIVERED_BYTES
from venturi.run import Run
from venturi.units import format_bytes_exact

__all__ = ["ServerCounts", "server_counts", "server_findings"]

# A restart moves some bytes again, and aborted transfers have no successful reply. Therefore the true count is between
# the bytes of the successful replies and the bytes of all replies. A transfer can move many files, which are then in
# its directory. If several transfers read a file from one server at the same time, the log does not identify the client
# of a reply, so these reads are not compared. Reads through a proxy are not compared either. A proxy can have the file
# already, or request it once for several clients, so a reply of the origin server does not belong to one read.
_COUNTS = f"""
    WITH seen AS (
        SELECT detail->>'service' AS service, detail->>'endpoint' AS endpoint, (detail->>'start_s')::DOUBLE AS start_s,
               (detail->>'file_bytes')::BIGINT AS bytes, left(detail->>'code', 1) = '2' AS good,
               regexp_replace(detail->>'endpoint', '/[^/]*$', '') AS folder,
               detail->>'command' IN ('STOR', 'ESTO', 'APPE', 'PUT', 'POST') AS stores
        FROM events WHERE kind = 'server-transfer' AND detail->>'endpoint' IS NOT NULL AND detail->>'file_bytes' IS NOT NULL
              AND detail->>'command' != 'HEAD'),
    moved AS (
        SELECT row_number() OVER () AS id, {DELIVERED_BYTES} AS bytes, files, start_s, end_s, source, destination,
               split_part(source_via, '/', 1) AS source_service, split_part(destination_via, '/', 1) AS destination_service,
               regexp_replace(source, '/[^/]*$', '') AS source_folder, regexp_extract(source, '[^/]*$') AS first,
               outcome IN ('ok', 'short') AS whole, coalesce(list_contains($proxied::VARCHAR[], call), false) AS proxied,
               coalesce(max(end_s) OVER (one_file ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) >= start_s, false)
               OR coalesce(lead(start_s) OVER one_file <= end_s, false) AS contested
        FROM transfers WHERE start_s IS NOT NULL AND end_s IS NOT NULL
        WINDOW one_file AS (PARTITION BY source, source_via ORDER BY start_s)),
    matched AS (
        SELECT id, moved.bytes AS held, service, destination AS endpoint, seen.bytes AS bytes, good FROM moved
        JOIN seen ON whole AND stores AND service = destination_service AND destination = if(files = 1, endpoint, folder)
        UNION ALL
        SELECT id, moved.bytes, service, source, seen.bytes, good FROM moved
        JOIN seen ON whole AND NOT proxied AND NOT contested AND NOT stores AND service = source_service AND folder = source_folder
             AND regexp_extract(endpoint, '[^/]*$') BETWEEN first AND lpad((first::BIGINT + files - 1)::VARCHAR, 6, '0')
             AND seen.start_s BETWEEN moved.start_s - 0.001 AND moved.end_s
        WHERE regexp_full_match(first, '[0-9]{{6}}')),
    counted AS (
        SELECT id, service, endpoint, held, coalesce(sum(bytes) FILTER (good), 0)::BIGINT AS least, sum(bytes)::BIGINT AS most
        FROM matched GROUP BY ALL)
    SELECT count(*) AS n, count(*) FILTER (NOT held BETWEEN least AND most) AS wrong,
           arg_min(service, id) FILTER (NOT held BETWEEN least AND most) AS service,
           arg_min(endpoint, id) FILTER (NOT held BETWEEN least AND most) AS endpoint,
           arg_min(most, id) FILTER (NOT held BETWEEN least AND most) AS logged,
           arg_min(held, id) FILTER (NOT held BETWEEN least AND most) AS held
    FROM counted
"""


@dataclass(frozen=True, slots=True)
class ServerCounts:
    """Agreement between the byte counts of servers and receivers.

    Attributes
    ----------
    compared, disagreeing
        Transfer endpoints with a server log of the bytes, and the endpoints with a count different from the receiver's.
        The requested bytes replace the receiver's count if no receiver holds the file. The count of the tool replaces
        it if the transfer ran for a time and not for a number of bytes.
    service, endpoint, logged_bytes, held_bytes
        The first endpoint that disagrees. None if all agree.
    """

    compared: int
    disagreeing: int
    service: str | None = None
    endpoint: str | None = None
    logged_bytes: int | None = None
    held_bytes: int | None = None


def server_counts(run: Run) -> ServerCounts:
    """Return the agreement of server logs and receivers on bytes. Without logs, ``compared`` is 0."""
    row = {name: values[0] for name, values in run.query(_COUNTS, {"proxied": _through_proxies(run)}).items()}
    if not row["wrong"]:
        return ServerCounts(int(row["n"]), 0)
    return ServerCounts(
        int(row["n"]), int(row["wrong"]), row["service"], row["endpoint"], int(row["logged"]), int(row["held"])
    )


def _through_proxies(run: Run) -> list[str]:
    """Return the calls that read through a proxy."""
    calls = run.header.get("calls") or {}
    named = ((name, {**(call.get("options") or {}), **(call.get("urls") or {})}) for name, call in calls.items())
    return [name for name, options in named if options.get("proxy")]


def server_findings(counts: ServerCounts) -> list[FindingSummary]:
    """Return the finding that servers and receivers disagree, or an empty list."""
    if not counts.disagreeing or counts.logged_bytes is None or counts.held_bytes is None:
        return []
    logged, held = format_bytes_exact(counts.logged_bytes), format_bytes_exact(counts.held_bytes)
    return [
        FindingSummary(
            "server-disagrees", counts.service or "",
            f"at {counts.disagreeing:,} of {plural(counts.compared, 'transfer endpoint')}, the server log and the receiver have different byte"
            f" counts; at {counts.endpoint}, {counts.service} logged {logged}, but {held} were delivered",
            "check the directories for other files, such as hidden ones; a server can also count bytes that did not arrive",
        )
    ]  # fmt: skip
