"""Published statements held against our curves.

A check looks at every curve along the factor that the claim names, and each curve may agree, disagree or not tell. The claim
agrees if at least three quarters of the curves that tell do, and half of all tell; it is refuted if more than half of those
that tell refute it; anything else is "cannot tell".

A claim is of the throughput per file unless ``of`` says otherwise: ``"together"`` (whole trials), ``"zero_size"`` (throughput per
file with the time of empty files taken off), ``"link"`` (what the fullest link of the path carried while bytes flowed), or
``"read"`` and ``"write"`` of a ``storage``, in a ``direction``. Limits along the size are of the published sizes, and scaled as the
run was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from venturi.analysis.claims.facts import Facts, Verdict
from venturi.analysis.published import restricted
from venturi.analysis.result import Claim, Curve
from venturi.analysis.words import describe, plural
from venturi.stats.quantiles import normal_reach
from venturi.units import format_bytes

__all__ = ["CHECKS", "judge"]

AGREEING_SHARE = 0.75
TELLING_SHARE = 0.5
SMALL_CHANGE = 0.05
"""A change along a whole curve that is smaller than this is called none."""


class Say(NamedTuple):
    """What one curve says of a claim; ``change`` is what the evidence quotes."""

    verdict: Verdict
    change: float | None


class Limits(NamedTuple):
    """A claim with what its checks need: the row of ``study.toml``, the limit along x, the level, the link's rate."""

    row: Mapping[str, Any]
    limit: float
    level: float
    link_bytes_per_s: float | None


Check = Callable[[Curve, Limits], Say]
Value = tuple[float | None, float | None]
"""Of one point: what a claim is of, and its standard error."""


def judge(claim: Mapping[str, Any], curves: Sequence[Curve], level: float, facts: Facts) -> Claim:
    """Return one claim with the verdict of the curves that it speaks of, and the evidence."""
    against = str(claim.get("against", ""))
    spoken_of = restricted(curves, claim)
    own = [curve for curve in (_of(curve, claim, facts) for curve in spoken_of) if len(curve.x) >= 2]
    check = CHECKS.get(str(claim.get("check")))
    scale = facts.scale if against == "size" else 1.0
    limits = Limits(claim, float(claim.get("limit", math.nan)) * scale, level, facts.link_bytes_per_s)
    verdict, evidence = _sum_up(own, claim, check, limits)
    if spoken_of and not own and check is not None:
        evidence = f"of {plural(len(spoken_of), 'curve')} none has two points for which this could be formed"
    return Claim(str(claim["id"]), str(claim["text"]), str(claim.get("check")), verdict, evidence)


def _of(curve: Curve, claim: Mapping[str, Any], facts: Facts) -> Curve:
    """Return the curve of what the claim is of, with the same x, the points without it left out."""
    if "of" not in claim:
        return curve
    values = [_value(facts, point, claim) for point in curve.points]
    kept = [index for index, (value, _) in enumerate(values) if value is not None]
    return replace(
        curve,
        x=tuple(curve.x[i] for i in kept),
        y_bytes_per_s=tuple(value for value, _ in values if value is not None),
        error_bytes_per_s=tuple(values[i][1] for i in kept),
        points=tuple(curve.points[i] for i in kept),
        fits=(),
    )


def _value(facts: Facts, number: int, claim: Mapping[str, Any]) -> Value:
    of, point = str(claim["of"]), facts.points.get(number)
    if of == "together" and point is not None:
        return point.together_bytes_per_s, point.together_error_bytes_per_s
    if of == "zero_size" and point is not None and point.zero_size is not None:
        return point.zero_size.throughput_bytes_per_s, point.zero_size.error_bytes_per_s
    if of == "link":
        own = [use for use in facts.links if use.point == number]
        fullest = max(own, key=lambda use: use.full_bit_per_s, default=None)
        if fullest is not None:
            error = fullest.full_error_bit_per_s
            return fullest.full_bit_per_s / 8, None if error is None else error / 8
    for rate in facts.storages:
        here = (rate.point, rate.storage, rate.direction) == (
            number,
            claim.get("storage"),
            claim.get("direction", "all"),
        )
        if here and of in ("read", "write"):
            return getattr(rate, f"{of}_bytes_per_s"), getattr(rate, f"{of}_error_bytes_per_s")
    return None, None


