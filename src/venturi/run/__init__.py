"""Run directories: results of an execution, with journal, tables and findings.

A run is the only data that execution passes to analysis. It has the same form for every backend; one column names the backend.
``docs/reference/run.md`` describes the format. This package executes no plan and computes no statistics.

Read :class:`Run` first; :class:`RunWriter` is for backends.
"""

from __future__ import annotations

from venturi.run.directory import RUN_VERSION, RunState, latest_run, resolve_run
from venturi.run.finding import Finding
from venturi.run.reader import Run
from venturi.run.writer import RunWriter

__all__ = ["RUN_VERSION", "Finding", "Run", "RunState", "RunWriter", "latest_run", "resolve_run"]
