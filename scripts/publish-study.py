"""Put the reports of carried out studies into docs/studies, and write its index again.

    .venv/bin/python scripts/publish-study.py RUN… [--note TEXT] [--into docs/studies]

Of each run: ``docs/studies/STUDY/report.html``, its tables as CSV beside it, and ``about.json``, which says when, where and as which variant
it was carried out. What was there of the study before is replaced. Without a run only the index is written again. Paths below the folder in
which the runs stand are made relative: a report says what was measured, not where somebody's files are.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from venturi import report
from venturi.analysis import Analysis, analyse
from venturi.errors import VenturiError
from venturi.run import Run
from venturi.scenario import load_scenario
from venturi.study import Study, studies

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / "docs" / "studies"
ABOUT, PAGE, INDEX = "about.json", "report.html", "index.md"
LARGE_BYTES = 500_000
"""Of a page: more is worth a word, for every clone has it for ever."""
_MOST_CHANGES = 4
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
    folder = into / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / PAGE).write_text(report.html(analysis), encoding="utf-8")
    report.csv(analysis, folder)
    (folder / ABOUT).write_text(json.dumps(about(analysis, studies()[name], note), indent=2) + "\n", encoding="utf-8")
    for written in sorted(folder.iterdir()):
        without_paths(written, path.parent.parent)
    if (size := (folder / PAGE).stat().st_size) > LARGE_BYTES:
        sys.stderr.write(f"{folder / PAGE}: {size / 1e3:.0f} kB, more than {LARGE_BYTES / 1e3:.0f} kB\n")
    return folder


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
        "variant": variant(analysis.about.scenario, of),
        "machine": f"{facts.get('cpu.count', '?')} × {facts.get('cpu.model', 'unknown processor')}, {facts.get('os', 'unknown system')}",
        "trials": analysis.counts.trials,
        "transfers_failed": analysis.counts.transfers_failed,
        "answer": analysis.answer,
        "note": note,
        "venturi": analysis.about.venturi_version,
    }


def variant(scenario: Mapping[str, Any], of: Study) -> str:
    """Return which variant of the study a run was, from its scenario: else what differs from the usual one."""
    variants = {
        "lab" if of.lab else "full": of.overrides(),
        "full": of.overrides(full=True),
        "quick": of.overrides(quick=True),
    }
    now = _flat(scenario)
    known = {
        name: _flat(json.loads(json.dumps(load_scenario(of.scenario_path, overrides=overrides).document())))
        for name, overrides in variants.items()
    }
    for name, document in known.items():
        if document == now:
            return name
    usual, document = next(iter(known.items()))
    changed = [f"{key}={now.get(key)}" for key in sorted({*document, *now}) if document.get(key) != now.get(key)]
    more = f" and {len(changed) - _MOST_CHANGES} more" if len(changed) > _MOST_CHANGES else ""
    return f"{usual}, with {', '.join(changed[:_MOST_CHANGES])}{more}"


def _flat(document: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in document.items():
        found |= _flat(value, f"{above}{key}.") if isinstance(value, Mapping) else {f"{above}{key}": value}
    return found


def index(home: Path) -> str:
    """Return the page that lists what is published, from the folders alone."""
    told = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(home.rglob(ABOUT))]
    lines = [*_HEAD]
    if not told:
        return "\n".join([*lines, "", "None has been published yet."]) + "\n"
    lines += [
        "",
        "| study | experiments | carried out | variant | machine | agrees | disagrees | cannot tell | not tested |",
    ]
    lines += ["|---|---|---|---|---|--:|--:|--:|--:|"]
    for one in told:
        counts = Counter(claim["verdict"] for claim in claims(home / one["study"]))
        cells = [f"[{one['study']}]({one['study']}/{PAGE})", ", ".join(studies()[one["study"]].experiments)]
        cells += [
            one["carried_out"][:10],
            one["variant"],
            one["machine"],
            *(str(counts[verdict]) for verdict in VERDICTS),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    for one in told:
        lines += ["", *_section(home, one)]
    return "\n".join(lines) + "\n"


def claims(folder: Path) -> list[dict[str, str]]:
    """Return the claims of a published report; none if the study has none."""
    path = folder / "claims.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as rows:
        return list(csv.DictReader(rows))


def _section(home: Path, one: Mapping[str, Any]) -> list[str]:
    name, failed = one["study"], one["transfers_failed"]
    lines = [
        f"## {name}",
        "",
        f"{studies()[name].title}: {one['trials']} trials, {failed} transfers failed. {_plain(one['answer'])}",
    ]
    if one["note"]:
        lines += ["", _plain(one["note"])]
    told = claims(home / name)
    for verdict, title in (("agrees", "As in the report"), ("disagrees", "Not as in the report")):
        rows = [
            f"- {_plain(claim['text'])}: {_plain(claim['evidence'])}" for claim in told if claim["verdict"] == verdict
        ]
        lines += ["", f"{title}:", "", *rows] if rows else []
    tables = sorted(path.name for path in (home / name).glob("*.csv"))
    return [*lines, "", f"Tables: {', '.join(f'[{table}]({name}/{table})' for table in tables)}"]


def _plain(text: str) -> str:
    """Keep what looks like Markdown from being taken for it."""
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>$|" else letter for letter in " ".join(text.split()))


_HEAD = (
    "# Reports of the studies",
    "",
    "What the published experiments gave when they were carried out here, in the lab of one machine unless the table says otherwise: the report as it",
    "was written, and its tables. Claims are the sentences of the five publications that a number can be held against",
    "([how](../reference/claims.md)). This page is written by `scripts/publish-study.py`.",
)

if __name__ == "__main__":
    main()
