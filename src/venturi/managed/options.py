"""How a job is carried out: what its submitter has set."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from venturi.errors import VenturiError
from venturi.managed.checksum import ALGORITHMS
from venturi.plan.header import OptionValue
from venturi.plan.words import shown

__all__ = ["NO_CHECKSUM", "JobOptions", "JobOptionsError"]

NO_CHECKSUM = "none"
_MOST_CONCURRENT = 1000
_MOST_TOGETHER = 100_000


class JobOptionsError(VenturiError, ValueError):
    """Settings of a job that make no sense."""


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Settings of a job.

    Attributes
    ----------
    mover
        Name of the mover of all its transfers; None: by the protocols of each (:func:`venturi.managed.choice.choose`).
    mover_options
        What is set of it, by name, in base units.
    concurrency
        Calls of movers at a time, of this job, whoever works on it.
    per_host
        Calls at a time that have an end on one host, of the whole queue; None: no limit but ``concurrency``.
    files_per_call
        Files that one call moves at most, where the mover takes lists of pairs (``globus-url-copy``).
    retries
        How often a transfer that failed in passing is tried again.
    backoff_s, backoff_limit_s
        Before the first of these, doubled for each further one up to the limit.
    verify
        Algorithm by which source and destination are compared, or ``"none"``.
    timeout_s
        After which one attempt is ended.
    deadline_unix_s
        After which nothing of the job is begun or goes on; None: never.
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
                f"verify: expected one of {NO_CHECKSUM}, {', '.join(ALGORITHMS)}, found {shown(self.verify)}"
            )
        if self.timeout_s <= 0:
            raise JobOptionsError(f"timeout: expected more than 0 s, found {self.timeout_s:g} s")

    @staticmethod
    def _check(name: str, value: int, low: int, high: int) -> None:
        if not low <= value <= high:
            raise JobOptionsError(f"{name}: expected a whole number from {low} to {high}, found {value}")

    def delay_s(self, failures: int, draw: random.Random) -> float:
        """Return how long to wait after so many failures: doubled each time, and shortened by up to half at random.

        Transfers that failed together would otherwise all come back at the same moment.

        Examples
        --------
        >>> round(JobOptions(backoff_s=2.0).delay_s(3, random.Random(1)), 1)  # of 8 s
        4.5
        """
        longest_s = min(self.backoff_s * 2.0 ** min(failures - 1, 60), self.backoff_limit_s)
        return longest_s * (0.5 + 0.5 * draw.random())

    def to_json(self) -> str:
        """Return what :meth:`from_json` makes the same settings of."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> JobOptions:
        """Return the settings of a queue; those of a newer version that are not known are passed over."""
        told = json.loads(text)
        return cls(**{name: told[name] for name in cls.__dataclass_fields__ if name in told})
