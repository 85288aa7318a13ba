"""Job that reads the containers of a ROOT file and sums their bytes, like the I/O-bound routine of report 003.

A container is a tree; its branches consist of baskets. The job requests one basket, sums its bytes, and requests the next
one, without prefetch or cache. So it waits a round trip for each basket, like ROOT without a tree cache.

Two options model other jobs: computing (masses of four leptons), distributed over the baskets, and a rate limit with waits,
as a model of a slower or shared CPU.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from venturi.application.libraries import MissingLibraryError, RootFileError, uproot, xrootd_source

__all__ = ["Reading", "read"]

TREE = "TTree"
OPEN_TIMEOUT_S = 120.0
"""Timeout of the first response of a server; a batch of jobs opens all its files at the same time."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Result of the read of a file.

    Attributes
    ----------
    bytes
        Fetched bytes: baskets and metadata.
    containers, baskets
        Number of containers and baskets.
    container_bytes
        Uncompressed bytes of the baskets.
    sum
        Sum of these bytes as integers from 0 to 255.
    requests
        Number of requests, each for one byte range.
    open_s, read_s
        Duration of the open, and from there to the end.
    cpu_s, compute_s, waited_s
        Total CPU time, CPU time of the requested computing, and wait for the rate limit.
    """

    bytes: int
    containers: int
    baskets: int
    container_bytes: int
    sum: int
    requests: int
    open_s: float
    read_s: float
    cpu_s: float
    compute_s: float
    waited_s: float

    def detail(self) -> dict[str, int | float]:
        """Return all values by name, with times rounded to microseconds."""
        return {key: round(value, 6) if isinstance(value, float) else value for key, value in asdict(self).items()}


def read(url: str, *, rate_bytes_per_s: float | None = None, compute_core_s: float = 0.0) -> Reading:
    """Read a complete file.

    Parameters
    ----------
    url
        A path, or ``root://host:port//path``.
    rate_bytes_per_s
        Rate limit after the open; ``None``: unlimited.
    compute_core_s
        Total CPU time of computing.

    Raises
    ------
    RootFileError
        If the file cannot be opened or read, or is no ROOT file.
    MissingLibraryError
        If uproot, or for ``root://`` the XRootD client, is not installed.
    """
    started_s, started_cpu_s = time.perf_counter(), time.process_time()
    try:
        with _open(url) as file:
            opened_s = time.perf_counter()
            work = _Work(rate_bytes_per_s, opened_s, started_cpu_s)
            trees = [file[key] for key in file.keys(recursive=True, cycle=True, filter_classname=TREE)]
            total = sum(branch.num_baskets for tree in trees for branch in tree.branches)
            source = file.file.source
            for tree in trees:
                for index in range(max((branch.num_baskets for branch in tree.branches), default=0)):
                    for branch in tree.branches:
                        if index < branch.num_baskets:
                            work.take(branch.basket(index).data, source.num_requested_bytes, compute_core_s / total)
            return work.reading(source, len(trees), started_s)
    except MissingLibraryError:
        raise
    except Exception as error:  # uproot raises various exceptions for damaged, truncated or missing files
        raise RootFileError(
            f"{url}: expected a readable ROOT file, found {_first_line(error)}; check the file"
        ) from error


def _open(url: str) -> Any:  # noqa: ANN401 - uproot has no types
    library = uproot()
    # Without memory mapping: a remote file system sees the size of each read call.
    handler = xrootd_source() if "://" in url else library.source.file.MultithreadedFileSource
    return library.open(url, handler=handler, num_workers=1, timeout=OPEN_TIMEOUT_S)


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


class _Work:
    """Processing of the baskets of a job."""

    def __init__(self, rate_bytes_per_s: float | None, opened_s: float, started_cpu_s: float) -> None:
        self._rate, self._opened_s, self._started_cpu_s = rate_bytes_per_s, opened_s, started_cpu_s
        self._baskets = self._container_bytes = self._sum = 0
        self._compute_s = self._waited_s = 0.0

    def take(self, data: npt.NDArray[np.uint8], fetched_bytes: int, compute_core_s: float) -> None:
        """Sum a basket, compute, and wait for the rate limit."""
        self._baskets += 1
        self._container_bytes += data.nbytes
        self._sum += int(data.sum(dtype=np.int64))
        if compute_core_s > 0:
            self._compute_s += _compute(data, compute_core_s)
        if self._rate:
            ahead_s = self._opened_s + fetched_bytes / self._rate - time.perf_counter()
            if ahead_s > 0:
                time.sleep(ahead_s)
                self._waited_s += ahead_s

    def reading(self, source: Any, containers: int, started_s: float) -> Reading:  # noqa: ANN401
        return Reading(
            bytes=int(source.num_requested_bytes),
            containers=containers,
            baskets=self._baskets,
            container_bytes=self._container_bytes,
            sum=self._sum,
            requests=int(source.num_requests),
            open_s=self._opened_s - started_s,
            read_s=time.perf_counter() - self._opened_s,
            cpu_s=time.process_time() - self._started_cpu_s,
            compute_s=self._compute_s,
            waited_s=self._waited_s,
        )


def _compute(data: npt.NDArray[np.uint8], core_s: float) -> float:
    """Compute masses of four leptons from a basket for a CPU time; return the used CPU time."""
    started_s = time.thread_time()
    momenta = np.resize(data, (64, 4, 3)).astype(np.float64)
    total = 0.0
    while True:
        energy = np.sqrt((momenta**2).sum(axis=2) + 0.105658**2).sum(axis=1)  # muons: 0.105658 GeV (PDG)
        mass = np.sqrt(np.maximum(energy**2 - (momenta.sum(axis=1) ** 2).sum(axis=1), 0.0))
        total += float(mass.sum())
        used_s = time.thread_time() - started_s
        if used_s >= core_s:
            return used_s
