"""Batches of jobs: wall time and the rate at the server interfaces, for the whole batch and without its ramps.

The rate follows report 003: B = (Q₂ − Q₁)/I. Q is the number of bytes that the interfaces of the observed servers had
carried at two readings an interval I apart (the report prints Q₁ − Q₂, 003-E03). Readings are samples of the servers,
interpolated to common times that start with the batch.

If a run was killed and resumed within a batch, parts of the batch ran in different sessions. This batch has no rate and
no wall time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from venturi.analysis.values import FloatArray
from venturi.run import Run
from venturi.stats import SteadyState, fixed_slice
from venturi.units import BITS_PER_BYTE, parse_duration

__all__ = ["RUNNING", "JobBatchResult", "batches", "is_about_jobs", "observed_hosts"]

RUNNING = 0.9
"""Minimum fraction of the maximum number of concurrent jobs in the steady part of a batch."""

_WORKERS = "{worker}"
"""Entry of ``workload.observe`` for all workers."""

_COUNTER = {"sent": "tx_bytes", "received": "rx_bytes"}


@dataclass(frozen=True, eq=False)
class JobBatchResult:
    """One executed batch.

    Attributes
    ----------
    configuration, application, jobs, first_worker, repetition
        Identity of the batch. ``first_worker`` is the position of the window of workers, if any.
    size_bytes
        Size of the file of each job.
    failed
        Jobs that did not succeed, including jobs that never started.
    split
        True if parts of the batch ran in different sessions.
    start_s, end_s, wall_s
        Release of the first job, end of the last one, and the time between. ``wall_s`` is None for an incomplete batch.
    moved_bytes
        Bytes of the successful jobs.
    time_s, rate_bit_per_s
        Middle of each interval, from the start of the batch, and the rate in the interval. Empty without readings.
        Shape (n,).
    slice
        Steady part of the batch, with the numbers of the whole. None without readings.
    job_rate_bit_per_s, job_cpu_s
        Rate of each successful job by its own clock, and its reported CPU time. Shape (ok,).
    """

    configuration: str
    application: str
    jobs: int
    first_worker: int | None
    repetition: int
    size_bytes: int
    failed: int
    split: bool
    start_s: float
    end_s: float
    wall_s: float | None
    moved_bytes: float
    time_s: FloatArray
    rate_bit_per_s: FloatArray
    slice: SteadyState | None
    job_rate_bit_per_s: FloatArray
    job_cpu_s: FloatArray


def is_about_jobs(run: Run) -> bool:
    """Return whether the run has the workload ``jobs``."""
    return bool(_workload(run).get("kind") == "jobs")


def batches(run: Run) -> tuple[JobBatchResult, ...]:
    """Return the batches of a run of the workload ``jobs``, in the order of their starts."""
    column = "t.factor_first_worker::INTEGER" if "first_worker" in run.factors else "NULL"
    rows = run.query(_JOBS.format(first_worker=column))
    order = np.flatnonzero(
        np.concatenate(([True], np.diff(rows["point"]) != 0)) | np.concatenate(([True], np.diff(rows["repetition"]) != 0))
    ) if len(rows["point"]) else np.array([], dtype=np.int64)  # fmt: skip
    ends = [*order[1:].tolist(), len(rows["point"])]
    parts = [{name: column[a:b] for name, column in rows.items()} for a, b in zip(order.tolist(), ends, strict=True)]
    found = [_batch(run, part) for part in parts]
    return tuple(sorted(found, key=lambda batch: batch.start_s))


_JOBS = """
    SELECT t.point::INTEGER AS point, t.repetition::INTEGER AS repetition, t.session::INTEGER AS session, t.outcome AS outcome,
           t.start_s AS start_s, t.end_s AS end_s, coalesce(t.received_bytes, t.requested_bytes)::DOUBLE AS bytes,
           t.factor_configuration AS configuration, t.factor_application AS application, t.factor_jobs::INTEGER AS jobs,
           t.factor_size_bytes::BIGINT AS size_bytes, {first_worker} AS first_worker,
           t.tool_rate_bytes_per_s AS rate, try_cast(t.tool ->> 'cpu_s' AS DOUBLE) AS cpu_s
    FROM transfers t WHERE t.point IS NOT NULL ORDER BY point, repetition, start_s"""


def _batch(run: Run, rows: Mapping[str, Any]) -> JobBatchResult:
    ok = rows["outcome"] == "ok"
    jobs = int(rows["jobs"][0])
    starts, ends = (np.asarray(rows[name], dtype=np.float64) for name in ("start_s", "end_s"))
    started = np.isfinite(starts) & np.isfinite(ends)
    start_s = float(starts[started].min()) if started.any() else float("nan")
    end_s = float(ends[started].max()) if started.any() else float("nan")
    split = len(set(rows["session"].tolist())) > 1
    failed = jobs - int(ok.sum())
    whole = started.any() and not split and failed == 0
    configuration = str(rows["configuration"][0])
    time_s, rate = _readings(run, configuration, start_s, end_s) if started.any() and not split else (_NONE, _NONE)
    own = ok & started
    return JobBatchResult(
        configuration=configuration,
        application=str(rows["application"][0]),
        jobs=jobs,
        first_worker=_whole(rows["first_worker"][0]),
        repetition=int(rows["repetition"][0]),
        size_bytes=int(rows["size_bytes"][0]),
        failed=failed,
        split=split,
        start_s=start_s,
        end_s=end_s,
        wall_s=end_s - start_s if whole else None,
        moved_bytes=float(np.nansum(rows["bytes"][ok])),
        time_s=time_s,
        rate_bit_per_s=rate,
        slice=_slice(time_s, rate, starts[started] - start_s, ends[started] - start_s) if len(rate) else None,
        job_rate_bit_per_s=BITS_PER_BYTE * np.asarray(rows["rate"][own], dtype=np.float64),
        job_cpu_s=np.asarray(rows["cpu_s"][own], dtype=np.float64),
    )


_NONE: FloatArray = np.array([], dtype=np.float64)


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int | float | np.number) and np.isfinite(value) else None


def _readings(run: Run, configuration: str, start_s: float, end_s: float) -> tuple[FloatArray, FloatArray]:
    """Return the middles of the intervals of a batch and their rates.

    A reading needs samples on both sides. The last reading can be missing if a run ends with its batch. If another
    reading is missing, the result is empty.
    """
    interval = _interval_s(run)
    count = int((end_s - start_s) / interval + 1e-9)
    grid = start_s + interval * np.arange(count + 1)
    traces = [_trace(run, host, start_s - 2 * interval, float(grid[-1]) + 2 * interval) for host in observed_hosts(run, configuration)]  # fmt: skip
    if count < 1 or any(len(time) < 2 or time[0] > grid[0] or np.any(np.diff(value) < 0) for time, value in traces):
        return _NONE, _NONE
    seen = grid[grid <= min((time[-1] for time, _ in traces), default=grid[-1])]
    if len(seen) < max(2, count):
        return _NONE, _NONE
    counted = sum((np.interp(seen, time, value) for time, value in traces), np.zeros(len(seen)))
    rate: FloatArray = BITS_PER_BYTE * np.diff(counted) / interval
    middle: FloatArray = np.asarray(seen[:-1] + interval / 2 - start_s, dtype=np.float64)
    return middle, rate


def _trace(run: Run, host: str, low_s: float, high_s: float) -> tuple[FloatArray, FloatArray]:
    counter = _COUNTER[str(_workload(run).get("observed", "sent"))]
    query = _COUNTED.format(counter=counter)
    rows = run.query(f"{query} AND time_s BETWEEN $low AND $high {_IN_TIME}", {"host": host, "low": low_s, "high": high_s})  # fmt: skip
    time_s, value = (np.asarray(rows[name], dtype=np.float64) for name in ("time_s", "value"))
    if len(time_s) and time_s[0] > low_s:
        # A simulation omits samples while nothing moves. If two samples of a counter are equal, it had this value all
        # the time between.
        before = run.query(f"{query} AND time_s < $low {_IN_TIME} DESC LIMIT 1", {"host": host, "low": low_s})
        if len(before["value"]) and before["value"][0] == value[0]:
            return np.concatenate(([low_s], time_s)), np.concatenate((value[:1], value))
    return time_s, value


_COUNTED = """
    SELECT time_s, sum(value) AS value FROM samples
    WHERE host = $host AND counter LIKE 'nic.%.{counter}' AND counter <> 'nic.lo.{counter}'"""
_IN_TIME = "GROUP BY time_s ORDER BY time_s"


def observed_hosts(run: Run, configuration: str) -> Sequence[str]:
    """Return the observed hosts: those in the scenario, or the servers that the jobs read from."""
    workload = _workload(run)
    observed = workload.get("observe")
    if observed:
        named = (workload.get("workers", ()) if name == _WORKERS else (name,) for name in observed)
        return tuple(dict.fromkeys(chain.from_iterable(named)))
    header, where = run.header, _workload(run).get("configuration", {}).get(configuration, {})
    services, storages = header.get("services") or {}, header.get("storages") or {}
    hosts = [services[name]["host"] for name in where.get("service") or () if name in services]
    hosts += [storages[name]["host"] for name in where.get("storage") or () if name in storages] if not hosts else []
    return tuple(dict.fromkeys(hosts))


def _slice(time_s: FloatArray, rate: FloatArray, starts: FloatArray, ends: FloatArray) -> SteadyState:
    """Return the part of a batch with nearly all of its jobs running.

    The part with the smallest error (MSER) is unsuitable. Servers that read ahead send in bursts, so the quiet end of a
    batch with little remaining work would be its steadiest part. This may explain some rows of table 6.2, which are
    below the rows of table 6.1 (003-E22).
    """
    return fixed_slice(time_s, rate, *_running(starts, ends))


def _running(starts: FloatArray, ends: FloatArray) -> tuple[float, float]:
    """Return the longest time with at least :data:`RUNNING` of the maximum number of concurrent jobs."""
    moments = np.concatenate((starts, ends))
    change = np.concatenate((np.ones(len(starts)), -np.ones(len(ends))))
    order = np.argsort(moments, kind="stable")
    moments, running = moments[order], np.cumsum(change[order])
    enough = running >= RUNNING * running.max()
    windows = [(float(moments[a]), float(moments[b])) for a, b in _busy_windows(enough)]
    return max(windows, key=lambda ends_: ends_[1] - ends_[0])


def _busy_windows(flags: np.ndarray[Any, np.dtype[np.bool_]]) -> Iterator[tuple[int, int]]:
    """Yield first and end of each series of true values.

    The last value of a count of jobs is never true, because no job runs after the last end.
    """
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    for first, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        yield first, min(end, len(flags) - 1)


def _workload(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = (run.header.get("scenario") or {}).get("workload") or {}
    return found


def _interval_s(run: Run) -> float:
    return float(parse_duration(_workload(run).get("interval", "5 s")))
