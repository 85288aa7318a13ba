"""Terminal tables for runs with servers, storages and emulated links."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from venturi.analysis import Analysis
from venturi.analysis.format import format_factor_name, format_factor_value, format_factors, plural, varied_factors
from venturi.analysis.result_lab import PublishedTableComparison
from venturi.report.rows import storage_rows, value_name
from venturi.report.terminal_table import MAX_ROWS, SHORT_NAMES, new_table
from venturi.units import format_bit_rate, format_bytes, format_duration, format_rate

__all__ = ["lab_parts", "published_table_parts"]

_STYLES = {True: "green", False: "red", None: ""}
_VERDICTS = {True: "agrees", False: "disagrees", None: "not tested"}
MAX_LINKS = 16


def lab_parts(a: Analysis) -> list[RenderableType]:
    """Return the tables of storages, fixed costs, links, byte counts and sockets. The list is empty without them."""
    parts: list[RenderableType] = []
    for part in (_storages(a), _fixed(a), _ratios(a), _links(a), _byte_counts(a), _sockets(a)):
        parts += [part, Text()] if part is not None else []
    return parts


def published_table_parts(a: Analysis) -> list[RenderableType]:
    """Return the published tables with the values of this run."""
    return [part for published_table in a.published_tables for part in (_published(published_table), Text())]


def _new_factor_table(title: str, factors: Sequence[str], heads: Sequence[str], left: Sequence[str] = ()) -> Table:
    table = new_table(title)
    for name in factors:
        table.add_column(SHORT_NAMES.get(name, format_factor_name(name)), justify="right", overflow="fold")
    for head in heads:
        table.add_column(head, justify="left" if head in left else "right", overflow="fold")
    return table


def _limit_note(table: Table, rows: int) -> Table:
    if rows > MAX_ROWS:
        table.caption = f"{plural(rows - MAX_ROWS, 'more row')} in the HTML page and the CSV tables"
    return table


def _storages(a: Analysis) -> Table | None:
    rows = storage_rows(a)
    if not rows:
        return None
    names = varied_factors(a.factors)
    table = _new_factor_table(
        "Storage throughput", names, ("storage", "traffic", "written", "read"), ("storage", "traffic")
    )
    for r in rows[:MAX_ROWS]:
        traffic = ("sum" if r.is_sum else "") if r.direction == "all" else r.direction
        table.add_row(
            *(format_factor_value(name, r.factors[name]) for name in names), r.storage, traffic,
            _storage_rate(r.write_bytes_per_s, r.write_requested), _storage_rate(r.read_bytes_per_s, r.read_requested),
        )  # fmt: skip
    return _limit_note(table, len(rows))


def _storage_rate(rate: float | None, requested: bool) -> str:
    return "no request" if not requested else "-" if rate is None else format_rate(rate)


def _published(published_table: PublishedTableComparison) -> Table:
    scaled = "" if published_table.scale == 1 else f", ratio to published value × {published_table.scale:g}"
    heads = [head for name in published_table.values for head in (value_name(name), "this run", "ratio")]
    table = _new_factor_table(f"{published_table.name} (MB/s{scaled})", published_table.factors, heads)
    for r in published_table.rows[:MAX_ROWS]:
        values = []
        for name in published_table.values:
            published, ours, ratio = r.published[name], r.ours[name], r.ratio[name]
            if published == 0 and ours is None:
                values += ["0", "", ""]
            else:
                values += [_in_mega(published), _in_mega(ours), "-" if ratio is None else f"{ratio:.3g}"]
        table.add_row(*(format_factor_value(name, r.factors[name]) for name in published_table.factors), *values)
    if any(value == 0 for r in published_table.rows for value in r.published.values()):
        table.caption = "0: no request to read or write"
    return _limit_note(table, len(published_table.rows))


def _in_mega(rate: float | None) -> str:
    return "-" if rate is None else f"{rate / 1e6:.0f}" if rate >= 1e8 else f"{rate / 1e6:.3g}"


def _fixed(a: Analysis) -> Table | None:
    if not a.fixed_costs:
        return None
    names = [n for n in varied_factors(a.factors) if len({str(c.factors[n]) for c in a.fixed_costs}) > 1]
    table = _new_factor_table("Fixed cost: times of empty files", names, ("n", "median", "quartiles", "min.", "max."))
    for c in a.fixed_costs[:MAX_ROWS]:
        table.add_row(
            *(format_factor_value(name, c.factors[name]) for name in names), f"{c.transfers:,}", format_duration(c.median_s),
            f"{format_duration(c.lower_quartile_s)}–{format_duration(c.upper_quartile_s)}", format_duration(c.least_s),
            format_duration(c.greatest_s),
        )  # fmt: skip
    return _limit_note(table, len(a.fixed_costs))


def _ratios(a: Analysis) -> Table | None:
    if not a.fixed_cost_ratios:
        return None
    table = _new_factor_table("Relative fixed cost of factor levels", (), ("level", "reference", "at", "ratio", "interval"),
                     ("level", "reference", "at"))  # fmt: skip
    names = [name for name in varied_factors(a.factors) if name != "size_bytes"]
    for r in a.fixed_cost_ratios[:MAX_ROWS]:
        interval = f"{r.ratio.low:.3g}–{r.ratio.high:.3g}"
        table.add_row(
            r.value_text,
            r.reference_text,
            format_factors(r.others, names) or "all",
            f"{r.ratio.estimate:.3g}",
            interval,
        )
    return _limit_note(table, len(a.fixed_cost_ratios))


def _links(a: Analysis) -> Table | None:
    if a.testbed is None or not a.testbed.links:
        return None
    scaled = "" if a.testbed.scale == 1 else f", scale {a.testbed.scale:g}"
    table = _new_factor_table(f"Links{scaled}", (),
                     ("link", "rate", "delay", "queue", "loss", "carried", "dropped"), ("link",))  # fmt: skip
    for link in a.testbed.links[:MAX_LINKS]:
        drops = (link.queue_drops or 0) + (link.loss_drops or 0)
        table.add_row(
            link.name, "-" if link.rate_bit_per_s is None else format_bit_rate(link.rate_bit_per_s), format_duration(link.delay_s),
            "-" if link.queue_bytes is None else format_bytes(link.queue_bytes), link.loss or "none",
            "-" if link.bytes is None else format_bytes(link.bytes), "-" if link.queue_drops is None else f"{drops:,.0f}",
        )  # fmt: skip
    if len(a.testbed.links) > MAX_LINKS:
        table.caption = f"{plural(len(a.testbed.links) - MAX_LINKS, 'more link')} in the HTML page and the CSV tables"
    return table


def _byte_counts(a: Analysis) -> Table | None:
    if not a.accounts:
        return None
    table = _new_factor_table("Byte counts along the route", (), ("counted by", "bytes", "of requested", "expected", "verdict"),
                     ("counted by", "verdict"))  # fmt: skip
    for r in a.accounts:
        expected = f"{100 * r.least / r.requested_bytes:.4g}–{100 * r.most / r.requested_bytes:.4g} %"
        table.add_row(
            r.party, format_bytes(r.counted_bytes), "-" if r.ratio is None else f"{100 * r.ratio:.5g} %", expected,
            Text(_VERDICTS[r.agrees], style=_STYLES[r.agrees]),
        )  # fmt: skip
    return table


def _sockets(a: Analysis) -> Table | None:
    if not a.sockets:
        return None
    names = varied_factors(a.factors)
    table = _new_factor_table(
        "TCP data connections (medians)",
        names,
        ("n", "requested", "window", "RTT", "min.", "retrans.", "each"),
    )
    for s in a.sockets[:MAX_ROWS]:
        table.add_row(
            *(format_factor_value(name, s.factors[name]) for name in names), f"{s.connections:,}",
            "kernel's" if s.requested_window_bytes is None else format_bytes(s.requested_window_bytes),
            "-" if s.window_bytes is None else format_bytes(s.window_bytes), _time(s.rtt_s), _time(s.least_rtt_s),
            "-" if s.retransmitted_ratio is None else f"{100 * s.retransmitted_ratio:.2g} %", _rate(s.delivery_bytes_per_s),
        )  # fmt: skip
    return _limit_note(table, len(a.sockets))


def _rate(value: float | None) -> str:
    return "-" if value is None else format_rate(value)


def _time(value_s: float | None) -> str:
    return "-" if value_s is None else format_duration(value_s)
