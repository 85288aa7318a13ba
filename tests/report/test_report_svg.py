"""Shortened SVG paths have the same shape."""

import re

import matplotlib.path
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from venturi.report.svg_paths import short_paths

CODES = {"m": (matplotlib.path.Path.MOVETO, 1), "l": (matplotlib.path.Path.LINETO, 1), "q": (matplotlib.path.Path.CURVE3, 2),
         "c": (matplotlib.path.Path.CURVE4, 3), "z": (matplotlib.path.Path.CLOSEPOLY, 0)}  # fmt: skip
HALF_A_STEP = 0.0501
NUMBERS = st.one_of(
    st.floats(-2000, 2000).map(lambda value: round(value, 6)), st.sampled_from((0.0, 0.04, 0.11, 3.0))
)


def ends(path):
    """Return the points of a path with their commands (SVG 1.1, section 8.3), with relative coordinates resolved."""
    found, here, started, command = [], np.zeros(2), np.zeros(2), ""
    tokens = re.findall(r"[A-Za-z]|-?(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?", path)
    while tokens:
        if tokens[0].isalpha():
            command = tokens.pop(0)
        count = CODES[command.lower()][1]
        points = np.array([float(tokens.pop(0)) for _ in range(2 * count)]).reshape(-1, 2)
        points = points + here if command.islower() else points
        here = points[-1] if count else started
        started = here if command in "mM" else started
        found += [(command.lower(), *point) for point in points] or [("z", 0.0, 0.0)]
    return found


@st.composite
def drawn(draw):
    parts = []
    for letter in draw(st.lists(st.sampled_from("LLLQCz"), max_size=20)):
        numbers = [draw(NUMBERS) for _ in range(2 * CODES[letter.lower()][1])]
        parts += (
            [letter + " " + " ".join(map(str, numbers))] if numbers else ["z", f"M {draw(NUMBERS)} {draw(NUMBERS)}"]
        )
    return "\n".join([f"M {draw(NUMBERS)} {draw(NUMBERS)}", *parts]) + "\n"


@given(drawn())
def test_a_shortened_path_goes_through_the_same_points(path):
    (short,) = re.findall(r'd="([^"]*)"', short_paths(f'<path d="{path}" style="fill: none"/>'))
    after = ends(short)
    at = 0
    for command, x, y in ends(path):
        if at < len(after) and after[at][0] == command and (command == "z" or near(after[at], x, y)):
            at += 1
            continue
        # The shortened path lacks only steps of zero length and points inside a level line.
        assert command == "l"
        assert near(after[at - 1], x, y) or on_level_line(after[at - 1], after[at], x, y)
    assert at == len(after)


def near(point, x, y):
    return abs(point[1] - x) <= HALF_A_STEP and abs(point[2] - y) <= HALF_A_STEP


def on_level_line(start, end, x, y):
    low, high = sorted((start[1], end[1]))
    return abs(end[2] - y) <= HALF_A_STEP and low - HALF_A_STEP <= x <= high + HALF_A_STEP


def test_a_long_curve_is_shortened_to_two_fifths_or_less():
    x = np.linspace(0, 600, 1000)
    path = "\n".join(f"{'L' if i else 'M'} {a:.6f} {200 + 100 * np.sin(a):.6f} " for i, a in enumerate(x))
    assert len(short_paths(f'<path d="{path}"/>')) < 0.4 * len(path)


@pytest.mark.parametrize("path", ["M 1 2 A 3 3 0 0 1 5 5", "M 1", "nonsense"])
def test_a_path_of_another_form_is_unchanged(path):
    text = f'<path d="{path}"/>'
    assert short_paths(text) == text
