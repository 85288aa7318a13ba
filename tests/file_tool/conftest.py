"""Third-party servers for the tests of `venturi-engine file`, started by the kit of the tests of existing servers."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "existing"))
