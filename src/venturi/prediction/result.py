"""Result of a prediction as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from venturi.prediction.measured import MeasuredSupport
from venturi.prediction.rate import RequestedRate
from venturi.prediction.resources import ResourceLimit
from venturi.prediction.uncertainty import Probability

__all__ = ["Estimate", "LayerResult", "LoadPrediction", "Purchase", "Sustained"]

Sustained: TypeAlias = Literal["yes", "no", "cannot tell", "no target"]
"""Whether the load is sustained. Closed-loop clients without a rate have no target."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class LayerResult:
    """Result of one layer.

    Attributes
    ----------
    name, model
        The layer: ``bounds``, ``queueing`` or ``replay``; and its model.
    per_s
        Greatest rate of an open load, or throughput of the clients, in 1/s; None if unknown.
    latency_s
        Mean time of a transfer at the load; None if unknown.
    statement
        Assumptions, or the reason why the layer does not apply.
    """

    name: str
    model: str
    per_s: float | None
    latency_s: float | None
    statement: str


@dataclass(frozen=True, slots=True)
class Purchase:
    """A resource that is too small, and the capacity that it needs.

    ``change`` is the argument of ``--change``; empty if the capacity cannot be changed. ``assumed``: the present capacity is an
    assumption.
    """

    resource: str
    now: str
    needed: str
    change: str
    assumed: bool


@dataclass(frozen=True)
class LoadPrediction:
    """Prediction for a load that was not measured.

    Attributes
    ----------
    name
        Name of the scenario or run.
    sustained, probability
        Whether the load is sustained, and the probability. The probability is None without a target.
    rate
        Requested rate; None for closed-loop clients without one.
    clients, think_s
        Closed-loop clients and their think time; None for an open load.
    per_s, mean_bytes
        Requested transfers per second (closed loop: throughput), and the mean size of a transfer.
    greatest
        Greatest rate that is sustained, 1/s. For clients: the throughput.
    bottleneck
        Name of the resource that limits it.
    throughput_bytes_per_s
        Completed bytes per second at the load.
    latency_s
        Quantile → time since the intended start; keys ``p50``, ``p95``, ``p99``.
    failed
        Fraction of the transfers that fail, mostly by their timeouts; mean of the seeds.
    growth
        Growth of the backlog as a fraction of the requested bytes; None for clients.
    backlog
        Time in seconds and mean number of transfers that are due but not complete. Empty for clients.
    within
        Fraction of the requested bytes that must complete.
    p95_s
        Required quantile 0.95 of the time since the intended start; None: no requirement.
    duration_s, transfers, seeds
        Duration and number of transfers of each simulation, and number of simulations.
    kinds
        Number of kinds of transfers.
    layers
        Results of the layers.
    resources
        Resources, sorted by their largest rates.
    purchases
        Resources that need more capacity for the requested rate.
    support
        Comparison with a measured run; None without one.
    varied_parameters
        Number of cost parameters that vary between the seeds.
    caveats
        Reasons for doubt.
    next_step
        Command or action.
    """

    name: str
    sustained: Sustained
    probability: Probability | None
    rate: RequestedRate | None
    clients: int | None
    think_s: float
    per_s: float
    mean_bytes: float
    greatest: Estimate
    bottleneck: str
    throughput_bytes_per_s: Estimate
    latency_s: Mapping[str, Estimate]
    failed: float
    growth: Estimate | None
    backlog: tuple[tuple[float, float], ...]
    within: float
    p95_s: float | None
    duration_s: float
    transfers: int
    seeds: int
    kinds: int
    layers: tuple[LayerResult, ...]
    resources: tuple[ResourceLimit, ...]
    purchases: tuple[Purchase, ...]
    support: MeasuredSupport | None
    varied_parameters: int
    caveats: tuple[str, ...]
    next_step: str
