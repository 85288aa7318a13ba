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
    """Copy files and trees, on this host and from and to servers of FTP, GridFTP and HTTP; whatever ended it, the same command goes on.

    Examples: `venturi copy -r data /mnt/copies/`, `venturi copy -r gsiftp://se.example:2811/data/run7 /scratch/`
    """
    engine = os.fspath(find_engine())
    # As they were typed: a parser takes `--` away, and what is after it may look like an option.
    os.execv(engine, [engine, *sys.argv[sys.argv.index("copy") :]])
