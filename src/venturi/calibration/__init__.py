"""The simulator held against what was measured: its parameters from runs (``calibrate``), and its errors (``validate``).

A run's own plan is carried out again in virtual time; the parameters of :mod:`venturi.cost` that its times can tell are fitted, and
the times of points that the fit has not seen are predicted. Left out on purpose: the formulas (``crates/sim``), and printing.

Read :func:`calibrate` first, then :class:`Model`.
"""

from venturi.calibration.calibrate import calibrate
from venturi.calibration.result import Calibration, Validation
from venturi.calibration.simulator import Model

__all__ = ["Calibration", "Model", "Validation", "calibrate"]
