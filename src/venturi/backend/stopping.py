"""Ctrl-C and its relatives, as an event of the running loop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["heeded_signals", "stop_on_signals"]

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What asks a process to come to an end in order."""


def heeded_signals() -> list[signal.Signals]:
    """Return which of them this process heeds: what is ignored stays ignored, as `nohup` and a shell's background jobs mean it."""
    return [number for number in _STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def stop_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """Set an event when somebody asks this process to stop, and put back afterwards what was there; only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in heeded_signals()}
    for number in before:
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler or signal.SIG_DFL)
