"""Shortening of SVG paths: relative steps, rounded below visible resolution.

A point takes 8 bytes instead of 27, and none on a level line. A page has dozens of curves with a thousand points.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["short_paths"]

_PATH = re.compile(r'(<path (?:id="[^"]*" )?d=")([^"]*)"')
_TOKEN = re.compile(r"[MLQCz]|-?\d+(?:\.\d+)?(?:e-?\d+)?")
_STEPS = 10
"""Steps per unit of the figure. Figures are about 700 units wide and about 1000 pixels on a screen."""
_PAIRS = {"M": 1, "L": 1, "Q": 2, "C": 3}
"""Number of points of each command. The last is its end point."""

_Part = tuple[str, list[tuple[int, int]]]
"""A command and its points, in steps."""


def short_paths(body: str) -> str:
    """Return the SVG text with shortened paths. Paths of an unknown form stay unchanged."""
    return _PATH.sub(lambda match: f'{match[1]}{_short(match[2])}"', body)


def _short(path: str) -> str:
    tokens = _TOKEN.findall(path)
    if re.sub(r"\s+", "", path) != "".join(tokens):
        return path
    parts = _parts(tokens)
    return path if parts is None else _written(_without_level(parts))


def _parts(tokens: Sequence[str]) -> list[_Part] | None:
    """Return the commands of a path with their points, or None if a command is unknown or incomplete."""
    found: list[_Part] = []
    index = 0
    while index < len(tokens):
        command = tokens[index]
        if command != "z" and command not in _PAIRS:
            return None
        end = index + 1 + 2 * _PAIRS.get(command, 0)
        if end > len(tokens) or any(token in "MLQCz" for token in tokens[index + 1 : end]):
            return None
        numbers = [round(float(token) * _STEPS) for token in tokens[index + 1 : end]]
        found.append((command, list(zip(numbers[::2], numbers[1::2], strict=True))))
        index = end
    return found


def _without_level(parts: Sequence[_Part]) -> list[_Part]:
    """Return the commands without points inside level lines and without lines of length zero."""
    kept: list[_Part] = []
    for command, points in parts:
        if command == "L" and len(kept) > 1 and kept[-1][0] == "L" and kept[-2][0] in "ML":
            (before_x, before_y), (last_x, last_y), (x, y) = kept[-2][1][-1], kept[-1][1][0], points[0]
            if (last_x, last_y) == (x, y):
                continue
            if before_y == last_y == y and (last_x - before_x) * (x - last_x) >= 0:
                kept.pop()
        kept.append((command, points))
    return kept


def _written(parts: Iterable[_Part]) -> str:
    text: list[str] = []
    position = subpath_start = (0, 0)
    before = ""
    for command, points in parts:
        # The letter is needed if the command changes. Pairs after the first of a move are lines.
        letter = command.lower() if command != before or command == "M" else ""
        steps = "".join(_number(x - position[0]) + _number(y - position[1]) for x, y in points)
        text.append(letter + (steps.removeprefix(" ") if letter else steps))
        position, before = points[-1] if points else subpath_start, command
        subpath_start = position if command == "M" else subpath_start
    return "".join(text)


def _number(steps: int) -> str:
    """Return a number with its separator: a minus sign or a space."""
    whole, part = divmod(abs(steps), _STEPS)
    text = f"{whole or ''}.{part}" if part else f"{whole}"
    return f"-{text}" if steps < 0 else f" {text}"
