"""Result as JSON text in a versioned format."""

from __future__ import annotations

import json as _json

from venturi.analysis import Analysis, RunComparison, Scenarios, as_plain

__all__ = ["json"]


def json(result: Analysis | RunComparison | Scenarios, *, indent: int | None = 2) -> str:
    """Return the result as JSON: ``format``, ``version``, then its fields.

    Names contain base units, and missing values are null. All numbers are finite. The format is ``"venturi-analysis"``,
    ``"venturi-comparison"`` or ``"venturi-scenarios"``.
    """
    return _json.dumps(as_plain(result), indent=indent, allow_nan=False, ensure_ascii=False) + "\n"
