"""What may be asked of an analysis, beside what the scenario of the run already says."""

from __future__ import annotations

from dataclasses import dataclass

from venturi.scenario import Criterion

__all__ = ["AnalyseOptions", "Criterion"]


@dataclass(frozen=True, slots=True)
class AnalyseOptions:
    """Options of :func:`venturi.analysis.analyse`; None stands for what the scenario's ``[analyse]`` says.

    Attributes
    ----------
    confidence
        Level of all intervals, such as 0.95.
    against
        Factors on the axes of the curves, as the scenario names them (``"files"``, ``"size"``).
    families
        Names of the families to fit, or ``("all",)``.
    criterion
        What ranks the fits.
    fits
        Whether to fit at all; without it an analysis takes about a second.
    seed
        Of the bootstrap: the same run and options give the same analysis.
    """

    confidence: float | None = None
    against: tuple[str, ...] | None = None
    families: tuple[str, ...] | None = None
    criterion: Criterion | None = None
    fits: bool = True
    seed: int = 1
