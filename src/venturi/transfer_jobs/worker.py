"""A worker: it claims transfers from a queue, executes them concurrently, and records their results.

It has one event loop. The queue makes all decisions. The loop wakes when a call ends, when a transfer is due, and twice
a second, to detect changes by other processes: new jobs, cancelled jobs, and dead workers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from venturi.backend import find_engine
from venturi.backend.signals import stop_on_signals
from venturi.errors import BackendError
from venturi.transfer_jobs.attempt import Attempt
from venturi.transfer_jobs.causes import Cause, cause_of
from venturi.transfer_jobs.executor import TransferExecutor
from venturi.transfer_jobs.queue import QueueError, TransferQueue
from venturi.transfer_jobs.task import AttemptResult, CallBatch, TransferTask

__all__ = ["Tally", "TransferWorker"]

_LOOK_S = 0.5
"""A worker checks for changes by other processes at this interval."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Result of a worker: ``stopped`` by a signal, or without remaining work."""

    worker: int
    stopped: bool
    attempts: int


class TransferWorker:
    """Executor of the jobs of a queue.

    Parameters
    ----------
    queue
        The queue.
    jobs
        Numbers of the jobs to execute. Default: all.
    engine
        Path of the engine. Default: search for it (:func:`venturi.backend.find_engine`).
    on_progress
        Called in the thread of the caller after possible changes, a few times a second.

    Raises
    ------
    BackendError
        If there is no engine.
    """

    def __init__(
        self,
        queue: TransferQueue,
        *,
        jobs: Sequence[int] = (),
        engine: Path | None = None,
        on_progress: Callable[[], None] | None = None,
    ) -> None:
        self._queue = queue
        self._jobs = tuple(jobs)
        self._engine = engine or find_engine()
        self._on_progress = on_progress or (lambda: None)
        self._calls: dict[asyncio.Task[list[tuple[TransferTask, AttemptResult]]], CallBatch] = {}
        self._ending: dict[int, AttemptResult] = {}
        self._attempts = 0
        self._stop = asyncio.Event()

    def execute(self) -> Tally:
        """Execute transfers until none is left for this worker, or a signal stops it.

        After SIGINT and SIGTERM too, no mover runs when this returns, and active transfers are queued again.
        """
        return asyncio.run(self._live())

    async def _live(self) -> Tally:
        worker, lease = self._queue.enrol(time.time())
        executor = TransferExecutor(self._engine, self._queue.directory / "scratch" / str(worker), lease.descriptor)
        stopping = asyncio.create_task(self._stop.wait())
        try:
            with stop_on_signals(self._stop):
                while not self._stop.is_set() and self._start_call(worker, executor):
                    await asyncio.wait(
                        {*self._calls, stopping}, timeout=self._sleep_s(), return_when=asyncio.FIRST_COMPLETED
                    )
                    self._end_cancelled(worker)
                    self._finalize_ended()
                    self._on_progress()
                await self._give_up()
        finally:
            stopping.cancel()
            await self._give_up()
            self._queue.leave(worker, lease, time.time())
            executor.remove()
        return Tally(worker, self._stop.is_set(), self._attempts)

    def _start_call(self, worker: int, executor: TransferExecutor) -> bool:
        """Start calls up to the limits, and return whether anything remains to wait for."""
        now_unix_s = time.time()
        self._queue.reclaim(now_unix_s)
        self._queue.expire(now_unix_s)
        for claim in self._queue.claim(worker, now_unix_s, self._jobs):
            attempt = Attempt(claim, executor, self._queue.note_copied)
            self._calls[asyncio.create_task(attempt.execute())] = claim
            self._attempts += len(claim.tasks)
        return bool(self._calls) or self._queue.next_due_unix_s(self._jobs) is not None

    def _sleep_s(self) -> float:
        due_unix_s = self._queue.next_due_unix_s(self._jobs)
        wait_s = _LOOK_S if due_unix_s is None else due_unix_s - time.time()
        # A transfer that is due but was not claimed waits for capacity, which the end of a call provides.
        return min(wait_s, _LOOK_S) if wait_s > 0 else _LOOK_S

    def _end_cancelled(self, worker: int) -> None:
        """End calls whose transfers have all been cancelled, and calls after their deadline."""
        unwanted = self._queue.stop_requested(worker)
        for call, claim in self._calls.items():
            deadline = claim.options.deadline_unix_s
            if unwanted and unwanted.issuperset(task.id for task in claim.tasks):
                self._end(call, claim, AttemptResult("cancelled", Cause.CANCELLED))
            elif deadline is not None and deadline <= time.time():
                self._end(
                    call, claim, AttemptResult("failed", Cause.DEADLINE, "the deadline passed during the transfer")
                )

    def _end(
        self, call: asyncio.Task[list[tuple[TransferTask, AttemptResult]]], claim: CallBatch, verdict: AttemptResult
    ) -> None:
        self._ending.setdefault(claim.call, verdict)
        call.cancel()

    def _finalize_ended(self) -> None:
        for call in [call for call in self._calls if call.done()]:
            claim = self._calls.pop(call)
            self._queue.finalize(claim.options, self._verdicts(call, claim), time.time())

    def _verdicts(
        self, call: asyncio.Task[list[tuple[TransferTask, AttemptResult]]], claim: CallBatch
    ) -> list[tuple[TransferTask, AttemptResult]]:
        ending = self._ending.pop(claim.call, None)
        if call.cancelled():
            verdict = ending or AttemptResult("interrupted", Cause.INTERRUPTED, "the worker was stopped")
            return [(task, verdict) for task in claim.tasks]
        error = call.exception()
        if isinstance(error, BackendError):
            # An agent that died, perhaps for lack of memory, counts as a failure. Otherwise the transfer would be
            # retried forever.
            return [(task, AttemptResult("failed", Cause.OTHER, str(error))) for task in claim.tasks]
        if isinstance(error, OSError) and not isinstance(error, QueueError):
            # For example, a directory cannot be created, or a destination cannot be read.
            cause, alone = cause_of({"error": error.strerror}), len(claim.tasks) > 1
            return [
                (task, AttemptResult("failed", cause, str(error), alone=alone and cause.is_permanent))
                for task in claim.tasks
            ]
        return call.result()

    async def _give_up(self) -> None:
        """End active calls in order, and queue their transfers again."""
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls)
            self._finalize_ended()
