"""How values and names are shown in messages."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping

__all__ = ["shown", "suggestion"]


def shown(value: object) -> str:
    """Return a value of a TOML document as a reader would recognise it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"' if len(value) <= 80 else f'"{value[:77]}..."'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(shown(item) for item in value) + "]" if len(value) <= 8 else f"a list of {len(value)}"
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return "nothing" if value is None else str(value)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `` (did you mean X?)`` or nothing."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f" (did you mean {near[0]}?)" if near else ""
