"""``venturi fit``: fit functions to the curves of a run, and predict rates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group

from venturi.cli.options import RUNS, JsonFlag, Runs
from venturi.cli.outcome import check_output, print_data, print_json, print_status, report_write_errors
from venturi.errors import FitError, ScenarioError, UnitError
from venturi.messages import one_of
from venturi.run import Run, resolve_run
from venturi.scenario import Criterion
from venturi.scenario.families import FAMILY_NAMES
from venturi.units import parse_bytes, parse_duration

__all__ = ["fit"]


def fit(
    run: Annotated[str, typer.Argument(help="Path or name of a run.")],
    against: Annotated[
        str | None, typer.Option(help="Fit only curves against this factor, such as files or size.")
    ] = None,
    family: Annotated[
        list[str] | None,
        typer.Option(help="Fit only this family; repeatable. Default: all families for the kind of factor."),
    ] = None,
    criterion: Annotated[Criterion, typer.Option(help="Criterion that ranks the fits.")] = "aicc",
    at: Annotated[
        list[str] | None,
        typer.Option(
            help="Value of the factor to predict the rate at, such as 12 or '50 MB'; repeatable. Needs --against."
        ),
    ] = None,
    extrapolate: Annotated[
        bool, typer.Option("--extrapolate", help="Allow --at outside the measured range.")
    ] = False,
    level: Annotated[float, typer.Option(help="Level of the confidence intervals.", min=0.5, max=0.9999)] = 0.95,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="JSON file for the fitted curves, for `venturi validate`.", dir_okay=False
        ),
    ] = None,
    runs: Runs = RUNS,
    as_json: JsonFlag = False,
) -> None:
    """Fit functions to the curves of a run and rank them.

    Each curve is throughput per file against one factor, with the other factors fixed. Venturi prints the best function
    with profile-likelihood intervals of its parameters. A prediction outside the measured range needs --extrapolate, and
    the output marks it.

    The families are linear, quadratic, cubic, power, power-constant, exponential, exponential-constant, exponential-sum,
    exponential-difference, gaussian and gaussian-2; and setup, share, share-capped, window, saturating, overload,
    loss-mathis, loss-pftk, rtt-mathis and rtt-pftk.

    Examples: `venturi fit my-disk --against files --at 8`, `venturi fit my-disk -o fit.json`
    """
    if output is not None:
        check_output(output)
    from venturi.analysis import AnalyseOptions, analyse  # scipy takes seconds to import
    from venturi.calibration.fit_document import fit_document
    from venturi.cli.fitted import FittedCurve

    for name in family or ():
        if name not in (*FAMILY_NAMES, "all"):
            raise ScenarioError([("--family", one_of("the families", FAMILY_NAMES, name))], "fit")
    if at and against is None:
        raise ScenarioError(
            [("--at", "expected --against, found none; name a factor, such as --against files")], "fit"
        )
    fitted = Run.open(resolve_run(run, runs))
    analysis = analyse(fitted, AnalyseOptions(fits=False, against=None if against is None else (against,)))
    if not analysis.points:
        raise FitError(f"{run}: expected measured points, found none: {analysis.conclusion}")
    if not analysis.curves:
        named = "" if against is None else f" against {against}"
        varied = ", ".join(factor.name for factor in analysis.factors if factor.varied and factor.numeric) or "none"
        raise FitError(
            f"{run}: expected a curve{named}, found no numeric factor with several values; numeric factors that vary: {varied}"
        )
    positions = [_parse_quantity(text, analysis.curves[0].against) for text in at or ()]
    results = [
        FittedCurve.fit(curve, family or ["all"], criterion, at=positions, extrapolate=extrapolate, level=level)
        for curve in analysis.curves
    ]
    document = fit_document(fitted, [result.as_json() for result in results])
    if as_json:
        print_json(document)
    else:
        print_data(Group(*(result.render() for result in results)))
    if output is not None:
        with report_write_errors(output):
            output.write_text(
                json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
            )
        print_status(f"wrote {output}")


def _parse_quantity(text: str, factor: str) -> float:
    """Return a value of a factor in base units. Sizes and times need a unit; other values are plain numbers."""
    try:
        if factor.endswith("_bytes"):
            return float(parse_bytes(text))
        return parse_duration(text) if factor.endswith("_s") else float(text)
    except UnitError as error:
        raise UnitError(f"--at: {error}") from None
    except ValueError:
        raise UnitError(f'--at: expected a number of {factor}, such as 12, found "{text}"') from None
