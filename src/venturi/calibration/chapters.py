"""A calibration and a validation as chapters of a report: tables and figures as plain data."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence

import numpy as np

from venturi.analysis.chapter import Chapter, Column, Figure, Panel, Scalar, Series, Table
from venturi.analysis.words import factor_name, factor_value, plural
from venturi.calibration.calibrate import errors_of
from venturi.calibration.result import Calibration, Errors, Estimated, Point, Predicted, Transfer, Validation
from venturi.calibration.words import value_text

__all__ = ["GOOD_MEDIAN", "GOOD_P90", "calibration_chapter", "validation_chapter"]

GOOD_MEDIAN, GOOD_P90 = 0.10, 0.25
"""Relative errors up to which a simulation counts as a good prediction (issue 5, *Truth*)."""
WORST = 10
"""Transfers that are named."""
MOST_DRAWN = 2000
MOST_GROUPS = 12


def calibration_chapter(result: Calibration) -> Chapter:
    """Return what a calibration has to say."""
    return Chapter(
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


def validation_chapter(result: Validation) -> Chapter:
    """Return what a validation has to say."""
    with_costs = f"costs of {result.costs}" if result.costs else "the costs of the plan, else defaults"
    left_out = (
        f" {plural(result.left_out, 'transfer')} failed, or had no simulated one: not compared."
        if result.left_out
        else ""
    )
    return Chapter(
        name="validation",
        title="Simulated beside measured",
        sentence=f"{_verdict(result.of_points, result.floor, 'held out' if result.hold_out else '')} {_beside_naive(result.of_points, result.naive)}",
        tables=(_validated(result), *_groups(result), _worst(result), _predictions(result)),
        figures=_figures("validation", {"points": list(result.points)}, result.transfers),
        note=f"With {with_costs}.{left_out}",
    )


def _calibrated(result: Calibration) -> str:
    estimated = [one for one in result.parameters if one.state == "estimated"]
    looked = [one for one in result.parameters if one.state != "no effect"]
    begin = (
        f"{plural(len(estimated), 'parameter')} of {len(looked)} that matter here were estimated"
        f" from {plural(result.fitted.n, 'point')}."
    )
    if not result.held_out.n:
        return f"{begin} No point was held out, so nothing says how well others are foretold."
    return f"{begin} {_verdict(result.held_out, result.repeatability, 'held out')} {_beside_naive(result.held_out, result.naive)}"


def _verdict(errors: Errors, floor: Errors, which: str = "") -> str:
    """Return what the errors come to, and whether that is good, or as good as the measurement itself."""
    if errors.median is None or errors.p90 is None:
        return "No point could be compared."
    told = (
        f"Of {plural(errors.n, 'point')}{f' {which}' if which else ''} the simulated time is off by {_percent(errors.median)}"
        f" in the median and {_percent(errors.p90)} at the 90th percentile"
    )
    if errors.median <= GOOD_MEDIAN and errors.p90 <= GOOD_P90:
        return f"{told}: a good prediction (at most {_percent(GOOD_MEDIAN)} and {_percent(GOOD_P90)})."
    if floor.median is None or floor.p90 is None:
        return f"{told}."
    perfect = f"a perfect model would show {_percent(floor.median)} and {_percent(floor.p90)}, as trials scatter"
    return f"{told}: more than a good prediction ({_percent(GOOD_MEDIAN)} and {_percent(GOOD_P90)}); {perfect}."


def _beside_naive(errors: Errors, naive: Errors) -> str:
    if naive.median is None or naive.p90 is None or errors.median is None:
        return "There is no link whose rate is known, so no naive estimate."
    return f"Bytes over the slowest link, and a round trip: {_percent(naive.median)} and {_percent(naive.p90)}."


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


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
    what = (Column("parameter", "Parameter"), Column("of", "Of"))
    return (
        Table(
            "calibration-parameters",
            "Parameters that the runs tell",
            (*what, Column("value", "Value"), Column("interval", "Interval"), Column("default", "Default")),
            estimated,
        ),
        Table(
            "calibration-not-identified",
            "Parameters that they do not tell; they keep their defaults",
            (*what, Column("why", "Why"), Column("default", "Default")),
            others,
            note=f"Without an effect on these times: {', '.join(without)}." if without else "",
        ),
    )


def _interval(one: Estimated) -> str:
    low, high = (value_text(one.parameter, end) for end in (one.low, one.high))
    return f"{low} to {high}"


def _why(one: Estimated) -> str:
    if one.state == "not told apart":
        return f"has the effect of {one.partner} (correlation {one.correlation:.2f})"
    if one.state == "moved":
        return f"set to {value_text(one.parameter, one.value)}, as the times contradict its default; they do not tell it better"
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
        _errors_row("a perfect model, by the scatter of trials", result.floor),
        _errors_row("a trial, from the others of its point", result.repeatability),
    )
    return Table(
        "calibration-errors",
        "Relative errors of times",
        _ERRORS,
        tuple(row for row in rows if row[1]),
        note="Defaults and the naive estimate: on the points held out." if result.held_out.n else "",
    )


def _validated(result: Validation) -> Table:
    rows = (
        _errors_row("simulated, points", result.of_points),
        _errors_row("simulated, single transfers", result.of_transfers),
        _errors_row("simulated with defaults, points", result.defaults),
        _errors_row("bytes / slowest link + RTT, points", result.naive),
        _errors_row("a perfect model, by the scatter of trials", result.floor),
        _errors_row("a trial, from the others of its point", result.repeatability),
    )
    return Table("validation-errors", "Relative errors of times", _ERRORS, tuple(row for row in rows if row[1]))


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
        note="Of tools that run for a set time: time of a byte." if timed else "",
    )


def _words(point: Point, varied: Container[str]) -> str:
    told = [
        f"{factor_name(name)} {factor_value(name, value)}" for name, value in point.factors.items() if name in varied
    ]
    return ", ".join(told) if told else point.call


def _varied(points: Sequence[Point]) -> set[str]:
    """Return the factors that do not have one value everywhere."""
    values: dict[str, tuple[str, ...]] = {}
    for name in dict.fromkeys(name for point in points for name in point.factors):
        values[name] = tuple(str(point.factors.get(name)) for point in points)
    return {name for name, of_name in values.items() if len(set(of_name)) > 1}


def _groups(result: Validation) -> Iterable[Table]:
    """Yield the errors of points by what they differ in, where they do."""
    by: tuple[tuple[str, str, Callable[[Point], Scalar]], ...] = (
        ("mover", "Mover", lambda point: point.mover),
        ("size_bytes", "Bytes of a transfer", lambda point: None if point.timed else float(f"{point.bytes:.3g}")),
        ("rtt_s", "Round-trip time", lambda point: point.rtt_s),
        ("together", "Transfers at a time", lambda point: point.together),
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
            one.bound or "not told",
            one.bound_share,
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
        "Transfers that are farthest off",
        (
            Column("point", "Point"),
            Column("bound", "Bound by"),
            Column("bound_ratio", "Of its time"),
            Column("measured_s", "Measured"),
            Column("simulated_s", "Simulated"),
            Column("of_measured", "Simulated / measured"),
            Column("trial", "Trial"),
            Column("slot", "Slot"),
        ),
        rows,
        note="Likely cause: what bounded the simulated transfer most. Where it is too short, that takes longer in truth, or something else does; where it is too long, that bound is too tight.",
    )


def _figures(name: str, groups: dict[str, list[Predicted]], transfers: Sequence[Transfer] = ()) -> tuple[Figure, ...]:
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
            "Simulated against measured times",
            (Panel("Times", "measured_s", "simulated_s", tuple(scatter), x_log=True, y_log=True, round_x=True),),
            "Times of transfers, medians of points; on the line both are equal.",
        ),
        Figure(
            "errors",
            "Distribution of relative errors",
            (Panel("Errors", "error_ratio", "share_ratio", tuple(c for c in curves if c.x), round_x=True),),
            "Share of points whose error is at most so much.",
        ),
    )


def _distribution(name: str, pairs: Iterable[tuple[float | None, float]]) -> Series:
    errors = sorted(abs(foretold - time) / time for foretold, time in pairs if foretold is not None)
    shares = tuple((place + 1) / len(errors) for place in range(len(errors)))
    return Series(name, tuple(errors), shares, style="steps")
