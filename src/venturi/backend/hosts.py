"""Backend `hosts`: existing hosts, this one and others over a connection, with a shell and an agent on each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from venturi.backend.base import RunProgress, SessionOutcome
from venturi.backend.engine import find_engines
from venturi.backend.host_testbed import HostTestbed
from venturi.backend.run_controller import RunController
from venturi.backend.targets import TARGETS, read_targets
from venturi.run import RunWriter

__all__ = ["SCRATCH_VARIABLE", "HostsBackend"]

SCRATCH_VARIABLE = "VENTURI_SCRATCH"


class HostsBackend:
    """Executor of plans on existing hosts.

    Parameters
    ----------
    scratch
        Directory of relative storages, on every host. Default: ``VENTURI_SCRATCH``. Without both, it is ``scratch``
        next to the runs, and ``~/.cache/venturi/scratch`` on other hosts. The files are kept, so that the next run
        finds its datasets.
    engine
        Path of the engine. Default: search for it (:func:`venturi.backend.engine.find_engine`).
    search
        Directories that agents search for tools before ``PATH``.
    targets
        File of ``--hosts``: destinations and addresses of the hosts. A copy is kept with the run. Default: the copy in
        the run.
    keep_logs
        Keep the logs of services with the run even if nothing failed.

    Raises
    ------
    BackendError
        If there is no engine.

    Examples
    --------
    >>> backend = HostsBackend(scratch="/data/scratch")  # doctest: +SKIP
    >>> with RunWriter.create("runs", "plan.jsonl", backend="hosts") as run:  # doctest: +SKIP
    ...     outcome = backend.execute(run, on_progress=print)
    """

    name = "hosts"

    def __init__(
        self,
        *,
        scratch: Path | str | None = None,
        engine: Path | None = None,
        search: Sequence[str] = (),
        targets: Path | None = None,
        keep_logs: bool = False,
    ) -> None:
        self._scratch = str(scratch) if scratch is not None else os.environ.get(SCRATCH_VARIABLE) or None
        self._engines = find_engines(engine)
        self._search = list(search)
        self._targets = targets
        self._keep_logs = keep_logs

    def execute(self, run: RunWriter, *, on_progress: Callable[[RunProgress], None] | None = None) -> SessionOutcome:
        """Execute the rest of the plan of a run, and end its session: see :class:`venturi.backend.Backend`."""
        try:
            kept = run.path / TARGETS
            if self._targets is not None:
                read_targets(self._targets)
                kept.write_bytes(self._targets.read_bytes())  # the two can be one file
            hosts = HostTestbed(
                run,
                self._engines,
                targets=read_targets(kept) if kept.exists() else {},
                scratch=self._scratch,
                keep_logs=self._keep_logs,
            )
            try:
                outcome = asyncio.run(RunController(run, hosts, self._search, on_progress).execute())
                if outcome.failed:
                    hosts.keep_logs()
            finally:
                hosts.close()
        finally:
            run.close()
        return outcome
