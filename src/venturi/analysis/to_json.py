"""Conversion of a result to plain values for JSON: base units in the names, no NaN, no infinity."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from venturi.analysis.compare import RunComparison
from venturi.analysis.result import Analysis, Trials
from venturi.analysis.scenarios import Scenarios

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Plain: TypeAlias = "dict[str, Any] | list[Any] | str | int | float | bool | None"

__all__ = ["ANALYSIS_FORMAT", "ANALYSIS_VERSION", "COMPARISON_FORMAT", "SCENARIOS_FORMAT", "as_plain"]

ANALYSIS_FORMAT = "venturi-analysis"
COMPARISON_FORMAT = "venturi-comparison"
SCENARIOS_FORMAT = "venturi-scenarios"
ANALYSIS_VERSION = 1

_FORMATS: dict[type, str] = {Analysis: ANALYSIS_FORMAT, RunComparison: COMPARISON_FORMAT, Scenarios: SCENARIOS_FORMAT}
_LEFT_OUT = frozenset({"draw_x", "draw_y", "draw_low", "draw_high"})
"""Fields only for figures. The formula and the parameters have the same information."""


def as_plain(result: Analysis | RunComparison | Scenarios) -> dict[str, Any]:
    """Return a result as dictionaries, lists, text, numbers, booleans and None.

    The first keys are ``format`` and ``version``. The columns of the trials are left out because the tables of the run
    have them. The points of drawn fits are left out too. NaN and infinity become None.

    Examples
    --------
    >>> import json
    >>> json.dumps(as_plain(analysis), allow_nan=False)  # doctest: +SKIP
    """
    name = _FORMATS[type(result)]
    return {"format": name, "version": ANALYSIS_VERSION, **_fields(result)}


def _fields(value: Analysis | RunComparison | Scenarios | DataclassInstance) -> dict[str, Any]:
    kept = (field.name for field in fields(value) if field.name not in _LEFT_OUT)
    return {name: _plain(getattr(value, name)) for name in kept if not isinstance(getattr(value, name), Trials)}


def _plain(value: object) -> Plain:
    match value:
        case None | bool() | str():
            return value
        case enum.Enum():
            return value.name
        case int() | np.integer():
            return int(value)
        case float() | np.floating():
            return float(value) if math.isfinite(value) else None
        case np.ndarray():
            return [_plain(item) for item in value.tolist()]
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(item) for item in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return _fields(value)
        case _:
            raise TypeError(f"expected plain data, found {type(value).__name__}")
