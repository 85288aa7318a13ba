"""One member of an ensemble: a scenario with a seed and parameters, simulated, and what came of it in figures."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from venturi.backend import find_engine
from venturi.backend.engine import Engine
from venturi.errors import BackendError, RunError, VenturiError
from venturi.run import Run
from venturi.scenario import scenario_from
from venturi.simulation.simulate import simulate

__all__ = ["FIGURES", "Member", "Task", "carry_out", "engine_sha256", "override", "override_value"]

_OK = "FROM transfers WHERE outcome = 'ok'"
_SPAN = "(max(end_s) - min(start_s))"

FIGURES: Mapping[str, str] = {
    "transfers": "SELECT count(*) FROM transfers",
    "transfers_failed": "SELECT count(*) FROM transfers WHERE outcome <> 'ok'",
    "moved_bytes": f"SELECT sum(coalesce(received_bytes, asked_bytes)) {_OK}",
    "makespan_s": f"SELECT {_SPAN} FROM transfers",
    "throughput_bytes_per_s": f"SELECT sum(coalesce(received_bytes, asked_bytes)) / nullif({_SPAN}, 0) {_OK}",
    "duration_median_s": f"SELECT median(duration_s) {_OK}",
    "duration_p95_s": f"SELECT quantile_cont(duration_s, 0.95) {_OK}",
    "rate_median_bytes_per_s": f"SELECT median(coalesce(received_bytes, asked_bytes) / nullif(duration_s, 0)) {_OK}",
}
"""What every member is asked, unless somebody asks for more: a name, unit last, and one number in SQL over the tables of its run."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member and what came of it.

    Attributes
    ----------
    seed
        Of its draws; None: the scenario's own.
    parameters
        Key of the scenario → the value that it has here.
    error
        Why it could not be simulated; "" if it was.
    figures
        Name → value; NaN where there is nothing to tell it from.
    engine
        SHA-256 of the engine that simulated it, hexadecimal.
    run
        Its run directory, relative to that of the ensemble, if it was kept.
    """

    seed: int | None
    parameters: Mapping[str, Any]
    error: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    engine: str = ""
    run: str | None = None

    @property
    def key(self) -> str:
        """What tells it from the others."""
        return json.dumps([self.seed, dict(sorted(self.parameters.items()))], ensure_ascii=False)

    @property
    def name(self) -> str:
        """The same in a line, for people."""
        parts = [f"{key}={override_value(value)}" for key, value in self.parameters.items()]
        return ", ".join([*parts, *([] if self.seed is None else [f"seed {self.seed}"])]) or "as written"

    def as_record(self) -> dict[str, Any]:
        """Return it as a line of ``members.jsonl`` has it; what is not a number is null there."""
        figures = {name: None if math.isnan(value) else value for name, value in self.figures.items()}
        return {**asdict(self), "parameters": dict(self.parameters), "figures": figures}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Member:
        """Return the member of a line."""
        figures = {name: math.nan if value is None else float(value) for name, value in record["figures"].items()}
        return cls(**{**record, "figures": figures})


@dataclass(frozen=True, slots=True)
class Task:
    """All that somebody elsewhere needs to simulate a member.

    Attributes
    ----------
    document
        The scenario before the parameters of the member.
    folder
        What the files are relative to that it names.
    costs
        A file of costs in place of the scenario's, or None.
    member
        Not simulated yet.
    figures
        As :data:`FIGURES`.
    scratch
        Where the run lies for as long as it is needed; None: in the usual temporary directory.
    keep
        Where the run is to stay; None: it does not.
    """

    document: Mapping[str, Any]
    folder: str | None
    costs: str | None
    member: Member
    figures: Mapping[str, str]
    scratch: str | None = None
    keep: str | None = None

    def as_record(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return {**{name: getattr(self, name) for name in self.__slots__}, "member": self.member.as_record()}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Task:
        """Return the task of a record."""
        return cls(**{**record, "member": Member.from_record(record["member"])})


def override_value(value: object) -> str:
    """Return a value as TOML writes it in a line.

    Examples
    --------
    >>> override_value("10 Gb/s"), override_value(True), override_value([1, "a"])
    ('"10 Gb/s"', 'true', '[1, "a"]')
    """
    # What JSON writes of texts, numbers, truths and lists is TOML as well.
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def override(key: str, value: object) -> str:
    """Return a value of a key as ``--set`` takes it."""
    return f"{key}={override_value(value)}"


def carry_out(record: Mapping[str, Any]) -> dict[str, Any]:
    """Simulate the member of a task, and return it; both as records. What is wrong with it is its ``error``, and never raised."""
    task = Task.from_record(record)
    member = task.member
    try:
        figures, engine = _simulated(task)
    except VenturiError as error:
        return {**member.as_record(), "error": str(error) or type(error).__name__}
    kept = None if task.keep is None else str(Path(*Path(task.keep).parts[-2:]))
    return Member(member.seed, member.parameters, "", figures, engine, kept).as_record()


def _simulated(task: Task) -> tuple[dict[str, float], str]:
    member = task.member
    overrides = [override(key, value) for key, value in member.parameters.items()]
    if member.seed is not None:
        overrides.append(f"seed={member.seed}")
    folder = None if task.folder is None else Path(task.folder)
    scenario = scenario_from(task.document, "member", overrides=overrides, folder=folder)
    with tempfile.TemporaryDirectory(prefix="member-", dir=task.scratch) as scratch:
        home = Path(scratch) / "run"
        with simulate(scenario, costs=task.costs, directory=home) as run:
            figures = {name: _figure(run, name, sql) for name, sql in task.figures.items()}
        if task.keep is not None:
            # One that is there was left by a process that was killed before it could write its member down.
            shutil.rmtree(task.keep, ignore_errors=True)
            Path(task.keep).parent.mkdir(exist_ok=True)
            shutil.move(home, task.keep)
    return figures, engine_sha256()


def engine_sha256() -> str:
    """Return the hash of the engine of this machine: members of two engines are not to be compared."""
    return Engine.at(find_engine()).sha256


def _figure(run: Run, name: str, sql: str) -> float:
    try:
        columns = run.query(sql)
    except RunError as error:
        # Of the reason only the first line, and no path: it is the same for every member.
        reason = str(error.__cause__ or error).splitlines()[0]
        raise BackendError(f"figure {name}: expected SQL over the tables of a run, found {sql}: {reason}") from error
    values = next(iter(columns.values()), None)
    if values is None or len(columns) != 1 or len(values) != 1:
        raise BackendError(f"figure {name}: expected a question with one number as its answer, found another: {sql}")
    try:
        return math.nan if values[0] is None else float(values[0])
    except (TypeError, ValueError) as error:
        raise BackendError(f"figure {name}: expected a number, found {values[0]!r}: {sql}") from error
