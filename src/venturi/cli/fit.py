"""``venturi fit``: functions through the curves of a run, their parameters, and what they predict."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group

from venturi.cli.options import RUNS, As, Runs
from venturi.cli.outcome import data, data_json
from venturi.errors import FitError, ScenarioError, UnitError
from venturi.run import Run, resolve_run
from venturi.scenario import Criterion
from venturi.scenario.families import FAMILY_NAMES
from venturi.scenario.words import one_of
from venturi.units import parse_bytes, parse_duration

__all__ = ["fit"]


def fit(
    run: Annotated[str, typer.Argument(help="Path or name of a run.")],
    against: Annotated[
        str | None, typer.Option(help="Only curves against this factor, such as files or size.")
    ] = None,
    family: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Only these families; repeatable: {', '.join(FAMILY_NAMES)}. Default: all that fit the kind of factor."
        ),
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
    from venturi.analysis import AnalyseOptions, analyse  # scipy: seconds that other commands need not wait for
    from venturi.cli.fitted import FittedCurve

    for name in family or ():
        if name not in (*FAMILY_NAMES, "all"):
            raise ScenarioError([("--family", one_of("the families", FAMILY_NAMES, name))], "fit")
    if at and against is None:
        raise ScenarioError([("--at", "say against which factor, such as --against files")], "fit")
    analysis = analyse(
        Run.open(resolve_run(run, runs)), AnalyseOptions(fits=False, against=None if against is None else (against,))
    )
    if not analysis.points:
        raise FitError(f"{run}: expected measured points, found none: {analysis.answer}")
    if not analysis.curves:
        named = "" if against is None else f" against {against}"
        varied = ", ".join(factor.name for factor in analysis.factors if factor.varied and factor.numeric) or "none"
        raise FitError(
            f"{run}: expected a curve{named}, found no such factor with several values; numeric factors that vary: {varied}"
        )
    where = [_quantity(text, analysis.curves[0].against) for text in at or ()]
    results = [
        FittedCurve.of(curve, family or ["all"], criterion, at=where, extrapolate=extrapolate, level=level)
        for curve in analysis.curves
    ]
    if as_json:
        data_json([result.as_json() for result in results])
    else:
        data(Group(*(result.shown() for result in results)))


def _quantity(text: str, factor: str) -> float:
    """Return a value of a factor in base units: sizes and times carry their unit, all else is a plain number."""
    try:
        if factor.endswith("_bytes"):
            return float(parse_bytes(text))
        return parse_duration(text) if factor.endswith("_s") else float(text)
    except UnitError as error:
        raise UnitError(f"--at: {error}") from None
    except ValueError:
        raise UnitError(f'--at: expected a number of {factor}, such as 12, found "{text}"') from None
