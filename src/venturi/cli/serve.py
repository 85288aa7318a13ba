"""``venturi serve``: hands over to the engine, which serves."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from venturi.backend import find_engine

__all__ = ["CONTEXT_SETTINGS", "serve"]

CONTEXT_SETTINGS = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}
"""All words are the engine's, `--help` too."""


def serve(
    _words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[OPTIONS] DIR", help="As `venturi serve --help` says; page *Serve files*."),
    ] = None,
) -> None:
    """Serve a directory over FTP, GridFTP, HTTP and WebDAV, to read and when asked to write; nothing outside of it can be reached.

    Example: `venturi serve /data`
    """
    engine = os.fspath(find_engine())
    # As they were typed: a parser takes `--` away, and what is after it may look like an option.
    os.execv(engine, [engine, *sys.argv[sys.argv.index("serve") :]])
