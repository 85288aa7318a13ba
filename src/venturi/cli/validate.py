"""``venturi validate``: a run beside its simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from venturi.cli.options import RUNS, As, Runs
from venturi.cli.outcome import check_output, data, data_json, talk, writing
from venturi.cli.simulated import tell_simulated
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
    hold_out: Annotated[
        float,
        typer.Option(
            help="Compare only the points that `venturi calibrate` with this share and seed did not see; 0: all.",
            min=0.0,
            max=0.9,
        ),
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the choice of these points.", min=0)] = 1,
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

    Examples: `venturi validate my-lab --costs costs.toml -o validation`, `venturi validate my-lab --costs costs.toml --hold-out 0.5`
    """
    if output is not None:
        check_output(output, folder=True)
    from venturi import report as forms  # scipy and matplotlib: seconds that other commands need not wait for
    from venturi.calibration.chapters import validation_chapter
    from venturi.calibration.document import read_costs
    from venturi.calibration.plain import as_plain
    from venturi.calibration.validate import validate as compare

    run = Run.open(resolve_run(name, runs))
    tell_simulated([run])
    said = None if costs is None else read_costs(costs)
    name_of_costs = "" if costs is None else costs.name
    result = compare(run, said, costs=name_of_costs, hold_out=hold_out, seed=seed)
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
