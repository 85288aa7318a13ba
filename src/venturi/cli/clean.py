"""``venturi clean``: remove the remains of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from venturi.cli.options import RUNS, JsonFlag, Runs
from venturi.cli.outcome import Exit, print_data, print_json, print_status
from venturi.run import resolve_run

__all__ = ["clean"]


def clean(
    name: Annotated[
        str, typer.Argument(metavar="RUN", help="Path or name of a run, or of a result of `venturi measure`.")
    ],
    runs: Runs = RUNS,
    as_json: JsonFlag = False,
) -> None:
    """Remove the files that a killed run has left on existing servers and on its hosts.

    Venturi records each file on a server before it creates it, and removes only these files. On the
    hosts, it removes the destinations of the interrupted trials, and the session directories whose processes were killed.
    Datasets stay for the next run. The results of the run do not change.

    Example: `venturi clean sweep`
    """
    from venturi.backend.clean import clean_run  # pulls in asyncio and the connections
    from venturi.measure.leftovers import clean_measurement, has_leftovers

    measured = next((one for one in (Path(name), runs / name) if has_leftovers(one)), None)
    path = measured or resolve_run(name, runs)
    removed: list[str] = []

    def report(what: str) -> None:
        removed.append(what)
        if not as_json:
            print_data(f"removed {what}")

    problems = clean_run(path, report) if measured is None else clean_measurement(path, report)
    if as_json:
        print_json({"run": str(path), "removed": removed, "problems": problems})
    for problem in problems:
        print_status(f"venturi: {problem}")
    if problems:
        print_status(f"{path}: {len(problems)} problems; correct the causes, then run `venturi clean` again")
        raise typer.Exit(Exit.ERROR)
    if not removed:
        print_status(f"{path}: nothing to remove")
