"""Curves of throughput per file against one factor, the fitted families, and table III of document 000.

The report treated its two variables as independent and fitted each curve separately. This module does the same, and
also fits one function of both variables as a surface. A family with as many parameters as a curve has points passes
through all points, so its fit means nothing. Any criterion ranks it behind all other families.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from venturi import model
from venturi.analysis.format import plural
from venturi.analysis.options import Criterion
from venturi.analysis.result import (
    BestFamily,
    FactorColumn,
    FactorValue,
    FamilyFit,
    FitResult,
    FittedCurves,
    PointResult,
    Surface,
)
from venturi.errors import FitError
from venturi.model.rank import Criterion as ModelCriterion

__all__ = [
    "MIN_FIT_POINTS",
    "MIN_FIT_TRIALS",
    "Axis",
    "axes",
    "best_families",
    "chosen_families",
    "curves",
    "family_table",
    "rank_curve",
    "surfaces",
]

MIN_FIT_POINTS = 4
"""Minimum number of points for a fit. A function of two parameters passes close to any three points."""
MIN_FIT_TRIALS = 3
"""Minimum number of trials for each point of a fit. Two trials give no confidence interval."""
MIN_R2 = 0.1
"""Adjusted R² of the best fit below which no dependence was found, because chance alone reaches it."""
DRAWN_POINTS = 61
"""Number of points of a drawn fit."""
WIDE_RANGE = 20.0
"""Minimum ratio of the ends of a range for a logarithmic axis, with the points of fits at equal ratios."""

_CRITERIA: Mapping[Criterion, ModelCriterion] = {
    "r2": "r_squared", "adjusted_r2": "r_squared_adjusted", "aicc": "aicc", "cross_validation": "cross_validation",
}  # fmt: skip
_KINDS = {
    "files": "files",
    "size_bytes": "size",
    "streams": "streams",
    "window_bytes": "window",
    "rtt_s": "rtt",
    "loss": "loss",
}


@dataclass(frozen=True, slots=True)
class Axis:
    """Factor on the x axis of curves: its column, and its name in the scenario."""

    factor: str
    name: str


def axes(requested: Sequence[str], factors: Sequence[FactorColumn]) -> tuple[Axis, ...]:
    """Return the axes that the scenario requests and the run has: numeric factors with more than one value."""
    found = []
    for name in requested:
        for factor in factors:
            if (
                factor.name in (name, f"{name}_bytes", f"{name}_s", f"{name}_bit_per_s")
                and factor.varied
                and factor.numeric
            ):
                found.append(Axis(factor.name, name))
                break
    return tuple(found)


def curves(
    points: Sequence[PointResult],
    axes_: Sequence[Axis],
    families: Sequence[str],
    criterion: Criterion,
    *,
    level: float,
    fits: bool,
    min_trials: int = MIN_FIT_TRIALS,
) -> tuple[FittedCurves, ...]:
    """Return one curve for each axis and each combination of the other factors, with its fits, best first.

    Parameters
    ----------
    families
        Names, or ``("all",)`` for the generic shapes and the families for the kind of x.
    criterion
        Criterion that ranks the families.
    level
        Confidence of the bands.
    fits
        Whether to fit.
    min_trials
        Minimum number of trials for each point of a fit.
    """
    found: list[FittedCurves] = []
    for axis in axes_:
        bare = [_curve(axis, group, min_trials) for group in _grouped(points, axis.factor)]
        found += _fitted(bare, chosen_families(families, axis.factor), criterion, level) if fits else bare
    return tuple(found)


def _grouped(points: Sequence[PointResult], *without: str) -> list[list[PointResult]]:
    """Return groups of points that only differ in the factors ``without``."""
    groups: dict[tuple[tuple[str, FactorValue], ...], list[PointResult]] = {}
    for point in points:
        groups.setdefault(tuple((k, v) for k, v in point.factors.items() if k not in without), []).append(point)
    return list(groups.values())


def _curve(axis: Axis, group: Sequence[PointResult], min_trials: int) -> FittedCurves:
    kept = [
        point
        for point in group
        if point.throughput_bytes_per_s is not None and point.factors[axis.factor] is not None
    ]
    kept.sort(key=lambda point: float(point.factors[axis.factor]))  # type: ignore[arg-type]
    reason = "no fit was requested"
    repeated = [point for point in kept if point.trials >= min_trials]
    if len(kept) < MIN_FIT_POINTS:
        reason = f"no fit: {plural(len(kept), 'point')}, {MIN_FIT_POINTS} are needed"
    elif len(repeated) < MIN_FIT_POINTS:
        reason = (
            f"no fit: {plural(len(repeated), 'point')} with {min_trials} trials or more, {MIN_FIT_POINTS} are needed"
        )
    return FittedCurves(
        against=axis.factor,
        others={name: value for name, value in group[0].factors.items() if name != axis.factor},
        x=tuple(float(point.factors[axis.factor]) for point in kept),  # type: ignore[arg-type]
        y_bytes_per_s=tuple(
            point.throughput_bytes_per_s for point in kept if point.throughput_bytes_per_s is not None
        ),
        error_bytes_per_s=tuple(point.error_bytes_per_s for point in kept),
        points=tuple(point.point for point in kept),
        fits=(),
        reason=reason,
    )


def chosen_families(names: Sequence[str], factor: str) -> list[model.Family]:
    """Return the families to fit against a factor.

    Parameters
    ----------
    names
        Names, or ``("all",)`` for the generic shapes and the families for the kind of x.
    factor
        Column of the factor, such as ``"size_bytes"``.

    Raises
    ------
    FitError
        If a name belongs to no family.

    Examples
    --------
    >>> [family.name for family in chosen_families(("share", "power"), "files")]
    ['share', 'power']
    """
    if tuple(names) != ("all",):
        return [model.family_named(name) for name in names]
    kind = _KINDS.get(factor)
    return list(model.PAPER_FAMILIES if kind is None else model.families_for(kind))


def rank_curve(curve: FittedCurves, families: Sequence[model.Family], criterion: Criterion) -> model.Ranking:
    """Return the families fitted to one curve, best first, with all details of the model.

    AICc needs at least three more points than parameters, and cross-validation needs one more. With four points, AICc
    only exists for families with one parameter, which would win without competition. If the criterion exists for fewer
    than half of the families, adjusted R² ranks the families. It is less strict, and ``criterion`` of the ranking names
    it.

    Raises
    ------
    FitError
        If the curve has fewer than :data:`MIN_FIT_POINTS` points.
    """
    if len(curve.x) < MIN_FIT_POINTS:
        raise FitError(
            f"throughput against {curve.against}: expected at least {MIN_FIT_POINTS} points, found {len(curve.x)};"
            " measure it at more values"
        )
    return _rank_curves([curve], families, criterion)[0]


def _rank_curves(
    curves_: Sequence[FittedCurves], families: Sequence[model.Family], criterion: Criterion
) -> list[model.Ranking]:
    data = [_model_curve(curve) for curve in curves_]
    return [_contested(ranking) for ranking in model.rank_many(data, families, criterion=_CRITERIA[criterion])]


def _contested(ranking: model.Ranking) -> model.Ranking:
    scored = [entry for entry in ranking.entries if math.isfinite(entry.score)]
    if 2 * len(scored) >= len(ranking.entries):
        return replace(ranking, entries=tuple(sorted(ranking.entries, key=lambda e: e.fit.degrees_of_freedom <= 0)))
    entries = [model.RankedFit(entry.fit, entry.fit.goodness.r_squared_adjusted) for entry in ranking.entries]
    entries.sort(key=lambda entry: -entry.score if math.isfinite(entry.score) else math.inf)
    return replace(ranking, criterion="r_squared_adjusted", entries=tuple(entries))


def _model_curve(curve: FittedCurves) -> model.Curve:
    errors = [error for error in curve.error_bytes_per_s if error is not None and error > 0]
    sigma = np.array(errors) if len(errors) == len(curve.x) else None
    name = f"throughput against {curve.against.removesuffix('_bytes')}"
    return model.Curve(np.array(curve.x), np.array(curve.y_bytes_per_s), sigma, name=name)


def _fitted(
    bare: Sequence[FittedCurves], families: Sequence[model.Family], criterion: Criterion, level: float
) -> list[FittedCurves]:
    usable = [curve for curve in bare if not (curve.reason or "").startswith("no fit:")]
    rankings = _rank_curves(usable, families, criterion)
    fitted = {
        id(curve): _with_fits(curve, ranking, criterion, level)
        for curve, ranking in zip(usable, rankings, strict=True)
    }
    return [fitted.get(id(curve), curve) for curve in bare]


def _with_fits(curve: FittedCurves, ranking: model.Ranking, criterion: Criterion, level: float) -> FittedCurves:
    finite_aicc = [e.fit.goodness.aicc for e in ranking.entries if math.isfinite(e.fit.goodness.aicc)]
    lowest_aicc = min(finite_aicc) if finite_aicc else None
    fits = tuple(
        _fit_result(entry, rank, lowest_aicc, level, by_cross_validation=ranking.criterion == "cross_validation")
        for rank, entry in enumerate(ranking.entries, start=1)
    )
    rejected = "; ".join(f"{left_out.family.name}: {left_out.reason}" for left_out in ranking.rejected)
    instead = None if ranking.criterion == _CRITERIA[criterion] else "adjusted_r2"
    best = fits[0] if fits else None
    explained = None if best is None else best.r2 if best.adjusted_r2 is None else best.adjusted_r2
    if best is not None and explained is not None and explained < MIN_R2:
        text = f"no dependence found: the best function, {best.family}, explains {100 * max(best.r2 or 0.0, 0.0):.2g} % of the variation"
        return replace(curve, fits=(), reason=text, independent=True, ranked_by=instead)
    return replace(curve, fits=fits, reason=None if fits else rejected, ranked_by=instead)


def _fit_result(
    entry: model.RankedFit, rank: int, least_aicc: float | None, level: float, *, by_cross_validation: bool
) -> FitResult:
    fit = entry.fit
    aicc = finite(fit.goodness.aicc)
    x = _drawn_at(fit.curve.x) if rank == 1 else np.empty(0)
    drawn = fit.predict(x, level=level) if len(x) else None
    return FitResult(
        family=fit.family.name,
        formula=fit.family.formula,
        parameters={name: float(value) for name, value in fit.parameters.items()},
        errors={name: finite(error) for name, error in fit.standard_errors.items()},
        rank=rank,
        degrees_of_freedom=fit.degrees_of_freedom,
        r2=finite(fit.goodness.r_squared),
        adjusted_r2=finite(fit.goodness.r_squared_adjusted),
        aicc=aicc,
        delta_aicc=None if aicc is None or least_aicc is None else aicc - least_aicc,
        cross_validation=finite(entry.score) if by_cross_validation else None,
        warnings=fit.warnings,
        draw_x=tuple(x.tolist()),
        draw_y=() if drawn is None else tuple(drawn.value.tolist()),
        draw_low=() if drawn is None or not np.isfinite(drawn.low).all() else tuple(drawn.low.tolist()),
        draw_high=() if drawn is None or not np.isfinite(drawn.high).all() else tuple(drawn.high.tolist()),
    )


def _drawn_at(x: model.family.Array) -> model.family.Array:
    low, high = float(x.min()), float(x.max())
    if low > 0 and high / low >= WIDE_RANGE:
        return np.clip(np.geomspace(low, high, DRAWN_POINTS), low, high)
    return np.linspace(low, high, DRAWN_POINTS)


def finite(number: float | None) -> float | None:
    """Return the number, or None if it is missing, NaN or infinite."""
    return None if number is None or not math.isfinite(number) else float(number)


def family_table(found: Sequence[FittedCurves]) -> tuple[FamilyFit, ...]:
    """Return each family over all curves against each factor.

    Families with the most fitted curves come first, then the families with the highest mean R².
    """
    rows = []
    for against in dict.fromkeys(curve.against for curve in found):
        by_family: dict[str, list[FitResult]] = {}
        formulas: dict[str, str] = {}
        for fit in (fit for curve in found if curve.against == against for fit in curve.fits):
            formulas[fit.family] = fit.formula
            tested = by_family.setdefault(fit.family, [])
            if fit.degrees_of_freedom > 0:
                tested.append(fit)
        own = [
            FamilyFit(
                against=against,
                family=family,
                formula=formulas[family],
                curves=len(fits),
                mean_r2=_mean(fit.r2 for fit in fits),
                mean_adjusted_r2=_mean(fit.adjusted_r2 for fit in fits),
                mean_delta_aicc=_mean(fit.delta_aicc for fit in fits),
                first=sum(fit.rank == 1 for fit in fits),
            )
            for family, fits in by_family.items()
        ]
        rows += sorted(own, key=lambda row: (-row.curves, -(row.mean_r2 if row.mean_r2 is not None else -math.inf)))
    return tuple(rows)


def _mean(values: Iterable[float | None]) -> float | None:
    kept = [value for value in values if value is not None]
    return float(np.mean(kept)) if kept else None


def _missing_last(value: float | None) -> float:
    return math.inf if value is None else value


def best_families(
    found: Sequence[FittedCurves], table: Sequence[FamilyFit], criterion: Criterion
) -> tuple[BestFamily, ...]:
    """Return table III of document 000: for each factor the best function and its mean R²."""
    rows = []
    for against in dict.fromkeys(row.against for row in table):
        own = [row for row in table if row.against == against and row.mean_r2 is not None]
        fitted = [curve for curve in found if curve.against == against and curve.fits]
        if not own:
            continue
        rows.append(
            BestFamily(
                against=against,
                low=min(curve.x[0] for curve in fitted),
                high=max(curve.x[-1] for curve in fitted),
                curves=len(fitted),
                by_mean_r2=own[0],
                by_criterion=max(own, key=lambda row: (row.first, -_missing_last(row.mean_delta_aicc))),
                criterion=criterion,
            )
        )
    return tuple(rows)


def surfaces(points: Sequence[PointResult], factors: Sequence[FactorColumn]) -> tuple[Surface, ...]:
    """Return one function of size and files for each combination of the other factors, if both vary."""
    varied = {factor.name for factor in factors if factor.varied}
    if not {"size_bytes", "files"} <= varied:
        return ()
    found = []
    for group in _grouped(points, "size_bytes", "files"):
        surface = _surface(group)
        if surface is not None:
            found.append(surface)
    return tuple(found)


def _surface(group: Sequence[PointResult]) -> Surface | None:
    kept = [point for point in group if point.throughput_bytes_per_s and point.size_bytes]
    if len(kept) < 6:
        return None
    rate = np.array([point.throughput_bytes_per_s for point in kept], dtype=float)
    x = np.array([[point.size_bytes for point in kept], [point.files for point in kept]], dtype=float)
    # Rates span decades. An error proportional to the rate prevents the fit from ignoring slow points.
    ranking = model.rank(model.Curve(x, rate, rate, name="throughput against size and files"), model.SURFACES)
    try:
        best = ranking.best
    except FitError:
        return None
    fitted = best.predict(x).value
    ratio = np.maximum(fitted / rate, rate / fitted) if (fitted > 0).all() else np.array([math.inf])
    return Surface(
        others={name: value for name, value in kept[0].factors.items() if name not in ("size_bytes", "files")},
        family=best.family.name,
        formula=best.family.formula,
        parameters={name: float(value) for name, value in best.parameters.items()},
        errors={name: finite(error) for name, error in best.standard_errors.items()},
        r2=finite(best.goodness.r_squared),
        points=len(kept),
        worst_ratio=finite(float(ratio.max())),
    )
