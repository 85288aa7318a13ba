"""The backend `sim`: the plan in virtual time, by one process of the engine, on a testbed that is only numbers.

The same plan gives the same run, so nothing is resumed: a run that was stopped or killed is carried out again from its beginning, which
costs seconds. Only trials that failed are carried out once more where that is asked for, after the others, at the time that has come by then: the
testbed may have changed. Left out on purpose: whatever a simulation does not know (processor time of tools, packets) is absent from the run.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal

from venturi.backend.base import Outcome, Progress
from venturi.backend.engine import find_engine
from venturi.backend.stopping import on_signals
from venturi.backend.words import failure_in_words
from venturi.cost.world import costs_of
from venturi.errors import BackendError
from venturi.plan import Header, read_header
from venturi.run import Finding, RunWriter
from venturi.run.directory import PLAN
from venturi.testbed.network import host_name
from venturi.units import format_duration

__all__ = ["SIMULATOR", "SimBackend", "world_of"]

SIMULATOR = "sim"
"""The host under whose name the simulator tells of itself."""

PROGRESS_INTERVAL_S = 0.1

_TALK_CHARS = 2000
_CHUNK_BYTES = 2**20


def world_of(header: Header, assumptions: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what the engine is told beside a plan: costs of its calls and servers, the cores that its hosts share, and their names.

    Parameters
    ----------
    assumptions
        What holds where the plan is silent, in place of the engine's own (``docs/reference/sim.md``, *The line world*).
    """
    interfaces = header.network.interfaces if header.network else {}
    names: dict[str, str] = {}
    for name, interface in interfaces.items():
        names[host_name(interface.host, interface.device)] = name
        # The first interface has the name of its host.
        names.setdefault(host_name(interface.host), name)
    cores = header.cost.machine_cores if header.cost else None
    shared = {} if cores is None else {"machine_cores": cores}
    return {"costs": costs_of(header), "names": names, **shared, **(assumptions or {})}


class SimBackend:
    """Carries plans out in virtual time.

    Parameters
    ----------
    engine
        Path of the engine; without it, it is looked for (:func:`find_engine`).
    assumptions
        As of :func:`world_of`.

    Raises
    ------
    BackendError
        If there is no engine.

    Examples
    --------
    >>> backend = SimBackend()  # doctest: +SKIP
    >>> with RunWriter.create("runs", "plan.jsonl", backend="sim") as run:  # doctest: +SKIP
    ...     outcome = backend.carry_out(run)
    """

    name = "sim"

    def __init__(self, *, engine: Path | None = None, assumptions: Mapping[str, Any] | None = None) -> None:
        self._engine = engine or find_engine()
        self._assumptions = dict(assumptions or {})

    def carry_out(self, run: RunWriter, *, on_progress: Callable[[Progress], None] | None = None) -> Outcome:
        """Carry out the plan of a run from its beginning, and end its session: see :class:`venturi.backend.Backend`."""
        try:
            world = world_of(read_header(run.path / PLAN), self._assumptions)
            if run.retried:
                world |= {"start_s": run.last_end_s, "skip": sorted(run.finished)}
            elif run.sessions_before:
                run.begin_anew()
            return _Session(run, self._engine, world, on_progress).carry_out()
        finally:
            run.close()


