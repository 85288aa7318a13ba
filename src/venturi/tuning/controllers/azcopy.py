"""Concurrency tuner of AzCopy.

Source: Azure/azure-storage-azcopy@595529d, ``ste/concurrencyTuner.go``. It starts with 4 connections and multiplies them
by 4, or by 2 above 256. It keeps the increase if the rate rises by more than 20 % of a linear increase. Otherwise it
returns to the earlier number, measures again, and continues with the multiplier 1 + (m − 1)/5. It ends below 1.19.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from venturi.tuning.controller import StopTuning
from venturi.tuning.path import TunePath
from venturi.tuning.probe import TuneProbe
from venturi.tuning.settings import TunedSettings

__all__ = ["AzcopyTuner"]

INITIAL = 4.0
FAST, STANDARD = 4.0, 2.0
FAST_UP_TO = 256.0
LINEAR_FRACTION = 0.2
SLOWDOWN = 5.0
MIN_MULTIPLIER = 1.19


@dataclass(frozen=True, slots=True)
class AzcopyTuner:
    """Multiply the number of connections while the rate follows; back off with smaller steps."""

    name: str = "azcopy"
    summary: str = "Multiply the concurrency by 4 while the rate gains 20 % of a linear increase; then back off."
    source: str = "Azure/azure-storage-azcopy@595529d, ste/concurrencyTuner.go"

    def first(self, properties: TunePath) -> TunedSettings:
        """Return 4 connections."""
        return properties.limit(TunedSettings(concurrency=int(INITIAL)))

    def next(self, properties: TunePath, history: Sequence[TuneProbe]) -> TunedSettings | StopTuning:
        """Return the next number of connections, from a replay of all probes."""
        most = float(properties.most("concurrency"))
        number = min(INITIAL, most)
        multiplier = FAST
        rates = [probe.rate_bytes_per_s for probe in history]
        speed, position = rates[0], 1
        while True:
            if number >= FAST_UP_TO:
                multiplier = min(multiplier, STANDARD)
            at_limit = number * multiplier >= most
            if at_limit:
                multiplier = most / number
            if multiplier <= 1.0:
                return StopTuning("the limit of the mover", _settings(properties, number))
            if position == len(rates):
                return _settings(properties, number * multiplier)
            required = speed * (1 + (multiplier - 1) * LINEAR_FRACTION)
            speed, position = rates[position], position + 1
            if speed > required:
                number *= multiplier
                if at_limit:
                    return StopTuning("the limit of the mover", _settings(properties, number))
                continue
            multiplier = 1 + (multiplier - 1) / SLOWDOWN
            if multiplier < MIN_MULTIPLIER:
                return StopTuning("at the optimum: smaller steps do not help", _settings(properties, number))
            if position == len(rates):
                return _settings(properties, number)
            speed, position = rates[position], position + 1


def _settings(properties: TunePath, number: float) -> TunedSettings:
    return properties.limit(TunedSettings(concurrency=int(number)))
