"""How far a campaign is, on stderr: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import math
import time
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from venturi.backend import Progress
from venturi.cli.outcome import talk
from venturi.units import format_bytes, format_duration, format_rate

__all__ = ["ProgressView", "progress_view"]

LINE_INTERVAL_S = 10.0
"""Off a terminal one line is printed as often as this, so that a log of a day stays readable."""


class ProgressView(Protocol):
    """Shows progress between ``with`` and its end."""

    def __enter__(self) -> ProgressView: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def show(self, progress: Progress) -> None:
        """Show how far it is now."""
        ...


def progress_view(*, quiet: bool) -> ProgressView:
    """Return the view that fits where stderr goes: nothing, a bar, or lines."""
    console = Console(stderr=True, highlight=False)
    if quiet:
        return _Quiet()
    return _Bar(console) if console.is_terminal else _Lines()


class _Quiet:
    def __enter__(self) -> _Quiet:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, progress: Progress) -> None:
        pass


class _Lines(_Quiet):
    """One plain line every :data:`LINE_INTERVAL_S`, one whenever something new begins, and one at the end."""

    def __init__(self) -> None:
        self._next_s = 0.0
        self._last: Progress | None = None
        self._topics: set[str] = set()

    def __exit__(self, *_: object) -> None:
        if self._last is not None:
            talk(_words(self._last))

    def show(self, progress: Progress) -> None:
        now_s = time.monotonic()
        topic = progress.message.partition(":")[
            0
        ]  # "making data set X on node1: 3 of 8 files": new once, not at each file
        if now_s >= self._next_s or (topic and topic not in self._topics):
            self._next_s, self._last = now_s + LINE_INTERVAL_S, None
            self._topics.add(topic)
            talk(_words(progress))
        else:
            self._last = progress


class _Bar(_Quiet):
    """Two lines that are drawn again in place: a bar with rate and time left, and what is going on."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=8, transient=True)

    def __enter__(self) -> _Bar:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, progress: Progress) -> None:
        grid = Table.grid(padding=(0, 1))
        grid.add_row(
            ProgressBar(total=1.0, completed=_share(progress), width=30),
            Text(_words(progress)),
        )
        grid.add_row("", Text(_doing(progress), style="dim"))
        self._live.update(grid)


def _share(progress: Progress) -> float:
    """Return which part of the whole is done."""
    if progress.time_share is not None:
        return progress.time_share
    return progress.trials_done / max(progress.trials_total, 1)


def _counts(progress: Progress) -> list[str]:
    """Return what is done, of how much: by trials, or by time and transfers where trials end together."""
    if progress.time_share is None:
        total = "" if progress.bytes_total is None else f" of {format_bytes(progress.bytes_total)}"
        return [
            f"{progress.trials_done}/{progress.trials_total} trials",
            f"{format_bytes(progress.bytes_done)}{total}",
        ]
    total = "" if progress.transfers_total is None else f" of {progress.transfers_total:,}"
    done = "" if progress.transfers_done is None else f"{progress.transfers_done:,}{total} transfers"
    # Not rounded: the whole is told when it is over.
    return [f"{math.floor(100 * progress.time_share)} % of virtual time", done]


def _words(progress: Progress) -> str:
    parts = [
        *_counts(progress),
        format_rate(progress.rate_bytes_per_s) if progress.rate_bytes_per_s is not None else "",
        f"{format_duration(progress.remaining_s)} left" if progress.remaining_s is not None else "",
        f"{progress.failed} failed" if progress.failed else "",
        progress.message,
    ]
    return " · ".join(part for part in parts if part)


def _doing(progress: Progress) -> str:
    factors = progress.factors
    return ", ".join(
        f"{name.removesuffix('_bytes')} {format_bytes(value) if name.endswith('_bytes') else value}"
        for name, value in factors.items()
    )
