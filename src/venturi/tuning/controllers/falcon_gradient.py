"""Gradient search of Falcon.

Source: arif-zaman/Falcon-File-Transfer-Optimizer@2f02928, ``search.py`` and ``sender.py``; Arifuzzaman and Arslan,
"Online optimization of file transfers in high-speed networks", SC'21. The utility of n transfers at the rate T (Mb/s) and
the loss L is T/1.02ⁿ − 10·T·L. The step is the relative slope of the last two probes, times n, times the length of the
run of slopes with this sign. n stays between 1 and 10 above the best n. The port uses a probe for the 3 s of an
interval. The rule never stops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from venturi.tuning.controller import StopTuning
from venturi.tuning.path import TunePath
from venturi.tuning.probe import TuneProbe
from venturi.tuning.settings import TunedSettings

__all__ = ["FalconGradient", "falcon_utility"]

DECAY = 1.02
LOSS_WEIGHT = 10.0
AHEAD = 10
BITS_PER_MEGABIT = 1e6


def falcon_utility(probe: TuneProbe) -> float:
    """Return the utility of a probe, in Mb/s.

    Examples
    --------
    >>> falcon_utility(TuneProbe(TunedSettings(concurrency=2), (130_050_000.0,)))
    1000.0
    """
    rate = probe.rate_bytes_per_s * 8 / BITS_PER_MEGABIT
    number = probe.settings.concurrency or 1
    return float(round(rate / DECAY**number - LOSS_WEIGHT * rate * (probe.retransmitted or 0.0)))


@dataclass(frozen=True, slots=True)
class FalconGradient:
    """Steps along the relative slope of the utility."""

    name: str = "falcon-gradient"
    summary: str = "Steps along the slope of rate/1.02ⁿ minus a penalty for loss."
    source: str = "arif-zaman/Falcon-File-Transfer-Optimizer@2f02928, search.py"

    def first(self, properties: TunePath) -> TunedSettings:
        """Return one transfer."""
        return properties.limit(TunedSettings(concurrency=1))

    def next(self, properties: TunePath, history: Sequence[TuneProbe]) -> TunedSettings | StopTuning:
        """Return the next number of transfers, from a replay of all probes."""
        most = properties.most("concurrency")
        numbers, values = [1], [falcon_utility(history[0])]
        run, best, bound = 0, 0.0, most
        for position in range(len(history)):
            value = values[position]
            if value > best:
                best, bound = value, min(numbers[position] + AHEAD, most)
            if position == 0:
                numbers.append(min(2, most))
            else:
                run, number = _step(numbers, values, run)
                numbers.append(max(1, min(number, bound)))
            if position + 1 < len(history):
                values.append(falcon_utility(history[position + 1]))
        return properties.limit(TunedSettings(concurrency=numbers[-1]))


def _step(numbers: Sequence[int], values: Sequence[float], run: int) -> tuple[int, int]:
    """Return the new run of signs (positive: upwards) and the next number from the last two probes."""
    distance = max(1, abs(numbers[-1] - numbers[-2]))
    slope = (values[-1] - values[-2]) / distance
    change = abs(slope / values[-2]) if values[-2] else abs(slope)
    rising = slope >= 0 if numbers[-1] > numbers[-2] else slope <= 0
    sign = 1 if rising else -1
    run = run + sign if run * sign >= 0 else sign
    return run, numbers[-1] + run * math.ceil(numbers[-1] * change)
