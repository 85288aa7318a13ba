"""How far jobs of transfers are, on stderr: a line that is drawn again on a terminal, a plain one now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.text import Text

from venturi.cli.outcome import talk
from venturi.cli.transfer_words import progress_words
from venturi.managed import Queue, job_status

__all__ = ["TransferView", "transfer_view"]

_DRAWN_S = 0.5
_LINE_S = 10.0


@dataclass(slots=True)
class TransferView:
    """Shows how far jobs are, when :meth:`show` is called and enough time has passed: to look costs a query."""

    look: Callable[[], str]
    tell: Callable[[str], None] | None
    interval_s: float
    next_s: float = 0.0

    def show(self) -> None:
        """Show how far they are now."""
        now_s = time.monotonic()
        if self.tell is not None and now_s >= self.next_s:
            self.next_s = now_s + self.interval_s
            self.tell(self.look())


@contextmanager
def transfer_view(queue: Queue, jobs: Collection[int], *, quiet: bool) -> Iterator[TransferView]:
    """Yield the view that fits where stderr goes: nothing, one line in place, or lines."""

    def look() -> str:
        known = jobs or {row["job"] for row in queue.rows("SELECT DISTINCT job FROM transfer WHERE state = 'active'")}
        return "\n".join(f"job {job}: {progress_words(job_status(queue, job, time.time()))}" for job in sorted(known))

    console = Console(stderr=True, highlight=False)
    if quiet:
        yield TransferView(look, None, _LINE_S)
    elif console.is_terminal:
        with Live(console=console, refresh_per_second=4, transient=True) as live:
            yield TransferView(look, lambda text: live.update(Text(text)), _DRAWN_S)
    else:
        yield TransferView(look, talk, _LINE_S, time.monotonic() + _LINE_S)
