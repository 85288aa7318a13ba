"""Every experiment of the five reports, and the studies that carry it out."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from venturi.study.catalogue import studies

__all__ = ["Experiment", "experiments"]

_FILE = Path(__file__).parent / "experiments.csv"


@dataclass(frozen=True)
class Experiment:
    """An experiment that a report describes.

    Attributes
    ----------
    id
        Such as ``"002-SRM"``: the report, then a short name.
    document, section
        The report, and where in it the experiment stands.
    about
        What is done, in a line.
    studies
        Names of the studies that carry it out; empty: none does yet.
    """

    id: str
    document: str
    section: str
    about: str
    studies: tuple[str, ...]


def experiments() -> tuple[Experiment, ...]:
    """Return all experiments, in the order of the reports.

    Examples
    --------
    >>> next(e for e in experiments() if e.id == "000-S1").studies
    ('cnaf/cp',)
    """
    carried_out: dict[str, list[str]] = {}
    for study in studies().values():
        for id_ in study.experiments:
            carried_out.setdefault(id_, []).append(study.name)
    with _FILE.open(encoding="utf-8", newline="") as lines:
        return tuple(
            Experiment(**row, studies=tuple(carried_out.get(row["id"], ()))) for row in csv.DictReader(lines)
        )
