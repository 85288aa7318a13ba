"""When open-loop transfers begin: a rate over time, and the process that has it.

Time is stretched so that the rate is 1 in it. There arrivals are even, or a Poisson process of rate 1; each is turned back into a time of
the run. This is the rule of the step ``arrivals`` of the plan, too (*The plan* in the reference), which draws from other streams: the
same law, other times.

| symbol | meaning | unit |
|---|---|---|
| points | time, factor: what the rate is multiplied with then; a line in between | s, 1 |
| per_s | the rate where the factor is 1 | 1/s |
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from venturi.plan import Arrivals, Draw, Step
from venturi.workload.streams import draw_unit

__all__ = ["GAP", "GAPS", "Process", "Shape", "arrival_times", "open_loop"]

Process: TypeAlias = Literal["poisson", "even"]

GAP = "gap"
GAPS = {GAP: {"kind": "exponential", "mean": 1.0}}
"""The draw that a step ``arrivals`` of a Poisson process needs in the header."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How a rate changes: factors at points of time, not falling; 0 before the first and from the last on."""

    points: tuple[tuple[float, float], ...]

    @property
    def full_s(self) -> float:
        """The time at factor 1 in which as much arrives: the integral of the factor.

        Examples
        --------
        >>> Shape(((0, 0), (10, 1), (30, 1))).full_s
        25.0
        """
        return math.fsum(self._areas())

    @property
    def end_s(self) -> float:
        """The last point."""
        return self.points[-1][0]

    def times(self, stretched_s: Iterator[float]) -> Iterator[float]:
        """Yield the times at which the integral has come to these values, rising, as long as it does.

        Examples
        --------
        >>> list(Shape(((0, 0), (10, 10))).times(iter([0.5, 2.0, 8.0, 50.0])))
        [1.0, 2.0, 4.0]
        """
        pieces = zip(self.points, self.points[1:], self._areas(), strict=False)
        before = 0.0
        (begin, low), (end, high), area = next(pieces)
        for value in stretched_s:
            while value - before >= area:
                before += area
                following = next(pieces, None)
                if following is None:
                    return
                (begin, low), (end, high), area = following
            within = value - before
            slope = (high - low) / (end - begin)
            # Solves low·x + slope·x²/2 = within, in the form that does not cancel where the slope is small.
            root = math.sqrt(max(0.0, low * low + 2 * slope * within))
            yield min(end, begin + 2 * within / (low + root)) if within else begin

    def _areas(self) -> list[float]:
        return [
            (end - begin) * (low + high) / 2
            for (begin, low), (end, high) in zip(self.points, self.points[1:], strict=False)
        ]


def arrival_times(shape: Shape, per_s: float, process: Process, seed: int, *names: str | int) -> Iterator[float]:
    """Yield the times of the arrivals that belong to these names, in seconds, rising.

    ``"poisson"``: gaps are drawn; ``"even"``: the n-th is where n and a drawn phase of [0, 1) have arrived, so that what begins together
    does not go on in step.
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
    shape: Shape, per_s: float, process: Process, steps: tuple[Step, ...], seed: int, *names: str | int
) -> Arrivals:
    """Return the step that yields such arrivals when it is carried out; a Poisson process needs :data:`GAPS` in the header."""
    rates = tuple((float(time), per_s * factor) for time, factor in shape.points)
    if process == "poisson":
        return Arrivals(rates, Draw(GAP), steps)
    return Arrivals(rates, 1.0, steps, draw_unit(seed, *names, "phase"))
