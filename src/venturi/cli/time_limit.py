"""Time limit of a run: it stops in order, as after Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

__all__ = ["TimeLimit", "stop_after"]


@dataclass
class TimeLimit:
    """Time limit of a run; ``is_over`` is set before the run is stopped."""

    limit_s: float | None
    is_over: bool = False


@contextmanager
def stop_after(limit: TimeLimit) -> Iterator[None]:
    """Stop this process in order if the block takes longer than the limit."""

    def stop() -> None:
        limit.is_over = True
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        os.kill(os.getpid(), signal.SIGTERM if ignored else signal.SIGINT)

    if limit.limit_s is None:
        yield
        return
    timer = threading.Timer(limit.limit_s, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
