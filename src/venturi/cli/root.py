"""Root command: loads the other commands and turns errors into messages and exit codes."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer
import typer.main
from typer.core import TyperGroup

from venturi import __version__
from venturi.cli.outcome import Exit, print_status
from venturi.errors import VenturiError

__all__ = ["HELP_OPTIONS", "app", "main"]

HELP_OPTIONS = ["-h", "--help"]

Click: TypeAlias = Any
"""Context or command object of typer, which does not export their types."""

_STOPPED = "venturi: interrupted. Run the command again to start over."
"""Message of commands that leave no unfinished work. Other commands print how to resume."""

_MARKUP: Literal["markdown"] = "markdown"
_COMMANDS = (
    "measure",
    "run",
    "clean",
    "plan",
    "report",
    "compare",
    "advise",
    "predict",
    "challenge",
    "tune",
    "ensemble",
    "fit",
    "calibrate",
    "validate",
    "study",
    "lab",
    "testbed",
    "transfer",
    "copy",
    "serve",
    "doctor",
    "schema",
)
"""Modules of this package, in the order of the help. Each has a group ``app`` or a function of its own name."""


class _Commands(TyperGroup):
    """Command group that imports a command when it is used.

    This halves the start time of the job of a `managed` mover.
    """

    def list_commands(self, ctx: Click) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: Click, cmd_name: str) -> Click:
        # An unknown name needs all commands, to suggest the nearest one.
        for name in (cmd_name,) if cmd_name in _COMMANDS else _COMMANDS:
            if name not in self.commands:
                self.add_command(_import_command(name))
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: Click) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # During an import, or in a command without cleanup. typer would print no message.
            print_status(_STOPPED)
            raise typer.Exit(Exit.STOPPED) from None


def _import_command(name: str) -> Click:
    module, holder = import_module(f"venturi.cli.{name}"), typer.Typer(rich_markup_mode=_MARKUP)
    if hasattr(module, "app"):
        holder.add_typer(module.app, name=name)
    else:
        settings = getattr(module, "CONTEXT_SETTINGS", None)
        holder.command(name=name, context_settings=settings)(getattr(module, name))
    return typer.main.get_group(holder).commands[name]


app = typer.Typer(
    name="venturi",
    cls=_Commands,
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=_MARKUP,
    context_settings={"help_option_names": HELP_OPTIONS},
    help="""Measure how fast you can move data between two systems, find the bottleneck, and predict throughput under higher load.

Describe an experiment in a scenario file. `venturi run` executes it and stores the results in a run directory. Use `report`, `fit` and `compare` to analyse runs.

First steps:

    venturi doctor                        check this machine

    venturi measure a:/dir b:/dir         find the limit between two hosts

    venturi study run cnaf/cp --quick     run a small published experiment

    venturi plan my.toml                  list trials, bytes and time of a scenario

    venturi run my.toml                   run the scenario

Exit codes: 0 done · 1 error · 2 invalid command line · 3 finished, but transfers failed · 130 interrupted, can be resumed.""",
)


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(f"venturi {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line and exit with its code."""
    # Movers that are Venturi commands (`managed`) need the environment's directory, which may not be on PATH.
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH") or os.defpath, str(Path(sys.executable).parent)])
    try:
        app(standalone_mode=True)
    except VenturiError as error:
        print_status(f"venturi: {error}")
        sys.exit(Exit.ERROR)
    except KeyboardInterrupt:
        print_status(_STOPPED)
        sys.exit(Exit.STOPPED)
    except BrokenPipeError:
        # The reader of the output has exited (`venturi plan … | head`): exit without a message.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        # Errors that commands do not handle, such as a full disk under stdout: print a message, not a traceback.
        where = f"{error.filename}: " if error.filename else ""
        print_status(f"venturi: {where}{error.strerror or error}")
        sys.exit(Exit.ERROR)