def _sum_up(own: list[Curve], claim: Mapping[str, Any], check: Check | None, limits: Limits) -> tuple[Verdict, str]:
    if check is None:
        return "cannot tell", f"this version has no check {claim.get('check')!r}"
    if not own:
        return "cannot tell", f"no curve against {claim.get('against')} was measured"
    says = [(curve, check(curve, limits)) for curve in own]
    counts = {
        verdict: sum(say.verdict == verdict for _, say in says) for verdict in ("agrees", "disagrees", "cannot tell")
    }
    telling = counts["agrees"] + counts["disagrees"]
    verdict: Verdict = "cannot tell"
    if telling >= TELLING_SHARE * len(own) and counts["agrees"] >= AGREEING_SHARE * telling and telling:
        verdict = "agrees"
    elif telling >= TELLING_SHARE * len(own) and counts["disagrees"] > 0.5 * telling:
        verdict = "disagrees"
    return verdict, _evidence(says, counts, claim)


def _evidence(says: Sequence[tuple[Curve, Say]], counts: Mapping[str, int], claim: Mapping[str, Any]) -> str:
    parts = [
        f"{counts[v]} {w}"
        for v, w in (("agrees", "agree"), ("disagrees", "disagree"), ("cannot tell", "cannot tell"))
        if counts[v]
    ]
    changes = [say.change for _, say in says if say.change is not None]
    text = f"of {plural(len(says), 'curve')}: {', '.join(parts)}"
    if changes:
        check = str(claim["check"])
        change = _percent(float(np.median(changes)), check)
        text += f"; {_QUOTES[check].format(change=change, limit=_limit(claim))}"
    against = [curve for curve, say in says if say.verdict == "disagrees"]
    if against and counts["agrees"]:
        names = [name for name in against[0].others if len({str(curve.others.get(name)) for curve, _ in says}) > 1]
        shown = "; ".join(describe(curve.others, names) for curve in against[:4])
        text += f"; against it: {shown}{' …' if len(against) > 4 else ''}"
    return text


def _limit(claim: Mapping[str, Any]) -> str:
    """Return the limit of a claim in words: as published."""
    limit = claim.get("limit")
    return "" if limit is None else format_bytes(limit) if claim.get("against") == "size" else f"{limit:g}"


def _percent(share: float, check: str) -> str:
    sign = "+" if check in ("decreasing", "increasing") else ""
    return f"{100 * share:{sign}.0f} %".replace("-", "−")


def _monotone(sign: int) -> Check:
    """Return a check that a curve falls (sign −1) or rises (+1): at its ends, and at no step clearly the other way."""

    def check(curve: Curve, limits: Limits) -> Say:
        y, error = _arrays(curve)
        level = limits.level
        change = float(y[-1] / y[0] - 1)
        if error is None:
            return Say("cannot tell", change)
        z = normal_reach(level)
        whole = sign * (y[-1] - y[0])
        if whole < -z * math.hypot(error[0], error[-1]) or (
            abs(change) < SMALL_CHANGE and abs(whole) <= z * math.hypot(error[0], error[-1])
        ):
            return Say("disagrees", change)
        if whole <= z * math.hypot(error[0], error[-1]):
            return Say("cannot tell", change)
        steps = sign * np.diff(y)
        # Each step is one of many tests: Bonferroni keeps the chance of one false alarm in all of them at 1 − level.
        limit = normal_reach(1 - (1 - level) / len(steps))
        wrong = np.where(steps < -limit * np.hypot(error[1:], error[:-1]), -steps, 0.0).max()
        # One step the wrong way by less than a tenth of the whole is a wrinkle, not a refutation.
        return Say("agrees" if wrong < 0.1 * whole else "disagrees", change)

    return check


