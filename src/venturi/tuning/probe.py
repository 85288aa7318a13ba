"""Probes: the measured rate of one set of settings, and the interface that measures it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from venturi.stats import Interval
from venturi.tuning.path import TunePath
from venturi.tuning.settings import TunedSettings

__all__ = ["ProbeBackend", "TuneProbe"]


@dataclass(frozen=True, slots=True)
class TuneProbe:
    """Result of a probe.

    Attributes
    ----------
    settings
        Settings of its transfers.
    rates_bytes_per_s
        One rate per successful trial, shape (n,).
    interval
        Mean rate with its interval, B/s; ``None`` below two trials.
    time_s
        Duration of its trials. Simulated time in a simulation.
    cpu_s_per_gb
        CPU seconds of the mover for each 10⁹ bytes; ``None`` if the run has no CPU time.
    retransmitted
        Retransmitted bytes as a fraction of the sent bytes; ``None`` without records of connections.
    success
        Fraction of successful transfers.
    failure
        Reason of the first failed transfer; "" if none failed.
    """

    settings: TunedSettings
    rates_bytes_per_s: tuple[float, ...]
    interval: Interval | None = None
    time_s: float = 0.0
    cpu_s_per_gb: float | None = None
    retransmitted: float | None = None
    success: float = 1.0
    failure: str = ""

    @property
    def rate_bytes_per_s(self) -> float:
        """Mean rate; 0 if no trial succeeded."""
        rates = self.rates_bytes_per_s
        return sum(rates) / len(rates) if rates else 0.0

    @property
    def relative_error(self) -> float:
        """Standard error of the mean rate relative to it; 0 below two trials."""
        rates, mean = self.rates_bytes_per_s, self.rate_bytes_per_s
        if len(rates) < 2 or mean <= 0:
            return 0.0
        variance = sum((rate - mean) ** 2 for rate in rates) / (len(rates) - 1)
        return float((variance / len(rates)) ** 0.5 / mean)


class ProbeBackend(Protocol):
    """Measures the rate of settings. ``mover`` is the name of the tuned mover."""

    @property
    def mover(self) -> str: ...  # noqa: D102 - described above

    def measure(self, settings: TunedSettings, remaining_s: float) -> TuneProbe:
        """Return the probe of these settings. It repeats trials until the interval is narrow enough.

        Parameters
        ----------
        settings
            Settings of the transfers.
        remaining_s
            Time that is left for trials. A probe has at least the smallest number of trials.

        Raises
        ------
        VenturiError
            If the transfers cannot run.
        """
        ...

    def path_properties(self, baseline: TuneProbe) -> TunePath:
        """Return the properties of the path after the probe of the default settings.

        Raises
        ------
        BackendError
            If no trial succeeded.
        """
        ...
