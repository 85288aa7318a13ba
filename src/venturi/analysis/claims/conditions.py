"""Conditions of a study that a run does not have, and the claims that the run therefore cannot test.

A run of a study can be smaller than the study: fewer values of a factor, smaller sizes, fewer repetitions. Claims about
the full study are then not tested, because the numbers belong to another experiment.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from venturi.analysis.result import About
from venturi.errors import VenturiError
from venturi.scenario import load_scenario
from venturi.study import Study
from venturi.units import parse_bytes, parse_duration, parse_rate_bit_per_s

__all__ = ["StudyConditions", "study_conditions"]

MIN_CURVE_TRIALS = 3
"""Repetitions that a claim about curves needs; fewer give no confidence interval."""
MAX_SHOWN = 3
"""Changed conditions that a reason names."""
_IGNORED = ("repeat", "timeout", "order", "retries", "kind", "filter", "sweep", "group", "options", "cache", "ramp")
"""Keys of ``workload`` that are not conditions of a claim. Combinations that a filter omits have no row in a table."""
_ABSOLUTE = frozenset(
    {"at_most", "at_least", "saturates_at", "plateau_above", "most_of_fall_below", "most_of_rise_below"}
)
"""Checks that compare with a figure of the full study."""


@dataclass(frozen=True)
class StudyConditions:
    """Differences of a run from its study.

    Attributes
    ----------
    amounts
        Changed keys, such as ``workload.events``, with the values of the study and of the run.
    levels
        Factor → (values of the study, values of the run), for factors with fewer values.
    scale
        (scale of the study, scale of the run) if the run is smaller.
    repeat
        (repetitions of the study, repetitions of the run) if the run has too few for an interval.
    """

    amounts: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    levels: Mapping[str, tuple[Sequence[Any], Sequence[Any]]] = field(default_factory=dict)
    scale: tuple[float, float] | None = None
    repeat: tuple[int, int] | None = None

    def missing(self, claim: Mapping[str, Any]) -> str:
        """Return why the run cannot test a claim; empty if it can."""
        found = list(self._missing({**claim, **claim.get("ours", {})}))
        if not found:
            return ""
        more = f" and {len(found) - MAX_SHOWN} more" if len(found) > MAX_SHOWN else ""
        return f"this run lacks conditions of the study: {', '.join(found[:MAX_SHOWN])}{more}"

    def _missing(self, claim: Mapping[str, Any]) -> Iterator[str]:
        check = str(claim.get("check"))
        equals = claim.get("equals")
        absolute = check in _ABSOLUTE or (equals is not None and not isinstance(equals, Mapping))
        if check in ("sum", "equals") and not absolute:
            return  # arithmetic within a table
        yield from (f"{key} = {_text(run)} instead of {_text(study)}" for key, (study, run) in self.amounts.items())
        for factor, (study, run) in self.levels.items():
            if _is_pinned(factor, claim):
                continue
            if absolute or (_is(factor, claim.get("against")) and _lost_end(study, run)):
                yield f"{factor} = {_text(run)} instead of {_text(study)}"
        if self.scale is not None and (absolute or _is("size", claim.get("against"))):
            yield f"scale = {self.scale[1]:g} instead of {self.scale[0]:g}"
        if self.repeat is not None and "table" not in claim:
            yield f"{self.repeat[1]} instead of {self.repeat[0]} repetitions, {MIN_CURVE_TRIALS} are needed"


def study_conditions(about: About, study: Study | None) -> StudyConditions:
    """Return the differences of a run from its study.

    A difference counts if it differs from both the variant of the backend and the full variant.
    """
    if study is None:
        return StudyConditions()
    variants = dict.fromkeys((study.overrides(full=True), study.overrides(on=about.backend)))
    try:
        documents = [load_scenario(study.scenario_path, list(overrides)).document() for overrides in variants]
    except VenturiError:
        return StudyConditions()  # a study of another version
    amounts: dict[str, tuple[Any, Any]] = {}
    own = dict(_amounts(about.scenario))
    expected = [dict(_amounts(document)) for document in documents]
    for key, value in own.items():
        known = [one[key] for one in expected if key in one]
        if known and all(_normal(value) != _normal(one) for one in known):
            amounts[key] = known[-1], value
    levels: dict[str, tuple[Sequence[Any], Sequence[Any]]] = {}
    for name, values in _factors(about.scenario).items():
        known = [factors[name] for factors in map(_factors, documents) if name in factors]
        if known and all(_lost(one, values) for one in known):
            levels[name] = list(dict.fromkeys(known[-1])), list(dict.fromkeys(values))
    scales = [float(document.get("scale") or 1.0) for document in documents]
    smaller = about.scale < min(scales) * (1 - 1e-9)
    repeats = [int(_workload(document).get("repeat") or 1) for document in documents]
    repeat = _workload(about.scenario).get("repeat")
    few = isinstance(repeat, int) and repeat < MIN_CURVE_TRIALS and repeat < min(repeats)
    return StudyConditions(
        amounts, levels, (scales[-1], about.scale) if smaller else None, (repeats[-1], int(repeat)) if few else None  # type: ignore[arg-type]
    )  # fmt: skip


def _workload(document: Mapping[str, Any]) -> Mapping[str, Any]:
    workload = document.get("workload")
    return workload if isinstance(workload, Mapping) else {}


def _factors(document: Mapping[str, Any]) -> dict[str, list[Any]]:
    factors = _workload(document).get("factors")
    found = factors if isinstance(factors, Mapping) else {}
    return {str(name): value if isinstance(value, list) else [value] for name, value in found.items()}


def _amounts(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the conditions of a scenario other than factors: its workload, its hosts, and rates of its links."""
    for key, value in _workload(document).items():
        if key != "factors" and key not in _IGNORED:
            yield from _leaves(f"workload.{key}", value)
    testbed = document.get("testbed")
    if not isinstance(testbed, Mapping):
        return
    if isinstance(testbed.get("host"), Mapping) and len(testbed["host"]):
        yield "number of hosts", len(testbed["host"])
    for name, link in (testbed.get("link") or {}).items():
        if isinstance(link, Mapping) and "rate" in link:
            yield f"testbed.link.{name}.rate", link["rate"]


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - a value of a document
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name not in _IGNORED:
                yield from _leaves(f"{key}.{name}", inner)
    else:
        yield key, value


