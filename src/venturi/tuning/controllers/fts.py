"""Optimizer of FTS3, with one probe for each of its intervals.

Source: cern-fts/fts3@e0a7e05, ``src/optimizer/services/OptimizerConnections.cpp``, ``OptimizerStreams.cpp`` and
``OptimizerConstants.h``. Every minute it compares the moving average of the rate (weight 0.1) with the last one:

- success below 97 %: one connection less; no change if it improves and is at least 96 %
- average falls: one less if its logarithm to the base 10 rounds to a smaller integer, otherwise no change
- average rises or stays: one more

It starts in the middle of the range from 2 to the limit of the link. The port assumes a long queue of files of one size.
With it, the other rules (short queue, smaller files) do not apply, and the rule of the streams (connections divided by
active and queued files) gives one stream. A probe replaces the minute.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from venturi.tuning.controller import StopTuning
from venturi.tuning.path import TunePath
from venturi.tuning.probe import TuneProbe
from venturi.tuning.settings import TunedSettings

__all__ = ["FtsOptimizer"]

LEAST = 2
EMA_WEIGHT = 0.1
LOW_SUCCESS, BASE_SUCCESS = 97, 96


@dataclass(frozen=True, slots=True)
class FtsOptimizer:
    """One connection more or less per interval; the mode ``aggressive`` of FTS has a step of 2."""

    name: str = "fts"
    summary: str = "One connection more or less per interval, by a moving average of the rate and the success."
    source: str = "cern-fts/fts3@e0a7e05, src/optimizer/services/OptimizerConnections.cpp"
    step: int = 1

    def first(self, properties: TunePath) -> TunedSettings:
        """Return the middle of the range."""
        return _settings(properties, _middle(properties))

    def next(self, properties: TunePath, history: Sequence[TuneProbe]) -> TunedSettings | StopTuning:
        """Return the next number of connections, from a replay of all probes. The rule never stops."""
        most = properties.most("concurrency")
        number = _middle(properties)
        # The first interval only starts the average.
        average, success_before = history[0].rate_bytes_per_s, _percent(history[0])
        for probe in history[1:]:
            rate, success = probe.rate_bytes_per_s, _percent(probe)
            new = EMA_WEIGHT * rate + (1 - EMA_WEIGHT) * average if rate > 0 else average
            number += self.step * _direction(new, average, success, success_before)
            number = max(min(LEAST, most), min(most, number))
            average, success_before = new, success
        return _settings(properties, number)


def _direction(average: float, before: float, success: int, success_before: int) -> int:
    """Return +1, 0 or −1."""
    if success < LOW_SUCCESS:
        return 0 if success > success_before and success >= BASE_SUCCESS else -1
    if average < before:
        return -1 if _decade(average) < _decade(before) else 0
    return 1


def _middle(properties: TunePath) -> int:
    return LEAST + (properties.most("concurrency") - LEAST) // 2


def _settings(properties: TunePath, number: int) -> TunedSettings:
    return properties.limit(TunedSettings(concurrency=number, streams=1))


def _percent(probe: TuneProbe) -> int:
    return math.ceil(100 * probe.success)


def _decade(rate: float) -> int:
    return round(math.log10(rate)) if rate > 0 else 0
