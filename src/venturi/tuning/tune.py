"""Tuning: probes that a controller requests, the best of them, and their prices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from venturi.stats import Interval, ratio_interval
from venturi.tuning.controller import Controller, StopTuning
from venturi.tuning.path import TunePath
from venturi.tuning.probe import ProbeBackend, TuneProbe
from venturi.tuning.settings import TunedSettings

__all__ = ["SAME", "TuneResult", "choose", "pareto", "tune"]

SAME = 0.02
"""Relative gain that does not matter: the stop rule of the controller has the same limit."""

OnProbe = Callable[[int, TunedSettings, TuneProbe | None], None]
"""Called before a probe with its number and settings, and after it with its result."""


@dataclass(frozen=True, slots=True)
class TuneResult:
    """Result of a tuning.

    Attributes
    ----------
    controller, mover
        Names.
    properties
        Properties of the path.
    probes
        Probes in order; the first one has the default settings.
    best
        The recommended probe.
    gain
        Interval of its rate relative to the defaults; ``None`` if a probe has less than two trials, or if the defaults
        are best.
    reason
        Reason of the end.
    """

    controller: str
    mover: str
    properties: TunePath
    probes: tuple[TuneProbe, ...]
    best: TuneProbe
    gain: Interval | None
    reason: str

    @property
    def keeps_defaults(self) -> bool:
        """Whether the defaults are recommended."""
        return self.best is self.probes[0]

    @property
    def time_s(self) -> float:
        """Time of all trials."""
        return sum(probe.time_s for probe in self.probes)


def tune(
    backend: ProbeBackend,
    controller: Controller,
    *,
    max_probes: int,
    time_s: float,
    on_probe: OnProbe | None = None,
) -> TuneResult:
    """Tune a scenario.

    Parameters
    ----------
    backend
        Measures the probes.
    controller
        Chooses the settings.
    max_probes
        Largest number of probes, with the one of the defaults.
    time_s
        Time for the trials of all probes. No probe starts after it.
    on_probe
        For progress.

    Raises
    ------
    VenturiError
        If the transfers cannot run, or if all transfers with the defaults fail.
    """

    def measure(settings: TunedSettings) -> TuneProbe:
        number = len(probes) + 1
        if on_probe is not None:
            on_probe(number, settings, None)
        # Each probe has its part of the time that is left.
        left_s = (time_s - sum(probe.time_s for probe in probes)) / max(1, max_probes - len(probes))
        probe = backend.measure(settings, left_s)
        if on_probe is not None:
            on_probe(number, settings, probe)
        return probe

    probes: list[TuneProbe] = []
    probes.append(measure(TunedSettings()))
    properties = backend.path_properties(probes[0])
    reason = ""
    while not reason:
        if len(probes) >= max_probes:
            reason = f"{max_probes} probes"
        elif sum(probe.time_s for probe in probes) >= time_s:
            reason = "the time is over"
        else:
            decision = controller.next(properties, probes[1:]) if len(probes) > 1 else controller.first(properties)
            if isinstance(decision, StopTuning):
                reason = decision.reason
            else:
                probes.append(measure(properties.limit(decision)))
    best = choose(probes)
    return TuneResult(controller.name, backend.mover, properties, tuple(probes), best, _gain(probes[0], best), reason)


def choose(probes: Sequence[TuneProbe]) -> TuneProbe:
    """Return the recommended probe: within 2 % of the best rate, and with the fewest connections.

    The defaults are recommended if they are within 2 % of the best rate, or if no gain over them is significant.

    Parameters
    ----------
    probes
        The first one has the default settings.
    """
    default = probes[0]
    better = [probe for probe in probes[1:] if _is_faster(probe, default)]
    best = max((probe.rate_bytes_per_s for probe in better), default=0.0)
    good = [probe for probe in better if probe.rate_bytes_per_s * (1 + SAME) >= best]
    return min(good, key=lambda probe: (probe.settings.connections or 1, -probe.rate_bytes_per_s), default=default)


def _is_faster(probe: TuneProbe, default: TuneProbe) -> bool:
    """Return whether a gain matters, and is significant if both probes have an interval."""
    gain = _gain(default, probe)
    significant = gain is None or gain.low > 1
    return significant and probe.rate_bytes_per_s > default.rate_bytes_per_s * (1 + SAME)


def pareto(probes: Sequence[TuneProbe]) -> tuple[TuneProbe, ...]:
    """Return the probes that no other probe dominates in rate, CPU time, retransmitted fraction and connections.

    An unknown value counts as equal.
    """
    return tuple(one for one in probes if not any(_dominates(other, one) for other in probes if other is not one))


def _dominates(a: TuneProbe, b: TuneProbe) -> bool:
    pairs = [
        (-a.rate_bytes_per_s, -b.rate_bytes_per_s),
        (a.cpu_s_per_gb, b.cpu_s_per_gb),
        (a.retransmitted, b.retransmitted),
        (a.settings.connections, b.settings.connections),
    ]
    known = [(x, y) for x, y in pairs if x is not None and y is not None]
    return all(x <= y for x, y in known) and any(x < y for x, y in known)


def _gain(baseline: TuneProbe, best: TuneProbe) -> Interval | None:
    if best is baseline or min(len(best.rates_bytes_per_s), len(baseline.rates_bytes_per_s)) < 2:
        return None
    return ratio_interval(best.rates_bytes_per_s, baseline.rates_bytes_per_s, paired=False)
