import sys
from pathlib import Path

# The modules for planted runs are in the directory of the analysis tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "analysis"))
