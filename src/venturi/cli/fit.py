"""``venturi fit``: functions through the curves of a run, their parameters, and what they predict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from venturi.analysis import AnalyseOptions, Criterion, Curve, analyse, chosen_families, rank_curve
from venturi.cli.options import RUNS, As, Runs
from venturi.cli.outcome import data, data_json
from venturi.errors import FitError, ScenarioError
from venturi.model import Fit, Interval, Ranking, profile
from venturi.run import Run, resolve_run
from venturi.units import format_bytes, format_rate, parse_bytes

__all__ = ["fit"]


def fit(
    run: Annotated[str, typer.Argument(help="Path or name of a run.")],
    against: Annotated[
        str | None, typer.Option(help="Only curves against this factor, such as files or size.")
    ] = None,
    family: Annotated[
        list[str] | None,
        typer.Option(help="Only these families; repeatable. Default: all that fit the kind of factor."),
    ] = None,
    criterion: Annotated[Criterion, typer.Option(help="What ranks them.")] = "aicc",
    at: Annotated[
        list[str] | None,
        typer.Option(help="Predict the rate here, such as 12 or '50 MB'; repeatable. Needs --against."),
    ] = None,
    extrapolate: Annotated[
        bool, typer.Option("--extrapolate", help="Allow --at outside the measured range.")
    ] = False,
    level: Annotated[float, typer.Option(help="Level of the intervals.", min=0.5, max=0.9999)] = 0.95,
    runs: Runs = RUNS,
    as_json: As = False,
) -> None:
    """Fit functions to the curves of a run and rank them.

    Each curve is throughput per file against one factor, the others held. The best function is printed with profile-likelihood intervals of its parameters.
    A function says where it holds: outside the measured range a prediction is refused unless --extrapolate is given, and is marked then.

    Example: `venturi fit my-disk --against files --at 8`
    """
    if at and against is None:
        raise ScenarioError([("--at", "say against which factor, such as --against files")], "venturi fit")
    analysis = analyse(
        Run.open(resolve_run(run, runs)), AnalyseOptions(fits=False, against=None if against is None else (against,))
    )
    if not analysis.curves:
        named = "" if against is None else f" against {against}"
        varied = ", ".join(factor.name for factor in analysis.factors if factor.varied and factor.numeric) or "none"
        raise FitError(
            f"{run}: expected a curve{named}, found no such factor with several values; numeric factors that vary: {varied}"
        )
    where = [_quantity(text) for text in at or ()]
    results = []
    for curve in analysis.curves:
        ranking = rank_curve(curve, chosen_families(family or ("all",), curve.against), criterion)
        results.append(_Result(curve, ranking, _intervals(ranking, level), where, extrapolate, level))
    if as_json:
        data_json([_as_json(result) for result in results])
    else:
        data(Group(*(_shown(result) for result in results)))


class _Result:
    """One curve with its ranking, the intervals of its best fit, and the predictions asked for."""

    def __init__(
        self,
        curve: Curve,
        ranking: Ranking,
        intervals: dict[str, Interval],
        at: Sequence[float],
        extrapolate: bool,
        level: float,
    ) -> None:
        self.curve = curve
        self.ranking = ranking
        self.intervals = intervals
        self.predictions = ranking.best.predict(list(at), level=level, extrapolate=extrapolate) if at else None

    @property
    def best(self) -> Fit:
        return self.ranking.best


def _quantity(text: str) -> float:
    """Return a plain number, or a size in bytes."""
    try:
        return float(text)
    except ValueError:
        return float(parse_bytes(text))


def _intervals(ranking: Ranking, level: float) -> dict[str, Interval]:
    best = ranking.best
    if best.degrees_of_freedom == 0 and not best.sigma_is_absolute:
        return {}
    return profile(best, level=level)


def _title(curve: Curve) -> str:
    others = ", ".join(
        f"{name.removesuffix('_bytes')} {format_bytes(value) if name.endswith('_bytes') and isinstance(value, int | float) else value}"
        for name, value in curve.others.items()
    )
    return f"throughput per file against {curve.against.removesuffix('_bytes')}" + (f"; {others}" if others else "")


def _shown(result: _Result) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("family", "formula", "R²", "adjusted", "AICc", result.ranking.criterion):
        table.add_column(column, justify="left" if column in ("family", "formula") else "right")
    for entry in result.ranking.entries:
        good = entry.fit.goodness
        table.add_row(
            entry.fit.family.name, Text(entry.fit.family.formula), _number(good.r_squared), _number(good.r_squared_adjusted),
            _number(good.aicc), _number(entry.score),
        )  # fmt: skip
    lines = [f"best: {result.best.family.name}, {result.best.family.formula}, fitted to {len(result.curve.x)} points"]
    for name, value in result.best.parameters.items():
        interval = result.intervals.get(name)
        between = (
            f"  [{interval.low:.4g}, {interval.high:.4g}] at {interval.level:g}, profile likelihood"
            if interval
            else "  no interval: as many parameters as points"
        )
        lines.append(f"  {name} = {value:.6g}{between}")
    lines += [f"  warning: {warning}" for warning in result.best.warnings]
    lines += [f"  not fitted: {refusal.family.name}: {refusal.reason}" for refusal in result.ranking.refused]
    predictions = result.predictions
    if predictions is not None:
        for x, value, low, high, outside in zip(
            predictions.x, predictions.value, predictions.low, predictions.high, predictions.extrapolated, strict=True
        ):
            mark = "  EXTRAPOLATED" if outside else ""
            lines.append(f"  at {x:g}: {format_rate(value)} [{format_rate(low)}, {format_rate(high)}]{mark}")
    return Group(Text(_title(result.curve), style="bold"), table, Text("\n".join(lines) + "\n"))


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "–"


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _as_json(result: _Result) -> dict[str, Any]:
    predictions = result.predictions
    return {
        "against": result.curve.against,
        "others": dict(result.curve.others),
        "x": list(result.curve.x),
        "throughput_bytes_per_s": list(result.curve.y_bytes_per_s),
        "criterion": result.ranking.criterion,
        "fits": [
            {
                "family": entry.fit.family.name,
                "formula": entry.fit.family.formula,
                "parameters": {name: _plain(value) for name, value in entry.fit.parameters.items()},
                "standard_errors": {name: _plain(value) for name, value in entry.fit.standard_errors.items()},
                "r2": _plain(entry.fit.goodness.r_squared),
                "adjusted_r2": _plain(entry.fit.goodness.r_squared_adjusted),
                "aicc": _plain(entry.fit.goodness.aicc),
                "score": _plain(entry.score),
                "warnings": list(entry.fit.warnings),
            }
            for entry in result.ranking.entries
        ],
        "best_intervals": {
            name: {"low": _plain(interval.low), "high": _plain(interval.high), "level": interval.level, "method": "profile likelihood"}
            for name, interval in result.intervals.items()
        },
        "predictions": []
        if predictions is None
        else [
            {"x": float(x), "throughput_bytes_per_s": _plain(v), "low": _plain(lo), "high": _plain(hi), "extrapolated": bool(e)}
            for x, v, lo, hi, e in zip(*predictions[:4], predictions.extrapolated, strict=True)
        ],
    }  # fmt: skip
