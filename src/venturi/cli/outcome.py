"""Exit codes and output of commands."""

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

__all__ = ["Exit", "check_output", "print_data", "print_json", "print_status", "report_write_errors"]


class Exit(IntEnum):
    """Exit codes of every command."""

    OK = 0
    ERROR = 1
    """The command failed. The message names the location, the problem and the next step."""
    USAGE = 2
    """Invalid command line; see ``--help``."""
    FAILED_TRANSFERS = 3
    """Finished, but some transfers failed. The run and the report list them with their reasons."""
    STOPPED = 130
    """Interrupted by Ctrl-C or a signal. The last line shows how to resume."""


_FILE_WIDTH = 1000
"""Columns for a file or a pipe, wide enough not to cut a table."""


def _width() -> int | None:
    return None if sys.stdout.isatty() or os.environ.get("COLUMNS") else _FILE_WIDTH


# Without emoji: print text such as "root:x:0" unchanged.
_stdout = Console(file=sys.stdout, highlight=False, soft_wrap=True, emoji=False, width=_width())
_stderr = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def print_data(content: RenderableType) -> None:
    """Print a result (text or something rich can draw) to stdout."""
    _stdout.print(content, markup=False)


def print_json(content: object) -> None:
    """Print a result as one JSON document to stdout. Reject NaN, which is not JSON."""
    sys.stdout.write(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def print_status(text: str = "") -> None:
    """Print a message to stderr."""
    _stderr.print(text, markup=False)


def check_output(output: Path, *, directory: bool = False) -> None:
    """Check that a file or directory is writable before a long computation of its content.

    Raises
    ------
    RunError
        With the path, the reason and the next step.
    """
    from venturi.testbed import obstacle  # takes a moment to import

    where = output if directory else output.parent
    problem = obstacle(where) if directory or where.is_dir() else f"directory {where} does not exist"
    if problem:
        raise RunError(f"{output}: {problem}; choose another path")


@contextmanager
def report_write_errors(path: Path) -> Iterator[None]:
    """Turn errors of writing a file or directory into a message.

    Raises
    ------
    RunError
        With the path, the reason and the next step.
    """
    try:
        yield
    except RunError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunError(f"{path}: cannot write: {reason}; choose another path") from error
