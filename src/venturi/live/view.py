"""Live view of one run: reads it once a second, shows each snapshot, and serves the page."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from types import TracebackType

from venturi.live.budget import UPDATE_FRACTION, CpuBudget
from venturi.live.follower import RunFollower
from venturi.live.server import PageServer
from venturi.live.shown import page_values
from venturi.live.snapshot import Snapshot, VerdictNow, ViewState
from venturi.live.verdict import VerdictSource

__all__ = ["INTERVAL_S", "LiveView"]

INTERVAL_S = 1.0
"""Least time between two snapshots. An expensive update delays the next one (:data:`UPDATE_FRACTION`)."""

LAST_READ_S = 3.0
"""Limit of the wait for an open page to read the last snapshot."""


class LiveView:
    """View of one run, in a thread (:meth:`start`, :meth:`end`) or in the thread of the caller (:meth:`follow`).

    Parameters
    ----------
    follower
        Reader of the run.
    show
        Called with each snapshot, from the thread of the view.
    serve
        Whether to serve the page.
    on_failure
        Called once if the view fails in its thread. The run continues.

    Attributes
    ----------
    url
        URL of the page with its token. "" without a page.

    Raises
    ------
    OSError
        If the page cannot be served.
    """

    def __init__(
        self,
        follower: RunFollower,
        *,
        show: Callable[[Snapshot], None],
        serve: bool,
        on_failure: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        self._follower = follower
        self._show = show
        self._on_failure = on_failure
        self._budget = CpuBudget(UPDATE_FRACTION, interval_s=INTERVAL_S)
        self._verdicts = VerdictSource(follower.path)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._has_failed = False
        self._thread: threading.Thread | None = None
        self._server = PageServer(_document(follower.state.snapshot(follower.now_s()))) if serve else None
        self.url = self._server.url if self._server is not None else ""

    def start(self) -> None:
        """Start the thread of the view."""
        self._thread = threading.Thread(target=self._loop, name="live view", daemon=True)
        self._thread.start()

    def refresh(self) -> None:
        """Read and show the run now, from any thread. A failure of the view does not raise."""
        if self._has_failed:
            return
        try:
            self._step()
        except Exception as error:  # a defect of the view must not end the run
            self._has_failed = True
            self._on_failure(error)

    def end(self, state: ViewState, reason: str = "", verdict: str = "") -> None:
        """Show the end of the run, and end the view. Waits at most :data:`LAST_READ_S` for an open page.

        Parameters
        ----------
        state, reason
            Outcome of the run, and why it stopped or failed.
        verdict
            Verdict of the whole run. "" if there is none.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._follower.state.end(state, reason)
        if self._has_failed:
            self.close()
        else:
            self._finish(verdict)

    def follow(self) -> Snapshot:
        """Show the run until its end, and return the last snapshot. Ctrl-C ends only the view."""
        try:
            while True:
                if self._step().state != "running":
                    break
                time.sleep(self._pause_s())
        except BaseException:
            self.close()
            raise
        return self._finish("")

    def close(self) -> None:
        """End the view without a last snapshot. Safe to call twice."""
        self._stop.set()
        self._verdicts.close()
        if self._server is not None:
            self._server.close()
            self._server = None

    def __enter__(self) -> LiveView:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _loop(self) -> None:
        while not self._stop.is_set() and not self._has_failed:
            self.refresh()
            self._stop.wait(self._pause_s())

    def _step(self) -> Snapshot:
        with self._lock:
            return self._read_and_show()

    def _read_and_show(self) -> Snapshot:
        before_s = time.thread_time()
        state = self._follower.state
        now = self._follower.update()
        if now.backend != "sim" and now.elapsed_s > 0.0:
            state.verdict = self._verdicts.update(time.monotonic(), now.elapsed_s, state.points_done)
        self._show(now)
        if self._server is not None:
            self._server.publish(_document(now))
        self._budget.spend(time.thread_time() - before_s)
        return now

    def _pause_s(self) -> float:
        return self._budget.next_s(0.0)

    def _finish(self, verdict: str) -> Snapshot:
        state = self._follower.state
        self._verdicts.close()
        sentence = verdict or state.verdict.sentence
        note = "" if verdict else f"The report has the verdict of the whole run: venturi report {self._follower.path}"
        state.verdict = VerdictNow(sentence, state.trials_done, note)
        now = self._follower.update()
        self._show(now)
        if self._server is not None:
            self._server.finish(_document(now), LAST_READ_S)
        self.close()
        return now


def _document(now: Snapshot) -> bytes:
    return json.dumps(page_values(now), separators=(",", ":"), allow_nan=False).encode()
