"""Live view of a run for the commands: the page and the terminal of `venturi run --live` and `venturi report --follow`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import typer

from venturi.backend import RunProgress
from venturi.cli.outcome import Exit, print_status
from venturi.cli.progress import SnapshotDisplay, snapshot_display
from venturi.errors import RunError
from venturi.live import LiveView, RunFollower
from venturi.live.shown import alerts
from venturi.live.snapshot import Snapshot, ViewState
from venturi.run import RunWriter

__all__ = ["LiveRun", "follow_run"]


class LiveRun:
    """Live view of the run that this process makes.

    As a context manager, it draws on the terminal during one session of the run. The page stays until :meth:`end`.

    Parameters
    ----------
    quiet
        Whether only the URL of the page appears on the terminal.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._display: SnapshotDisplay | None = None
        self._follower: RunFollower | None = None
        self._view: LiveView | None = None

    def start(self, writer: RunWriter) -> None:
        """Serve the page of a run, and print its URL. A repeated call has no effect.

        Raises
        ------
        RunError
            If no port of the loopback interface is free.
        """
        if self._view is not None:
            return
        self._follower = RunFollower(writer.path, writer.trials, watches=False)
        self._view = _open_view(self._follower, self._draw, serve=True)
        print_status(f"live view: {self._view.url}")
        self._view.start()

    def show(self, progress: RunProgress) -> None:
        """Take the progress of the controller."""
        if self._follower is not None:
            self._follower.state.set_progress(progress)

    def end(self, state: ViewState, reason: str = "", verdict: str = "") -> None:
        """Show the end of the run on the page, and stop serving it. A repeated call has no effect."""
        view, self._view = self._view, None
        if view is not None:
            view.end(state, reason, verdict)

    def __enter__(self) -> LiveRun:
        self._display = snapshot_display(quiet=self._quiet)
        self._display.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._view is not None:
            self._view.refresh()
        display, self._display = self._display, None
        if display is not None:
            display.stop()

    def _draw(self, now: Snapshot) -> None:
        if (display := self._display) is not None:
            display.draw(now)


def follow_run(path: Path, *, live: bool, quiet: bool) -> Snapshot:
    """Show a run that another process makes until it ends, and return the last snapshot.

    Parameters
    ----------
    path
        The run directory.
    live
        Whether to serve the page, too.
    quiet
        Whether to print no progress.

    Raises
    ------
    RunError
        If the controller ended without a record. The message names it and the next step.
    """
    display = snapshot_display(quiet=quiet)
    view = _open_view(RunFollower(path), display.draw, serve=live)
    if live:
        print_status(f"live view: {view.url}")
    display.start()
    try:
        now = view.follow()
    except KeyboardInterrupt:
        display.stop()
        print_status("the view has ended; the run continues")
        raise typer.Exit(Exit.STOPPED) from None
    finally:
        display.stop()
    if now.state == "lost":
        raise RunError("\n".join(alerts(now)))
    return now


def _open_view(follower: RunFollower, show: Callable[[Snapshot], None], *, serve: bool) -> LiveView:
    def report(error: Exception) -> None:
        print_status(f"the live view has ended: {type(error).__name__}: {error}; the run continues")

    try:
        return LiveView(follower, show=show, serve=serve, on_failure=report)
    except OSError as error:
        raise RunError(
            f"127.0.0.1: cannot serve the live view: {error.strerror}. Omit --live, or end other servers."
        ) from error
