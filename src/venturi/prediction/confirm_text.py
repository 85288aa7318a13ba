"""Text and JSON of a confirmation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from venturi.prediction.confirm import Confirmation
from venturi.prediction.peak_finder import LoadOrder, LoadProbe
from venturi.prediction.result import LoadPrediction
from venturi.prediction.text import rate_text
from venturi.units import format_bytes, format_duration, format_rate

__all__ = [
    "confirmation_json",
    "confirmation_lines",
    "confirmation_sentence",
    "order_text",
    "probe_row",
    "probe_text",
]

LATE = 0.1
"""Delay of the starts without a caveat, as a fraction of the duration of a probe."""


def confirmation_sentence(found: LoadPrediction, confirmed: Confirmation) -> str:
    """Return the comparison in at most 25 words."""
    measured = confirmed.measured
    if measured is None:
        return "Not measured: no probe has finished."
    if math.isinf(measured.high):
        return f"Measured: the limit is above {_rate(found, measured.low)}, because every load held; predicted {_between(found, confirmed.predicted)}."
    if measured.low == 0:
        return f"Measured: the limit is below {_rate(found, measured.high)}, because no load held; predicted {_between(found, confirmed.predicted)}."
    side = "inside" if confirmed.inside else "outside of"
    assert confirmed.ratio is not None, "both ends are known"
    return (
        f"Measured limit: {_between(found, measured)}, {confirmed.ratio:.3g} times the prediction,"
        f" {side} the predicted interval {_ends(found, confirmed.predicted)}."
    )


def confirmation_lines(found: LoadPrediction, confirmed: Confirmation) -> list[str]:
    """Return the lines after the table of the probes."""
    text = []
    if confirmed.measured is not None:
        count, all_ = confirmed.measured.probes, len(confirmed.probes)
        some = f"the last {count} of {all_} probes" if count < all_ else f"{all_} probe{'' if all_ == 1 else 's'}"
        text.append(f"The limit is from {some}. Ended: {confirmed.reason}.")
    if confirmed.inside is False:
        common = "overlap" if confirmed.overlaps else "do not overlap"
        text.append(f"Both intervals {common}.")
    if confirmed.even:
        text.append(
            "Transfers of each size started at even intervals. The backlog then grows at the same loads as with random arrivals, but needs"
            " shorter probes."
        )
    text += _cache_lines(confirmed)
    late = [probe for probe in confirmed.probes if probe.late_s > LATE * probe.duration_s]
    if late:
        most = format_duration(max(probe.late_s for probe in late))
        text.append(
            f"Caveat: in {len(late)} probes, half of the transfers started {most} late or more. The clients were busy: their"
            " load was lower than requested."
        )
    return text


def _cache_lines(confirmed: Confirmation) -> list[str]:
    if not confirmed.caches:
        return []
    names = ", ".join(f"{cache.name} ({format_bytes(cache.size_bytes)})" for cache in confirmed.caches)
    if confirmed.filled:
        return [f"Each probe filled these caches twice, and only its last quarter counts: {names}."]
    return [
        f"Caveat: caches were not filled twice: {names}; the shortest probe had {format_bytes(confirmed.passed_bytes)}."
        " The limit can be lower with full caches. Use a longer --time."
    ]


def order_text(found: LoadPrediction, order: LoadOrder) -> str:
    """Return the load of the next probe."""
    return f"{_rate(found, order.per_s)} for {format_duration(order.duration_s)}"


def probe_text(probe: LoadProbe) -> str:
    """Return the result of a probe."""
    return "held" if probe.holds else f"not held: {probe.reason}"


def probe_row(found: LoadPrediction, number: int, probe: LoadProbe) -> Sequence[str]:
    """Return the row of a probe: number, load, whether it held, growth, completed bytes, p95, transfers, time and run."""
    p95 = probe.latency_s[1]
    return (
        str(number),
        _rate(found, probe.per_s),
        "yes" if probe.holds else "no",
        f"{100 * probe.growth:.2g} % (≤ {100 * probe.tolerance:.2g} %)",
        format_rate(probe.completed_bytes_per_s),
        format_duration(p95) if math.isfinite(p95) else "–",
        f"{probe.transfers}" + (f" ({100 * probe.failed:.2g} % failed)" if probe.failed else ""),
        format_duration(probe.time_s),
        probe.run,
    )


def confirmation_json(found: LoadPrediction, confirmed: Confirmation) -> dict[str, Any]:
    """Return the confirmation as JSON values: rates in 1/s, times in s; a value that is not finite is None."""
    measured = confirmed.measured
    return {
        "sentence": confirmation_sentence(found, confirmed),
        "predicted": dataclasses.asdict(confirmed.predicted),
        "measured": None if measured is None else _finite(dataclasses.asdict(measured)),
        "ratio": confirmed.ratio,
        "inside": confirmed.inside,
        "overlaps": confirmed.overlaps,
        "reason": confirmed.reason,
        "interrupted": confirmed.interrupted,
        "failure": confirmed.failure or None,
        "arrivals": "even" if confirmed.even else "poisson",
        "time_s": confirmed.time_s,
        "caches": [dataclasses.asdict(cache) for cache in confirmed.caches],
        "caches_filled": confirmed.filled if confirmed.caches else None,
        "probes": [_finite(dataclasses.asdict(probe)) for probe in confirmed.probes],
    }


def _finite(value: Any) -> Any:  # noqa: ANN401 - any field
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _rate(found: LoadPrediction, per_s: float) -> str:
    return rate_text(found, per_s)


def _between(found: LoadPrediction, one: Any) -> str:  # noqa: ANN401 - an estimate or a measured limit
    return f"{_rate(found, one.value)} {_ends(found, one)}"


def _ends(found: LoadPrediction, one: Any) -> str:  # noqa: ANN401 - an estimate or a measured limit
    return f"[{_rate(found, one.low)}, {_rate(found, one.high)}]"
