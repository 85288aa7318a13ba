"""Comparison of tools: tables 2, 3 and 4 of document 004, from any run with two tools on the same disks or routes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from venturi.analysis.format import format_sentences, plural
from venturi.analysis.result import About
from venturi.analysis.section import Column, Figure, Panel, ReportSection, Scalar, Series, Table
from venturi.analysis.tools import DiskRate, NetworkRate, disk_rates, network_rates
from venturi.run import Run
from venturi.study import study
from venturi.units import BITS_PER_BYTE

__all__ = ["COUNTERPARTS", "tools_section"]

COUNTERPARTS: Mapping[str, str] = {"bonnie": "bonnie", "fio": "iozone", "iperf3": "iperf", "nuttcp": "netperf"}
"""Tool → the tool of document 004 that it replaces. IOzone and Netperf are not in Debian main."""

LARGE = 2.0
"""Minimum ratio of file size to memory. Smaller files measure the page cache instead of the disk (004, L133)."""

_DISK, _NETWORK, _LIMITS = "004-disk", "004-network", "004-limits"

Rows = Sequence[Mapping[str, Scalar]]
Printed = Mapping[str, Rows]


def tools_section(run: Run, about: About) -> ReportSection | None:
    """Return the section of a run with two tools on the same storage, or on the same route between memories; otherwise None."""
    disks, networks = disk_rates(run), network_rates(run)
    disk_pairs, network_pairs = tuple(_disk_pairs(disks)), tuple(_network_pairs(networks))
    if not disk_pairs and not network_pairs:
        return None
    printed = _printed(about)
    tables = [
        table
        for table in (
            _disk_table(disks, printed), _disk_tools_table(disk_pairs, printed), _network_table(networks, printed),
            _network_tools_table(network_pairs, printed), _limits_table(disks, networks, printed),
        )
        if table.rows
    ]  # fmt: skip
    return ReportSection(
        name="tools",
        title="Disks and networks, by tool",
        sentence=_sentence(disk_pairs, network_pairs, disks),
        tables=tuple(tables),
        figures=tuple(_figures(disks, networks, printed)),
    )


def _printed(about: About) -> Printed:
    tables = study(about.study).published.evidence if about.study is not None else ()
    return {table.id: table.rows for table in tables}


# ---- sentence


def _disk_pairs(disks: Sequence[DiskRate]) -> Iterable[tuple[DiskRate, DiskRate]]:
    """Yield the results of two tools for the same machine, direction and file size, in alphabetical order of the tools."""
    for first, second in combinations(disks, 2):
        if (first.machine, first.direction, first.file_bytes) == (
            second.machine,
            second.direction,
            second.file_bytes,
        ):
            yield first, second


def _network_pairs(networks: Sequence[NetworkRate]) -> Iterable[tuple[NetworkRate, NetworkRate]]:
    for first, second in combinations(networks, 2):
        if (first.sender, first.receiver, first.streams) == (second.sender, second.receiver, second.streams):
            yield first, second


def _sentence(
    disks: Sequence[tuple[DiskRate, DiskRate]], networks: Sequence[tuple[NetworkRate, NetworkRate]], rates: Sequence[DiskRate]
) -> str:  # fmt: skip
    parts = []
    if disks:
        ratios = [first.rate_bytes_per_s / second.rate_bytes_per_s for first, second in disks]
        parts.append(
            f"two tools on one disk differ by a factor of at most {_factor(ratios):.2f} ({plural(len(ratios), 'comparison')})"
        )
    if networks:
        ratios = [first.rate_bit_per_s / second.rate_bit_per_s for first, second in networks]
        parts.append(
            f"two tools on one route differ by a factor of at most {_factor(ratios):.2f} ({plural(len(ratios), 'comparison')})"
        )
    small = [rate for rate in rates if rate.memory_bytes and rate.file_bytes < LARGE * rate.memory_bytes]
    if small:
        parts.append(
            f"files were smaller than {LARGE:g} times the memory on {', '.join(sorted({rate.machine for rate in small}))}"
        )
    return format_sentences(parts)


def _factor(ratios: Sequence[float]) -> float:
    return max(max(ratio, 1 / ratio) for ratio in ratios)


# ---- disks


def _printed_disk(printed: Printed, machine: str, tool: str, direction: str) -> Scalar:
    row = next((row for row in printed.get(_DISK, ()) if row["machine"] == machine), {})
    return row.get(f"{COUNTERPARTS.get(tool)}_{direction}_bytes_per_s")


def _disk_table(disks: Sequence[DiskRate], printed: Printed) -> Table:
    columns = (
        Column("machine", "machine"), Column("operation", "operation"), Column("tool", "tool"), Column("rate_bytes_per_s", "rate"),
        Column("error_bytes_per_s", "standard error"), Column("calls", "calls"), Column("file_bytes", "file"),
        Column("memory_bytes", "memory"), Column("file_to_memory_ratio", "file ÷ memory"), Column("limit_bytes_per_s", "configured rate"),
        Column("rate_to_limit_ratio", "rate ÷ configured rate"), Column("printed_bytes_per_s", "rate", published=True),
    )  # fmt: skip
    rows = tuple(
        (
            rate.machine, rate.direction, rate.tool, rate.rate_bytes_per_s, rate.error_bytes_per_s, rate.calls, rate.file_bytes, rate.memory_bytes,
            _ratio(rate.file_bytes, rate.memory_bytes), rate.limit_bytes_per_s, _ratio(rate.rate_bytes_per_s, rate.limit_bytes_per_s),
            _printed_disk(printed, rate.machine, rate.tool, rate.direction),
        )
        for rate in disks
    )  # fmt: skip
    note = _stands_for(rate.tool for rate in disks)
    return Table("disk-rates", "Disks, by tool", columns, rows, note)


def _disk_tools_table(pairs: Sequence[tuple[DiskRate, DiskRate]], printed: Printed) -> Table:
    rows = []
    for first, second in pairs:
        printed_rates = [
            _number(_printed_disk(printed, rate.machine, rate.tool, rate.direction)) for rate in (first, second)
        ]
        rates = first.rate_bytes_per_s, second.rate_bytes_per_s
        rows.append(
            (first.machine, first.direction, first.tool, second.tool, *rates, _ratio(*rates), _ratio(*printed_rates))
        )
    return Table("disk-tools", "Disks, comparison of tools", _pair_columns("operation", "bytes_per_s"), tuple(rows))


# ---- networks


def _printed_network(printed: Printed, machine: str, tool: str, streams: int) -> Scalar:
    key = (machine, COUNTERPARTS.get(tool), streams)
    rows = printed.get(_NETWORK, ())
    row = next((row for row in rows if (row["machine"], row["tool"], row["streams"]) == key), {})
    return row.get("rate_bit_per_s")


def _network_table(networks: Sequence[NetworkRate], printed: Printed) -> Table:
    columns = (
        Column("machine", "machine"), Column("receiver", "to"), Column("tool", "tool"), Column("streams", "streams"),
        Column("rate_bit_per_s", "rate"), Column("error_bit_per_s", "standard error"), Column("calls", "calls"),
        Column("link_bit_per_s", "link"), Column("rate_to_link_ratio", "rate ÷ link"),
        Column("printed_bit_per_s", "rate", published=True),
    )  # fmt: skip
    rows = tuple(
        (
            rate.machine, rate.receiver, rate.tool, rate.streams, rate.rate_bit_per_s, rate.error_bit_per_s, rate.calls,
            rate.link_bit_per_s, _ratio(rate.rate_bit_per_s, rate.link_bit_per_s),
            _printed_network(printed, rate.machine, rate.tool, rate.streams),
        )
        for rate in networks
    )  # fmt: skip
    note = _stands_for(rate.tool for rate in networks)
    return Table("network-rates", "TCP from memory to memory, by tool and streams", columns, rows, note)


def _network_tools_table(pairs: Sequence[tuple[NetworkRate, NetworkRate]], printed: Printed) -> Table:
    rows = []
    for first, second in pairs:
        printed_rates = [
            _number(_printed_network(printed, rate.machine, rate.tool, rate.streams)) for rate in (first, second)
        ]
        rates = first.rate_bit_per_s, second.rate_bit_per_s
        rows.append(
            (first.machine, first.streams, first.tool, second.tool, *rates, _ratio(*rates), _ratio(*printed_rates))
        )
    return Table("network-tools", "TCP, comparison of tools", _pair_columns("streams", "bit_per_s"), tuple(rows))


def _pair_columns(what: str, unit: str) -> tuple[Column, ...]:
    """Return the columns of a table that compares two tools, by direction or by number of streams."""
    return (
        Column("machine", "machine"), Column(what, what), Column("first_tool", "tool"), Column("second_tool", "other tool"),
        Column(f"first_{unit}", "rate"), Column(f"second_{unit}", "rate of the other tool"), Column("tools_ratio", "tool ÷ other tool"),
        Column("printed_ratio", "tool ÷ other tool", published=True),
    )  # fmt: skip


# ---- disks and networks


def _limits_table(disks: Sequence[DiskRate], networks: Sequence[NetworkRate], printed: Printed) -> Table:
    """Return the limit of a transfer of each machine: the mean of the tools on its disk, or the best rate on its route."""
    columns = (
        Column("machine", "machine"), Column("disk_write_bit_per_s", "disk, write"), Column("disk_read_bit_per_s", "disk, read"),
        Column("network_bit_per_s", "network, best"), Column("limits_writing", "limit of a received file"),
        Column("limits_reading", "limit of a sent file"),
        Column("printed_disk_write_bit_per_s", "disk, write", published=True),
        Column("printed_disk_read_bit_per_s", "disk, read", published=True),
        Column("printed_network_bit_per_s", "network, best", published=True),
    )  # fmt: skip
    rows = []
    for machine in dict.fromkeys(rate.machine for rate in disks):
        best = max((rate.rate_bit_per_s for rate in networks if rate.machine == machine), default=None)
        if best is None:
            continue
        write, read = (_disk_bit_per_s(disks, machine, direction) for direction in ("write", "read"))
        printed_rates = next((row for row in printed.get(_LIMITS, ()) if row["machine"] == machine), {})
        rows.append(
            (machine, write, read, best, _lesser(write, best), _lesser(read, best),
             *(printed_rates.get(name) for name in ("disk_write_bit_per_s", "disk_read_bit_per_s", "network_bit_per_s")))
        )  # fmt: skip
    return Table("disk-and-network", "Disk and network of each machine", columns, tuple(rows))


def _disk_bit_per_s(disks: Sequence[DiskRate], machine: str, direction: str) -> float | None:
    own = [rate.rate_bytes_per_s for rate in disks if (rate.machine, rate.direction) == (machine, direction)]
    return BITS_PER_BYTE * sum(own) / len(own) if own else None


def _lesser(disk: float | None, network: float) -> str | None:
    return None if disk is None else "disk" if disk < network else "network"


# ---- figures


def _figures(disks: Sequence[DiskRate], networks: Sequence[NetworkRate], printed: Printed) -> Iterable[Figure]:
    if networks:
        machines = dict.fromkeys(rate.machine for rate in networks)
        panels = tuple(
            _network_panel(machine, [r for r in networks if r.machine == machine], printed) for machine in machines
        )
        yield Figure(
            "network-tools", "TCP from memory to memory by streams", panels,
            "Rates reported by the tools, with one standard error to either side. Link: the slowest of the route.", _source(printed, _NETWORK),
        )  # fmt: skip
    if disks:
        panels = tuple(
            Panel(direction, "machine", "rate_bytes_per_s", tuple(_bars(disks, direction, printed)))
            for direction in ("write", "read")
        )
        yield Figure("disk-tools", "Disks by tool", panels, "Rates reported by the tools.", _source(printed, _DISK))


def _source(printed: Printed, table: str) -> str:
    return {_NETWORK: "004, tables 3 and 4", _DISK: "004, table 2"}[table] if table in printed else ""


def _network_panel(machine: str, rates: Sequence[NetworkRate], printed: Printed) -> Panel:
    series = []
    for tool in dict.fromkeys(rate.tool for rate in rates):
        own = [rate for rate in rates if rate.tool == tool]
        x = tuple(rate.streams for rate in own)
        errors = [rate.error_bit_per_s for rate in own]
        low, high = (
            ()
            if None in errors
            else tuple(rate.rate_bit_per_s + sign * (rate.error_bit_per_s or 0.0) for rate in own)
            for sign in (-1, 1)
        )
        series.append(Series(tool, x, tuple(rate.rate_bit_per_s for rate in own), low, high))
        printed_rates = tuple(_number(_printed_network(printed, machine, tool, streams)) for streams in x)
        if any(value is not None for value in printed_rates):
            series.append(Series(COUNTERPARTS[tool], x, printed_rates, published=True))
    return Panel(machine, "streams", "rate_bit_per_s", tuple(series), x_log=True)


def _bars(disks: Sequence[DiskRate], direction: str, printed: Printed) -> Iterable[Series]:
    own = [rate for rate in disks if rate.direction == direction]
    for tool in dict.fromkeys(rate.tool for rate in own):
        rates = [rate for rate in own if rate.tool == tool]
        x = tuple(rate.machine for rate in rates)
        yield Series(tool, x, tuple(rate.rate_bytes_per_s for rate in rates), style="bars")
        printed_rates = tuple(_number(_printed_disk(printed, rate.machine, tool, direction)) for rate in rates)
        if any(value is not None for value in printed_rates):
            yield Series(COUNTERPARTS[tool], x, printed_rates, style="bars", published=True)


def _stands_for(tools: Iterable[str]) -> str:
    known = [f"{tool} replaces {COUNTERPARTS[tool]}" for tool in dict.fromkeys(tools) if tool in COUNTERPARTS]
    listed = ", ".join(known) or "none"
    return f"Published rates are those of the replaced tool of the report: {listed}."


def _ratio(over: float | None, under: float | None) -> float | None:
    return over / under if over is not None and under else None


def _number(value: Scalar) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
