"""A worker: takes transfers from a queue, carries them out side by side, and writes down how they ended.

One event loop; everything that decides is in the queue. The loop wakes when a call ends, when a transfer is due again,
and twice a second, to see what others have changed: new jobs, cancelled ones, workers that died.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from venturi.backend import find_engine
from venturi.backend.stopping import stop_on_signals
from venturi.errors import BackendError
from venturi.managed.attempt import Attempt
from venturi.managed.carry import Carrier
from venturi.managed.causes import Cause, cause_of
from venturi.managed.queue import Queue, QueueError
from venturi.managed.work import Claim, Task, Verdict

__all__ = ["Tally", "Worker"]

_LOOK_S = 0.5
"""How often a worker looks at what others have changed."""


@dataclass(frozen=True, slots=True)
class Tally:
    """How a worker ended: ``stopped`` by a signal, or with nothing left that it could do."""

    worker: int
    stopped: bool
    attempts: int


class Worker:
    """Carries out jobs of a queue.

    Parameters
    ----------
    queue
        Where they are.
    jobs
        Which; none: all.
    engine
        Path of the engine; without it, it is looked for (:func:`venturi.backend.find_engine`).
    on_progress
        Called in the thread of the caller whenever something may have changed, a few times a second.

    Raises
    ------
    BackendError
        If there is no engine.
    """

    def __init__(
        self,
        queue: Queue,
        *,
        jobs: Sequence[int] = (),
        engine: Path | None = None,
        on_progress: Callable[[], None] | None = None,
    ) -> None:
        self._queue = queue
        self._jobs = tuple(jobs)
        self._engine = engine or find_engine()
        self._on_progress = on_progress or (lambda: None)
        self._calls: dict[asyncio.Task[list[tuple[Task, Verdict]]], Claim] = {}
        self._ending: dict[int, Verdict] = {}
        self._attempts = 0
        self._stop = asyncio.Event()

    def carry_out(self) -> Tally:
        """Carry out what there is until nothing is left that this worker could do, or a signal stops it.

        Also after SIGINT and SIGTERM, everything is in its place when this returns: no mover runs, and what was under way
        is queued again.
        """
        return asyncio.run(self._live())

    async def _live(self) -> Tally:
        worker, lease = self._queue.enrol(time.time())
        carrier = Carrier(self._engine, self._queue.folder / "scratch" / str(worker), lease.descriptor)
        stopping = asyncio.create_task(self._stop.wait())
        try:
            with stop_on_signals(self._stop):
                while not self._stop.is_set() and self._begin(worker, carrier):
                    await asyncio.wait(
                        {*self._calls, stopping}, timeout=self._sleep_s(), return_when=asyncio.FIRST_COMPLETED
                    )
                    self._end_cancelled(worker)
                    self._settle_ended()
                    self._on_progress()
                await self._give_up()
        finally:
            stopping.cancel()
            await self._give_up()
            self._queue.leave(worker, lease, time.time())
            carrier.remove()
        return Tally(worker, self._stop.is_set(), self._attempts)

    def _begin(self, worker: int, carrier: Carrier) -> bool:
        """Start what there is room for; return whether there is anything to wait for."""
        now_unix_s = time.time()
        self._queue.reclaim(now_unix_s)
        self._queue.expire(now_unix_s)
        for claim in self._queue.claim(worker, now_unix_s, self._jobs):
            attempt = Attempt(claim, carrier, self._queue.note_copied)
            self._calls[asyncio.create_task(attempt.carry_out())] = claim
            self._attempts += len(claim.tasks)
        return bool(self._calls) or self._queue.next_due_unix_s(self._jobs) is not None

    def _sleep_s(self) -> float:
        due_unix_s = self._queue.next_due_unix_s(self._jobs)
        wait_s = _LOOK_S if due_unix_s is None else due_unix_s - time.time()
        # What is due and was not taken waits for room, which comes with the end of a call.
        return min(wait_s, _LOOK_S) if wait_s > 0 else _LOOK_S

    def _end_cancelled(self, worker: int) -> None:
        """End the calls whose transfers have all been cancelled, or whose time is over."""
        unwanted = self._queue.wanted_stopped(worker)
        for call, claim in self._calls.items():
            deadline = claim.options.deadline_unix_s
            if unwanted and unwanted.issuperset(task.id for task in claim.tasks):
                self._end(call, claim, Verdict("cancelled", Cause.CANCELLED))
            elif deadline is not None and deadline <= time.time():
                self._end(
                    call, claim, Verdict("failed", Cause.DEADLINE, "the deadline passed while it was under way")
                )

    def _end(self, call: asyncio.Task[list[tuple[Task, Verdict]]], claim: Claim, verdict: Verdict) -> None:
        self._ending.setdefault(claim.call, verdict)
        call.cancel()

    def _settle_ended(self) -> None:
        for call in [call for call in self._calls if call.done()]:
            claim = self._calls.pop(call)
            self._queue.settle(claim.options, self._verdicts(call, claim), time.time())

    def _verdicts(self, call: asyncio.Task[list[tuple[Task, Verdict]]], claim: Claim) -> list[tuple[Task, Verdict]]:
        ending = self._ending.pop(claim.call, None)
        if call.cancelled():
            verdict = ending or Verdict("interrupted", Cause.INTERRUPTED, "its worker was stopped")
            return [(task, verdict) for task in claim.tasks]
        error = call.exception()
        if isinstance(error, BackendError):
            # An agent that died, perhaps for want of memory: counts as a try, as it would otherwise go on for ever.
            return [(task, Verdict("failed", Cause.OTHER, str(error))) for task in claim.tasks]
        if isinstance(error, OSError) and not isinstance(error, QueueError):
            # A folder that cannot be made, a destination that may not be looked at.
            cause, alone = cause_of({"error": error.strerror}), len(claim.tasks) > 1
            return [
                (task, Verdict("failed", cause, str(error), alone=alone and cause.is_permanent))
                for task in claim.tasks
            ]
        return call.result()

    async def _give_up(self) -> None:
        """End what is under way, in order, and put it back."""
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls)
            self._settle_ended()
