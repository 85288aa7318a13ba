"""Reader of plans, with line numbers and locations in errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from venturi.errors import PlanError
from venturi.messages import quote_value
from venturi.plan.codec import ACTOR_LINE, HEADER, DecodeError, RecordCodec
from venturi.plan.header import FORMAT, VERSION, Header
from venturi.plan.plan import Plan
from venturi.plan.steps import ActorLine, FactorValue
from venturi.plan.upgrade import upgrade_header

__all__ = ["TrialRow", "actor_lines", "read_header", "read_plan", "trials"]


@dataclass(frozen=True, slots=True)
class TrialRow:
    """Planned trial.

    ``transfers`` and ``bytes`` are ``None`` if the plan does not define them (a loop until a time, a random size). The trial
    does not start at or after ``until_s``. A successful trial increases the counters of ``counts``.
    """

    trial: str
    actor: str
    host: str
    factors: Mapping[str, FactorValue]
    point: int
    repetition: int
    block: int
    transfers: int | None
    bytes: int | None
    until_s: float | None = None
    counts: Mapping[str, int] = field(default_factory=dict)


def read_header(path: str | Path, *, upgrade: bool = False) -> Header:
    """Return the header of the plan in the file ``path``.

    Parameters
    ----------
    upgrade
        Also read a plan of version 1, as the plan of a run is: its keys get the names of the current version.

    Raises
    ------
    PlanError
        If the file cannot be read, is no plan, or has another version of the format.
    """
    for number, text in _numbered_lines(Path(path)):
        content = _parse(text, path, number)
        return _header(upgrade_header(content) if upgrade else content, path)
    raise PlanError(f"{path}: expected a plan, found an empty file; create the plan again")


def read_plan(path: str | Path) -> Plan:
    """Return the plan in the file ``path``; each iteration reads its lines from the file.

    Raises
    ------
    PlanError
        As :func:`read_header`; during the iteration, for a malformed line, with its number.
    """
    return Plan(read_header(path), _FileLines(Path(path)))


def actor_lines(path: str | Path) -> Iterator[ActorLine]:
    """Yield the actor lines of the plan in the file ``path``, in order, with little memory.

    Raises
    ------
    PlanError
        For a malformed line, with its number.
    """
    for number, text in _numbered_lines(Path(path)):
        if number == 1:
            _header(_parse(text, path, number), path)
            continue
        yield _read(ACTOR_LINE, _parse(text, path, number), path, number)


def trials(path: str | Path) -> Iterator[TrialRow]:
    """Yield the trials of the plan in the file ``path``, in the order of its lines.

    Raises
    ------
    PlanError
        For a malformed line, with its number.
    """
    for number, text in _numbered_lines(Path(path)):
        value = _parse(text, path, number)
        if number == 1:
            _header(value, path)
            continue
        try:
            rows = [row for step in value["steps"] for row in _trials_in(step, value["actor"], value["host"])]
        except (KeyError, TypeError, AttributeError):
            # Only the complete decoder reports the error of the line.
            _read(ACTOR_LINE, value, path, number)
            raise
        yield from rows


@dataclass(frozen=True)
class _FileLines:
    path: Path

    def __iter__(self) -> Iterator[ActorLine]:
        return actor_lines(self.path)


def _trials_in(step: dict[str, Any], actor: str, host: str) -> Iterator[TrialRow]:
    """Yield the trials in the JSON of a step; typed steps would take five times as long."""
    kind = step["step"]
    if kind == "trial":
        transfers, size = _moved(step["steps"])
        yield TrialRow(
            step["id"],
            actor,
            host,
            step["factors"],
            step["point"],
            step["repetition"],
            step["block"],
            transfers,
            size,
            step.get("until_s"),
            step.get("counts") or {},
        )
    elif kind == "parallel":
        for child in step["children"]:
            for inner in child:
                yield from _trials_in(inner, actor, host)
    elif kind in ("repeat", "arrivals"):
        for inner in step["steps"]:
            yield from _trials_in(inner, actor, host)


def _moved(steps: list[dict[str, Any]]) -> tuple[int | None, int | None]:
    """Return transfers and bytes of the steps, ``None`` if the plan does not define them."""
    transfers: int | None = 0
    size: int | None = 0
    for step in steps:
        count, moved = _moved_by(step)
        transfers = None if transfers is None or count is None else transfers + count
        size = None if size is None or moved is None else size + moved
    return transfers, size


def _moved_by(step: dict[str, Any]) -> tuple[int | None, int | None]:
    kind = step["step"]
    if kind in ("transfer", "read"):
        return 1, step["bytes"] if isinstance(step["bytes"], int) else None
    if kind == "parallel":
        return _moved([inner for child in step["children"] for inner in child])
    if kind == "repeat":
        count, moved = _moved(step["steps"])
        times = step.get("count")
        if times is None:
            return (0, 0) if count == 0 else (None, None)
        return None if count is None else count * times, None if moved is None else moved * times
    if kind == "arrivals":
        # The number of arrivals is random.
        return (0, 0) if _moved(step["steps"])[0] == 0 else (None, None)
    return 0, 0


def _numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open(encoding="utf-8") as file:
            number = 0
            for number, text in enumerate(file, 1):
                yield number, text
    except UnicodeDecodeError as error:
        raise PlanError(f"{path}: after line {number}: expected UTF-8, found byte {error.object[error.start]:#04x}; create the plan again"
                        ) from error  # fmt: skip
    except OSError as error:
        raise PlanError(f"{path}: expected a readable plan, found none ({error.strerror}); check the path") from error


def _parse(text: str, path: str | Path, number: int) -> dict[str, Any]:
    try:
        value = json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{path}: line {number}: expected JSON, found other text ({error}); create the plan again"
                        ) from error  # fmt: skip
    if not isinstance(value, dict):
        raise PlanError(
            f"{path}: line {number}: expected a JSON object, found {quote_value(value)}; create the plan again"
        )
    return value


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid in JSON")


def _header(value: dict[str, Any], path: str | Path) -> Header:
    if value.get("format") != FORMAT:
        raise PlanError(
            f'{path}: line 1: format: expected "{FORMAT}", found {value.get("format", "nothing")!r}; use a file of `venturi plan`'
        )
    version = value.get("version")
    if version != VERSION:
        raise PlanError(
            f"{path}: line 1: version: expected {VERSION}, found {value.get('version', 'nothing')!r}; create the plan again"
        )
    header = _read(HEADER, {key: item for key, item in value.items() if key != "format"}, path, 1)
    assert isinstance(header, Header)
    return header


def _read(record: RecordCodec, value: dict[str, Any], path: str | Path, number: int) -> Any:  # noqa: ANN401
    try:
        return record.read(value, "")
    except DecodeError as error:
        raise PlanError(f"{path}: line {number}: {error}") from error
