"""The published studies as scenarios, with what they published and what is wrong in print.

A study is a folder here: ``scenario.toml`` at the full published parameters, ``study.toml`` with the title, the question, the
overrides of the quick variant and the published figures, errata included. Nothing of a study is code.

The one type to read first: :class:`Study`.
"""

from venturi.study.catalogue import Erratum, Published, PublishedTable, Study, studies, study
from venturi.study.experiments import Experiment, experiments, studies_of
from venturi.study.library import Library, library

__all__ = [
    "Erratum",
    "Experiment",
    "Library",
    "Published",
    "PublishedTable",
    "Study",
    "experiments",
    "library",
    "studies",
    "studies_of",
    "study",
]
