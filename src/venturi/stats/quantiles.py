"""Quantiles of the distributions that intervals use: those of :mod:`scipy.special`, for :mod:`scipy.stats` takes a second to import."""

from __future__ import annotations

from scipy import special

__all__ = ["normal_reach", "student_reach"]


def normal_reach(level: float) -> float:
    """Return how many standard errors a normal estimate is from its truth at most, with this confidence.

    Examples
    --------
    >>> round(normal_reach(0.95), 3)
    1.96
    """
    return float(special.ndtri((1 + level) / 2))


def student_reach(level: float, freedom: float) -> float:
    """Return the same of a mean whose error is estimated with so many degrees of freedom; NaN with none.

    Examples
    --------
    >>> round(student_reach(0.95, 2), 3)
    4.303
    """
    return float(special.stdtrit(freedom, (1 + level) / 2))
