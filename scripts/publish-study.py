"""Publish reports of completed studies in docs/studies, and rewrite its index.

    .venv/bin/python scripts/publish-study.py RUN… [--note TEXT] [--into docs/studies] [--comparison]

For each run, write ``docs/studies/STUDY/report.html``, its tables as CSV files, and ``about.json`` with date, machine
and variant. Existing files of the study are replaced. For a simulated run, write ``docs/studies/STUDY/simulated`` with
``side-by-side.html``, which compares it with the published results and with the report of the study, if there is one.
Without a run, write only the index. With ``--comparison``, the runs are one plan on hosts, in the lab and simulated:
write ``docs/studies/STUDY/hosts`` with ``comparison.md``, which states machine, commit and date. Paths below the
directory of the runs become relative, so that published reports contain no private paths.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from venturi import report
from venturi.analysis import Analysis, analyse, compare
from venturi.analysis.format import format_factor_name, format_factor_value, plural
from venturi.analysis.study_comparison import compare_study_results, study_result
from venturi.analysis.study_files import load_study_result
from venturi.errors import VenturiError
from venturi.run import Run
from venturi.run.directory import read_info
from venturi.scenario import load_scenario
from venturi.study import Study, studies
from venturi.units import format_rate

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / "docs" / "studies"
ABOUT, PAGE, INDEX = "about.json", "report.html", "index.md"
SIMULATED, COMPARISON = "simulated", "side-by-side.html"
HOSTS_AND_LAB, COMPARISON_PAGE = "hosts-and-lab.html", "comparison.md"
BACKENDS = ("hosts", "lab", "sim")
LARGE_BYTES = 500_000
"""Size of a page above which the script prints a warning."""
_MAX_CHANGES = 4
_COSTS = "testbed.cost."
VERDICTS = ("agrees", "disagrees", "cannot tell", "not tested")


def main() -> None:
    """Publish the runs and write the index."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="directory of a complete run of a study")
    parser.add_argument("--note", default="", help="note for the index, such as other load on the machine")
    parser.add_argument("--into", type=Path, default=HOME, help="default: docs/studies")
    parser.add_argument(
        "--comparison", action="store_true", help="compare runs of one plan on hosts, in the lab and simulated"
    )
    options = parser.parse_args()
    try:
        if options.comparison:
            publish_comparison(options.runs, options.into, options.note)
        else:
            for path in options.runs:
                publish(path, options.into, options.note)
    except (VenturiError, ValueError) as error:
        sys.exit(f"publish-study: {error}")
    options.into.mkdir(parents=True, exist_ok=True)
    (options.into / INDEX).write_text(index(options.into), encoding="utf-8")


def publish(path: Path, into: Path, note: str) -> Path:
    """Write the directory of the study of a run and return it.

    Raises
    ------
    ValueError
        If the run is incomplete or does not belong to a study, or if its report contains private paths.
    """
    path = path.resolve()
    analysis = analyse(Run.open(path))
    name, state = analysis.about.study, analysis.about.state
    if name not in studies() or state != "complete":
        raise ValueError(
            f"{path}: expected a complete run of a study, found a run of {name or 'no study'}, {state}; run a study to the end first"
        )
    simulated = analysis.about.backend == "sim"
    directory = into / name / SIMULATED if simulated else into / name
    _clear(directory)
    if simulated:
        _write_comparison(analysis, directory)
    else:
        (directory / PAGE).write_text(report.html(analysis), encoding="utf-8")
        report.csv(analysis, directory)
    (directory / ABOUT).write_text(
        json.dumps(about(analysis, studies()[name], note), indent=2) + "\n", encoding="utf-8"
    )
    engines = _engines(analysis)
    for written in filter(Path.is_file, sorted(directory.iterdir())):
        without_paths(written, path.parent.parent, engines)
        if written.suffix == ".html" and (size := written.stat().st_size) > LARGE_BYTES:
            sys.stderr.write(f"{written}: {size / 1e3:.0f} kB, more than {LARGE_BYTES / 1e3:.0f} kB\n")
    return directory


