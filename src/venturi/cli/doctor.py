"""``venturi doctor``: list available features, missing programs, and how to install them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from venturi.backend import find_engine
from venturi.cli.options import default_scratch
from venturi.cli.outcome import Exit, print_data, print_json
from venturi.testbed import Check, examine

__all__ = ["doctor"]

_SIGNS = {"ok": "ok     ", "limited": "limited", "missing": "MISSING"}
_GROUPS = {
    "needed": "Required",
    "tools": "Tools",
    "lab": "Lab: testbeds emulated on this machine",
    "truth": "Accuracy of measurements",
}


def doctor(
    scratch: Annotated[Path | None, typer.Option(help="Directory for datasets and destinations.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
) -> None:
    """Check this machine: list available features, missing programs, and how to install them.

    The checks run the real programs and change nothing. Exit code 1 if a requirement of all commands is missing.

    Example: `venturi doctor --scratch /data/scratch`
    """
    checks = list(examine(scratch or default_scratch(), find_engine))
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        for group, title in _GROUPS.items():
            print_data(f"{title}:")
            for check in checks:
                if check.group == group:
                    print_data(_line(check))
            print_data("")
    if any(check.group == "needed" and check.state == "missing" for check in checks):
        raise typer.Exit(Exit.ERROR)


def _line(check: Check) -> str:
    advice = f"\n{'':12}→ {check.advice}" if check.advice else ""
    return f"  {_SIGNS[check.state]}  {check.name}: {check.found}{advice}"
