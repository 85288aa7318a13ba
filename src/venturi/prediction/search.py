"""Search of the greatest rate that holds: a bracket from a first guess, then bisection on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from venturi.errors import SampleError

__all__ = ["GreatestRate", "greatest_rate"]

PRECISION = 0.02
"""Largest ratio, minus 1, of the ends of the final bracket."""

STEPS_DOWN = (1.0, 0.98, 0.93, 0.82, 0.6, 0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4)
STEPS_UP = (1.05, 1.2, 1.6, 3.0, 10.0, 100.0)
"""Multiples of the first guess that are tried for a bracket."""

STEPS_AROUND = (1.0, 1.02, 1.06, 1.15, 1.4, 2.0, 5.0)
"""Ratios of the bracket to rates that hold for all seeds, or for none."""


@dataclass(frozen=True, slots=True)
class GreatestRate:
    """Greatest rate that holds for most seeds.

    Attributes
    ----------
    per_s
        Geometric mean of the final bracket.
    low, high
        Rate that holds for all seeds, and rate that holds for none. In the unit of the guess.
    rates
        Number of rates that were tried.
    """

    per_s: float
    low: float
    high: float
    rates: int


def greatest_rate(
    holds: Callable[[float], Sequence[bool]], guess: float, *, on_rate: Callable[[int], None] | None = None
) -> GreatestRate:
    """Return the greatest rate that holds for at least half of the seeds.

    Parameters
    ----------
    holds
        Result of each seed at a rate, in a fixed order; it must become false as the rate grows.
    guess
        First guess of the rate, such as the limit of the first resource, above 0.
    on_rate
        Called with the number of finished rates.

    Raises
    ------
    SampleError
        If no rate holds, or all rates hold.

    Examples
    --------
    >>> found = greatest_rate(lambda rate: [rate < 7.0, rate < 7.1, rate < 7.2], 8.0)
    >>> 7.0 < found.per_s < 7.2, found.low < 7.1 < found.high
    (True, True)
    """
    known: dict[float, Sequence[bool]] = {}

    def results(rate: float) -> Sequence[bool]:
        if rate not in known:
            known[rate] = tuple(holds(rate))
            if on_rate is not None:
                on_rate(len(known))
        return known[rate]

    def holds_mostly(rate: float) -> bool:
        return 2 * sum(results(rate)) >= len(results(rate))

    low, high = _bracket(holds_mostly, guess)
    while high / low > 1 + PRECISION:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds_mostly(middle) else (low, middle)
    return GreatestRate(math.sqrt(low * high), _lowest(results, low), _highest(results, high), len(known))


def _lowest(results: Callable[[float], Sequence[bool]], low: float) -> float:
    """Return a rate that holds for all seeds, or the smallest tried rate."""
    for step in STEPS_AROUND:
        if all(results(low / step)):
            break
    return low / step


def _highest(results: Callable[[float], Sequence[bool]], high: float) -> float:
    """Return a rate that holds for no seed, or the largest tried rate."""
    for step in STEPS_AROUND:
        if not any(results(high * step)):
            break
    return high * step


def _bracket(holds: Callable[[float], bool], guess: float) -> tuple[float, float]:
    """Return a rate that holds, and a larger rate that does not hold."""
    if holds(guess):
        low = guess
        for step in STEPS_UP:
            if not holds(guess * step):
                return low, guess * step
            low = guess * step
        raise SampleError(
            f"expected a limit below {STEPS_UP[-1]:g} times the limit of the first resource, found none; check the testbed"
        )
    high = guess
    for step in STEPS_DOWN[1:]:
        if holds(guess * step):
            return guess * step, high
        high = guess * step
    raise SampleError(
        f"expected a rate that the testbed sustains, found none down to {STEPS_DOWN[-1]:g} times the limit of the first resource;"
        " check timeouts and outages in the scenario"
    )
