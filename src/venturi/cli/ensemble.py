"""``venturi ensemble``: a scenario simulated with many seeds and parameters."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from venturi.cli.options import RUNS, As, Runs, Set
from venturi.cli.outcome import Exit, data, data_json, talk
from venturi.cli.source import scenario_file
from venturi.errors import ScenarioError
from venturi.units import format_bytes, format_duration, format_rate

if TYPE_CHECKING:
    from venturi.simulation import Ensemble, Group, Member, Summarised

__all__ = ["ensemble"]


def ensemble(
    scenario: Annotated[str, typer.Argument(help="Scenario file, or the name of a study.")],
    seeds: Annotated[
        str | None,
        typer.Option(help="Seeds, such as 0..99 or 1,2,5; without them the scenario's own.", show_default=False),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=A,B,…",
            help="Values of the scenario that differ: `--vary workload.repeat=5,10`. Repeatable: all combinations.",
        ),
    ] = None,
    set_: Set = None,
    costs: Annotated[
        Path | None, typer.Option(help="A file of costs, in place of what the scenario says.", dir_okay=False)
    ] = None,
    figure: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SQL", help="A further figure of each run: one number in SQL over its tables. Repeatable."
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--directory",
            "-d",
            file_okay=False,
            show_default=False,
            help="Where it is to be, or is: members that are there are not simulated again. Default: a new one in runs/.",
        ),
    ] = None,
    keep_runs: Annotated[
        bool, typer.Option("--keep-runs", help="Keep the run of each member, not its figures alone.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(help="Members at once. Default: as many as there are cores.", show_default=False)
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Simulate on the Dask cluster with this scheduler: tcp://host:8786."),
    ] = None,
    runs: Runs = RUNS,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")] = False,
    as_json: As = False,
) -> None:
    """Simulate a scenario with many seeds and parameters: a table of members in `members.jsonl`, and each figure over the seeds.

    Members that fail are named, and the rest goes on. Ctrl-C leaves what is done, and says how to go on. Exit code 3 if members failed.

    Example: `venturi ensemble my.toml --seeds 0..99 --vary 'testbed.link.wan.rate=10 Gb/s,40 Gb/s'`
    """
    from venturi.simulation import (
        ensemble as simulated,
    )  # numpy and scipy: a moment that other commands need not wait for

    path, overrides = scenario_file(scenario, set_ or [], on="sim")
    chosen = None if seeds is None else seeds_of(seeds)
    home: list[Path] = []
    with _shown(quiet=quiet or as_json) as bar:
        task = bar.add_task("members", total=None, failed="")

        def show(done: int, total: int, failed: int) -> None:
            bar.update(task, completed=done, total=total, failed=f"{failed} failed" if failed else "")

        try:
            found = simulated(
                path, seeds=chosen, vary=dict(map(_varied, vary or [])), overrides=overrides, costs=costs,
                figures=dict(map(_figure, figure or [])), directory=directory, runs=runs, keep_runs=keep_runs,
                workers=workers, dask=dask, on_directory=home.append, on_progress=show,
            )  # fmt: skip
        except KeyboardInterrupt:
            bar.stop()
            if not home:
                raise
            there = f" with --directory {home[0]}" if directory is None else ""
            talk(f"stopped; what is done stays; go on with: the same command{there}")
            raise typer.Exit(Exit.STOPPED) from None
    if as_json:
        data_json(_as_json(found))
    else:
        for group in found.summary():
            data(_table(group))
    for members in _by_error(found.failed):
        others = f", and {len(members) - 1} others" if len(members) > 1 else ""
        talk(f"failed: {members[0].name}{others}: {members[0].error}")
    talk(f"{len(found.members) - len(found.failed)} of {len(found.members)} members, in {found.path}")
    if found.failed:
        raise typer.Exit(Exit.FAILED_TRANSFERS)


def seeds_of(text: str) -> list[int]:
    """Return seeds, the ends of a range included.

    Examples
    --------
    >>> seeds_of("0..3"), seeds_of("7, 9")
    ([0, 1, 2, 3], [7, 9])
    """
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,15})\s*(?:\.\.\s*(\d{1,15})\s*)?", part)
        if match is None:
            raise _wrong("--seeds", f"expected numbers such as 0..99 or 1,2,5, found {text}")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < first + _MOST_SEEDS:
            raise _wrong("--seeds", f"expected a range upwards of at most {_MOST_SEEDS} seeds, found {part.strip()}")
        found += range(first, last + 1)
    return found


_MOST_SEEDS = 100_000


def _wrong(where: str, what: str) -> ScenarioError:
    return ScenarioError([(where, what)], "ensemble")


def _varied(text: str) -> tuple[str, list[Any]]:
    from venturi.scenario.document import value_of

    key, equals, values = text.partition("=")
    if not equals or not key.strip() or not values.strip():
        raise _wrong("--vary", f"expected KEY=A,B,… such as workload.repeat=5,10, found {text}")
    return key.strip(), [value_of(part) for part in _parts(values)]


def _parts(text: str) -> list[str]:
    """Return the parts between commas that stand in no quotes and no brackets."""
    return [part.strip() for part in re.findall(r"""((?:"[^"]*"|'[^']*'|\[[^\]]*\]|[^,])+)""", text)]


def _figure(text: str) -> tuple[str, str]:
    name, equals, sql = text.partition("=")
    if not equals or not name.strip() or not sql.strip():
        raise _wrong("--figure", f"expected NAME=SQL, found {text}")
    return name.strip(), sql.strip()


def _by_error(failed: Iterable[Member]) -> list[list[Member]]:
    """Return members that failed for one reason together: it is told once, not for each of a thousand seeds."""
    found: dict[str, list[Member]] = {}
    for member in failed:
        found.setdefault(member.error, []).append(member)
    return list(found.values())


def _shown(*, quiet: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[failed]}"))  # fmt: skip
    from rich.console import Console

    console = Console(stderr=True)
    # Off a terminal it would leave an empty line and nothing else.
    return Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)


def _table(group: Group) -> Table:
    title = ", ".join(f"{key} = {value}" for key, value in group.parameters.items())
    count = f"{group.members} members" + (f", {group.failed} failed" if group.failed else "")
    table = Table(title=f"{title}: {count}" if title else count, title_justify="left", box=None, pad_edge=False)
    for heading in ("figure", "median", "95 % of median", "smallest", "largest", "mean"):
        table.add_column(heading, justify="left" if heading == "figure" else "right")
    for name, one in group.figures.items():
        table.add_row(name, *_cells(name, one))
    return table


def _cells(name: str, one: Summarised) -> list[str]:
    between = one.median_interval
    interval = "" if between is None else f"{_text(name, between.low)} to {_text(name, between.high)}"
    mean = "" if one.mean is None else _text(name, one.mean.estimate)
    return [_text(name, one.median), interval, _text(name, one.low), _text(name, one.high), mean]


def _text(name: str, value: float) -> str:
    """Return a figure with the unit that its name tells."""
    if not math.isfinite(value):
        return ""
    if name.endswith("_bytes_per_s"):
        return format_rate(value)
    if name.endswith("_bytes"):
        return format_bytes(round(value))
    return format_duration(value) if name.endswith("_s") else f"{value:,.6g}"


def _as_json(found: Ensemble) -> dict[str, Any]:
    return {
        "ensemble": str(found.path),
        "members": [member.as_record() for member in found.members],
        "groups": [dataclasses.asdict(group) for group in found.summary()],
    }
