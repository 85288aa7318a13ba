"""``venturi compare``: two runs side by side."""

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
    first: Annotated[str, typer.Argument(help="Path or name of a run: the one to compare with.")],
    second: Annotated[str, typer.Argument(help="Path or name of another run.")],
    margin: Annotated[
        float, typer.Option(help="Ratios this close to 1 count as equal: 0.05 is 5 %.", min=0.0, max=1.0)
    ] = 0.05,
    html: Annotated[Path | None, typer.Option(help="Write the comparison as an HTML page.", dir_okay=False)] = None,
    runs: Runs = RUNS,
    as_json: As = False,
) -> None:
    """Compare two runs point by point: ratios with intervals, and a verdict where the data allow one.

    Example: `venturi compare warm cold`
    """
    from venturi import report as forms  # scipy and matplotlib: seconds that other commands need not wait for
    from venturi.analysis import AnalyseOptions, analyse
    from venturi.analysis import compare as compare_analyses

    options = AnalyseOptions(fits=False)
    paths = [resolve_run(name, runs) for name in (first, second)]
    if paths[0].resolve() == paths[1].resolve():
        raise RunError(f"{first}, {second}: expected two runs, found {paths[0]} twice; give more of their names")
    a, b = (analyse(Run.open(path), options) for path in paths)
    comparison = compare_analyses(a, b, margin=margin)
    if as_json:
        typer.echo(forms.json(comparison))
    else:
        data(forms.terminal(comparison))
    if html is not None:
        with writing(html):
            html.write_text(forms.html(comparison), encoding="utf-8")
        talk(f"wrote {html}")
