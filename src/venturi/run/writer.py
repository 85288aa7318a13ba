"""Writer of a run directory, used by backends to record results."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from venturi.errors import PlanError, RunError
from venturi.mover import movers
from venturi.mover.base import MAX_WHOLE, ToolReport
from venturi.plan import TrialRow, read_header, trials
from venturi.run import directory
from venturi.run.directory import RunInfo, RunState
from venturi.run.finding import Finding
from venturi.run.history import read_history
from venturi.run.journal import AppendFile
from venturi.run.lock import RunLock
from venturi.run.tables import seal
from venturi.run.upgrade import upgrade_run

__all__ = ["RunWriter", "TransferParser"]

TransferParser = Callable[[Mapping[str, Any], Mapping[str, Any]], ToolReport | None]
"""Returns the report of a tool for a call of the plan and the record of a transfer, or None without a report. If it
raises an error, the transfer counts as failed."""

_NO_TOOL_REPORT: Mapping[str, Any] = {
    "tool_bytes": None,
    "tool_received_bytes": None,
    "tool_retransmits": None,
    "tool_duration_s": None,
    "tool_rate_bytes_per_s": None,
    "tool_first_byte_s": None,
    "tool": None,
}


class RunWriter:
    """Exclusive writer of a run directory, from :meth:`create` or :meth:`resume` to :meth:`finish` or :meth:`close`.

    Methods that record something do not wait for the disk; a thread makes the journal durable. The class is not thread-safe,
    because only one controller uses it.

    Attributes
    ----------
    path
        The run directory.
    header
        The header of the plan, in the keys of the current version.
    epoch_unix_ns
        Time 0 of the run. Nanoseconds since 1970.
    trials
        Trials of the plan by id, in the order of the plan.
    finished
        Ids of finished trials, which are in the journal, including those of this session.
    retried
        Ids of failed trials in the journal that this session executes again.
    elapsed_s
        Time for which earlier sessions executed the plan. Seconds.
    last_end_s
        End of the last trial or transfer of earlier sessions, in seconds since the epoch.
    counts
        Counters of the plan, increased by the successful trials in the journal.
    session
        Number of this session, from 1; 0 before :meth:`start_session`.

    Examples
    --------
    >>> from pathlib import Path
    >>> import tempfile
    >>> base = Path(tempfile.mkdtemp())
    >>> from venturi.plan import Header, Host, Measure, Plan, Totals, write_plan
    >>> header = Header("nothing", 1, 1.0, {}, {"node1": Host()}, {}, {}, {}, Measure(None, ()), Totals(0, 0, 0, {}))
    >>> write_plan(Plan(header, ()), base / "plan.jsonl")
    >>> with RunWriter.create(base / "runs", base / "plan.jsonl", backend="hosts") as run:
    ...     run.start_session({"node1": {"kernel": "6.1"}})
    ...     run.finish("complete")
    >>> from venturi.run import Run
    >>> Run.open(run.path).state
    'complete'
    """

    def __init__(self, path: Path, lock: RunLock, parse: TransferParser, *, retry_failed: bool = False) -> None:
        self.path = path
        self.info = directory.read_info(path)
        self.epoch_unix_ns = self.info.created_unix_ns
        self._lock = lock
        self._parse = parse
        plan = path / directory.PLAN
        found = _sha256(plan)
        if found != self.info.plan_sha256:
            raise RunError(
                f"{plan}: expected the plan of this run (SHA-256 {self.info.plan_sha256[:16]}…), found another"
                f" ({found[:16]}…); restore the plan, or start a new run"
            )
        self.header = directory.read_plan_header(path)
        self.trials: dict[str, TrialRow] = _trials_by_id(plan)
        self._open_files()
        history = read_history(path, self.epoch_unix_ns)
        failed = (trial for trial, outcome in history.outcomes.items() if outcome != "ok")
        self.retried = frozenset(failed if retry_failed else ())
        self.finished: set[str] = set(history.outcomes) - self.retried
        self.counts: dict[str, int] = {}
        for trial, outcome in history.outcomes.items():
            self._count(trial, outcome)
        self.elapsed_s = history.elapsed_s
        self.last_end_s = history.last_end_s
        self.sessions_before = history.sessions
        self.session = 0
        self._attempts = history.attempts
        self._position = sum(history.attempts.values())
        self._sets: dict[str, tuple[tuple[str, ...], str]] = {}

    @classmethod
    def create(
        cls,
        base: Path | str,
        plan: Path | str,
        *,
        backend: str,
        parse: TransferParser | None = None,
        path: Path | None = None,
    ) -> RunWriter:
        """Create a run directory below ``base`` and copy the plan into it.

        Parameters
        ----------
        base
            Base directory of runs; created if necessary.
        plan
            The plan to execute.
        backend
            ``"hosts"``, ``"lab"`` or ``"sim"``.
        parse
            Parser of the output of tools. Default: the parsers of :mod:`venturi.mover`.
        path
            The run directory. Default: a directory below ``base``, named after the plan and the time.

        Raises
        ------
        PlanError
            If the plan cannot be read.
        RunError
            If the directory cannot be created.
        """
        plan = Path(plan)
        name = read_header(plan).name
        created_unix_ns = time.time_ns()
        home = path or directory.new_run_path(Path(base), name, created_unix_ns)
        try:
            home.mkdir(parents=True)
            shutil.copyfile(plan, home / directory.PLAN)
            _sync(home / directory.PLAN)
            info = RunInfo(name, _sha256(home / directory.PLAN), created_unix_ns, "running", backend)
            directory.write_info(home, info)  # written last, because this file makes the directory a run
        except FileExistsError as error:
            raise RunError(f"{home}: expected a new directory, found an existing one; give another name") from error
        except RunError:
            raise
        except OSError as error:
            raise RunError(
                f"{home}: cannot create the run directory: {error.strerror}. Give another directory with --runs."
            ) from error
        return cls.resume(home, parse=parse)

    @classmethod
    def resume(
        cls, path: Path | str, *, parse: TransferParser | None = None, retry_failed: bool = False
    ) -> RunWriter:
        """Open a run to continue it after the trials in its journal; ``retry_failed`` executes failed trials again.

        Raises
        ------
        RunError
            If the run does not exist, another process writes it, or its plan has changed.
        """
        home = Path(path)
        directory.read_info(home)
        lock = RunLock(home)
        try:
            upgrade_run(home)
            return cls(home, lock, parse or _tool_report, retry_failed=retry_failed)
        except BaseException:
            lock.release()
            raise

    @property
    def lock_descriptor(self) -> int:
        """Descriptor for local agents to inherit, so that the run stays locked until they have exited."""
        return self._lock.descriptor

    def remaining(self) -> Iterable[str]:
        """Yield the unfinished trials of the plan, in its order."""
        return (trial for trial in self.trials if trial not in self.finished)

    def discard_sessions(self) -> None:
        """Remove the records of earlier sessions, for a backend that executes the whole plan again.

        Raises
        ------
        RunError
            If the files cannot be removed.
        """
        self._close_files()
        try:
            for file in self._files:
                file.path.unlink(missing_ok=True)
        except OSError as error:
            raise RunError(f"{self.path}: cannot remove the records of earlier sessions: {error.strerror}") from error
        self._open_files()
        self.retried = frozenset()
        self.finished, self.counts, self.elapsed_s, self.sessions_before = set(), {}, 0.0, 0
        self._attempts, self._position, self._sets = {}, 0, {}

    def start_session(self, hosts: Mapping[str, Mapping[str, Any]]) -> None:
        """Record the start of a session: number, time, and the properties of each host, which may be nested."""
        self.session = self.sessions_before = self.sessions_before + 1
        self._set_state("running")
        content = {"number": self.session, "time_unix_ns": time.time_ns(), "elapsed_s": self.elapsed_s}
        nested = {name: dict(properties) for name, properties in hosts.items()}
        self._journal.append({"session": {**content, "backend": self.info.backend, "hosts": nested}})
        if self.retried:
            self.finding(
                Finding(
                    "failed-trials-retried",
                    f"session {self.session}",
                    f"{len(self.retried)} failed trials were run again",
                    "The tables have the last attempt of each trial. For failure rates, use all attempts in the journal.",
                )
            )

    def trial(self, record: Mapping[str, Any], host: str) -> str | None:
        """Record a finished trial and return its outcome; return None if the trial is already in the journal.

        Raises
        ------
        RunError
            If the journal cannot be written, or the trial is not of this plan.
        """
        name = str(record["trial"])
        if name in self.finished:
            return None
        row = self.trials.get(name)
        if row is None:
            raise RunError(f"{self.path}: expected a trial of the plan from {host}, found {name!r}")
        context: dict[str, Any] = {"position": self._position, "session": self.session, "host": host}
        if name in self.retried:
            context["attempt"] = self._attempts[name] + 1
        design = {"point": row.point, "repetition": row.repetition, "block": row.block, "factors": dict(row.factors)}
        content = {key: value for key, value in record.items() if key not in ("record", "transfers")}
        transfers = [self._transfer(transfer) for transfer in record.get("transfers") or ()]
        if record.get("routes"):
            content["routes"] = [{**route, "mover": self._call(route).get("mover")} for route in record["routes"]]
        if any(transfer["outcome"] != "ok" for transfer in transfers):
            content["outcome"] = "failed"
        self._journal.append({"trial": {**content, **context, **design, "transfers": transfers}})
        self.finished.add(name)
        self._position += 1
        self._count(name, str(content["outcome"]))
        return str(content["outcome"])

    def _count(self, trial: str, outcome: str) -> None:
        row = self.trials.get(trial)
        for counter, add in row.counts.items() if row is not None and outcome == "ok" else ():
            self.counts[counter] = self.counts.get(counter, 0) + add

    def transfer(self, record: Mapping[str, Any], host: str) -> None:
        """Record a transfer outside any trial."""
        context = {"session": self.session, "host": host}
        content = {key: value for key, value in record.items() if key != "record"}
        self._journal.append({"transfer": {**self._transfer(content), **context}})

    def sample(self, record: Mapping[str, Any], host: str) -> None:
        """Record the counters of a host at one time.

        Their names are written only when they change, which halves the size of the file and the time to read it.
        """
        counters: Mapping[str, float] = record["counters"]
        names = tuple(counters)
        before = self._sets.get(host)
        if before is not None and before[0] == names:
            content: dict[str, Any] = {"set": before[1], "values": list(counters.values())}
        else:
            # The name is a hash of the contents, so that a later session cannot use it for another set.
            self._sets[host] = names, hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
            content = {"set": self._sets[host][1], "counters": dict(counters)}
        self._samples.append({"host": host, "time_s": record["time_s"], **content})

    def sockets(self, record: Mapping[str, Any], host: str) -> None:
        """Record the TCP sockets of a host at one time."""
        self._sockets.append({"host": host, "time_s": record["time_s"], "sockets": record["sockets"]})

    def event(self, record: Mapping[str, Any], host: str) -> None:
        """Record an event: kind, time in seconds since the epoch, detail."""
        detail = record.get("detail")
        self._events.append({"host": host, "time_s": record["time_s"], "kind": record["kind"], "detail": detail})

    def finding(self, finding: Finding) -> None:
        """Record a finding about the run or one of its trials."""
        context = {"trial": finding.trial, "host": finding.host, "session": self.session}
        self._journal.append({"finding": {**finding.as_record(), **context}})

    def now_s(self) -> float:
        """Return the time since the epoch of the run by this machine's clock, in seconds."""
        return (time.time_ns() - self.epoch_unix_ns) / 1e9

    def flush(self) -> None:
        """Wait until all records are written and the journal is durable.

        Raises
        ------
        RunError
            If a record could not be written.
        """
        for file in self._files:
            file.flush()

    def finish(self, state: RunState, *, tables: bool = True) -> None:
        """End the session: make all files durable, set the state, create the tables if requested, release the lock.

        Raises
        ------
        RunError
            If a file could not be written. The journal has all earlier records, and the lock is released.
        """
        try:
            self._close_files()
            self._set_state(state)
            if tables:
                seal(self.path)
        finally:
            self.close()

    def close(self) -> None:
        """Close the files and release the lock without tables and without a new state; safe to call twice."""
        try:
            self._close_files()
        finally:
            self._lock.release()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except RunError:
            if error is None:
                raise

    def _open_files(self) -> None:
        self._journal = AppendFile(self.path / directory.JOURNAL, durable=True)
        self._samples = AppendFile(self.path / directory.SAMPLES, durable=False)
        self._events = AppendFile(self.path / directory.EVENTS, durable=False)
        self._sockets = AppendFile(self.path / directory.SOCKETS, durable=False)
        self._files = (self._journal, self._samples, self._events, self._sockets)

    def _close_files(self) -> None:
        failure: RunError | None = None
        for file in self._files:
            try:
                file.close()
            except RunError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _set_state(self, state: RunState) -> None:
        if state == self.info.state:
            return
        self.info = self.info.with_state(state)
        try:
            directory.write_info(self.path, self.info)
        except OSError as error:
            raise RunError(
                f"{self.path / directory.INFO}: cannot write: {error.strerror}. The journal is safe."
                " Free disk space, then resume the run."
            ) from error

    def _call(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the call of a transfer or a route."""
        return (self.header.get("calls") or {}).get(record.get("call")) or {}

    def _transfer(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return a transfer as a record of the journal, with its mover and the report of the tool."""
        call = self._call(record)
        # A simulation has no output of a tool; its record already has the known values.
        content = {**_NO_TOOL_REPORT, **record, "mover": call.get("mover")}
        if record.get("outcome") != "ok" or record.get("stdout") is None:
            return content
        try:
            content.update(_as_columns(self._parse(call, record)))
        except Exception as error:  # any error of a parser is a result about this output
            content["outcome"] = "failed"
            content["error"] = (
                f"cannot parse the output of {call.get('mover')}: {error}; the output is in this record"
            )
            return content
        return content


def _tool_report(call: Mapping[str, Any], record: Mapping[str, Any]) -> ToolReport | None:
    """Return the report from the parser of the mover; movers that a scenario declares have no parser."""
    mover = movers().get(str(call.get("mover")))
    return mover.parse(record) if mover is not None else None


def _as_columns(report: ToolReport | None) -> Mapping[str, Any]:
    """Return the report of a tool as columns of the journal.

    Raises
    ------
    ValueError
        If a number does not fit a column of a table.
    """
    if report is None:
        return _NO_TOOL_REPORT
    columns = {
        "tool_bytes": report.bytes,
        "tool_received_bytes": report.received_bytes,
        "tool_retransmits": report.retransmits,
        "tool_duration_s": report.duration_s,
        "tool_rate_bytes_per_s": report.rate_bytes_per_s,
        "tool_first_byte_s": report.first_byte_s,
        "tool": dict(report.detail) or None,
    }
    for name, value in columns.items():
        if isinstance(value, int) and abs(value) > MAX_WHOLE:
            raise ValueError(f"expected {name} below 8 EiB, found {value}")
    json.dumps(columns, allow_nan=False)
    return columns


def _trials_by_id(plan: Path) -> dict[str, TrialRow]:
    rows: dict[str, TrialRow] = {}
    for row in trials(plan):
        if row.trial in rows:
            raise PlanError(f"{plan}: expected each trial once, found {row.trial} twice; expand the scenario again")
        rows[row.trial] = row
    return rows


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise RunError(f"{path}: cannot read the plan of the run: {error.strerror}") from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
