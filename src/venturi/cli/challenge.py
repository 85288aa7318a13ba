"""``venturi challenge``: check whether a testbed carries a table of rates, and export it."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from venturi.cli.options import JsonFlag, option_quantity
from venturi.cli.outcome import check_output, print_data, print_json, print_status, report_write_errors

if TYPE_CHECKING:
    from venturi.challenge import ChallengeTable, ChallengeTestbed, Feasibility

__all__ = ["challenge"]


def challenge(
    table: Annotated[
        Path | None,
        typer.Argument(
            metavar="TABLE", help="CSV or TOML file with from, to, rate, start, end and sizes.", dir_okay=False
        ),
    ] = None,
    testbed: Annotated[
        Path | None,
        typer.Option("--testbed", help="Testbed or scenario with hosts, links and storages.", dir_okay=False),
    ] = None,
    wlcg: Annotated[
        int | None,
        typer.Option("--wlcg", metavar="SITES", help="Generate a testbed like the WLCG instead of --testbed."),
    ] = None,
    total: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="With --wlcg and without a table: sum of the rates of all pairs, shared by link rates.",
        ),
    ] = None,
    duration: Annotated[
        str, typer.Option(metavar="DURATION", help="With --total: duration of the challenge.")
    ] = "1 h",
    sizes: Annotated[
        str, typer.Option(metavar="SIZES", help="With --total: file sizes, such as `1 GB; 4 GB`.")
    ] = "1 GB",
    uncertainty: Annotated[
        float, typer.Option(metavar="FRACTION", help="Uncertainty of each capacity: 0.05 is ±5 %.", min=0.0, max=0.99)
    ] = 0.0,
    weights: Annotated[
        Literal["requested", "equal"],
        typer.Option(
            help="Shares of rows on a full link: in proportion to their rates, as in an open loop, or equal."
        ),
    ] = "requested",
    seed: Annotated[int, typer.Option(min=0, help="Seed of --wlcg and of the drawn capacities.")] = 1,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Directory for the page, tables (CSV) and the heat map (PNG).", file_okay=False
        ),
    ] = None,
    scenario: Annotated[
        Path | None, typer.Option(help="Write a scenario with the workload inject for `venturi run`.", dir_okay=False)
    ] = None,
    mover: Annotated[
        str | None, typer.Option(help="Mover of the scenario. Default: xrdcp.", show_default=False)
    ] = None,
    rucio: Annotated[
        Path | None,
        typer.Option(
            help="Write a plan for the load injector of Rucio: JSON, or CSV for a name with .csv.", dir_okay=False
        ),
    ] = None,
    starts_at: Annotated[
        str | None, typer.Option("--starts-at", metavar="TIME", help="With --rucio: start of the challenge in UTC.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check whether a testbed carries the rates of a data challenge, before any transfer.

    The result names the links, storages and sites that limit the challenge, the expected rate of each row with an interval,
    and the capacities that make it feasible. Exit code 0 for each result.

    Examples: `venturi challenge rates.csv --testbed testbed.toml -o feasibility`, `venturi challenge rates.csv --testbed
    testbed.toml --scenario inject.toml`, `venturi challenge --wlcg 100 --total "1 Tb/s"`
    """
    for path in (scenario, rucio):
        if path is not None:
            check_output(path)
    if output is not None:
        check_output(output, directory=True)
    bed = _testbed(testbed, wlcg, seed)
    rates = _table(table, bed, total, duration, sizes, generated=wlcg is not None)
    result = _check(rates, bed, uncertainty, weights, seed, quiet=as_json)
    if scenario is not None:
        _write_scenario(scenario, rates, bed, mover)
    if rucio is not None:
        _write_rucio(rucio, rates, bed, starts_at)
    if output is not None:
        _write_report(output, result)
    _print(result, as_json=as_json)


def _testbed(path: Path | None, sites: int | None, seed: int) -> ChallengeTestbed:
    from venturi.challenge import build_testbed, read_testbed
    from venturi.testbed.wlcg import wlcg as generate

    if (path is None) == (sites is None):
        found = "neither" if path is None else "both"
        raise typer.BadParameter(f"expected --testbed FILE or --wlcg SITES, found {found}; use one of them")
    if path is not None:
        return read_testbed(path)
    assert sites is not None
    return build_testbed(generate(sites, seed), f"testbed wlcg --sites {sites} --seed {seed}")


