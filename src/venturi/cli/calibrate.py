"""``venturi calibrate``: estimate the costs of transfers from runs."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Annotated

import typer

from venturi.cli.options import RUNS, JsonFlag, Runs
from venturi.cli.outcome import check_output, print_data, print_json, print_status, report_write_errors
from venturi.cli.simulated import print_simulated
from venturi.errors import MeasureError
from venturi.run import Run, resolve_run

__all__ = ["calibrate"]


def calibrate(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Paths or names of runs on one testbed, from the lab or from hosts; or one result of `venturi measure`.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write the costs to this file, such as costs.toml, for `include` in a scenario.",
            dir_okay=False,
        ),
    ] = None,
    hold_out: Annotated[
        float,
        typer.Option(
            help="Fraction of the points that the fit leaves out, to compute its errors from.", min=0.0, max=0.9
        ),
    ] = 0.5,
    seed: Annotated[int, typer.Option(help="Seed that selects these points.", min=0)] = 1,
    runs: Runs = RUNS,
    as_json: JsonFlag = False,
) -> None:
    """Estimate fixed costs of transfers from runs, and test the estimate on points that the fit leaves out.

    Venturi simulates the plans of the runs and adjusts the costs until the times agree. Costs that the runs do not
    determine keep their default, and the result names them.

    From a result of `venturi measure`, write a testbed for the simulator instead: its link and its storages have the measured
    rates.

    Examples: `venturi calibrate my-lab -o costs.toml`, and then `include = ["costs.toml"]` in a scenario
    """
    if output is not None:
        check_output(output)
    if (measurement := _measurement(names, runs)) is not None:
        _write_testbed(measurement, output, as_json=as_json)
        return
    from venturi import calibration  # scipy and matplotlib take seconds to import
    from venturi import report as forms
    from venturi.calibration.document import costs_text
    from venturi.calibration.sections import calibration_section
    from venturi.calibration.to_json import as_plain

    opened = [Run.open(path) for path in dict.fromkeys(resolve_run(name, runs) for name in names)]
    print_simulated(opened)
    show = _count if sys.stderr.isatty() and not as_json else None
    result = calibration.calibrate(opened, hold_out=hold_out, seed=seed, on_progress=show)
    if as_json:
        print_json(as_plain(result))
    else:
        print_data(forms.single_terminal(calibration_section(result)))
    if output is not None:
        with report_write_errors(output):
            output.write_text(costs_text(result), encoding="utf-8")
        print_status(f"wrote {output}")


def _measurement(names: list[str], runs: Path) -> Path | None:
    """Return the directory of a measurement; None for runs."""
    from venturi.measure.simulation import is_measurement

    found = [path for name in names for path in (Path(name), runs / name) if is_measurement(path)]
    if found and len(names) > 1:
        raise MeasureError(
            f"{found[0]}: expected one result of venturi measure alone, found {len(names)} names; calibrate each alone"
        )
    return found[0] if found else None


def _write_testbed(path: Path, output: Path | None, *, as_json: bool) -> None:
    from venturi.measure.simulation import simulation_text

    text = simulation_text(path)
    if as_json:
        print_json(tomllib.loads(text))
    elif output is None:
        print_data(text.rstrip("\n"))
    if output is not None:
        with report_write_errors(output):
            output.write_text(text, encoding="utf-8")
        print_status(f"wrote {output}; simulate it with: venturi run {output} --on sim")


def _count(done: int) -> None:
    """Show the number of finished simulations on one line of the terminal."""
    sys.stderr.write(f"\r{done} simulations\033[K\r")
    sys.stderr.flush()
