"""``venturi run``: from a scenario to a run, or on with one that stopped."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from venturi.backend import HostsBackend, Outcome
from venturi.cli.options import RUNS, As, Runs, Scratch, Set, default_scratch
from venturi.cli.outcome import Exit, data_json, talk
from venturi.cli.plan import local_free_bytes
from venturi.cli.progress import progress_view
from venturi.cli.source import load
from venturi.errors import RunError, ScenarioError
from venturi.plan import check_fits, estimate, write_plan
from venturi.run import RunWriter, resolve_run
from venturi.scenario import Scenario
from venturi.units import format_bytes
from venturi.workload import expand

__all__ = ["carry_out_scenario", "resume_run", "run"]

_BACKENDS = ("hosts",)


def run(
    scenario: Annotated[
        str,
        typer.Argument(help="Scenario file, or the name of a study; with --resume also the path or name of a run."),
    ],
    set_: Set = None,
    quick: Annotated[bool, typer.Option("--quick", help="The small variant of a study.")] = False,
    on: Annotated[
        str, typer.Option("--on", help="Who carries it out: hosts (this machine, others over SSH).")
    ] = "hosts",
    scale: Annotated[float | None, typer.Option(help="Multiply all sizes: the same as --set scale=…")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that stopped: the newest one of the scenario.")
    ] = False,
    scratch: Scratch = None,
    runs: Runs = RUNS,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")] = False,
    as_json: As = False,
) -> None:
    """Carry out a scenario. What comes back is a directory in `runs/`.

    Data sets are made once and kept below --scratch for the next run. Ctrl-C ends the processes, keeps what is finished and says how to resume. Exit code 3 if
    transfers failed: each one is recorded with its reason.

    Examples: `venturi run my.toml`, `venturi run my.toml --set workload.repeat=20`, `venturi run --resume runs/my-disk-20261121T213700Z`
    """
    if on not in _BACKENDS:
        raise ScenarioError([("--on", f'expected one of {", ".join(_BACKENDS)}, found "{on}"')], "venturi run")
    overrides = [*(set_ or []), *([f"scale={scale}"] if scale is not None else [])]
    if resume:
        _resume(scenario, overrides, quick=quick, scratch=scratch, runs=runs, quiet=quiet, as_json=as_json)
    else:
        carry_out_scenario(
            load(scenario, overrides, quick=quick), scratch=scratch, runs=runs, quiet=quiet, as_json=as_json
        )


def carry_out_scenario(
    scenario: Scenario, *, scratch: Path | None, runs: Path, quiet: bool = False, as_json: bool = False
) -> Path:
    """Expand a scenario, carry its plan out in a new run, and return the run's directory.

    Ends the process with the exit code of :class:`~venturi.cli.outcome.Exit` that fits, unless all went well.
    """
    plan = expand(scenario)
    cost = estimate(plan.header)
    check_fits(cost, local_free_bytes(plan.header, scratch or default_scratch(runs)))
    backend = HostsBackend(scratch=scratch)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.jsonl"
        write_plan(plan, path)
        writer = RunWriter.create(runs, path, backend="hosts")
    if not quiet:
        moved = "" if cost.bytes is None else f", {format_bytes(cost.bytes)}"
        talk(f"{plan.header.name}: {cost.trials} trials{moved}, in {writer.path}")
    return _carry_out(backend, writer, quiet=quiet, as_json=as_json)


def resume_run(path: Path, *, scratch: Path | None, quiet: bool = False, as_json: bool = False) -> Path:
    """Go on with a run and return its directory; ends the process as :func:`carry_out_scenario` does."""
    backend = HostsBackend(scratch=scratch)
    writer = RunWriter.resume(path)
    if not quiet:
        talk(
            f"{writer.header['name']}: {len(writer.finished)} of {len(writer.trials)} trials are done, going on in {path}"
        )
    return _carry_out(backend, writer, quiet=quiet, as_json=as_json)


def _resume(
    named: str, overrides: list[str], *, quick: bool, scratch: Path | None, runs: Path, quiet: bool, as_json: bool
) -> None:
    """Resume a run given by itself, or the newest one whose scenario has the name of the one given."""
    if Path(named).is_file() or quick:
        scenario = load(named, overrides, quick=quick)
        path = resolve_run(scenario.name, runs)
    else:
        if overrides:
            raise ScenarioError(
                [("", "a run is resumed with the plan that it began with; leave out --set and --scale")], named
            )
        path = resolve_run(named, runs)
    resume_run(path, scratch=scratch, quiet=quiet, as_json=as_json)


def _carry_out(backend: HostsBackend, writer: RunWriter, *, quiet: bool, as_json: bool) -> Path:
    path = writer.path
    try:
        with progress_view(quiet=quiet or as_json) as view:
            outcome = backend.carry_out(writer, on_progress=view.show)
    except RunError as error:
        raise RunError(f"{error}; resume with: venturi run --resume {path}") from error
    if as_json:
        data_json(_as_json(path, outcome))
    _conclude(path, outcome, quiet=quiet)
    return path


def _conclude(path: Path, outcome: Outcome, *, quiet: bool) -> None:
    if outcome.state == "stopped":
        talk(
            f"stopped after {outcome.trials_done} of {outcome.trials_total} trials; go on with: venturi run --resume {path}"
        )
        raise typer.Exit(Exit.STOPPED)
    if outcome.failed:
        talk(f"{outcome.failed} trials with failed transfers; why: venturi report {path}")
        raise typer.Exit(Exit.FAILED_TRANSFERS)
    if not quiet:
        talk(f"done: {outcome.trials_done} trials; the answer: venturi report {path}")


def _as_json(path: Path, outcome: Outcome) -> dict[str, Any]:
    return {
        "run": str(path),
        "state": outcome.state,
        "trials_done": outcome.trials_done,
        "trials_total": outcome.trials_total,
        "trials_failed": outcome.failed,
        "agent_restarts": outcome.restarts,
    }
