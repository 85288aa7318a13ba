"""Put the reports of carried out studies into docs/studies, and write its index again.

    .venv/bin/python scripts/publish-study.py RUN… [--note TEXT] [--into docs/studies]

Of each run: ``docs/studies/STUDY/report.html``, its tables as CSV beside it, and ``about.json``, which says when, where and as which variant
it was carried out. What was there of the study before is replaced. Of a run in virtual time: ``docs/studies/STUDY/simulated`` with
``side-by-side.html``, which has it beside what was published and beside the report of the study above it, if there is one; its own report would say
little more, and is not kept. Without a run only the index is written again. Paths below the folder in
which the runs stand are made relative: a report says what was measured, not where somebody's files are.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from venturi import report
from venturi.analysis import Analysis, analyse
from venturi.analysis.beside import side_by_side, told_of
from venturi.analysis.beside_files import told_in
from venturi.errors import VenturiError
from venturi.run import Run
from venturi.scenario import load_scenario
from venturi.study import Study, studies

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / "docs" / "studies"
ABOUT, PAGE, INDEX = "about.json", "report.html", "index.md"
SIMULATED, BESIDE = "simulated", "side-by-side.html"
LARGE_BYTES = 500_000
"""Of a page: more is worth a word, for every clone has it for ever."""
_MOST_CHANGES = 4
_COSTS = "testbed.cost."
VERDICTS = ("agrees", "disagrees", "cannot tell", "not tested")


def main() -> None:
    """Publish the runs that were named, and write the index."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="directory of a complete run of a study")
    parser.add_argument(
        "--note", default="", help="what the index is to say besides, such as what else the machine did"
    )
    parser.add_argument("--into", type=Path, default=HOME, help="default: docs/studies")
    words = parser.parse_args()
    try:
        for path in words.runs:
            publish(path, words.into, words.note)
    except (VenturiError, ValueError) as error:
        sys.exit(f"publish-study: {error}")
    words.into.mkdir(parents=True, exist_ok=True)
    (words.into / INDEX).write_text(index(words.into), encoding="utf-8")


def publish(path: Path, into: Path, note: str) -> Path:
    """Write the folder of a run's study and return it.

    Raises
    ------
    ValueError
        If the run is not a complete one of a study, or its report would name private paths.
    """
    path = path.resolve()
    analysis = analyse(Run.open(path))
    name, state = analysis.about.study, analysis.about.state
    if name not in studies() or state != "complete":
        raise ValueError(f"{path}: expected a complete run of a study, found one of {name or 'no study'}, {state}")
    simulated = analysis.about.backend == "sim"
    folder = into / name / SIMULATED if simulated else into / name
    _clear(folder)
    if simulated:
        _write_beside(analysis, folder)
    else:
        (folder / PAGE).write_text(report.html(analysis), encoding="utf-8")
        report.csv(analysis, folder)
    (folder / ABOUT).write_text(json.dumps(about(analysis, studies()[name], note), indent=2) + "\n", encoding="utf-8")
    for written in filter(Path.is_file, sorted(folder.iterdir())):
        without_paths(written, path.parent.parent)
        if written.suffix == ".html" and (size := written.stat().st_size) > LARGE_BYTES:
            sys.stderr.write(f"{written}: {size / 1e3:.0f} kB, more than {LARGE_BYTES / 1e3:.0f} kB\n")
    return folder


def _clear(folder: Path) -> None:
    """Make the folder, without the files that it had; what lies in folders below it stays."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in filter(Path.is_file, list(folder.iterdir())):
        old.unlink()


def _write_beside(analysis: Analysis, folder: Path) -> None:
    """Write a simulated run beside the report in the folder above, if one is there, and beside what was published."""
    above = folder.parent
    runs = [*([told_in(above)] if (above / ABOUT).exists() else []), told_of(analysis)]
    report.write_single(side_by_side(runs), f"Study {analysis.about.study}", folder)
    with (folder / "claims.csv").open("w", encoding="utf-8", newline="") as stream:
        rows = csv.writer(stream, lineterminator="\n")
        rows.writerow(("id", "verdict", "text", "evidence"))
        rows.writerows((claim.id, claim.verdict, claim.text, claim.evidence) for claim in analysis.claims)


def without_paths(file: Path, base: Path) -> None:
    """Make paths below ``base`` relative to it in a text, and refuse others below the user's home or this checkout."""
    text = file.read_text(encoding="utf-8").replace(f"{base}/", "")
    for private in (f"{Path.home()}/", f"{ROOT}/"):
        if private in text:
            place = text.index(private)
            raise ValueError(
                f"{file}: expected no path of this machine, found {text[place : place + 60]!r}; run it elsewhere"
            )
    file.write_text(text, encoding="utf-8")


