"""A calibration or a validation as plain values for JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from venturi.calibration.document import costs_document
from venturi.calibration.fit_validation import FitValidation
from venturi.calibration.result import Calibration, Validation
from venturi.model import HeldOutErrors

__all__ = ["CALIBRATION_FORMAT", "FIT_VALIDATION_FORMAT", "VALIDATION_FORMAT", "VERSION", "as_plain"]

CALIBRATION_FORMAT = "venturi-calibration"
VALIDATION_FORMAT = "venturi-validation"
FIT_VALIDATION_FORMAT = "venturi-fit-validation"
VERSION = 1


def as_plain(result: Calibration | Validation | FitValidation) -> dict[str, Any]:
    """Return a result as dictionaries, lists, text, numbers and None: ``format``, ``version``, then its fields.

    ``cost`` has the form of a scenario. A number that is not finite becomes None.
    """
    name = VALIDATION_FORMAT
    if isinstance(result, Calibration):
        name = CALIBRATION_FORMAT
    elif isinstance(result, FitValidation):
        name = FIT_VALIDATION_FORMAT
    found = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    if isinstance(result, Calibration):
        found["cost"] = costs_document(result.cost)["testbed"]["cost"]
    return {"format": name, "version": VERSION, **{key: _plain(value) for key, value in found.items()}}


def _plain(value: Any) -> Any:  # noqa: ANN401 - a field of any type
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        found = {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        if isinstance(value, HeldOutErrors):
            found["coverage"] = value.coverage
        return found
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value
