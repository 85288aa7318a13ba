"""Load the studies of the package."""

from __future__ import annotations

import csv
import difflib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from venturi.errors import ScenarioError
from venturi.study.library import complete_claims
from venturi.study.reports import PublishedReport, reports
from venturi.study.table import PublishedTable, read_table

__all__ = ["Erratum", "Published", "PublishedTable", "Study", "studies", "study"]

_HOME = Path(__file__).parent


@dataclass(frozen=True)
class Erratum:
    """Error in a published report: the printed text, the correct reading, and its certainty."""

    id: str
    location: str
    printed: str
    reading: str
    status: str


@dataclass(frozen=True)
class Published:
    """Published results of a report, as rows of values in base units. Kinds without results are empty.

    Attributes
    ----------
    fits
        Rows of the table of best functions: ``against, equation, family, mean_r2_table, mean_r2_text, range``; with ``where``,
        ``files_min``, ``files_max`` of its curves.
    totals
        Rows of the table of totals: ``name, total_bytes_per_s, files_min, files_max``, ``where``.
    rates
        Single rates: ``name, mover, files_min, files_max, low_bytes_per_s, high_bytes_per_s, qualifier``, ``where``. Rates
        of a storage also have ``storage``, ``of`` (``"read"``, ``"write"``), ``direction`` (``"each"``, ``"forward"``, ``"reverse"``).
    claims
        Statements that tables can confirm or contradict: ``id, text, check, against``, ``of``, ``where``, ``files_min``,
        ``files_max`` and the limits of the check (:mod:`venturi.analysis.claims`).
    inputs
        Assumed inputs, which a run cannot confirm: ``quantity, value, origin`` (``"published"``: derived from a published
        figure; ``"chosen"``), ``source``, ``consequence``: effects of the input, and results that do not depend on it.
    comparison
        Tables for the comparison of several runs (:mod:`venturi.analysis.study_comparison`): ``table`` of a report section, ``of``
        (columns), ``key`` (columns that identify its rows), ``pick``: the first row of equal keys, or the
        ``"last"``; ``name``: prefix of the keys, for studies with several such tables.
    tables
        Complete tables that the report shows with the values of a run, point by point.
    evidence
        Other tables for report sections and claims: tables with ``comparison = false``, and tables of the library
        (:mod:`venturi.study.library`) that the claims use.

    ``where`` is a table of factor → value.
    """

    fits: tuple[dict[str, Any], ...] = ()
    totals: tuple[dict[str, Any], ...] = ()
    rates: tuple[dict[str, Any], ...] = ()
    claims: tuple[dict[str, Any], ...] = ()
    inputs: tuple[dict[str, Any], ...] = ()
    comparison: tuple[dict[str, Any], ...] = ()
    tables: tuple[PublishedTable, ...] = ()
    evidence: tuple[PublishedTable, ...] = ()

    def table(self, id_: str) -> PublishedTable:
        """Return the published table of this id.

        Raises
        ------
        KeyError
            If the study has no such table.
        """
        return {table.id: table for table in (*self.evidence, *self.tables)}[id_]


@dataclass(frozen=True)
class Study:
    """Published experiment as a scenario.

    Attributes
    ----------
    name
        Name, such as ``"cnaf/cp"``.
    document, experiments
        Number of the report (``"000"``), and its experiments that the study reproduces.
    scenario_path
        The scenario at full published parameters.
    on
        Default backend: ``"hosts"`` or ``"lab"``, the key ``on`` of study.toml; ``None``: chosen from the testbed.
    quick, lab
        Overrides (``workload.repeat=5``) of the quick variant, and of the variant for a lab on one machine. The lab variant
        is the default. ``quick_about`` and ``lab_about`` describe them. Without ``[lab]`` in study.toml, both lab fields
        are empty and the full variant is the default.
    sim, sim_about
        Overrides of the simulation, in addition to the full variant: settings that would only repeat results.
    hosts, hosts_about
        Overrides for existing hosts, after those of each variant: parts that only a lab creates.
    sim_differs
        Known reasons for differences between simulated and published figures; "" if there are none or none are known.
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
    hosts: tuple[str, ...] = ()
    hosts_about: str = ""

    @property
    def report(self) -> PublishedReport:
        """The reproduced report."""
        return reports()[self.document]

    def overrides(
        self, *, quick: bool = False, full: bool = False, on: str | None = None, portable: bool = False
    ) -> tuple[str, ...]:
        """Return the overrides of a variant: quick, full (none), or the default variant of a backend.

        The default of a simulation is the full published scale, which needs no disk space. With ``portable``, every backend
        has the variant of existing hosts, and therefore the same plan.
        """
        backend = "hosts" if portable else on or self.on
        variant = self.quick if quick else () if full else self.sim if backend == "sim" else self.lab
        return (*variant, *self.hosts) if backend == "hosts" else variant


def studies() -> dict[str, Study]:
    """Return all studies by name, in the order of their names."""
    names = sorted(path.parent.relative_to(_HOME).as_posix() for path in _HOME.rglob("study.toml"))
    return {name: _read(name) for name in names}


def study(name: str) -> Study:
    """Return the study of this name.

    Raises
    ------
    ScenarioError
        If there is no such study. The message lists all studies.

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
    directory = _HOME / name
    about = tomllib.loads((directory / "study.toml").read_text(encoding="utf-8"))
    errata = _errata()
    return Study(
        name=name,
        title=about["title"],
        question=about["question"],
        document=about["document"],
        experiments=tuple(about["experiments"]),
        scenario_path=directory / "scenario.toml",
        quick=tuple(about["quick"]["set"]),
        quick_about=about["quick"]["about"],
        published=_published(directory, about),
        errata=tuple(errata[id_] for id_ in about["errata"]),
        on=about.get("on"),
        lab=tuple(about.get("lab", {}).get("set", ())),
        lab_about=about.get("lab", {}).get("about", ""),
        sim=tuple(about.get("sim", {}).get("set", ())),
        sim_about=about.get("sim", {}).get("about", ""),
        sim_differs=about.get("sim", {}).get("differs", ""),
        hosts=tuple(about.get("hosts", {}).get("set", ())),
        hosts_about=about.get("hosts", {}).get("about", ""),
    )


def _published(directory: Path, about: dict[str, Any]) -> Published:
    published: dict[str, list[dict[str, Any]]] = about.get("published", {})
    rows = {key: tuple(value) for key, value in published.items() if key not in ("tables", "claims")}
    own_tables = [
        (read_table(directory, table), table.get("comparison", True)) for table in published.get("tables", ())
    ]
    claims, library_tables = complete_claims(
        about.get("claims", ()), published.get("claims", ()), f"study {directory.name}"
    )
    shown_tables = tuple(table for table, shown in own_tables if shown)
    return Published(
        **rows,
        claims=claims,
        tables=shown_tables,
        evidence=(*(table for table, shown in own_tables if not shown), *library_tables),
    )


def _errata() -> dict[str, Erratum]:
    with (_HOME / "errata.csv").open(encoding="utf-8", newline="") as lines:
        return {row["id"]: Erratum(**row) for row in csv.DictReader(lines)}
