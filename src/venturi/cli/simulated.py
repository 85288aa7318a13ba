"""A word on runs that the simulator made itself: held against it, they prove nothing."""

from __future__ import annotations

from collections.abc import Iterable

from venturi.cli.outcome import talk
from venturi.run import Run

__all__ = ["tell_simulated"]


def tell_simulated(runs: Iterable[Run]) -> None:
    """Say on stderr which of these runs were simulated, if any were."""
    names = [run.path.name for run in runs if run.backend == "sim"]
    if names:
        talk(
            f"{', '.join(names)}: expected measured times, found simulated ones, which the simulator meets by itself; "
            "errors and intervals say nothing of a testbed: give a run of the lab or of hosts"
        )
