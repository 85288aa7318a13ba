"""Finds the studies that came with the package and reads what they say."""

from __future__ import annotations

import csv
import difflib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from venturi.errors import ScenarioError

__all__ = ["Erratum", "Published", "Study", "studies", "study"]

_HOME = Path(__file__).parent


@dataclass(frozen=True)
class Erratum:
    """A slip in a published report: what is printed, the right form or reading, and how sure that is."""

    id: str
    location: str
    printed: str
    reading: str
    status: str


@dataclass(frozen=True)
class Published:
    """What a report published, as rows of plain values in base units; empty where it published nothing.

    Attributes
    ----------
    fits
        Rows of the table of best functions: ``against, equation, family, mean_r2_table, mean_r2_text, range``.
    totals
        Rows of the table of totals: ``name, total_bytes_per_s, files_min, files_max``.
    rates
        Single rates: ``name, mover, files_min, files_max, low_bytes_per_s, high_bytes_per_s, qualifier``.
    claims
        Statements that a table can be held against: ``id, text, check, against`` and the limits of the check.
    """

    fits: tuple[dict[str, Any], ...] = ()
    totals: tuple[dict[str, Any], ...] = ()
    rates: tuple[dict[str, Any], ...] = ()
    claims: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Study:
    """One published experiment as a scenario.

    Attributes
    ----------
    name
        Such as ``"cnaf/cp"``.
    document, experiments
        The report (``"000"``) and its experiments that the study carries out.
    scenario_path
        The scenario at full published parameters.
    quick
        Overrides (``workload.repeat=5``) that make it small, and ``quick_about``, what that means in words.
    """

    name: str
    title: str
    question: str
    document: str
    experiments: tuple[str, ...]
    scenario_path: Path
    quick: tuple[str, ...]
    quick_about: str
    published: Published
    errata: tuple[Erratum, ...]


def studies() -> dict[str, Study]:
    """Return all studies by name, in the order of their names."""
    names = sorted(path.parent.relative_to(_HOME).as_posix() for path in _HOME.rglob("study.toml"))
    return {name: _read(name) for name in names}


def study(name: str) -> Study:
    """Return the study of this name.

    Raises
    ------
    ScenarioError
        If there is none; the message lists those that exist.

    Examples
    --------
    >>> study("cnaf/cp").experiments
    ('000-S1',)
    """
    known = studies()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        raise ScenarioError([("", f'expected one of the studies {", ".join(known)}, found "{name}"{hint}')], "study")
    return known[name]


def _read(name: str) -> Study:
    folder = _HOME / name
    about = tomllib.loads((folder / "study.toml").read_text(encoding="utf-8"))
    errata = _errata()
    return Study(
        name=name,
        title=about["title"],
        question=about["question"],
        document=about["document"],
        experiments=tuple(about["experiments"]),
        scenario_path=folder / "scenario.toml",
        quick=tuple(about["quick"]["set"]),
        quick_about=about["quick"]["about"],
        published=Published(**{key: tuple(rows) for key, rows in about.get("published", {}).items()}),
        errata=tuple(errata[id_] for id_ in about["errata"]),
    )


def _errata() -> dict[str, Erratum]:
    with (_HOME / "errata.csv").open(encoding="utf-8", newline="") as lines:
        return {row["id"]: Erratum(**row) for row in csv.DictReader(lines)}
