"""``venturi tune``: find good settings of a mover in few probes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from venturi.cli.options import RUNS, Hosts, JsonFlag, On, Runs, Scratch, Set, Yes, option_quantity
from venturi.cli.outcome import print_data, print_json, print_status
from venturi.errors import PlanError

if TYPE_CHECKING:
    from venturi.run import Run
    from venturi.scenario import Scenario
    from venturi.tuning import TunedSettings, TuneProbe, TuneResult

__all__ = ["tune"]

DEFAULT_TIME_S = 60.0

SIMULATED_TRIALS, REAL_TRIALS = 2, 3
"""Trials of the first run of a probe. Simulated trials hardly differ."""


def tune(
    target: Annotated[
        str,
        typer.Argument(metavar="SCENARIO|A", help="Scenario file or study with a sweep, or directory of the source."),
    ],
    destination: Annotated[
        str | None, typer.Argument(metavar="B", help="Directory of the destination, as in `venturi measure`.")
    ] = None,
    on: On = None,
    mover: Annotated[
        str | None,
        typer.Option(
            help="Mover instead of the one of the scenario: venturi, globus-url-copy, xrdcp, rclone or curl.",
            show_default=False,
        ),
    ] = None,
    controller: Annotated[
        str,
        typer.Option(
            help="Rule that chooses the settings: ours, bdp, harp, fts, falcon-gradient, falcon-bayes, azcopy, rclone,"
            " or MODULE:CLASS for your own."
        ),
    ] = "ours",
    max_probes: Annotated[
        int, typer.Option(help="Largest number of probes, with the one of the defaults.", min=2, max=100)
    ] = 6,
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="DURATION",
            help="Time for the trials of all probes. Default: 60 s; no limit in a simulation.",
            show_default=False,
        ),
    ] = None,
    set_: Set = None,
    scratch: Scratch = None,
    runs: Runs = RUNS,
    hosts: Hosts = None,
    yes: Yes = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Hide progress.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Find good settings of a mover in few probes: concurrency, streams, pipelining, window and block.

    Venturi first measures the defaults. A controller then chooses the settings of each probe. A probe repeats the transfer
    until the interval of the rate is within ± 5 %, or its part of the time is over. The result has the best settings, the gain, all probes, their prices in CPU and
    loss, and the command line. Only options that the mover has are tuned. With two directories or servers, Venturi first
    measures the path for 15 s, and then tunes copies of one file.

    Examples: `venturi tune my.toml --on sim`, `venturi tune my.toml --mover xrdcp --time "2 min"`, `venturi tune dtn1:/scratch dtn2:/data`
    """
    from venturi.cli.backend_choice import choose_backend
    from venturi.cli.scenario_executor import scenario_executor
    from venturi.cli.source import load, study_backend
    from venturi.cli.tune_endpoints import endpoint_scenario
    from venturi.tuning import ScenarioBackend, find_controller, tune_scenario
    from venturi.tuning import tune as tune_backend
    from venturi.units import parse_duration
    from venturi.workload import expand

    rule = find_controller(controller)
    limit_s = None if time is None else option_quantity("--time", time, parse_duration)
    if limit_s is not None and limit_s <= 0:
        raise PlanError(f"--time: expected a time above 0 such as 60 s, found {time}; use a longer time")
    overrides = [*(set_ or []), *([] if mover is None else [f"workload.mover={mover}"])]
    if destination is not None:
        if on not in (None, "hosts"):
            raise PlanError(f"--on: expected hosts for two endpoints, found {on}; omit it, or name a scenario")
        target, own = endpoint_scenario(target, destination, hosts=hosts, runs=runs, yes=yes, quiet=quiet or as_json)
        overrides, hosts, yes = [*own, *overrides], None, True
    loaded = load(target, overrides, on=on)
    scenario = tune_scenario(loaded, directory=_directory(target))
    chosen = choose_backend(loaded, expand(loaded).header, on or study_backend(target), "tune", hosts)
    simulated = chosen == "sim"
    time_s = limit_s or (math.inf if simulated else DEFAULT_TIME_S)
    real = scenario_executor(chosen, scratch=scratch, runs=runs, hosts=hosts, yes=yes, quiet=quiet or as_json)
    trials = SIMULATED_TRIALS if simulated else REAL_TRIALS
    backend = ScenarioBackend(scenario, _simulate if simulated else real, trials=trials, reseed=simulated)
    show = None if quiet or as_json else _show
    found = tune_backend(backend, rule, max_probes=max_probes, time_s=time_s, on_probe=show)
    if as_json:
        from venturi.tuning.text import as_json as to_json

        print_json({"backend": chosen, **to_json(found)})
    else:
        print_data(_text(found, simulated=simulated))


