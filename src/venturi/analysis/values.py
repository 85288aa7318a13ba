"""Names of the types that results are made of; they stand alone so that every module of results can have them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["FactorValue", "FloatArray", "IntArray"]

FactorValue = int | float | str | bool | None
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
