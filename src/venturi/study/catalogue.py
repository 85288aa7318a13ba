"""Finds the studies that came with the package and reads what they say."""

from __future__ import annotations

import csv
import difflib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from venturi.errors import ScenarioError
from venturi.study.library import with_library
from venturi.study.table import PublishedTable, read_table

__all__ = ["Erratum", "Published", "PublishedTable", "Study", "studies", "study"]

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
        Rows of the table of best functions: ``against, equation, family, mean_r2_table, mean_r2_text, range``; with ``where``,
        ``files_min``, ``files_max`` of the curves that it is about.
    totals
        Rows of the table of totals: ``name, total_bytes_per_s, files_min, files_max``, ``where``.
    rates
        Single rates: ``name, mover, files_min, files_max, low_bytes_per_s, high_bytes_per_s, qualifier``, ``where``; of a
        storage: ``storage``, ``of`` (``"read"``, ``"write"``), ``direction`` (``"each"``, ``"there"``, ``"back"``).
    claims
        Statements that a table can be held against: ``id, text, check, against``, ``of``, ``where``, ``files_min``,
        ``files_max`` and the limits of the check (:mod:`venturi.analysis.claims`).
    inputs
        What had to be put in, so that a run cannot confirm it: ``quantity, value, origin`` (``"published"``: made of a published figure;
        ``"chosen"``), ``source``, ``consequence``: what follows from it, and what is found all the same.
    beside
        What of our tables stands side by side where several runs are compared (:mod:`venturi.analysis.beside`): ``table`` of a chapter, ``of``
        (columns), ``key`` (columns that tell its rows apart), ``pick``: of rows that these leave alike the first, or the
        ``"last"``; ``name``: a word before the keys, where a study has several such tables.
    tables
        Whole tables that are shown beside ours, point by point.
    evidence
        Further tables, for chapters and claims: those with ``beside = false``, and those of the library (:mod:`venturi.study.library`)
        that the claims need.

    ``where`` is a table of factor → value.
    """

    fits: tuple[dict[str, Any], ...] = ()
    totals: tuple[dict[str, Any], ...] = ()
    rates: tuple[dict[str, Any], ...] = ()
    claims: tuple[dict[str, Any], ...] = ()
    inputs: tuple[dict[str, Any], ...] = ()
    beside: tuple[dict[str, Any], ...] = ()
    tables: tuple[PublishedTable, ...] = ()
    evidence: tuple[PublishedTable, ...] = ()

    def table(self, id_: str) -> PublishedTable:
        """Return the published table of this id, wherever it is shown.

        Raises
        ------
        KeyError
            If the study has none of this id.
        """
        return {table.id: table for table in (*self.evidence, *self.tables)}[id_]


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
    on
        Who carries it out unless somebody says otherwise: ``"hosts"`` or ``"lab"``, the key ``on`` of study.toml;
        ``None``: what its testbed needs.
    quick, lab
        Overrides (``workload.repeat=5``) that make it small, and those that fit it into a lab of one machine, which is what is
        carried out unless somebody asks for the full or the quick variant; ``quick_about`` and ``lab_about``: what they
        mean in words. Without ``[lab]`` in study.toml both of it are empty, and the full variant is the usual one.
    sim, sim_about
        The same of virtual time, where the full variant is the usual one but for these: what would only repeat itself there.
    sim_differs
        Why figures of virtual time differ from the published ones, as far as that is known; "" where they do not, or nobody has looked.
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
    on: str | None = None
    lab: tuple[str, ...] = ()
    lab_about: str = ""
    sim: tuple[str, ...] = ()
    sim_about: str = ""
    sim_differs: str = ""

    def overrides(self, *, quick: bool = False, full: bool = False, on: str | None = None) -> tuple[str, ...]:
        """Return the overrides of a variant: quick, full (none), or the usual one of who carries it out.

        In virtual time that is at full published scale: nothing has to fit into a machine.
        """
        if quick or full:
            return self.quick if quick else ()
        return self.sim if (on or self.on) == "sim" else self.lab


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
        published=_published(folder, about),
        errata=tuple(errata[id_] for id_ in about["errata"]),
        on=about.get("on"),
        lab=tuple(about.get("lab", {}).get("set", ())),
        lab_about=about.get("lab", {}).get("about", ""),
        sim=tuple(about.get("sim", {}).get("set", ())),
        sim_about=about.get("sim", {}).get("about", ""),
        sim_differs=about.get("sim", {}).get("differs", ""),
    )


def _published(folder: Path, about: dict[str, Any]) -> Published:
    told: dict[str, list[dict[str, Any]]] = about.get("published", {})
    rows = {key: tuple(value) for key, value in told.items() if key not in ("tables", "claims")}
    own = [(read_table(folder, table), table.get("beside", True)) for table in told.get("tables", ())]
    claims, lent = with_library(about.get("claims", ()), told.get("claims", ()), f"study {folder.name}")
    beside = tuple(table for table, shown in own if shown)
    return Published(
        **rows, claims=claims, tables=beside, evidence=(*(table for table, shown in own if not shown), *lent)
    )


def _errata() -> dict[str, Erratum]:
    with (_HOME / "errata.csv").open(encoding="utf-8", newline="") as lines:
        return {row["id"]: Erratum(**row) for row in csv.DictReader(lines)}