class _Session:
    """One process of the engine, from its start to its end."""

    def __init__(
        self,
        run: RunWriter,
        engine: Path,
        world: Mapping[str, Any],
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._run = run
        self._engine = engine
        self._world = world
        self._on_progress = on_progress
        self._began_s = self._shown_s = time.monotonic()
        self._bytes_done = 0
        sizes = [row.bytes for row in run.trials.values()]
        self._bytes_total = None if None in sizes else sum(size or 0 for size in sizes)
        self._by_route = (run.header.get("measure") or {}).get("transfers") == "routes"
        self._transfers_total = (run.header.get("totals") or {}).get("transfers")
        self._failed = 0
        self._failure = ""
        self._done = False

    def carry_out(self) -> Outcome:
        run = self._run
        try:
            process = subprocess.Popen(
                [str(self._engine), "sim", "run"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Ctrl-C on the terminal is for the controller.
                start_new_session=True,
            )
        except OSError as error:
            raise BackendError(f"cannot start {self._engine}: {error.strerror}") from error
        with process, _stopped_by_signals(process) as stopped:
            try:
                self._read(process)
            except BaseException:
                process.kill()
                run.finish("stopped", tables=False)
                raise
        if not self._done and not stopped.is_set():
            run.finish("stopped", tables=False)
            raise BackendError(
                f"expected the simulation to come to its end, found that {self._engine.name} ended with code"
                f" {process.returncode}: {self._talk}"
            )
        state: Literal["complete", "stopped"] = "complete" if self._done else "stopped"
        run.finish(state, tables=True)
        self._show(time.monotonic(), "")
        return Outcome(state, len(run.finished), len(run.trials), self._failed, 0)

    def _facts(self) -> dict[str, dict[str, Any]]:
        """Return what the run says of its hosts: that they are simulated, and from which numbers."""
        told = subprocess.run([str(self._engine), "version"], capture_output=True, check=False, timeout=60.0).stdout
        facts: dict[str, dict[str, Any]] = {name: {"simulated": True} for name in self._run.header["hosts"]}
        facts[SIMULATOR] = {"simulated": True, "engine": told.decode(errors="replace").strip()}
        facts[SIMULATOR]["world"] = json.dumps({key: value for key, value in self._world.items() if key != "names"})
        return facts

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        talk: list[bytes] = []
        stderr = process.stderr
        threads = [
            threading.Thread(target=self._feed, args=(process.stdin,), daemon=True),
            threading.Thread(target=lambda: talk.append(stderr.read()), daemon=True),
        ]
        for thread in threads:
            thread.start()
        for line in process.stdout:
            if line.endswith(b"\n"):
                self._take(json.loads(line))
        process.wait()
        threads[1].join()
        self._talk = b"".join(talk).decode(errors="replace").strip()[-_TALK_CHARS:] or "it said nothing"

    def _feed(self, stdin: IO[bytes]) -> None:
        """Write the line `world` and the plan; an engine that has ended takes no more."""
        with suppress(OSError), stdin, (self._run.path / PLAN).open("rb") as plan:
            stdin.write(json.dumps({"world": self._world}).encode() + b"\n")
            while chunk := plan.read(_CHUNK_BYTES):
                stdin.write(chunk)

    def _take(self, record: dict[str, Any]) -> None:
        run, host = self._run, str(record.pop("host"))
        if run.session == 0 and record["record"] != "fatal":
            # What is refused at once leaves no run behind.
            run.begin_session(self._facts())
        match record["record"]:
            case "trial":
                outcome = run.trial(record, host)
                row = run.trials[str(record["trial"])]
                self._bytes_done += row.bytes or 0
                if outcome != "ok":
                    self._failed += 1
                    self._failure = self._failure or failure_in_words(record)
                now_s = time.monotonic()
                # Where transfers are counted by route, trials end together: how many are over tells nothing.
                if not self._by_route and now_s - self._shown_s >= PROGRESS_INTERVAL_S:
                    self._show(now_s, f"virtual time: {format_duration(float(record['end_s']))}")
            case "progress":
                self._show_progress(record)
            case "transfer":
                run.transfer(record, host)
            case "sample":
                run.sample(record, host)
            case "event":
                run.event(record, host)
            case "finding":
                run.finding(Finding.from_record(record, host=host))
            case "done":
                self._done = True
            case "fatal":
                raise BackendError(f"simulation: {record['message']}")

    def _show_progress(self, record: Mapping[str, Any]) -> None:
        """Show how far the virtual time is: transfers that are counted by route end in no trial for long."""
        time_s, until_s, now_s = float(record["time_s"]), float(record["until_s"]), time.monotonic()
        left_s = (until_s - time_s) / time_s * (now_s - self._began_s) if 0 < time_s < until_s else None
        share = min(1.0, time_s / until_s) if self._by_route and until_s > 0 else None
        message = f"virtual time: {format_duration(time_s)}, {record['live']:,} transfers under way"
        self._show(now_s, message, left_s, share, int(record["transfers"]) - int(record["live"]))

    def _show(
        self,
        now_s: float,
        message: str,
        left_s: float | None = None,
        time_share: float | None = None,
        transfers_done: int | None = None,
    ) -> None:
        if self._on_progress is None:
            return
        self._shown_s = now_s
        done, total, elapsed_s = len(self._run.finished), len(self._run.trials), now_s - self._began_s
        if left_s is None and done:
            left_s = elapsed_s * (total - done) / done
        self._on_progress(
            Progress(
                done,
                total,
                self._bytes_done,
                self._bytes_total,
                failed=self._failed,
                elapsed_s=elapsed_s,
                remaining_s=left_s,
                message=message,
                failure=self._failure,
                time_share=time_share,
                transfers_done=transfers_done,
                transfers_total=self._transfers_total,
            )
        )


@contextmanager
def _stopped_by_signals(process: subprocess.Popen[bytes]) -> Iterator[threading.Event]:
    """End the process when somebody asks this one to stop, and tell that it was so; only in the main thread."""
    stopped = threading.Event()

    def stop() -> None:
        stopped.set()
        process.kill()

    with on_signals(stop):
        yield stopped
