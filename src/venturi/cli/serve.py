"""``venturi serve``: replace this process with the engine, which serves the directory."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from venturi.backend import find_engine

__all__ = ["CONTEXT_SETTINGS", "serve"]

CONTEXT_SETTINGS = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}
"""The engine parses all arguments, `--help` included."""


def serve(
    _arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[OPTIONS] DIR",
            help="Options and directory: see `venturi serve --help` and the page *Serve files*.",
        ),
    ] = None,
) -> None:
    """Serve a directory over FTP, GridFTP, HTTP and WebDAV.

    By default, clients can only read. They cannot reach files outside the directory.

    Example: `venturi serve /data`
    """
    engine = os.fspath(find_engine())
    # The arguments as typed: a parser removes `--`, and an argument after it can look like an option.
    os.execv(engine, [engine, *sys.argv[sys.argv.index("serve") :]])
