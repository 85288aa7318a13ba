"""The page ``docs/reference/cli.md``, made from the commands themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click
import typer.main

from venturi.cli.main import app
from venturi.cli.outcome import Exit

__all__ = ["cli_reference"]

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
    lines = ["# The command line", "", inspect.cleandoc(root.help or ""), "", "## Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code.value} | {meaning} |" for code, meaning in _EXIT.items()]
    for words, command in _commands(root, ["venturi"]):
        lines += ["", *_section(words, command)]
    return "\n".join(lines) + "\n"


def _commands(command: click.Command, words: list[str]) -> Iterator[tuple[list[str], click.Command]]:
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from _commands(child, [*words, name])
    else:
        yield words, command


def _section(words: list[str], command: click.Command) -> list[str]:
    context = click.Context(command, info_name=" ".join(words))
    usage = " ".join([" ".join(words), *command.collect_usage_pieces(context)])
    rows = [record for parameter in command.get_params(context) if (record := parameter.get_help_record(context)) is not None]
    arguments = [
        (parameter.human_readable_name, getattr(parameter, "help", "") or "")
        for parameter in command.params
        if isinstance(parameter, click.Argument)
    ]
    options = [row for row in rows if row[0].startswith("-")]
    lines = [f"## `{' '.join(words)}`", "", f"    {usage}", "", inspect.cleandoc(command.help or "")]
    if arguments or options:
        lines += ["", "| | |", "|---|---|"]
        lines += [f"| `{name}` | {text} |".replace("\n", " ") for name, text in [*arguments, *options]]
    return lines
