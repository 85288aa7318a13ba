"""``venturi study``: the published experiments as scenarios."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from venturi.cli.options import RUNS, As, Full, KeepLogs, On, Runs, Scratch, Set
from venturi.cli.outcome import Exit, data, data_json, talk, writing
from venturi.cli.report import show_report
from venturi.cli.run import carry_out_scenario, conclude, resume_scenario
from venturi.cli.source import check_one_variant
from venturi.errors import ScenarioError, VenturiError
from venturi.run import Run, resolve_run
from venturi.scenario import load_scenario
from venturi.study import Published, Study, experiments, studies, studies_of

if TYPE_CHECKING:
    from venturi.analysis.beside import Told

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Published experiments as scenarios: list, show, run, compare.")


def _complete(incomplete: str) -> Iterator[tuple[str, str]]:
    """Yield the studies and experiments that begin so, with what they are: for the completion of a shell."""
    told = [*((s.name, s.title) for s in studies().values()), *((e.id, e.about) for e in experiments())]
    return ((name, about) for name, about in told if name.startswith(incomplete))


Named = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name of a study, such as cnaf/cp, or ID of an experiment, such as 002-SQ: all studies of it.",
        autocompletion=_complete,
    ),
]


@app.command(name="list")
def list_(as_json: As = False) -> None:
    """List the studies, and every experiment of the five reports with the study that carries it out.

    Example: `venturi study list --json`
    """
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
        data(f"{s.name:{width}}  {s.title} ({', '.join((f'report {s.document}', *s.experiments))})")
    data("\nExperiments of the reports:")
    wide, long = (max(len(getattr(e, name)) for e in told) for name in ("id", "section"))
    for e in told:
        data(f"{e.id:{wide}}  {e.section:{long}}  {', '.join(e.studies) or 'no study yet'}: {e.about}")


@app.command()
def show(
    named: Named,
    scenario: Annotated[bool, typer.Option("--scenario", help="Print the scenario file alone.")] = False,
    as_json: As = False,
) -> None:
    """Show what a study asks, what was published, the errata, and the scenario.

    Examples: `venturi study show 002-SQ`, and as a start for a scenario of one's own `venturi study show cnaf/cp --scenario > my.toml`
    """
    chosen = studies_of(named)
    if scenario and len(chosen) > 1:
        raise ScenarioError(
            [("--scenario", f"expected one study, found those of {named}: {_names(chosen)}; name one of them")],
            "study",
        )
    texts = [one.scenario_path.read_text(encoding="utf-8") for one in chosen]
    if scenario:
        data(texts[0].rstrip("\n"))
    elif as_json:
        told = [_as_json(one, text) for one, text in zip(chosen, texts, strict=True)]
        data_json(told[0] if chosen[0].name == named else told)
    else:
        for one, text in zip(chosen, texts, strict=True):
            _print_study(one, text)


def _as_json(chosen: Study, scenario: str) -> dict[str, object]:
    return {**asdict(chosen), "scenario_path": str(chosen.scenario_path), "scenario": scenario}


def _names(chosen: Sequence[Study]) -> str:
    return ", ".join(one.name for one in chosen)


def _print_study(chosen: Study, scenario: str) -> None:
    data(f"{chosen.name}: {chosen.title}\n{chosen.question}\n")
    carries_out = f"experiments {', '.join(chosen.experiments)}" if chosen.experiments else "a question beyond it"
    data(f"Report {chosen.document}, {carries_out}.")
    if chosen.lab:
        data(f"Usual variant: {chosen.lab_about}; that is {_as_options(chosen.lab)}")
        data("Full variant (--full, --on sim): the published parameters, as in the scenario below")
    if chosen.sim:
        data(f"In virtual time (--on sim): {chosen.sim_about}; that is {_as_options(chosen.sim)}")
    if chosen.sim_differs:
        data(f"Virtual time beside the report: {chosen.sim_differs}")
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
def compare(
    named: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Runs of one study, by path or name; or folders of docs/studies, whose tables say what a run gave.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write page and tables (CSV) into this directory.", file_okay=False),
    ] = None,
    runs: Runs = RUNS,
    as_json: As = False,
) -> None:
    """Put what was published, and what runs of a study gave, side by side: values with their ratios, and the verdict of each on every claim.

    Runs that were made smaller count at full size. Most often one of the lab and one of --on sim.

    Example: `venturi study compare docs/studies/ani/squid ani-squid`
    """
    from venturi import report as forms  # scipy and matplotlib: seconds that other commands need not wait for
    from venturi.analysis.beside import side_by_side

    told = [_told(name, runs) for name in named]
    chapter = side_by_side(told)
    if as_json:
        data_json(asdict(chapter))
    else:
        data(forms.single_terminal(chapter))
    if output is not None:
        with writing(output):
            written = forms.write_single(chapter, f"Study {told[0].study}", output)
        for path in written:
            talk(f"wrote {path}")


def _told(named: str, runs: Path) -> Told:
    """Return what a run says, or the published report in a folder."""
    from venturi.analysis import AnalyseOptions, analyse
    from venturi.analysis.beside import told_of
    from venturi.analysis.beside_files import ABOUT, told_in

    folder = Path(named)
    if (folder / ABOUT).is_file():
        return told_in(folder)
    return told_of(analyse(Run.open(resolve_run(named, runs)), AnalyseOptions()))


@app.command()
def run(
    named: Named,
    quick: Annotated[
        bool, typer.Option("--quick", help="The small variant: a minute instead of hours or days.")
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
    """Carry out a study and report on it; of an experiment all studies, one after the other.

    A study for the lab is carried out at the scale of one machine, unless --full asks for the published parameters; others at these, and
    all of them with --on sim, which takes seconds to minutes. Elsewhere they may take days and terabytes: `venturi plan NAME --full` tells,
    and what does not fit is refused before it begins. Try --quick first. Exit code 3, after the report, if transfers failed. With
    --json one document for each study.

    Examples: `venturi study run cnaf/cp --quick --set workload.cache=cold`, `venturi study run 002-SQ --on sim`
    """
    check_one_variant(quick=quick, full=full)
    chosen = studies_of(named)
    if chosen[0].name != named:
        talk(f"{named}: {_names(chosen)}")

    def carry_out(one: Study) -> None:
        scenario = load_scenario(
            one.scenario_path, overrides=[*one.overrides(quick=quick, full=full, on=on), *(set_ or ())]
        )
        if resume:
            ended = resume_scenario(scenario, scratch=scratch, runs=runs, quiet=quiet, keep_logs=keep_logs)
        else:
            ended = carry_out_scenario(
                scenario, on=on or one.on, scratch=scratch, runs=runs, quiet=quiet, keep_logs=keep_logs
            )
        path, outcome, failure = ended
        if outcome.state == "complete":
            try:
                show_report(Run.open(path), as_json=as_json)
            except KeyboardInterrupt:
                talk(f"stopped; the run is whole; its report: venturi report {path}")
                raise typer.Exit(Exit.STOPPED) from None
        conclude(path, outcome, failure, quiet=quiet, reported=True)

    if len(chosen) == 1:
        carry_out(chosen[0])
    else:
        _one_after_the_other(chosen, carry_out)


def _one_after_the_other(chosen: Sequence[Study], carry_out: Callable[[Study], None]) -> None:
    """Carry out all of them: one that cannot be, or whose transfers fail, does not keep the next from it; Ctrl-C does.

    Raises
    ------
    typer.Exit
        With the code of the gravest: an error before failed transfers.
    """
    codes: dict[str, int] = {}
    for place, one in enumerate(chosen):
        try:
            carry_out(one)
        except typer.Exit as ended:
            if ended.exit_code == Exit.STOPPED:
                rest = _names(chosen[place + 1 :])
                if rest:
                    talk(f"not begun: {rest}")
                raise
            codes[one.name] = ended.exit_code
        except VenturiError as error:
            talk(f"venturi: {one.name}: {error}")
            codes[one.name] = Exit.ERROR
    if codes:
        talk(
            f"not as they should be: {', '.join(codes)}; {len(chosen) - len(codes)} of {len(chosen)} studies went well"
        )
        raise typer.Exit(Exit.ERROR if Exit.ERROR in codes.values() else next(iter(codes.values())))
