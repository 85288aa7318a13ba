"""Curves of throughput per file against one factor, the families fitted to them, and table III of document 000.

The two variables of the report were treated as independent, each curve fitted on its own; so it is here, and one
function of both follows as a surface. A family that has as many parameters as a curve has points passes through all of
them and says nothing: it is ranked behind every family that has not, whatever the criterion.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from venturi import model
from venturi.analysis.options import Criterion
from venturi.analysis.result import BestFamily, Curve, Factor, FactorValue, FamilyFit, Fit, Point, Surface
from venturi.errors import FitError
from venturi.model.rank import Criterion as ModelCriterion

__all__ = ["Axis", "axes", "best_families", "chosen_families", "curves", "family_table", "rank_curve", "surfaces"]

FEWEST_POINTS = 3
DRAWN_POINTS = 61
"""Points of a drawn fit."""
WIDE_RANGE = 20.0
"""Ratio of the ends of a range from which it is drawn on a logarithmic axis, and fits at equal ratios."""

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
    """A factor that curves are drawn against: its column, and its name in the scenario."""

    factor: str
    name: str


def axes(wanted: Sequence[str], factors: Sequence[Factor]) -> tuple[Axis, ...]:
    """Return the axes that the scenario asks for and the run has: numeric factors with more than one value."""
    found = []
    for name in wanted:
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
    points: Sequence[Point],
    axes_: Sequence[Axis],
    families: Sequence[str],
    criterion: Criterion,
    *,
    level: float,
    fits: bool,
) -> tuple[Curve, ...]:
    """Return one curve for each axis and each combination of the other factors, with its fits, best first.

    Parameters
    ----------
    families
        Names, or ``("all",)``: the shapes without a reason and those made for the kind of x.
    criterion
        What ranks them.
    level
        Of the bands.
    fits
        Whether to fit.
    """
    found: list[Curve] = []
    for axis in axes_:
        bare = [_curve(axis, group) for group in _grouped(points, axis.factor)]
        found += _fitted(bare, chosen_families(families, axis.factor), criterion, level) if fits else bare
    return tuple(found)


def _grouped(points: Sequence[Point], *without: str) -> list[list[Point]]:
    """Return the points that differ in the factors ``without`` alone."""
    groups: dict[tuple[tuple[str, FactorValue], ...], list[Point]] = {}
    for point in points:
        groups.setdefault(tuple((k, v) for k, v in point.factors.items() if k not in without), []).append(point)
    return list(groups.values())


def _curve(axis: Axis, group: Sequence[Point]) -> Curve:
    kept = [
        point
        for point in group
        if point.throughput_bytes_per_s is not None and point.factors[axis.factor] is not None
    ]
    kept.sort(key=lambda point: float(point.factors[axis.factor]))  # type: ignore[arg-type]
    few = len(kept) < FEWEST_POINTS
    return Curve(
        against=axis.factor,
        others={name: value for name, value in group[0].factors.items() if name != axis.factor},
        x=tuple(float(point.factors[axis.factor]) for point in kept),  # type: ignore[arg-type]
        y_bytes_per_s=tuple(
            point.throughput_bytes_per_s for point in kept if point.throughput_bytes_per_s is not None
        ),
        error_bytes_per_s=tuple(point.error_bytes_per_s for point in kept),
        points=tuple(point.point for point in kept),
        fits=(),
        reason=f"{len(kept)} points: at least {FEWEST_POINTS} are needed for a fit" if few else "not asked for",
    )


def chosen_families(names: Sequence[str], factor: str) -> list[model.Family]:
    """Return the families to fit against a factor.

    Parameters
    ----------
    names
        Names, or ``("all",)``: the shapes without a reason and those made for the kind of x.
    factor
        Column of the factor, such as ``"size_bytes"``.

    Raises
    ------
    FitError
        If there is no family of a name.

    Examples
    --------
    >>> [family.name for family in chosen_families(("share", "power"), "files")]
    ['share', 'power']
    """
    if tuple(names) != ("all",):
        return [model.family_named(name) for name in names]
    kind = _KINDS.get(factor)
    return list(model.PAPER_FAMILIES if kind is None else model.families_for(kind))


def rank_curve(curve: Curve, families: Sequence[model.Family], criterion: Criterion) -> model.Ranking:
    """Return the families fitted to one curve, best first, with all that the model knows of them.

    AICc and cross-validation need more points than parameters by two or more: on four points they exist for the families
    with one parameter alone, which would win without a contest. Where they exist for fewer than half of the families,
    adjusted R² decides, an honest if weak judge; ``criterion`` of the ranking says so.

    Raises
    ------
    FitError
        If the curve has fewer than three points.
    """
    if len(curve.x) < FEWEST_POINTS:
        raise FitError(
            f"throughput against {curve.against}: expected at least {FEWEST_POINTS} points, found {len(curve.x)}; measure at more values of it"
        )
    return _rank_curves([curve], families, criterion)[0]


def _rank_curves(
    curves_: Sequence[Curve], families: Sequence[model.Family], criterion: Criterion
) -> list[model.Ranking]:
    data = [_model_curve(curve) for curve in curves_]
    return [_contested(ranking) for ranking in model.rank_many(data, families, criterion=_CRITERIA[criterion])]


def _contested(ranking: model.Ranking) -> model.Ranking:
    judged = [entry for entry in ranking.entries if math.isfinite(entry.score)]
    if 2 * len(judged) >= len(ranking.entries):
        return replace(ranking, entries=tuple(sorted(ranking.entries, key=lambda e: e.fit.degrees_of_freedom <= 0)))
    entries = [model.Entry(entry.fit, entry.fit.goodness.r_squared_adjusted) for entry in ranking.entries]
    entries.sort(key=lambda entry: -entry.score if math.isfinite(entry.score) else math.inf)
    return replace(ranking, criterion="r_squared_adjusted", entries=tuple(entries))


def _model_curve(curve: Curve) -> model.Curve:
    errors = [error for error in curve.error_bytes_per_s if error is not None and error > 0]
    sigma = np.array(errors) if len(errors) == len(curve.x) else None
    name = f"throughput against {curve.against.removesuffix('_bytes')}"
    return model.Curve(np.array(curve.x), np.array(curve.y_bytes_per_s), sigma, name=name)


def _fitted(
    bare: Sequence[Curve], families: Sequence[model.Family], criterion: Criterion, level: float
) -> list[Curve]:
    usable = [curve for curve in bare if len(curve.x) >= FEWEST_POINTS]
    rankings = iter(_rank_curves(usable, families, criterion))
    return [
        _with_fits(curve, next(rankings), criterion, level) if len(curve.x) >= FEWEST_POINTS else curve
        for curve in bare
    ]


def _with_fits(curve: Curve, ranking: model.Ranking, criterion: Criterion, level: float) -> Curve:
    finite_aicc = [e.fit.goodness.aicc for e in ranking.entries if math.isfinite(e.fit.goodness.aicc)]
    least = min(finite_aicc) if finite_aicc else None
    fits = tuple(
        _plain_fit(entry, rank, least, level, by_cross_validation=ranking.criterion == "cross_validation")
        for rank, entry in enumerate(ranking.entries, start=1)
    )
    refused = "; ".join(f"{left_out.family.name}: {left_out.reason}" for left_out in ranking.refused)
    instead = None if ranking.criterion == _CRITERIA[criterion] else "adjusted_r2"
    return replace(curve, fits=fits, reason=None if fits else refused, ranked_by=instead)


def _plain_fit(
    entry: model.Entry, rank: int, least_aicc: float | None, level: float, *, by_cross_validation: bool
) -> Fit:
    fit = entry.fit
    aicc = finite(fit.goodness.aicc)
    x = _drawn_at(fit.curve.x) if rank == 1 else np.empty(0)
    drawn = fit.predict(x, level=level) if len(x) else None
    return Fit(
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
    """Return the number, or None where there is none: not a number, or infinite."""
    return None if number is None or not math.isfinite(number) else float(number)


def family_table(found: Sequence[Curve]) -> tuple[FamilyFit, ...]:
    """Return each family over all curves against each factor, highest mean R² first among those fitted most often."""
    rows = []
    for against in dict.fromkeys(curve.against for curve in found):
        by_family: dict[str, list[Fit]] = {}
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


def best_families(found: Sequence[Curve], table: Sequence[FamilyFit], criterion: Criterion) -> tuple[BestFamily, ...]:
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
                by_criterion=max(own, key=lambda row: (row.first, -(row.mean_delta_aicc or 0.0))),
                criterion=criterion,
            )
        )
    return tuple(rows)


def surfaces(points: Sequence[Point], factors: Sequence[Factor]) -> tuple[Surface, ...]:
    """Return one function of size and files for each combination of the other factors, where both vary."""
    varied = {factor.name for factor in factors if factor.varied}
    if not {"size_bytes", "files"} <= varied:
        return ()
    found = []
    for group in _grouped(points, "size_bytes", "files"):
        surface = _surface(group)
        if surface is not None:
            found.append(surface)
    return tuple(found)


def _surface(group: Sequence[Point]) -> Surface | None:
    kept = [point for point in group if point.throughput_bytes_per_s and point.size_bytes]
    if len(kept) < 6:
        return None
    rate = np.array([point.throughput_bytes_per_s for point in kept], dtype=float)
    x = np.array([[point.size_bytes for point in kept], [point.files for point in kept]], dtype=float)
    # Rates span decades: an error in proportion to the rate keeps the slow points from being ignored.
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
