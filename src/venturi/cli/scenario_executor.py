"""Execution of the scenarios of probes (`venturi tune`, `venturi predict --confirm`) in the lab or on hosts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from venturi.cli.outcome import Exit, print_status

if TYPE_CHECKING:
    from venturi.run import Run
    from venturi.scenario import Scenario

__all__ = ["scenario_executor"]


def scenario_executor(
    on: str, *, scratch: Path | None, runs: Path, hosts: Path | None, yes: bool, quiet: bool,
    stopped: str = "interrupted; run the command again to start over",
) -> Callable[[Scenario], Run]:  # fmt: skip
    """Return a function that executes a scenario like ``venturi run``. Consent counts for all probes.

    If the user stops a run, the function prints ``stopped`` and exits with :attr:`venturi.cli.outcome.Exit.STOPPED`.
    """
    from venturi.cli.run import run_scenario
    from venturi.run import Run

    consents = [yes]

    def execute(scenario: Scenario) -> Run:
        path, outcome, _ = run_scenario(
            scenario, on=on, scratch=scratch, runs=runs, quiet=quiet, yes=consents[0], hosts=hosts
        )
        consents[0] = True
        if outcome.state == "stopped":
            print_status(stopped)
            raise typer.Exit(Exit.STOPPED)
        return Run.open(path)

    return execute
