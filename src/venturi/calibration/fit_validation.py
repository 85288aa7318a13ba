"""Comparison of fitted curves with a run that they have not seen, point by point."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from venturi.analysis import AnalyseOptions, PointResult, analyse
from venturi.analysis.format import format_factor_value
from venturi.calibration.fit_document import FitDocument, SavedCurve, movers_of
from venturi.errors import FitError, SampleError
from venturi.messages import quote_value
from venturi.model import HeldOutErrors, Holds, held_out_errors, verdict
from venturi.model.held_out import LEVEL
from venturi.run import Run

__all__ = ["FitValidation", "ValidatedCurve", "ValidatedPoint", "validate_fit"]

FactorValue = str | int | float | bool | None
"""Value of a factor in base units."""

SAME = 1e-9
"""Relative difference of equal factor values: conversion of units and JSON change the last digits."""
_UNIT = re.compile(r"_(bytes|bit_per_s|bytes_per_s|ns|us|ms|s|min|h|kB|MB|GB|KiB|MiB|GiB|B|ratio|percent)$")


@dataclass(frozen=True, slots=True)
class ValidatedPoint:
    """A measured point and its prediction. Rates are throughputs per file in B/s.

    Attributes
    ----------
    curve
        Number of the curve in the file, from 0.
    point, factors, x
        Number and factors of the point, and its value of the factor of the curve.
    measured_bytes_per_s, error_bytes_per_s
        Measured rate and its standard error, if known.
    predicted_bytes_per_s, low_bytes_per_s, high_bytes_per_s
        Predicted rate and the ends of its interval. The ends are None if the fit has no interval.
    extrapolated
        Whether ``x`` is outside the fitted range.
    """

    curve: int
    point: int
    factors: Mapping[str, FactorValue]
    x: float
    measured_bytes_per_s: float
    error_bytes_per_s: float | None
    predicted_bytes_per_s: float
    low_bytes_per_s: float | None
    high_bytes_per_s: float | None
    extrapolated: bool

    @property
    def error_ratio(self) -> float:
        """(predicted - measured) / measured."""
        return self.predicted_bytes_per_s / self.measured_bytes_per_s - 1

    @property
    def inside(self) -> bool | None:
        """True if the measurement lies in the interval. None without an interval."""
        if self.low_bytes_per_s is None or self.high_bytes_per_s is None:
            return None
        return self.low_bytes_per_s <= self.measured_bytes_per_s <= self.high_bytes_per_s


@dataclass(frozen=True, slots=True)
class ValidatedCurve:
    """A curve of the file, and its errors for the points in its range."""

    against: str
    others: Mapping[str, FactorValue]
    family: str
    formula: str
    x_range: tuple[float, float]
    warnings: tuple[str, ...]
    errors: HeldOutErrors
    extrapolated: int


@dataclass(frozen=True)
class FitValidation:
    """Fitted curves compared with a run.

    Attributes
    ----------
    fit, fitted_run, run
        Names of the file, of the run that it was fitted to, and of the run that judges it.
    level
        Probability of the prediction intervals.
    curves, points
        Curves of the file, and all predictions. A point on two curves has two predictions.
    errors, errors_extrapolated
        Errors in the fitted range, and outside.
    left_out
        Number of measured points that are on no curve of the file.
    holds, rule
        The verdict, and the rule that decided.
    simulated, fitted_simulated
        Whether the times of either run were simulated.
    """

    fit: str
    fitted_run: str
    run: str
    level: float
    curves: tuple[ValidatedCurve, ...]
    points: tuple[ValidatedPoint, ...]
    errors: HeldOutErrors
    errors_extrapolated: HeldOutErrors
    left_out: int
    holds: Holds
    rule: str
    simulated: bool
    fitted_simulated: bool


def validate_fit(document: FitDocument, run: Run, *, level: float = LEVEL) -> FitValidation:
    """Compare fitted curves with the points of a run.

    A point is on a curve if it has the values of the other factors of the curve.

    Raises
    ------
    FitError
        If the run has other movers, factors or units than the fitted run.
    SampleError
        If no measured point is on a curve, or all points are outside the fitted ranges.
    """
    name = run.path.name
    _check_subject(document, run)
    analysis = analyse(run, AnalyseOptions(fits=False))
    measured = [point for point in analysis.points if (point.throughput_bytes_per_s or 0.0) > 0]
    if not measured:
        raise SampleError(f"{name}: expected measured points, found none: {analysis.conclusion}; choose another run")
    predictions: list[ValidatedPoint] = []
    curves = []
    for number, curve in enumerate(document.curves):
        of_curve = _predictions(number, curve, measured, level)
        predictions += of_curve
        curves.append(
            ValidatedCurve(
                curve.against, curve.others, curve.fit.family.name, curve.fit.family.formula, curve.fit.x_range,
                curve.warnings, _errors([one for one in of_curve if not one.extrapolated]),
                sum(one.extrapolated for one in of_curve),
            )
        )  # fmt: skip
    _check_overlap(document, measured, predictions, name)
    errors = _errors([one for one in predictions if not one.extrapolated])
    holds, rule = verdict(errors, level)
    if document.run == name:
        holds, rule = "unknown", "the model was fitted to this run, so these are not errors of predictions"
    return FitValidation(
        fit=document.name,
        fitted_run=document.run,
        run=name,
        level=level,
        curves=tuple(curves),
        points=tuple(predictions),
        errors=errors,
        errors_extrapolated=_errors([one for one in predictions if one.extrapolated]),
        left_out=len({one.point for one in measured} - {one.point for one in predictions}),
        holds=holds,
        rule=rule,
        simulated=run.backend == "sim",
        fitted_simulated=document.simulated,
    )


def _check_subject(document: FitDocument, run: Run) -> None:
    """Reject a run that the curves do not describe."""
    name, movers = run.path.name, movers_of(run)
    if set(movers) != set(document.movers):
        raise FitError(
            f"{name}: expected the mover {', '.join(document.movers)} of {document.run}, found {', '.join(movers)};"
            f" choose another run, or fit a run with {', '.join(movers)}"
        )
    missing = [factor for factor in document.factors if factor not in run.factors]
    extra = [factor for factor in run.factors if factor not in document.factors]
    for factor in missing:
        same = [other for other in extra if _UNIT.sub("", other) == _UNIT.sub("", factor)]
        if same:
            raise FitError(
                f"{name}: {same[0]}: expected the unit of {factor} in {document.run}, found another unit; fit a run with"
                " this unit"
            )
    if missing or extra:
        raise FitError(
            f"{name}: expected the factors {', '.join(document.factors) or '(none)'} of {document.run}, found"
            f" {', '.join(run.factors) or '(none)'}; choose a run with the same factors"
        )


def _predictions(
    number: int, curve: SavedCurve, measured: Sequence[PointResult], level: float
) -> list[ValidatedPoint]:
    found = [
        point
        for point in measured
        if isinstance(point.factors.get(curve.against), int | float)
        and all(_same(point.factors.get(name), value) for name, value in curve.others.items())
    ]
    x = [float(point.factors[curve.against] or 0.0) for point in found]
    new = curve.fit.predict(x, [point.error_bytes_per_s for point in found], level=level)
    return [
        ValidatedPoint(
            curve=number,
            point=point.point,
            factors=point.factors,
            x=x[index],
            measured_bytes_per_s=float(point.throughput_bytes_per_s or 0.0),
            error_bytes_per_s=point.error_bytes_per_s,
            predicted_bytes_per_s=float(new.value[index]),
            low_bytes_per_s=_finite(float(new.low[index])),
            high_bytes_per_s=_finite(float(new.high[index])),
            extrapolated=bool(new.extrapolated[index]),
        )
        for index, point in enumerate(found)
    ]


def _same(one: FactorValue, other: FactorValue) -> bool:
    numbers = [value for value in (one, other) if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == 2:
        return math.isclose(numbers[0], numbers[1], rel_tol=SAME)
    return one == other


def _check_overlap(
    document: FitDocument, measured: Sequence[PointResult], predictions: Sequence[ValidatedPoint], name: str
) -> None:
    if not predictions:
        curve = document.curves[0]
        expected = ", ".join(f"{key} {_value(key, value)}" for key, value in curve.others.items()) or "any value"
        found = "; ".join(
            f"{key} {', '.join(dict.fromkeys(_value(key, point.factors.get(key)) for point in measured))}"
            for key in curve.others
        )
        raise SampleError(
            f"{name}: expected points with {expected} as in {document.run}, found {found or 'none'}; choose a run that has"
            " these values"
        )
    if all(one.extrapolated for one in predictions):
        ranges = dict.fromkeys(
            f"{curve.against} from {_value(curve.against, curve.fit.x_range[0])} to {_value(curve.against, curve.fit.x_range[1])}"
            for curve in document.curves
        )
        against = document.curves[predictions[0].curve].against
        values = [one.x for one in predictions]
        raise SampleError(
            f"{name}: expected points with {' or '.join(ranges)}, the range of {document.run}, found {against} from"
            f" {_value(against, min(values))} to {_value(against, max(values))}; choose a run that overlaps"
        )


def _value(name: str, value: FactorValue) -> str:
    return quote_value(None) if value is None else format_factor_value(name, value)


def _errors(points: Sequence[ValidatedPoint]) -> HeldOutErrors:
    def end(value: float | None) -> float:
        return math.nan if value is None else value

    return held_out_errors(
        [one.predicted_bytes_per_s for one in points],
        [one.measured_bytes_per_s for one in points],
        [end(one.low_bytes_per_s) for one in points],
        [end(one.high_bytes_per_s) for one in points],
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
