"""Sentence and lines of a prediction for a reader, and its JSON form."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from venturi.prediction.rate import RequestedRate
from venturi.prediction.result import Estimate, LoadPrediction
from venturi.units import format_bytes, format_duration, format_rate

__all__ = ["as_json", "lines", "rate_text", "sentence"]

_PER_MINUTE = RequestedRate(1 / 60, "min")


def rate_text(found: LoadPrediction, per_s: float, *, noun: bool = False) -> str:
    """Return a rate in the unit of the request; of clients without a rate, in transfers per minute."""
    return (found.rate or _PER_MINUTE).text(per_s, found.mean_bytes, noun=noun)


def sentence(found: LoadPrediction) -> str:
    """Return the prediction in at most 25 words."""
    if found.probability is None:
        clients = f"{found.clients:,} clients complete" if found.clients != 1 else "1 client completes"
        between = f"[{rate_text(found, found.greatest.low)}, {rate_text(found, found.greatest.high)}]"
        return f"{clients} {rate_text(found, found.greatest.value, noun=True)} {between}, limited by: {found.bottleneck}."
    one = found.probability
    probability = f"(probability {one.value:.2f} [{one.low:.2f}, {one.high:.2f}])"
    requested = rate_text(found, found.per_s, noun=True)
    who = f" by {found.clients:,} client{'' if found.clients == 1 else 's'}" if found.clients is not None else ""
    start = {
        "yes": f"Yes: {requested} are sustained{who}",
        "no": f"No: {requested} are not sustained{who}",
    }.get(found.sustained, f"Cannot tell whether {requested} are sustained{who}")
    greatest = rate_text(found, found.greatest.value)
    limit = f"The limit is {greatest}: " if found.clients is None else f"They complete {greatest}, limited by "
    return f"{start} {probability}. {limit}{found.bottleneck}."


def lines(found: LoadPrediction) -> list[str]:
    """Return the lines between the sentence and the tables."""
    load = f"{found.transfers:,} transfers in {format_duration(found.duration_s)}, mean size {format_bytes(found.mean_bytes)}"
    text = [
        f"Simulated load: {load}, {found.kinds} kind{'' if found.kinds == 1 else 's'} of transfers, {found.seeds} seeds."
    ]
    if found.clients is None:
        limit = _between(found.greatest, lambda value: rate_text(found, value))
        text.append(f"Greatest rate that is sustained: {limit}.")
    text.append(f"Throughput at this load: {_between(found.throughput_bytes_per_s, format_rate)}.")
    since = "since the intended start" if found.clients is None else "of a transfer"
    quantiles = ", ".join(f"{name} {_between(one, format_duration)}" for name, one in found.latency_s.items())
    text.append(f"Time {since}: {quantiles}.")
    if found.p95_s is not None:
        text.append(f"Required: a p95 of at most {format_duration(found.p95_s)}. The limit meets it.")
    if found.failed:
        text.append(f"Failed transfers, mostly by the timeout: {100 * found.failed:.2g} %.")
    if found.growth is not None:
        text.append(f"Backlog: {_backlog(found)}; growth {_percent(found.growth)} of the requested bytes.")
    return text + _support(found)


def _support(found: LoadPrediction) -> list[str]:
    text = []
    if found.support is not None:
        one = found.support
        text.append(
            f"Held-out error of the simulator on {one.run}: median {100 * one.median:.3g} %, 90th percentile"
            f" {100 * one.p90:.3g} % of {one.points} point{'' if one.points == 1 else 's'}; the intervals include it."
        )
    if found.varied_parameters:
        text.append(f"The costs vary within their intervals: {found.varied_parameters} parameters.")
    return text


def _backlog(found: LoadPrediction) -> str:
    """Return the backlog at the ends of the quarters."""
    last = len(found.backlog) - 1
    picked = [found.backlog[last * quarter // 4][1] for quarter in range(1, 5)]
    texts = [f"{count:,.0f}" if count >= 100 else f"{count:.3g}" for count in picked]
    return f"{', '.join(texts)} transfers at 25, 50, 75 and 100 % of the time"


def _percent(one: Estimate) -> str:
    return f"{100 * one.value:.2g} % [{100 * one.low:.2g} %, {100 * one.high:.2g} %]"


def _between(one: Estimate, form: Any) -> str:  # noqa: ANN401 - a formatter of numbers
    if not math.isfinite(one.value):
        return "unknown"
    return f"{form(one.value)} [{form(one.low)}, {form(one.high)}]"


def as_json(found: LoadPrediction) -> dict[str, Any]:
    """Return the prediction as JSON values; a number that is not finite is None."""
    plain: dict[str, Any] = _plain(dataclasses.asdict(found))
    plain["resources"] = [
        {**part, "per_s": limit.per_s, "use": found.per_s * limit.demand_s}
        for part, limit in zip(plain["resources"], found.resources, strict=True)
    ]
    return {"format": "venturi-prediction", "version": 1, "sentence": sentence(found), **plain}


def _plain(value: Any) -> Any:  # noqa: ANN401 - any field
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
