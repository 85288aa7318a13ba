"""Generate ``docs/reference/cli.md`` from the commands."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer
import typer.main
from typer.core import TyperGroup

from venturi.cli.outcome import Exit
from venturi.cli.root import HELP_OPTIONS, app

__all__ = ["cli_reference"]

Command = Any
"""Command object of typer, which does not export its type."""

_EXIT = {
    Exit.OK: "done",
    Exit.ERROR: "error; the message names the location, the problem and the next step",
    Exit.USAGE: "invalid command line",
    Exit.FAILED_TRANSFERS: "finished, but transfers failed",
    Exit.STOPPED: "interrupted by Ctrl-C or a signal; can be resumed",
}


def cli_reference() -> str:
    """Return the reference of the command line as Markdown."""
    root = typer.main.get_command(app)
    lines = [
        "# Command line",
        "",
        inspect.cleandoc(root.help or ""),
        "",
        "## Exit codes",
        "",
        "| code | meaning |",
        "|---|---|",
    ]
    lines += [f"| {code.value} | {meaning} |" for code, meaning in _EXIT.items()]
    for path, command in _commands(root, ["venturi"]):
        lines += ["", *_section(path, command)]
    return "\n".join(lines) + "\n"


def _commands(command: Command, path: list[str]) -> Iterator[tuple[list[str], Command]]:
    if isinstance(command, TyperGroup):
        context = typer.Context(command)
        for name in command.list_commands(context):
            yield from _commands(command.get_command(context, name), [*path, name])
    else:
        yield path, command


def _section(path: list[str], command: Command) -> list[str]:
    context = typer.Context(command, info_name=" ".join(path), help_option_names=HELP_OPTIONS)
    usage = " ".join([" ".join(path), *command.collect_usage_pieces(context)])
    records = (parameter.get_help_record(context) for parameter in command.get_params(context))
    lines = [f"## `{' '.join(path)}`", "", f"    {usage}", "", inspect.cleandoc(command.help or "")]
    rows = [f"| `{name}` | {' '.join(text.split())} |".replace("[", "\\[") for name, text in filter(None, records)]
    return [*lines, "", "| option | meaning |", "|---|---|", *rows] if rows else lines
