"""Advice: the bottleneck of measured and simulated transfers, with evidence and the change that helps.

This package turns the tables of a run, or a measured path, into :class:`Verdict`. The same code serves hosts, lab and
simulation. Measuring is in :mod:`venturi.backend` and :mod:`venturi.measure`. Printing is in :mod:`venturi.cli` and
:mod:`venturi.report`. Statistics of rates are in :mod:`venturi.analysis`. Read :class:`Verdict` first, then
:func:`venturi.advice.attribute.attribute`.
"""

from venturi.advice.advise import advise
from venturi.advice.verdict import (
    CAUSES,
    NETWORK_CAUSES,
    Advice,
    Cause,
    Counterfactual,
    Observed,
    PointGroup,
    Setting,
    TimeFraction,
    Verdict,
)

__all__ = [
    "CAUSES",
    "NETWORK_CAUSES",
    "Advice",
    "Cause",
    "Counterfactual",
    "Observed",
    "PointGroup",
    "Setting",
    "TimeFraction",
    "Verdict",
    "advise",
]
