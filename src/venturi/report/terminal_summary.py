"""First screen of a report: headline, points, findings and next step in 24 lines of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from venturi.analysis import Analysis
from venturi.analysis.format import (
    format_factor_name,
    format_factor_value,
    format_rate_with_interval,
    plural,
    varied_factors,
)
from venturi.analysis.result import FindingSummary, PointResult
from venturi.analysis.section import Table as TableData
from venturi.report.terminal_section import fitted_table
from venturi.report.terminal_table import SHORT_NAMES, new_table
from venturi.units import format_rate

__all__ = ["MAX_LINES", "Screen"]

MAX_LINES = 22
"""Maximum number of lines. The path of the page and the prompt of the shell follow on a screen of 24 lines."""
MAX_POINTS = 8
"""Maximum number of rows."""
MIN_POINTS = 3
"""Number of rows that findings cannot displace."""
MAX_FINDINGS = 4
"""Maximum number of findings."""
FINDING_LINES = 2
"""Maximum number of lines of one finding."""
WORD = 20
"""Columns that wrapping at words can leave empty."""
FULL = "venturi report --full"
"""Command with all rows, also after `venturi study run`, whose option --full differs."""
BAR = 10
"""Width of the longest bar, in characters."""
LIMIT = 24
"""Maximum width of a resource, in characters."""
_EIGHTHS = " ▏▎▍▌▋▊▉█"


class Screen:
    """Renderable with the answer of a run. Lines are counted at the width of the console."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the parts. Rows use the lines that the headline, the findings and the next step leave."""
        a = self._analysis
        head: list[RenderableType] = [_wrapped(a.headline.text, "bold"), Text()]
        step = a.next_step
        head += _failures(a)
        foot: list[RenderableType] = [
            _wrapped(f"next, {step.reason}:"),
            Text(f"  {step.command}", no_wrap=True, overflow="ignore"),
        ]
        # The terminal folds the command, so that it can be copied.
        left = MAX_LINES - _height(console, options, [*head, *foot]) - (len(step.command) + 1) // options.max_width
        least = _height(console, options, _rows(a, options, MIN_POINTS))
        findings = _findings(a.findings, options.max_width, max(left - least, 2))
        left -= _height(console, options, findings)
        fitting = (_rows(a, options, count) for count in range(MAX_POINTS, 0, -1))
        rows = next((parts for parts in fitting if _height(console, options, parts) <= left), [])
        yield from (*head, *rows, *findings, *foot)


def _wrapped(text: str, style: str = "") -> Text:
    """Return a text that wraps at words, also on the console of the commands, which leaves lines whole."""
    return Text(text, style=style, no_wrap=False, overflow="fold")


def _height(console: Console, options: ConsoleOptions, parts: Sequence[RenderableType]) -> int:
    return sum(len(console.render_lines(part, options.update(height=None), pad=False)) for part in parts)


