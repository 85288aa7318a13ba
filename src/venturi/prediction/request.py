"""Request of a prediction: the load, and the requirements."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from venturi.prediction.rate import RequestedRate

__all__ = ["LoadRequest"]


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """The load to predict.

    Attributes
    ----------
    rate
        Requested rate; may be None with ``clients``.
    clients, think_s
        Closed-loop clients instead of an open load, and the mean of their random pause after each transfer.
    sizes
        Sizes in bytes, instead of the sizes of the workload.
    within
        Fraction of the requested bytes that must complete.
    p95_s
        Largest quantile 0.95 of the time from the intended start to the end; None: no limit.
    duration_s
        Simulated duration; None: long enough for a decision.
    seeds
        Number of simulations of the load, at least 2; fewer than 4 cannot decide.
    costs
        File of costs; None: the costs of the scenario.
    changes
        Changes of the testbed that the scenario already contains, for caveats.
    """

    rate: RequestedRate | None
    clients: int | None = None
    think_s: float = 0.0
    sizes: tuple[int, ...] = ()
    within: float = 0.95
    p95_s: float | None = None
    duration_s: float | None = None
    seeds: int = 10
    costs: Path | None = None
    changes: tuple[str, ...] = ()
