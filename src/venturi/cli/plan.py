"""``venturi plan``: what a scenario would do, without doing it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from venturi.cli.options import As, Scratch, Set, default_scratch
from venturi.cli.outcome import Exit, data, data_json, talk
from venturi.cli.source import load
from venturi.errors import PlanError
from venturi.plan import Estimate, Header, Plan, check_fits, estimate, plan_lines, write_plan
from venturi.units import format_bytes, format_duration
from venturi.workload import expand

__all__ = ["local_free_bytes", "plan"]


def plan(
    scenario: Annotated[str, typer.Argument(help="Scenario file, or the name of a study such as cnaf/cp.")],
    set_: Set = None,
    quick: Annotated[bool, typer.Option("--quick", help="The small variant of a study.")] = False,
    lines: Annotated[bool, typer.Option("--lines", help="Print the plan itself, as JSON Lines.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write the plan to this file.", dir_okay=False)
    ] = None,
    scratch: Scratch = None,
    as_json: As = False,
) -> None:
    """Expand a scenario into its plan: count it, estimate it, and say whether it fits.

    The same scenario and seed give the same plan, byte for byte. Exit code 1 if the disks of this machine are too small for it; the plan is printed or
    written all the same.

    Example: `venturi plan my.toml --set workload.repeat=20`
    """
    expanded = expand(load(scenario, set_ or [], quick=quick))
    cost = estimate(expanded.header)
    if lines:
        sys.stdout.writelines(line + "\n" for line in plan_lines(expanded))
    if output is not None:
        write_plan(expanded, output)
        talk(f"wrote {output}")
    problem = _problem(cost, local_free_bytes(expanded.header, scratch or default_scratch()))
    if as_json:
        data_json(_as_json(expanded, cost, problem))
    elif not lines:
        data(_summary(expanded, cost))
    if problem:
        talk(f"venturi: {problem}")
        raise typer.Exit(Exit.ERROR)


def local_free_bytes(header: Header, scratch: Path) -> dict[str, int]:
    """Return the free bytes of the places of the plan that are on this machine; other hosts are asked when a run starts."""
    free = {}
    for name, place in header.places.items():
        if header.hosts[place.host].ssh is None:
            path = (scratch / place.path).absolute()
            existing = next(folder for folder in (path, *path.parents) if folder.exists())
            free[name] = shutil.disk_usage(existing).free
    return free


def _problem(cost: Estimate, free_bytes: dict[str, int]) -> str | None:
    try:
        check_fits(cost, free_bytes)
    except PlanError as error:
        return str(error)
    return None


def _summary(expanded: Plan, cost: Estimate) -> str:
    header = expanded.header
    rows = [
        (
            "plan",
            f"{header.name}, seed {header.seed}"
            + (f", sizes scaled by {header.scale:g}" if header.scale != 1 else ""),
        ),
        ("trials", f"{cost.trials:,}"),
        ("transfers", "not fixed by the plan" if cost.transfers is None else f"{cost.transfers:,}"),
        ("bytes moved", "not fixed by the plan" if cost.bytes is None else format_bytes(cost.bytes)),
        *((f"disk on {name}", f"{format_bytes(size)} at the peak") for name, size in cost.disk_bytes.items()),
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
