"""Every experiment of the five reports, and the studies that carry it out."""

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


def studies_of(named: str) -> tuple[Study, ...]:
    """Return the study of this name, or those that carry out the experiment of this ID, in the order of their names.

    Raises
    ------
    ScenarioError
        If there is neither, with the nearest of both, or no study carries the experiment out.

    Examples
    --------
    >>> [study.name for study in studies_of("002-GF")]
    ['ani/gridftp', 'ani/managed']
    >>> [study.name for study in studies_of("cnaf/cp")]
    ['cnaf/cp']
    """
    known, told = studies(), {experiment.id: experiment for experiment in experiments()}
    if named in known:
        return (known[named],)
    if named not in told:
        folded = {text.lower(): text for text in (*known, *told)}
        near = difflib.get_close_matches(named.lower(), folded, n=1)
        hint = f'; did you mean "{folded[near[0]]}"?' if near else ""
        raise ScenarioError(
            [
                (
                    "",
                    f'expected the name of a study or the ID of an experiment, found "{named}"{hint or _SEE_LIST}',
                )
            ],
            "study",
        )
    if not told[named].studies:
        raise ScenarioError(
            [("", f"expected a study of {named} ({told[named].about}), found none yet{_SEE_LIST}")], "study"
        )
    return tuple(known[name] for name in told[named].studies)
