"""``venturi run``: run a scenario, or resume a run."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from venturi.backend import Backend, RunProgress, SessionOutcome
from venturi.backend.targets import TARGETS, targeted_header
from venturi.cli.backend_choice import choose_backend
from venturi.cli.consent import require_plan_consent
from venturi.cli.options import (
    RUNS,
    Hosts,
    JsonFlag,
    KeepLogs,
    On,
    Portable,
    Runs,
    Scale,
    Scratch,
    Set,
    Yes,
    default_scratch,
)
from venturi.cli.outcome import Exit, print_json, print_status
from venturi.cli.plan import check_storages
from venturi.cli.progress import progress_view
from venturi.cli.source import is_scenario, load, scale_overrides, study_backend
from venturi.cli.time_limit import TimeLimit, stop_after
from venturi.errors import BackendError, PlanError, RunError, ScenarioError
from venturi.plan import Plan, estimate, read_header, write_plan
from venturi.run import Run, RunWriter, resolve_run
from venturi.run.created import read_created
from venturi.run.directory import PLAN, read_first_hosts, read_info, read_plan_header
from venturi.scenario import Scenario
from venturi.units import format_bytes, format_duration, parse_duration
from venturi.workload import expand

if TYPE_CHECKING:
    from venturi.cli.live import LiveRun

__all__ = ["conclude", "resume_scenario", "run", "run_scenario"]


def run(
    scenario: Annotated[
        str,
        typer.Argument(help="Scenario file or name of a study; with --resume, also the path or name of a run."),
    ],
    set_: Set = None,
    quick: Annotated[bool, typer.Option("--quick", help="Use the small variant of a study.")] = False,
    portable: Portable = False,
    on: On = None,
    scale: Scale = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the most recent unfinished run of this scenario.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="With --resume, also run failed trials again.")
    ] = False,
    scratch: Scratch = None,
    runs: Runs = RUNS,
    keep_logs: KeepLogs = False,
    hosts: Hosts = None,
    yes: Yes = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Hide progress.")] = False,
    live: Annotated[bool, typer.Option("--live", help="Serve a page on this machine that shows the run.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a scenario and store the results in a new directory under `runs/`.

    Venturi generates datasets once and keeps them below --scratch for later runs. Before the first contact with a remote
    host or an existing server, it prompts for consent; `venturi plan` lists them. Ctrl-C stops the processes, keeps
    finished trials and prints the command that resumes. Exit code 3 if transfers failed; the run records the reason of
    each one.

    With --live, Venturi prints the URL of a page that shows progress, rates, hosts and findings during the run.

    Examples: `venturi run my.toml`, `venturi run my.toml --set workload.repeat=20`, `venturi run --resume runs/my-disk-20261121T213700Z`
    """
    overrides = scale_overrides(
        scale, scenario, set_ or [], scratch=scratch or default_scratch(runs), quick=quick, portable=portable,
        on=on or ("hosts" if hosts else None),
    )  # fmt: skip
    if retry_failed and not resume:
        raise ScenarioError(
            [
                (
                    "--retry-failed",
                    "expected --resume, found none; add --resume, because only an existing run has failed trials",
                )
            ],
            "run",
        )
    page = _live_run(quiet=quiet or as_json) if live else None
    if resume:
        options = _ResumeOptions(scratch, quiet or as_json, keep_logs, retry_failed, yes, hosts, page)
        path, outcome, failure = _resume(
            scenario, overrides, options, quick=quick, portable=portable, on=on, runs=runs
        )
    else:
        loaded = load(scenario, overrides, quick=quick, portable=portable, on=on)
        path, outcome, failure = run_scenario(
            loaded,
            on=on or study_backend(scenario),
            scratch=scratch,
            runs=runs,
            quiet=quiet or as_json,
            keep_logs=keep_logs,
            yes=yes,
            hosts=hosts,
            live=page,
        )
    verdict = _store_verdicts(path) if outcome.state == "complete" else ""
    if page is not None:
        page.end(outcome.state, outcome.reason, verdict)
    if as_json:
        print_json(_as_json(path, outcome, failure))
    conclude(path, outcome, failure, quiet=quiet or as_json)


def _live_run(*, quiet: bool) -> LiveRun:
    from venturi.cli.live import LiveRun  # imports an HTTP server

    return LiveRun(quiet=quiet)