def _normal(value: Any) -> Any:  # noqa: ANN401 - a value of a document
    """Return a value in a form that compares equal for equal amounts."""
    if isinstance(value, list):
        return [_normal(item) for item in value]
    if isinstance(value, str):
        for parse in (parse_bytes, parse_duration, parse_rate_bit_per_s):
            try:
                return float(parse(value))
            except VenturiError:
                continue
        return value
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _lost(study: Sequence[Any], run: Sequence[Any]) -> bool:
    present = [_normal(value) for value in run]
    return any(_normal(value) not in present for value in study)


def _lost_end(study: Sequence[Any], run: Sequence[Any]) -> bool:
    numbers = [value for value in map(_normal, study) if isinstance(value, float) and not math.isnan(value)]
    present = [_normal(value) for value in run]
    return bool(numbers) and (min(numbers) not in present or max(numbers) not in present)


def _is(factor: str, column: object) -> bool:
    """Return whether a column or axis of a claim belongs to a factor, such as ``size_bytes`` to ``size``."""
    name = str(column or "")
    return name == factor or name.startswith(f"{factor}_")


def _is_pinned(factor: str, claim: Mapping[str, Any]) -> bool:
    """Return whether a claim is about single values of a factor. Rows without these values are not tested in any case."""
    tables = [claim.get(key) for key in ("where", "numerator", "denominator")]
    return any(_is(factor, column) for table in tables if isinstance(table, Mapping) for column in table)


def _text(value: Any) -> str:  # noqa: ANN401 - a value of a document
    if isinstance(value, list | tuple):
        shown = ", ".join(str(item) for item in value[:MAX_SHOWN])
        return f"[{shown}{', …' if len(value) > MAX_SHOWN else ''}]"
    return str(value)
