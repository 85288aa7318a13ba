"""Bayesian search of Falcon.

Source: arif-zaman/Falcon-File-Transfer-Optimizer@2f02928, ``search.py``: a Gaussian process over the number of transfers,
3 random starts, and the last 25 probes. The original uses scikit-optimize with its mixture of acquisition functions
(``gp_hedge``). scikit-optimize is not a dependency of Venturi, so this port has a small Gaussian process in numpy, with
a Matérn kernel (ν = 5/2) of fixed length over ln n, and the expected improvement. Both searches have the same
utility. The rule never stops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from venturi.tuning.controller import StopTuning
from venturi.tuning.controllers.falcon_gradient import falcon_utility
from venturi.tuning.path import TunePath
from venturi.tuning.probe import TuneProbe
from venturi.tuning.settings import TunedSettings

__all__ = ["FalconBayes", "expected_improvement"]

RANDOM_STARTS = 3
WINDOW = 25
LENGTH = 1.0
"""Length of the kernel in ln n: a factor of e."""

NOISE = 0.05
"""Deviation of the noise relative to the deviation of the values."""

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class FalconBayes:
    """Expected improvement of a Gaussian process; ``seed`` selects the random starts."""

    name: str = "falcon-bayes"
    summary: str = "Gaussian process over the concurrency: 3 random starts, then the largest expected improvement."
    source: str = "arif-zaman/Falcon-File-Transfer-Optimizer@2f02928, search.py"
    seed: int = 1

    def first(self, properties: TunePath) -> TunedSettings:
        """Return the first random start."""
        return self._start(properties, 0)

    def next(self, properties: TunePath, history: Sequence[TuneProbe]) -> TunedSettings | StopTuning:
        """Return the next random start, or the number with the largest expected improvement."""
        if len(history) < RANDOM_STARTS:
            return self._start(properties, len(history))
        used = history[-WINDOW:]
        numbers = np.arange(1.0, properties.most("concurrency") + 1)
        tried = np.array([float(probe.settings.concurrency or 1) for probe in used])
        values = np.array([falcon_utility(probe) for probe in used])
        gain = expected_improvement(np.log(tried), values, np.log(numbers))
        return properties.limit(TunedSettings(concurrency=int(numbers[int(np.argmax(gain))])))

    def _start(self, properties: TunePath, position: int) -> TunedSettings:
        draws = np.random.default_rng(self.seed).integers(1, properties.most("concurrency") + 1, RANDOM_STARTS)
        return properties.limit(TunedSettings(concurrency=int(draws[position])))


def expected_improvement(x: Floats, y: Floats, at: Floats) -> Floats:
    """Return the expected improvement over the largest value of a Gaussian process.

    Source: Jones, Schonlau and Welch, J. Global Optim. 13 (1998) 455, eq. 15.

    Parameters
    ----------
    x, y
        Places and values, shape (n,). Values are scaled to mean 0 and deviation 1.
    at
        Places of the result, shape (m,).
    """
    spread = float(y.std()) or 1.0
    scaled = (y - y.mean()) / spread
    covariance = _matern(x[:, None] - x[None, :]) + NOISE**2 * np.eye(len(x))
    cross = _matern(at[:, None] - x[None, :])
    mean = cross @ np.linalg.solve(covariance, scaled)
    variance = 1.0 - np.einsum("ij,ji->i", cross, np.linalg.solve(covariance, cross.T))
    deviation = np.sqrt(np.maximum(variance, 1e-12))
    z = (mean - scaled.max()) / deviation
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    below = np.array([0.5 * math.erfc(-one / math.sqrt(2)) for one in z])
    improvement: Floats = spread * deviation * (z * below + density)
    return improvement


def _matern(distance: Floats) -> Floats:
    scaled = math.sqrt(5) * np.abs(distance) / LENGTH
    kernel: Floats = (1 + scaled + scaled**2 / 3) * np.exp(-scaled)
    return kernel
