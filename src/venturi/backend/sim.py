"""Backend `sim`: execution of the plan in virtual time by one process of the engine, on a simulated testbed.

The same plan gives the same run, so nothing is resumed. A run that was stopped or killed is executed again from the
start, which takes seconds. Failed trials are repeated only on request. They start at the virtual time that the run has
reached, because the testbed can have changed by then. The run contains no values that the simulation does not model,
such as the CPU time of tools, and packets.
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

from venturi.backend.base import RunProgress, SessionOutcome
from venturi.backend.engine import find_engine
from venturi.backend.event_messages import format_failure
from venturi.backend.signals import on_signals
from venturi.cost.engine_inputs import resolve_plan_costs
from venturi.errors import BackendError
from venturi.plan import Header, read_header
from venturi.run import Finding, RunWriter
from venturi.run.directory import PLAN
from venturi.testbed.network import host_name
from venturi.units import format_duration

__all__ = ["SIMULATOR", "SimBackend", "engine_assumptions", "simulated_records"]

SIMULATOR = "sim"
"""Host name of the simulator's own records."""

PROGRESS_INTERVAL_S = 0.1

_STDERR_CHARS = 2000
_CHUNK_BYTES = 2**20


def engine_assumptions(header: Header, assumptions: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the additional input of the engine for a plan.

    It contains the costs of its calls and servers, the cores that its hosts share, and their names.

    Parameters
    ----------
    assumptions
        Values for settings that the plan does not have, instead of the engine's defaults (``docs/reference/sim.md``,
        *Line world*).
    """
    interfaces = header.network.interfaces if header.network else {}
    names: dict[str, str] = {}
    for name, interface in interfaces.items():
        names[host_name(interface.host, interface.device)] = name
        # The first interface has the name of its host.
        names.setdefault(host_name(interface.host), name)
    cores = header.cost.machine_cores if header.cost else None
    shared = {} if cores is None else {"machine_cores": cores}
    return {"costs": resolve_plan_costs(header), "names": names, **shared, **(assumptions or {})}


def simulated_records(plan: bytes, engine: Path, *, timeout_s: float | None = None) -> list[dict[str, Any]]:
    """Simulate a plan without a run directory, and return the records of the engine.

    Parameters
    ----------
    plan
        The line ``world`` with :func:`engine_assumptions`, and the lines of the plan.
    timeout_s
        Limit in real time. None: no limit.

    Raises
    ------
    BackendError
        If the engine cannot start, rejects the plan, or does not complete it.
    subprocess.TimeoutExpired
        If it takes longer than ``timeout_s``.
    """
    try:
        finished = subprocess.run(
            [str(engine), "sim", "run"], input=plan, capture_output=True, check=False, timeout=timeout_s
        )
    except OSError as error:
        raise BackendError(f"cannot start {engine}: {error.strerror}") from error
    records = [json.loads(line) for line in finished.stdout.splitlines()]
    if not any(record["record"] == "done" for record in records):
        fatal = next((str(record["message"]) for record in records if record["record"] == "fatal"), "")
        output = finished.stderr.decode(errors="replace").strip()[-_STDERR_CHARS:] or "no output"
        raise BackendError(
            f"cannot simulate: {fatal}"
            if fatal
            else f"the simulation is incomplete: {engine.name} exited with code {finished.returncode}: {output}"
        )
    return records


class SimBackend:
    """Executor of plans in virtual time.

    Parameters
    ----------
    engine
        Path of the engine. Default: search for it (:func:`find_engine`).
    assumptions
        As for :func:`engine_assumptions`.

    Raises
    ------
    BackendError
        If there is no engine.

    Examples
    --------
    >>> backend = SimBackend()  # doctest: +SKIP
    >>> with RunWriter.create("runs", "plan.jsonl", backend="sim") as run:  # doctest: +SKIP
    ...     outcome = backend.execute(run)
    """

    name = "sim"

    def __init__(self, *, engine: Path | None = None, assumptions: Mapping[str, Any] | None = None) -> None:
        self._engine = engine or find_engine()
        self._assumptions = dict(assumptions or {})

    def execute(self, run: RunWriter, *, on_progress: Callable[[RunProgress], None] | None = None) -> SessionOutcome:
        """Execute the plan of a run from the start, and end its session: see :class:`venturi.backend.Backend`."""
        try:
            engine_inputs = engine_assumptions(read_header(run.path / PLAN), self._assumptions)
            if run.retried:
                engine_inputs |= {"start_s": run.last_end_s, "skip": sorted(run.finished)}
            elif run.sessions_before:
                run.discard_sessions()
            return _EngineSession(run, self._engine, engine_inputs, on_progress).execute()
        finally:
            run.close()


class _EngineSession:
    """One process of the engine, from start to end."""

    def __init__(
        self,
        run: RunWriter,
        engine: Path,
        engine_inputs: Mapping[str, Any],
        on_progress: Callable[[RunProgress], None] | None,
    ) -> None:
        self._run = run
        self._engine = engine
        self._engine_inputs = engine_inputs
        self._on_progress = on_progress
        self._started_s = self._shown_s = time.monotonic()
        self._bytes_done = 0
        sizes = [row.bytes for row in run.trials.values()]
        self._bytes_total = None if None in sizes else sum(size or 0 for size in sizes)
        self._by_route = (run.header.get("measure") or {}).get("transfers") == "routes"
        self._transfers_total = (run.header.get("totals") or {}).get("transfers")
        self._failed = 0
        self._failure = ""
        self._done = False

    def execute(self) -> SessionOutcome:
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
                f"the simulation is incomplete: {self._engine.name} exited with code"
                f" {process.returncode}: {self._stderr}"
            )
        state: Literal["complete", "stopped"] = "complete" if self._done else "stopped"
        run.finish(state, tables=True)
        self._show(time.monotonic(), "")
        return SessionOutcome(state, len(run.finished), len(run.trials), self._failed, 0)

    def _host_properties(self) -> dict[str, dict[str, Any]]:
        """Return the properties of the simulated hosts, and the inputs of the simulation."""
        version = subprocess.run(
            [str(self._engine), "version"], capture_output=True, check=False, timeout=60.0
        ).stdout
        properties: dict[str, dict[str, Any]] = {name: {"simulated": True} for name in self._run.header["hosts"]}
        properties[SIMULATOR] = {"simulated": True, "engine": version.decode(errors="replace").strip()}
        properties[SIMULATOR]["world"] = json.dumps(
            {key: value for key, value in self._engine_inputs.items() if key != "names"}
        )
        return properties

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        stderr_parts: list[bytes] = []
        stderr = process.stderr
        threads = [
            threading.Thread(target=self._feed, args=(process.stdin,), daemon=True),
            threading.Thread(target=lambda: stderr_parts.append(stderr.read()), daemon=True),
        ]
        for thread in threads:
            thread.start()
        for line in process.stdout:
            if line.endswith(b"\n"):
                self._record(json.loads(line))
        process.wait()
        threads[1].join()
        self._stderr = b"".join(stderr_parts).decode(errors="replace").strip()[-_STDERR_CHARS:] or "no output"

    def _feed(self, stdin: IO[bytes]) -> None:
        """Write the line ``world`` and the plan. Errors are ignored, because an engine that has ended reads no more."""
        with suppress(OSError), stdin, (self._run.path / PLAN).open("rb") as plan:
            stdin.write(json.dumps({"world": self._engine_inputs}).encode() + b"\n")
            while chunk := plan.read(_CHUNK_BYTES):
                stdin.write(chunk)

    def _record(self, record: dict[str, Any]) -> None:
        run, host = self._run, str(record.pop("host"))
        if run.session == 0 and record["record"] != "fatal":
            # A plan that is rejected immediately leaves no run behind.
            run.start_session(self._host_properties())
        match record["record"]:
            case "trial":
                outcome = run.trial(record, host)
                row = run.trials[str(record["trial"])]
                self._bytes_done += row.bytes or 0
                if outcome != "ok":
                    self._failed += 1
                    self._failure = self._failure or format_failure(record)
                now_s = time.monotonic()
                # With transfers counted by route, trials end together, so their number does not show the progress.
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
        """Show the progress of virtual time, because transfers that are counted by route belong to trials that end late."""
        time_s, until_s, now_s = float(record["time_s"]), float(record["until_s"]), time.monotonic()
        remaining_s = (until_s - time_s) / time_s * (now_s - self._started_s) if 0 < time_s < until_s else None
        time_ratio = min(1.0, time_s / until_s) if self._by_route and until_s > 0 else None
        message = f"virtual time: {format_duration(time_s)}, {record['live']:,} transfers in progress"
        self._show(now_s, message, remaining_s, time_ratio, int(record["transfers"]) - int(record["live"]))

    def _show(
        self,
        now_s: float,
        message: str,
        remaining_time_s: float | None = None,
        time_fraction: float | None = None,
        transfers_done: int | None = None,
    ) -> None:
        if self._on_progress is None:
            return
        self._shown_s = now_s
        done, total, elapsed_s = len(self._run.finished), len(self._run.trials), now_s - self._started_s
        if remaining_time_s is None and done:
            remaining_time_s = elapsed_s * (total - done) / done
        self._on_progress(
            RunProgress(
                done,
                total,
                self._bytes_done,
                self._bytes_total,
                failed=self._failed,
                elapsed_s=elapsed_s,
                remaining_s=remaining_time_s,
                message=message,
                failure=self._failure,
                time_fraction=time_fraction,
                transfers_done=transfers_done,
                transfers_total=self._transfers_total,
            )
        )


@contextmanager
def _stopped_by_signals(process: subprocess.Popen[bytes]) -> Iterator[threading.Event]:
    """Kill the process on a stop signal, and set the event. Works only in the main thread."""
    stopped = threading.Event()

    def stop() -> None:
        stopped.set()
        process.kill()

    with on_signals(stop):
        yield stopped
