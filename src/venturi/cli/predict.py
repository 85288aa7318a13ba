"""``venturi predict``: predict an unmeasured load."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from venturi.cli.options import RUNS, Hosts, JsonFlag, Runs, Scratch, Set, Yes, option_quantity
from venturi.cli.outcome import Exit, print_data, print_json, print_status
from venturi.errors import PlanError, UnitError

if TYPE_CHECKING:
    from venturi.cli.predict_confirm import ConfirmOptions
    from venturi.prediction import LoadPrediction, LoadRequest
    from venturi.prediction.confirm import Confirmation
    from venturi.prediction.predict import OnProgress
    from venturi.run import Run
    from venturi.scenario import Scenario

__all__ = ["predict"]

MAX_RESOURCES = 8
"""Resources in the table; `--json` has all."""


def predict(
    target: Annotated[str, typer.Argument(metavar="SCENARIO|RUN", help="Scenario file, study, or run.")],
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help='Offered load: transfers per time such as "600 /min", or bytes such as "10 Gb/s".',
            show_default=False,
        ),
    ] = None,
    clients: Annotated[
        int | None,
        typer.Option(
            help="Closed-loop clients instead of random arrivals. With --rate: whether they reach it.",
            min=1,
            show_default=False,
        ),
    ] = None,
    think: Annotated[
        str, typer.Option(metavar="DURATION", help="Mean of the random pause of a client after each transfer.")
    ] = "0 s",
    size: Annotated[
        list[str] | None,
        typer.Option(metavar="SIZE", help="Size of the transfers, instead of the sizes of the workload. Repeatable."),
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Change of the testbed: `--change 'link.wan.rate=100 Gb/s'`. Repeatable."
        ),
    ] = None,
    within: Annotated[
        float, typer.Option(help="Fraction of the requested bytes that must complete.", min=0.5, max=1.0)
    ] = 0.95,
    duration: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Simulated time such as `30 min`. Default: long enough for a decision.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of simulations of the load.", min=4, max=1000)] = 10,
    costs: Annotated[
        Path | None,
        typer.Option(help="Costs file from `venturi calibrate` that replaces the costs of the plan.", dir_okay=False),
    ] = None,
    p95: Annotated[
        str | None,
        typer.Option(
            "--p95",
            metavar="DURATION",
            help="Required 95th percentile of the time from the intended start to the end. Default: no requirement.",
            show_default=False,
        ),
    ] = None,
    confirm: Annotated[
        bool,
        typer.Option(
            "--confirm",
            help="Then measure the limit with loads near the prediction, in runs on the backend --on, and compare.",
        ),
    ] = False,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            help="With --confirm: hosts, lab or sim. Default: the backend of the run, or of the testbed.",
            show_default=False,
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="DURATION",
            help="With --confirm: time of all probes with their preparation. Default: 5 min; no limit in a simulation.",
            show_default=False,
        ),
    ] = None,
    probe: Annotated[
        str | None,
        typer.Option(
            "--probe",
            metavar="DURATION",
            help="With --confirm: duration of a probe. Default: long enough for a decision, within --time.",
            show_default=False,
        ),
    ] = None,
    max_probes: Annotated[int, typer.Option(help="With --confirm: largest number of probes.", min=1, max=100)] = 16,
    set_: Set = None,
    scratch: Scratch = None,
    runs: Runs = RUNS,
    hosts: Hosts = None,
    yes: Yes = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Hide progress.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Predict whether a testbed sustains a load that was not measured.

    The scenario or run gives testbed, mover, endpoints and sizes. The load replaces the times of its workload. The result has the answer with its probability, the
    greatest rate, latencies, the resources by their largest rates, and the needed capacities.
    With a measured run, it includes the error of the simulator on this run. With --confirm, Venturi then raises the load
    while it is sustained and lowers it otherwise, and compares the measured limit with the prediction. Ctrl-C keeps the
    finished probes. Exit code 0 for each result of the comparison, 130 after Ctrl-C.

    Examples: `venturi predict my.toml --rate "600 /min"`, `venturi predict my-lab --rate "10 Gb/s" --costs costs.toml`, `venturi predict my.toml --clients 200`, `venturi predict my.toml --rate "600 /min" --confirm --on lab --time "5 min"`
    """
    from venturi.prediction import LoadRequest, RequestedRate, predict_load
    from venturi.units import parse_bytes, parse_duration

    if rate is None and clients is None:
        raise UnitError('--rate: expected a rate such as "600 /min", or --clients, found neither; set one of them')
    request = LoadRequest(
        rate=None if rate is None else RequestedRate.parse(rate),
        clients=clients,
        think_s=option_quantity("--think", think, parse_duration),
        sizes=tuple(option_quantity("--size", text, parse_bytes) for text in size or []),
        within=within,
        p95_s=None if p95 is None else option_quantity("--p95", p95, parse_duration),
        duration_s=None if duration is None else option_quantity("--duration", duration, parse_duration),
        seeds=seeds,
        costs=costs,
        changes=tuple(change or ()),
    )
    _check_request(request)
    options = _confirm_options(
        request, confirm=confirm, on=on, time=time, probe=probe, max_probes=max_probes, scratch=scratch, runs=runs,
        hosts=hosts, yes=yes, quiet=quiet or as_json,
    )  # fmt: skip
    scenario, run = _load(target, set_ or [], change or [], runs)
    confirmer = None
    if options is not None:
        from venturi.cli.predict_confirm import Confirmer

        # Before the prediction, so that a load without a backend fails soon.
        confirmer = Confirmer.prepare(target, scenario, run, request, options)
    with _progress(quiet=quiet or as_json) as show:
        found = predict_load(scenario, request, run=run, on_progress=show)
    if confirmer is None:
        _print(found, as_json=as_json)
        return
    if not as_json:
        print_data(_text(found, with_next=False))
    confirmed = confirmer.confirm(found)
    if as_json:
        _print(found, confirmed, as_json=True)
    else:
        from venturi.cli.predict_confirm import confirmation_text

        print_data(confirmation_text(found, confirmed))
    if confirmed.failure:
        print_status(f"venturi: {confirmed.failure}")
        raise typer.Exit(Exit.ERROR)
    if confirmed.interrupted:
        raise typer.Exit(Exit.STOPPED)


