"""Commands of ``venturi-root`` as functions: arguments to exit code and text."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from venturi.application.read import read
from venturi.application.serve import serve
from venturi.application.write import RootFileShape, write
from venturi.errors import VenturiError

__all__ = ["execute"]


class _UsageError(Exception):
    """Invalid command line."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _UsageError(f"{self.format_usage()}{message}\n")


def execute(arguments: Sequence[str]) -> tuple[int, str]:
    """Run a command and return its exit code and text.

    Examples
    --------
    >>> execute(["read"])[0]
    2
    """
    try:
        options = _parser().parse_args(arguments)
        run: Callable[[argparse.Namespace], str] = options.run
        return 0, run(options)
    except _UsageError as error:
        return 2, str(error)
    except (VenturiError, OSError) as error:
        return 1, f"{error}\n"


def _read(options: argparse.Namespace) -> str:
    return (
        json.dumps(read(options.url, rate_bytes_per_s=options.rate, compute_core_s=options.compute).detail()) + "\n"
    )


def _write(options: argparse.Namespace) -> str:
    shape = RootFileShape(options.containers, options.branches, options.baskets)
    size = options.total // options.names
    created = write(
        Path(options.path),
        size,
        names=options.names,
        unique=options.unique or options.names,
        shape=shape,
        seed=options.seed,
    )
    return json.dumps({"size_bytes": size, "names": options.names, "made": created}) + "\n"


def _serve(options: argparse.Namespace) -> str:
    serve(options.socket)
    return ""


def _parser() -> argparse.ArgumentParser:
    from venturi.application.client import SOCKET

    parser = _Parser(prog="venturi-root", add_help=False)
    commands = parser.add_subparsers(required=True, parser_class=_Parser)
    one = commands.add_parser("read")
    one.add_argument("url")
    one.add_argument("--rate", type=float)
    one.add_argument("--compute", type=float, default=0.0)
    one.set_defaults(run=_read)
    one = commands.add_parser("write")
    one.add_argument("path")
    one.add_argument("--total", type=int, required=True)
    for name, default in {"names": 1, "unique": 0, "containers": 2, "branches": 4, "baskets": 4, "seed": 1}.items():
        one.add_argument(f"--{name}", type=int, default=default)
    one.set_defaults(run=_write)
    one = commands.add_parser("serve")
    one.add_argument("socket", nargs="?", default=SOCKET)
    one.set_defaults(run=_serve)
    return parser
