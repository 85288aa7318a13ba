"""Locations, names and values in error messages about documents."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

__all__ = ["Problem", "QuotedValue", "Where", "one_of", "path_text", "quote_value", "suggestion"]

Where: TypeAlias = tuple[str | int, ...]
"""Location in a document: keys and indices."""

Problem: TypeAlias = tuple[str, str]
"""Location as text, and the error message."""


def path_text(where: Where) -> str:
    """Return a location as text, such as ``workload.factors.size[2]``."""
    text = ""
    for part in where:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            key = part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else f'"{part}"'
            text += f".{key}" if text else key
    return text


def one_of(what: str, names: Iterable[str], found: object) -> str:
    """Return ``expected one of the hosts: a, b, found "c"; did you mean …?``."""
    known = list(names)
    hint = suggestion(found, known) if isinstance(found, str) else ""
    return f"expected one of {what}: {', '.join(known) or '(none defined)'}, found {quote_value(found)}{hint}"


def quote_value(value: object) -> str:
    """Return a value of a TOML document as text for messages."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"' if len(value) <= 80 else f'"{value[:77]}..."'
    if isinstance(value, (list, tuple)):
        return (
            "[" + ", ".join(quote_value(item) for item in value) + "]"
            if len(value) <= 8
            else f"a list of {len(value)}"
        )
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return "nothing" if value is None else str(value)


class QuotedValue:
    """A value that parsers print in their messages as a scenario shows it."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return quote_value(self.value)

    __str__ = __repr__


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean X?`` with the most similar name, or an empty text."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {near[0]}?" if near else ""
