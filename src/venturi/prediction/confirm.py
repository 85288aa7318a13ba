"""Confirmation of a prediction: probes with loads near the predicted limit, and the comparison of both limits.

A probe is a run of a scenario with the workload ``inject``. :class:`venturi.prediction.peak_finder.PeakFinder` chooses the
loads, and :func:`venturi.prediction.load_probe.evaluate_load` decides whether the target held.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from venturi.errors import BackendError, VenturiError
from venturi.prediction.caches import LoadCache, load_caches
from venturi.prediction.load_probe import LoadTarget, ProbeTransfers, evaluate_load
from venturi.prediction.load_scenario import LoadScenario
from venturi.prediction.peak_finder import (
    LoadOrder,
    LoadProbe,
    MeasuredLimit,
    PeakFinder,
    StopFinding,
    measured_limit,
)
from venturi.prediction.request import LoadRequest
from venturi.prediction.result import Estimate
from venturi.prediction.system import LoadSystem
from venturi.run import Run
from venturi.scenario import Scenario

__all__ = [
    "ConfirmBudget",
    "Confirmation",
    "LoadBackend",
    "RunBackend",
    "confirm_limit",
    "peak_finder",
]

WARM_UP, WARM_UP_CACHES = 0.25, 0.75
"""Fraction of a probe that does not count: as in a prediction; and until the caches are filled, so the last quarter counts."""

TRANSFERS, TRANSFERS_P95 = 100, 400
"""Transfers in the measured part of a probe; a quantile 0.95 needs more."""

FEWEST_TRANSFERS = 20

ALONE_TIMES, FEWEST_ALONE_TIMES = 10.0, 4.0
"""Duration of a probe in times of the longest transfer without other load: needed, and least."""

NARROW, WIDE = math.log(1.08), math.log(1.5)
"""Range of the first step."""

SESSION_S = 5.0
"""Assumed time to start and stop the testbed of a probe; after the first probe, the measured time counts."""

FILLS = 2.0
"""Number of times that the load fills the caches (Web Polygraph, peak finder)."""

ROUNDING = 0.98
"""Part of these bytes that suffices, because a probe can be one transfer short."""

OnProbe = Callable[[int, LoadOrder, LoadProbe | None], None]
"""Called before a probe with its number and load, and after it with its result."""


@dataclass(frozen=True, slots=True)
class ConfirmBudget:
    """Limits of a confirmation.

    Attributes
    ----------
    time_s
        Time of all probes with their preparation; infinite without a limit. Simulated time in a simulation.
    max_probes
        Largest number of probes.
    probe_s
        Duration of a probe; None: long enough for a decision.
    simulated
        Whether the time to start a testbed is zero.
    """

    time_s: float = math.inf
    max_probes: int = 16
    probe_s: float | None = None
    simulated: bool = False


class LoadBackend(Protocol):
    """Measures a load. It raises KeyboardInterrupt if the user stops it."""

    def measure(self, order: LoadOrder, number: int) -> LoadProbe:
        """Return the probe of a load; ``number`` counts from 1.

        Raises
        ------
        VenturiError
            If the transfers cannot run.
        """
        ...


@dataclass
class RunBackend:
    """Probes by runs of a scenario.

    Attributes
    ----------
    scenario
        Scenario whose load can be set.
    execute
        Executes a scenario and returns its run: the simulator, or ``venturi run``.
    target
        Target of the load.
    warm_up
        Fraction of a probe that does not count.
    clock
        Returns the present time in s; None: the time of a probe is its simulated time.
    """

    scenario: LoadScenario
    execute: Callable[[Scenario], Run]
    target: LoadTarget
    warm_up: float
    clock: Callable[[], float] | None

    def measure(self, order: LoadOrder, number: int) -> LoadProbe:
        """Return the probe of a load: see :class:`LoadBackend`.

        Raises
        ------
        BackendError
            If all transfers of the first probe fail.
        """
        started_s = self.clock() if self.clock else 0.0
        with self.execute(self.scenario.at(order, number)) as run:
            found, failure = _transfers(run, self.scenario.lead_s)
            name = run.path.name
        if number == 1 and not found.good.any():
            raise BackendError(
                f"{self.scenario.document['name']}: expected successful transfers, found only failed ones"
                f" ({failure or 'no transfer'}); look at the run with: venturi report {name} --full"
            )
        probe = evaluate_load(
            found, order, self.target, warm_up=self.warm_up,
            streams=self.scenario.stream_bytes if self.scenario.even else None,
        )  # fmt: skip
        if self.clock:
            time_s = self.clock() - started_s
        else:
            time_s = self.scenario.lead_s + max(order.duration_s, float(found.end_s.max(initial=0.0)))
        return dataclasses.replace(probe, time_s=time_s, run=name)


def _transfers(run: Run, lead_s: float) -> tuple[ProbeTransfers, str]:
    """Return the transfers of a run on the clock of its load, and the reason of the first failure."""
    rows = run.query(
        "SELECT coalesce(intended_s, start_s) AS intended_s, start_s, end_s, requested_bytes, outcome = 'ok' AS good,"
        " coalesce(error, '') AS error FROM transfers ORDER BY start_s"
    )
    good = np.asarray(rows["good"], dtype=bool)
    errors = [str(error) for error, fine in zip(rows["error"], good, strict=True) if not fine]
    intended_s, start_s, end_s = (
        np.asarray(rows[name], dtype=float) - lead_s for name in ("intended_s", "start_s", "end_s")
    )
    size_bytes = np.asarray(rows["requested_bytes"], dtype=float)
    return ProbeTransfers(intended_s, start_s, end_s, size_bytes, good), next(iter(errors), "")


@dataclass(frozen=True)
class Confirmation:
    """Comparison of a predicted and a measured limit.

    Attributes
    ----------
    predicted
        Predicted limit with its interval, in transfers per second.
    measured
        Measured limit; None if no probe has finished.
    probes
        Finished probes in order.
    caches
        Caches that the load passes.
    passed_bytes
        Smallest number of bytes in a probe.
    filled
        Whether each probe filled each cache twice; True without caches.
    reason
        Reason of the end.
    interrupted
        Whether the user stopped it.
    even
        Whether transfers start at even intervals, not at random times.
    failure
        Error that ended the probes after the first one; "" without an error.
    """

    predicted: Estimate
    measured: MeasuredLimit | None
    probes: tuple[LoadProbe, ...]
    caches: tuple[LoadCache, ...]
    passed_bytes: int
    filled: bool
    reason: str
    interrupted: bool
    even: bool
    failure: str = ""

    @property
    def ratio(self) -> float | None:
        """Measured limit relative to the predicted one; None if it is unknown."""
        return self.measured.value / self.predicted.value if self.measured and self.has_both_ends else None

    @property
    def has_both_ends(self) -> bool:
        """True if the measured interval has two finite ends above 0."""
        return self.measured is not None and self.measured.low > 0 and math.isfinite(self.measured.high)

    @property
    def inside(self) -> bool | None:
        """True if the measured limit is in the predicted interval; None if it is unknown."""
        if self.measured is None or not self.has_both_ends:
            return None
        return self.predicted.low <= self.measured.value <= self.predicted.high

    @property
    def overlaps(self) -> bool | None:
        """True if both intervals have common values; None if the measured interval is unknown."""
        if self.measured is None or not self.has_both_ends:
            return None
        return self.measured.low <= self.predicted.high and self.predicted.low <= self.measured.high

    @property
    def time_s(self) -> float:
        """Time of all probes."""
        return math.fsum(probe.time_s for probe in self.probes)


def peak_finder(
    system: LoadSystem, predicted: Estimate, request: LoadRequest, budget: ConfirmBudget, lead_s: float
) -> PeakFinder:
    """Return the peak finder of a load.

    Parameters
    ----------
    system
        Testbed and load.
    predicted
        Predicted limit, the first load.
    request, budget
        Requirements, and limits of the probes.
    lead_s
        Time before the first transfer of a probe.
    """
    fill_bytes = max((FILLS * cache.size_bytes / cache.fraction for cache in load_caches(system.load)), default=0.0)
    measured = TRANSFERS if request.p95_s is None else TRANSFERS_P95
    part = 1 - warm_up(system)
    half = math.log(predicted.high / predicted.low) / 2 if predicted.low > 0 else WIDE
    return PeakFinder(
        start_per_s=predicted.value,
        first_step=min(WIDE, max(NARROW, half)),
        transfers=math.ceil(measured / part),
        fewest_transfers=math.ceil(FEWEST_TRANSFERS / part),
        least_s=ALONE_TIMES * system.longest_s,
        fewest_s=FEWEST_ALONE_TIMES * system.longest_s,
        fill_bytes=fill_bytes,
        mean_bytes=system.load.mean_bytes,
        max_probes=budget.max_probes,
        time_s=budget.time_s,
        overhead_s=lead_s + (0.0 if budget.simulated else SESSION_S),
        probe_s=budget.probe_s,
    )


def warm_up(system: LoadSystem) -> float:
    """Return the fraction of a probe that does not count."""
    return WARM_UP_CACHES if load_caches(system.load) else WARM_UP


def confirm_limit(
    system: LoadSystem,
    predicted: Estimate,
    finder: PeakFinder,
    backend: LoadBackend,
    *,
    even: bool,
    on_probe: OnProbe | None = None,
) -> Confirmation:
    """Measure the limit of a load, and compare it with the predicted one. An interruption or error keeps the finished probes.

    Parameters
    ----------
    system, predicted
        Testbed and load, and the predicted limit.
    finder
        Chooses the loads.
    backend
        Measures them.
    even
        Whether its transfers start at even intervals.
    on_probe
        For progress.

    Raises
    ------
    PlanError
        If the time is too short for one probe.
    VenturiError
        If the transfers of the first probe cannot run.
    """
    probes: list[LoadProbe] = []
    interrupted, failure = False, ""
    while True:
        decision = finder.next(probes)
        if isinstance(decision, StopFinding):
            reason = decision.reason
            break
        number = len(probes) + 1
        if on_probe is not None:
            on_probe(number, decision, None)
        try:
            probe = backend.measure(decision, number)
        except KeyboardInterrupt:
            reason, interrupted = "interrupted", True
            break
        except VenturiError as error:
            if not probes:
                raise
            reason, failure = f"an error in probe {number}", str(error)
            break
        probes.append(probe)
        if on_probe is not None:
            on_probe(number, decision, probe)
    caches = load_caches(system.load)
    passed = min((probe.bytes for probe in probes), default=0)
    return Confirmation(
        predicted, measured_limit(probes) if probes else None, tuple(probes), caches, passed, _filled(caches, probes),
        reason, interrupted, even, failure,
    )  # fmt: skip


def _filled(caches: Sequence[LoadCache], probes: Sequence[LoadProbe]) -> bool:
    return all(
        probe.bytes * cache.fraction >= ROUNDING * FILLS * cache.size_bytes for cache in caches for probe in probes
    )
