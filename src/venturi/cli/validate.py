"""``venturi validate``: a run beside its simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from venturi.cli.options import RUNS, As, Runs
from venturi.cli.outcome import data, data_json, talk, writing
from venturi.run import Run, resolve_run

__all__ = ["validate"]


def validate(
    name: Annotated[
        str, typer.Argument(metavar="RUN", help="Path or name of a run, carried out in the lab or on hosts.")
    ],
    costs: Annotated[
        Path | None,
        typer.Option(
            help="A file of costs, as `venturi calibrate` writes it, in place of what the plan says.", dir_okay=False
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write page, tables (CSV) and figures (PNG) into this directory.", file_okay=False
        ),
    ] = None,
    runs: Runs = RUNS,
    as_json: As = False,
) -> None:
    """Simulate the plan of a run, and say transfer by transfer how far that is from what was measured.

    Beside it stands the naive estimate, bytes over the slowest link and a round trip, and what trials of a point differ by among
    themselves.

    Example: `venturi validate my-lab --costs costs.toml -o validation`
    """
    from venturi import report as forms  # scipy and matplotlib: seconds that other commands need not wait for
    from venturi.calibration.chapters import validation_chapter
    from venturi.calibration.document import read_costs
    from venturi.calibration.plain import as_plain
    from venturi.calibration.validate import validate as compare

    run = Run.open(resolve_run(name, runs))
    said = None if costs is None else read_costs(costs)
    result = compare(run, said, costs="" if costs is None else costs.name)
    chapter = validation_chapter(result)
    if as_json:
        data_json(as_plain(result))
    else:
        data(forms.single_terminal(chapter))
    if output is not None:
        with writing(output):
            written = forms.write_single(chapter, result.run, output)
        for path in written:
            talk(f"wrote {path}")
