"""Published experiments as scenarios, with their published results and errata.

A study is a directory: ``scenario.toml`` has the full published parameters, ``study.toml`` the title, the question, the
overrides of the quick variant and the published figures. A study contains no code.

Read :class:`Study` first.
"""

from venturi.study.catalogue import Erratum, Published, PublishedTable, Study, studies, study
from venturi.study.experiments import Experiment, experiments, studies_of
from venturi.study.library import Library, library
from venturi.study.reports import PublishedReport, reports

__all__ = [
    "Erratum",
    "Experiment",
    "Library",
    "Published",
    "PublishedReport",
    "PublishedTable",
    "Study",
    "experiments",
    "library",
    "reports",
    "studies",
    "studies_of",
    "study",
]
