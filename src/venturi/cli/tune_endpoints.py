"""Scenario to tune a copy between two endpoints: `venturi measure` writes it."""

from __future__ import annotations

import tomllib
from pathlib import Path

from venturi.cli.outcome import print_status
from venturi.errors import MeasureError

__all__ = ["endpoint_scenario"]


def endpoint_scenario(
    source: str, destination: str, *, hosts: Path | None, runs: Path, yes: bool, quiet: bool
) -> tuple[str, list[str]]:
    """Measure a path for the shortest time, and return the saved scenario with overrides for its tuning.

    The overrides select the size of the measured copy, and omit the options of the measurement.

    Raises
    ------
    MeasureError
        If the measurement failed, or if no mover supports both endpoints.
    """
    from venturi.backend.targets import read_targets
    from venturi.cli.measure import prepare_servers
    from venturi.cli.measure_view import measure_view
    from venturi.measure import MeasureOptions, measure, parse_endpoint, save
    from venturi.measure.measure import MIN_TIME_S
    from venturi.measure.save import SCENARIO

    targets = read_targets(hosts) if hosts is not None else {}
    a, b = parse_endpoint(source).at(targets), parse_endpoint(destination).at(targets)
    options = prepare_servers(a, b, MeasureOptions(MIN_TIME_S), runs, yes=yes)
    with measure_view(quiet=quiet) as view:
        result = measure(a, b, options, on_progress=view.show)
    saved = save(result, a, b, runs, options.directory)
    if result.remains is not None:
        print_status(f"venturi: {result.remains}")
    if result.failure is not None:
        raise MeasureError(f"the measurement of {source} and {destination} ended early: {result.failure}")
    file = saved / SCENARIO
    if not file.is_file():
        raise MeasureError(
            f"expected a mover for both {source} and {destination}, found none; write a scenario with your tool"
        )
    workload = tomllib.loads(file.read_text(encoding="utf-8"))["workload"]
    size = workload["factors"]["size"][-1]
    print_status(f"scenario: {file}, with files of {size}")
    return str(file), [f'workload.factors.size=["{size}"]', "workload.options={}"]
