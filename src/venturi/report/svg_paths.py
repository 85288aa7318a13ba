"""Paths of SVG in fewer letters: steps from point to point, rounded to what an eye can tell.

A curve takes 27 bytes a point as it is drawn, and 8 like this, or none where it is level; a page has dozens of a thousand points.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["short_paths"]

_PATH = re.compile(r'(<path (?:id="[^"]*" )?d=")([^"]*)"')
_TOKEN = re.compile(r"[MLQCz]|-?\d+(?:\.\d+)?(?:e-?\d+)?")
_STEPS = 10
"""To a unit of the picture: figures are about 700 units wide, and shown on about a thousand dots of a screen."""
_PAIRS = {"M": 1, "L": 1, "Q": 2, "C": 3}
"""Points that a command takes, the last of which is where it ends."""

_Part = tuple[str, list[tuple[int, int]]]
"""A command and its points, in steps."""


def short_paths(body: str) -> str:
    """Return the text of an SVG with all its paths written short; a path of a form that is not known stays as it is."""
    return _PATH.sub(lambda match: f'{match[1]}{_short(match[2])}"', body)


def _short(path: str) -> str:
    tokens = _TOKEN.findall(path)
    if re.sub(r"\s+", "", path) != "".join(tokens):
        return path
    parts = _parts(tokens)
    return path if parts is None else _written(_without_level(parts))


def _parts(tokens: Sequence[str]) -> list[_Part] | None:
    """Return the commands of a path with their points; None if one lacks numbers or is not known."""
    found: list[_Part] = []
    place = 0
    while place < len(tokens):
        command = tokens[place]
        if command != "z" and command not in _PAIRS:
            return None
        end = place + 1 + 2 * _PAIRS.get(command, 0)
        if end > len(tokens) or any(token in "MLQCz" for token in tokens[place + 1 : end]):
            return None
        numbers = [round(float(token) * _STEPS) for token in tokens[place + 1 : end]]
        found.append((command, list(zip(numbers[::2], numbers[1::2], strict=True))))
        place = end
    return found


def _without_level(parts: Sequence[_Part]) -> list[_Part]:
    """Return the parts without points in the middle of a level line, and without lines to where they begin."""
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
    here = begun = (0, 0)
    before = ""
    for command, points in parts:
        # The letter is needed where the command changes: pairs after the first of a move are lines anyway.
        letter = command.lower() if command != before or command == "M" else ""
        steps = "".join(_number(x - here[0]) + _number(y - here[1]) for x, y in points)
        text.append(letter + (steps.removeprefix(" ") if letter else steps))
        here, before = points[-1] if points else begun, command
        begun = here if command == "M" else begun
    return "".join(text)


def _number(steps: int) -> str:
    """Return a number with what parts it from the one before: its sign, or a blank."""
    whole, part = divmod(abs(steps), _STEPS)
    text = f"{whole or ''}.{part}" if part else f"{whole}"
    return f"-{text}" if steps < 0 else f" {text}"
