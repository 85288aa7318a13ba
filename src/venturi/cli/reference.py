"""The page ``docs/reference/cli.md``, made from the commands themselves."""

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
"""What typer makes of a function; it does not export the type."""

_EXIT = {
    Exit.OK: "done",
    Exit.ERROR: "something expected was not found; the message says what, where, and what to do next",
    Exit.USAGE: "the command's words are off",
    Exit.FAILED_TRANSFERS: "carried out to the end, but transfers failed",
    Exit.STOPPED: "stopped by Ctrl-C or a signal; can be resumed",
}


def cli_reference() -> str:
    """Return the reference of the command line as Markdown."""
    root = typer.main.get_command(app)
    lines = [
        "# The command line",
        "",
        inspect.cleandoc(root.help or ""),
        "",
        "## Exit codes",
        "",
        "| code | meaning |",
        "|---|---|",
    ]
    lines += [f"| {code.value} | {meaning} |" for code, meaning in _EXIT.items()]
    for words, command in _commands(root, ["venturi"]):
        lines += ["", *_section(words, command)]
    return "\n".join(lines) + "\n"


def _commands(command: Command, words: list[str]) -> Iterator[tuple[list[str], Command]]:
    if isinstance(command, TyperGroup):
        context = typer.Context(command)
        for name in command.list_commands(context):
            yield from _commands(command.get_command(context, name), [*words, name])
    else:
        yield words, command


def _section(words: list[str], command: Command) -> list[str]:
    context = typer.Context(command, info_name=" ".join(words), help_option_names=HELP_OPTIONS)
    usage = " ".join([" ".join(words), *command.collect_usage_pieces(context)])
    records = (parameter.get_help_record(context) for parameter in command.get_params(context))
    lines = [f"## `{' '.join(words)}`", "", f"    {usage}", "", inspect.cleandoc(command.help or "")]
    rows = [f"| `{name}` | {' '.join(text.split())} |".replace("[", "\\[") for name, text in filter(None, records)]
    return [*lines, "", "| | |", "|---|---|", *rows] if rows else lines