def _print(found: LoadPrediction, confirmed: Confirmation | None = None, *, as_json: bool) -> None:
    if not as_json:
        print_data(_text(found))
        return
    from venturi.prediction.confirm_text import confirmation_json
    from venturi.prediction.text import as_json as to_json

    confirmation = {} if confirmed is None else {"confirmation": confirmation_json(found, confirmed)}
    print_json({**to_json(found), **confirmation})


def _confirm_options(
    request: LoadRequest, *, confirm: bool, on: str | None, time: str | None, probe: str | None, max_probes: int,
    scratch: Path | None, runs: Path, hosts: Path | None, yes: bool, quiet: bool,
) -> ConfirmOptions | None:  # fmt: skip
    """Return the options of ``--confirm``; None without it."""
    if not confirm:
        given = {"--on": on, "--time": time, "--probe": probe, "--hosts": hosts, "--scratch": scratch}
        for name, value in given.items():
            if value is not None:
                raise UnitError(f"{name}: expected --confirm, found none; add --confirm, or omit {name}")
        return None
    from venturi.cli.predict_confirm import ConfirmOptions
    from venturi.units import parse_duration

    if request.clients is not None:
        raise PlanError("--confirm: expected an open load with --rate, found --clients; omit --clients")
    times = {}
    for name, text in (("--time", time), ("--probe", probe)):
        times[name] = None if text is None else option_quantity(name, text, parse_duration)
        if times[name] == 0:
            raise UnitError(f'{name}: expected a time above 0 such as "30 s", found 0; use a longer time')
    return ConfirmOptions(on, times["--time"], times["--probe"], max_probes, scratch, runs, hosts, yes, quiet)


def _check_request(request: LoadRequest) -> None:
    if request.p95_s is not None and request.clients is not None:
        raise PlanError("--p95: expected an open load with --rate, found --clients; omit one of them")
    if any(size <= 0 for size in request.sizes):
        raise UnitError('--size: expected sizes above 0 such as "1 GB", found 0; use a larger size')
    if request.duration_s is not None and request.duration_s <= 0:
        raise UnitError('--duration: expected a time above 0 such as "30 min", found 0; use a longer time')
    if request.costs is not None and not request.costs.is_file():
        from venturi.errors import ScenarioError

        problem = "expected a costs file of `venturi calibrate`, found no such file; check the path"
        raise ScenarioError([("--costs", problem)], str(request.costs))


