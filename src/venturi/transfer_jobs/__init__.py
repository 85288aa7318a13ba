"""Managed transfers: jobs with lists of transfers that are executed despite failures and restarts.

They offer the main functions of a transfer service (Globus, FTS) without a server. A *queue* is a directory with an
SQLite database. A user submits a job as a list of transfers. One or more workers execute the transfers through the
movers of :mod:`venturi.mover`. Each attempt is a small plan that an agent executes. Failures are classified as
permanent or transient, and transient ones are retried later. Workers verify transferred files by checksum. If a worker
is killed, the next one takes over its transfers.

The package has no daemon and manages no users or credentials, because movers find credentials in the environment. It
does not tune settings.

Read :class:`TransferQueue` first, then :class:`TransferWorker`.
"""

from __future__ import annotations

from venturi.transfer_jobs.address import Address, AddressError
from venturi.transfer_jobs.causes import Cause, cause_of
from venturi.transfer_jobs.checksum import ALGORITHMS, Checksum
from venturi.transfer_jobs.listing import TransferRequest, read_list
from venturi.transfer_jobs.options import JobOptions
from venturi.transfer_jobs.queue import QueueError, TransferQueue
from venturi.transfer_jobs.status import JobStatus, job_status
from venturi.transfer_jobs.worker import Tally, TransferWorker

__all__ = [
    "ALGORITHMS",
    "Address",
    "AddressError",
    "Cause",
    "Checksum",
    "JobOptions",
    "JobStatus",
    "QueueError",
    "Tally",
    "TransferQueue",
    "TransferRequest",
    "TransferWorker",
    "cause_of",
    "job_status",
    "read_list",
]
