"""``venturi run``: from a scenario to a run, or on with one that stopped."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from venturi.backend import Backend, HostsBackend, LabBackend, Outcome, Progress, SimBackend
from venturi.cli.options import RUNS, As, KeepLogs, On, Runs, Scratch, Set, default_scratch
from venturi.cli.outcome import Exit, data_json, talk
from venturi.cli.plan import check_places
from venturi.cli.progress import progress_view
from venturi.cli.source import is_scenario, load, usual_backend
from venturi.errors import BackendError, PlanError, RunError, ScenarioError
from venturi.plan import Header, estimate, write_plan
from venturi.run import RunWriter, resolve_run
from venturi.run.directory import read_first_hosts, read_info, read_plan_header
from venturi.scenario import Scenario
from venturi.testbed.plan import why_not_in_lab, why_not_on_hosts
from venturi.units import format_bytes
from venturi.workload import expand

__all__ = ["carry_out_scenario", "conclude", "resume_scenario", "run"]

_BACKENDS = ("hosts", "lab", "sim")


def run(
    scenario: Annotated[
        str,
        typer.Argument(help="Scenario file, or the name of a study; with --resume also the path or name of a run."),
    ],
    set_: Set = None,
    quick: Annotated[bool, typer.Option("--quick", help="The small variant of a study.")] = False,
    on: On = None,
    scale: Annotated[float | None, typer.Option(help="Multiply all sizes: the same as --set scale=…")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that stopped: the newest one of the scenario.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="With --resume: carry trials that failed out once more, too.")
    ] = False,
    scratch: Scratch = None,
    runs: Runs = RUNS,
    keep_logs: KeepLogs = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")] = False,
    as_json: As = False,
) -> None:
    """Carry out a scenario. What comes back is a directory in `runs/`.

    Data sets are made once and kept below --scratch for the next run. Ctrl-C ends the processes, keeps what is finished and says how to resume. Exit code 3 if
    transfers failed: each one is recorded with its reason.

    Examples: `venturi run my.toml`, `venturi run my.toml --set workload.repeat=20`, `venturi run --resume runs/my-disk-20261121T213700Z`
    """
    overrides = [*(set_ or []), *([f"scale={scale}"] if scale is not None else [])]
    if retry_failed and not resume:
        raise ScenarioError([("--retry-failed", "expected --resume beside it: only a run has failed trials")], "run")
    if resume:
        how = _Resumption(scratch, quiet or as_json, keep_logs, retry_failed)
        path, outcome, failure = _resume(scenario, overrides, how, quick=quick, on=on, runs=runs)
    else:
        loaded = load(scenario, overrides, quick=quick, on=on)
        path, outcome, failure = carry_out_scenario(
            loaded,
            on=on or usual_backend(scenario),
            scratch=scratch,
            runs=runs,
            quiet=quiet or as_json,
            keep_logs=keep_logs,
        )
    if as_json:
        data_json(_as_json(path, outcome, failure))
    conclude(path, outcome, failure, quiet=quiet or as_json)


Ended = tuple[Path, Outcome, str]
"""The directory of a run, how its session ended, and why the first trial that failed did so ("" if none failed)."""


def carry_out_scenario(
    scenario: Scenario,
    *,
    on: str | None = None,
    scratch: Path | None,
    runs: Path,
    quiet: bool = False,
    keep_logs: bool = False,
) -> Ended:
    """Expand a scenario and carry its plan out in a new run.

    Without ``on``: in virtual time where transfers are counted by route, in the lab where the testbed is one that only the lab can make, else
    on hosts that exist.
    """
    plan = expand(scenario)
    cost = estimate(plan.header)
    name = _backend_for(plan.header, on)
    if name != "sim":  # which needs no room
        check_places(plan.header, cost, scratch or default_scratch(runs))
    backend = _backend(name, scratch, keep_logs=keep_logs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.jsonl"
        write_plan(plan, path)
        writer = RunWriter.create(runs, path, backend=name)
    if not quiet:
        moved = "" if cost.bytes is None else f", {format_bytes(cost.bytes)}"
        talk(f"{plan.header.name}: {cost.trials} trials{moved}, {_WHERE[name]}, in {writer.path}")
    return _carry_out(backend, writer, quiet=quiet)


_WHERE = {"hosts": "on hosts", "lab": "in the lab", "sim": "in virtual time"}


def _backend_for(header: Header, on: str | None) -> str:
    """Return who is to carry a plan out.

    Raises
    ------
    ScenarioError
        If the one that is asked for cannot.
    """
    if on is not None and on not in _BACKENDS:
        raise ScenarioError([("--on", f'expected one of {", ".join(_BACKENDS)}, found "{on}"')], "run")
    in_brief = header.measure.transfers == "routes"
    if on == "sim" or (on is None and in_brief):
        return "sim"
    if in_brief:
        found = 'measure.transfers = "routes", which only a simulation counts'
        raise ScenarioError([("--on", f'expected a scenario that records each transfer, found {found}; use --on sim, or leave it out')], "run")  # fmt: skip
    if on is None:
        return "hosts" if why_not_on_hosts(header) is None else "lab"
    problem = why_not_on_hosts(header) if on == "hosts" else why_not_in_lab(header)
    if problem:
        raise ScenarioError([("--on", problem)], "run")
    return on


def _backend(name: str, scratch: Path | None, *, keep_logs: bool) -> Backend:
    if name == "sim":
        return SimBackend()
    return LabBackend(scratch=scratch, keep_logs=keep_logs) if name == "lab" else HostsBackend(scratch=scratch)


@dataclass(frozen=True, slots=True)
class _Resumption:
    """How a run is gone on with."""

    scratch: Path | None
    quiet: bool
    keep_logs: bool
    retry_failed: bool


def resume_scenario(
    scenario: Scenario,
    *,
    scratch: Path | None,
    runs: Path,
    quiet: bool = False,
    keep_logs: bool = False,
    retry_failed: bool = False,
) -> Ended:
    """Go on with the newest run of a scenario; ``retry_failed``: its trials that failed are carried out once more.

    Raises
    ------
    RunError
        If there is none, or it began with another scenario of that name: its plan is fixed.
    """
    path = resolve_run(scenario.name, runs)
    began = _flat(read_plan_header(path).get("scenario") or {})
    now = _flat(scenario.document())
    changed = [key for key in dict.fromkeys([*began, *now]) if began.get(key) != now.get(key)]
    if changed:
        what = "; ".join(f"{key} was {began.get(key)!r}, is {now.get(key)!r}" for key in changed[:3])
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        raise RunError(
            f"{path}: expected a run of this scenario, found that it has changed since ({what}{more}); go on as it began with:"
            f" venturi run --resume {path}; or begin a new run without --resume"
        )
    return _resume_run(path, _Resumption(scratch, quiet, keep_logs, retry_failed))


def _flat(document: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return the values of a document by their full keys."""
    found: dict[str, Any] = {}
    for key, value in document.items():
        found.update(_flat(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value})
    return found


