"""What came back: the run directory, its journal, its tables, and what is doubtful about it.

Only a run crosses from execution to analysis. A run never says which backend made it, except in one column. The format
stands in ``docs/reference/run.md``. This package carries nothing out and knows no statistics.

Read :class:`Run` first; :class:`RunWriter` is for backends.
"""

from __future__ import annotations

from venturi.run.directory import RUN_VERSION, RunState, latest_run, resolve_run
from venturi.run.finding import Finding
from venturi.run.reader import Run
from venturi.run.writer import RunWriter

__all__ = ["RUN_VERSION", "Finding", "Run", "RunState", "RunWriter", "latest_run", "resolve_run"]
