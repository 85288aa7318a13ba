"""Text and JSON of a tuning."""

from __future__ import annotations

import dataclasses
from typing import Any

from venturi.tuning.probe import TuneProbe
from venturi.tuning.tunable_options import command_line
from venturi.tuning.tune import TuneResult, pareto
from venturi.units import format_rate, format_rate_ends

__all__ = ["as_json", "competitor_part", "rate_text", "sentence"]


def sentence(result: TuneResult) -> str:
    """Return the answer in at most 25 words."""
    best, count = result.best, len(result.probes)
    tried = f"{count} probe" if count == 1 else f"{count} probes"
    rate = format_rate(best.rate_bytes_per_s)
    if result.keeps_defaults:
        return f"Keep the defaults: {rate}; no other setting was clearly faster in {tried}."
    if result.gain is None:
        ratio = best.rate_bytes_per_s / result.probes[0].rate_bytes_per_s
        return f"Use {best.settings}: {rate}, {ratio:.3g} times the defaults, after {tried}."
    gain = result.gain
    return (
        f"Use {best.settings}: {rate}, {gain.estimate:.3g} [{gain.low:.3g}, {gain.high:.3g}] times the defaults,"
        f" after {tried}."
    )


def rate_text(probe: TuneProbe) -> str:
    """Return the rate of a probe with its interval."""
    if not probe.rates_bytes_per_s:
        return "failed"
    rate = format_rate(probe.rate_bytes_per_s)
    if probe.interval is None:
        return rate
    ends = format_rate_ends(probe.interval.low, probe.interval.high)
    # Simulated trials hardly differ.
    return rate if ends == rate else f"{rate} [{ends}]"


def competitor_part(probe: TuneProbe) -> float | None:
    """Return the part of a full link that a competitor with one connection and the same round trip gets: 1/(n + 1).

    ``None`` if the number of connections is unknown. This is a model, not a measurement.
    """
    connections = probe.settings.connections
    return None if connections is None else 1.0 / (connections + 1)


def as_json(result: TuneResult) -> dict[str, Any]:
    """Return a tuning as JSON values: rates in B/s, times in s."""
    front = pareto(result.probes)
    return {
        "sentence": sentence(result),
        "controller": result.controller,
        "mover": result.mover,
        "settings": dict(result.best.settings.values),
        "command": command_line(result.mover, result.best.settings),
        "gain": None if result.gain is None else dataclasses.asdict(result.gain),
        "reason": result.reason,
        "time_s": result.time_s,
        "path": {**dataclasses.asdict(result.properties), "largest": dict(result.properties.largest)},
        "probes": [
            {
                "settings": dict(probe.settings.values),
                "rate_bytes_per_s": probe.rate_bytes_per_s,
                "rates_bytes_per_s": list(probe.rates_bytes_per_s),
                "interval": None if probe.interval is None else dataclasses.asdict(probe.interval),
                "time_s": probe.time_s,
                "cpu_s_per_gb": probe.cpu_s_per_gb,
                "retransmitted": probe.retransmitted,
                "success": probe.success,
                "failure": probe.failure or None,
                "competitor_part": competitor_part(probe),
                "pareto": probe in front,
            }
            for probe in result.probes
        ],
    }
