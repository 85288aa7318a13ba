"""Workers that simulate members: processes on this machine, or a Dask cluster.

A local worker is a separate process (``python -m venturi.simulation``) that runs one engine at a time. A crash therefore
loses only one member, and a script that uses ensembles needs no ``if __name__ == "__main__"`` guard.
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

from venturi.backend.signals import on_signals
from venturi.errors import BackendError
from venturi.simulation.member import MemberTask, execute

__all__ = ["on_dask", "on_this_machine", "stopped_by_signals"]

Record = dict[str, Any]

_CONNECT_S = "10s"
_END_S = 10.0
"""Time for a terminated worker to remove its files before it is killed."""


def on_this_machine(tasks: Sequence[MemberTask], workers: int) -> Generator[Record, None, None]:
    """Yield the members of tasks in order of completion, simulated by at most ``workers`` concurrent processes.

    Closing the generator early terminates the processes.
    """
    waiting: queue.SimpleQueue[MemberTask | None] = queue.SimpleQueue()
    done: queue.SimpleQueue[Record] = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    pool = [_Worker(waiting, done) for _ in range(min(workers, len(tasks)))]
    try:
        for worker in pool:
            waiting.put(None)
            worker.start()
        for _ in tasks:
            yield done.get()
    finally:
        for worker in pool:
            worker.end()
        for worker in pool:
            worker.join()


class _Worker:
    """Thread that sends tasks to its process, one at a time, and replaces the process if it has exited."""

    def __init__(self, waiting: queue.SimpleQueue[MemberTask | None], done: queue.SimpleQueue[Record]) -> None:
        self._thread = threading.Thread(target=self._hand_out, daemon=True)
        self._waiting = waiting
        self._done = done
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._ending = False

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _hand_out(self) -> None:
        while not self._ending and (task := self._waiting.get()) is not None:
            try:
                self._done.put(self._request(task))
            except Exception as error:  # any error: the consumer must not wait for this member forever
                self._done.put({**task.member.as_record(), "error": f"the worker failed: {error!r}"})
        process = self._process
        if process is not None:
            # The process exits when its stdin is closed.
            with suppress(OSError, ValueError, subprocess.TimeoutExpired):
                process.communicate(timeout=_END_S)

    def _request(self, task: MemberTask) -> Record:
        failed = task.member.as_record()
        try:
            process = self._running()
        except OSError as error:
            return {**failed, "error": f"cannot start a worker: {error.strerror}"}
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
        return {**failed, "error": f"expected a result from the worker, found that it exited with code {code}"}

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
        """Terminate the process, which then removes its files."""
        with self._lock:
            self._ending = True
            if self._process is not None and self._process.poll() is None:
                self._process.terminate()

    def join(self) -> None:
        """Wait until the thread has ended, and kill a process that is still running after the time limit."""
        self._thread.join(_END_S)
        if self._process is not None and self._process.poll() is None:
            self._process.kill()


def on_dask(tasks: Sequence[MemberTask], address: str) -> Generator[Record, None, None]:
    """Yield the members of tasks in order of completion, simulated on the cluster of the scheduler at ``address``.

    Closing the generator early cancels the remaining tasks.

    Raises
    ------
    BackendError
        If the package is missing, or the scheduler does not respond.
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
        submitted = {client.submit(execute, task.as_record(), pure=False): task for task in tasks}
        try:
            for future in distributed.as_completed(list(submitted), loop=client.loop):
                yield _outcome(future, submitted[future])
        finally:
            client.cancel(list(submitted))


def _outcome(future: Any, task: MemberTask) -> Record:  # noqa: ANN401 - the package has no types
    if future.status == "finished":
        member: Record = future.result()
        return member
    reason = future.exception() if future.status == "error" else future.status
    return {**task.member.as_record(), "error": f"expected a result from a worker of the cluster, found: {reason}"}


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt on every signal that stops this process, as Ctrl-C does; only in the main thread."""

    def stop() -> None:
        raise KeyboardInterrupt

    with on_signals(stop):
        yield
