"""``venturi advise``: name the bottleneck of a run, a scenario or a path, and the change that helps."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from venturi.cli.options import RUNS, Hosts, JsonFlag, On, Runs, Scratch, Set, Yes, option_quantity
from venturi.cli.outcome import Exit, print_data, print_json, print_status
from venturi.errors import MeasureError, RunError
from venturi.run import Run, resolve_run

if TYPE_CHECKING:
    from venturi.advice import Advice, Verdict

__all__ = ["advise"]

SMALL_FILES_S = 8.0
"""Time of the measurement that is left for small files."""

MAX_POINTS = 20
"""Design points in the table; `--all` shows all."""


def advise(
    target: Annotated[
        str, typer.Argument(metavar="RUN|SCENARIO|A", help="Run, scenario file, or directory of the source.")
    ],
    destination: Annotated[
        str | None, typer.Argument(metavar="B", help="Directory of the destination, as in `venturi measure`.")
    ] = None,
    set_: Set = None,
    on: On = None,
    time: Annotated[
        str, typer.Option("--time", metavar="DURATION", help="Time to measure the path from A to B, at least `15 s`.")
    ] = "60 s",
    apply: Annotated[
        bool,
        typer.Option(
            "--apply",
            help="Make the change in the scenario, run it again, and compare with the prediction. Not on hosts.",
        ),
    ] = False,
    all_points: Annotated[bool, typer.Option("--all", help="List every design point.")] = False,
    scratch: Scratch = None,
    runs: Runs = RUNS,
    hosts: Hosts = None,
    yes: Yes = False,
    as_json: JsonFlag = False,
) -> None:
    """Name the bottleneck of transfers, its evidence, and the change that helps.

    With a run, Venturi reads its counters. With a scenario, it runs the scenario first. With two directories, it measures the path for
    60 s: network with one and with several connections, disks, mover, a copy, and small files. The result names the limiting resource, its fraction of the time, the confidence, the predicted
    gain, and the settings to leave alone.

    Examples: `venturi advise my-lab`, `venturi advise my.toml --on lab --apply`, `venturi advise dtn1:/scratch dtn2:/data`
    """
    from venturi.cli.source import is_scenario
    from venturi.units import format_duration

    started_s = monotonic()
    if apply and destination is not None:
        raise typer.BadParameter(
            "--apply changes the scenario of a lab, found a path between two directories; change it yourself, and measure again"
        )
    if destination is not None:
        found, where = _measure(target, destination, time, hosts=hosts, runs=runs, yes=yes, quiet=as_json)
    else:
        where = (
            _run(target, set_ or [], on=on, scratch=scratch, runs=runs, hosts=hosts, yes=yes, quiet=as_json)
            if is_scenario(target)
            else resolve_run(target, runs)
        )
        found = _advise_run(where)
    time_s = monotonic() - started_s
    applied = _apply(where, found, scratch=scratch, runs=runs, quiet=as_json) if apply and where is not None else None
    if as_json:
        result = {} if applied is None else {"applied": applied.to_json()}
        print_json(
            {"run": None if where is None else str(where), "time_to_verdict_s": time_s, **_to_json(found), **result}
        )
        return
    print_data(_text(found, limit=None if all_points else MAX_POINTS))
    print_data(f"Time to verdict: {format_duration(time_s)}.")
    if applied is not None:
        print_data(Group(*map(Text, applied.lines())))


def _advise_run(path: Path) -> Advice:
    from venturi.advice import advise as advise_run
    from venturi.advice.store import store_verdicts

    run = Run.open(path)
    found = advise_run(run)
    if not store_verdicts(run, found):
        print_status(f"{path}: the directory is not writable, so the verdicts are not stored")
    return found


@dataclasses.dataclass(frozen=True)
class _Applied:
    """The change of a verdict, and the run after it."""

    change: str
    before: Verdict
    after: Verdict
    path: Path

    @property
    def inside(self) -> bool | None:
        """Whether the measured rate is in the predicted interval; None: one of them is unknown."""
        found, measured = self.before.counterfactual, self.after.rate_bytes_per_s
        if found is None or found.low_bytes_per_s is None or found.high_bytes_per_s is None or measured is None:
            return None
        return found.low_bytes_per_s <= measured <= found.high_bytes_per_s

    def to_json(self) -> dict[str, object]:
        found = self.before.counterfactual
        return {
            "change": self.change,
            "run": str(self.path),
            "predicted": None if found is None else dataclasses.asdict(found),
            "measured_bytes_per_s": self.after.rate_bytes_per_s,
            "inside": self.inside,
            "sentence": self.after.sentence,
        }

    def lines(self) -> list[str]:
        from venturi.units import format_rate

        found = self.before.counterfactual
        lines = ["", f"Applied: {self.change}."]
        if found is None or found.rate_bytes_per_s is None:
            lines.append("Predicted: no rate, because no other resource has a known one.")
        else:
            low, high = found.low_bytes_per_s or 0.0, found.high_bytes_per_s or 0.0
            lines.append(
                f"Predicted: {format_rate(found.rate_bytes_per_s)} [{format_rate(low)}, {format_rate(high)}]."
            )
        if self.after.rate_bytes_per_s is not None:
            side = {True: ", inside of the interval", False: ", outside of the interval", None: ""}[self.inside]
            lines.append(f"Measured: {format_rate(self.after.rate_bytes_per_s)}{side}.")
        return [*lines, f"Now: {self.after.sentence}", f"Run: {self.path}"]


def _apply(where: Path, found: Advice, *, scratch: Path | None, runs: Path, quiet: bool) -> _Applied:
    from venturi.advice.change import changed_scenario
    from venturi.cli.run import run_scenario
    from venturi.errors import PlanError
    from venturi.scenario import scenario_from

    if found.backend not in ("lab", "sim"):
        raise PlanError(
            f"--apply: expected a run of the lab or the simulator, found one on {found.backend}. Change the hosts yourself, and run again."
        )
    document, change = changed_scenario(Run.open(where).header["scenario"], found.run)
    if not quiet:
        print_status(f"applying: {change}")
    path, outcome, _ = run_scenario(
        scenario_from(document, document["name"], directory=Path.cwd()),
        on=found.backend,
        scratch=scratch,
        runs=runs,
        quiet=quiet,
    )
    if outcome.state == "stopped":
        print_status(f"interrupted; resume with: venturi run --resume {path}")
        raise typer.Exit(Exit.STOPPED)
    return _Applied(change, found.run, _advise_run(path).run, path)


def _run(
    scenario: str,
    overrides: list[str],
    *,
    on: str | None,
    scratch: Path | None,
    runs: Path,
    hosts: Path | None,
    yes: bool,
    quiet: bool,
) -> Path:
    from venturi.cli.run import run_scenario
    from venturi.cli.source import load, study_backend

    loaded = load(scenario, overrides, on=on)
    path, outcome, _ = run_scenario(
        loaded, on=on or study_backend(scenario), scratch=scratch, runs=runs, quiet=quiet, yes=yes, hosts=hosts
    )
    if outcome.state == "stopped":
        print_status(f"interrupted; resume with: venturi run --resume {path}")
        raise typer.Exit(Exit.STOPPED)
    return path


def _measure(
    source: str, destination: str, time: str, *, hosts: Path | None, runs: Path, yes: bool, quiet: bool
) -> tuple[Advice, Path | None]:
    from venturi.advice.paths import advise_measurement
    from venturi.backend.targets import read_targets
    from venturi.cli.measure import prepare_servers
    from venturi.cli.measure_view import measure_view
    from venturi.measure import MeasureOptions, measure, parse_endpoint, save
    from venturi.measure.measure import MIN_TIME_S
    from venturi.units import format_duration, parse_duration

    time_s = option_quantity("--time", time, parse_duration)
    if time_s < MIN_TIME_S:
        raise MeasureError(
            f"--time: expected at least {format_duration(MIN_TIME_S)}, found {time}. Use a longer time."
        )
    targets = read_targets(hosts) if hosts is not None else {}
    a, b = parse_endpoint(source).at(targets), parse_endpoint(destination).at(targets)
    options = MeasureOptions(max(MIN_TIME_S, time_s - SMALL_FILES_S), small_files=True)
    options = prepare_servers(a, b, options, runs, yes=yes)
    with measure_view(quiet=quiet) as view:
        result = measure(a, b, options, on_progress=view.show)
    if result.remains is not None:
        print_status(f"venturi: {result.remains}")
    try:
        return advise_measurement(result), save(result, a, b, runs, options.directory)
    except RunError as error:
        print_status(f"venturi: {error}")
        return advise_measurement(result), None


def _to_json(advice: Advice) -> dict[str, object]:
    from venturi.advice.store import verdict_json

    return {
        "version": advice.version,
        "backend": advice.backend,
        "verdict": verdict_json(advice.run),
        "points": [verdict_json(verdict) for verdict in advice.points],
    }


def _text(advice: Advice, *, limit: int | None) -> Group:
    parts: list[Text | Table] = [Text(advice.run.sentence, style="bold"), *map(Text, _lines(advice.run))]
    if len(advice.points) > 1:
        parts.append(_points(advice.points, limit))
    return Group(*parts)


def _lines(verdict: Verdict) -> list[str]:
    from venturi.report.verdict_text import verdict_lines

    return verdict_lines(verdict)


def _points(verdicts: tuple[Verdict, ...], limit: int | None) -> Table:
    from venturi.analysis.format import format_factors
    from venturi.units import format_rate

    varied = [
        name for name in verdicts[0].factors if len({str(verdict.factors.get(name)) for verdict in verdicts}) > 1
    ]
    table = Table(box=None, pad_edge=False)
    for title in ("point", "rate", "limited by", "fraction", "confidence"):
        table.add_column(title)
    for verdict in verdicts[:limit]:
        table.add_row(
            format_factors(dataclasses.asdict(verdict)["factors"], varied) or str(verdict.point),
            "–" if verdict.rate_bytes_per_s is None else format_rate(verdict.rate_bytes_per_s),
            verdict.resource or "not decided",
            f"{100 * verdict.fraction:.0f} %",
            f"{100 * verdict.confidence:.0f} %",
        )
    if limit is not None and len(verdicts) > limit:
        table.add_row(f"{len(verdicts) - limit} more: --all")
    return table
