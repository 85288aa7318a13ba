"""Places and names in messages about documents: what is wrong, where, and what there is instead."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

from venturi.plan.words import shown, suggestion

__all__ = ["Problem", "Where", "one_of", "path_text"]

Where: TypeAlias = tuple[str | int, ...]
"""A place in a document: keys and indices."""

Problem: TypeAlias = tuple[str, str]
"""A place as text, and what is wrong there."""


def path_text(where: Where) -> str:
    """Return a place in a document as one would write it: ``workload.factors.size[2]``."""
    text = ""
    for part in where:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            key = part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else f'"{part}"'
            text += f".{key}" if text else key
    return text


def one_of(what: str, names: Iterable[str], found: object) -> str:
    """Return ``expected one of the hosts a, b, found "c" (did you mean …?)``."""
    known = list(names)
    hint = suggestion(found, known) if isinstance(found, str) else ""
    return f"expected one of {what}: {', '.join(known) or '(there are none)'}, found {shown(found)}{hint}"