def about(analysis: Analysis, of: Study, note: str) -> dict[str, Any]:
    """Return what the index says of a run."""
    facts = next((facts for facts in analysis.about.environment.values() if "cpu.model" in facts), {})
    return {
        "study": of.name,
        "run": analysis.about.name,
        "carried_out": datetime.fromtimestamp(analysis.about.created_unix_ns // 10**9, tz=UTC).isoformat(),
        "variant": variant(analysis.about.scenario, of, analysis.about.backend),
        "backend": analysis.about.backend,
        "scale": analysis.about.scale,
        "rates_scale": analysis.testbed.rates_scale if analysis.testbed else 1.0,
        "machine": "virtual time"
        if analysis.about.backend == "sim"
        else f"{facts.get('cpu.count', '?')} × {facts.get('cpu.model', 'unknown processor')}, {facts.get('os', 'unknown system')}",
        "trials": analysis.counts.trials,
        "transfers_failed": analysis.counts.transfers_failed,
        "answer": analysis.answer,
        "note": note,
        "venturi": analysis.about.venturi_version,
    }


def variant(scenario: Mapping[str, Any], of: Study, backend: str) -> str:
    """Return which variant of the study a run was, from its scenario: else what differs from the usual one.

    Costs are of virtual time alone: elsewhere they make no variant.
    """
    variants = {
        "lab" if of.lab else "full": of.overrides(),
        "full": of.overrides(full=True),
        "sim": of.overrides(on="sim"),
        "quick": of.overrides(quick=True),
    }
    now = {key: value for key, value in _flat(scenario).items() if backend == "sim" or not key.startswith(_COSTS)}
    # What is not said there, the version that carried it out had no word for.
    known = {
        name: {key: value for key, value in _document(of, overrides).items() if key in now}
        for name, overrides in variants.items()
    }
    for name, document in known.items():
        if document == now:
            return name
    usual, document = next(iter(known.items()))
    changed = [f"{key}={now.get(key)}" for key in sorted({*document, *now}) if document.get(key) != now.get(key)]
    more = f" and {len(changed) - _MOST_CHANGES} more" if len(changed) > _MOST_CHANGES else ""
    return f"{usual}, with {', '.join(changed[:_MOST_CHANGES])}{more}"


def _document(of: Study, overrides: Sequence[str]) -> dict[str, Any]:
    return _flat(json.loads(json.dumps(load_scenario(of.scenario_path, overrides=overrides).document())))


def _flat(document: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in document.items():
        found |= _flat(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value}
    return found


def index(home: Path) -> str:
    """Return the page that lists what is published, from the folders alone."""
    told = [
        json.loads(path.read_text(encoding="utf-8")) | {"folder": path.parent.relative_to(home).as_posix()}
        for path in sorted(home.rglob(ABOUT))
    ]
    lines = [*_HEAD]
    if not told:
        return "\n".join([*lines, "", "None has been published yet."]) + "\n"
    lines += [
        "",
        "| study | experiments | carried out | by | variant | machine | agrees | disagrees | cannot tell | not tested |",
    ]
    lines += ["|---|---|---|---|---|---|--:|--:|--:|--:|"]
    for one in told:
        counts = Counter(claim["verdict"] for claim in claims(home / one["folder"]))
        cells = [f"[{one['study']}]({_page(one)})", ", ".join(studies()[one["study"]].experiments)]
        cells += [
            one["carried_out"][:10],
            one["backend"],
            one["variant"],
            one["machine"],
            *(str(counts[verdict]) for verdict in VERDICTS),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    for one in told:
        lines += ["", *_section(home, one)]
    return "\n".join(lines) + "\n"


def _page(one: Mapping[str, Any]) -> str:
    return f"{one['folder']}/{BESIDE if one['backend'] == 'sim' else PAGE}"


def claims(folder: Path) -> list[dict[str, str]]:
    """Return the claims of a published report; none if the study has none."""
    path = folder / "claims.csv"
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
        f"{studies()[name].title}: {one['trials']} trials, {failed} transfers failed. {_plain(one['answer'])}",
    ]
    if one["note"]:
        lines += ["", _plain(one["note"])]
    if simulated and studies()[name].sim_differs:
        lines += ["", _plain(studies()[name].sim_differs)]
    told = claims(home / one["folder"])
    for verdict, title in (("agrees", "As in the report"), ("disagrees", "Not as in the report")):
        rows = [
            f"- {_plain(claim['text'])}: {_plain(claim['evidence'])}" for claim in told if claim["verdict"] == verdict
        ]
        lines += ["", f"{title}:", "", *rows] if rows else []
    if simulated:
        lines += ["", f"[Published values and others beside these]({_page(one)})"]
    tables = sorted(path.name for path in (home / one["folder"]).glob("*.csv"))
    links = ", ".join(f"[{table}]({one['folder']}/{table})" for table in tables)
    return [*lines, "", f"Tables: {links}"]


def _plain(text: str) -> str:
    """Keep what looks like Markdown from being taken for it."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>$|" else letter for letter in " ".join(text.split()))


_HEAD = (
    "# Reports of the studies",
    "",
    "What the published experiments gave when they were carried out here, in the lab of one machine unless the table says otherwise: the report as it",
    "was written, and its tables; and what they gave in virtual time (by sim), at full published scale, beside both. Claims are the sentences of",
    "the five publications that a number can be held against ([how](../reference/claims.md)). This page is written by `scripts/publish-study.py`.",
)

if __name__ == "__main__":
    main()
