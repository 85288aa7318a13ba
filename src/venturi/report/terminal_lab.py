"""What runs with servers, storages and emulated links add on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from venturi.analysis import Analysis
from venturi.analysis.result_lab import TableBeside
from venturi.analysis.words import bit_rate, describe, factor_name, factor_value, plural, varying
from venturi.report.rows import storage_rows, value_name
from venturi.report.terminal_table import MOST_ROWS, SHORT_NAMES, new_table
from venturi.units import format_bytes, format_duration, format_rate

__all__ = ["lab_parts", "published_table_parts"]

_STYLES = {True: "green", False: "red", None: ""}
_VERDICTS = {True: "agrees", False: "disagrees", None: "not judged"}
MOST_LINKS = 16


def lab_parts(a: Analysis) -> list[RenderableType]:
    """Return the parts of a run of an emulated testbed, and of any with storages and empty files; empty without them."""
    found: list[RenderableType] = []
    for part in (_storages(a), _fixed(a), _ratios(a), _links(a), _accounts(a), _sockets(a)):
        found += [part, Text()] if part is not None else []
    return found


def published_table_parts(a: Analysis) -> list[RenderableType]:
    """Return the published tables beside ours."""
    return [part for beside in a.published_tables for part in (_published(beside), Text())]


def _started(title: str, factors: Sequence[str], heads: Sequence[str], left: Sequence[str] = ()) -> Table:
    started = new_table(title)
    for name in factors:
        started.add_column(SHORT_NAMES.get(name, factor_name(name)), justify="right", overflow="fold")
    for head in heads:
        started.add_column(head, justify="left" if head in left else "right", overflow="fold")
    return started


def _cut(shown: Table, rows: int) -> Table:
    if rows > MOST_ROWS:
        shown.caption = f"{plural(rows - MOST_ROWS, 'more row')} in the page and the CSV tables"
    return shown


def _storages(a: Analysis) -> Table | None:
    rows = storage_rows(a)
    if not rows:
        return None
    names = varying(a.factors)
    shown = _started(
        "What the storages gave and took", names, ("storage", "way", "written", "read"), ("storage", "way")
    )
    for r in rows[:MOST_ROWS]:
        way = {"all": "both" if r.both else "", "there": "there", "back": "back"}[r.direction]
        shown.add_row(
            *(factor_value(name, r.factors[name]) for name in names), r.storage, way,
            _asked(r.write_bytes_per_s, r.write_asked), _asked(r.read_bytes_per_s, r.read_asked),
        )  # fmt: skip
    return _cut(shown, len(rows))


def _asked(rate: float | None, asked: bool) -> str:
    return "not asked" if not asked else "-" if rate is None else format_rate(rate)


def _published(beside: TableBeside) -> Table:
    scaled = "" if beside.scale == 1 else f", ratio to published × {beside.scale:g}"
    heads = [head for name in beside.values for head in (value_name(name), "ours", "ratio")]
    shown = _started(f"{beside.name} (MB/s{scaled})", beside.factors, heads)
    for r in beside.rows[:MOST_ROWS]:
        cells = []
        for name in beside.values:
            told, ours, ratio = r.published[name], r.ours[name], r.ratio[name]
            if told == 0 and ours is None:
                cells += ["0", "", ""]
            else:
                cells += [_in_mega(told), _in_mega(ours), "-" if ratio is None else f"{ratio:.3g}"]
        shown.add_row(*(factor_value(name, r.factors[name]) for name in beside.factors), *cells)
    if any(told == 0 for r in beside.rows for told in r.published.values()):
        shown.caption = "0: nothing was to be read, or written"
    return _cut(shown, len(beside.rows))


def _in_mega(rate: float | None) -> str:
    return "-" if rate is None else f"{rate / 1e6:.0f}" if rate >= 1e8 else f"{rate / 1e6:.3g}"


def _fixed(a: Analysis) -> Table | None:
    if not a.fixed_costs:
        return None
    names = [n for n in varying(a.factors) if len({str(c.factors[n]) for c in a.fixed_costs}) > 1]
    shown = _started(
        "Times of empty files: every fixed cost", names, ("n", "median", "quartiles", "least", "greatest")
    )
    for c in a.fixed_costs[:MOST_ROWS]:
        shown.add_row(
            *(factor_value(name, c.factors[name]) for name in names), f"{c.transfers:,}", format_duration(c.median_s),
            f"{format_duration(c.lower_quartile_s)}–{format_duration(c.upper_quartile_s)}", format_duration(c.least_s),
            format_duration(c.greatest_s),
        )  # fmt: skip
    return _cut(shown, len(a.fixed_costs))


def _ratios(a: Analysis) -> Table | None:
    if not a.fixed_cost_ratios:
        return None
    shown = _started("What one choice costs over another, empty files", (), ("choice", "over", "at", "ratio", "interval"),
                     ("choice", "over", "at"))  # fmt: skip
    names = [name for name in varying(a.factors) if name != "size_bytes"]
    for r in a.fixed_cost_ratios[:MOST_ROWS]:
        interval = f"{r.ratio.low:.3g}–{r.ratio.high:.3g}"
        shown.add_row(
            r.value_text, r.reference_text, describe(r.others, names) or "all", f"{r.ratio.estimate:.3g}", interval
        )
    return _cut(shown, len(a.fixed_cost_ratios))


def _links(a: Analysis) -> Table | None:
    if a.testbed is None or not a.testbed.links:
        return None
    scaled = "" if a.testbed.scale == 1 else f", scale {a.testbed.scale:g}"
    shown = _started(f"Links of the emulated network{scaled}", (),
                     ("link", "rate", "delay", "queue", "loss", "carried", "dropped"), ("link",))  # fmt: skip
    for link in a.testbed.links[:MOST_LINKS]:
        drops = (link.queue_drops or 0) + (link.loss_drops or 0)
        shown.add_row(
            link.name, "-" if link.rate_bit_per_s is None else bit_rate(link.rate_bit_per_s), format_duration(link.delay_s),
            "-" if link.queue_bytes is None else format_bytes(link.queue_bytes), link.loss or "none",
            "-" if link.bytes is None else format_bytes(link.bytes), "-" if link.queue_drops is None else f"{drops:,.0f}",
        )  # fmt: skip
    if len(a.testbed.links) > MOST_LINKS:
        shown.caption = f"{plural(len(a.testbed.links) - MOST_LINKS, 'more link')} in the page and the CSV tables"
    return shown


def _accounts(a: Analysis) -> Table | None:
    if not a.accounts:
        return None
    shown = _started("The same bytes on their way", (), ("counted by", "bytes", "of asked", "explained", "verdict"),
                     ("counted by", "verdict"))  # fmt: skip
    for r in a.accounts:
        explained = f"{100 * r.least / r.asked_bytes:.4g}–{100 * r.most / r.asked_bytes:.4g} %"
        shown.add_row(
            r.party, format_bytes(r.counted_bytes), "-" if r.ratio is None else f"{100 * r.ratio:.5g} %", explained,
            Text(_VERDICTS[r.agrees], style=_STYLES[r.agrees]),
        )  # fmt: skip
    return shown


def _sockets(a: Analysis) -> Table | None:
    if not a.sockets:
        return None
    names = varying(a.factors)
    shown = _started(
        "TCP connections that carried data (medians)",
        names,
        ("n", "asked", "window", "RTT", "least", "again", "each"),
    )
    for s in a.sockets[:MOST_ROWS]:
        shown.add_row(
            *(factor_value(name, s.factors[name]) for name in names), f"{s.connections:,}",
            "kernel's" if s.asked_window_bytes is None else format_bytes(s.asked_window_bytes),
            "-" if s.window_bytes is None else format_bytes(s.window_bytes), _time(s.rtt_s), _time(s.least_rtt_s),
            "-" if s.retransmitted_ratio is None else f"{100 * s.retransmitted_ratio:.2g} %", _rate(s.delivery_bytes_per_s),
        )  # fmt: skip
    return _cut(shown, len(a.sockets))


def _rate(value: float | None) -> str:
    return "-" if value is None else format_rate(value)


def _time(value_s: float | None) -> str:
    return "-" if value_s is None else format_duration(value_s)
