import sys
from pathlib import Path

# The planted runs are made beside the tests of the analysis; one maker serves both.
sys.path.insert(0, str(Path(__file__).parents[1] / "analysis"))
