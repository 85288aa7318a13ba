"""Start times of open-loop transfers, from a rate over time and an arrival process.

Arrivals are generated at rate 1, at even intervals or as a Poisson process. The integral of the rate maps them to times
of the run. The plan step ``arrivals`` uses the same rule with other random streams (*The plan* in the reference).

| symbol | meaning | unit |
|---|---|---|
| points | time and factor of the rate, with linear interpolation | s, 1 |
| per_s | rate at factor 1 | 1/s |
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from venturi.plan import Arrivals, Draw, Step
from venturi.workload.streams import draw_unit

__all__ = ["GAP", "GAPS", "Process", "RateShape", "arrival_times", "open_loop"]

Process: TypeAlias = Literal["poisson", "even"]

GAP = "gap"
GAPS = {GAP: {"kind": "exponential", "mean": 1.0}}
"""Random stream in the header for the step ``arrivals`` of a Poisson process."""


@dataclass(frozen=True, slots=True)
class RateShape:
    """Factors of a rate at points of time, in ascending order; 0 before the first and after the last point."""

    points: tuple[tuple[float, float], ...]

    @property
    def full_s(self) -> float:
        """The integral of the factor: the time at factor 1 with the same number of arrivals.

        Examples
        --------
        >>> RateShape(((0, 0), (10, 1), (30, 1))).full_s
        25.0
        """
        return math.fsum(self._areas())

    @property
    def end_s(self) -> float:
        """Time of the last point."""
        return self.points[-1][0]

    def times(self, integral_values: Iterator[float]) -> Iterator[float]:
        """Yield the times when the integral reaches these ascending values, until the last point.

        Examples
        --------
        >>> list(RateShape(((0, 0), (10, 10))).times(iter([0.5, 2.0, 8.0, 50.0])))
        [1.0, 2.0, 4.0]
        """
        segments = zip(self.points, self.points[1:], self._areas(), strict=False)
        before = 0.0
        (start, low), (end, high), area = next(segments)
        for value in integral_values:
            while value - before >= area:
                before += area
                following = next(segments, None)
                if following is None:
                    return
                (start, low), (end, high), area = following
            within = value - before
            slope = (high - low) / (end - start)
            # Solves low·x + slope·x²/2 = within, without cancellation for small slopes.
            root = math.sqrt(max(0.0, low * low + 2 * slope * within))
            yield min(end, start + 2 * within / (low + root)) if within else start

    def _areas(self) -> list[float]:
        return [
            (end - start) * (low + high) / 2
            for (start, low), (end, high) in zip(self.points, self.points[1:], strict=False)
        ]


def arrival_times(shape: RateShape, per_s: float, process: Process, seed: int, *names: str | int) -> Iterator[float]:
    """Yield the arrival times of the random stream with these names, in seconds, ascending.

    ``"poisson"`` draws exponential gaps. ``"even"`` places arrival n at n plus a random phase in [0, 1), so that flows with
    the same start do not stay synchronous.
    """
    return shape.times(value / per_s for value in _counts(process, seed, names))


def _counts(process: Process, seed: int, names: tuple[str | int, ...]) -> Iterator[float]:
    count = draw_unit(seed, *names, "phase") if process == "even" else 0.0
    for number in range(10**12):
        if process == "poisson":
            count -= math.log1p(-draw_unit(seed, *names, number))
            yield count
        else:
            yield count + number


def open_loop(
    shape: RateShape, per_s: float, process: Process, steps: tuple[Step, ...], seed: int, *names: str | int
) -> Arrivals:
    """Return a step ``arrivals``; a Poisson process needs :data:`GAPS` in the header."""
    rates = tuple((float(time), per_s * factor) for time, factor in shape.points)
    if process == "poisson":
        return Arrivals(rates, Draw(GAP), steps)
    return Arrivals(rates, 1.0, steps, draw_unit(seed, *names, "phase"))
