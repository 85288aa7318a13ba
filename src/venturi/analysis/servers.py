"""What servers logged of the files that they moved, held against what receivers hold.

Made from the events ``server-transfer`` of a run in a lab. Only logs that tell the bytes of the file itself take part: those of
GridFTP and nginx do, Squid's counts heads too.
"""

from __future__ import annotations

from dataclasses import dataclass

from venturi.analysis.measured import DELIVERED_BYTES
from venturi.analysis.result import Notice
from venturi.analysis.words import plural
from venturi.run import Run
from venturi.units import format_bytes_exact

__all__ = ["ServerCounts", "server_counts", "server_notices"]

# A restart moves some bytes again, and what broke off counts in no reply that is good: the truth lies between the bytes of the good
# replies and those of all. One transfer may be of many files, which lie in its folder then. Of a file that several read from one
# server at the same time nobody can tell which of the replies was whose: those are not compared. Nor are reads through a proxy: it may
# have the file already, or be asked for it by several and ask once, so that a reply of the origin is not that of any one read.
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
    """How often servers and receivers agree.

    Attributes
    ----------
    compared, disagreeing
        Ends of transfers of which a server logged the bytes, and those where they are others than the receiver holds (than asked
        for, where nobody holds them, or than the tool counted, where it was asked for a time and not for bytes).
    service, endpoint, logged_bytes, held_bytes
        The first that disagrees; None if all agree.
    """

    compared: int
    disagreeing: int
    service: str | None = None
    endpoint: str | None = None
    logged_bytes: int | None = None
    held_bytes: int | None = None


def server_counts(run: Run) -> ServerCounts:
    """Return how the logs of servers and the receivers agree on bytes; nothing compared without such logs."""
    row = {name: values[0] for name, values in run.query(_COUNTS, {"proxied": _through_proxies(run)}).items()}
    if not row["wrong"]:
        return ServerCounts(int(row["n"]), 0)
    return ServerCounts(
        int(row["n"]), int(row["wrong"]), row["service"], row["endpoint"], int(row["logged"]), int(row["held"])
    )


def _through_proxies(run: Run) -> list[str]:
    """Return the calls that read through a proxy."""
    calls = run.header.get("calls") or {}
    return [name for name, call in calls.items() if (call.get("options") or {}).get("proxy")]


def server_notices(counts: ServerCounts) -> list[Notice]:
    """Return the finding that servers and receivers disagree, if they do."""
    if not counts.disagreeing or counts.logged_bytes is None or counts.held_bytes is None:
        return []
    logged, held = format_bytes_exact(counts.logged_bytes), format_bytes_exact(counts.held_bytes)
    return [
        Notice(
            "server-disagrees", counts.service or "",
            f"at {counts.disagreeing:,} of {plural(counts.compared, 'end')} of transfers a server logged other bytes than the receiver holds;"
            f" at {counts.endpoint} {counts.service} logged {logged}, held are {held}",
            "see what else was moved there (hidden files of a folder?), or what a server counted that did not arrive",
        )
    ]  # fmt: skip
