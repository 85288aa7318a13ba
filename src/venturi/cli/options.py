"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from venturi.errors import UnitError

__all__ = [
    "RUNS",
    "Full",
    "Hosts",
    "JsonFlag",
    "KeepLogs",
    "On",
    "Portable",
    "Runs",
    "Scale",
    "Scratch",
    "Set",
    "Yes",
    "default_scratch",
    "option_quantity",
]

RUNS = Path("runs")
_T = TypeVar("_T")

Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a value of the scenario: `--set workload.repeat=20`. Repeatable."
    ),
]
Scale = Annotated[
    str | None,
    typer.Option(
        metavar="FACTOR",
        help="Factor for all sizes, and for the rates of a lab: a number, or `auto` for the largest one that fits on this machine.",
        show_default=False,
    ),
]
Full = Annotated[
    bool,
    typer.Option("--full", help="Use the published parameters of a study, not the reduced ones for one machine."),
]
Portable = Annotated[
    bool,
    typer.Option(
        "--portable",
        help="Use the variant of a study that all backends run: the same plan for hosts, lab and sim.",
    ),
]
Scratch = Annotated[
    Path | None,
    typer.Option(
        help="Base directory of relative storage paths. Default: $VENTURI_SCRATCH, or scratch/ in the directory of the runs; on other hosts ~/.cache/venturi/scratch.",
        file_okay=False,
    ),
]
Hosts = Annotated[
    Path | None,
    typer.Option(
        "--hosts",
        metavar="FILE",
        help='TOML file with one line per host: `a = { ssh = "alice@dtn1", path = "/data/alice" }`.'
        " Keys: ssh, connect, path, address, open_ports, cache, environment. The run keeps a copy.",
        dir_okay=False,
        show_default=False,
    ),
]
Runs = Annotated[Path, typer.Option("--runs", help="Directory of the runs.", file_okay=False)]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        help="Backend: hosts, lab or sim."
        " Default: the backend of the study; lab if needed and no host has ssh or connect; hosts otherwise.",
        show_default=False,
    ),
]
KeepLogs = Annotated[
    bool, typer.Option("--keep-logs", help="Keep the server logs of a lab with the run, even if no transfer fails.")
]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes", "-y", help="Agree to the first contact with the remote hosts and existing servers of the scenario."
    ),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]


def default_scratch(runs: Path = RUNS) -> Path:
    """Return the default scratch directory of this machine: ``$VENTURI_SCRATCH``, else ``scratch`` in the directory of the runs."""
    path = os.environ.get("VENTURI_SCRATCH")
    return Path(path) if path else runs / "scratch"


def option_quantity(option: str, text: str, parse: Callable[[str], _T]) -> _T:
    """Return the quantity of an option. An error names the option.

    Raises
    ------
    UnitError
        If the text is not valid.

    Examples
    --------
    >>> from venturi.units import parse_bytes
    >>> option_quantity("--size", "1 GB", parse_bytes)
    1000000000
    """
    try:
        return parse(text)
    except UnitError as error:
        raise UnitError(f"{option}: {error}") from error
