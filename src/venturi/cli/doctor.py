"""``venturi doctor``: what this machine can do, what is missing, and how to get it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from venturi.backend import find_engine
from venturi.cli.options import default_scratch
from venturi.cli.outcome import Exit, data, data_json
from venturi.testbed import Check, examine

__all__ = ["doctor"]

_SIGNS = {"ok": "ok     ", "limited": "limited", "missing": "MISSING"}
_GROUPS = {
    "needed": "Needed for anything",
    "tools": "Tools",
    "lab": "The lab: testbeds made on this machine",
    "truth": "How true a measurement can be",
}


def doctor(
    scratch: Annotated[Path | None, typer.Option(help="Directory for data sets and destinations.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
) -> None:
    """Say what this machine can do, what is missing, and how to get it.

    Tries the real things and changes nothing. Exit code 1 if something is missing without which nothing works.

    Example: `venturi doctor --scratch /data/scratch`
    """
    checks = list(examine(scratch or default_scratch(), find_engine))
    if as_json:
        data_json([asdict(check) for check in checks])
    else:
        for group, title in _GROUPS.items():
            data(f"{title}:")
            for check in checks:
                if check.group == group:
                    data(_line(check))
            data("")
    if any(check.group == "needed" and check.state == "missing" for check in checks):
        raise typer.Exit(Exit.ERROR)


def _line(check: Check) -> str:
    advice = f"\n{'':12}→ {check.advice}" if check.advice else ""
    return f"  {_SIGNS[check.state]}  {check.name}: {check.found}{advice}"
