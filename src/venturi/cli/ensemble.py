"""``venturi ensemble``: simulate a scenario with many seeds and parameters."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import TextColumn
from rich.table import Table

from venturi.cli.options import RUNS, JsonFlag, Runs, Set
from venturi.cli.outcome import Exit, print_data, print_json, print_status
from venturi.cli.progress import task_bar
from venturi.cli.source import scenario_file
from venturi.errors import ScenarioError
from venturi.units import format_bytes, format_duration, format_rate

if TYPE_CHECKING:
    from venturi.simulation import Ensemble, Member, SeedGroup, Summarised

__all__ = ["ensemble"]


def ensemble(
    scenario: Annotated[str, typer.Argument(help="Scenario file, or the name of a study.")],
    seeds: Annotated[
        str | None,
        typer.Option(help="Seeds, such as 0..99 or 1,2,5. Default: the seed of the scenario.", show_default=False),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=A,B,…",
            help="Values of a scenario key: `--vary workload.repeat=5,10`. Repeatable; all combinations are simulated.",
        ),
    ] = None,
    set_: Set = None,
    costs: Annotated[
        Path | None, typer.Option(help="File with costs that replace the costs of the scenario.", dir_okay=False)
    ] = None,
    figure: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SQL",
            help="Additional figure of each run: an SQL query over its tables that returns one number. Repeatable.",
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--directory",
            "-d",
            file_okay=False,
            show_default=False,
            help="Directory of the ensemble. Its members are not simulated again. Default: a new directory in runs/.",
        ),
    ] = None,
    keep_runs: Annotated[
        bool, typer.Option("--keep-runs", help="Keep the run of each member, in addition to its figures.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Number of members to simulate at the same time. Default: the number of cores.", show_default=False
        ),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Address of the Dask scheduler that simulates the members, such as tcp://host:8786.",
        ),
    ] = None,
    runs: Runs = RUNS,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Hide progress.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Simulate a scenario with many seeds and parameters, and summarise each figure over the seeds.

    `members.jsonl` has one line per member. If a member fails, the others continue. Ctrl-C keeps finished members and
    prints the command that resumes. Exit code 3 if members failed.

    Example: `venturi ensemble my.toml --seeds 0..99 --vary 'testbed.link.wan.rate=10 Gb/s,40 Gb/s'`
    """
    from venturi.simulation import (
        ensemble as simulated,
    )  # numpy and scipy take a moment to import

    path, overrides = scenario_file(scenario, set_ or [], on="sim")
    chosen = None if seeds is None else parse_seeds(seeds)
    home: list[Path] = []
    with task_bar(TextColumn("{task.fields[failed]}"), quiet=quiet or as_json) as bar:
        task = bar.add_task("members", total=None, failed="")

        def show(done: int, total: int, failed: int) -> None:
            bar.update(task, completed=done, total=total, failed=f"{failed} failed" if failed else "")

        try:
            found = simulated(
                path, seeds=chosen, vary=dict(map(_parse_vary, vary or [])), overrides=overrides, costs=costs,
                figures=dict(map(_parse_figure, figure or [])), directory=directory, runs=runs, keep_runs=keep_runs,
                workers=workers, dask=dask, on_directory=home.append, on_progress=show,
            )  # fmt: skip
        except KeyboardInterrupt:
            bar.stop()
            if not home:
                raise
            option = f" with --directory {home[0]}" if directory is None else ""
            print_status(f"interrupted; finished members are kept. To resume, run the same command{option}")
            raise typer.Exit(Exit.STOPPED) from None
    if as_json:
        print_json(_as_json(found))
    else:
        for group in found.summary():
            print_data(_table(group))
    for members in _group_by_error(found.failed):
        others = f", and {len(members) - 1} others" if len(members) > 1 else ""
        print_status(f"failed: {members[0].name}{others}: {members[0].error}")
    print_status(f"{len(found.members) - len(found.failed)} of {len(found.members)} members, in {found.path}")
    if found.failed:
        raise typer.Exit(Exit.FAILED_TRANSFERS)


def parse_seeds(text: str) -> list[int]:
    """Return seeds. A range includes its last seed.

    Examples
    --------
    >>> parse_seeds("0..3"), parse_seeds("7, 9")
    ([0, 1, 2, 3], [7, 9])
    """
    found: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,15})\s*(?:\.\.\s*(\d{1,15})\s*)?", part)
        if match is None:
            raise _option_error("--seeds", f"expected numbers such as 0..99 or 1,2,5, found {text}")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < first + _MAX_SEEDS:
            raise _option_error(
                "--seeds", f"expected an increasing range of at most {_MAX_SEEDS} seeds, found {part.strip()}"
            )
        found += range(first, last + 1)
    return found


_MAX_SEEDS = 100_000


def _option_error(option: str, problem: str) -> ScenarioError:
    return ScenarioError([(option, problem)], "ensemble")


def _parse_vary(text: str) -> tuple[str, list[Any]]:
    from venturi.scenario.document import parse_override_value

    key, equals, values = text.partition("=")
    if not equals or not key.strip() or not values.strip():
        raise _option_error("--vary", f"expected KEY=A,B,… such as workload.repeat=5,10, found {text}")
    return key.strip(), [parse_override_value(part) for part in _parts(values)]


def _parts(text: str) -> list[str]:
    """Return the parts between commas, except commas in quotes or brackets."""
    return [part.strip() for part in re.findall(r"""((?:"[^"]*"|'[^']*'|\[[^\]]*\]|[^,])+)""", text)]


def _parse_figure(text: str) -> tuple[str, str]:
    name, equals, sql = text.partition("=")
    if not equals or not name.strip() or not sql.strip():
        raise _option_error("--figure", f"expected NAME=SQL, found {text}")
    return name.strip(), sql.strip()


def _group_by_error(failed: Iterable[Member]) -> list[list[Member]]:
    """Return failed members grouped by their error, to print each error once."""
    found: dict[str, list[Member]] = {}
    for member in failed:
        found.setdefault(member.error, []).append(member)
    return list(found.values())


def _table(group: SeedGroup) -> Table:
    title = ", ".join(f"{key} = {value}" for key, value in group.parameters.items())
    count = f"{group.members} members" + (f", {group.failed} failed" if group.failed else "")
    table = Table(title=f"{title}: {count}" if title else count, title_justify="left", box=None, pad_edge=False)
    for heading in ("figure", "median", "95 % of median", "smallest", "largest", "mean"):
        table.add_column(heading, justify="left" if heading == "figure" else "right")
    for name, one in group.figures.items():
        table.add_row(name, *_summary_cells(name, one))
    return table


def _summary_cells(name: str, one: Summarised) -> list[str]:
    between = one.median_interval
    interval = "" if between is None else f"{_text(name, between.low)} to {_text(name, between.high)}"
    mean = "" if one.mean is None else _text(name, one.mean.estimate)
    return [_text(name, one.median), interval, _text(name, one.low), _text(name, one.high), mean]


def _text(name: str, value: float) -> str:
    """Return a figure with the unit that follows from its name."""
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
