"""The backend `lab`: hosts, servers and the network between them are made on this machine, an agent in each host."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from venturi.backend.base import Outcome, Progress
from venturi.backend.campaign import Campaign
from venturi.backend.engine import Engine, find_engine
from venturi.backend.hosts import SCRATCH_VARIABLE
from venturi.backend.site import LocalSite, Site
from venturi.backend.stopping import on_signals
from venturi.plan import read_header
from venturi.run import RunWriter
from venturi.run.directory import PLAN
from venturi.testbed.lab import Control, Lab

__all__ = ["LOGS", "LabBackend"]

LOGS = "lab"
"""Folder of the run in which logs of servers are kept."""


class LabBackend:
    """Carries plans out in a lab of their own, which is up for one session.

    Parameters
    ----------
    scratch
        Directory in which host ``a`` has its files, in ``a``; without it ``VENTURI_SCRATCH``, else ``scratch`` beside the runs. What
        is made there is kept, so that the next run finds its data sets.
    engine
        Path of the engine; without it, it is looked for (:func:`find_engine`).
    search
        Folders in which agents look for tools before those of ``PATH``.
    keep_logs
        Keep the servers' logs with the run even if nothing has failed.

    Raises
    ------
    BackendError
        If there is no engine.
    """

    name = "lab"

    def __init__(
        self,
        *,
        scratch: Path | str | None = None,
        engine: Path | None = None,
        search: Sequence[str] = (),
        keep_logs: bool = False,
    ) -> None:
        self._scratch = str(scratch) if scratch is not None else os.environ.get(SCRATCH_VARIABLE) or None
        self._engine = Engine.at(engine or find_engine())
        self._search = list(search)
        self._keep_logs = keep_logs

    def carry_out(self, run: RunWriter, *, on_progress: Callable[[Progress], None] | None = None) -> Outcome:
        """Carry out what is left of the plan of a run, and end its session: see :class:`venturi.backend.Backend`."""
        interruptions = _Interruptions()
        with on_signals(interruptions.take):
            try:
                lab = self._bring_up(run, on_progress)
            except KeyboardInterrupt:
                run.finish("stopped")
                return Outcome("stopped", len(run.finished), len(run.trials), 0, 0)
            except BaseException:
                run.close()
                raise
            keep = True
            control = Control(lab)
            try:
                outcome = asyncio.run(
                    Campaign(run, self._sites(run, lab), self._search, on_progress, lab).carry_out()
                )
                keep = self._keep_logs or outcome.failed > 0 or lab.trouble
                return outcome
            finally:
                with interruptions.held_back():
                    control.close()
                    if keep and run.path.is_dir():
                        lab.keep_logs(run.path / LOGS)
                    lab.down()
                    run.close()

    def _bring_up(self, run: RunWriter, on_progress: Callable[[Progress], None] | None) -> Lab:
        header = read_header(run.path / PLAN)
        total = len(run.trials)

        def tell(step: str) -> None:
            if on_progress is not None:
                on_progress(Progress(len(run.finished), total, 0, header.totals.bytes, message=f"lab: {step}"))

        return Lab.up(
            header,
            engine=self._engine.path,
            scratch=Path(self._scratch) if self._scratch else run.path.parent / "scratch",
            epoch_unix_ns=run.epoch_unix_ns,
            interval_s=header.measure.interval_s,
            keep_logs=run.path / LOGS,
            on_step=tell,
        )

    def _sites(self, run: RunWriter, lab: Lab) -> list[Site]:
        return [
            LocalSite(
                name,
                str(lab.host_scratch(name)),
                lab.words(name, [self._engine.path, "agent"]),
                run.lock_descriptor,
                home=str(lab.scratch / name),
                cgroups=lab.cgroups(name),
            )
            for name in lab.machines
        ]


class _Interruptions:
    """Turns what asks the process to stop into an exception, wherever the campaign does not take it itself.

    A lab must be taken down in order: the default of SIGTERM and SIGHUP is to die on the spot.
    """

    def __init__(self) -> None:
        self._held = False
        self._asked = False

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Let nothing interrupt the block; what came meanwhile is raised after it."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._asked:
            raise KeyboardInterrupt

    def take(self) -> None:
        """Raise KeyboardInterrupt, now or after the block that is not to be interrupted."""
        self._asked = self._asked or self._held
        if not self._held:
            raise KeyboardInterrupt