def _load(target: str, overrides: list[str], changes: list[str], runs: Path) -> tuple[Scenario, Run | None]:
    """Return the changed scenario at scale 1, and the run if the target is a run that was not changed."""
    from venturi.cli.source import is_scenario, scenario_file
    from venturi.prediction.changes import change_overrides
    from venturi.run import Run, resolve_run
    from venturi.scenario import load_scenario, scenario_from

    if is_scenario(target) or target.endswith(".toml"):
        path, given = scenario_file(target, overrides, on="sim")
        written = load_scenario(path, given)
        _report_scale(written.scale)
        given = [*given, *change_overrides(changes, written), "scale=1"]
        with _naming_changes(changes):
            return load_scenario(path, given), None
    run = Run.open(resolve_run(target, runs))
    document = run.header["scenario"]
    written = scenario_from(document, target, overrides=overrides, directory=Path.cwd())
    _report_scale(written.scale)
    given = [*overrides, *change_overrides(changes, written), "scale=1"]
    with _naming_changes(changes):
        return scenario_from(document, target, overrides=given, directory=Path.cwd()), run


@contextmanager
def _naming_changes(changes: list[str]) -> Iterator[None]:
    """Name ``--change`` in errors of its values."""
    from venturi.errors import ScenarioError
    from venturi.prediction.changes import named_as_changes

    try:
        yield
    except ScenarioError as error:
        raise named_as_changes(error, changes) from error


def _report_scale(scale: float) -> None:
    if scale != 1:
        print_status(f"scale {scale:g} of the scenario is ignored: the prediction is for the testbed at scale 1")


@contextmanager
def _progress(*, quiet: bool) -> Iterator[OnProgress]:
    from venturi.cli.progress import task_bar

    with task_bar(quiet=quiet) as bar:
        tasks = {}

        def show(step: str, done: int, total: int | None) -> None:
            if step not in tasks:
                tasks[step] = bar.add_task(f"simulating: {step}", total=total)
            bar.update(tasks[step], completed=done)

        yield show


def _text(found: LoadPrediction, *, with_next: bool = True) -> Group:
    from venturi.prediction.text import lines, sentence

    parts: list[Text | Table] = [Text(sentence(found), style="bold"), *map(Text, lines(found))]
    parts += [Text(), _layers(found), Text(), _resources(found), Text()]
    if found.purchases:
        bought = "; ".join(f"{one.resource} from {one.now} to {one.needed}" for one in found.purchases)
        parts.append(Text(f"For {_requested(found)} at 80 % use: {bought}."))
    elif found.probability is not None:
        parts.append(Text(f"For {_requested(found)}, every resource is at most 80 % busy: nothing to buy."))
    parts += [Text(f"Caveat: {caveat}") for caveat in found.caveats]
    if with_next:
        parts.append(Text(f"Next: {found.next_step}"))
    return Group(*parts)


def _requested(found: LoadPrediction) -> str:
    from venturi.prediction.text import rate_text

    return rate_text(found, found.per_s, noun=True)


def _layers(found: LoadPrediction) -> Table:
    from venturi.prediction.text import rate_text
    from venturi.units import format_duration

    table = Table(box=None, pad_edge=False)
    for title in ("layer", "model", "greatest rate" if found.clients is None else "rate", "mean time", "basis"):
        table.add_column(title)
    for one in found.layers:
        table.add_row(
            one.name,
            one.model,
            "–" if one.per_s is None else rate_text(found, one.per_s),
            "–" if one.latency_s is None else format_duration(one.latency_s),
            one.statement,
        )
    return table


def _resources(found: LoadPrediction) -> Table:
    from venturi.prediction.summarise import capacity_text
    from venturi.prediction.text import rate_text

    table = Table(box=None, pad_edge=False)
    for title in ("full in this order", "capacity", "largest rate", "use"):
        table.add_column(title)
    for one in found.resources[:MAX_RESOURCES]:
        capacity = capacity_text(one, one.capacity)
        table.add_row(
            one.name,
            f"{capacity} (assumed)" if one.assumed else capacity,
            rate_text(found, one.per_s),
            f"{100 * found.per_s * one.demand_s:.3g} %",
        )
    if len(found.resources) > MAX_RESOURCES:
        table.add_row(f"{len(found.resources) - MAX_RESOURCES} more: --json")
    return table
