"""Reader of the NIST StRD datasets in tests/data/nist, and their models as functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

DIRECTORY = Path(__file__).parents[1] / "data" / "nist"


def _gauss(x, b1, b2, b3, b4, b5, b6, b7, b8):
    return b1 * np.exp(-b2 * x) + b3 * np.exp(-(((x - b4) / b5) ** 2)) + b6 * np.exp(-(((x - b7) / b8) ** 2))


def _lanczos(x, b1, b2, b3, b4, b5, b6):
    return b1 * np.exp(-b2 * x) + b3 * np.exp(-b4 * x) + b5 * np.exp(-b6 * x)


def _chwirut(x, b1, b2, b3):
    return np.exp(-b1 * x) / (b2 + b3 * x)


def _thurber(x, b1, b2, b3, b4, b5, b6, b7):
    return (b1 + b2 * x + b3 * x**2 + b4 * x**3) / (1 + b5 * x + b6 * x**2 + b7 * x**3)


def _enso(x, b1, b2, b3, b4, b5, b6, b7, b8, b9):
    year, second, third = 2 * np.pi * x / 12, 2 * np.pi * x / b4, 2 * np.pi * x / b7
    return (
        b1 + b2 * np.cos(year) + b3 * np.sin(year) + b5 * np.cos(second) + b6 * np.sin(second) + b8 * np.cos(third)
        + b9 * np.sin(third)
    )  # fmt: skip


# The function, and its linear parameters.
MODELS: dict[str, tuple[Callable[..., np.ndarray], tuple[str, ...]]] = {
    "Misra1a": (lambda x, b1, b2: b1 * (1 - np.exp(-b2 * x)), ("b1",)),
    "Misra1b": (lambda x, b1, b2: b1 * (1 - (1 + b2 * x / 2) ** -2), ("b1",)),
    "Misra1c": (lambda x, b1, b2: b1 * (1 - (1 + 2 * b2 * x) ** -0.5), ("b1",)),
    "Misra1d": (lambda x, b1, b2: b1 * b2 * x / (1 + b2 * x), ("b1",)),
    "DanWood": (lambda x, b1, b2: b1 * x**b2, ("b1",)),
    "BoxBOD": (lambda x, b1, b2: b1 * (1 - np.exp(-b2 * x)), ("b1",)),
    "Chwirut1": (_chwirut, ()),
    "Chwirut2": (_chwirut, ()),
    "MGH09": (lambda x, b1, b2, b3, b4: b1 * (x**2 + x * b2) / (x**2 + x * b3 + b4), ("b1",)),
    "MGH10": (lambda x, b1, b2, b3: b1 * np.exp(b2 / (x + b3)), ("b1",)),
    "MGH17": (lambda x, b1, b2, b3, b4, b5: b1 + b2 * np.exp(-x * b4) + b3 * np.exp(-x * b5), ("b1", "b2", "b3")),
    "Eckerle4": (lambda x, b1, b2, b3: (b1 / b2) * np.exp(-0.5 * ((x - b3) / b2) ** 2), ("b1",)),
    "Rat42": (lambda x, b1, b2, b3: b1 / (1 + np.exp(b2 - b3 * x)), ("b1",)),
    "Rat43": (lambda x, b1, b2, b3, b4: b1 / (1 + np.exp(b2 - b3 * x)) ** (1 / b4), ("b1",)),
    "Thurber": (_thurber, ("b1", "b2", "b3", "b4")),
    "Lanczos1": (_lanczos, ("b1", "b3", "b5")),
    "Lanczos2": (_lanczos, ("b1", "b3", "b5")),
    "Lanczos3": (_lanczos, ("b1", "b3", "b5")),
    "Gauss1": (_gauss, ("b1", "b3", "b6")),
    "Gauss2": (_gauss, ("b1", "b3", "b6")),
    "Gauss3": (_gauss, ("b1", "b3", "b6")),
    "Kirby2": (
        lambda x, b1, b2, b3, b4, b5: (b1 + b2 * x + b3 * x**2) / (1 + b4 * x + b5 * x**2),
        ("b1", "b2", "b3"),
    ),
    "Hahn1": (_thurber, ("b1", "b2", "b3", "b4")),
    "Nelson": (lambda x, b1, b2, b3: b1 - b2 * x[0] * np.exp(-b3 * x[1]), ("b1", "b2")),
    "Roszman1": (lambda x, b1, b2, b3, b4: b1 - b2 * x - np.arctan(b3 / (x - b4)) / np.pi, ("b1", "b2")),
    "ENSO": (_enso, ("b1", "b2", "b3", "b5", "b6", "b8", "b9")),
    "Bennett5": (lambda x, b1, b2, b3: b1 * (b2 + x) ** (-1 / b3), ("b1",)),
}


@dataclass(frozen=True, eq=False)
class CertifiedSet:
    """One dataset: points, starts and certified results."""

    name: str
    function: Callable[..., np.ndarray]
    linear: tuple[str, ...]
    x: np.ndarray
    y: np.ndarray
    starts: tuple[dict[str, float], dict[str, float]]
    parameters: dict[str, float]
    standard_deviations: dict[str, float]
    residual_sum_of_squares: float


def read(name: str) -> CertifiedSet:
    lines = (DIRECTORY / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    head = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# ") and ": " in line)
    table = np.array([line.split(",") for line in lines if line[0] not in "#x"], dtype=float)
    function, linear = MODELS[name]

    def named(key: str) -> dict[str, float]:
        return {f"b{index + 1}": float(text) for index, text in enumerate(head[key].split())}

    y = np.log(table[:, -1]) if name == "Nelson" else table[:, -1]  # this model predicts the logarithm
    x = table[:, 0] if table.shape[1] == 2 else table[:, :-1].T
    return CertifiedSet(
        name, function, linear, x, y, (named("start1"), named("start2")), named("certified"),
        named("standard_deviation"), float(head["residual_sum_of_squares"]),
    )  # fmt: skip
