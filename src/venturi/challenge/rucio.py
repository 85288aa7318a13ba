"""Plan for a load injector, such as the injector of Rucio.

Rucio's injector (rucio/rucio #8593, pull request #8730, not merged in 2026-11) creates replication rules for a pair of
RSEs at a rate. A row becomes one entry for each pair of storages, with an equal part of the rate:

============  ==================  =================================================
JSON          CSV                 value
============  ==================  =================================================
src_rse       src_rse             name of the source storage in the testbed
dst_rse       dest_rse            name of the destination storage
rate_mbps     inject_rate         rate of file data in Mb/s; in CSV a whole number
start, end    start_time, …       time in UTC, or seconds since the start
============  ==================  =================================================

In the pull request, ``rucio loadinjection add --csv-file`` reads CSV files with these columns.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from venturi.challenge.table import ChallengeRow, ChallengeTable
from venturi.challenge.testbed import ChallengeTestbed
from venturi.errors import ScenarioError

__all__ = ["InjectorEntry", "injector_csv", "injector_entries", "injector_json", "parse_utc"]

TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
"""Times of the injector, in UTC."""

_MEGA = 1e6


@dataclass(frozen=True, slots=True)
class InjectorEntry:
    """Rate between two storages (RSEs) during a period; ``row`` is its row of the table."""

    source: str
    destination: str
    rate_bit_per_s: float
    start_s: float
    end_s: float
    row: ChallengeRow


def injector_entries(table: ChallengeTable, testbed: ChallengeTestbed) -> list[InjectorEntry]:
    """Return the entries of a table, in its order.

    Raises
    ------
    ScenarioError
        If a row has no end.
    """
    problems = [
        (f"{row.where}: end", 'expected a time such as "2 h" (an injector needs it), found nothing; add it')
        for row in table.rows
        if math.isinf(row.end_s)
    ]
    if problems:
        raise ScenarioError(problems, table.source)
    return list(_entries(table, testbed))


def _entries(table: ChallengeTable, testbed: ChallengeTestbed) -> Iterator[InjectorEntry]:
    for row in table.rows:
        pairs = [
            (one.name, other.name)
            for one in testbed.named[row.source]
            for other in testbed.named[row.destination]
            if one.site != other.site
        ]
        for source, destination in pairs:
            yield InjectorEntry(source, destination, row.rate_bit_per_s / len(pairs), row.start_s, row.end_s, row)


def parse_utc(text: str) -> datetime:
    """Return a time in UTC, such as ``2027-02-01 08:00:00`` or ``2027-02-01T08:00:00+01:00``.

    Raises
    ------
    ScenarioError
        If the text is not a time.
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        problem = f'expected a time such as "2027-02-01 08:00:00", found "{text}"; correct it'
        raise ScenarioError([("--starts-at", problem)], "venturi challenge") from error
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def injector_json(entries: list[InjectorEntry], starts_at: datetime | None) -> list[dict[str, Any]]:
    """Return the entries as values for JSON. Without ``starts_at``, times are seconds since the start."""
    return [
        {
            "src_rse": entry.source,
            "dst_rse": entry.destination,
            "rate_mbps": entry.rate_bit_per_s / _MEGA,
            "start": _time(entry.start_s, starts_at),
            "end": _time(entry.end_s, starts_at),
        }
        for entry in entries
    ]


def injector_csv(entries: list[InjectorEntry], starts_at: datetime | None) -> str:
    """Return the entries as CSV text for the command line of the injector, with whole Mb/s.

    Raises
    ------
    ScenarioError
        If ``starts_at`` is missing, or if a rate is below 1 Mb/s.
    """
    if starts_at is None:
        problem = "expected a time such as 2027-02-01T08:00:00 (CSV plans have times in UTC), found nothing; add it"
        raise ScenarioError([("--starts-at", problem)], "venturi challenge")
    slow = [entry for entry in entries if round(entry.rate_bit_per_s / _MEGA) < 1]
    if slow:
        problem = (
            f"expected at least 1 Mb/s (the unit of the injector) for {slow[0].source} to {slow[0].destination},"
            f" found {slow[0].rate_bit_per_s:g} b/s; use JSON"
        )
        raise ScenarioError([(f"{slow[0].row.where}: rate", problem)], "venturi challenge")
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["src_rse", "dest_rse", "inject_rate", "start_time", "end_time", "comments"])
    for entry in entries:
        writer.writerow([
            entry.source, entry.destination, round(entry.rate_bit_per_s / _MEGA), _time(entry.start_s, starts_at),
            _time(entry.end_s, starts_at), f"{entry.row.source} to {entry.row.destination}",
        ])  # fmt: skip
    return stream.getvalue()


def _time(time_s: float, starts_at: datetime | None) -> str | float:
    return time_s if starts_at is None else (starts_at + timedelta(seconds=time_s)).strftime(TIME_FORMAT)