def _store_verdicts(path: Path) -> str:
    """Write the bottlenecks of a run to its table `verdicts`, and return the verdict of the run as a sentence."""
    from venturi.advice import advise  # numpy takes a moment to import
    from venturi.advice.store import store_verdicts

    with Run.open(path) as found:
        advice = advise(found)
        store_verdicts(found, advice)
    return advice.run.sentence


FinishedSession = tuple[Path, SessionOutcome, str]
"""Directory of the run, outcome of its session, and reason of the first failed trial ("" if none failed)."""


def run_scenario(
    scenario: Scenario,
    *,
    on: str | None = None,
    scratch: Path | None,
    runs: Path,
    quiet: bool = False,
    keep_logs: bool = False,
    yes: bool = False,
    hosts: Path | None = None,
    live: LiveRun | None = None,
) -> FinishedSession:
    """Expand a scenario and execute its plan in a new run.

    See :func:`venturi.cli.backend_choice.choose_backend` for ``on``. With ``yes``, the first contact with remote hosts has
    consent. ``hosts`` is a file of targets (:mod:`venturi.backend.targets`). ``live`` shows the run; the caller ends it.
    """
    plan = expand(scenario)
    cost = estimate(plan.header)
    name = choose_backend(scenario, plan.header, on, "run", hosts)
    header = targeted_header(plan.header, hosts)
    if name != "sim":  # a simulation needs no disk space
        check_storages(header, cost, scratch or default_scratch(runs))
    if name == "hosts":
        require_plan_consent(Plan(header, plan.lines), yes=yes)
    backend = _backend(name, scratch, keep_logs=keep_logs, hosts=hosts)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "plan.jsonl"
        write_plan(plan, path)
        writer = RunWriter.create(runs, path, backend=name)
    if not quiet:
        size = "" if cost.bytes is None else f", {format_bytes(cost.bytes)}"
        print_status(f"{plan.header.name}: {cost.trials} trials{size}, {_BACKEND_TEXT[name]}, in {writer.path}")
        for note in plan.notes:
            print_status(note)
    return _execute(backend, writer, quiet=quiet, live=live)


_BACKEND_TEXT = {"hosts": "on hosts", "lab": "in the lab", "sim": "simulated"}


def _backend(name: str, scratch: Path | None, *, keep_logs: bool, hosts: Path | None = None) -> Backend:
    if name == "sim":
        from venturi.backend import SimBackend

        return SimBackend()
    if name == "lab":
        from venturi.backend import LabBackend

        return LabBackend(scratch=scratch, keep_logs=keep_logs)
    from venturi.backend import HostsBackend

    return HostsBackend(scratch=scratch, keep_logs=keep_logs, targets=hosts)


@dataclass(frozen=True, slots=True)
class _ResumeOptions:
    """Options of resuming a run."""

    scratch: Path | None
    quiet: bool
    keep_logs: bool
    retry_failed: bool
    yes: bool = False
    hosts: Path | None = None
    live: LiveRun | None = None


def resume_scenario(
    scenario: Scenario,
    *,
    scratch: Path | None,
    runs: Path,
    quiet: bool = False,
    keep_logs: bool = False,
    retry_failed: bool = False,
    yes: bool = False,
    hosts: Path | None = None,
    live: LiveRun | None = None,
) -> FinishedSession:
    """Resume the newest run of a scenario. With ``retry_failed``, also run its failed trials again.

    Raises
    ------
    RunError
        If there is no such run, or it started with a different scenario of that name. The plan of a run is fixed.
    """
    path = resolve_run(scenario.name, runs)
    old = _flat(read_plan_header(path).get("scenario") or {})
    new = _flat(scenario.document())
    changed = [key for key in dict.fromkeys([*old, *new]) if old.get(key) != new.get(key)]
    if changed:
        differences = "; ".join(f"{key} was {old.get(key)!r}, is {new.get(key)!r}" for key in changed[:3])
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        raise RunError(
            f"{path}: expected a run of this scenario, found changes since its start ({differences}{more}). Resume it unchanged with:"
            f" venturi run --resume {path}. Or start a new run without --resume."
        )
    return _resume_run(path, _ResumeOptions(scratch, quiet, keep_logs, retry_failed, yes, hosts, live))


