"""Types of values in results. They have their own module so that every result module can import them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["FactorValue", "FloatArray", "IntArray"]

FactorValue = int | float | str | bool | None
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
