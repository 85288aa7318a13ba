"""The bare lab as a fixture for the tests of services, and known properties of third-party clients."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "interop"))

from bare import lab

__all__ = ["lab"]
