"""Checks of published statements against the curves of a run.

A check examines every curve along the factor that the claim names. For each curve, the verdict is "agrees", "disagrees"
or "cannot tell". A curve with one of the first two is decided. If at least half of all curves are decided, the claim
agrees if at least three quarters of the decided curves agree, and disagrees if more than half of them disagree.
Otherwise, the verdict is "cannot tell".

A claim is about the throughput per file unless ``of`` selects another quantity:

- ``"together"``: throughput of whole trials
- ``"zero_size"``: throughput per file, with the time of empty files subtracted
- ``"link"``: rate of the fullest link of the route while bytes flowed
- ``"read"`` and ``"write"``: rates of a ``storage``, in a ``direction``

Limits along the size are published sizes, scaled as the run was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from venturi.analysis.claims.claim_context import ClaimContext, Verdict
from venturi.analysis.claims.rows import SAME
from venturi.analysis.format import format_factors, plural
from venturi.analysis.published import restricted
from venturi.analysis.result import Claim, FittedCurves
from venturi.stats.quantiles import normal_reach
from venturi.units import format_bytes

__all__ = ["CHECKS", "check_curves"]

MIN_AGREEING_FRACTION = 0.75
MIN_DECIDED_FRACTION = 0.5
SMALL_CHANGE = 0.05
"""Relative change along a whole curve below which it counts as no change."""


class CurveVerdict(NamedTuple):
    """Verdict of one curve on a claim. The evidence quotes ``change``."""

    verdict: Verdict
    change: float | None


class Limits(NamedTuple):
    """Claim with the inputs of its checks: the row of ``study.toml``, the limit along x, the level, and the link rate."""

    row: Mapping[str, Any]
    limit: float
    level: float
    link_bytes_per_s: float | None


Check = Callable[[FittedCurves, Limits], CurveVerdict]
Value = tuple[float | None, float | None]
"""Quantity of a claim at one point, and its standard error."""


def check_curves(
    claim: Mapping[str, Any], curves: Sequence[FittedCurves], level: float, claim_context: ClaimContext
) -> Claim:
    """Return one claim with the verdict of the curves that it selects, and the evidence."""
    against = str(claim.get("against", ""))
    spoken_of = restricted(curves, claim)
    own = [curve for curve in (_of(curve, claim, claim_context) for curve in spoken_of) if len(curve.x) >= 2]
    check = CHECKS.get(str(claim.get("check")))
    scale = claim_context.scale if against == "size" else 1.0
    limits = Limits(claim, float(claim.get("limit", math.nan)) * scale, level, claim_context.link_bytes_per_s)
    verdict, evidence = _sum_up(own, claim, check, limits)
    if spoken_of and not own and check is not None:
        evidence = f"none of {plural(len(spoken_of), 'curve')} has two points with this quantity"
    return Claim(str(claim["id"]), str(claim["text"]), str(claim.get("check")), verdict, evidence)


def _of(curve: FittedCurves, claim: Mapping[str, Any], claim_context: ClaimContext) -> FittedCurves:
    """Return the curve of the claimed quantity over the same x, without the points that lack it."""
    if "of" not in claim:
        return curve
    values = [_value(claim_context, point, claim) for point in curve.points]
    kept = [index for index, (value, _) in enumerate(values) if value is not None]
    return replace(
        curve,
        x=tuple(curve.x[i] for i in kept),
        y_bytes_per_s=tuple(value for value, _ in values if value is not None),
        error_bytes_per_s=tuple(values[i][1] for i in kept),
        points=tuple(curve.points[i] for i in kept),
        fits=(),
    )


def _value(claim_context: ClaimContext, number: int, claim: Mapping[str, Any]) -> Value:
    of, point = str(claim["of"]), claim_context.points.get(number)
    if of == "together" and point is not None:
        return point.together_bytes_per_s, point.together_error_bytes_per_s
    if of == "zero_size" and point is not None and point.zero_size is not None:
        return point.zero_size.throughput_bytes_per_s, point.zero_size.error_bytes_per_s
    if of == "link":
        own = [use for use in claim_context.links if use.point == number]
        fullest = max(own, key=lambda use: use.full_bit_per_s, default=None)
        if fullest is not None:
            error = fullest.full_error_bit_per_s
            return fullest.full_bit_per_s / 8, None if error is None else error / 8
    for rate in claim_context.storages:
        here = (rate.point, rate.storage, rate.direction) == (
            number,
            claim.get("storage"),
            claim.get("direction", "all"),
        )
        if here and of in ("read", "write"):
            return getattr(rate, f"{of}_bytes_per_s"), getattr(rate, f"{of}_error_bytes_per_s")
    return None, None


def _sum_up(
    own: list[FittedCurves], claim: Mapping[str, Any], check: Check | None, limits: Limits
) -> tuple[Verdict, str]:
    if check is None:
        return "cannot tell", f"this version has no check {claim.get('check')!r}"
    if not own:
        return "cannot tell", f"no curve against {claim.get('against')} was measured"
    verdicts = [(curve, check(curve, limits)) for curve in own]
    counts = {
        verdict: sum(result.verdict == verdict for _, result in verdicts)
        for verdict in ("agrees", "disagrees", "cannot tell")
    }
    decided = counts["agrees"] + counts["disagrees"]
    verdict: Verdict = "cannot tell"
    if decided >= MIN_DECIDED_FRACTION * len(own) and counts["agrees"] >= MIN_AGREEING_FRACTION * decided and decided:
        verdict = "agrees"
    elif decided >= MIN_DECIDED_FRACTION * len(own) and counts["disagrees"] > 0.5 * decided:
        verdict = "disagrees"
    return verdict, _evidence(verdicts, counts, claim)


def _evidence(
    verdicts: Sequence[tuple[FittedCurves, CurveVerdict]], counts: Mapping[str, int], claim: Mapping[str, Any]
) -> str:
    named = [verdict for verdict in ("agrees", "disagrees", "cannot tell") if counts[verdict]]
    parts = [f"{counts[verdict]} {_verb(verdict, counts[verdict])}" for verdict in named[1:]]
    first = f"{counts[named[0]]} of {plural(len(verdicts), 'curve')} {_verb(named[0], counts[named[0]])}"
    changes = [result.change for _, result in verdicts if result.change is not None]
    text = ", ".join([first, *parts])
    if changes:
        check = str(claim["check"])
        change = _percent(float(np.median(changes)), check)
        text += f"; {_QUOTES[check].format(change=change, limit=_limit(claim))}"
    against = [curve for curve, result in verdicts if result.verdict == "disagrees"]
    if against and counts["agrees"]:
        names = [
            name for name in against[0].others if len({str(curve.others.get(name)) for curve, _ in verdicts}) > 1
        ]
        shown = "; ".join(format_factors(curve.others, names) for curve in against[:4])
        text += f"; contradicted by: {shown}{' …' if len(against) > 4 else ''}"
    return text


def _verb(verdict: str, count: int) -> str:
    return verdict if count == 1 or verdict == "cannot tell" else verdict.removesuffix("s")


def _limit(claim: Mapping[str, Any]) -> str:
    """Return the published limit of a claim as text."""
    limit = claim.get("limit")
    return "" if limit is None else format_bytes(limit) if claim.get("against") == "size" else f"{limit:g}"


def _percent(fraction: float, check: str) -> str:
    sign = "+" if check in ("decreasing", "increasing") else ""
    return f"{100 * fraction:{sign}.0f} %".replace("-", "−")


def _monotone(sign: int) -> Check:
    """Return a check that a curve falls (sign −1) or rises (+1) from end to end, with no clear opposite step."""

    def check(curve: FittedCurves, limits: Limits) -> CurveVerdict:
        y, error = _arrays(curve)
        level = limits.level
        change = float(y[-1] / y[0] - 1)
        if error is None:
            return CurveVerdict("cannot tell", change)
        z = normal_reach(level)
        whole = sign * (y[-1] - y[0])
        if abs(change) < SAME:  # rounding, which errors of zero (a simulated run) would make significant
            return CurveVerdict("disagrees", change)
        if whole < -z * math.hypot(error[0], error[-1]) or (
            abs(change) < SMALL_CHANGE and abs(whole) <= z * math.hypot(error[0], error[-1])
        ):
            return CurveVerdict("disagrees", change)
        if whole <= z * math.hypot(error[0], error[-1]):
            return CurveVerdict("cannot tell", change)
        steps = sign * np.diff(y)
        # Each step is one of many tests: Bonferroni keeps the chance of one false alarm in all of them at 1 − level.
        limit = normal_reach(1 - (1 - level) / len(steps))
        wrong = np.where(steps < -limit * np.hypot(error[1:], error[:-1]), -steps, 0.0).max()
        # One opposite step of less than a tenth of the whole change does not refute the claim.
        return CurveVerdict("agrees" if wrong < 0.1 * whole else "disagrees", change)

    return check


def _flat(curve: FittedCurves, limits: Limits) -> CurveVerdict:
    """Check that a curve moves by less than ``within`` (default 10 %) of its mean, including the errors."""
    y, error = _arrays(curve)
    within = float(limits.row.get("within", 0.10))
    change = float(np.ptp(y) / y.mean())
    if error is None:
        return CurveVerdict("cannot tell", change)
    reach = normal_reach(limits.level) * float(np.hypot(error[np.argmax(y)], error[np.argmin(y)]) / y.mean())
    if change + reach <= within:
        return CurveVerdict("agrees", change)
    return CurveVerdict("disagrees" if change - reach > within else "cannot tell", change)


def _plateau_above(curve: FittedCurves, limits: Limits) -> CurveVerdict:
    """Check that the curve is flat (``within``, default 10 %) from ``limit`` on. This needs two points there."""
    kept = [index for index, x in enumerate(curve.x) if x >= limits.limit * (1 - 1e-9)]
    if len(kept) < 2:
        return CurveVerdict("cannot tell", None)
    part = replace(
        curve,
        x=tuple(curve.x[i] for i in kept),
        y_bytes_per_s=tuple(curve.y_bytes_per_s[i] for i in kept),
        error_bytes_per_s=tuple(curve.error_bytes_per_s[i] for i in kept),
    )
    return _flat(part, limits)


def _most_below(sign: int) -> Check:
    """Return a check that more than half of the fall (sign −1) or rise (+1) from the first point lies up to ``limit``."""

    def check(curve: FittedCurves, limits: Limits) -> CurveVerdict:
        y, error = _arrays(curve)
        y = sign * y
        inside = np.flatnonzero(np.array(curve.x) <= limits.limit * (1 + 1e-9))
        if error is None or len(inside) == 0 or inside[-1] in (0, len(y) - 1):
            return CurveVerdict("cannot tell", None)
        z, whole = normal_reach(limits.level), y[-1] - y[0]
        if whole <= z * math.hypot(error[0], error[-1]):
            return CurveVerdict("cannot tell", None)
        at = inside[-1]
        fraction = float((y[at] - y[0]) / whole)
        # fraction − 1/2 has the sign of y_at − (y0 + y_end)/2, and the error of that is simple.
        excess = y[at] - (y[0] + y[-1]) / 2
        deviation = math.sqrt(error[0] ** 2 / 4 + error[-1] ** 2 / 4 + error[at] ** 2)
        if abs(excess) <= z * deviation:
            return CurveVerdict("cannot tell", fraction)
        return CurveVerdict("agrees" if excess > 0 else "disagrees", fraction)

    return check


def _saturates(curve: FittedCurves, limits: Limits) -> CurveVerdict:
    """Check that every point reaches ``share`` (default 90 %) of the rate of the slowest link of the route, including the errors.

    The remaining 10 % cover headers (3.4 % at an MTU of 1500), the first round trips and the sampling of the link.
    """
    if limits.link_bytes_per_s is None:
        return CurveVerdict("cannot tell", None)
    y, error = _arrays(curve)
    least = float(y.min() / limits.link_bytes_per_s)
    if error is None:
        return CurveVerdict("cannot tell", least)
    required = float(limits.row.get("share", 0.90)) * limits.link_bytes_per_s
    z = normal_reach(limits.level)
    if (y - z * error >= required).all():
        return CurveVerdict("agrees", least)
    return CurveVerdict("disagrees" if (y + z * error < required).any() else "cannot tell", least)


def _arrays(
    curve: FittedCurves,
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
    "decreasing": "median change from the first to the last point: {change}",
    "increasing": "median change from the first to the last point: {change}",
    "flat": "median range of a curve: {change} of the mean",
    "plateau_above": "median range of a curve from {limit}: {change} of the mean",
    "most_of_fall_below": "median fraction of the fall up to {limit}: {change}",
    "most_of_rise_below": "median fraction of the rise up to {limit}: {change}",
    "saturates": "median minimum of a curve: {change} of the link rate",
}
