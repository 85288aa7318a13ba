"""Settings of a job, as chosen by its submitter."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from venturi.errors import VenturiError
from venturi.messages import quote_value
from venturi.plan.header import OptionValue
from venturi.transfer_jobs.checksum import ALGORITHMS

__all__ = ["NO_CHECKSUM", "JobOptions", "JobOptionsError"]

NO_CHECKSUM = "none"
_MOST_CONCURRENT = 1000
_MOST_TOGETHER = 100_000


class JobOptionsError(VenturiError, ValueError):
    """Invalid settings of a job."""


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Settings of a job.

    Attributes
    ----------
    mover
        Name of the mover of all transfers. None: chosen by the protocols of each transfer
        (:func:`venturi.transfer_jobs.choice.choose`).
    mover_options
        Options of the mover by name, in base units.
    concurrency
        Maximum number of concurrent calls of movers for this job, over all workers.
    per_host
        Maximum number of concurrent calls with an endpoint on one host, over the whole queue. None: limited only by
        ``concurrency``.
    files_per_call
        Maximum number of files in one call, if the mover accepts lists of pairs (``globus-url-copy``).
    retries
        Maximum number of retries of a transfer after transient failures.
    backoff_s, backoff_limit_s
        Delay before the first retry, doubled for each further one up to the limit.
    verify
        Checksum algorithm for the comparison of source and destination, or ``"none"``.
    timeout_s
        Timeout of one attempt.
    deadline_unix_s
        Time after which no transfer of the job starts or continues. None: no deadline.
    """

    mover: str | None = None
    mover_options: Mapping[str, OptionValue] = field(default_factory=dict)
    concurrency: int = 4
    per_host: int | None = None
    files_per_call: int = 1
    retries: int = 5
    backoff_s: float = 2.0
    backoff_limit_s: float = 300.0
    verify: str = "adler32"
    timeout_s: float = 3600.0
    deadline_unix_s: float | None = None

    def __post_init__(self) -> None:
        self._check("concurrency", self.concurrency, 1, _MOST_CONCURRENT)
        self._check("per-host", self.per_host or 1, 1, _MOST_CONCURRENT)
        self._check("files-per-call", self.files_per_call, 1, _MOST_TOGETHER)
        self._check("retries", self.retries, 0, 1000)
        if self.verify != NO_CHECKSUM and self.verify not in ALGORITHMS:
            raise JobOptionsError(
                f"verify: expected one of {NO_CHECKSUM}, {', '.join(ALGORITHMS)}, found {quote_value(self.verify)}"
            )
        if self.timeout_s <= 0:
            raise JobOptionsError(f"timeout: expected more than 0 s, found {self.timeout_s:g} s")

    @staticmethod
    def _check(name: str, value: int, low: int, high: int) -> None:
        if not low <= value <= high:
            raise JobOptionsError(f"{name}: expected a whole number from {low} to {high}, found {value}")

    def delay_s(self, failures: int, draw: random.Random) -> float:
        """Return the delay after a number of failures. It doubles each time, and is shortened by up to half at random.

        Without the random part, transfers that failed together would all be retried at the same moment.

        Examples
        --------
        >>> round(JobOptions(backoff_s=2.0).delay_s(3, random.Random(1)), 1)  # of 8 s
        4.5
        """
        longest_s = min(self.backoff_s * 2.0 ** min(failures - 1, 60), self.backoff_limit_s)
        return longest_s * (0.5 + 0.5 * draw.random())

    def to_json(self) -> str:
        """Return the settings as JSON for :meth:`from_json`."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> JobOptions:
        """Return the settings from a queue. Unknown settings of a newer version are ignored."""
        stored = json.loads(text)
        return cls(**{name: stored[name] for name in cls.__dataclass_fields__ if name in stored})
