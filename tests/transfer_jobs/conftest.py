"""Fixtures: the bare lab of the service tests, with real servers and without an emulated network."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "services"))

from bare import lab

__all__ = ["lab"]
