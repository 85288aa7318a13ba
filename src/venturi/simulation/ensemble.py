"""Ensembles: one scenario with many seeds and sets of parameters, each simulated, over the cores of a machine or a Dask cluster.

What stays of a member is a line of figures; its run, which may be as large as that of a campaign, only where it is asked for. A member is
simulated by one thread, so that its figures do not depend on how many are under way.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from venturi.errors import RunError, ScenarioError
from venturi.run.directory import LOCK, new_run_path, replace_text
from venturi.run.lock import RunLock
from venturi.scenario import Scenario, scenario_from
from venturi.scenario.document import document_of, read_document
from venturi.simulation.member import FIGURES, Member, Task, engine_sha256, override
from venturi.simulation.simulate import Source, costs_from, read_scenario
from venturi.simulation.summary import Group, summarise
from venturi.simulation.workers import on_dask, on_this_machine, stopped_by_signals

__all__ = ["Ensemble", "Told", "ensemble"]

FORMAT, VERSION = "venturi-ensemble", 1
ABOUT, MEMBERS, RUNS, WORKING = "ensemble.json", "members.jsonl", "runs", "working"
MOST_MEMBERS = 100_000
"""More is a mistake in a range."""

Told = Callable[[int, int, int], None]
"""Is told how many members are done, of how many, and how many of them failed."""


@dataclass(frozen=True)
class Ensemble:
    """Members and what came of them, in the order in which they were asked for: parameters, and of each set the seeds.

    Attributes
    ----------
    path
        The directory: ``ensemble.json``, ``members.jsonl``, and ``runs`` if they were kept.
    members
        All of them.
    """

    path: Path
    members: tuple[Member, ...]

    @property
    def failed(self) -> tuple[Member, ...]:
        """Members that could not be simulated, with the reason as ``error``."""
        return tuple(member for member in self.members if member.error)

    def table(self) -> dict[str, npt.NDArray[Any]]:
        """Return the members as columns of one length: ``seed``, each parameter, each figure (NaN where it is not known), ``error``."""
        keys = dict.fromkeys(key for member in self.members for key in member.parameters)
        names = dict.fromkeys(name for member in self.members for name in member.figures)
        nan = float("nan")
        columns: dict[str, npt.NDArray[Any]] = {
            "seed": np.array([member.seed for member in self.members], dtype=object)
        }
        columns |= {
            key: np.array([member.parameters.get(key) for member in self.members], dtype=object) for key in keys
        }
        columns |= {name: np.array([member.figures.get(name, nan) for member in self.members]) for name in names}
        return columns | {"error": np.array([member.error for member in self.members], dtype=object)}

    def summary(self, *, level: float = 0.95) -> tuple[Group, ...]:
        """Return each figure over the seeds of each set of parameters: see :func:`summarise`."""
        return summarise(self.members, level=level)


def ensemble(
    scenario: Source,
    *,
    seeds: Iterable[int] | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    overrides: Iterable[str] = (),
    costs: Path | str | None = None,
    figures: Mapping[str, str] | None = None,
    directory: Path | str | None = None,
    runs: Path | str = "runs",
    keep_runs: bool = False,
    workers: int | None = None,
    dask: str | None = None,
    on_directory: Callable[[Path], None] | None = None,
    on_progress: Told | None = None,
) -> Ensemble:
    """Simulate a scenario with each of the seeds and each combination of the parameters.

    Parameters
    ----------
    scenario, overrides, costs
        As of :func:`simulate`; ``costs`` as a file.
    seeds
        Of the members; without them, the scenario's own alone.
    vary
        Key of the scenario → its values: ``{"testbed.link.wan.rate": ["10 Gb/s", "40 Gb/s"]}``. Of several keys, all combinations.
    figures
        Besides :data:`FIGURES`: name → SQL that gives one number of a run, over the tables that :meth:`venturi.run.Run.query` has.
    directory
        Where the ensemble is to be. Members that are there are not simulated again; those that failed are. Without it, a new one below
        ``runs``.
    runs
        Folder of runs.
    keep_runs
        Keep the run of each member, below ``runs`` of the directory, for ``venturi report`` and :class:`venturi.run.Run`.
    workers
        Members at once; without it, as many as this process may use cores.
    dask
        Address of the scheduler of a Dask cluster that simulates in place of this machine: ``"tcp://host:8786"``. Its workers need Venturi,
        and see the files that the scenario names; to keep runs, they and this process see one file system.
    on_directory
        Told the directory, once it is there and before anything is simulated: with it, an ensemble that was stopped goes on.
    on_progress
        Told after each member.

    Raises
    ------
    ScenarioError
        If the scenario is not valid with the first of each parameter, the file of costs is none, or what is asked for is none that there can be.
    RunError
        If the directory holds another ensemble, or cannot be written to.
    BackendError
        If there is no engine, or no such cluster.

    Examples
    --------
    >>> import venturi
    >>> found = venturi.ensemble("wlcg.toml", seeds=range(100))  # doctest: +SKIP
    >>> found.summary()[0].figures["makespan_s"].median  # doctest: +SKIP
    86412.7
    """
    document, folder = _document(scenario, overrides)
    asked = list(_asked(seeds, vary or {}))
    _check(document, folder, asked, workers)
    questions = {**FIGURES, **(figures or {})}
    engine = engine_sha256()
    said = None if costs is None else Path(costs)
    costs_from(said)  # what is wrong with it is wrong with all members
    about = {
        "format": FORMAT,
        "version": VERSION,
        "scenario": document,
        "costs": None if said is None else said.read_text(encoding="utf-8"),
        "figures": questions,
        "engine": engine,
    }
    home = Path(directory) if directory is not None else new_run_path(Path(runs), f"{document['name']}-ensemble", time.time_ns())  # fmt: skip
    with closing(_Directory(home, about)) as place:
        if on_directory is not None:
            on_directory(home)
        known = {key: member for key, member in place.members.items() if not member.error}
        todo = {member.key: member for member in asked if member.key not in known}
        tasks = [
            Task(
                document, None if folder is None else str(folder.absolute()),
                None if said is None else str(said.absolute()), member, questions,
                scratch=None if dask else str(place.working.absolute()),
                keep=str(place.run_of(member).absolute()) if keep_runs else None,
            )
            for member in todo.values()
        ]  # fmt: skip
        known |= _carried_out(place, tasks, known, len(asked), workers or _cores(), dask, engine, on_progress)
    return Ensemble(home, tuple(known[member.key] for member in asked))


def _carried_out(
    place: _Directory, tasks: Sequence[Task], before: Mapping[str, Member], total: int, workers: int, dask: str | None,
    engine: str, on_progress: Told | None,
) -> dict[str, Member]:  # fmt: skip
    found: dict[str, Member] = {}
    failed = 0
    if on_progress is not None:
        on_progress(len(before), total, failed)
    if not tasks:
        return found
    records = on_dask(tasks, dask) if dask else on_this_machine(tasks, workers)
    with stopped_by_signals(), closing(records):
        for record in records:
            member = _of_this_engine(Member.from_record(record), engine)
            place.add(member)
            found[member.key] = member
            failed += bool(member.error)
            if on_progress is not None:
                on_progress(len(before) + len(found), total, failed)
    return found


def _of_this_engine(member: Member, engine: str) -> Member:
    """Return the member, as one that failed if a worker elsewhere has another engine: its figures would not be comparable."""
    if member.error or member.engine == engine:
        return member
    error = f"expected the engine {engine[:16]}… on the worker, found {member.engine[:16]}…; install one version of Venturi everywhere"
    return Member(member.seed, member.parameters, error)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _document(scenario: Source, overrides: Iterable[str]) -> tuple[dict[str, Any], Path | None]:
    """Return the document of a scenario with all that it includes, and the folder that its files are relative to."""
    if isinstance(scenario, Scenario):
        return read_scenario(scenario, overrides).document(), None
    read = (
        document_of(scenario, overrides)
        if isinstance(scenario, Mapping)
        else read_document(Path(scenario), overrides)
    )
    if read.problems:
        raise ScenarioError(read.problems, "scenario" if isinstance(scenario, Mapping) else str(scenario))
    return read.data, read.folder


def _asked(seeds: Iterable[int] | None, vary: Mapping[str, Sequence[Any]]) -> Iterator[Member]:
    """Yield the members that are asked for."""
    for key, values in vary.items():
        if isinstance(values, (str, bytes)) or not len(values):
            raise _wrong(f"vary {key}", f"expected a list of values, found {values!r}")
    drawn: list[int | None] = [None] if seeds is None else [int(seed) for seed in seeds]
    if not drawn:
        raise _wrong("seeds", "expected at least one seed, found none")
    count = len(drawn) * math.prod(len(values) for values in vary.values())
    if count > MOST_MEMBERS:
        raise _wrong("", f"expected at most {MOST_MEMBERS} members, found {count}")
    for chosen in itertools.product(*vary.values()):
        parameters = dict(zip(vary, chosen, strict=True))
        yield from (Member(seed, parameters) for seed in drawn)


def _wrong(where: str, what: str) -> ScenarioError:
    return ScenarioError([(where, what)], "ensemble")


def _check(document: Mapping[str, Any], folder: Path | None, asked: Sequence[Member], workers: int | None) -> None:
    """Refuse what is wrong with all of them: what is wrong with the first, and members that are asked for twice."""
    if workers is not None and workers < 1:
        raise _wrong("workers", f"expected at least 1, found {workers}")
    seen: set[str] = set()
    for member in asked:
        try:
            key = member.key
        except (TypeError, ValueError) as error:
            raise _wrong(
                "vary", f"expected texts, numbers, truths and lists of them, found {member.parameters}"
            ) from error
        if key in seen:
            raise _wrong("", f"expected each member once, found one twice: {member.name}")
        seen.add(key)
    first = asked[0]
    overrides = [override(key, value) for key, value in first.parameters.items()]
    scenario_from(document, "ensemble", overrides=overrides, folder=folder)


class _Directory:
    """The directory of an ensemble, taken by one process as long as it is open."""

    def __init__(self, home: Path, about: Mapping[str, Any]) -> None:
        self._home = home
        try:
            home.mkdir(parents=True, exist_ok=True)
            self._lock = RunLock(home)
        except RunError:
            raise
        except OSError as error:
            raise RunError(
                f"{home}: the directory of the ensemble cannot be made: {error.strerror}; give another"
            ) from error
        try:
            self._take(about)
        except BaseException:
            self._lock.release()
            raise

    def _take(self, about: Mapping[str, Any]) -> None:
        path = self._home / ABOUT
        # As it is read again: keys in their order, tuples as lists.
        about = json.loads(json.dumps(about))
        if path.exists():
            self._compare(json.loads(path.read_text(encoding="utf-8")), about)
        elif any(entry.name != LOCK for entry in self._home.iterdir()):
            raise RunError(
                f"{self._home}: expected an ensemble or an empty directory, found other files; give another"
            )
        else:
            replace_text(path, json.dumps(about, indent=2, ensure_ascii=False) + "\n")
        self.members = {member.key: member for member in _read_members(self._home / MEMBERS)}
        self.working = self._home / WORKING
        # What a process has left that was killed.
        shutil.rmtree(self.working, ignore_errors=True)
        self.working.mkdir()
        self._file = (self._home / MEMBERS).open("a", encoding="utf-8")

    def _compare(self, there: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
        changed = [key for key in asked if there.get(key) != asked[key]]
        if changed:
            raise RunError(
                f"{self._home}: expected an ensemble of this scenario, found that it began with another"
                f" {' and '.join(changed)}; go on as it began, or give another directory"
            )

    def run_of(self, member: Member) -> Path:
        """Return where the run of a member stays."""
        word = hashlib.sha256(member.key.encode()).hexdigest()[:10]
        return self._home / RUNS / (word if member.seed is None else f"seed{member.seed}-{word}")

    def add(self, member: Member) -> None:
        """Write a member down; it is on the disk when this returns."""
        self._file.write(json.dumps(member.as_record(), ensure_ascii=False) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Give the directory up."""
        self._file.close()
        shutil.rmtree(self.working, ignore_errors=True)
        self._lock.release()


def _read_members(path: Path) -> Iterator[Member]:
    """Yield the members that are written down; of a line that was cut off, nothing."""
    if not path.exists():
        return
    with path.open("rb+") as lines:
        whole = lines.read()
        lines.truncate(whole.rfind(b"\n") + 1)
    for line in whole[: whole.rfind(b"\n") + 1].splitlines():
        yield Member.from_record(json.loads(line))
