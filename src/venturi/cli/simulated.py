"""Warning about simulated runs in comparisons with the simulator."""

from __future__ import annotations

from collections.abc import Iterable

from venturi.cli.outcome import print_status
from venturi.run import Run

__all__ = ["print_simulated"]


def print_simulated(runs: Iterable[Run]) -> None:
    """Print the simulated runs, if any, to stderr."""
    names = [run.path.name for run in runs if run.backend == "sim"]
    if names:
        print_status(
            f"{', '.join(names)}: expected measured times, found simulated times, which the simulator reproduces exactly; "
            "errors and intervals do not describe a testbed. Use a run from the lab or from hosts."
        )
