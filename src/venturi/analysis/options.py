"""Options of an analysis that override the scenario of the run."""

from __future__ import annotations

from dataclasses import dataclass

from venturi.scenario import Criterion

__all__ = ["AnalyseOptions", "Criterion"]


@dataclass(frozen=True, slots=True)
class AnalyseOptions:
    """Options of :func:`venturi.analysis.analyse`. None means the value in ``[analyse]`` of the scenario.

    Attributes
    ----------
    confidence
        Level of all intervals, such as 0.95.
    against
        Factors on the axes of the curves, as the scenario names them (``"files"``, ``"size"``).
    families
        Names of the families to fit, or ``("all",)``.
    criterion
        Criterion that ranks the fits.
    fits
        True to fit the curves. Without fits an analysis takes about a second.
    """

    confidence: float | None = None
    against: tuple[str, ...] | None = None
    families: tuple[str, ...] | None = None
    criterion: Criterion | None = None
    fits: bool = True