def publish_comparison(paths: Sequence[Path], into: Path, note: str) -> Path:
    """Write the comparison of a study on hosts, in the lab and simulated, and return its directory.

    Raises
    ------
    ValueError
        If there is not one complete run per backend, if their plans differ, or if a page contains private paths.
    """
    runs = [Run.open(path.resolve()) for path in paths]
    analyses = {run.backend: analyse(run) for run in runs}
    found = [f"{run.path.name} ({run.backend}, {analyses[run.backend].about.state})" for run in runs]
    complete = all(analysis.about.state == "complete" for analysis in analyses.values())
    if sorted(run.backend for run in runs) != sorted(BACKENDS) or not complete:
        raise ValueError(
            f"expected a complete run of {', '.join(BACKENDS)} each, found {', '.join(found) or 'none'}; run the study in each"
        )
    if len({(run.path / "plan.jsonl").read_bytes() for run in runs}) != 1:
        raise ValueError(
            "expected runs with one plan, found several; run the study with --portable and the same --set"
        )
    runs.sort(key=lambda run: BACKENDS.index(run.backend))
    name = str(analyses["hosts"].about.study)
    directory = into / name / "hosts"
    _clear(directory)
    section = compare_study_results([study_result(analyses[backend]) for backend in BACKENDS])
    report.write_single(section, f"Study {name}", directory)
    (directory / HOSTS_AND_LAB).write_text(report.html(compare(analyses["hosts"], analyses["lab"])), encoding="utf-8")
    metadata = about(analyses["hosts"], studies()[name], note)
    (directory / COMPARISON_PAGE).write_text(comparison_page(runs, metadata, commit()), encoding="utf-8")
    for run in runs:
        for written in directory.iterdir():
            without_paths(written, run.path.parent.parent, _engines(analyses["hosts"]))
    return directory


