"""``venturi plan``: what a scenario would do, without doing it."""

from __future__ import annotations

import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from venturi.cli.options import As, Full, Scratch, Set, default_scratch
from venturi.cli.outcome import Exit, data, data_json, talk, writing
from venturi.cli.source import load, usual_backend
from venturi.errors import PlanError
from venturi.plan import Estimate, Header, Plan, check_fits, estimate, plan_lines, write_plan
from venturi.submit import write_submit_files
from venturi.testbed import nearest_folder, obstacle
from venturi.testbed.pace import moving_s
from venturi.units import format_bytes, format_duration
from venturi.workload import expand

__all__ = ["check_places", "plan"]


def plan(
    scenario: Annotated[str, typer.Argument(help="Scenario file, or the name of a study such as cnaf/cp.")],
    set_: Set = None,
    quick: Annotated[bool, typer.Option("--quick", help="The small variant of a study.")] = False,
    full: Full = False,
    lines: Annotated[bool, typer.Option("--lines", help="Print the plan itself, as JSON Lines.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Write the plan to this file; with --submit, the submit files to this folder."
        ),
    ] = None,
    submit: Annotated[
        str | None,
        typer.Option(
            help="Write submit files of its batches of jobs for a batch system: slurm or htcondor. Needs -o."
        ),
    ] = None,
    scratch: Scratch = None,
    as_json: As = False,
) -> None:
    """Expand a scenario into its plan: count it, estimate it, and say whether it fits.

    The same scenario and seed give the same plan, byte for byte. Exit code 1 if the disks of this machine are too small for it; the plan is printed or
    written all the same.

    Example: `venturi plan my.toml --set workload.repeat=20`
    """
    expanded = expand(load(scenario, set_ or [], quick=quick, full=full))
    cost = estimate(expanded.header, moving=partial(moving_s, expanded))
    if lines:
        sys.stdout.writelines(line + "\n" for line in plan_lines(expanded))
    if submit is not None:
        _write_submit_files(expanded, submit, output, scratch or default_scratch())
    elif output is not None:
        with writing(output):
            write_plan(expanded, output)
        talk(f"wrote {output}")
    # In virtual time nothing needs room.
    needs_room = usual_backend(scenario) != "sim"
    problem = _problem(expanded.header, cost, scratch or default_scratch()) if needs_room else None
    if as_json:
        data_json(_as_json(expanded, cost, problem))
    elif not lines:
        data(_summary(expanded, cost))
    if problem:
        talk(f"venturi: {problem}")
        raise typer.Exit(Exit.ERROR)


def check_places(header: Header, cost: Estimate, scratch: Path) -> None:
    """Refuse a plan whose places on this machine cannot be written to, or are too small; others are looked at when a run starts.

    Raises
    ------
    PlanError
        Naming the places, what was found there, and what to do.
    """
    local = {
        name: (scratch / place.path).absolute()
        for name, place in header.places.items()
        if header.hosts[place.host].ssh is None
    }
    problems = [
        f"{name} ({header.places[name].path}): expected a directory that can be written to, found: {problem};"
        " choose another with --scratch, or another path in the scenario"
        for name, path in local.items()
        if not _holds_data_sets(header, name, path) and (problem := obstacle(path))
    ]
    if problems:
        raise PlanError("\n".join(problems))
    check_fits(cost, {name: shutil.disk_usage(nearest_folder(path)).free for name, path in local.items()})


def _write_submit_files(expanded: Plan, system: str, folder: Path | None, scratch: Path) -> None:
    if folder is None:
        raise PlanError("expected -o FOLDER beside --submit, found none; it names where the submit files go")
    with writing(folder):
        files = write_submit_files(expanded, system, folder, scratch=scratch)
    talk(f"wrote {files[0]} and {len(files) - 1} files beside it")


def _holds_data_sets(header: Header, place: str, path: Path) -> bool:
    """Return whether data sets are there already: a storage that is only read from may then be read-only."""
    return any(os.path.isdir(path / set_.path) for set_ in header.datasets.values() if set_.place == place)  # noqa: PTH112


def _problem(header: Header, cost: Estimate, scratch: Path) -> str | None:
    if header.measure.transfers == "routes":
        return None  # for virtual time, which needs no room
    try:
        check_places(header, cost, scratch)
    except PlanError as error:
        return str(error)
    return None


def _summary(expanded: Plan, cost: Estimate) -> str:
    header = expanded.header
    # What is counted by route is for virtual time, which needs no room.
    disk_bytes = {} if header.measure.transfers == "routes" else cost.disk_bytes
    rows = [
        (
            "plan",
            f"{header.name}, seed {header.seed}"
            + (f", sizes scaled by {header.scale:g}" if header.scale != 1 else ""),
        ),
        ("trials", f"{cost.trials:,}"),
        ("transfers", "not fixed by the plan" if cost.transfers is None else f"{cost.transfers:,}"),
        ("bytes moved", "not fixed by the plan" if cost.bytes is None else format_bytes(cost.bytes)),
        *((f"disk on {name}", f"{format_bytes(size)} at the peak") for name, size in disk_bytes.items()),
        ("time", "not fixed by the plan" if cost.time_s is None else f"about {format_duration(cost.time_s)}"),
        ("", f"assuming that {cost.assumption}"),
    ]
    return "\n".join(f"{name:<{max(len(name) for name, _ in rows)}}  {text}" for name, text in rows)


def _as_json(expanded: Plan, cost: Estimate, problem: str | None) -> dict[str, Any]:
    header = expanded.header
    return {
        "name": header.name,
        "seed": header.seed,
        "scale": header.scale,
        "trials": cost.trials,
        "transfers": cost.transfers,
        "bytes": cost.bytes,
        "disk_bytes": dict(cost.disk_bytes),
        "time_s": cost.time_s,
        "assumption": cost.assumption,
        "fits": problem is None,
        "problem": problem,
    }
