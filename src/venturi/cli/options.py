"""Options that several commands share, in one wording."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["RUNS", "As", "Full", "KeepLogs", "On", "Runs", "Scratch", "Set", "default_scratch"]

RUNS = Path("runs")

Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a value of the scenario: `--set workload.repeat=20`. Repeatable."
    ),
]
Full = Annotated[
    bool,
    typer.Option(
        "--full", help="Of a study: the published parameters, not those that fit into a lab of one machine."
    ),
]
Scratch = Annotated[
    Path | None,
    typer.Option(
        help="Directory below which relative storage paths lie. Default: $VENTURI_SCRATCH, else scratch/ beside the runs; on other hosts ~/.cache/venturi/scratch.",
        file_okay=False,
    ),
]
Runs = Annotated[Path, typer.Option("--runs", help="Directory of the runs.", file_okay=False)]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        help="Who carries it out: hosts (this machine, others over SSH), lab (hosts, servers and network made on this machine)"
        " or sim (computed, in virtual time)."
        " Default: what the testbed needs; of a study, what it says.",
        show_default=False,
    ),
]
KeepLogs = Annotated[
    bool, typer.Option("--keep-logs", help="In the lab: keep the logs of servers with the run even if nothing fails.")
]
As = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]


def default_scratch(runs: Path = RUNS) -> Path:
    """Return the scratch directory of this machine where none is given: ``$VENTURI_SCRATCH``, else one beside the runs."""
    named = os.environ.get("VENTURI_SCRATCH")
    return Path(named) if named else runs / "scratch"
