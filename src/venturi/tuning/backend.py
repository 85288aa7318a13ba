"""Backend of probes: each probe is a run of the scenario, in the simulator, in the lab or on hosts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from venturi.advice.observe import Observation, observe
from venturi.errors import BackendError
from venturi.run import Run
from venturi.scenario import Scenario
from venturi.stats import mean_interval
from venturi.tuning.path import TunePath
from venturi.tuning.path_properties import path_properties
from venturi.tuning.probe import TuneProbe
from venturi.tuning.scenario import TuneScenario
from venturi.tuning.settings import TunedSettings

__all__ = ["ScenarioBackend"]

HALF_WIDTH = 0.05
"""Largest relative half width of the interval at the end of a probe."""

MAX_TRIALS = 12


@dataclass
class ScenarioBackend:
    """Probes by runs of a scenario.

    Attributes
    ----------
    scenario
        Scenario with its tunable options.
    execute
        Executes a scenario and returns its run: the simulator, or ``venturi run``.
    trials
        Trials of the first run of a probe, at least 2.
    reseed
        Whether further runs of a probe have other seeds. Simulations need them; elsewhere they create other files.
    """

    scenario: TuneScenario
    execute: Callable[[Scenario], Run]
    trials: int = 3
    reseed: bool = False
    _first: Observation | None = field(default=None, init=False)

    @property
    def mover(self) -> str:
        """Name of the mover."""
        return self.scenario.mover

    def measure(self, settings: TunedSettings, remaining_s: float) -> TuneProbe:
        """Return a probe: see :class:`venturi.tuning.probe.ProbeBackend`.

        It repeats runs until the interval is within ± 5 %, the time is over, or :data:`MAX_TRIALS` trials are done.
        """
        seen: list[Observation] = []
        number, done, spent_s, failure = self.trials, 0, 0.0, ""
        failed = transfers = 0
        while True:
            scenario = self.scenario.probe(settings, repeat=number, seed_offset=done if self.reseed else 0)
            with self.execute(scenario) as run:
                found = observe(run, limit=number)
                counted = run.query(
                    "SELECT count(*) AS n, count(*) FILTER (outcome <> 'ok') AS failed,"
                    " coalesce(max(error) FILTER (outcome <> 'ok'), '') AS error FROM transfers"
                )
            seen += found
            transfers += int(counted["n"][0])
            failed += int(counted["failed"][0])
            failure = failure or str(counted["error"][0] or "")
            done += number
            spent_s += math.fsum(one.duration_s for one in found)
            probe = _probe(settings, seen, spent_s, failed / transfers if transfers else 1.0, failure)
            number = min(_missing(probe), MAX_TRIALS - done)
            if number <= 0 or not found or spent_s * (done + number) / done > remaining_s:
                break
        if self._first is None and seen:
            self._first = seen[0]
        return probe

    def path_properties(self, baseline: TuneProbe) -> TunePath:
        """Return the properties of the path from the first successful trial.

        Raises
        ------
        BackendError
            If no trial succeeded.
        """
        if self._first is None:
            reason = baseline.failure or "no transfer"
            raise BackendError(
                f"{self.scenario.document['name']}: expected a successful transfer with the default settings,"
                f" found {reason}; run the scenario with `venturi run` first"
            )
        return path_properties(self._first, baseline, self.scenario.tunable)


def _probe(
    settings: TunedSettings, seen: Sequence[Observation], time_s: float, failed: float, failure: str
) -> TuneProbe:
    rates = tuple(one.rate_bytes_per_s for one in seen)
    cpus = [one.cpu_s / one.bytes for one in seen if one.cpu_s is not None and one.bytes]
    sent = math.fsum(flow.sent_bytes for one in seen for flow in one.flows)
    repeated = math.fsum(flow.retransmitted_bytes for one in seen for flow in one.flows)
    return TuneProbe(
        settings,
        rates,
        mean_interval(rates, positive=True) if len(rates) > 1 else None,
        time_s,
        1e9 * math.fsum(cpus) / len(cpus) if cpus else None,
        repeated / sent if sent > 0 else None,
        1.0 - failed,
        failure,
    )


def _missing(probe: TuneProbe) -> int:
    """Return the number of trials that the interval probably still needs: its width falls with the square root."""
    width = None if probe.interval is None else probe.interval.relative_half_width
    if width is None:
        return 0
    return 0 if width <= HALF_WIDTH else math.ceil(len(probe.rates_bytes_per_s) * ((width / HALF_WIDTH) ** 2 - 1))
