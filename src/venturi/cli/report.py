"""``venturi report``: the answer of a run.

What needs scipy and matplotlib is imported where it is used: both take seconds that other commands need not wait for.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from venturi.cli.options import RUNS, As, Runs
from venturi.cli.outcome import data, talk, writing
from venturi.errors import RunError
from venturi.run import Run, resolve_run

if TYPE_CHECKING:
    from venturi.analysis import Analysis

__all__ = ["report", "show_report"]

PAGE = "report.html"


def report(
    run: Annotated[
        str, typer.Argument(help="Path or name of a run, or the beginning of its name (the newest one wins).")
    ],
    html: Annotated[
        Path | None, typer.Option(help=f"Write the page here instead of {PAGE} in the run.", dir_okay=False)
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Write the tables as CSV into this directory.", file_okay=False)
    ] = None,
    png: Annotated[
        Path | None, typer.Option(help="Write the figures as PNG into this directory.", file_okay=False)
    ] = None,
    confidence: Annotated[
        float | None, typer.Option(help="Level of the intervals, such as 0.95.", min=0.5, max=0.9999)
    ] = None,
    runs: Runs = RUNS,
    as_json: As = False,
) -> None:
    """Say what a run found: one sentence, then the evidence, on the terminal and as one HTML page that opens offline.

    Works on finished, stopped and even growing runs, and says which it is.

    Example: `venturi report my-disk --csv tables --png figures`
    """
    from venturi import report as forms

    opened = Run.open(resolve_run(run, runs))
    analysis = show_report(opened, confidence=confidence, html=html, as_json=as_json)
    for directory, write in ((csv, forms.csv), (png, forms.png)):
        if directory is not None:
            with writing(directory):
                written = write(analysis, directory)
            for path in written:
                talk(f"wrote {path}")


def show_report(
    run: Run, *, confidence: float | None = None, html: Path | None = None, as_json: bool = False
) -> Analysis:
    """Analyse a run, print the answer, write the page, and return the analysis.

    With ``as_json`` the page is written only where ``html`` says so.
    """
    from venturi import report as forms
    from venturi.analysis import AnalyseOptions, analyse

    analysis = analyse(run, AnalyseOptions(confidence=confidence))
    if as_json:
        typer.echo(forms.json(analysis))
    else:
        data(forms.terminal(analysis))
    if html is not None or not as_json:
        talk(f"report: {_write_page(analysis, run, html)}")
    return analysis


def _write_page(analysis: Analysis, run: Run, path: Path | None = None) -> Path:
    """Write the page of a run and return where it is.

    Raises
    ------
    RunError
        If it cannot be written; the message names another way.
    """
    from venturi import report as forms

    target = path or run.path / PAGE
    try:
        target.write_text(forms.html(analysis), encoding="utf-8")
    except OSError as error:
        raise RunError(
            f"{target}: the page cannot be written: {error.strerror}; give another place with --html"
        ) from error
    return target