def _resume_run(path: Path, how: _Resumption) -> Ended:
    if read_info(path).state == "complete" and not how.retry_failed:
        return _nothing_left(path, quiet=how.quiet)
    backend = _backend(read_info(path).backend, _same_scratch(path, how.scratch), keep_logs=how.keep_logs)
    writer = RunWriter.resume(path, retry_failed=how.retry_failed)
    if writer.info.state == "complete" and not writer.retried:
        writer.close()
        return _nothing_left(path, quiet=how.quiet)
    if not how.quiet:
        again = f", {len(writer.retried)} that failed are carried out once more" if writer.retried else ""
        done = f"{len(writer.finished)} of {len(writer.trials)} trials are done"
        talk(f"{writer.header['name']}: {done}{again}, going on in {path}")
    return _carry_out(backend, writer, quiet=how.quiet)


def _nothing_left(path: Path, *, quiet: bool) -> Ended:
    count = int(read_plan_header(path)["totals"]["trials"])
    if not quiet:
        talk(f"{path}: nothing is left to do")
    return path, Outcome("complete", count, count, 0, 0), ""


def _same_scratch(path: Path, given: Path | None) -> Path | None:
    """Return the scratch directory that a run began with, so that all its trials are of one place.

    Raises
    ------
    RunError
        If another one is given.
    """
    if read_info(path).backend == "sim":
        return given
    targets = {name: host.get("ssh") for name, host in read_plan_header(path)["hosts"].items()}
    began = set()
    in_lab = read_info(path).backend == "lab"
    for name, facts in read_first_hosts(path).items():
        if name not in targets:
            continue  # the network of a lab
        scratch = str(facts.get("scratch", ""))
        # Hosts that are one machine have a folder each: see HostsBackend; in the lab all have.
        alone = not in_lab and list(targets.values()).count(targets.get(name)) == 1
        began.add(scratch if alone else scratch.removesuffix(f"/{name}"))
    if len(began) != 1 or "" in began:
        return given  # nothing has begun; or this machine and others, each with its own default
    (there,) = began
    if given is not None and os.path.realpath(given) != os.path.realpath(there):
        raise RunError(
            f"{path}: expected the scratch directory that it began with, {there}, found --scratch {given}: its trials would be"
            " of two places; leave --scratch out, or begin a new run"
        )
    return Path(there)


