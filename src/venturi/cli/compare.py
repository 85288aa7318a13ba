"""``venturi compare``: runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from venturi.cli.options import RUNS, As, Runs
from venturi.cli.outcome import data, talk, writing
from venturi.errors import RunError
from venturi.run import Run, resolve_run

__all__ = ["compare"]


def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...", help="Paths or names of two runs or more; the first is the one to compare with."
        ),
    ],
    margin: Annotated[
        float, typer.Option(help="Of two runs: ratios this close to 1 count as equal: 0.05 is 5 %.", min=0.0, max=1.0)
    ] = 0.05,
    html: Annotated[Path | None, typer.Option(help="Write the comparison as an HTML page.", dir_okay=False)] = None,
    runs: Runs = RUNS,
    as_json: As = False,
) -> None:
    """Compare two runs point by point, or the totals of several: what each change of protocol or path costs.

    Two runs: ratios with intervals, and a verdict where the data allow one. Three or more: a table of totals, each over
    the points that all runs have.

    Example: `venturi compare warm cold`
    """
    from venturi import report as forms  # scipy and matplotlib: seconds that other commands need not wait for
    from venturi.analysis import AnalyseOptions, Comparison, Scenarios, analyse, compare_scenarios
    from venturi.analysis import compare as compare_analyses

    options = AnalyseOptions(fits=False)
    paths = _different([resolve_run(name, runs) for name in names])
    analyses = [analyse(Run.open(path), options) for path in paths]
    result: Comparison | Scenarios
    result = compare_analyses(*analyses, margin=margin) if len(analyses) == 2 else compare_scenarios(analyses)
    if as_json:
        typer.echo(forms.json(result))
    else:
        data(forms.terminal(result))
    if html is not None:
        with writing(html):
            html.write_text(forms.html(result), encoding="utf-8")
        talk(f"wrote {html}")


def _different(paths: list[Path]) -> list[Path]:
    if len(paths) < 2:
        raise RunError(f"expected two runs or more to compare, found {paths[0]} alone; `ls` the runs for others")
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise RunError(f"expected different runs, found {path} twice; give more of their names")
        seen.add(path.resolve())
    return paths
