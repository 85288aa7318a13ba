"""The backend `hosts`: the machines there are, this one and others over SSH, one agent on each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from venturi.backend.base import Outcome, Progress
from venturi.backend.campaign import Campaign
from venturi.backend.engine import Engine, find_engine
from venturi.backend.site import LocalSite, RemoteSite, Site
from venturi.backend.ssh import CACHE, RemoteHost
from venturi.run import RunWriter

__all__ = ["SCRATCH_VARIABLE", "HostsBackend"]

SCRATCH_VARIABLE = "VENTURI_SCRATCH"


class HostsBackend:
    """Carries plans out on the hosts that they name.

    Parameters
    ----------
    scratch
        Directory below which relative places are, on every host; without it ``VENTURI_SCRATCH``. Without both,
        ``scratch`` beside the runs, on other hosts ``~/.cache/venturi/scratch``. What is made there is kept, so that the
        next run finds its data sets.
    engine
        Path of the engine; without it, it is looked for (:func:`find_engine`).
    search
        Folders in which agents look for tools before those of ``PATH``.
    prefixes
        Host → what stands before the agent's command line on this machine (``ip netns exec NAME``).

    Raises
    ------
    BackendError
        If there is no engine.

    Examples
    --------
    >>> backend = HostsBackend(scratch="/data/scratch")  # doctest: +SKIP
    >>> with RunWriter.create("runs", "plan.jsonl", backend="hosts") as run:  # doctest: +SKIP
    ...     outcome = backend.carry_out(run, on_progress=print)
    """

    name = "hosts"

    def __init__(
        self,
        *,
        scratch: Path | str | None = None,
        engine: Path | None = None,
        search: Sequence[str] = (),
        prefixes: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._scratch = str(scratch) if scratch is not None else os.environ.get(SCRATCH_VARIABLE) or None
        self._engine = Engine.at(engine or find_engine())
        self._search = list(search)
        self._prefixes = dict(prefixes or {})

    def carry_out(self, run: RunWriter, *, on_progress: Callable[[Progress], None] | None = None) -> Outcome:
        """Carry out what is left of the plan of a run, and end its session: see :class:`venturi.backend.Backend`."""
        try:
            return asyncio.run(Campaign(run, self._sites(run), self._search, on_progress).carry_out())
        finally:
            run.close()

    def _sites(self, run: RunWriter) -> list[Site]:
        hosts: dict[str, dict[str, Any]] = run.header["hosts"]
        targets = [host.get("ssh") for host in hosts.values()]
        sites: list[Site] = []
        for name, host in hosts.items():
            target = host.get("ssh")
            # Two hosts that are one machine must not share the places that they both call "data".
            folder = f"/{name}" if targets.count(target) > 1 else ""
            if target is None:
                here = Path(self._scratch) if self._scratch else run.path.parent / "scratch"
                command = [*self._prefixes.get(name, ()), str(self._engine.path), "agent"]
                sites.append(LocalSite(name, f"{here.absolute()}{folder}", command, run.lock_descriptor))
            else:
                scratch = self._scratch or f"{CACHE}/scratch"
                sites.append(RemoteSite(RemoteHost(name, target, self._engine), f"{scratch}{folder}"))
        return sites
