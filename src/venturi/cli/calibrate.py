"""``venturi calibrate``: what transfers cost, estimated from runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from venturi.cli.options import RUNS, As, Runs
from venturi.cli.outcome import check_output, data, data_json, talk, writing
from venturi.cli.simulated import tell_simulated
from venturi.run import Run, resolve_run

__all__ = ["calibrate"]


def calibrate(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...", help="Paths or names of runs on one testbed, carried out in the lab or on hosts."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write the costs here, for a scenario to include: costs.toml.", dir_okay=False
        ),
    ] = None,
    hold_out: Annotated[
        float,
        typer.Option(
            help="Share of the points that the fit does not see, and that its errors are told of.", min=0.0, max=0.9
        ),
    ] = 0.5,
    seed: Annotated[int, typer.Option(help="Of the choice of these points.", min=0)] = 1,
    runs: Runs = RUNS,
    as_json: As = False,
) -> None:
    """Estimate what transfers cost besides bytes on links from runs, and say how well that foretells points it has not seen.

    The plans of the runs are simulated with one set of costs after another until their times agree. What the runs cannot tell
    keeps its default, and is named.

    Examples: `venturi calibrate my-lab -o costs.toml`, and then `include = ["costs.toml"]` in a scenario
    """
    if output is not None:
        check_output(output)
    from venturi import calibration  # scipy and matplotlib: seconds that other commands need not wait for
    from venturi import report as forms
    from venturi.calibration.chapters import calibration_chapter
    from venturi.calibration.document import costs_text
    from venturi.calibration.plain import as_plain

    opened = [Run.open(path) for path in dict.fromkeys(resolve_run(name, runs) for name in names)]
    tell_simulated(opened)
    show = _count if sys.stderr.isatty() and not as_json else None
    result = calibration.calibrate(opened, hold_out=hold_out, seed=seed, on_progress=show)
    if as_json:
        data_json(as_plain(result))
    else:
        data(forms.single_terminal(calibration_chapter(result)))
    if output is not None:
        with writing(output):
            output.write_text(costs_text(result), encoding="utf-8")
        talk(f"wrote {output}")


def _count(done: int) -> None:
    """Show on one line of the terminal how many simulations are done."""
    sys.stderr.write(f"\r{done} simulations\033[K\r")
    sys.stderr.flush()
