"""Tables of ``venturi measure``: live on a terminal, lines without one, and the result."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol
from urllib.parse import urlsplit

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from venturi.cli.outcome import print_status
from venturi.measure import MeasureProgress, PartResult, PathResult
from venturi.measure.result import PARTS, Part
from venturi.report.terminal_table import new_table
from venturi.stats import Interval
from venturi.units import format_duration, format_rate

__all__ = ["MeasureView", "measure_view", "path_table"]


class MeasureView(Protocol):
    """Context manager that shows the progress of a measurement."""

    def __enter__(self) -> MeasureView: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def show(self, progress: MeasureProgress) -> None:
        """Show the current progress."""
        ...


def measure_view(*, quiet: bool) -> MeasureView:
    """Return the view for stderr: none, a live table, or lines."""
    if quiet:
        return _QuietMeasureView()
    console = Console(stderr=True, highlight=False)
    return _LiveTable(console) if console.is_terminal else _Lines()


class _QuietMeasureView:
    def __enter__(self) -> _QuietMeasureView:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, progress: MeasureProgress) -> None:
        pass


class _Lines(_QuietMeasureView):
    """One line per step of the preparation and per round."""

    def __init__(self) -> None:
        self._round = -1

    def show(self, progress: MeasureProgress) -> None:
        if progress.round == 0:
            print_status(progress.step)
        elif progress.round != self._round:
            print_status(f"round {progress.round} of {progress.rounds}")
        self._round = progress.round


class _LiveTable(_QuietMeasureView):
    """The table of the results up to now, redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> _LiveTable:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, progress: MeasureProgress) -> None:
        where = f"round {progress.round} of {progress.rounds}" if progress.round else "preparation"
        clock = format_duration(progress.elapsed_s)
        if progress.elapsed_s <= progress.time_s:
            clock += f" of {format_duration(progress.time_s)}"
        line = Text(f"{where} · {progress.step} · {clock}")
        tables: list[RenderableType] = [path_table(path) for path in progress.paths if path.parts]
        self._live.update(Group(*tables, line))


def path_table(path: PathResult) -> Table:
    """Return the table of one direction: each part with median, interval and remarks; the smallest part in bold."""
    table = new_table(f"{path.source} → {path.destination}")
    for heading, side in (("part", "left"), ("median", "right"), ("90 % interval", "right"), ("rounds", "right")):
        table.add_column(heading, justify="right" if side == "right" else "left")
    table.add_column("remarks")
    for part in PARTS:
        if part in path.unmeasured:
            table.add_row(*map(Text, (_part_name(part, path), "not measured", "", "", path.unmeasured[part])))
        if part not in path.parts:
            continue
        result = path.parts[part]
        rate = result.rate_bytes_per_s
        counted = [sample for sample in result.samples if sample.error is None]
        cells = (
            _part_name(part, path),
            format_rate(rate) if rate is not None else "failed",
            _interval_text(result.interval),
            str(len(counted)),
            _remarks(result),
        )
        table.add_row(*map(Text, cells), style="bold" if part == path.smallest else None)
    return table


def _part_name(part: Part, path: PathResult) -> str:
    return {
        "network": "network alone",
        "read": _server(path.source, "read at {}, to nothing") or f"read at {path.source.partition(':')[0]}",
        "write": _server(path.destination, "write at {}, from memory")
        or f"write at {path.destination.partition(':')[0]}, with sync",
        "mover": "mover, memory to memory",
        "copy": _server(path.destination, "copy") or "copy, with sync",
    }[part]


def _server(endpoint: str, text: str) -> str | None:
    """Return a text with the host of a URL; None for a directory of a host."""
    return text.format(urlsplit(endpoint).hostname) if "://" in endpoint else None


def _interval_text(interval: Interval | None) -> str:
    return "" if interval is None else f"{format_rate(interval.low)} to {format_rate(interval.high)}"


def _remarks(result: PartResult) -> str:
    last = next((sample for sample in reversed(result.samples) if sample.error is None), None)
    if last is None:
        return ""
    match result.part:
        case "network":
            one = last.one_connection_bytes_per_s
            alone = "" if one is None else f"; one: {format_rate(one)}"
            return f"{last.detail.get('connections')} connections{alone}"
        case "read":
            if "file_system" not in last.detail:
                return ""
            how = "from the page cache" if result.cached else "O_DIRECT" if last.detail.get("direct") else "buffered"
            return f"{last.detail.get('file_system')}, {how}"
        case "write":
            return str(last.detail.get("file_system", ""))
        case _:
            return ""
