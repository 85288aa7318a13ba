"""Submit files for batch systems: the commands of the jobs of a plan, with one job array for each batch.

A plan of the workload ``jobs`` assigns jobs to workers; a batch system assigns them itself. The submit files keep the
command of each job, the number of jobs and concurrent jobs of a batch, and the order of batches.

Venturi does not submit the files, and does not read results: a batch system has its own times and counters.

Read :func:`list_batches` first.
"""

from __future__ import annotations

from venturi.submit.commands import CommandBatch, SubmitError, list_batches, prepare_commands
from venturi.submit.files import SYSTEMS, write_submit_files

__all__ = ["SYSTEMS", "CommandBatch", "SubmitError", "list_batches", "prepare_commands", "write_submit_files"]
