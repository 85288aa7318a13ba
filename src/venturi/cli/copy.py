"""``venturi copy``: replace this process with the engine, which copies the files."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from venturi.backend import find_engine

__all__ = ["CONTEXT_SETTINGS", "copy"]

CONTEXT_SETTINGS = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}
"""The engine parses all arguments, `--help` included."""


def copy(
    _arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[OPTIONS] SRC... DST",
            help="Options, sources and destination: see `venturi copy --help` and the page *Copy files*.",
        ),
    ] = None,
) -> None:
    """Copy files and directories on this host, or to and from FTP, GridFTP and HTTP servers.

    To resume an interrupted copy, run the same command again.

    Examples: `venturi copy -r data /mnt/copies/`, `venturi copy -r gsiftp://se.example:2811/data/run7 /scratch/`
    """
    engine = os.fspath(find_engine())
    # The arguments as typed: a parser removes `--`, and an argument after it can look like an option.
    os.execv(engine, [engine, *sys.argv[sys.argv.index("copy") :]])
