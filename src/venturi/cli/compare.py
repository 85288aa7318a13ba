"""``venturi compare``: compare runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from venturi.cli.options import RUNS, JsonFlag, Runs
from venturi.cli.outcome import print_data, print_status, report_write_errors
from venturi.errors import RunError
from venturi.run import Run, resolve_run

__all__ = ["compare"]


def compare(
    names: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Paths or names of two or more runs. The first is the reference."),
    ],
    margin: Annotated[
        float,
        typer.Option(
            help="For two runs: largest difference from a ratio of 1 that counts as equal. 0.05 is 5 %.",
            min=0.0,
            max=1.0,
        ),
    ] = 0.05,
    html: Annotated[Path | None, typer.Option(help="Write the comparison as an HTML page.", dir_okay=False)] = None,
    runs: Runs = RUNS,
    as_json: JsonFlag = False,
) -> None:
    """Compare two runs point by point, or the totals of three or more runs.

    For two runs, print ratios with confidence intervals, and a verdict if the data allow one. For three or more, print
    a table of totals over the points in all runs.

    Example: `venturi compare warm cold`
    """
    from venturi import report as forms  # scipy and matplotlib take seconds to import
    from venturi.analysis import AnalyseOptions, RunComparison, Scenarios, analyse, compare_scenarios
    from venturi.analysis import compare as compare_analyses

    options = AnalyseOptions(fits=False)
    paths = _different([resolve_run(name, runs) for name in names])
    analyses = [analyse(Run.open(path), options) for path in paths]
    result: RunComparison | Scenarios
    result = compare_analyses(*analyses, margin=margin) if len(analyses) == 2 else compare_scenarios(analyses)
    if as_json:
        typer.echo(forms.json(result))
    else:
        print_data(forms.terminal(result))
    if html is not None:
        with report_write_errors(html):
            html.write_text(forms.html(result), encoding="utf-8")
        print_status(f"wrote {html}")


def _different(paths: list[Path]) -> list[Path]:
    if len(paths) < 2:
        raise RunError(f"expected two or more runs to compare, found only {paths[0]}; name another run")
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise RunError(f"expected different runs, found {path} twice; name two different runs")
        seen.add(path.resolve())
    return paths
