"""Backend `lab`: it creates hosts, servers and the network between them on this machine, with an agent on each host."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from venturi.backend.agent_site import AgentSite, FixedHosts
from venturi.backend.base import RunProgress, SessionOutcome
from venturi.backend.engine import Engine, find_engine
from venturi.backend.hosts import SCRATCH_VARIABLE
from venturi.backend.run_controller import RunController
from venturi.backend.signals import on_signals
from venturi.plan import read_header
from venturi.run import RunWriter
from venturi.run.directory import PLAN
from venturi.testbed.lab import Control, Lab

__all__ = ["LOGS", "LabBackend"]

LOGS = "lab"
"""Directory of the run with the logs of servers."""


class LabBackend:
    """Executor of plans, each in a new lab that exists for one session.

    Parameters
    ----------
    scratch
        Directory that contains the files of host ``a`` in ``a``. Default: ``VENTURI_SCRATCH``, otherwise ``scratch``
        next to the runs. The files are kept, so that the next run finds its datasets.
    engine
        Path of the engine. Default: search for it (:func:`find_engine`).
    search
        Directories that agents search for tools before ``PATH``.
    keep_logs
        Keep the logs of servers with the run even if nothing failed.

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

    def execute(self, run: RunWriter, *, on_progress: Callable[[RunProgress], None] | None = None) -> SessionOutcome:
        """Execute the rest of the plan of a run, and end its session: see :class:`venturi.backend.Backend`."""
        interruptions = _Interruptions()
        with on_signals(interruptions.interrupt):
            try:
                lab = self._bring_up(run, on_progress)
            except KeyboardInterrupt:
                run.finish("stopped")
                return SessionOutcome("stopped", len(run.finished), len(run.trials), 0, 0)
            except BaseException:
                run.close()
                raise
            copy_logs = True
            control = Control(lab)
            try:
                outcome = asyncio.run(
                    RunController(run, FixedHosts(self._sites(run, lab), lab), self._search, on_progress).execute()
                )
                copy_logs = self._keep_logs or outcome.failed > 0 or lab.has_failures
                return outcome
            finally:
                with interruptions.deferred():
                    control.close()
                    if copy_logs and run.path.is_dir():
                        lab.keep_logs(run.path / LOGS)
                    lab.down()
                    run.close()

    def _bring_up(self, run: RunWriter, on_progress: Callable[[RunProgress], None] | None) -> Lab:
        header = read_header(run.path / PLAN)
        total = len(run.trials)

        def report_step(step: str) -> None:
            if on_progress is not None:
                on_progress(RunProgress(len(run.finished), total, 0, header.totals.bytes, message=f"lab: {step}"))

        return Lab.up(
            header,
            engine=self._engine.path,
            scratch=Path(self._scratch) if self._scratch else run.path.parent / "scratch",
            epoch_unix_ns=run.epoch_unix_ns,
            interval_s=header.measure.interval_s,
            keep_logs=run.path / LOGS,
            on_step=report_step,
        )

    def _sites(self, run: RunWriter, lab: Lab) -> list[AgentSite]:
        return [
            AgentSite(
                name,
                str(lab.host_scratch(name)),
                lab.agent_command(name, [self._engine.path, "agent"]),
                local_scratch=str(lab.scratch / name),
                cgroups=lab.cgroups(name),
                work_groups=lab.work_groups(name),
                pass_fds=(run.lock_descriptor,),
            )
            for name in lab.shells
        ]


class _Interruptions:
    """Conversion of stop signals to exceptions while the run controller does not handle them.

    A lab must be taken down in order, but by default SIGTERM and SIGHUP end the process immediately.
    """

    def __init__(self) -> None:
        self._deferred = False
        self._interrupted = False

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Defer interruptions until the end of the block."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False
        if self._interrupted:
            raise KeyboardInterrupt

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt, immediately or after the deferring block."""
        self._interrupted = self._interrupted or self._deferred
        if not self._deferred:
            raise KeyboardInterrupt
