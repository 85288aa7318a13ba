"""Scenario as TOML text, to copy from a report and run again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

__all__ = ["as_toml"]

_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")


def as_toml(document: Mapping[str, object]) -> str:
    """Return plain values (text, numbers, booleans, lists, tables) as TOML. None is omitted, because TOML has no null.

    Examples
    --------
    >>> print(as_toml({"name": "x", "workload": {"repeat": 3, "factors": {"files": [1, 2]}}}))
    name = "x"
    <BLANKLINE>
    [workload]
    repeat = 3
    <BLANKLINE>
    [workload.factors]
    files = [1, 2]
    """
    return "\n".join(_table(document, ())).strip("\n")


def _table(table: Mapping[str, object], path: tuple[str, ...]) -> list[str]:
    values = [(key, value) for key, value in table.items() if value is not None and not isinstance(value, Mapping)]
    inner = [(key, value) for key, value in table.items() if isinstance(value, Mapping)]
    lines: list[str] = []
    if path and (values or not inner):
        lines += ["", f"[{'.'.join(map(_key, path))}]"]
    lines += [f"{_key(key)} = {_value(value)}" for key, value in values]
    for key, value in inner:
        lines += _table(value, (*path, key))
    return lines


def _key(key: object) -> str:
    return str(key) if _BARE.match(str(key)) else _quoted(str(key))


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _quoted(value)
        case int() | float():
            return repr(value)
        case list() | tuple():
            return "[" + ", ".join(_value(item) for item in value if item is not None) + "]"
        case Mapping():
            inner = ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None)
            return "{ " + inner + " }" if inner else "{}"
        case _:
            return _quoted(str(value))


def _quoted(text: str) -> str:
    # A JSON string is a TOML basic string, except DEL, which JSON does not escape.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
