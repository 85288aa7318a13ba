"""How a command ends, and where it talks."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

from rich.console import Console, RenderableType

from venturi.errors import RunError

__all__ = ["Exit", "data", "data_json", "talk", "writing"]


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


_WIDE = 1000
"""Columns of a file or a pipe, which has no edge to cut a table at."""


def _width() -> int | None:
    return None if sys.stdout.isatty() or os.environ.get("COLUMNS") else _WIDE


_stdout = Console(file=sys.stdout, highlight=False, soft_wrap=True, width=_width())
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


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what keeps a file or folder from being written into a message.

    Raises
    ------
    RunError
        With the place, the reason, and what to do.
    """
    try:
        yield
    except RunError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunError(f"{path}: expected a place that can be written to: {reason}; give another") from error
