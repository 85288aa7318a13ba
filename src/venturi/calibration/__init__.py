"""Comparison of models with measured runs: ``calibrate`` estimates parameters, ``validate`` and ``validate_fit`` compute errors.

``calibrate`` and ``validate`` simulate the plan of the run in virtual time. ``calibrate`` fits the parameters of
:mod:`venturi.cost` that the measured times determine, and predicts the times of points that were held out of the fit.
``validate_fit`` compares fitted curves with a run that they have not seen. The cost formulas (``crates/sim``) and
printing are elsewhere.

Read :func:`calibrate` first, then :class:`Model`.
"""

from venturi.calibration.calibrate import calibrate
from venturi.calibration.result import Calibration, Validation
from venturi.calibration.simulator import Model

__all__ = ["Calibration", "Model", "Validation", "calibrate"]
