"""Who simulates members: processes of this machine, or a Dask cluster.

A worker of this machine is a process of its own (``python -m venturi.simulation``), with one engine at a time: one that crashes costs its
member and no other, and a script that asks for an ensemble needs no guard around its main program.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from venturi.backend.stopping import on_signals
from venturi.errors import BackendError
from venturi.simulation.member import Task, carry_out

__all__ = ["on_dask", "on_this_machine", "stopped_by_signals"]

Record = dict[str, Any]

_CONNECT_S = "10s"
_END_S = 10.0
"""A worker that is asked to end has so long to take its files away."""


def on_this_machine(tasks: Sequence[Task], workers: int) -> Generator[Record, None, None]:
    """Yield the members of tasks as they come, simulated by so many processes at once.

    Whoever leaves before the end has ended the processes.
    """
    waiting: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
    done: queue.SimpleQueue[Record] = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    crew = [_Worker(waiting, done) for _ in range(min(workers, len(tasks)))]
    try:
        for worker in crew:
            waiting.put(None)
            worker.start()
        for _ in tasks:
            yield done.get()
    finally:
        for worker in crew:
            worker.end()
        for worker in crew:
            worker.join()


class _Worker:
    """A thread that hands tasks to its process, one at a time, and starts another where that has ended."""

    def __init__(self, waiting: queue.SimpleQueue[Task | None], done: queue.SimpleQueue[Record]) -> None:
        self._thread = threading.Thread(target=self._hand_out, daemon=True)
        self._waiting = waiting
        self._done = done
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._ending = False

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def _hand_out(self) -> None:
        while not self._ending and (task := self._waiting.get()) is not None:
            try:
                self._done.put(self._ask(task))
            except Exception as error:  # whatever it is: who waits for the member must not wait for ever
                self._done.put({**task.member.as_record(), "error": f"its worker failed: {error!r}"})
        process = self._process
        if process is not None:
            # Without more to come it ends by itself.
            with suppress(OSError, ValueError, subprocess.TimeoutExpired):
                process.communicate(timeout=_END_S)

    def _ask(self, task: Task) -> Record:
        failed = task.member.as_record()
        try:
            process = self._running()
        except OSError as error:
            return {**failed, "error": f"a worker cannot be started: {error.strerror}"}
        assert process.stdin is not None and process.stdout is not None
        line = ""
        with suppress(OSError):
            process.stdin.write(json.dumps(task.as_record()) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        if line.endswith("\n"):
            member: Record = json.loads(line)
            return member
        with suppress(OSError):
            process.stdin.close()
        process.stdout.close()
        code = process.wait()
        self._process = None
        return {**failed, "error": f"expected its worker to simulate it, found that it ended with code {code}"}

    def _running(self) -> subprocess.Popen[str]:
        with self._lock:
            if self._ending:
                raise InterruptedError(0, "the ensemble is ending")
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "venturi.simulation"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    encoding="utf-8",
                    # Ctrl-C on the terminal is for the controller.
                    start_new_session=True,
                )
            return self._process

    def end(self) -> None:
        """Ask the process to end; it takes its files away."""
        with self._lock:
            self._ending = True
            if self._process is not None and self._process.poll() is None:
                self._process.terminate()

    def join(self) -> None:
        """Wait until the process has ended."""
        self._thread.join(_END_S)
        if self._process is not None and self._process.poll() is None:
            self._process.kill()


def on_dask(tasks: Sequence[Task], address: str) -> Generator[Record, None, None]:
    """Yield the members of tasks as they come, simulated on the cluster whose scheduler has this address.

    Whoever leaves before the end has called back what has not begun.

    Raises
    ------
    BackendError
        If the package is not there, or the scheduler does not answer.
    """
    try:
        import distributed
    except ImportError as error:
        raise BackendError(
            "expected the package distributed for a Dask cluster, found none; install it: pip install 'venturi[dask]'"
        ) from error
    try:
        client = distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise BackendError(
            f"--dask {address}: expected the scheduler of a cluster such as tcp://host:8786, found none: {error}"
        ) from error
    with client:
        asked = {client.submit(carry_out, task.as_record(), pure=False): task for task in tasks}
        try:
            for future in distributed.as_completed(list(asked), loop=client.loop):
                yield _outcome(future, asked[future])
        finally:
            client.cancel(list(asked))


def _outcome(future: Any, task: Task) -> Record:  # noqa: ANN401 - the package has no types
    if future.status == "finished":
        member: Record = future.result()
        return member
    reason = future.exception() if future.status == "error" else future.status
    return {**task.member.as_record(), "error": f"expected a worker of the cluster to simulate it, found: {reason}"}


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt for whatever asks this process to stop, as Ctrl-C does; only in the main thread."""

    def stop() -> None:
        raise KeyboardInterrupt

    with on_signals(stop):
        yield
