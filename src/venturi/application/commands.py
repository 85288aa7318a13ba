"""The commands of ``venturi-root`` as functions: arguments in, exit code and text out."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from venturi.application.read import read
from venturi.application.serve import serve
from venturi.application.write import Shape, write
from venturi.errors import VenturiError

__all__ = ["carry_out"]


class _UsageError(Exception):
    """What is wrong with a command line."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _UsageError(f"{self.format_usage()}{message}\n")


def carry_out(arguments: Sequence[str]) -> tuple[int, str]:
    """Return exit code and text of a command.

    Examples
    --------
    >>> carry_out(["read"])[0]
    2
    """
    try:
        told = _parser().parse_args(arguments)
        run: Callable[[argparse.Namespace], str] = told.run
        return 0, run(told)
    except _UsageError as error:
        return 2, str(error)
    except (VenturiError, OSError) as error:
        return 1, f"{error}\n"


def _read(told: argparse.Namespace) -> str:
    return json.dumps(read(told.url, rate_bytes_per_s=told.rate, compute_core_s=told.compute).detail()) + "\n"


def _write(told: argparse.Namespace) -> str:
    shape = Shape(told.containers, told.branches, told.baskets)
    size = told.total // told.names
    made = write(
        Path(told.path), size, names=told.names, unique=told.unique or told.names, shape=shape, seed=told.seed
    )
    return json.dumps({"size_bytes": size, "names": told.names, "made": made}) + "\n"


def _serve(told: argparse.Namespace) -> str:
    serve(told.socket)
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
