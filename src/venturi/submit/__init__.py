"""Hands the jobs of a plan to a batch system: submit files that run each job's own command, one array a batch.

A plan of the workload ``jobs`` says on which worker each job runs; a batch system has that to decide itself. What is kept is the rest: the command of
every job with all its options, how many jobs a batch has and how many of them run at a time, and that a batch begins when the one before
has ended.

Left out on purpose: submitting them, and reading what came of them. Times and counters are those of a run; a batch system has its own.

Read :func:`batches_of` first.
"""

from __future__ import annotations

from venturi.submit.commands import BatchOfJobs, SubmitError, batches_of, made_before
from venturi.submit.files import SYSTEMS, write_submit_files

__all__ = ["SYSTEMS", "BatchOfJobs", "SubmitError", "batches_of", "made_before", "write_submit_files"]
