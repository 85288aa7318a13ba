"""Puts the commands together and turns errors into messages and exit codes."""

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
from venturi.cli.outcome import Exit, talk
from venturi.errors import VenturiError

__all__ = ["HELP_OPTIONS", "app", "carry_out"]

HELP_OPTIONS = ["-h", "--help"]

Click: TypeAlias = Any
"""A context or a command; typer does not export what it makes them of."""

_STOPPED = "venturi: stopped; the same command does it from the beginning"
"""Of commands that leave nothing half done; those that do say themselves how to go on."""

_MARKUP: Literal["markdown"] = "markdown"
_COMMANDS = (
    "run",
    "plan",
    "report",
    "compare",
    "explain",
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
"""Modules of this package, in the order of the help: each has a group ``app``, or a function of its own name."""


class _Commands(TyperGroup):
    """The commands, each imported when it is asked for.

    What one needs, another need not wait for: the job of a `managed` mover starts in half the time.
    """

    def list_commands(self, ctx: Click) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: Click, cmd_name: str) -> Click:
        # Who asks for one that there is not is told the nearest, of all.
        for name in (cmd_name,) if cmd_name in _COMMANDS else _COMMANDS:
            if name not in self.commands:
                self.add_command(_imported(name))
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: Click) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # While a command is imported, or in one that has nothing to put in order: typer would say nothing.
            talk(_STOPPED)
            raise typer.Exit(Exit.STOPPED) from None


def _imported(name: str) -> Click:
    part, holder = import_module(f"venturi.cli.{name}"), typer.Typer(rich_markup_mode=_MARKUP)
    if hasattr(part, "app"):
        holder.add_typer(part.app, name=name)
    else:
        settings = getattr(part, "CONTEXT_SETTINGS", None)
        holder.command(name=name, context_settings=settings)(getattr(part, name))
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
    help="""Find out how fast data can move between two places, why it does not move faster, and what happens when the load grows.

One scenario file becomes a plan, the plan is carried out, and what comes back is a run that can be reported, fitted and compared.

First steps:

    venturi doctor                        what this machine can do

    venturi study run cnaf/cp --quick     a published experiment, small

    venturi plan my.toml                  what a scenario would do

    venturi run my.toml                   do it

Exit codes: 0 done · 1 error · 2 wrong usage · 3 done, but transfers failed · 130 stopped, can be resumed.""",
)


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(f"venturi {__version__}")
        raise typer.Exit


def carry_out() -> None:
    """Carry out the command that was typed, and exit with its code."""
    # For movers that are commands of ours (`managed`): also where nobody has put the environment's folder on PATH.
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH") or os.defpath, str(Path(sys.executable).parent)])
    try:
        app(standalone_mode=True)
    except VenturiError as error:
        talk(f"venturi: {error}")
        sys.exit(Exit.ERROR)
    except KeyboardInterrupt:
        talk(_STOPPED)
        sys.exit(Exit.STOPPED)
    except BrokenPipeError:
        # Whoever read our output has gone (`venturi plan … | head`): not an error of ours, and nothing may be said.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except OSError as error:
        # What no command foresaw: a full disk under stdout, a folder that may not be entered. A message, not a traceback.
        where = f"{error.filename}: " if error.filename else ""
        talk(f"venturi: {where}{error.strerror or error}")
        sys.exit(Exit.ERROR)
