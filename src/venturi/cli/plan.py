"""``venturi plan``: expand a scenario into its plan without running it."""

from __future__ import annotations

import os
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from venturi.backend.targets import targeted_header
from venturi.cli.backend_choice import choose_backend
from venturi.cli.options import Full, Hosts, JsonFlag, On, Portable, Scale, Scratch, Set, Yes, default_scratch
from venturi.cli.outcome import Exit, print_data, print_json, print_status, report_write_errors
from venturi.cli.source import load, scale_overrides, study_backend
from venturi.errors import PlanError
from venturi.plan import Header, Plan, PlanEstimate, check_fits, estimate, plan_lines, write_plan
from venturi.submit import write_submit_files
from venturi.testbed import nearest_directory, obstacle
from venturi.testbed.contacts import find_contacts
from venturi.testbed.duration_estimate import estimate_transfer_s
from venturi.testbed.plan import default_backend, is_remote
from venturi.units import format_bytes, format_duration
from venturi.workload import expand

__all__ = ["check_storages", "plan"]


def plan(
    scenario: Annotated[str, typer.Argument(help="Scenario file, or name of a study such as cnaf/cp.")],
    set_: Set = None,
    quick: Annotated[bool, typer.Option("--quick", help="Use the small variant of a study.")] = False,
    full: Full = False,
    portable: Portable = False,
    on: On = None,
    scale: Scale = None,
    lines: Annotated[bool, typer.Option("--lines", help="Print the plan as JSON Lines.")] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="File for the plan; with --submit, directory for the submit files."),
    ] = None,
    submit: Annotated[
        str | None,
        typer.Option(help="Batch system to write submit files for: slurm or htcondor. Needs -o."),
    ] = None,
    hosts: Hosts = None,
    probe: Annotated[
        bool,
        typer.Option("--probe", help="Connect to the hosts, and probe the paths between them in both directions."),
    ] = False,
    yes: Yes = False,
    scratch: Scratch = None,
    as_json: JsonFlag = False,
) -> None:
    """Expand a scenario into its plan: print the number of trials, bytes and estimated time.

    For existing hosts, also list each host, its connection, programs, services, storages and ports, and the existing servers.

    With --probe, print the clock of each host and each path between a client and a server instead: address, RTT, path MTU and
    network interface. This starts no server and writes no file. Exit code 1 if a path that the plan needs is closed.

    The same scenario and seed give the same plan, byte for byte, for every backend. The usual variant of a study depends
    on --on; with --portable it does not. Exit code 1 if the disks of this machine are too small;
    the plan is still printed or written.

    Example: `venturi plan my.toml --set workload.repeat=20`
    """
    requested = "hosts" if on is None and hosts is not None else on
    overrides = scale_overrides(
        scale, scenario, set_ or [], scratch=scratch or default_scratch(), quick=quick, full=full, on=requested,
        portable=portable,
    )  # fmt: skip
    loaded = load(scenario, overrides, quick=quick, full=full, on=requested, portable=portable)
    expanded = expand(loaded)
    backend = (
        choose_backend(loaded, expanded.header, requested, "plan", hosts)
        if requested
        else study_backend(scenario) or default_backend(loaded.testbed, expanded.header)
    )
    cost = estimate(expanded.header, moving=partial(estimate_transfer_s, expanded))
    targeted = Plan(targeted_header(expanded.header, hosts), expanded.lines, expanded.notes)
    if probe:
        if lines or submit is not None or output is not None:
            raise PlanError(
                "--probe: expected no --lines, --submit and --output, found one; run `venturi plan` once for each"
            )
        from venturi.cli.plan_probe import probe_paths_of

        probe_paths_of(targeted, yes=yes, as_json=as_json)
        return
    if lines:
        sys.stdout.writelines(line + "\n" for line in plan_lines(expanded))
    if submit is not None:
        _write_submit_files(expanded, submit, output, scratch or default_scratch())
    elif output is not None:
        with report_write_errors(output):
            write_plan(expanded, output)
        print_status(f"wrote {output}")
    # A simulation needs no disk space.
    problem = _problem(targeted.header, cost, scratch or default_scratch()) if backend != "sim" else None
    if as_json:
        print_json(_as_json(targeted, cost, problem))
    elif not lines:
        print_data(_summary(expanded, cost, _contact_rows(targeted) if backend == "hosts" else []))
    if problem:
        print_status(f"venturi: {problem}")
        raise typer.Exit(Exit.ERROR)