def _directory(target: str) -> Path:
    path = Path(target)
    return path.parent if path.is_file() else Path.cwd()


def _simulate(scenario: Scenario) -> Run:
    from venturi.simulation import simulate

    return simulate(scenario)


def _show(number: int, settings: TunedSettings, probe: TuneProbe | None) -> None:
    from venturi.tuning.text import rate_text

    print_status(f"probe {number}: {settings}" if probe is None else f"probe {number}: {rate_text(probe)}")


def _text(found: TuneResult, *, simulated: bool) -> Group:
    from venturi.tuning import command_line
    from venturi.tuning.text import sentence
    from venturi.units import format_duration

    time = format_duration(found.time_s)
    parts: list[Text | Table] = [
        Text(sentence(found), style="bold"),
        Text(),
        _probes(found),
        Text(f"Ended: {found.reason}. Trials took {time}{' of simulated time' if simulated else ''}."),
        Text(),
        _prices(found),
        Text(
            "Competitor: part of a full link for one connection of another user, 1/(connections + 1), not measured."
        ),
    ]
    if simulated:
        parts.append(
            Text("The simulator has no CPU time of movers and no retransmissions: use lab or hosts for them.")
        )
    if any(_is_wide(probe) for probe in found.probes):
        parts.append(Text("An interval is wider than ± 5 %: use larger files, or more --time."))
    parts += [Text(), Text(f"Command: {command_line(found.mover, found.best.settings)}")]
    return Group(*parts)


def _is_wide(probe: TuneProbe) -> bool:
    from venturi.tuning.backend import HALF_WIDTH

    return probe.interval is not None and (probe.interval.relative_half_width or 0.0) > HALF_WIDTH


def _probes(found: TuneResult) -> Table:
    from venturi.tuning.text import rate_text
    from venturi.units import format_duration

    table = Table(box=None, pad_edge=False)
    for title in ("probe", "settings", "rate", "trials", "time"):
        table.add_column(title)
    for number, probe in enumerate(found.probes, 1):
        table.add_row(
            str(number),
            str(probe.settings) + (" (best)" if probe is found.best else ""),
            rate_text(probe) + (f" ({100 * (1 - probe.success):.0f} % failed)" if probe.success < 1 else ""),
            str(len(probe.rates_bytes_per_s)),
            format_duration(probe.time_s),
        )
    return table


def _prices(found: TuneResult) -> Table:
    from venturi.tuning import pareto
    from venturi.tuning.text import competitor_part
    from venturi.units import format_rate

    table = Table(box=None, pad_edge=False)
    for title in ("Pareto-optimal settings", "rate", "CPU per GB", "retransmitted", "connections", "competitor"):
        table.add_column(title)
    for probe in sorted(pareto(found.probes), key=lambda one: -one.rate_bytes_per_s):
        part = competitor_part(probe)
        table.add_row(
            str(probe.settings),
            format_rate(probe.rate_bytes_per_s),
            "–" if probe.cpu_s_per_gb is None else f"{probe.cpu_s_per_gb:.3g} s",
            "–" if probe.retransmitted is None else f"{100 * probe.retransmitted:.3g} %",
            "–" if probe.settings.connections is None else str(probe.settings.connections),
            "–" if part is None else f"{100 * part:.0f} %",
        )
    return table
