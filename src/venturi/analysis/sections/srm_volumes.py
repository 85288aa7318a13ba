"""Check of sums of volumes: published volumes by host, and our volumes by client and server (002-E01, 002-E02)."""

from __future__ import annotations

from collections.abc import Sequence

from venturi.analysis.result import About
from venturi.analysis.section import Column, Scalar, Table
from venturi.analysis.sections.jobs_curves import published_table
from venturi.analysis.sections.srm_services import ServiceRow
from venturi.study import PublishedTable
from venturi.units import BITS_PER_BYTE

__all__ = ["volume_table"]

_ID = "002-srm"
_TOTAL = "total"
_WITHIN = 0.005
"""Accepted relative difference of printed sums and rates, which have three digits."""
_MEBI = (1 << 20) / 1e6
"""Binary megabyte in decimal megabytes."""


def volume_table(about: About, rows: Sequence[ServiceRow]) -> Table:
    """Return each volume with the sum of its parts, its rate and a verdict.

    The parts of our volumes are the bytes that servers logged. The parts of published volumes are the hosts. The rate
    from the volume, 8 · volume / time, is compared with the printed rate, with decimal and with binary megabytes.
    """
    table = published_table(about, _ID)
    columns = (
        *(Column("source", "Source"), Column("category", "Files"), Column("service", "Service")),
        *(
            Column("volume_bytes", "Volume"),
            Column("parts_bytes", "Sum of its parts"),
            Column("sum_ratio", "Volume ÷ sum"),
        ),
        *(
            Column("throughput_bit_per_s", "Throughput"),
            Column("from_volume_bit_per_s", "Throughput from the volume"),
        ),
        *(Column("from_binary_volume_bit_per_s", "From the volume, binary megabytes"), Column("verdict", "Check")),
    )
    cells = [*(_ours(row) for row in rows), *(_printed(table) if table is not None else ())]
    note = (
        "Parts in this run: the bytes in the logs of the receiving GridFTP servers. Failed calls are not in the volume, although their files may have arrived. "
        f"Parts in the report: the hosts. A sum that differs by more than {100 * _WITHIN:g} % does not add up. The report does not define its megabyte; "
        "decimal and binary differ by a factor of 1.0486."
    )
    return Table("srm-volumes", "Sums of volumes", columns, tuple(cells), note)


def _ours(row: ServiceRow) -> tuple[Scalar, ...]:
    ratio = row.bytes / row.logged_bytes if row.logged_bytes else None
    return (
        *("this run", row.category, row.service, row.bytes, row.logged_bytes, ratio, row.rate_bit_per_s, None, None),
        _verdict(ratio),
    )


def _printed(table: PublishedTable) -> list[tuple[Scalar, ...]]:
    found: list[tuple[Scalar, ...]] = []
    for total in (row for row in table.rows if row["host"] == _TOTAL):
        hosts = [row for row in table.rows if row["category"] == total["category"] and row["host"] != _TOTAL]
        volume = float(total["volume_printed_bytes"] or 0)
        parts = sum(float(row["volume_printed_bytes"] or 0) for row in hosts)
        time_s = float(total["time_s"] or 0)
        rate = float(total["throughput_bit_per_s"] or 0)
        ratio = volume / parts if parts else None
        from_volume = BITS_PER_BYTE * volume / time_s if time_s else None
        binary = None if from_volume is None else _MEBI * from_volume
        verdict = _verdict(ratio)
        if from_volume is not None and abs(from_volume / rate - 1) > 2 * _WITHIN:
            verdict += f"; 8 · volume / time is {from_volume / rate:.3g} × the printed rate"
        found.append(
            ("published", total["category"], "srm", volume, parts, ratio, rate, from_volume, binary, verdict)
        )
    return found


def _verdict(ratio: float | None) -> str:
    if ratio is None:
        return "no second count"
    return "adds up" if abs(ratio - 1) <= _WITHIN else f"does not add up: {ratio:.3g} × the sum"
