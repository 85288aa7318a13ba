"""A job that goes through the containers of a file of ROOT and sums their bytes, as the I/O-bound routine of report 003 does.

A container is a tree; its branches are kept in baskets, and a basket is what is fetched at a time: one request, then its bytes are summed, then
the next. Nothing is fetched ahead and nothing is kept. So a job waits a round trip for each basket, as ROOT does without a tree cache.

Two things make it another kind of job: so much computing, spread over the baskets (masses of four leptons, again and again, for so much
processor time), and a rate that it never exceeds, by waiting: a processor of another speed than the one that is there, or than the share of it
that a crowd of jobs leaves to each.
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
"""How long the first answer of a server may take: a batch of jobs opens all its files at once."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What came of reading one file.

    Attributes
    ----------
    bytes
        Fetched of the file: baskets, and what tells where they are.
    containers, baskets
        How many there were.
    container_bytes
        In the baskets, uncompressed.
    sum
        Of all these bytes as whole numbers 0 to 255.
    requests
        Fetches, of one stretch of the file each.
    open_s, read_s
        From the call to the open file, and from there to the end.
    cpu_s, compute_s, waited_s
        Processor time of the whole, the part of it that was computing as asked, and the time that went by waiting for the rate.
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
        """Return all of it by name; times to the microsecond."""
        return {key: round(value, 6) if isinstance(value, float) else value for key, value in asdict(self).items()}


def read(url: str, *, rate_bytes_per_s: float | None = None, compute_core_s: float = 0.0) -> Reading:
    """Read a file to its end.

    Parameters
    ----------
    url
        A path, or ``root://host:port//path``.
    rate_bytes_per_s
        At most so fast, counted from the open file; ``None``: as fast as it goes.
    compute_core_s
        Processor time of computing in all.

    Raises
    ------
    RootFileError
        If it cannot be opened or read, or is no file of ROOT.
    MissingLibraryError
        If uproot, or for ``root://`` the XRootD client, is not installed.
    """
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    try:
        with _open(url) as file:
            opened_s = time.perf_counter()
            work = _Work(rate_bytes_per_s, opened_s, began_cpu_s)
            trees = [file[key] for key in file.keys(recursive=True, cycle=True, filter_classname=TREE)]
            total = sum(branch.num_baskets for tree in trees for branch in tree.branches)
            source = file.file.source
            for tree in trees:
                for index in range(max((branch.num_baskets for branch in tree.branches), default=0)):
                    for branch in tree.branches:
                        if index < branch.num_baskets:
                            work.take(branch.basket(index).data, source.num_requested_bytes, compute_core_s / total)
            return work.reading(source, len(trees), began_s)
    except MissingLibraryError:
        raise
    except Exception as error:  # whatever uproot makes of a file that is damaged, cut short, or not there
        raise RootFileError(f"{url}: expected a file of ROOT that can be read, found: {_line(error)}") from error


def _open(url: str) -> Any:  # noqa: ANN401 - uproot has no types
    library = uproot()
    # Not mapped into memory: a job reads by calls, whose size a remote file system sees.
    handler = xrootd_source() if "://" in url else library.source.file.MultithreadedFileSource
    return library.open(url, handler=handler, num_workers=1, timeout=OPEN_TIMEOUT_S)


def _line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


class _Work:
    """What a job does with its baskets."""

    def __init__(self, rate_bytes_per_s: float | None, opened_s: float, began_cpu_s: float) -> None:
        self._rate, self._opened_s, self._began_cpu_s = rate_bytes_per_s, opened_s, began_cpu_s
        self._baskets = self._container_bytes = self._sum = 0
        self._compute_s = self._waited_s = 0.0

    def take(self, data: npt.NDArray[np.uint8], fetched_bytes: int, compute_core_s: float) -> None:
        """Sum a basket, compute on it, and wait if this was too fast."""
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

    def reading(self, source: Any, containers: int, began_s: float) -> Reading:  # noqa: ANN401
        return Reading(
            bytes=int(source.num_requested_bytes),
            containers=containers,
            baskets=self._baskets,
            container_bytes=self._container_bytes,
            sum=self._sum,
            requests=int(source.num_requests),
            open_s=self._opened_s - began_s,
            read_s=time.perf_counter() - self._opened_s,
            cpu_s=time.process_time() - self._began_cpu_s,
            compute_s=self._compute_s,
            waited_s=self._waited_s,
        )


def _compute(data: npt.NDArray[np.uint8], core_s: float) -> float:
    """Take the masses of four leptons from a basket until so much processor time is used; return how much it was."""
    began_s = time.thread_time()
    momenta = np.resize(data, (64, 4, 3)).astype(np.float64)
    total = 0.0
    while True:
        energy = np.sqrt((momenta**2).sum(axis=2) + 0.105658**2).sum(axis=1)  # muons: 0.105658 GeV (PDG)
        mass = np.sqrt(np.maximum(energy**2 - (momenta.sum(axis=1) ** 2).sum(axis=1), 0.0))
        total += float(mass.sum())
        used_s = time.thread_time() - began_s
        if used_s >= core_s:
            return used_s