def _flat(curve: Curve, limits: Limits) -> Say:
    """A curve is flat if it moves by less than ``within`` (default 10 %) of its mean, the errors included."""
    y, error = _arrays(curve)
    within = float(limits.row.get("within", 0.10))
    change = float(np.ptp(y) / y.mean())
    if error is None:
        return Say("cannot tell", change)
    reach = normal_reach(limits.level) * float(np.hypot(error[np.argmax(y)], error[np.argmin(y)]) / y.mean())
    if change + reach <= within:
        return Say("agrees", change)
    return Say("disagrees" if change - reach > within else "cannot tell", change)


def _plateau_above(curve: Curve, limits: Limits) -> Say:
    """From ``limit`` on the curve is flat (``within``, default 10 %); it takes two points there."""
    kept = [index for index, x in enumerate(curve.x) if x >= limits.limit * (1 - 1e-9)]
    if len(kept) < 2:
        return Say("cannot tell", None)
    part = replace(
        curve,
        x=tuple(curve.x[i] for i in kept),
        y_bytes_per_s=tuple(curve.y_bytes_per_s[i] for i in kept),
        error_bytes_per_s=tuple(curve.error_bytes_per_s[i] for i in kept),
    )
    return _flat(part, limits)


def _most_below(sign: int) -> Check:
    """Return a check that more than half of the fall (sign −1) or rise (+1) from the first point lies up to ``limit``."""

    def check(curve: Curve, limits: Limits) -> Say:
        y, error = _arrays(curve)
        y = sign * y
        inside = np.flatnonzero(np.array(curve.x) <= limits.limit * (1 + 1e-9))
        if error is None or len(inside) == 0 or inside[-1] in (0, len(y) - 1):
            return Say("cannot tell", None)
        z, whole = normal_reach(limits.level), y[-1] - y[0]
        if whole <= z * math.hypot(error[0], error[-1]):
            return Say("cannot tell", None)
        at = inside[-1]
        share = float((y[at] - y[0]) / whole)
        # share − 1/2 has the sign of y_at − (y0 + y_end)/2, whose error is simple.
        excess = y[at] - (y[0] + y[-1]) / 2
        deviation = math.sqrt(error[0] ** 2 / 4 + error[-1] ** 2 / 4 + error[at] ** 2)
        if abs(excess) <= z * deviation:
            return Say("cannot tell", share)
        return Say("agrees" if excess > 0 else "disagrees", share)

    return check


def _saturates(curve: Curve, limits: Limits) -> Say:
    """Every point reaches ``share`` (default 90 %) of the rate of the slowest link on the way, the errors included.

    A tenth is left to headers (3.4 % at an MTU of 1500), to the first round trips and to the sampling of the link.
    """
    if limits.link_bytes_per_s is None:
        return Say("cannot tell", None)
    y, error = _arrays(curve)
    least = float(y.min() / limits.link_bytes_per_s)
    if error is None:
        return Say("cannot tell", least)
    wanted = float(limits.row.get("share", 0.90)) * limits.link_bytes_per_s
    z = normal_reach(limits.level)
    if (y - z * error >= wanted).all():
        return Say("agrees", least)
    return Say("disagrees" if (y + z * error < wanted).any() else "cannot tell", least)


def _arrays(
    curve: Curve,
) -> tuple[np.ndarray[Any, np.dtype[np.float64]], np.ndarray[Any, np.dtype[np.float64]] | None]:
    errors = curve.error_bytes_per_s
    return np.array(curve.y_bytes_per_s), None if None in errors else np.array(errors, dtype=np.float64)


CHECKS: Mapping[str, Check] = {
    "decreasing": _monotone(-1),
    "increasing": _monotone(+1),
    "flat": _flat,
    "plateau_above": _plateau_above,
    "most_of_fall_below": _most_below(-1),
    "most_of_rise_below": _most_below(+1),
    "saturates": _saturates,
}
"""Checks that a claim without a table may name."""

_QUOTES = {
    "decreasing": "median change from the first to the last point {change}",
    "increasing": "median change from the first to the last point {change}",
    "flat": "median distance from least to greatest {change} of the mean",
    "plateau_above": "median distance from least to greatest from {limit} on {change} of the mean",
    "most_of_fall_below": "median share of the fall up to {limit}: {change}",
    "most_of_rise_below": "median share of the rise up to {limit}: {change}",
    "saturates": "the least of a curve is {change} of the link, in the median",
}