def _findings(findings: Sequence[FindingSummary], width: int, left: int) -> list[RenderableType]:
    """Return the most serious findings in at most ``left`` lines, each cut to two lines, and an empty line."""
    lines: list[RenderableType] = []
    for index, finding in enumerate(findings):
        mark = "!" if finding.severity == "warning" else "-"
        count = f" ({finding.count:,} times)" if finding.count > 1 else ""
        style = "yellow" if mark == "!" else ""
        words = f"{mark} {finding.code}{count}: {finding.evidence}"
        # Wrapping at words can leave some columns of the first line empty.
        if len(words) > FINDING_LINES * width - WORD:
            words = f"{words[: FINDING_LINES * width - WORD].rpartition(' ')[0]} …"
        text = _wrapped(words, style)
        used = sum(-(-len(line) // width) for line in lines if isinstance(line, Text))
        more = len(findings) - index
        # One line stays for the number of the other findings, and one for the empty line.
        if index == MAX_FINDINGS or used + FINDING_LINES + 2 > left:
            return [*lines, Text(f"… {plural(more, 'more finding' if lines else 'finding')}: {FULL}"), Text()]
        lines.append(text)
    return [*lines, Text()] if lines else []


def _failures(a: Analysis) -> list[RenderableType]:
    """Return the most frequent reason of failed transfers on one line, and an empty line."""
    if not a.failures:
        return []
    worst = max(a.failures, key=lambda failure: failure.count)
    reason = (worst.error or worst.outcome).splitlines()[0]
    return [Text(f"{worst.count:,} × {reason}", no_wrap=True, overflow="ellipsis"), Text()]


def _rows(a: Analysis, options: ConsoleOptions, count: int) -> list[RenderableType]:
    """Return the table of the workload with at most ``count`` rows, and an empty line."""
    rated = [point for point in a.points if point.together_bytes_per_s]
    if a.about.sweep:
        return _points(a, rated, options, count) if len(rated) > 1 else []
    own = next((section for section in a.sections if section.headline and section.tables), a.verdict)
    names = ("verdict-evidence", "verdict-settings")
    table = next((t for t in own.tables if t.rows and t.name not in names), None) if own else None
    if table is None:
        return []
    drawn, _ = fitted_table(_essential(table), count)
    drawn.show_edge = False
    return [Text(table.title), drawn, *_more(len(table.rows) - count), Text()]


def _essential(table: TableData) -> TableData:
    """Return a table without published columns and columns of equal values, and with its first quantity in front."""
    rates = ("_per_s", "_ratio")
    own = [index for index, column in enumerate(table.columns) if not column.published]
    quantities = [index for index in own[1:] if table.columns[index].name.endswith(rates)]
    # Headlines have rates at full size if a table has them.
    quantities.sort(key=lambda index: table.columns[index].name != "full_bit_per_s")
    quantity = quantities[0] if quantities else None
    differ = [index for index in own if len({row[index] for row in table.rows}) > 1]
    indices = [index for index in own if index in differ or index == quantity or len(table.rows) == 1]
    texts = [i for i in indices if i != quantity and isinstance(table.rows[0][i], str)]
    first = texts[0] if texts else indices[0]
    order = [first, *([] if quantity is None else [quantity]), *(i for i in indices if i not in (first, quantity))]
    return replace(
        table,
        columns=tuple(table.columns[i] for i in order),
        rows=tuple(tuple(row[i] for i in order) for row in table.rows),
    )


def _more(left: int, order: str = "") -> list[RenderableType]:
    return [Text(f"… {plural(left, 'more row')}{order}: {FULL}")] if left > 0 else []


def _points(a: Analysis, rated: Sequence[PointResult], options: ConsoleOptions, count: int) -> list[RenderableType]:
    """Return the points in their order, or the fastest ones if there are more than ``count``."""
    shown = list(rated)
    if len(rated) > count:
        shown = sorted(rated, key=lambda point: -(point.together_bytes_per_s or 0.0))[:count]
    names = varied_factors(a.factors)
    rates = ("rate", [format_rate(point.together_bytes_per_s or 0.0) for point in shown])
    columns = [
        (SHORT_NAMES.get(name, format_factor_name(name)), [format_factor_value(name, p.factors[name]) for p in shown])
        for name in names
    ]
    while len(columns) > 1 and _width([*columns, rates]) > options.max_width:
        columns.pop()
    hidden = len(names) - len(columns)
    columns.append(rates)
    intervals = [_interval(point) for point in shown]
    highest = max(point.together_bytes_per_s or 0.0 for point in rated)
    bars = [_bar((point.together_bytes_per_s or 0.0) / highest, ascii_only=options.ascii_only) for point in shown]
    limits = [a.point_limits.get(point.point, "not decided").removeprefix("the ") for point in shown]
    used = _width(columns)
    table = new_table("")
    table.show_edge = False
    extra = []
    # The headline has the bottleneck if it is the same at all points.
    widest = min(max(map(len, limits)), max(LIMIT, options.max_width - used - BAR - 6)) if len(set(limits)) > 1 else 0
    for head, texts, width in (("interval", intervals, 0), ("limited by", limits, widest), ("", bars, BAR)):
        needed = (width or max(map(len, (head, *texts)))) + 3
        if any(texts) and (width or texts is intervals) and used + needed <= options.max_width:
            extra.append((head, texts, width))
            used += needed
    for head, _ in columns:
        table.add_column(head, justify="right", overflow="fold")
    for head, _, width in extra:
        table.add_column(
            head, justify="left" if width else "right", overflow="ellipsis", no_wrap=True, max_width=width or None
        )
    for cells in zip(*(texts for _, texts in columns), *(texts for _, texts, _ in extra), strict=True):
        table.add_row(*cells)
    more = _more(len(rated) - count, " with lower rates")
    if hidden:
        more.append(Text(f"… {plural(hidden, 'more column')}: {FULL}"))
    return [table, *more, Text()]


def _width(columns: Sequence[tuple[str, Sequence[str]]]) -> int:
    return sum(max(map(len, (head, *texts))) + 3 for head, texts in columns)


def _interval(point: PointResult) -> str:
    if point.together_interval is None or point.together_bytes_per_s is None:
        return ""
    return (
        format_rate_with_interval(point.together_bytes_per_s, point.together_interval).partition("(")[2].rstrip(")")
    )


def _bar(fraction: float, *, ascii_only: bool) -> str:
    """Return a bar from 0 to the highest rate: blocks of eighths, or number signs in ASCII."""
    if ascii_only:
        return "#" * round(BAR * fraction)
    whole, rest = divmod(round(8 * BAR * fraction), 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")
