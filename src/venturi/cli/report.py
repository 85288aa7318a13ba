"""``venturi report``: report the results of a run.

Functions import scipy and matplotlib only when they need them, because the imports take seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from venturi.cli.options import RUNS, JsonFlag, Runs
from venturi.cli.outcome import print_data, print_status, report_write_errors
from venturi.errors import RunError
from venturi.run import Run, resolve_run

if TYPE_CHECKING:
    from venturi.analysis import Analysis

__all__ = ["report", "show_report"]

PAGE = "report.html"


def report(
    run: Annotated[str, typer.Argument(help="Path or name of a run, or the start of its name (selects the newest).")],
    html: Annotated[
        Path | None,
        typer.Option(help=f"File for the HTML page. Default: {PAGE} in the run directory.", dir_okay=False),
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Directory for the tables as CSV.", file_okay=False)] = None,
    png: Annotated[Path | None, typer.Option(help="Directory for the figures as PNG.", file_okay=False)] = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            help="Level of the confidence intervals, such as 0.95. Default: the level of the scenario, or 0.95.",
            min=0.5,
            max=0.9999,
        ),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Print all sections and tables, not one screen.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="First show a run that another process makes, until it ends.")
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="With --follow, also serve a page on this machine that shows the run.")
    ] = False,
    runs: Runs = RUNS,
    as_json: JsonFlag = False,
) -> None:
    """Report the results of a run, on the terminal and as one HTML page that opens offline.

    The terminal shows one screen: the answer, the points, the findings and the next step. The page has the figures and
    all tables; --full prints the tables. Runs can be complete, interrupted or in progress.

    --follow shows phase, rate, share done and time left of a run in progress, then its report. Ctrl-C ends only the view.
    If the controller was killed, the command reports it and ends with exit code 1.

    Example: `venturi report my-disk --csv tables --png figures`
    """
    from venturi import report as forms

    if live and not follow:
        raise RunError("--live: expected --follow, found none; add --follow, or use `venturi run --live`")
    path = resolve_run(run, runs)
    if follow:
        from venturi.cli.live import follow_run

        follow_run(path, live=live, quiet=as_json)
    opened = Run.open(path)
    analysis = show_report(opened, confidence=confidence, html=html, as_json=as_json, full=full)
    for directory, write in ((csv, forms.csv), (png, forms.png)):
        if directory is not None:
            with report_write_errors(directory):
                written = write(analysis, directory)
            for path in written:
                print_status(f"wrote {path}")


def show_report(
    run: Run, *, confidence: float | None = None, html: Path | None = None, as_json: bool = False, full: bool = False
) -> Analysis:
    """Analyse a run, print the results, write the page, and return the analysis.

    With ``as_json``, write the page only if ``html`` is set. With ``full``, print all sections instead of one screen.
    """
    from venturi import report as forms
    from venturi.analysis import AnalyseOptions, analyse

    analysis = analyse(run, AnalyseOptions(confidence=confidence))
    if as_json:
        typer.echo(forms.json(analysis))
    else:
        print_data(forms.terminal(analysis, full=full))
    if html is not None or not as_json:
        print_status(f"report: {_write_page(analysis, run, html)}")
    return analysis


def _write_page(analysis: Analysis, run: Run, path: Path | None = None) -> Path:
    """Write the page of a run and return its path.

    Raises
    ------
    RunError
        If the page cannot be written. The message names an alternative.
    """
    from venturi import report as forms

    target = path or run.path / PAGE
    try:
        target.write_text(forms.html(analysis), encoding="utf-8")
    except OSError as error:
        raise RunError(
            f"{target}: cannot write the page: {error.strerror}; choose another file with --html"
        ) from error
    return target