def commit() -> str:
    """Return the commit of this checkout, with a note about changed files; ``unknown`` outside of a Git checkout."""
    git = ("git", "-C", str(ROOT))
    head = subprocess.run([*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=False)
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", "src", "crates"], check=False).returncode
    if head.returncode:
        return "unknown"
    return f"`{head.stdout.strip()}`{' with later changes' if changed else ''}"


def comparison_page(runs: Sequence[Run], metadata: Mapping[str, Any], commit_: str) -> str:
    """Return the page that compares medians of the throughput of a transfer in all backends."""
    medians = [_medians(run) for run in runs]
    names = list(dict.fromkeys(name for point in medians[0] for name, _ in point))
    varied = [name for name in names if len({dict(point).get(name) for point in medians[0]}) > 1]
    heads = [*(_capitalised(format_factor_name(name)) for name in varied), "hosts", "lab", "simulation"]
    rows = [
        [
            *(format_factor_value(name, value) for name, value in point if name in varied),
            *(format_rate(found[point]) if point in found else "–" for found in medians),
        ]
        for point in medians[0]
    ]
    started = [read_info(run.path).created_unix_ns // 10**9 for run in runs]
    start, end = (datetime.fromtimestamp(f(started), tz=UTC).strftime("%Y-%m-%d %H:%M") for f in (min, max))
    lines = [
        "---",
        "orphan: true",
        "---",
        "",
        f"# {metadata['study']} on hosts, in the lab and in the simulation",
        "",
        "One plan ran in three backends. The hosts are those of the test kit: network namespaces of one machine, each with an SSH",
        "server. The lab ran on the same machine. The simulation has the hosts of the report.",
        "",
        "| | |",
        "|---|---|",
        f"| machine | {metadata['machine']} |",
        f"| commit | {commit_} |",
        f"| started | {start} to {end} UTC |",
        f"| plan | {metadata['trials']} trials, sizes × {metadata['scale']:g}; {', '.join(_changes(runs[0]))} |",
        *([f"| note | {metadata['note']} |"] if metadata["note"] else []),
        "",
        "Medians of the throughput of a transfer:",
        "",
        f"| {' | '.join(heads)} |",
        f"|{'--:|' * len(heads)}",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
        f"The [table with the publication]({COMPARISON}) has the published values and the claims. The [figure with hosts and",
        f"lab]({HOSTS_AND_LAB}) has intervals. `tests/hosts/compare_backends.py` repeats the runs and writes this page.",
    ]
    return "\n".join(lines) + "\n"


def _medians(run: Run) -> dict[tuple[tuple[str, Any], ...], float]:
    """Return median throughput of transfers in B/s by the factors of their design point, for points that move bytes."""
    columns = ", ".join(f'"factor_{name}"' for name in run.factors)
    rows = run.query(
        f"SELECT {columns}, median(coalesce(received_bytes, requested_bytes) / duration_s) AS rate FROM transfers"
        " WHERE outcome = 'ok' AND requested_bytes > 0 GROUP BY ALL ORDER BY ALL"
    )
    rates = rows.pop("rate").tolist()
    points = zip(*(rows[f"factor_{name}"].tolist() for name in run.factors), strict=True)
    return {tuple(zip(run.factors, point, strict=True)): rate for point, rate in zip(points, rates, strict=True)}


def _changes(run: Run) -> list[str]:
    """Return the levels of the factors and the repetitions of a run."""
    workload = run.header["scenario"]["workload"]
    levels = [f"{name} {', '.join(map(str, values))}" for name, values in workload.get("factors", {}).items()]
    return [plural(int(workload.get("repeat", 1)), "repetition"), *levels]


def _engines(analysis: Analysis) -> set[str]:
    return {str(values.get("connection.engine_path", "")) for values in analysis.about.environment.values()} - {""}


def _clear(directory: Path) -> None:
    """Create the directory and delete its files; keep its subdirectories."""
    directory.mkdir(parents=True, exist_ok=True)
    for old in filter(Path.is_file, list(directory.iterdir())):
        old.unlink()


def _write_comparison(analysis: Analysis, directory: Path) -> None:
    """Write the comparison of a simulated run with the published results and with the report of the study."""
    above = directory.parent
    runs = [*([load_study_result(above)] if (above / ABOUT).exists() else []), study_result(analysis)]
    report.write_single(compare_study_results(runs), f"Study {analysis.about.study}", directory)
    with (directory / "claims.csv").open("w", encoding="utf-8", newline="") as stream:
        rows = csv.writer(stream, lineterminator="\n")
        rows.writerow(("id", "verdict", "text", "evidence"))
        rows.writerows((claim.id, claim.verdict, claim.text, claim.evidence) for claim in analysis.claims)


def without_paths(file: Path, base: Path, engines: Collection[str]) -> None:
    """Make paths below ``base`` relative in a file, and leave only the names of the engines of the hosts.

    Raises
    ------
    ValueError
        If another path is below the home directory or this checkout.
    """
    text = file.read_text(encoding="utf-8").replace(f"{base}/", "")
    for engine in engines:
        text = text.replace(engine, Path(engine).name)
    for private in (f"{Path.home()}/", f"{ROOT}/"):
        if private in text:
            position = text.index(private)
            raise ValueError(
                f"{file}: expected no path of this machine, found {text[position : position + 60]!r}; run the study in another directory"
            )
    file.write_text(text, encoding="utf-8")


def about(analysis: Analysis, of: Study, note: str) -> dict[str, Any]:
    """Return the data of a run for the index."""
    host = next((values for values in analysis.about.environment.values() if "cpu.model" in values), {})
    return {
        "study": of.name,
        "run": analysis.about.name,
        "carried_out": datetime.fromtimestamp(analysis.about.created_unix_ns // 10**9, tz=UTC).isoformat(),
        "variant": variant(analysis.about.scenario, of, analysis.about.backend),
        "backend": analysis.about.backend,
        "scale": analysis.about.scale,
        "rates_scale": analysis.testbed.rates_scale if analysis.testbed else 1.0,
        "machine": "simulation"
        if analysis.about.backend == "sim"
        else f"{host.get('cpu.count', '?')} × {cpu_name(host.get('cpu.model', 'unknown CPU'))}, {host.get('os', 'unknown system')}",
        "trials": analysis.counts.trials,
        "transfers_failed": analysis.counts.transfers_failed,
        "conclusion": " ".join(dict.fromkeys((analysis.headline.text, analysis.conclusion))),
        "note": note,
        "venturi": analysis.about.venturi_version,
    }


def cpu_name(model: str) -> str:
    """Return the name of a CPU without trademarks and general words."""
    return " ".join(re.sub(r"\((?:R|TM)\)|\b(?:CPU|Processor)\b|@.*", " ", model).split())


def variant(scenario: Mapping[str, Any], of: Study, backend: str) -> str:
    """Return the variant of a study that a run used, or its differences from the default variant.

    Costs belong to simulations only; for other backends they are ignored.
    """
    variants = {
        "lab" if of.lab else "full": of.overrides(),
        "full": of.overrides(full=True),
        "sim": of.overrides(on="sim"),
        "quick": of.overrides(quick=True),
        "portable": of.overrides(portable=True),
        "quick, portable": of.overrides(quick=True, portable=True),
    }
    now = {key: value for key, value in _flat(scenario).items() if backend == "sim" or not key.startswith(_COSTS)}
    # The version of Venturi that ran the study did not know the missing keys.
    known = {
        name: {key: value for key, value in _document(of, overrides).items() if key in now}
        for name, overrides in variants.items()
    }
    for name, document in known.items():
        if document == now:
            return name
    default, document = next(iter(known.items()))
    changed = [f"{key}={now.get(key)}" for key in sorted({*document, *now}) if document.get(key) != now.get(key)]
    more = f" and {len(changed) - _MAX_CHANGES} more" if len(changed) > _MAX_CHANGES else ""
    return f"{default}, with {', '.join(changed[:_MAX_CHANGES])}{more}"


def _document(of: Study, overrides: Sequence[str]) -> dict[str, Any]:
    return _flat(json.loads(json.dumps(load_scenario(of.scenario_path, overrides=overrides).document())))


def _flat(document: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in document.items():
        found |= _flat(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value}
    return found


def index(home: Path) -> str:
    """Return the index page of all published studies, from their directories."""
    published = [
        json.loads(path.read_text(encoding="utf-8")) | {"directory": path.parent.relative_to(home).as_posix()}
        for path in sorted(home.rglob(ABOUT))
    ]
    lines = [*_HEAD]
    if not published:
        return "\n".join([*lines, "", "No reports are published yet."]) + "\n"
    lines += [
        "",
        f"| study | report | experiments | backend | {' | '.join(VERDICTS)} |",
        "|---|---|---|---|--:|--:|--:|--:|",
    ]
    for one in published:
        counts = Counter(claim["verdict"] for claim in claims(home / one["directory"]))
        study = studies()[one["study"]]
        values = [f"[{one['study']}]({_page(one)})", _citation(study), ", ".join(study.experiments)]
        values += [one["backend"], *(str(counts[verdict]) for verdict in VERDICTS)]
        lines.append(f"| {' | '.join(values)} |")
    for one in published:
        lines += ["", *_section(home, one)]
    return "\n".join(lines) + "\n"


def _page(one: Mapping[str, Any]) -> str:
    return f"{one['directory']}/{COMPARISON if one['backend'] == 'sim' else PAGE}"


def _citation(of: Study, *, names: bool = False) -> str:
    """Return a link to the report in the bibliography; with ``names``, add first author and year."""
    citation = f", {of.report.short_citation()}" if names else ""
    return f"[{of.report.id}](../{of.report.entry.removeprefix('docs/')}){citation}"


def claims(directory: Path) -> list[dict[str, str]]:
    """Return the claims of a published report, which can be empty."""
    path = directory / "claims.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as rows:
        return list(csv.DictReader(rows))


def _section(home: Path, one: Mapping[str, Any]) -> list[str]:
    name, failed = one["study"], one["transfers_failed"]
    simulated = one["backend"] == "sim"
    lines = [
        f"## {name}{', simulated' if simulated else ''}",
        "",
        f"{studies()[name].title}. Report: {_citation(studies()[name], names=True)}.",
        "",
        f"{_conditions(one)}.",
        "",
        f"{one['trials']:,} trials, {failed:,} failed transfers. {_escape(one['conclusion'])}",
    ]
    if one["note"]:
        lines += ["", _escape(one["note"])]
    if simulated and studies()[name].sim_differs:
        lines += ["", _escape(studies()[name].sim_differs)]
    verdicts = claims(home / one["directory"])
    for verdict, title in (("agrees", "Confirmed claims"), ("disagrees", "Contradicted claims")):
        rows = [
            line
            for claim in verdicts
            if claim["verdict"] == verdict
            for line in (
                f"- {_capitalised(_escape(claim['text']))}.",
                f"  - {_capitalised(_escape(claim['evidence']))}.",
            )
        ]
        lines += ["", f"{title}:", "", *rows] if rows else []
    if simulated:
        lines += ["", f"[Comparison with the published values]({_page(one)})"]
    tables = sorted(path.name for path in (home / one["directory"]).glob("*.csv"))
    links = ", ".join(f"[{table}]({one['directory']}/{table})" for table in tables)
    return [*lines, "", f"Tables: {links}"]


def _conditions(one: Mapping[str, Any]) -> str:
    """Return backend, variant, date and machine of a run."""
    machine = [] if one["backend"] == "sim" else [f"machine: {_escape(one['machine'])}"]
    conditions = [
        f"Backend: {one['backend']}",
        f"variant: {_escape(one['variant'])}",
        f"date: {one['carried_out'][:10]}",
        *machine,
    ]
    return "; ".join(conditions)


def _capitalised(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _escape(text: str) -> str:
    """Escape Markdown characters."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>$|" else letter for letter in " ".join(text.split()))


_HEAD = (
    "# Reports of the studies",
    "",
    "This page lists reproductions of the published experiments, each with its report and tables. Most ran in the lab of one",
    "machine. The table names the backend, and each section below also the variant, the date and the machine. Simulations",
    "(backend sim) have the full published scale. Their pages compare the simulation with the published results and with the",
    "lab. The columns *agrees* to *not tested* count the verdicts on the [claims](../reference/claims.md) of the five",
    "[reports](../reference/bibliography.md#the-five-reproduced-reports). `scripts/publish-study.py` writes this page.",
)

if __name__ == "__main__":
    main()
