"""Member of an ensemble: the simulation of a scenario with one seed and one set of parameters, and its figures."""

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

__all__ = ["FIGURES", "Member", "MemberTask", "engine_sha256", "execute", "override", "override_value"]

_OK = "FROM transfers WHERE outcome = 'ok'"
_SPAN = "(max(end_s) - min(start_s))"

FIGURES: Mapping[str, str] = {
    "transfers": "SELECT count(*) FROM transfers",
    "transfers_failed": "SELECT count(*) FROM transfers WHERE outcome <> 'ok'",
    "moved_bytes": f"SELECT sum(coalesce(received_bytes, requested_bytes)) {_OK}",
    "makespan_s": f"SELECT {_SPAN} FROM transfers",
    "throughput_bytes_per_s": f"SELECT sum(coalesce(received_bytes, requested_bytes)) / nullif({_SPAN}, 0) {_OK}",
    "duration_median_s": f"SELECT median(duration_s) {_OK}",
    "duration_p95_s": f"SELECT quantile_cont(duration_s, 0.95) {_OK}",
    "rate_median_bytes_per_s": f"SELECT median(coalesce(received_bytes, requested_bytes) / nullif(duration_s, 0)) {_OK}",
}
"""Default figures of every member: name (unit last) → SQL query over the tables of its run that returns one number."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an ensemble and its result.

    Attributes
    ----------
    seed
        Seed of its random draws; None: the seed of the scenario.
    parameters
        Key of the scenario → its value in this member.
    error
        Reason of a failed simulation; "" after a success.
    figures
        Name → value; NaN if the run has no data for it.
    engine
        SHA-256 of the engine that simulated it, hexadecimal.
    run
        Run directory relative to the directory of the ensemble, if the run was kept.
    """

    seed: int | None
    parameters: Mapping[str, Any]
    error: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    engine: str = ""
    run: str | None = None

    @property
    def key(self) -> str:
        """Unique key within an ensemble: the seed and parameters as JSON."""
        return json.dumps([self.seed, dict(sorted(self.parameters.items()))], ensure_ascii=False)

    @property
    def name(self) -> str:
        """Readable name in one line: parameters and seed."""
        parts = [f"{key}={override_value(value)}" for key, value in self.parameters.items()]
        return ", ".join([*parts, *([] if self.seed is None else [f"seed {self.seed}"])]) or "as written"

    def as_record(self) -> dict[str, Any]:
        """Return the member as a record of ``members.jsonl``, with null for NaN."""
        figures = {name: None if math.isnan(value) else value for name, value in self.figures.items()}
        return {**asdict(self), "parameters": dict(self.parameters), "figures": figures}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Member:
        """Return the member of a record."""
        figures = {name: math.nan if value is None else float(value) for name, value in record["figures"].items()}
        return cls(**{**record, "figures": figures})


@dataclass(frozen=True, slots=True)
class MemberTask:
    """Data that a worker needs to simulate a member.

    Attributes
    ----------
    document
        The scenario without the parameters of the member.
    directory
        Base directory of the files that the scenario names.
    costs
        File of cost parameters that replaces the costs of the scenario, or None.
    member
        The member, not simulated yet.
    figures
        Names and queries, as in :data:`FIGURES`.
    scratch
        Directory for the temporary run; None: the default temporary directory.
    keep
        Path at which the run is kept; None: the run is deleted.
    """

    document: Mapping[str, Any]
    directory: str | None
    costs: str | None
    member: Member
    figures: Mapping[str, str]
    scratch: str | None = None
    keep: str | None = None

    def as_record(self) -> dict[str, Any]:
        """Return the task as a JSON object."""
        return {**{name: getattr(self, name) for name in self.__slots__}, "member": self.member.as_record()}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> MemberTask:
        """Return the task of a record."""
        return cls(**{**record, "member": Member.from_record(record["member"])})


def override_value(value: object) -> str:
    """Return a value as TOML text in one line.

    Examples
    --------
    >>> override_value("10 Gb/s"), override_value(True), override_value([1, "a"])
    ('"10 Gb/s"', 'true', '[1, "a"]')
    """
    # The JSON text of strings, numbers, booleans and lists is also valid TOML.
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def override(key: str, value: object) -> str:
    """Return a key and value in the format of ``--set``."""
    return f"{key}={override_value(value)}"


def execute(record: Mapping[str, Any]) -> dict[str, Any]:
    """Simulate the member of a task record and return its record; errors of Venturi are stored as ``error`` and not raised."""
    task = MemberTask.from_record(record)
    member = task.member
    try:
        figures, engine = _simulated(task)
    except VenturiError as error:
        return {**member.as_record(), "error": str(error) or type(error).__name__}
    kept = None if task.keep is None else str(Path(*Path(task.keep).parts[-2:]))
    return Member(member.seed, member.parameters, "", figures, engine, kept).as_record()


def _simulated(task: MemberTask) -> tuple[dict[str, float], str]:
    member = task.member
    overrides = [override(key, value) for key, value in member.parameters.items()]
    if member.seed is not None:
        overrides.append(f"seed={member.seed}")
    base = None if task.directory is None else Path(task.directory)
    scenario = scenario_from(task.document, "member", overrides=overrides, directory=base)
    with tempfile.TemporaryDirectory(prefix="member-", dir=task.scratch) as scratch:
        home = Path(scratch) / "run"
        with simulate(scenario, costs=task.costs, directory=home) as run:
            figures = {name: _figure(run, name, sql) for name, sql in task.figures.items()}
        if task.keep is not None:
            # A process that was killed before it could record the member may have left a run here.
            shutil.rmtree(task.keep, ignore_errors=True)
            Path(task.keep).parent.mkdir(exist_ok=True)
            shutil.move(home, task.keep)
    return figures, engine_sha256()


def engine_sha256() -> str:
    """Return the hash of the engine on this machine; members of different engines must not be compared."""
    return Engine.at(find_engine()).sha256


def _figure(run: Run, name: str, sql: str) -> float:
    try:
        columns = run.query(sql)
    except RunError as error:
        # Report only the first line of the reason and no path, so that the message is the same for every member.
        reason = str(error.__cause__ or error).splitlines()[0]
        raise BackendError(f"figure {name}: expected SQL over the tables of a run, found {sql}: {reason}") from error
    values = next(iter(columns.values()), None)
    if values is None or len(columns) != 1 or len(values) != 1:
        raise BackendError(f"figure {name}: expected a query that returns one number, found {sql}")
    try:
        return math.nan if values[0] is None else float(values[0])
    except (TypeError, ValueError) as error:
        raise BackendError(f"figure {name}: expected a number, found {values[0]!r}: {sql}") from error
