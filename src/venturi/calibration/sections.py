"""Report sections of a calibration and a validation: tables and figures as plain data."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence

import numpy as np

from venturi.analysis.format import format_factor_name, format_factor_value, plural
from venturi.analysis.section import Column, Figure, Panel, ReportSection, Scalar, Series, Table
from venturi.calibration.calibrate import errors_of
from venturi.calibration.fit_validation_section import error_columns, error_row, holds_sentence
from venturi.calibration.format import value_text
from venturi.calibration.result import (
    Calibration,
    CalibrationPoint,
    Errors,
    Estimated,
    Predicted,
    TransferComparison,
    Validation,
)
from venturi.model.held_out import LEVEL

__all__ = ["GOOD_MEDIAN", "GOOD_P90", "calibration_section", "validation_section"]

GOOD_MEDIAN, GOOD_P90 = 0.10, 0.25
"""Largest relative errors of a good prediction (issue 5, *Truth*)."""
WORST = 10
"""Maximum number of listed transfers."""
MOST_DRAWN = 2000
MOST_GROUPS = 12


def calibration_section(result: Calibration) -> ReportSection:
    """Return the report section of a calibration."""
    return ReportSection(
        name="calibration",
        title="Calibration",
        sentence=_calibrated(result),
        tables=(*_parameters(result), _summary(result), _predictions(result)),
        figures=_figures(
            "calibration",
            {
                "fitted": [p for p in result.points if not p.held_out],
                "held out": [p for p in result.points if p.held_out],
            },
        ),
        note=f"{plural(result.simulations, 'simulation')} in {result.took_s:.3g} s. Intervals: {100 * result.level:g} %, {result.method}, n = {result.fitted.n}.",
    )


def validation_section(result: Validation) -> ReportSection:
    """Return the report section of a validation."""
    with_costs = f"costs of {result.costs}" if result.costs else "the costs of the plan, else defaults"
    left_out = (
        f" Not compared: {plural(result.left_out, 'transfer')} without success or without a simulated counterpart."
        if result.left_out
        else ""
    )
    return ReportSection(
        name="validation",
        title="Simulation compared with the measurement",
        sentence=f"{holds_sentence(result.holds, result.rule)} {_verdict(result.of_points, result.floor, 'held out' if result.hold_out else '')} {_against_naive(result.of_points, result.naive)}",
        tables=(_validated(result), _held_out(result), *_groups(result), _worst(result), _predictions(result)),
        figures=_figures("validation", {"points": list(result.points)}, result.transfers),
        note=f"With {with_costs}.{left_out}",
    )


def _calibrated(result: Calibration) -> str:
    estimated = [one for one in result.parameters if one.state == "estimated"]
    looked = [one for one in result.parameters if one.state != "no effect"]
    start = (
        f"Estimated: {len(estimated)} of {plural(len(looked), 'parameter')} with an effect on these times,"
        f" from {plural(result.fitted.n, 'point')}."
    )
    if not result.held_out.n:
        return f"{start} No point was held out, so the errors of predictions for other points are unknown."
    return f"{start} {_verdict(result.held_out, result.floor, 'held out')} {_against_naive(result.held_out, result.naive)}"


def _verdict(errors: Errors, floor: Errors, which: str = "") -> str:
    """Return a sentence with the errors, and whether they are good or as small as the measurement allows."""
    if errors.median is None or errors.p90 is None:
        return "No point could be compared."
    sentence = (
        f"For {plural(errors.n, 'point')}{f' {which}' if which else ''}, the error of the simulated time is {_percent(errors.median)}"
        f" in the median and {_percent(errors.p90)} at the 90th percentile"
    )
    if errors.median <= GOOD_MEDIAN and errors.p90 <= GOOD_P90:
        return f"{sentence}, a good prediction (at most {_percent(GOOD_MEDIAN)} and {_percent(GOOD_P90)})."
    if floor.median is None or floor.p90 is None:
        return f"{sentence}."
    perfect = f"a perfect model would have {_percent(floor.median)} and {_percent(floor.p90)}, because trials vary"
    return (
        f"{sentence}, more than for a good prediction ({_percent(GOOD_MEDIAN)} and {_percent(GOOD_P90)}); {perfect}."
    )


def _against_naive(errors: Errors, naive: Errors) -> str:
    if naive.median is None or naive.p90 is None or errors.median is None:
        return "There is no naive estimate, because no link has a known rate."
    return f"The naive estimate (bytes / slowest link + RTT) has {_percent(naive.median)} and {_percent(naive.p90)}."


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.3g} %"


def _parameters(result: Calibration) -> tuple[Table, Table]:
    estimated = tuple(
        (
            one.parameter,
            one.of,
            value_text(one.parameter, one.value),
            _interval(one),
            value_text(one.parameter, one.default),
        )
        for one in result.parameters
        if one.state == "estimated"
    )
    others = tuple(
        (one.parameter, one.of, _why(one), value_text(one.parameter, one.default))
        for one in result.parameters
        if one.state not in ("estimated", "no effect")
    )
    without = [one.name for one in result.parameters if one.state == "no effect"]
    identity = (Column("parameter", "Parameter"), Column("of", "Of"))
    return (
        Table(
            "calibration-parameters",
            "Estimated parameters",
            (*identity, Column("value", "Value"), Column("interval", "Interval"), Column("default", "Default")),
            estimated,
        ),
        Table(
            "calibration-not-identified",
            "Parameters that were not estimated",
            (*identity, Column("why", "Why"), Column("default", "Default")),
            others,
            note=f"No effect on these times: {', '.join(without)}." if without else "",
        ),
    )


def _interval(one: Estimated) -> str:
    low, high = (value_text(one.parameter, end) for end in (one.low, one.high))
    return f"{low} to {high}"


def _why(one: Estimated) -> str:
    if one.state == "not told apart":
        return f"indistinguishable from {one.partner} (correlation {one.correlation:.2f})"
    if one.state == "moved":
        return f"set to {value_text(one.parameter, one.value)}, because the times contradict the default; its error is unknown"
    return "too uncertain"


_ERRORS = (
    Column("of", "Of"),
    Column("points", "Points"),
    Column("median_ratio", "Median error"),
    Column("p90_ratio", "90th percentile"),
)


def _errors_row(name: str, errors: Errors) -> tuple[Scalar, ...]:
    return name, errors.n, errors.median, errors.p90


def _summary(result: Calibration) -> Table:
    rows = (
        _errors_row("simulated, points held out", result.held_out),
        _errors_row("simulated, points of the fit", result.fitted),
        _errors_row("simulated with defaults", result.defaults),
        _errors_row("bytes / slowest link + RTT", result.naive),
        _errors_row("perfect model, from the scatter of trials", result.floor),
        _errors_row("one trial, from the others of its point", result.repeatability),
    )
    return Table(
        "calibration-errors",
        "Relative errors of times",
        _ERRORS,
        tuple(row for row in rows if row[1]),
        note="The errors of the defaults and of the naive estimate are those of the points held out."
        if result.held_out.n
        else "",
    )


def _validated(result: Validation) -> Table:
    rows = (
        _errors_row("simulated, points", result.of_points),
        _errors_row("simulated, single transfers", result.of_transfers),
        _errors_row("simulated with defaults, points", result.defaults),
        _errors_row("bytes / slowest link + RTT, points", result.naive),
        _errors_row("perfect model, from the scatter of trials", result.floor),
        _errors_row("one trial, from the others of its point", result.repeatability),
    )
    return Table("validation-errors", "Relative errors of times", _ERRORS, tuple(row for row in rows if row[1]))


def _held_out(result: Validation) -> Table:
    return Table(
        "validation-verdict",
        "Bias and intervals of simulated times",
        error_columns(LEVEL),
        (error_row("points held out" if result.hold_out else "points", result.errors),),
    )


def _predictions(result: Calibration | Validation) -> Table:
    calibrated = isinstance(result, Calibration)
    varied = _varied([one.point for one in result.points])
    rows: list[tuple[Scalar, ...]] = []
    for one in sorted(result.points, key=lambda one: (one.point.run, one.point.point)):
        point = one.point
        error = None if one.calibrated_s is None else one.calibrated_s / point.time_s - 1
        row: tuple[Scalar, ...] = (_words(point, varied), point.trials, point.time_s, one.calibrated_s, error)
        row += (one.defaults_s, one.naive_s, "held out" if one.held_out else "fit") if calibrated else (one.naive_s,)
        rows.append(row)
    columns = (
        Column("point", "Point"),
        Column("trials", "Trials"),
        Column("measured_s", "Measured"),
        Column("simulated_s", "Simulated"),
        Column("error_ratio", "Error"),
        *((Column("defaults_s", "With defaults"),) if calibrated else ()),
        Column("naive_s", "Naive"),
        *((Column("used", "Used for"),) if calibrated else ()),
    )
    timed = any(one.point.timed for one in result.points)
    name = "calibration" if calibrated else "validation"
    return Table(
        f"{name}-points",
        "Points",
        columns,
        tuple(rows),
        note="For tools that run for a set time, times are per byte." if timed else "",
    )


def _words(point: CalibrationPoint, varied: Container[str]) -> str:
    sentence = [
        f"{format_factor_name(name)} {format_factor_value(name, value)}"
        for name, value in point.factors.items()
        if name in varied
    ]
    return ", ".join(sentence) if sentence else point.call


def _varied(points: Sequence[CalibrationPoint]) -> set[str]:
    """Return the factors that have more than one value."""
    values: dict[str, tuple[str, ...]] = {}
    for name in dict.fromkeys(name for point in points for name in point.factors):
        values[name] = tuple(str(point.factors.get(name)) for point in points)
    return {name for name, of_name in values.items() if len(set(of_name)) > 1}


def _groups(result: Validation) -> Iterable[Table]:
    """Yield the errors of points grouped by each property that varies."""
    by: tuple[tuple[str, str, Callable[[CalibrationPoint], Scalar]], ...] = (
        ("mover", "Mover", lambda point: point.mover),
        ("size_bytes", "Transfer size", lambda point: None if point.timed else float(f"{point.bytes:.3g}")),
        ("rtt_s", "Round-trip time", lambda point: point.rtt_s),
        ("together", "Concurrent transfers", lambda point: point.together),
    )
    for name, title, value in by:
        values = {value(one.point) for one in result.points}
        if not 1 < len(values) <= MOST_GROUPS:
            continue
        ordered = sorted(values, key=lambda v: (v is not None, isinstance(v, str), v if v is not None else 0))
        rows = tuple(
            (v, e.n, e.median, e.p90)
            for v in ordered
            for e in [errors_of((o.calibrated_s, o.point.time_s) for o in result.points if value(o.point) == v)]
        )
        yield Table(
            f"validation-by-{name.split('_')[0]}",
            f"Relative errors of points by {title.lower()}",
            (Column(name, title), *_ERRORS[1:]),
            rows,
        )


def _worst(result: Validation) -> Table:
    worst = sorted(result.transfers, key=lambda one: -abs(np.log(one.simulated_s / one.measured_s)))[:WORST]
    varied = _varied([one.point for one in result.points])
    rows = tuple(
        (
            _words(one.point, varied),
            one.bottleneck or "unknown",
            one.bottleneck_fraction,
            one.measured_s,
            one.simulated_s,
            one.simulated_s / one.measured_s,
            one.trial,
            one.slot,
        )
        for one in worst
    )
    return Table(
        "validation-worst",
        "Transfers with the largest errors",
        (
            Column("point", "Point"),
            Column("bottleneck", "Bottleneck"),
            Column("bound_ratio", "Fraction of its time"),
            Column("measured_s", "Measured"),
            Column("simulated_s", "Simulated"),
            Column("of_measured", "Simulated / measured"),
            Column("trial", "Trial"),
            Column("slot", "Slot"),
        ),
        rows,
        note="The bottleneck is the likely cause. If the simulated time is too short, the bottleneck or another resource is slower than in the model. If it is too long, the limit of the bottleneck is too low.",
    )


def _figures(
    name: str, groups: dict[str, list[Predicted]], transfers: Sequence[TransferComparison] = ()
) -> tuple[Figure, ...]:
    drawn = {title: [p for p in points if p.calibrated_s] for title, points in groups.items()}
    every = [p for points in drawn.values() for p in points]
    if not every:
        return ()
    times = [p.point.time_s for p in every] + [t.measured_s for t in transfers]
    ends = (min(times), max(times))
    scatter = [Series("equal", ends, ends)]
    if transfers:
        some = transfers[:: max(1, len(transfers) // MOST_DRAWN)]
        scatter.append(
            Series("transfers", tuple(t.measured_s for t in some), tuple(t.simulated_s for t in some), style="points")
        )
    scatter += [
        Series(title, tuple(p.point.time_s for p in points), tuple(p.calibrated_s for p in points), style="points")
        for title, points in drawn.items()
        if points
    ]
    curves = [
        _distribution(title, ((p.calibrated_s, p.point.time_s) for p in points)) for title, points in drawn.items()
    ]
    curves.append(_distribution("naive", ((p.naive_s, p.point.time_s) for p in every)))
    return (
        Figure(
            "scatter",
            "Simulated and measured times",
            (Panel("Times", "measured_s", "simulated_s", tuple(scatter), x_log=True, y_log=True, round_x=True),),
            "Times of transfers and medians of points. Both are equal on the line.",
        ),
        Figure(
            "errors",
            "Distribution of relative errors",
            (Panel("Errors", "error_ratio", "share_ratio", tuple(c for c in curves if c.x), round_x=True),),
            "Fraction of points with at most this error.",
        ),
    )


def _distribution(name: str, pairs: Iterable[tuple[float | None, float]]) -> Series:
    errors = sorted(abs(predicted_s - time) / time for predicted_s, time in pairs if predicted_s is not None)
    fractions = tuple((index + 1) / len(errors) for index in range(len(errors)))
    return Series(name, tuple(errors), fractions, style="steps")
