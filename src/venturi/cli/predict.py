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

from venturi.cli.options import RUNS, JsonFlag, Runs, Set, option_quantity
from venturi.cli.outcome import print_data, print_json, print_status
from venturi.errors import UnitError

if TYPE_CHECKING:
    from venturi.prediction import LoadPrediction, LoadRequest
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
    set_: Set = None,
    runs: Runs = RUNS,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Hide progress.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Predict whether a testbed sustains a load that was not measured.

    The scenario or run gives testbed, mover, endpoints and sizes. The load replaces the times of its workload. The result has the answer with its probability, the
    greatest rate, latencies, the resources by their largest rates, and the needed capacities.
    With a measured run, it includes the error of the simulator on this run.

    Examples: `venturi predict my.toml --rate "600 /min"`, `venturi predict my-lab --rate "10 Gb/s" --costs costs.toml`, `venturi predict my.toml --clients 200`
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
        duration_s=None if duration is None else option_quantity("--duration", duration, parse_duration),
        seeds=seeds,
        costs=costs,
        changes=tuple(change or ()),
    )
    _check_request(request)
    scenario, run = _load(target, set_ or [], change or [], runs)
    with _progress(quiet=quiet or as_json) as show:
        found = predict_load(scenario, request, run=run, on_progress=show)
    if as_json:
        from venturi.prediction.text import as_json as to_json

        print_json(to_json(found))
    else:
        print_data(_text(found))


def _check_request(request: LoadRequest) -> None:
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
        return load_scenario(path, given), None
    run = Run.open(resolve_run(target, runs))
    document = run.header["scenario"]
    written = scenario_from(document, target, overrides=overrides, directory=Path.cwd())
    _report_scale(written.scale)
    given = [*overrides, *change_overrides(changes, written), "scale=1"]
    return scenario_from(document, target, overrides=given, directory=Path.cwd()), run


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


def _text(found: LoadPrediction) -> Group:
    from venturi.prediction.text import lines, sentence

    parts: list[Text | Table] = [Text(sentence(found), style="bold"), *map(Text, lines(found))]
    parts += [Text(), _layers(found), Text(), _resources(found), Text()]
    if found.purchases:
        bought = "; ".join(f"{one.resource} from {one.now} to {one.needed}" for one in found.purchases)
        parts.append(Text(f"For {_requested(found)} at 80 % use: {bought}."))
    elif found.probability is not None:
        parts.append(Text(f"For {_requested(found)}, every resource is at most 80 % busy: nothing to buy."))
    parts += [Text(f"Caveat: {caveat}") for caveat in found.caveats]
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
