"""Quantiles for confidence intervals, from :mod:`scipy.special`, because :mod:`scipy.stats` takes a second to import."""

from __future__ import annotations

from scipy import special

__all__ = ["normal_reach", "student_reach"]


def normal_reach(level: float) -> float:
    """Return the half width of a normal confidence interval, in standard errors.

    Examples
    --------
    >>> round(normal_reach(0.95), 3)
    1.96
    """
    return float(special.ndtri((1 + level) / 2))


def student_reach(level: float, freedom: float) -> float:
    """Return the half width of a Student's t confidence interval, in estimated standard errors; NaN without degrees of freedom.

    Examples
    --------
    >>> round(student_reach(0.95, 2), 3)
    4.303
    """
    return float(special.stdtrit(freedom, (1 + level) / 2))
