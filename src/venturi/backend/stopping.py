"""Ctrl-C and its relatives: as a call, or as an event of the running loop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["on_signals", "stop_on_signals"]

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What asks a process to come to an end in order."""


@contextmanager
def on_signals(act: Callable[[], object]) -> Iterator[None]:
    """Call ``act`` when somebody asks this process to stop, and put back afterwards what was there; only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def take(number: int, frame: FrameType | None) -> None:
        act()

    before = {number: signal.signal(number, take) for number in _heeded_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


@contextmanager
def stop_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """Set an event when somebody asks this process to stop, and put back afterwards what was there; only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _heeded_signals()}
    for number in before:
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler or signal.SIG_DFL)


def _heeded_signals() -> list[signal.Signals]:
    """Return which of them this process heeds: what is ignored stays ignored, as `nohup` and a shell's background jobs mean it."""
    return [number for number in _STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
