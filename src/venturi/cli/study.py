"""``venturi study``: list, show, run and compare published experiments."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from venturi.cli.options import RUNS, Full, Hosts, JsonFlag, KeepLogs, On, Portable, Runs, Scratch, Set, Yes
from venturi.cli.outcome import Exit, print_data, print_json, print_status, report_write_errors
from venturi.cli.report import show_report
from venturi.cli.run import conclude, resume_scenario, run_scenario
from venturi.cli.source import check_one_variant
from venturi.errors import ScenarioError, VenturiError
from venturi.run import Run, resolve_run
from venturi.scenario import load_scenario
from venturi.study import Published, Study, experiments, reports, studies, studies_of

if TYPE_CHECKING:
    from venturi.analysis.study_comparison import StudyResult

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Reproduce published experiments: list, show, run, compare.")


def _complete(incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield the studies and experiments with this prefix and their titles, for shell completion."""
    candidates = [*((s.name, s.title) for s in studies().values()), *((e.id, e.about) for e in experiments())]
    return ((name, about) for name, about in candidates if name.startswith(incomplete))


NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name of a study, such as cnaf/cp, or ID of an experiment with all its studies, such as 002-SQ.",
        autocompletion=_complete,
    ),
]


@app.command(name="list")
def list_(as_json: JsonFlag = False) -> None:
    """List the studies, the five reports, and the experiments of the reports with their studies.

    Example: `venturi study list --json`
    """
    known, all_experiments = studies(), experiments()
    if as_json:
        listed = [
            {"name": s.name, "document": s.document, "title": s.title, "experiments": s.experiments}
            for s in known.values()
        ]
        print_json({"studies": listed, "experiments": [asdict(e) for e in all_experiments]})
        return
    width = max(map(len, known))
    for s in known.values():
        print_data(f"{s.name:{width}}  {s.title} ({', '.join((f'report {s.document}', *s.experiments))})")
    print_data("\nReports:")
    for report in reports().values():
        print_data(f"{report.id}  {report.short_citation()}: {report.title or report.publication}")
    print_data("\nExperiments of the reports:")
    id_width, section_width = (max(len(getattr(e, name)) for e in all_experiments) for name in ("id", "section"))
    for e in all_experiments:
        print_data(f"{e.id:{id_width}}  {e.section:{section_width}}  {', '.join(e.studies) or 'no study'}: {e.about}")


