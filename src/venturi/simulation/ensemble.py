"""Ensembles: simulations of one scenario with many seeds and parameter values, on the cores of this machine or a Dask cluster.

An ensemble stores one line of figures per member. It keeps the run of a member only on request, because runs can be large.
One thread simulates a member, so its figures do not depend on the number of concurrent members.
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
from venturi.scenario.document import build_document, read_document
from venturi.simulation.member import FIGURES, Member, MemberTask, engine_sha256, override
from venturi.simulation.simulate import Source, costs_from, read_scenario
from venturi.simulation.summary import SeedGroup, summarise
from venturi.simulation.workers import on_dask, on_this_machine, stopped_by_signals

__all__ = ["Ensemble", "ProgressCallback", "ensemble"]

FORMAT, VERSION = "venturi-ensemble", 1
ABOUT, MEMBERS, RUNS, WORKING = "ensemble.json", "members.jsonl", "runs", "working"
MOST_MEMBERS = 100_000
"""A larger number is probably a mistake in a range."""

ProgressCallback = Callable[[int, int, int], None]
"""Receives the number of finished members, the total, and the number of failed members."""


@dataclass(frozen=True)
class Ensemble:
    """Simulated members of one scenario.

    Attributes
    ----------
    path
        Directory with ``ensemble.json``, ``members.jsonl`` and, if runs were kept, ``runs``.
    members
        All members in the requested order: sets of parameters, and the seeds within each set.
    """

    path: Path
    members: tuple[Member, ...]

    @property
    def failed(self) -> tuple[Member, ...]:
        """Members whose simulation failed; ``error`` has the reason."""
        return tuple(member for member in self.members if member.error)

    def table(self) -> dict[str, npt.NDArray[Any]]:
        """Return the members as columns of equal length: ``seed``, each parameter, each figure (NaN if unknown), ``error``."""
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

    def summary(self, *, level: float = 0.95) -> tuple[SeedGroup, ...]:
        """Return statistics of each figure over the seeds of each set of parameters: see :func:`summarise`."""
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
    on_progress: ProgressCallback | None = None,
) -> Ensemble:
    """Simulate a scenario with every seed and every combination of parameter values.

    Parameters
    ----------
    scenario, overrides, costs
        As in :func:`venturi.simulate`; ``costs`` must be a file.
    seeds
        Seeds of the members. Default: only the seed of the scenario.
    vary
        Key of the scenario → its values: ``{"testbed.link.wan.rate": ["10 Gb/s", "40 Gb/s"]}``. Several keys give all
        combinations.
    figures
        Figures in addition to :data:`FIGURES`: name → SQL query that returns one number. It can use all tables of
        :meth:`venturi.run.Run.query`.
    directory
        Directory of the ensemble. Members in an existing directory are not simulated again, except failed ones.
        Default: a new directory below ``runs``.
    runs
        Base directory of runs.
    keep_runs
        Keep the run of each member below ``runs`` in the directory, for ``venturi report`` and :class:`venturi.run.Run`.
    workers
        Number of concurrent members. Default: the number of cores that this process can use.
    dask
        Address of the scheduler of a Dask cluster to use instead of this machine: ``"tcp://host:8786"``. Its workers need Venturi
        and access to the files that the scenario names. To keep runs, workers and this process must share a file system.
    on_directory
        Called with the directory after its creation and before the first simulation. Pass this directory to resume a
        stopped ensemble.
    on_progress
        Called once before the first simulation and after each member.

    Raises
    ------
    ScenarioError
        If the scenario is not valid with the first value of each parameter, or if the costs file or an argument is not valid.
    RunError
        If the directory holds another ensemble, or is not writable.
    BackendError
        If the engine is missing, or the cluster does not respond.

    Examples
    --------
    >>> import venturi
    >>> result = venturi.ensemble("wlcg.toml", seeds=range(100))  # doctest: +SKIP
    >>> result.summary()[0].figures["makespan_s"].median  # doctest: +SKIP
    86412.7
    """
    document, base_directory = _document(scenario, overrides)
    members = list(_members(seeds, vary or {}))
    _check(document, base_directory, members, workers)
    figure_queries = {**FIGURES, **(figures or {})}
    engine = engine_sha256()
    costs_path = None if costs is None else Path(costs)
    costs_from(costs_path)  # an error here would fail every member
    about = {
        "format": FORMAT,
        "version": VERSION,
        "scenario": document,
        "costs": None if costs_path is None else costs_path.read_text(encoding="utf-8"),
        "figures": figure_queries,
        "engine": engine,
    }
    home = Path(directory) if directory is not None else new_run_path(Path(runs), f"{document['name']}-ensemble", time.time_ns())  # fmt: skip
    with closing(_Directory(home, about)) as ensemble_directory:
        if on_directory is not None:
            on_directory(home)
        known = {key: member for key, member in ensemble_directory.members.items() if not member.error}
        todo = {member.key: member for member in members if member.key not in known}
        tasks = [
            MemberTask(
                document, None if base_directory is None else str(base_directory.absolute()),
                None if costs_path is None else str(costs_path.absolute()), member, figure_queries,
                scratch=None if dask else str(ensemble_directory.working.absolute()),
                keep=str(ensemble_directory.run_of(member).absolute()) if keep_runs else None,
            )
            for member in todo.values()
        ]  # fmt: skip
        known |= _executed(
            ensemble_directory, tasks, known, len(members), workers or _cores(), dask, engine, on_progress
        )
    return Ensemble(home, tuple(known[member.key] for member in members))


def _executed(
    storage: _Directory, tasks: Sequence[MemberTask], before: Mapping[str, Member], total: int, workers: int, dask: str | None,
    engine: str, on_progress: ProgressCallback | None,
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
            storage.add(member)
            found[member.key] = member
            failed += bool(member.error)
            if on_progress is not None:
                on_progress(len(before) + len(found), total, failed)
    return found


def _of_this_engine(member: Member, engine: str) -> Member:
    """Return the member, or a failed member if the worker used another engine, because such figures are not comparable."""
    if member.error or member.engine == engine:
        return member
    error = f"expected the engine {engine[:16]}… on the worker, found {member.engine[:16]}…; install one version of Venturi everywhere"
    return Member(member.seed, member.parameters, error)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _document(scenario: Source, overrides: Iterable[str]) -> tuple[dict[str, Any], Path | None]:
    """Return the document of a scenario with its includes, and the base directory of the files that it names."""
    if isinstance(scenario, Scenario):
        return read_scenario(scenario, overrides).document(), None
    read = (
        build_document(scenario, overrides)
        if isinstance(scenario, Mapping)
        else read_document(Path(scenario), overrides)
    )
    if read.problems:
        raise ScenarioError(read.problems, "scenario" if isinstance(scenario, Mapping) else str(scenario))
    return read.data, read.directory


def _members(seeds: Iterable[int] | None, vary: Mapping[str, Sequence[Any]]) -> Iterator[Member]:
    """Yield the requested members."""
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


def _check(
    document: Mapping[str, Any], directory: Path | None, members: Sequence[Member], workers: int | None
) -> None:
    """Raise if the first member is not valid, because all would fail, or if a member is requested twice."""
    if workers is not None and workers < 1:
        raise _wrong("workers", f"expected at least 1, found {workers}")
    seen: set[str] = set()
    for member in members:
        try:
            key = member.key
        except (TypeError, ValueError) as error:
            raise _wrong(
                "vary", f"expected strings, numbers, booleans and lists of them, found {member.parameters}"
            ) from error
        if key in seen:
            raise _wrong("", f"expected each member once, found one twice: {member.name}")
        seen.add(key)
    first = members[0]
    overrides = [override(key, value) for key, value in first.parameters.items()]
    scenario_from(document, "ensemble", overrides=overrides, directory=directory)


class _Directory:
    """Directory of an ensemble, locked by one process while it is open."""

    def __init__(self, home: Path, about: Mapping[str, Any]) -> None:
        self._home = home
        try:
            home.mkdir(parents=True, exist_ok=True)
            self._lock = RunLock(home)
        except RunError:
            raise
        except OSError as error:
            raise RunError(
                f"{home}: cannot create the directory of the ensemble: {error.strerror}; choose another directory"
            ) from error
        try:
            self._take(about)
        except BaseException:
            self._lock.release()
            raise

    def _take(self, about: Mapping[str, Any]) -> None:
        path = self._home / ABOUT
        # Convert to the form that a later read returns: tuples become lists.
        about = json.loads(json.dumps(about))
        if path.exists():
            self._compare(json.loads(path.read_text(encoding="utf-8")), about)
        elif any(entry.name != LOCK for entry in self._home.iterdir()):
            raise RunError(
                f"{self._home}: expected an ensemble or an empty directory, found other files; choose another directory"
            )
        else:
            replace_text(path, json.dumps(about, indent=2, ensure_ascii=False) + "\n")
        self.members = {member.key: member for member in _read_members(self._home / MEMBERS)}
        self.working = self._home / WORKING
        # Remove the files of a killed process.
        shutil.rmtree(self.working, ignore_errors=True)
        self.working.mkdir()
        self._file = (self._home / MEMBERS).open("a", encoding="utf-8")

    def _compare(self, stored: Mapping[str, Any], requested: Mapping[str, Any]) -> None:
        changed = [key for key in requested if stored.get(key) != requested[key]]
        if changed:
            raise RunError(
                f"{self._home}: expected an ensemble of this scenario, found one with a different"
                f" {' and '.join(changed)}; use the same settings, or another directory"
            )

    def run_of(self, member: Member) -> Path:
        """Return the path of the kept run of a member."""
        word = hashlib.sha256(member.key.encode()).hexdigest()[:10]
        return self._home / RUNS / (word if member.seed is None else f"seed{member.seed}-{word}")

    def add(self, member: Member) -> None:
        """Append a member to the file; it is durable when this returns."""
        self._file.write(json.dumps(member.as_record(), ensure_ascii=False) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the files and release the lock."""
        self._file.close()
        shutil.rmtree(self.working, ignore_errors=True)
        self._lock.release()


def _read_members(path: Path) -> Iterator[Member]:
    """Yield the members in the file, and truncate an incomplete last line."""
    if not path.exists():
        return
    with path.open("rb+") as lines:
        whole = lines.read()
        lines.truncate(whole.rfind(b"\n") + 1)
    for line in whole[: whole.rfind(b"\n") + 1].splitlines():
        yield Member.from_record(json.loads(line))
