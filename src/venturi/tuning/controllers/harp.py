"""HARP-like rules: a heuristic first guess, three samples, and a regression.

Source: Yildirim, Kim and Kosar, "How GridFTP pipelining, parallelism and concurrency work", NDM 2012, for the first
guess; Arslan, Pehlivan and Kosar, "Big data transfer optimization through adaptive parameter tuning" (HARP,
arXiv:1708.03053) for samples and regression. The rules:

- pipelining = bandwidth-delay product / file size, rounded up
- parallel streams only if the window is smaller than the product, and not more than the windows of a file
- concurrency for small files, and for the rest of the product
- samples at the guess, half of it and twice of it; then a parabola of rate against ln n selects the number

HARP also uses past transfers of the same class. This port has none, so the samples are its only data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from venturi.tuning.controller import StopTuning
from venturi.tuning.path import TunePath
from venturi.tuning.probe import TuneProbe
from venturi.tuning.settings import TunedSettings

__all__ = ["HarpRules"]

CONCURRENCY = 4
"""Concurrent files of the first guess."""

SAMPLES = 3


@dataclass(frozen=True, slots=True)
class HarpRules:
    """Heuristics, three samples, and the maximum of a parabola."""

    name: str = "harp"
    summary: str = "Heuristic parallelism, concurrency and pipelining; three samples; the maximum of a parabola."
    source: str = "Yildirim et al., NDM 2012; Arslan et al., arXiv:1708.03053"

    def first(self, properties: TunePath) -> TunedSettings:
        """Return the heuristic guess."""
        bdp, window, size = properties.bdp_bytes, properties.window_bytes, properties.file_bytes
        streams, pipelining = 1, None
        if bdp and window and bdp > window:
            streams = math.ceil(bdp / window)
            if size:
                streams = min(streams, max(1, int(size // window)))
        if bdp and size and size < bdp:
            pipelining = math.ceil(bdp / size)
        return properties.limit(TunedSettings(concurrency=CONCURRENCY, streams=streams, pipelining=pipelining))

    def next(self, properties: TunePath, history: Sequence[TuneProbe]) -> TunedSettings | StopTuning:
        """Return the next sample, then the maximum of the parabola through the samples."""
        guess = history[0].settings
        number = guess.concurrency or 1
        if len(history) < SAMPLES:
            other = max(1, number // 2) if len(history) == 1 else 2 * number
            return properties.limit(replace(guess, concurrency=other))
        if len(history) > SAMPLES:
            return StopTuning("the regression is done")
        sampled = {probe.settings.concurrency or 1: probe.rate_bytes_per_s for probe in history}
        if len(sampled) < SAMPLES:
            return StopTuning("the limit of the mover leaves no three samples")
        best = _maximum(sampled, properties.most("concurrency"))
        if best in sampled:
            return StopTuning("a sample is the maximum of the regression")
        return properties.limit(replace(guess, concurrency=best))


def _maximum(sampled: dict[int, float], most: int) -> int:
    """Return the number of the largest value of the parabola in ln n, at most twice the largest sample."""
    a, b, c = np.polyfit(np.log(list(sampled)), list(sampled.values()), 2)
    numbers = np.arange(1, min(most, 2 * max(sampled)) + 1)
    logs = np.log(numbers)
    return int(numbers[int(np.argmax(a * logs**2 + b * logs + c))])
