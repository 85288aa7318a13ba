"""Puts the commands together and turns errors into messages and exit codes."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from venturi import __version__
from venturi.cli import compare, doctor, fit, lab, plan, report, run, schema, study, transfer
from venturi.cli.outcome import Exit, talk
from venturi.errors import VenturiError

__all__ = ["HELP_OPTIONS", "app", "carry_out"]

HELP_OPTIONS = ["-h", "--help"]

app = typer.Typer(
    name="venturi",
    no_args_is_help=True,
    invoke_without_command=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
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


app.command(name="run")(run.run)
app.command(name="plan")(plan.plan)
app.command(name="report")(report.report)
app.command(name="compare")(compare.compare)
app.command(name="fit")(fit.fit)
app.add_typer(study.app, name="study")
app.add_typer(lab.app, name="lab")
app.add_typer(transfer.app, name="transfer")
app.command(name="doctor")(doctor.doctor)
app.command(name="schema")(schema.schema)


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
        talk("venturi: stopped")
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
