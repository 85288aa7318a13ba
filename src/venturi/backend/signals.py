"""Handling of Ctrl-C and other stop signals, by a function or by an event of the running loop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["on_signals", "stop_on_signals"]

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that request an orderly end of the process."""


@contextmanager
def on_signals(handler: Callable[[], object]) -> Iterator[None]:
    """Call ``handler`` on a stop signal, and restore the previous handlers afterwards. Works only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        handler()

    before = {number: signal.signal(number, on_signal) for number in _handled_signals()}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous or signal.SIG_DFL)


@contextmanager
def stop_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """Set an event on a stop signal, and restore the previous handlers afterwards. Works only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _handled_signals()}
    for number in before:
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number, previous in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, previous or signal.SIG_DFL)


def _handled_signals() -> list[signal.Signals]:
    """Return the stop signals that this process handles.

    Signals that `nohup` or a background job of a shell ignores stay ignored.
    """
    return [number for number in _STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