def check_storages(header: Header, cost: PlanEstimate, scratch: Path) -> None:
    """Check that the storages of a plan on this machine are writable and large enough. A run checks other hosts when it starts.

    Raises
    ------
    PlanError
        With the storages, the problem of each and the next step.
    """
    local = {
        name: (scratch / storage.path).absolute()
        for name, storage in header.storages.items()
        if storage.host is not None
        and storage.url is None
        and not storage.existing
        and not is_remote(header.hosts[storage.host])
    }
    problems = [
        f"{name} ({header.storages[name].path}): {problem};"
        " choose another directory with --scratch, or another path in the scenario"
        for name, path in local.items()
        if not _has_datasets(header, name, path) and (problem := obstacle(path))
    ]
    if problems:
        raise PlanError("\n".join(problems))
    check_fits(cost, {name: shutil.disk_usage(nearest_directory(path)).free for name, path in local.items()})


def _write_submit_files(expanded: Plan, system: str, directory: Path | None, scratch: Path) -> None:
    if directory is None:
        raise PlanError("expected -o DIRECTORY with --submit, found none; name a directory for the submit files")
    with report_write_errors(directory):
        files = write_submit_files(expanded, system, directory, scratch=scratch)
    print_status(f"wrote {files[0]} and {len(files) - 1} other files in its directory")


def _has_datasets(header: Header, storage: str, path: Path) -> bool:
    """Return whether datasets exist already. A storage that is only read can then be read-only."""
    return any(os.path.isdir(path / set_.path) for set_ in header.datasets.values() if set_.storage == storage)  # noqa: PTH112


def _problem(header: Header, cost: PlanEstimate, scratch: Path) -> str | None:
    if header.measure.transfers == "routes":
        return None  # only for a simulation, which needs no disk space
    try:
        check_storages(header, cost, scratch)
    except PlanError as error:
        return str(error)
    return None


def _contact_rows(expanded: Plan) -> list[tuple[str, str]]:
    """Return the hosts and existing servers; nothing for local movers on this machine."""
    header = expanded.header
    if not header.services and not any(is_remote(host) for host in header.hosts.values()):
        return []
    return find_contacts(expanded).lines()


def _summary(expanded: Plan, cost: PlanEstimate, contacts: list[tuple[str, str]]) -> str:
    header = expanded.header
    # Plans with transfers counted by route are for simulations, which need no disk space.
    disk_bytes = {} if header.measure.transfers == "routes" else cost.disk_bytes
    rows = [
        (
            "plan",
            f"{header.name}, seed {header.seed}"
            + (f", sizes scaled by {header.scale:g}" if header.scale != 1 else ""),
        ),
        *(("from", note) for note in expanded.notes),
        ("trials", f"{cost.trials:,}"),
        ("transfers", "not fixed by the plan" if cost.transfers is None else f"{cost.transfers:,}"),
        ("bytes moved", "not fixed by the plan" if cost.bytes is None else format_bytes(cost.bytes)),
        *((f"disk on {name}", f"{format_bytes(size)} at the peak") for name, size in disk_bytes.items()),
        ("time", "not fixed by the plan" if cost.time_s is None else f"about {format_duration(cost.time_s)}"),
        ("", f"assuming that {cost.assumption}"),
        *contacts,
    ]
    return "\n".join(f"{name:<{max(len(name) for name, _ in rows)}}  {text}" for name, text in rows)


def _as_json(expanded: Plan, cost: PlanEstimate, problem: str | None) -> dict[str, Any]:
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
        "notes": list(expanded.notes),
        "fits": problem is None,
        "problem": problem,
        **find_contacts(expanded).to_json(),
    }
