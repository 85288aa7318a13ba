"""``venturi study``: the published experiments as scenarios."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Annotated

import typer

from venturi.cli.options import RUNS, As, Full, KeepLogs, On, Runs, Scratch, Set
from venturi.cli.outcome import data, data_json
from venturi.cli.report import show_report
from venturi.cli.run import carry_out_scenario, conclude, resume_scenario
from venturi.run import Run
from venturi.scenario import load_scenario
from venturi.study import Published, Study, experiments, studies, study

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Published experiments as scenarios: list, show, run.")


@app.command(name="list")
def list_(as_json: As = False) -> None:
    """List the studies, and every experiment of the five reports with the study that carries it out."""
    known, told = studies(), experiments()
    if as_json:
        listed = [
            {"name": s.name, "document": s.document, "title": s.title, "experiments": s.experiments}
            for s in known.values()
        ]
        data_json({"studies": listed, "experiments": [asdict(e) for e in told]})
        return
    width = max(map(len, known))
    for s in known.values():
        data(f"{s.name:{width}}  {s.title} (report {s.document}, {', '.join(s.experiments)})")
    data("\nExperiments of the reports:")
    wide, long = (max(len(getattr(e, name)) for e in told) for name in ("id", "section"))
    for e in told:
        data(f"{e.id:{wide}}  {e.section:{long}}  {', '.join(e.studies) or 'no study yet'}: {e.about}")


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="Name of a study, such as cnaf/cp.")],
    scenario: Annotated[bool, typer.Option("--scenario", help="Print the scenario file alone.")] = False,
    as_json: As = False,
) -> None:
    """Show what a study asks, what was published, the errata, and the scenario.

    `venturi study show cnaf/cp --scenario > my.toml` is a good start for a scenario of one's own.
    """
    chosen = study(name)
    text = chosen.scenario_path.read_text(encoding="utf-8")
    if scenario:
        data(text.rstrip("\n"))
    elif as_json:
        data_json({**asdict(chosen), "scenario_path": str(chosen.scenario_path), "scenario": text})
    else:
        _print_study(chosen, text)


def _print_study(chosen: Study, scenario: str) -> None:
    data(f"{chosen.name}: {chosen.title}\n{chosen.question}\n")
    data(f"Report {chosen.document}, experiments {', '.join(chosen.experiments)}.")
    if chosen.lab:
        data(f"Usual variant: {chosen.lab_about}; that is {_as_options(chosen.lab)}")
        data("Full variant (--full): the published parameters, as in the scenario below")
    data(f"Quick variant (--quick): {chosen.quick_about}; that is {_as_options(chosen.quick)}\n")
    _print_published(chosen.published)
    data("\nErrata of the report:")
    for erratum in chosen.errata:
        data(f"  {erratum.id} ({erratum.status}), {erratum.location}: printed {erratum.printed}; {erratum.reading}")
    data(f"\nScenario, {chosen.scenario_path}:\n\n{scenario}")


def _print_published(published: Published) -> None:
    from venturi.analysis.claims import held_against_published

    for title, rows in (("fits", published.fits), ("totals", published.totals), ("rates", published.rates)):
        if rows:
            data(f"Published {title}:")
            for row in rows:
                data("  " + ", ".join(f"{key} {value}" for key, value in row.items()))
    tables = (*published.tables, *published.evidence)
    if tables:
        data("Published tables:")
        for table in tables:
            data(f"  {table.id}: {table.name}, {len(table.rows)} rows. {table.about}")
    if published.claims:
        data("Claims of the report:")
        for claim in published.claims:
            told = held_against_published(claim, tables)
            slips = f" ({', '.join(claim['errata'])})" if "errata" in claim else ""
            held = f"; the report's own table {told.verdict}: {told.evidence}" if told else ""
            data(f"  {claim['id']}: {claim['text']}{slips}{held}")


def _as_options(overrides: tuple[str, ...]) -> str:
    return " ".join(f"--set {shlex.quote(override)}" for override in overrides)


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="Name of a study, such as cnaf/cp.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="The small variant: minutes instead of hours or days.")
    ] = False,
    full: Full = False,
    set_: Set = None,
    on: On = None,
    scratch: Scratch = None,
    runs: Runs = RUNS,
    keep_logs: KeepLogs = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the newest run of this study.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")] = False,
    as_json: As = False,
) -> None:
    """Carry out a study and report on it.

    A study for the lab is carried out at the scale of one machine, unless --full asks for the published parameters; others at these.
    They may take days and terabytes: `venturi plan NAME --full` tells, and what does not fit is refused before it begins. Try --quick
    first. Exit code 3, after the report, if transfers failed.

    Example: `venturi study run cnaf/cp --quick --set workload.cache=cold`
    """
    chosen = study(name)
    overrides = chosen.overrides(quick=quick, full=full)
    scenario = load_scenario(chosen.scenario_path, overrides=[*overrides, *(set_ or ())])
    if resume:
        ended = resume_scenario(scenario, scratch=scratch, runs=runs, quiet=quiet, keep_logs=keep_logs)
    else:
        ended = carry_out_scenario(
            scenario, on=on or chosen.on, scratch=scratch, runs=runs, quiet=quiet, keep_logs=keep_logs
        )
    path, outcome, failure = ended
    if outcome.state == "complete":
        show_report(Run.open(path), as_json=as_json)
    conclude(path, outcome, failure, quiet=quiet, reported=True)
