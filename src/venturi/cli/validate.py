"""``venturi validate``: compare a run with its simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from venturi.cli.options import RUNS, JsonFlag, Runs
from venturi.cli.outcome import check_output, print_data, print_json, print_status, report_write_errors
from venturi.cli.simulated import print_simulated
from venturi.run import Run, resolve_run

__all__ = ["validate"]


def validate(
    name: Annotated[str, typer.Argument(metavar="RUN", help="Path or name of a run from the lab or from hosts.")],
    costs: Annotated[
        Path | None,
        typer.Option(help="Costs file from `venturi calibrate` that replaces the costs of the plan.", dir_okay=False),
    ] = None,
    hold_out: Annotated[
        float,
        typer.Option(
            help="Compare only the points that `venturi calibrate` left out with this fraction and seed; 0: all points.",
            min=0.0,
            max=0.9,
        ),
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed that selects these points.", min=0)] = 1,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Directory for the page, tables (CSV) and figures (PNG).", file_okay=False
        ),
    ] = None,
    runs: Runs = RUNS,
    as_json: JsonFlag = False,
) -> None:
    """Simulate the plan of a run and compare each transfer with its measurement.

    For reference, the result also has a naive estimate (bytes over the slowest link, and one round trip) and the
    differences between trials of the same point.

    Examples: `venturi validate my-lab --costs costs.toml -o validation`, `venturi validate my-lab --costs costs.toml --hold-out 0.5`
    """
    if output is not None:
        check_output(output, directory=True)
    from venturi import report as forms  # scipy and matplotlib take seconds to import
    from venturi.calibration.document import read_costs
    from venturi.calibration.sections import validation_section
    from venturi.calibration.to_json import as_plain
    from venturi.calibration.validate import validate as compare

    run = Run.open(resolve_run(name, runs))
    print_simulated([run])
    cost_table = None if costs is None else read_costs(costs)
    name_of_costs = "" if costs is None else costs.name
    result = compare(run, cost_table, costs=name_of_costs, hold_out=hold_out, seed=seed)
    section = validation_section(result)
    if as_json:
        print_json(as_plain(result))
    else:
        print_data(forms.single_terminal(section))
    if output is not None:
        with report_write_errors(output):
            written = forms.write_single(section, result.run, output)
        for path in written:
            print_status(f"wrote {path}")
