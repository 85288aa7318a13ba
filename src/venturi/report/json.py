"""A result as JSON text; the format is versioned."""

from __future__ import annotations

import json as _json

from venturi.analysis import Analysis, Comparison, Scenarios, as_plain

__all__ = ["json"]


def json(result: Analysis | Comparison | Scenarios, *, indent: int | None = 2) -> str:
    """Return the result as JSON: ``format``, ``version``, then its fields, base units in their names, null for absent.

    The format is ``"venturi-analysis"``, ``"venturi-comparison"`` or ``"venturi-scenarios"``. A number that is not finite never occurs.
    """
    return _json.dumps(as_plain(result), indent=indent, allow_nan=False, ensure_ascii=False) + "\n"
