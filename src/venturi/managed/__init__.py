"""Managed transfers: a list is handed over, and carried out whatever happens.

What a transfer service does (Globus, FTS), without a server: a *queue* is a directory with an SQLite database. A job is
submitted to it as a list of transfers; workers, one or several, carry them out through the movers of
:mod:`venturi.mover`, each attempt as a small plan of its own through an agent. Failures are told apart (permanent,
passing), passing ones tried again later; what came is verified by checksum; a killed worker's transfers are taken up by
the next one.

Left out on purpose: a daemon, users and their credentials (movers find them in the environment, as ever), and choosing
settings by itself.

Read :class:`Queue` first, then :class:`Worker`.
"""

from __future__ import annotations

from venturi.managed.address import Address, AddressError
from venturi.managed.causes import Cause, cause_of
from venturi.managed.checksum import ALGORITHMS, Checksum
from venturi.managed.listing import Wanted, read_list
from venturi.managed.options import JobOptions
from venturi.managed.queue import Queue, QueueError
from venturi.managed.status import JobStatus, job_status
from venturi.managed.worker import Tally, Worker

__all__ = [
    "ALGORITHMS",
    "Address",
    "AddressError",
    "Cause",
    "Checksum",
    "JobOptions",
    "JobStatus",
    "Queue",
    "QueueError",
    "Tally",
    "Wanted",
    "Worker",
    "cause_of",
    "job_status",
    "read_list",
]
