"""Options that several commands share, in one wording."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["RUNS", "As", "Runs", "Scratch", "Set", "default_scratch"]

RUNS = Path("runs")

Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a value of the scenario: `--set workload.repeat=20`. Repeatable."
    ),
]
Scratch = Annotated[
    Path | None,
    typer.Option(
        help="Directory below which relative storage paths lie. Default: $VENTURI_SCRATCH, else ~/.cache/venturi/scratch.",
        file_okay=False,
    ),
]
Runs = Annotated[Path, typer.Option("--runs", help="Directory of the runs.", file_okay=False)]
As = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]


def default_scratch() -> Path:
    """Return the scratch directory where none is given: ``$VENTURI_SCRATCH``, else one in the user's cache."""
    named = os.environ.get("VENTURI_SCRATCH")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "venturi" / "scratch"
