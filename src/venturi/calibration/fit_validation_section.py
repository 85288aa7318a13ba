"""Report section of fitted curves that were compared with a run: tables and figures as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from venturi.analysis.format import format_factor_name, format_factor_value, plural
from venturi.analysis.section import Column, Figure, Panel, ReportSection, Scalar, Series, Table
from venturi.calibration.fit_validation import FitValidation, ValidatedCurve, ValidatedPoint
from venturi.model import HeldOutErrors, Holds

__all__ = ["error_columns", "error_row", "fit_validation_section", "holds_sentence"]

VERDICTS: Mapping[Holds, str] = {
    "yes": "The model holds on this run",
    "no": "The model does not hold on this run",
    "unknown": "Whether the model holds on this run is unknown",
}
MOST_PANELS = 6
"""Maximum number of drawn curves."""
WIDE_RANGE = 20.0
"""Ratio of the largest to the smallest x from which the axis is logarithmic."""


def holds_sentence(holds: Holds, rule: str) -> str:
    """Return the verdict with its rule as a sentence.

    Examples
    --------
    >>> holds_sentence("no", "3 of 9 measurements lie in their 90 % intervals")
    'The model does not hold on this run: 3 of 9 measurements lie in their 90 % intervals.'
    """
    return f"{VERDICTS[holds]}: {rule}."


def error_columns(level: float) -> tuple[Column, ...]:
    """Return the columns of `error_row`. ``level`` is the probability of the prediction intervals."""
    return (
        Column("of", "Of"),
        Column("predictions", "Points"),
        Column("median_ratio", "Median error"),
        Column("p90_ratio", "90th percentile"),
        Column("bias_ratio", "Bias"),
        Column("coverage_ratio", f"In {100 * level:g} % interval"),
    )


def error_row(name: str, errors: HeldOutErrors) -> tuple[Scalar, ...]:
    """Return a row of a table of errors."""
    return name, errors.n, errors.median, errors.p90, errors.bias, errors.coverage


def fit_validation_section(result: FitValidation) -> ReportSection:
    """Return the report section of fitted curves that were compared with a run."""
    return ReportSection(
        name="fit-validation",
        title="Fitted functions compared with another run",
        sentence=_sentence(result),
        tables=_tables(result),
        figures=_figures(result),
        note=_note(result),
    )


def _sentence(result: FitValidation) -> str:
    errors = result.errors
    found = holds_sentence(result.holds, result.rule)
    if errors.median is None or errors.p90 is None or errors.bias is None:
        return found
    of = f"{found} Errors of {plural(errors.n, 'prediction')} in the fitted range: median {_percent(errors.median)}, 90th percentile {_percent(errors.p90)}, bias {_signed(errors.bias)}."
    if not errors.intervals:
        return f"{of} The fits have no prediction intervals, because they have as many parameters as points."
    return f"{of} {errors.inside} of {errors.intervals} measurements lie in their {100 * result.level:g} % prediction intervals."


def _note(result: FitValidation) -> str:
    notes = [f"Fitted to {result.fitted_run} ({result.fit})."]
    if result.left_out:
        notes.append(f"{plural(result.left_out, 'point')} of the run are on no fitted curve.")
    if result.simulated != result.fitted_simulated:
        one, other = ("simulated", "measured") if result.fitted_simulated else ("measured", "simulated")
        notes.append(f"The fitted times were {one}, and the times of this run are {other}.")
    on_many = len(result.points) - len({one.point for one in result.points})
    if on_many:
        notes.append("A point on several curves has one prediction for each.")
    for curve in result.curves:
        notes += [f"{curve.family} against {format_factor_name(curve.against)}: {text}." for text in curve.warnings]
    return " ".join(dict.fromkeys(notes))


def _tables(result: FitValidation) -> tuple[Table, ...]:
    totals = [error_row("all, in the fitted range", result.errors)]
    if result.errors_extrapolated.n:
        totals.append(error_row("all, extrapolated", result.errors_extrapolated))
    totals += (
        [error_row(_title(result, curve), curve.errors) for curve in result.curves] if len(result.curves) > 1 else []
    )
    inside = [one for one in result.points if not one.extrapolated]
    outside = [one for one in result.points if one.extrapolated]
    functions = Table(
        "fit-validation-functions",
        "Fitted functions",
        (
            Column("curve", "Curve"),
            Column("family", "Family"),
            Column("formula", "Formula"),
            Column("range", "Fitted range"),
            Column("predictions", "Predictions"),
            Column("extrapolated", "Extrapolated"),
        ),
        tuple(
            (_title(result, curve), curve.family, curve.formula, _range(curve), curve.errors.n, curve.extrapolated)
            for curve in result.curves
        ),
    )
    extrapolated = (
        (
            _points(
                result,
                "fit-validation-extrapolated",
                "Extrapolated points",
                outside,
                "Outside of the fitted range. They do not count for the verdict.",
            ),
        )
        if outside
        else ()
    )
    return (
        Table("fit-validation-errors", "Relative errors of rates", error_columns(result.level), tuple(totals)),
        functions,
        _points(result, "fit-validation-points", "Points in the fitted range", inside, ""),
        *extrapolated,
    )


def _points(result: FitValidation, name: str, title: str, points: Sequence[ValidatedPoint], note: str) -> Table:
    varied = _varied(result.points)
    many = len({curve.against for curve in result.curves}) > 1
    rows = tuple(
        (
            *((format_factor_name(result.curves[one.curve].against),) if many else ()),
            ", ".join(
                f"{format_factor_name(key)} {format_factor_value(key, value)}"
                for key, value in one.factors.items()
                if key in varied
            )
            or f"point {one.point}",
            one.measured_bytes_per_s,
            one.predicted_bytes_per_s,
            one.error_ratio,
            None if one.inside is None else "inside" if one.inside else "outside",
            one.low_bytes_per_s,
            one.high_bytes_per_s,
        )
        for one in points
    )
    columns = (
        *((Column("against", "Against"),) if many else ()),
        Column("point", "Point"),
        Column("measured_bytes_per_s", "Measured"),
        Column("predicted_bytes_per_s", "Predicted"),
        Column("error_ratio", "Error"),
        Column("interval", "Interval"),
        Column("low_bytes_per_s", "From"),
        Column("high_bytes_per_s", "To"),
    )
    return Table(name, title, columns, rows, note)


def _figures(result: FitValidation) -> tuple[Figure, ...]:
    panels: list[Panel] = []
    for number, curve in enumerate(result.curves):
        points = sorted((one for one in result.points if one.curve == number), key=lambda one: one.x)
        if points and len(panels) < MOST_PANELS:
            panels.append(_panel(result, curve, points))
    return (
        Figure(
            "fit-validation",
            "Predicted and measured rates",
            tuple(panels),
            f"Throughput per file. Intervals: {100 * result.level:g} % for new measurements.",
        ),
    )


def _panel(result: FitValidation, curve: ValidatedCurve, points: Sequence[ValidatedPoint]) -> Panel:
    series = []
    for name, chosen in (
        ("predicted", [one for one in points if not one.extrapolated]),
        ("extrapolated", [one for one in points if one.extrapolated]),
    ):
        if chosen:
            bounded = all(one.low_bytes_per_s is not None and one.high_bytes_per_s is not None for one in chosen)
            series.append(
                Series(
                    name,
                    tuple(one.x for one in chosen),
                    tuple(one.predicted_bytes_per_s for one in chosen),
                    tuple(one.low_bytes_per_s for one in chosen) if bounded else (),
                    tuple(one.high_bytes_per_s for one in chosen) if bounded else (),
                    style="points",
                )
            )
    series.append(
        Series(
            "measured",
            tuple(one.x for one in points),
            tuple(one.measured_bytes_per_s for one in points),
            style="points",
        )
    )
    low, high = points[0].x, points[-1].x
    wide = low > 0 and math.isfinite(high) and high / low >= WIDE_RANGE
    return Panel(_title(result, curve), curve.against, "throughput_bytes_per_s", tuple(series), x_log=wide)


def _title(result: FitValidation, curve: ValidatedCurve) -> str:
    values: dict[str, set[str]] = {}
    for one in result.curves:
        for key, value in one.others.items():
            values.setdefault(key, set()).add(str(value))
    others = ", ".join(
        f"{format_factor_name(key)} {format_factor_value(key, value)}"
        for key, value in curve.others.items()
        if len(values[key]) > 1
    )
    return f"against {format_factor_name(curve.against)}" + (f"; {others}" if others else "")


def _range(curve: ValidatedCurve) -> str:
    low, high = (format_factor_value(curve.against, end) for end in curve.x_range)
    return f"{low} to {high}"


def _varied(points: Sequence[ValidatedPoint]) -> set[str]:
    values: dict[str, set[str]] = {}
    for one in points:
        for key, value in one.factors.items():
            values.setdefault(key, set()).add(str(value))
    return {key for key, found in values.items() if len(found) > 1}


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.3g} %"


def _signed(fraction: float) -> str:
    return f"{100 * fraction:+.3g} %"
