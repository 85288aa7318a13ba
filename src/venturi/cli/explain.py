"""``venturi explain``: what kept the transfers of a simulated run from being faster."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from venturi.cli.options import RUNS, As, Runs
from venturi.cli.outcome import data, data_json
from venturi.run import Run

__all__ = ["explain"]


def explain(
    run: Annotated[str, typer.Argument(help="Path or name of a run.")],
    trial: Annotated[str | None, typer.Argument(help="Only this trial, such as t0000012.")] = None,
    runs: Runs = RUNS,
    as_json: As = False,
) -> None:
    """Tell what kept the transfers of a simulated run from being faster: which links, disks, caps and parts of the set-up, for which share of their time.

    Example: `venturi explain alice-flat`
    """
    from venturi.analysis.explain import explain as explained  # numpy: a moment that other commands need not wait for
    from venturi.units import format_duration

    found = explained(Run.open(run, runs), trial)
    if as_json:
        data_json(asdict(found))
        return
    data(f"{found.transfers:,} transfers, {format_duration(found.time_s)} in all of them together")
    width = max(len(one.name) for one in found.shares)
    for one in found.shares:
        data(
            f"{one.name:{width}}  {100 * one.share:6.2f} %  {format_duration(one.time_s):>12}  {one.transfers:,} transfers"
        )
