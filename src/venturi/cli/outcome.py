"""How a command ends, and where it talks."""

from __future__ import annotations

import json
import sys
from enum import IntEnum

from rich.console import Console, RenderableType

__all__ = ["Exit", "data", "data_json", "talk"]


class Exit(IntEnum):
    """Exit codes of every command."""

    OK = 0
    ERROR = 1
    """Something expected was not found; the message says what, where, and what to do next."""
    USAGE = 2
    """The command's words are off; see ``--help``."""
    FAILED_TRANSFERS = 3
    """Carried out to the end, but some transfers failed; the run and the report say which and why."""
    STOPPED = 130
    """Stopped by Ctrl-C or a signal; the last line says how to resume."""


_stdout = Console(file=sys.stdout, highlight=False, soft_wrap=True)
_stderr = Console(stderr=True, highlight=False, soft_wrap=True)


def data(content: RenderableType) -> None:
    """Print a result (text or something rich can draw) to stdout."""
    _stdout.print(content, markup=False)


def data_json(content: object) -> None:
    """Print a result as one JSON document to stdout; NaN is refused, for it is not JSON."""
    sys.stdout.write(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def talk(text: str = "") -> None:
    """Say something to the person at the terminal, on stderr."""
    _stderr.print(text, markup=False)
