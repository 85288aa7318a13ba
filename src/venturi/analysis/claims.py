"""Published statements held against our numbers, and published values put beside ours.

A check looks at every curve of throughput per file along the factor that the claim names, and each curve may agree,
disagree or not tell. The claim agrees if at least three quarters of the curves that tell do, and half of all tell;
it is refuted if more than half of those that tell refute it; anything else is "cannot tell".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import stats

from venturi.analysis.result import Claim, Curve, FamilyFit, Point, PublishedFit, PublishedRate, PublishedTotal, Total
from venturi.analysis.words import describe, plural
from venturi.study import Published

__all__ = ["CHECKS", "judge_claims", "published_fits", "published_rates", "published_totals"]

Verdict = Literal["agrees", "disagrees", "cannot tell"]
AGREEING_SHARE = 0.75
TELLING_SHARE = 0.5
SMALL_CHANGE = 0.05
"""A change along a whole curve that is smaller than this is called none."""


class Say(NamedTuple):
    """What one curve says of a claim; ``change`` is what the evidence quotes."""

    verdict: Verdict
    change: float | None


Check = Callable[[Curve, Mapping[str, Any], float], Say]


def judge_claims(claims: Sequence[Mapping[str, Any]], curves: Sequence[Curve], level: float) -> tuple[Claim, ...]:
    """Return each claim with a verdict and the evidence."""
    return tuple(_judge(claim, curves, level) for claim in claims)


def _judge(claim: Mapping[str, Any], curves: Sequence[Curve], level: float) -> Claim:
    against, where = str(claim.get("against", "")), claim.get("where", {})
    own = [
        curve for curve in curves
        if curve.against in (against, f"{against}_bytes", f"{against}_s") and len(curve.x) >= 2
        and all(curve.others.get(key) == value for key, value in where.items())
    ]  # fmt: skip
    check = CHECKS.get(str(claim.get("check")))
    verdict, evidence = _sum_up(own, claim, check, level)
    return Claim(str(claim["id"]), str(claim["text"]), str(claim.get("check")), verdict, evidence)


def _sum_up(own: list[Curve], claim: Mapping[str, Any], check: Check | None, level: float) -> tuple[Verdict, str]:
    if check is None:
        return "cannot tell", f"this version has no check {claim.get('check')!r}"
    if not own:
        return "cannot tell", f"no curve against {claim.get('against')} was measured"
    says = [(curve, check(curve, claim, level)) for curve in own]
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
        text += f"; {_QUOTES[str(claim['check'])].format(change=_percent(float(np.median(changes)), str(claim['check'])), limit=claim.get('limit'))}"
    against = [curve for curve, say in says if say.verdict == "disagrees"]
    if against and counts["agrees"]:
        names = [name for name in against[0].others if len({str(curve.others.get(name)) for curve, _ in says}) > 1]
        shown = "; ".join(describe(curve.others, names) for curve in against[:4])
        text += f"; against it: {shown}{' …' if len(against) > 4 else ''}"
    return text


def _percent(share: float, check: str) -> str:
    sign = "+" if check in ("decreasing", "increasing") else ""
    return f"{100 * share:{sign}.0f} %".replace("-", "−")


def _monotone(sign: int) -> Check:
    """Return a check that a curve falls (sign −1) or rises (+1): at its ends, and at no step clearly the other way."""

    def check(curve: Curve, _claim: Mapping[str, Any], level: float) -> Say:
        y, error = _arrays(curve)
        change = float(y[-1] / y[0] - 1)
        if error is None:
            return Say("cannot tell", change)
        z = float(stats.norm.ppf((1 + level) / 2))
        whole = sign * (y[-1] - y[0])
        if whole < -z * math.hypot(error[0], error[-1]) or (
            abs(change) < SMALL_CHANGE and abs(whole) <= z * math.hypot(error[0], error[-1])
        ):
            return Say("disagrees", change)
        if whole <= z * math.hypot(error[0], error[-1]):
            return Say("cannot tell", change)
        steps = sign * np.diff(y)
        # Each step is one of many tests: Bonferroni keeps the chance of one false alarm in all of them at 1 − level.
        limit = float(stats.norm.ppf(1 - (1 - level) / 2 / len(steps)))
        wrong = np.where(steps < -limit * np.hypot(error[1:], error[:-1]), -steps, 0.0).max()
        # One step the wrong way by less than a tenth of the whole is a wrinkle, not a refutation.
        return Say("agrees" if wrong < 0.1 * whole else "disagrees", change)

    return check


def _flat(curve: Curve, claim: Mapping[str, Any], level: float) -> Say:
    """A curve is flat if it moves by less than ``within`` (default 10 %) of its mean, the errors included."""
    y, error = _arrays(curve)
    within = float(claim.get("within", 0.10))
    change = float(np.ptp(y) / y.mean())
    if error is None:
        return Say("cannot tell", change)
    reach = float(stats.norm.ppf((1 + level) / 2)) * float(
        np.hypot(error[np.argmax(y)], error[np.argmin(y)]) / y.mean()
    )
    if change + reach <= within:
        return Say("agrees", change)
    return Say("disagrees" if change - reach > within else "cannot tell", change)


def _most_of_fall_below(curve: Curve, claim: Mapping[str, Any], level: float) -> Say:
    """More than half of the fall from the first point lies at or below ``limit``."""
    y, error = _arrays(curve)
    x, limit = np.array(curve.x), float(claim["limit"])
    inside = np.flatnonzero(x <= limit)
    if error is None or len(inside) == 0 or inside[-1] in (0, len(x) - 1):
        return Say("cannot tell", None)
    z, fall = float(stats.norm.ppf((1 + level) / 2)), y[0] - y[-1]
    if fall <= z * math.hypot(error[0], error[-1]):
        return Say("cannot tell", None)
    at = inside[-1]
    share = float((y[0] - y[at]) / fall)
    # share − 1/2 has the sign of (y0 + y_end)/2 − y_at, whose error is simple.
    excess, deviation = (y[0] + y[-1]) / 2 - y[at], math.sqrt(error[0] ** 2 / 4 + error[-1] ** 2 / 4 + error[at] ** 2)
    if abs(excess) <= z * deviation:
        return Say("cannot tell", share)
    return Say("agrees" if excess > 0 else "disagrees", share)


def _arrays(
    curve: Curve,
) -> tuple[np.ndarray[Any, np.dtype[np.float64]], np.ndarray[Any, np.dtype[np.float64]] | None]:
    errors = curve.error_bytes_per_s
    return np.array(curve.y_bytes_per_s), None if None in errors else np.array(errors, dtype=np.float64)


CHECKS: Mapping[str, Check] = {
    "decreasing": _monotone(-1),
    "increasing": _monotone(+1),
    "flat": _flat,
    "most_of_fall_below": _most_of_fall_below,
}
"""Checks that a claim in ``study.toml`` may name."""

_QUOTES = {
    "decreasing": "median change from the first to the last point {change}",
    "increasing": "median change from the first to the last point {change}",
    "flat": "median distance from least to greatest {change} of the mean",
    "most_of_fall_below": "median share of the fall up to {limit}: {change}",
}


def published_fits(published: Published, table: Sequence[FamilyFit]) -> tuple[PublishedFit, ...]:
    """Return the published best functions, each with our fit of the same family and our best family."""
    rows = []
    for row in published.fits:
        against = str(row["against"])
        own = [fit for fit in table if fit.against in (against, f"{against}_bytes") and fit.mean_r2 is not None]
        rows.append(
            PublishedFit(
                against=against, equation=str(row.get("equation", "")), family=str(row["family"]),
                mean_r2_table=row.get("mean_r2_table"), mean_r2_text=row.get("mean_r2_text"), range=str(row.get("range", "")),
                ours_same_family=next((fit for fit in own if fit.family == row["family"]), None),
                ours_best=own[0] if own else None,
            )
        )  # fmt: skip
    return tuple(rows)


def published_totals(
    published: Published, total_between: Callable[[tuple[int, int]], Sequence[Total]]
) -> tuple[PublishedTotal, ...]:
    """Return the published totals beside ours over the same file counts; none of ours where several would match."""
    rows = []
    for row in published.totals:
        files = (int(row["files_min"]), int(row["files_max"]))
        found = total_between(files)
        ours = found[0] if len(found) == 1 else None
        ratio = ours.mean_bytes_per_s / row["total_bytes_per_s"] if ours else None
        rows.append(PublishedTotal(str(row["name"]), float(row["total_bytes_per_s"]), *files, ours, ratio))
    return tuple(rows)


def published_rates(published: Published, points: Sequence[Point]) -> tuple[PublishedRate, ...]:
    """Return the published single rates beside ours: per mover where a point runs several, as file systems count them."""
    rows = []
    for row in published.rates:
        low, high = int(row["files_min"]), int(row["files_max"])
        own = [p for p in points if p.factors.get("mover", row["mover"]) == row["mover"] and low <= p.files <= high]
        rates = [rate for point in own for rate in _rates(point) if rate is not None]
        rows.append(
            PublishedRate(
                name=str(row["name"]), mover=str(row["mover"]), files_min=low, files_max=high,
                low_bytes_per_s=float(row["low_bytes_per_s"]), high_bytes_per_s=float(row["high_bytes_per_s"]),
                qualifier=str(row.get("qualifier", "")), ours_low_bytes_per_s=min(rates, default=None),
                ours_high_bytes_per_s=max(rates, default=None), points=len(own),
            )
        )  # fmt: skip
    return tuple(rows)


def _rates(point: Point) -> list[float | None]:
    return [part.together_bytes_per_s for part in point.parts] or [point.together_bytes_per_s]