def _resume(named: str, overrides: list[str], how: _Resumption, *, quick: bool, on: str | None, runs: Path) -> Ended:
    """Resume a run given by itself, or the newest one of a scenario."""
    if quick or is_scenario(named):
        loaded = load(named, overrides, quick=quick, on=on)
        return resume_scenario(
            loaded,
            scratch=how.scratch,
            runs=runs,
            quiet=how.quiet,
            keep_logs=how.keep_logs,
            retry_failed=how.retry_failed,
        )
    if overrides:
        raise ScenarioError(
            [("", "a run is resumed with the plan that it began with; leave out --set and --scale")], named
        )
    return _resume_run(resolve_run(named, runs), how)


def _carry_out(backend: Backend, writer: RunWriter, *, quiet: bool) -> Ended:
    """Carry out what is left of a run, and as often as its scenario says what failed of it."""
    ended = _session(backend, writer, quiet=quiet)
    for _ in range(int(writer.header["scenario"].get("workload", {}).get("retries", 0))):
        path, outcome, failure = ended
        if outcome.state != "complete" or not outcome.failed:
            break
        if not quiet:
            talk(f"{outcome.failed} trials failed, the first as {failure}; they are carried out once more")
        ended = _session(backend, RunWriter.resume(path, retry_failed=True), quiet=quiet)
    return ended


def _session(backend: Backend, writer: RunWriter, *, quiet: bool) -> Ended:
    path = writer.path
    failure = ""

    def show(progress: Progress) -> None:
        nonlocal failure
        failure = progress.failure
        view.show(progress)

    try:
        with progress_view(quiet=quiet) as view:
            outcome = backend.carry_out(writer, on_progress=show)
    except KeyboardInterrupt:
        # Before or after the backend heeds signals by itself.
        talk(f"stopped; go on with: venturi run --resume {path}")
        raise typer.Exit(Exit.STOPPED) from None
    except (BackendError, PlanError, RunError) as error:
        if writer.session == writer.sessions_before == 0:
            # Nothing has been carried out: an empty run would only stand before the one of yesterday.
            shutil.rmtree(path, ignore_errors=True)
            raise
        raise type(error)(f"{error}\ngo on with: venturi run --resume {path}") from error
    return path, outcome, failure


def conclude(path: Path, outcome: Outcome, failure: str, *, quiet: bool, reported: bool = False) -> None:
    """Say how a session ended and what to do next, and end the process with the code of it, unless all went well.

    Parameters
    ----------
    path, outcome, failure
        What :func:`carry_out_scenario` returned.
    quiet
        Say nothing where all went well.
    reported
        The report has been shown: it need not be pointed to.
    """
    if outcome.state == "stopped":
        talk(
            f"stopped after {outcome.trials_done} of {outcome.trials_total} trials; go on with: venturi run --resume {path}"
        )
        raise typer.Exit(Exit.STOPPED)
    if outcome.failed:
        talk(
            f"{outcome.failed} of {outcome.trials_total} trials have transfers that failed; the first: {failure}"
            + ("" if reported else f"\nall reasons: venturi report {path}")
            + f"\nonce more: venturi run --resume --retry-failed {path}"
        )
        raise typer.Exit(Exit.FAILED_TRANSFERS)
    if not quiet and not reported:
        talk(f"done: {outcome.trials_done} trials; the answer: venturi report {path}")


def _as_json(path: Path, outcome: Outcome, failure: str) -> dict[str, Any]:
    return {
        "run": str(path),
        "state": outcome.state,
        "trials_done": outcome.trials_done,
        "trials_total": outcome.trials_total,
        "trials_failed": outcome.failed,
        "first_failure": failure or None,
        "agent_restarts": outcome.restarts,
    }