def _table(
    path: Path | None, bed: ChallengeTestbed, total: str | None, duration: str, sizes: str, *, generated: bool
) -> ChallengeTable:
    from venturi.challenge import read_table
    from venturi.challenge.generate import generate_table
    from venturi.units import parse_bytes, parse_duration, parse_rate_bit_per_s

    if path is not None:
        if total is not None:
            raise typer.BadParameter("expected a table or --total RATE, found both; remove one of them")
        return read_table(path)
    if not generated or total is None:
        needed = '--total RATE, such as "1 Tb/s", or a table' if generated else "a table of rates"
        raise typer.BadParameter(f"expected {needed}, found nothing; add it")
    rate = option_quantity("--total", total, parse_rate_bit_per_s)
    duration_s = option_quantity("--duration", duration, parse_duration)
    if rate <= 0 or duration_s <= 0:
        raise typer.BadParameter(
            f"expected a rate and a duration above 0, found {total} and {duration}; correct them"
        )
    parts = tuple(option_quantity("--sizes", part, parse_bytes) for part in sizes.split(";"))
    return generate_table(bed, rate, duration_s, parts)


def _check(
    rates: ChallengeTable, bed: ChallengeTestbed, uncertainty: float, weights: Literal["requested", "equal"], seed: int, *, quiet: bool
) -> Feasibility:  # fmt: skip
    from venturi.challenge import ChallengeOptions, check_feasibility
    from venturi.cli.progress import task_bar

    with task_bar(quiet=quiet) as bar:
        task = bar.add_task("intervals of time", total=None)
        return check_feasibility(
            rates,
            bed,
            ChallengeOptions(uncertainty, weights, seed),
            on_progress=lambda done, total: bar.update(task, completed=done, total=total),
        )


def _print(result: Feasibility, *, as_json: bool) -> None:
    from rich.console import Group
    from rich.text import Text

    from venturi.challenge.sections import challenge_section, feasibility_json

    if as_json:
        print_json(feasibility_json(result))
        return
    from venturi.report.terminal_section import section_parts

    section = challenge_section(result)
    # The first line is the result, and the assumptions follow the tables.
    tables = section_parts(dataclasses.replace(section, sentence="", note=""))[1:]
    print_data(Group(Text(section.sentence, style="bold"), *tables, Text(section.note)))


def _write_scenario(path: Path, rates: ChallengeTable, bed: ChallengeTestbed, mover: str | None) -> None:
    from venturi.challenge.scenario import DEFAULT_MOVER, challenge_scenario
    from venturi.report.toml import as_toml

    document = challenge_scenario(rates, bed, path.stem, mover or DEFAULT_MOVER, path.parent)
    with report_write_errors(path):
        path.write_text(f"# venturi challenge {rates.source}\n\n{as_toml(document)}\n", encoding="utf-8")
    print_status(f"wrote {path}")


def _write_rucio(path: Path, rates: ChallengeTable, bed: ChallengeTestbed, starts_at: str | None) -> None:
    from venturi.challenge.rucio import injector_csv, injector_entries, injector_json, parse_utc

    start = None if starts_at is None else parse_utc(starts_at)
    entries = injector_entries(rates, bed)
    if path.suffix.lower() == ".csv":
        text = injector_csv(entries, start)
    else:
        text = json.dumps(injector_json(entries, start), indent=2) + "\n"
    with report_write_errors(path):
        path.write_text(text, encoding="utf-8")
    print_status(f"wrote {path}")


def _write_report(directory: Path, result: Feasibility) -> None:
    from venturi.challenge.sections import challenge_section, full_tables
    from venturi.report.heat_map import heat_map
    from venturi.report.png import save
    from venturi.report.single import single_html
    from venturi.report.tables_section import write_sections

    required: dict[tuple[str, str], float] = defaultdict(float)
    expected: dict[tuple[str, str], float] = defaultdict(float)
    for one in result.rows:
        pair = (one.row.source, one.row.destination)
        duration_s = one.row.end_s - one.row.start_s if one.row.end_s < float("inf") else 1.0
        required[pair] += one.row.rate_bit_per_s * duration_s
        expected[pair] += one.expected_bit_per_s * duration_s
    names = list(dict.fromkeys(name for pair in required for name in pair))
    picture = heat_map(
        "challenge-reached",
        "Expected data as a fraction of the required data",
        "Sources are rows, destinations are columns. The lightest colour is 100 %.",
        {pair: expected[pair] / required[pair] for pair in required},
        [name for name in names if any(pair[0] == name for pair in required)],
        [name for name in names if any(pair[1] == name for pair in required)],
    )
    section = challenge_section(result)
    with report_write_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        page = directory / "challenge.html"
        page.write_text(single_html(section, result.table, [picture]), encoding="utf-8")
        written = [page, *write_sections([full_tables(result)], directory), *save([picture], directory)]
    for path in written:
        print_status(f"wrote {path}")