def _flat(document: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return the values of a document by full key, such as ``workload.repeat``."""
    found: dict[str, Any] = {}
    for key, value in document.items():
        found.update(_flat(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value})
    return found


def _resume_run(path: Path, options: _ResumeOptions) -> FinishedSession:
    info = read_info(path)
    if options.hosts is not None and info.backend != "hosts":
        raise RunError(f"{path}: expected a run on hosts for --hosts, found --on {info.backend}; omit --hosts")
    if info.state == "complete" and not options.retry_failed:
        return _report_complete(path, quiet=options.quiet)
    if info.backend == "hosts":
        kept = path / TARGETS
        header = targeted_header(
            read_header(path / PLAN, upgrade=True), options.hosts or (kept if kept.exists() else None)
        )
        require_plan_consent(Plan(header, ()), yes=options.yes)
    backend = _backend(
        info.backend,
        _same_scratch(path, options.scratch),
        keep_logs=options.keep_logs,
        hosts=options.hosts,
    )
    writer = RunWriter.resume(path, retry_failed=options.retry_failed)
    if writer.info.state == "complete" and not writer.retried:
        writer.close()
        return _report_complete(path, quiet=options.quiet)
    if not options.quiet:
        retries = f", running {len(writer.retried)} failed trials again" if writer.retried else ""
        done = f"{len(writer.finished)} of {len(writer.trials)} trials done"
        print_status(f"{writer.header['name']}: {done}{retries}, resuming {path}")
    return _execute(backend, writer, quiet=options.quiet, live=options.live)


def _report_complete(path: Path, *, quiet: bool) -> FinishedSession:
    count = int(read_plan_header(path)["totals"]["trials"])
    if not quiet:
        print_status(f"{path}: all trials are done")
    return path, SessionOutcome("complete", count, count, 0, 0), ""


def _same_scratch(path: Path, requested: Path | None) -> Path | None:
    """Return the scratch directory that a run started with, so that all its trials use the same one.

    Raises
    ------
    RunError
        If ``requested`` is a different directory.
    """
    if read_info(path).backend == "sim":
        return requested
    names = read_plan_header(path)["hosts"]
    started = set()
    in_lab = read_info(path).backend == "lab"
    for name, metadata in read_first_hosts(path).items():
        if name not in names:
            continue  # the network emulator of a lab
        scratch = str(metadata.get("scratch", ""))
        # Hosts with the same path have a directory each (see HostTestbed). In a lab, all hosts have.
        alone = not in_lab and len(names) == 1
        started.add(scratch if alone else scratch.removesuffix(f"/{name}"))
    if len(started) != 1 or "" in started:
        return requested  # the run has not started, or it has several hosts with their own defaults
    (scratch_of_run,) = started
    if requested is not None and os.path.realpath(requested) != os.path.realpath(scratch_of_run):
        raise RunError(
            f"{path}: expected the scratch directory that it started with, {scratch_of_run}, found --scratch {requested};"
            " omit --scratch, or start a new run"
        )
    return Path(scratch_of_run)


def _resume(
    name: str,
    overrides: list[str],
    options: _ResumeOptions,
    *,
    quick: bool,
    portable: bool,
    on: str | None,
    runs: Path,
) -> FinishedSession:
    """Resume a run, or the newest run of a scenario."""
    if quick or portable or is_scenario(name):
        loaded = load(name, overrides, quick=quick, portable=portable, on=on)
        return resume_scenario(
            loaded,
            scratch=options.scratch,
            runs=runs,
            quiet=options.quiet,
            keep_logs=options.keep_logs,
            retry_failed=options.retry_failed,
            yes=options.yes,
            hosts=options.hosts,
            live=options.live,
        )
    if overrides:
        raise ScenarioError(
            [("", "expected no --set and no --scale: the plan of a run is fixed; omit them, or start a new run")],
            name,
        )
    return _resume_run(resolve_run(name, runs), options)


def _execute(backend: Backend, writer: RunWriter, *, quiet: bool, live: LiveRun | None = None) -> FinishedSession:
    """Execute the remaining trials of a run. Then repeat failed trials up to ``workload.retries`` times.

    After ``limits.time`` of the scenario, stop in order.
    """
    limit = TimeLimit(None if backend.name == "sim" else _time_limit_s(writer.header["scenario"]))
    try:
        with stop_after(limit), _shown(live, writer):
            return _execute_sessions(backend, writer, quiet=quiet, live=live)
    finally:
        if limit.is_over and limit.limit_s is not None:
            print_status(f"stopped after {format_duration(limit.limit_s)}, the time of [limits] in the scenario")


@contextmanager
def _shown(live: LiveRun | None, writer: RunWriter) -> Iterator[None]:
    """Start the live view of a run. If the run ends by an error, the view shows it and ends."""
    if live is None:
        yield
        return
    try:
        live.start(writer)
    except BaseException:
        writer.close()
        raise
    try:
        yield
    except (BackendError, PlanError, RunError) as error:
        live.end("failed", str(error))
        raise
    except BaseException:
        live.end("stopped")
        raise


def _time_limit_s(scenario: Mapping[str, Any]) -> float | None:
    """Return ``limits.time`` of a scenario in seconds, ``None`` without a limit."""
    time = scenario.get("limits", {}).get("time")
    return None if time is None else parse_duration(time)


def _execute_sessions(backend: Backend, writer: RunWriter, *, quiet: bool, live: LiveRun | None) -> FinishedSession:
    finished = _run_session(backend, writer, quiet=quiet, live=live)
    for _ in range(int(writer.header["scenario"].get("workload", {}).get("retries", 0))):
        path, outcome, failure = finished
        if outcome.state != "complete" or not outcome.failed:
            break
        if not quiet:
            print_status(f"{outcome.failed} trials failed, the first as {failure}; running them again")
        finished = _run_session(backend, RunWriter.resume(path, retry_failed=True), quiet=quiet, live=live)
    return finished


def _run_session(backend: Backend, writer: RunWriter, *, quiet: bool, live: LiveRun | None) -> FinishedSession:
    path = writer.path
    failure = ""

    def show(progress: RunProgress) -> None:
        nonlocal failure
        failure = progress.failure
        view.show(progress)

    try:
        with live or progress_view(quiet=quiet) as view:
            outcome = backend.execute(writer, on_progress=show)
    except KeyboardInterrupt:
        # Before or after the backend handles signals itself.
        print_status(f"interrupted; resume with: venturi run --resume {path}")
        raise typer.Exit(Exit.STOPPED) from None
    except (BackendError, PlanError, RunError) as error:
        if writer.session == writer.sessions_before == 0:
            if read_created(path):
                raise type(error)(
                    f"{error}\nfiles remain on servers; remove them with: venturi clean {path}"
                ) from error
            # No trial was executed: an empty run would hide the previous one.
            shutil.rmtree(path, ignore_errors=True)
            raise
        raise type(error)(f"{error}\nresume with: venturi run --resume {path}") from error
    return path, outcome, failure


def conclude(path: Path, outcome: SessionOutcome, failure: str, *, quiet: bool, reported: bool = False) -> None:
    """Print the outcome of a session and the next step, and exit with its code unless it succeeded.

    Parameters
    ----------
    path, outcome, failure
        Result of :func:`run_scenario`.
    quiet
        Print nothing on success.
    reported
        Whether the report was printed already.
    """
    if outcome.reason:
        print_status(
            f"{outcome.reason}; {outcome.trials_done} of {outcome.trials_total} trials are done"
            f"\nwhen the server works again, resume with: venturi run --resume {path}"
        )
        raise typer.Exit(Exit.FAILED_TRANSFERS)
    if outcome.state == "stopped":
        print_status(
            f"interrupted after {outcome.trials_done} of {outcome.trials_total} trials; resume with: venturi run --resume {path}"
        )
        raise typer.Exit(Exit.STOPPED)
    if outcome.failed:
        print_status(
            f"{outcome.failed} of {outcome.trials_total} trials have failed transfers; the first: {failure}"
            + ("" if reported else f"\nall reasons: venturi report {path} --full")
            + f"\nretry: venturi run --resume --retry-failed {path}"
        )
        raise typer.Exit(Exit.FAILED_TRANSFERS)
    if not quiet and not reported:
        print_status(f"done: {outcome.trials_done} trials; next: venturi report {path}")


def _as_json(path: Path, outcome: SessionOutcome, failure: str) -> dict[str, Any]:
    return {
        "run": str(path),
        "state": outcome.state,
        "trials_done": outcome.trials_done,
        "trials_total": outcome.trials_total,
        "trials_failed": outcome.failed,
        "first_failure": failure or None,
        "agent_restarts": outcome.restarts,
        "reason": outcome.reason or None,
    }
