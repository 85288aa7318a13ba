r"""Verdicts from fractions of the time: the largest fraction, its confidence, and whether the evidence is sufficient.

The confidence is a logistic function of the two largest fractions :math:`s_1 \ge s_2` and of the number :math:`m` of
missing counters:

.. math:: p = \frac{1}{1 + e^{-z}}, \quad z = a + b \left( \frac{s_1}{s_1 + s_2} - \frac{3}{4} \right) + c \left( s_1 - \frac{1}{2} \right) - d\, m

`bench/attribution.py` fits the numbers, and compares the confidence with the known limit of random testbeds.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from venturi.advice.attribute import Attribution
from venturi.advice.ceilings import predict_without
from venturi.advice.groups import group_points
from venturi.advice.observe import Observation
from venturi.advice.settings import change_text, leave_alone, probe_of, settings_of
from venturi.advice.verdict import Cause, Counterfactual, Observed, TimeFraction, Verdict

__all__ = ["confidence_of", "decide_point", "decide_run", "merge_fractions"]

CONFIDENCE = (1.7, 5.7, 3.2, 0.25)
"""Numbers a, b, c and d.

Fit of `bench/attribution.py --fit` to the 30 confirmed testbeds of the development seeds 0 to 32, on 2026-11-29, on two
busy cores. This is little data, so the standard deviation of the prior is half of each number. No testbed lacked
counters, so d is an estimate.
"""

DECIDED = 0.5
"""Confidence below which a verdict abstains."""

MIN_FRACTION = 0.02
"""Smallest listed fraction."""

SHOWN_EVIDENCE = 10


def confidence_of(fractions: Sequence[TimeFraction], missing: int, factor: float = 1.0) -> float:
    """Return the probability that the largest fraction is the bottleneck.

    Parameters
    ----------
    fractions
        Fractions, largest first.
    missing
        Number of missing counters.
    factor
        Product of the factors of findings, 0 to 1.
    """
    if not fractions or fractions[0].cause == "unknown":
        return 0.0
    first = fractions[0].fraction
    second = fractions[1].fraction if len(fractions) > 1 else 0.0
    a, b, c, d = CONFIDENCE
    z = a + b * (first / (first + second) - 0.75) + c * (first - 0.5) - d * missing
    return factor / (1 + math.exp(-z))


def merge_fractions(parts: Sequence[tuple[float, Sequence[TimeFraction]]]) -> tuple[TimeFraction, ...]:
    """Return the mean of fractions, weighted by time, largest first.

    If a host is source and destination, each of its resources counts once.
    """
    total = sum(weight for weight, _ in parts)
    found: dict[tuple[Cause, str], float] = {}
    cause_of: dict[str, Cause] = {}
    for weight, fractions in parts:
        for one in fractions:
            cause = cause_of.setdefault(one.resource, one.cause) if one.resource else one.cause
            key = (cause, one.resource)
            found[key] = found.get(key, 0.0) + weight * one.fraction / total
    merged = [
        TimeFraction(cause, resource, fraction)
        for (cause, resource), fraction in found.items()
        if fraction >= MIN_FRACTION
    ]
    return tuple(sorted(merged, key=lambda one: -one.fraction))


def decide_point(trials: Sequence[tuple[Observation, Attribution]], caveats: Mapping[str, float]) -> Verdict:
    """Return the verdict of a design point.

    Parameters
    ----------
    trials
        Its trials with their attributions.
    caveats
        Finding → factor of the confidence.
    """
    fractions = merge_fractions([(one.duration_s, found.sorted()) for one, found in trials])
    first = fractions[0]
    second = next((fraction for fraction in fractions[1:] if fraction.cause != "unknown"), None)
    one, found = max(trials, key=lambda pair: (_top(pair[1]) == (first.cause, first.resource), pair[0].duration_s))
    missing = tuple(dict.fromkeys(text for _, attribution in trials for text in attribution.missing))
    confidence = confidence_of(fractions, len(missing), math.prod(caveats.values()))
    decided = first.cause != "unknown" and confidence >= DECIDED
    guess = next((fraction for fraction in fractions if fraction.cause != "unknown"), None)
    return Verdict(
        point=one.point,
        factors=one.factors,
        rate_bytes_per_s=sum(trial.bytes for trial, _ in trials) / sum(trial.duration_s for trial, _ in trials),
        cause=first.cause if decided else None,
        resource=first.resource if decided else "",
        fraction=first.fraction if decided else 0.0,
        runner_up=second,
        confidence=confidence,
        evidence=_evidence(found, fractions),
        fractions=fractions,
        counterfactual=predict_without(
            one, first.cause, first.resource, fractions, change_text(one, first.cause, first.resource)
        )
        if decided
        else None,
        settings=settings_of(one, first.cause, first.resource) if decided else (),
        leave_alone=leave_alone(first.cause, second.cause if second is not None and second.fraction > 0.2 else None)
        if decided
        else (),
        probe=None
        if decided and confidence >= 0.8
        else probe_of(one, guess.cause if guess else "unknown", second.cause if second is not None else None),
        missing=missing,
        caveats=tuple(caveats),
    )


def _top(found: Attribution) -> tuple[str, str]:
    first = found.sorted()[0]
    return first.cause, first.resource


def _evidence(found: Attribution, fractions: Sequence[TimeFraction]) -> tuple[Observed, ...]:
    """Return the observations: for the bottleneck and its runner-up first, then against other causes."""
    listed = [fraction.cause for fraction in fractions if fraction.cause != "unknown"][:2]
    causes: list[str] = [*listed, "unknown"]
    kept = [one for one in found.evidence if one.supports in causes or one.against]
    rank = {cause: index for index, cause in enumerate(causes)}
    kept.sort(key=lambda one: (one.against, rank.get(one.supports, len(causes))))
    return tuple(kept[:SHOWN_EVIDENCE])


def decide_run(points: Sequence[tuple[float, Verdict]], backend: str) -> Verdict:
    """Return the verdict of a run: the bottleneck of the points with the most time.

    If the points have different bottlenecks, the verdict groups them. It abstains if most of the time has no known
    bottleneck.

    Parameters
    ----------
    points
        Time of the transfers and verdict of each point.
    backend
        Backend of the run, for the sentence of an empty run.
    """
    if not points:
        missing = (f"transfers that succeeded (backend {backend})",)
        return Verdict(None, {}, None, None, "", 0.0, None, 0.0, (), (), missing=missing)
    if len(points) == 1:
        return points[0][1]
    groups = group_points(points)
    # Points with a decided cause represent the run if they take most of its time.
    first = groups[0] if sum(group.fraction for group in groups if group.cause is not None) >= DECIDED else groups[-1]
    own = [(weight, one) for weight, one in points if one.point in first.points] or points
    model = max(own, key=lambda pair: pair[0])[1]
    fractions = merge_fractions([(weight, verdict.fractions) for weight, verdict in points])
    return dataclasses.replace(
        model,
        point=None,
        factors={},
        rate_bytes_per_s=sum(weight * (one.rate_bytes_per_s or 0.0) for weight, one in points)
        / sum(weight for weight, _ in points),
        fraction=sum(one.fraction for one in fractions if (one.cause, one.resource) == (model.cause, model.resource)),
        runner_up=next(
            (one for one in fractions if one.cause != "unknown" and (one.cause, one.resource) != (model.cause, model.resource)),
            None,
        ),
        confidence=sum(weight * one.confidence for weight, one in own) / sum(weight for weight, _ in own),
        fractions=fractions,
        counterfactual=_predict_run(points, {one.point for _, one in own}, model),
        missing=tuple(dict.fromkeys(text for _, one in points for text in one.missing)),
        caveats=tuple(dict.fromkeys(text for _, one in points for text in one.caveats)),
        groups=groups if len(groups) > 1 else (),
        range_bytes_per_s=_rate_range([one.rate_bytes_per_s for _, one in points]),
    )  # fmt: skip


def _rate_range(rates: Sequence[float | None]) -> tuple[float, float] | None:
    known = [rate for rate in rates if rate]
    return (min(known), max(known)) if known else None


def _predict_run(
    points: Sequence[tuple[float, Verdict]], changed: set[int | None], model: Verdict
) -> Counterfactual | None:
    """Return the rate of all points if the points with one bottleneck reach their predicted rates."""
    if model.counterfactual is None:
        return None
    bytes_ = sum(weight * (one.rate_bytes_per_s or 0.0) for weight, one in points)
    rates: list[float | None] = []
    for name in ("rate_bytes_per_s", "low_bytes_per_s", "high_bytes_per_s"):
        time_s = 0.0
        for weight, one in points:
            new = getattr(one.counterfactual, name) if one.point in changed and one.counterfactual else None
            if one.point in changed and not new:
                return dataclasses.replace(
                    model.counterfactual, rate_bytes_per_s=None, low_bytes_per_s=None, high_bytes_per_s=None
                )
            time_s += weight * (one.rate_bytes_per_s or 0.0) / new if new else weight
        rates.append(bytes_ / time_s)
    value, low, high = rates
    return dataclasses.replace(
        model.counterfactual, rate_bytes_per_s=value, low_bytes_per_s=low, high_bytes_per_s=high
    )
