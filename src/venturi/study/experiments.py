"""Experiments of the five reports, and the studies that reproduce them."""

from __future__ import annotations

import csv
import difflib
from dataclasses import dataclass
from pathlib import Path

from venturi.errors import ScenarioError
from venturi.study.catalogue import Study, studies

__all__ = ["Experiment", "experiments", "studies_of"]

_FILE = Path(__file__).parent / "experiments.csv"
_SEE_LIST = "; see `venturi study list`"


@dataclass(frozen=True)
class Experiment:
    """Experiment that a report describes.

    Attributes
    ----------
    id
        Report number and short name, such as ``"002-SRM"``.
    document, section
        Report number, and section of the report.
    about
        Description in one line.
    studies
        Names of the studies that reproduce it; may be empty.
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
    study_names: dict[str, list[str]] = {}
    for study in studies().values():
        for id_ in study.experiments:
            study_names.setdefault(id_, []).append(study.name)
    with _FILE.open(encoding="utf-8", newline="") as lines:
        return tuple(
            Experiment(**row, studies=tuple(study_names.get(row["id"], ()))) for row in csv.DictReader(lines)
        )


def studies_of(name: str) -> tuple[Study, ...]:
    """Return the study of this name, or the studies of the experiment of this ID, ordered by name.

    Raises
    ------
    ScenarioError
        If neither exists (with the closest name), or if the experiment has no study.

    Examples
    --------
    >>> [study.name for study in studies_of("002-GF")]
    ['ani/gridftp', 'ani/managed']
    >>> [study.name for study in studies_of("cnaf/cp")]
    ['cnaf/cp']
    """
    known, by_id = studies(), {experiment.id: experiment for experiment in experiments()}
    if name in known:
        return (known[name],)
    if name not in by_id:
        folded = {text.lower(): text for text in (*known, *by_id)}
        near = difflib.get_close_matches(name.lower(), folded, n=1)
        hint = f'; did you mean "{folded[near[0]]}"?' if near else ""
        raise ScenarioError(
            [
                (
                    "",
                    f'expected the name of a study or the ID of an experiment, found "{name}"{hint or _SEE_LIST}',
                )
            ],
            "study",
        )
    if not by_id[name].studies:
        raise ScenarioError(
            [("", f"{name} ({by_id[name].about}): expected a study of this experiment, found none{_SEE_LIST}")],
            "study",
        )
    return tuple(known[study] for study in by_id[name].studies)
