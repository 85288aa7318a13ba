"""Progress of transfer jobs on stderr: a redrawn line on a terminal, else a line every 10 s."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.text import Text

from venturi.cli.outcome import print_status
from venturi.cli.transfer_format import progress_line
from venturi.transfer_jobs import TransferQueue, job_status

__all__ = ["TransferView", "transfer_view"]

_DRAWN_S = 0.5
_LINE_S = 10.0


@dataclass(slots=True)
class TransferView:
    """Shows the progress of jobs. :meth:`show` limits the rate, because each look is a database query."""

    format_progress: Callable[[], str]
    output: Callable[[str], None] | None
    interval_s: float
    next_s: float = 0.0

    def show(self) -> None:
        """Show the current progress."""
        now_s = time.monotonic()
        if self.output is not None and now_s >= self.next_s:
            self.next_s = now_s + self.interval_s
            self.output(self.format_progress())


@contextmanager
def transfer_view(queue: TransferQueue, jobs: Collection[int], *, quiet: bool) -> Iterator[TransferView]:
    """Yield the view for stderr: none, one redrawn line, or lines."""

    def format_progress() -> str:
        known = jobs or {row["job"] for row in queue.rows("SELECT DISTINCT job FROM transfer WHERE state = 'active'")}
        return "\n".join(f"job {job}: {progress_line(job_status(queue, job, time.time()))}" for job in sorted(known))

    console = Console(stderr=True, highlight=False)
    if quiet:
        yield TransferView(format_progress, None, _LINE_S)
    elif console.is_terminal:
        with Live(console=console, refresh_per_second=4, transient=True) as live:
            yield TransferView(format_progress, lambda text: live.update(Text(text)), _DRAWN_S)
    else:
        yield TransferView(format_progress, print_status, _LINE_S, time.monotonic() + _LINE_S)
