"""Data challenges: does a testbed carry a table of rates, and which links and sites limit it?

This package reads the table, checks it against the testbed and exports it as a scenario or for a load injector. It
moves no data: the workload ``inject`` does (:mod:`venturi.workload.inject`). It has no queues and no single transfers:
the simulator does (:mod:`venturi.simulation`). Read :func:`check_feasibility` first.
"""

from venturi.challenge.feasibility import check_feasibility
from venturi.challenge.result import ChallengeOptions, Feasibility, ResourceUse, RowResult, SiteUse
from venturi.challenge.table import ChallengeRow, ChallengeTable, read_table
from venturi.challenge.testbed import ChallengeTestbed, build_testbed, read_testbed

__all__ = [
    "ChallengeOptions",
    "ChallengeRow",
    "ChallengeTable",
    "ChallengeTestbed",
    "Feasibility",
    "ResourceUse",
    "RowResult",
    "SiteUse",
    "build_testbed",
    "check_feasibility",
    "read_table",
    "read_testbed",
]