@app.command()
def show(
    named: NameArgument,
    scenario: Annotated[bool, typer.Option("--scenario", help="Print only the scenario file.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show the purpose, report, published results, errata, and scenario of a study.

    To start a scenario of your own, save that of a study with --scenario.

    Examples: `venturi study show 002-SQ`, `venturi study show cnaf/cp --scenario > my.toml`
    """
    chosen = studies_of(named)
    if scenario and len(chosen) > 1:
        raise ScenarioError(
            [("--scenario", f"expected one study, found several for {named}: {_names(chosen)}; name one of them")],
            "study",
        )
    texts = [one.scenario_path.read_text(encoding="utf-8") for one in chosen]
    if scenario:
        print_data(texts[0].rstrip("\n"))
    elif as_json:
        records = [_as_json(one, text) for one, text in zip(chosen, texts, strict=True)]
        print_json(records[0] if chosen[0].name == named else records)
    else:
        for one, text in zip(chosen, texts, strict=True):
            _print_study(one, text)


def _as_json(chosen: Study, scenario: str) -> dict[str, object]:
    return {
        **asdict(chosen),
        "report": asdict(chosen.report),
        "scenario_path": str(chosen.scenario_path),
        "scenario": scenario,
    }


def _names(chosen: Sequence[Study]) -> str:
    return ", ".join(one.name for one in chosen)


def _print_study(chosen: Study, scenario: str) -> None:
    print_data(f"{chosen.name}: {chosen.title}\n{chosen.question}\n")
    scope = f"experiments {', '.join(chosen.experiments)}" if chosen.experiments else "a question beyond the report"
    print_data(f"Report {chosen.document} ({chosen.report.short_citation()}), {scope}.")
    print_data(f"{chosen.report.full_reference()} See {chosen.report.entry}.\n")
    if chosen.lab:
        print_data(f"Default variant: {chosen.lab_about}; same as {_as_options(chosen.lab)}")
        print_data("Full variant (--full, --on sim): the published parameters of the scenario below")
    if chosen.sim:
        print_data(f"Simulation (--on sim): {chosen.sim_about}; same as {_as_options(chosen.sim)}")
    if chosen.hosts:
        print_data(
            f"Existing hosts (--on hosts, --portable): {chosen.hosts_about}; same as {_as_options(chosen.hosts)}"
        )
    if chosen.sim_differs:
        print_data(f"Differences between simulation and report: {chosen.sim_differs}")
    print_data(f"Quick variant (--quick): {chosen.quick_about}; same as {_as_options(chosen.quick)}\n")
    _print_published(chosen.published)
    print_data("\nErrata of the report:")
    for erratum in chosen.errata:
        print_data(
            f"  {erratum.id} ({erratum.status}), {erratum.location}: printed {erratum.printed}; {erratum.reading}"
        )
    print_data(f"\nScenario, {chosen.scenario_path}:\n\n{scenario}")


def _print_published(published: Published) -> None:
    from venturi.analysis.claims import check_against_report

    for title, rows in (("fits", published.fits), ("totals", published.totals), ("rates", published.rates)):
        if rows:
            print_data(f"Published {title}:")
            for row in rows:
                print_data("  " + ", ".join(f"{key} {value}" for key, value in row.items()))
    tables = (*published.tables, *published.evidence)
    if tables:
        print_data("Published tables:")
        for table in tables:
            print_data(f"  {table.id}: {table.name}, {len(table.rows)} rows. {table.about}")
    if published.claims:
        print_data("Claims of the report:")
        for claim in published.claims:
            verdict = check_against_report(claim, tables)
            errata = f" ({', '.join(claim['errata'])})" if "errata" in claim else ""
            own_tables = f"; tables of the report: {verdict.verdict}: {verdict.evidence}" if verdict else ""
            print_data(f"  {claim['id']}: {claim['text']}{errata}{own_tables}")


def _as_options(overrides: tuple[str, ...]) -> str:
    return " ".join(f"--set {shlex.quote(override)}" for override in overrides)


@app.command()
def compare(
    named: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Runs of one study, by path or name, or directories of docs/studies with published results.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Directory for the page and tables (CSV).", file_okay=False),
    ] = None,
    runs: Runs = RUNS,
    as_json: JsonFlag = False,
) -> None:
    """Compare runs of a study with the published results: values, ratios, and a verdict on each claim.

    Scaled runs are converted to full size. A typical comparison has a run from the lab and a run with --on sim.

    Example: `venturi study compare docs/studies/ani/squid ani-squid`
    """
    from venturi import report as forms  # scipy and matplotlib take seconds to import
    from venturi.analysis.study_comparison import compare_study_results

    results = [_load_result(name, runs) for name in named]
    section = compare_study_results(results)
    if as_json:
        print_json(asdict(section))
    else:
        print_data(forms.single_terminal(section))
    if output is not None:
        with report_write_errors(output):
            written = forms.write_single(section, f"Study {results[0].study}", output)
        for path in written:
            print_status(f"wrote {path}")


def _load_result(named: str, runs: Path) -> StudyResult:
    """Return the result of a run, or of a directory with a published report."""
    from venturi.analysis import AnalyseOptions, analyse
    from venturi.analysis.study_comparison import study_result
    from venturi.analysis.study_files import ABOUT, load_study_result

    directory = Path(named)
    if (directory / ABOUT).is_file():
        return load_study_result(directory)
    return study_result(analyse(Run.open(resolve_run(named, runs)), AnalyseOptions()))


@app.command()
def run(
    named: NameArgument,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use the small variant: minutes instead of hours or days.")
    ] = False,
    full: Full = False,
    portable: Portable = False,
    set_: Set = None,
    on: On = None,
    scratch: Scratch = None,
    runs: Runs = RUNS,
    keep_logs: KeepLogs = False,
    hosts: Hosts = None,
    yes: Yes = False,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the newest run of this study.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Hide progress.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a study and print its report. For an experiment, run all its studies in sequence.

    Studies for the lab run at the scale of one machine; --full selects the published parameters. Other studies, and all
    studies with --on sim, run at the published parameters. A simulation takes seconds to minutes. Other backends can need
    days and terabytes: check with `venturi plan NAME --full`. Venturi rejects a plan that does not fit on the disks. Try
    --quick first. --hosts runs a study on existing hosts. Exit code 3, after the report, if transfers failed. With --json,
    print one document per study.

    Examples: `venturi study run cnaf/cp --quick --set workload.cache=cold`, `venturi study run 002-SQ --on sim`
    """
    check_one_variant(quick=quick, full=full)
    chosen = studies_of(named)
    if hosts is not None:
        on = on or "hosts"
    if chosen[0].name != named:
        print_status(f"{named}: {_names(chosen)}")

    def execute(one: Study) -> None:
        variant = one.overrides(quick=quick, full=full, on=on, portable=portable)
        scenario = load_scenario(one.scenario_path, overrides=[*variant, *(set_ or ())])
        if resume:
            finished = resume_scenario(
                scenario, scratch=scratch, runs=runs, quiet=quiet, keep_logs=keep_logs, yes=yes, hosts=hosts
            )
        else:
            finished = run_scenario(
                scenario,
                on=on or one.on,
                scratch=scratch,
                runs=runs,
                quiet=quiet,
                keep_logs=keep_logs,
                yes=yes,
                hosts=hosts,
            )
        path, outcome, failure = finished
        if outcome.state == "complete":
            try:
                show_report(Run.open(path), as_json=as_json)
            except KeyboardInterrupt:
                print_status(f"interrupted; the run is complete; next: venturi report {path}")
                raise typer.Exit(Exit.STOPPED) from None
        conclude(path, outcome, failure, quiet=quiet, reported=True)

    if len(chosen) == 1:
        execute(chosen[0])
    else:
        _run_in_sequence(chosen, execute)


def _run_in_sequence(chosen: Sequence[Study], execute: Callable[[Study], None]) -> None:
    """Run all studies. Continue after errors and failed transfers; stop at Ctrl-C.

    Raises
    ------
    typer.Exit
        With the most severe code: an error before failed transfers.
    """
    codes: dict[str, int] = {}
    for index, one in enumerate(chosen):
        try:
            execute(one)
        except typer.Exit as stop:
            if stop.exit_code == Exit.STOPPED:
                rest = _names(chosen[index + 1 :])
                if rest:
                    print_status(f"not started: {rest}")
                raise
            codes[one.name] = stop.exit_code
        except VenturiError as error:
            print_status(f"venturi: {one.name}: {error}")
            codes[one.name] = Exit.ERROR
    if codes:
        print_status(f"failed: {', '.join(codes)}; {len(chosen) - len(codes)} of {len(chosen)} studies succeeded")
        raise typer.Exit(Exit.ERROR if Exit.ERROR in codes.values() else next(iter(codes.values())))
