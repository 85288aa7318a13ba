"""``venturi copy``: hands over to the engine, which moves the bytes."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from venturi.backend import find_engine

__all__ = ["CONTEXT_SETTINGS", "copy"]

CONTEXT_SETTINGS = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}
"""All words are the engine's, `--help` too."""


def copy(
    _words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[OPTIONS] SRC... DST", help="As `venturi copy --help` says; page *Copy files*."),
    ] = None,
) -> None:
    """Copy files and trees, as fast as storage and memory allow; whatever ended a copy, the same command goes on where it was.

    Example: `venturi copy -r data /mnt/copies/`
    """
    engine = os.fspath(find_engine())
    # As they were typed: a parser takes `--` away, and what is after it may look like an option.
    os.execv(engine, [engine, *sys.argv[sys.argv.index("copy") :]])
