"""Progress of a run on stderr: a bar on a terminal, or a line every 10 s. Also for the snapshots of a live view."""

from __future__ import annotations

import math
import time
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from venturi.backend import RunProgress
from venturi.cli.outcome import print_status
from venturi.units import format_bytes, format_duration, format_rate

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

    from venturi.live.snapshot import Snapshot

__all__ = ["ProgressView", "SnapshotDisplay", "progress_view", "snapshot_display", "task_bar"]

LINE_INTERVAL_S = 10.0
"""Interval of progress lines without a terminal. A log of a day stays readable."""


class ProgressView(Protocol):
    """Context manager that shows progress."""

    def __enter__(self) -> ProgressView: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def show(self, progress: RunProgress) -> None:
        """Show the current progress."""
        ...


def progress_view(*, quiet: bool) -> ProgressView:
    """Return the view for stderr: none, a bar, or lines."""
    console = Console(stderr=True, highlight=False)
    if quiet:
        return _Quiet()
    return _Bar(console) if console.is_terminal else _LineProgress()


class SnapshotDisplay(Protocol):
    """Display of snapshots between :meth:`start` and :meth:`stop`."""

    def start(self) -> None:
        """Start to draw."""
        ...

    def stop(self) -> None:
        """Stop to draw. Safe to call twice."""
        ...

    def draw(self, now: Snapshot) -> None:
        """Draw a snapshot, from any thread."""
        ...


def snapshot_display(*, quiet: bool) -> SnapshotDisplay:
    """Return the display of a live view on stderr: none, a bar, or lines."""
    console = Console(stderr=True, highlight=False)
    if quiet:
        return _NoDisplay()
    return _BarDisplay(console) if console.is_terminal else _LineDisplay()


def task_bar(*columns: ProgressColumn, quiet: bool) -> Progress:
    """Return a bar on stderr for tasks with a number of steps, with more columns at its end; hidden without a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    own = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    # Without a terminal, the bar would only print an empty line.
    return Progress(*own, *columns, console=console, transient=True, disable=quiet or not console.is_terminal)


class _Quiet:
    def __enter__(self) -> _Quiet:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, progress: RunProgress) -> None:
        pass


class _LineProgress(_Quiet):
    """A line every :data:`LINE_INTERVAL_S`, at each new topic, and at the end."""

    def __init__(self) -> None:
        self._next_s = 0.0
        self._last: RunProgress | None = None
        self._topics: set[str] = set()

    def __exit__(self, *_: object) -> None:
        if self._last is not None:
            print_status(_progress_line(self._last))

    def show(self, progress: RunProgress) -> None:
        now_s = time.monotonic()
        topic = progress.message.partition(":")[
            0
        ]  # "creating dataset X on node1: 3 of 8 files" is one topic, not one per file
        if now_s >= self._next_s or (topic and topic not in self._topics):
            self._next_s, self._last = now_s + LINE_INTERVAL_S, None
            self._topics.add(topic)
            print_status(_progress_line(progress))
        else:
            self._last = progress


class _Bar(_Quiet):
    """Two lines redrawn in place: a bar with rate and remaining time, and the factors of the trial."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> _Bar:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, progress: RunProgress) -> None:
        grid = Table.grid(padding=(0, 1))
        grid.add_row(
            ProgressBar(total=1.0, completed=_finished_fraction(progress), width=30),
            Text(_progress_line(progress)),
        )
        grid.add_row("", Text(_factor_text(progress), style="dim"))
        self._live.update(grid)


class _NoDisplay:
    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def draw(self, now: Snapshot) -> None:
        pass


class _LineDisplay(_NoDisplay):
    """A line every :data:`LINE_INTERVAL_S`, at each new topic or problem, and at the end."""

    def __init__(self) -> None:
        self._next_s = 0.0
        self._last = self._printed = ""
        self._seen: set[tuple[str, ...]] = set()

    def stop(self) -> None:
        if self._last != self._printed:
            self._print()

    def draw(self, now: Snapshot) -> None:
        from venturi.live.shown import terminal_line  # only a live view needs it

        now_s = time.monotonic()
        topic = (now.phase.partition(":")[0], *(f"{host.name} {host.state}" for host in now.hosts))
        self._last = terminal_line(now)
        if now_s >= self._next_s or topic not in self._seen:
            self._next_s = now_s + LINE_INTERVAL_S
            self._seen.add(topic)
            self._print()

    def _print(self) -> None:
        print_status(self._last)
        self._printed = self._last


class _BarDisplay(_NoDisplay):
    """Two lines redrawn in place: a bar with phase, rate and time left, and the factors of the running trials."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=4, transient=True)

    def start(self) -> None:
        self._live.start()

    def stop(self) -> None:
        self._live.stop()

    def draw(self, now: Snapshot) -> None:
        from venturi.live.shown import factor_line, terminal_line  # only a live view needs it

        grid = Table.grid(padding=(0, 1))
        grid.add_row(ProgressBar(total=1.0, completed=now.fraction_done, width=20), Text(terminal_line(now)))
        grid.add_row("", Text(factor_line(now), style="dim"))
        self._live.update(grid)


def _finished_fraction(progress: RunProgress) -> float:
    """Return the finished share of the run, 0 to 1."""
    if progress.time_fraction is not None:
        return progress.time_fraction
    return progress.trials_done / max(progress.trials_total, 1)


def _counts(progress: RunProgress) -> list[str]:
    """Return finished and total work: trials and bytes, or virtual time and transfers if trials end together."""
    if progress.time_fraction is None:
        total = "" if progress.bytes_total is None else f" of {format_bytes(progress.bytes_total)}"
        return [
            f"{progress.trials_done}/{progress.trials_total} trials",
            f"{format_bytes(progress.bytes_done)}{total}",
        ]
    total = "" if progress.transfers_total is None else f" of {progress.transfers_total:,}"
    done = "" if progress.transfers_done is None else f"{progress.transfers_done:,}{total} transfers"
    # Round down, so that 100 % appears only at the end.
    return [f"{math.floor(100 * progress.time_fraction)} % of virtual time", done]


def _progress_line(progress: RunProgress) -> str:
    parts = [
        *_counts(progress),
        format_rate(progress.rate_bytes_per_s) if progress.rate_bytes_per_s is not None else "",
        f"{format_duration(progress.remaining_s)} left" if progress.remaining_s is not None else "",
        f"{progress.failed} failed" if progress.failed else "",
        progress.message,
    ]
    return " · ".join(part for part in parts if part)


def _factor_text(progress: RunProgress) -> str:
    factors = progress.factors
    return ", ".join(
        f"{name.removesuffix('_bytes')} {format_bytes(value) if name.endswith('_bytes') else value}"
        for name, value in factors.items()
    )
