"""Writing a run: what a backend does with what comes back."""

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

__all__ = ["RunWriter", "TransferParser"]

TransferParser = Callable[[Mapping[str, Any], Mapping[str, Any]], ToolReport | None]
"""Takes a call of the plan and the record of a transfer, returns what the tool says of it (None: it says nothing). What
it raises makes the transfer a failed one."""

_SAID_NOTHING: Mapping[str, Any] = {
    "tool_bytes": None,
    "tool_received_bytes": None,
    "tool_retransmits": None,
    "tool_duration_s": None,
    "tool_rate_bytes_per_s": None,
    "tool_first_byte_s": None,
    "tool": None,
}


class RunWriter:
    """The one writer of a run directory, from :meth:`create` or :meth:`resume` to :meth:`finish` or :meth:`close`.

    The methods that take records return at once; a thread makes the journal durable. Not thread-safe: one controller
    calls them.

    Attributes
    ----------
    path
        The run directory.
    header
        The header of the plan, as it stands in the file.
    epoch_unix_ns
        What all times of the run count from. Nanoseconds since 1970.
    trials
        What the plan says of each trial, by id, in its order.
    finished
        Ids of the trials that are not to be carried out any more: those in the journal, this session's included.
    retried
        Ids of the trials in the journal that this session carries out again, as they failed.
    elapsed_s
        How long earlier sessions have carried the plan out, in seconds: that much of its time is over.
    last_end_s
        When the last trial or transfer of earlier sessions ended, in seconds of the run.
    counts
        Counters of the plan, as far as good trials in the journal have raised them.
    session
        Number of this session, from 1; 0 before :meth:`begin_session`.

    Examples
    --------
    >>> from pathlib import Path
    >>> import tempfile
    >>> base = Path(tempfile.mkdtemp())
    >>> from venturi.plan import Header, Host, Measure, Plan, Totals, write_plan
    >>> header = Header("nothing", 1, 1.0, {}, {"node1": Host()}, {}, {}, {}, Measure(None, ()), Totals(0, 0, 0, {}))
    >>> write_plan(Plan(header, ()), base / "plan.jsonl")
    >>> with RunWriter.create(base / "runs", base / "plan.jsonl", backend="hosts") as run:
    ...     run.begin_session({"node1": {"kernel": "6.1"}})
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
                f" ({found[:16]}…); put the plan back, or start a new run"
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
        """Make a run directory below ``base`` for a plan, which is copied into it.

        Parameters
        ----------
        base
            Folder of runs; made if it is not there.
        plan
            The plan to carry out.
        backend
            ``"hosts"``, ``"lab"`` or ``"sim"``.
        parse
            What a tool says of its transfer; without it, ``venturi.mover`` is asked.
        path
            The run directory itself, if its name is not to be made from the plan's name and the time.

        Raises
        ------
        PlanError
            If the plan cannot be read.
        RunError
            If the directory cannot be made.
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
            directory.write_info(home, info)  # last: what makes the directory a run
        except FileExistsError as error:
            raise RunError(f"{home}: expected no such directory yet; give another name") from error
        except RunError:
            raise
        except OSError as error:
            raise RunError(
                f"{home}: the run directory cannot be made: {error.strerror}; give another folder of runs with --runs"
            ) from error
        return cls.resume(home, parse=parse)

    @classmethod
    def resume(
        cls, path: Path | str, *, parse: TransferParser | None = None, retry_failed: bool = False
    ) -> RunWriter:
        """Open a run to carry on with it; what is in its journal is done, but for failed trials that are to be carried out again.

        Raises
        ------
        RunError
            If there is no such run, another process writes it, or its plan has changed.
        """
        home = Path(path)
        directory.read_info(home)
        lock = RunLock(home)
        try:
            return cls(home, lock, parse or _tool_report, retry_failed=retry_failed)
        except BaseException:
            lock.release()
            raise

    @property
    def lock_descriptor(self) -> int:
        """Descriptor to hand to agents on this machine, so that the run stays taken until they are gone."""
        return self._lock.descriptor

    def remaining(self) -> Iterable[str]:
        """Yield the trials of the plan that are not done, in its order."""
        return (trial for trial in self.trials if trial not in self.finished)

    def begin_anew(self) -> None:
        """Forget what earlier sessions have carried out: for a backend that carries the whole plan out again.

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
            raise RunError(f"{self.path}: what is there cannot be removed: {error.strerror}") from error
        self._open_files()
        self.retried = frozenset()
        self.finished, self.counts, self.elapsed_s, self.sessions_before = set(), {}, 0.0, 0
        self._attempts, self._position, self._sets = {}, 0, {}

    def begin_session(self, hosts: Mapping[str, Mapping[str, Any]]) -> None:
        """Record a start or resume: number, time, and what is known of each host (nested as it comes)."""
        self.session = self.sessions_before = self.sessions_before + 1
        self._set_state("running")
        content = {"number": self.session, "time_unix_ns": time.time_ns(), "elapsed_s": self.elapsed_s}
        nested = {name: dict(facts) for name, facts in hosts.items()}
        self._journal.append({"session": {**content, "backend": self.info.backend, "hosts": nested}})
        if self.retried:
            self.finding(
                Finding(
                    "failed-trials-retried",
                    f"session {self.session}",
                    f"{len(self.retried)} trials that had failed were to be carried out once more",
                    "the tables hold the last attempt of each; how often transfers fail is told by all attempts, in the journal",
                )
            )

    def trial(self, record: Mapping[str, Any], host: str) -> str | None:
        """Record a finished trial; return its outcome, or None, recording nothing, for one that is there already.

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
        place: dict[str, Any] = {"position": self._position, "session": self.session, "host": host}
        if name in self.retried:
            place["attempt"] = self._attempts[name] + 1
        design = {"point": row.point, "repetition": row.repetition, "block": row.block, "factors": dict(row.factors)}
        content = {key: value for key, value in record.items() if key not in ("record", "transfers")}
        transfers = [self._transfer(transfer) for transfer in record.get("transfers") or ()]
        if record.get("routes"):
            content["routes"] = [{**route, "mover": self._call(route).get("mover")} for route in record["routes"]]
        if any(transfer["outcome"] != "ok" for transfer in transfers):
            content["outcome"] = "failed"
        self._journal.append({"trial": {**content, **place, **design, "transfers": transfers}})
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
        place = {"session": self.session, "host": host}
        content = {key: value for key, value in record.items() if key != "record"}
        self._journal.append({"transfer": {**self._transfer(content), **place}})

    def sample(self, record: Mapping[str, Any], host: str) -> None:
        """Record the counters of a host at one moment.

        Their names are written when they change, which halves the file and the time to read it.
        """
        counters: Mapping[str, float] = record["counters"]
        names = tuple(counters)
        before = self._sets.get(host)
        if before is not None and before[0] == names:
            content: dict[str, Any] = {"set": before[1], "values": list(counters.values())}
        else:
            # Called after what it holds, so that a later session cannot give the name to another set.
            self._sets[host] = names, hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
            content = {"set": self._sets[host][1], "counters": dict(counters)}
        self._samples.append({"host": host, "time_s": record["time_s"], **content})

    def sockets(self, record: Mapping[str, Any], host: str) -> None:
        """Record the TCP sockets of a host at one moment."""
        self._sockets.append({"host": host, "time_s": record["time_s"], "sockets": record["sockets"]})

    def event(self, record: Mapping[str, Any], host: str) -> None:
        """Record something that happened: kind, time in seconds since the epoch, detail."""
        detail = record.get("detail")
        self._events.append({"host": host, "time_s": record["time_s"], "kind": record["kind"], "detail": detail})

    def finding(self, finding: Finding) -> None:
        """Record what makes the run, or one trial of it, doubtful."""
        place = {"trial": finding.trial, "host": finding.host, "session": self.session}
        self._journal.append({"finding": {**finding.as_record(), **place}})

    def now_s(self) -> float:
        """Return the time since the epoch of the run by this machine's clock, in seconds."""
        return (time.time_ns() - self.epoch_unix_ns) / 1e9

    def flush(self) -> None:
        """Return when all that was recorded is on the disk, the journal durably.

        Raises
        ------
        RunError
            If something could not be written.
        """
        for file in self._files:
            file.flush()

    def finish(self, state: RunState, *, tables: bool = True) -> None:
        """End the session: everything durable, the state set, the tables made if asked, the lock given up.

        Raises
        ------
        RunError
            If something could not be written; the journal holds what it could, and the lock is given up.
        """
        try:
            self._close_files()
            self._set_state(state)
            if tables:
                seal(self.path)
        finally:
            self.close()

    def close(self) -> None:
        """Give the run up as it is, without tables and with its state as it was; safe to call twice."""
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
                f"{self.path / directory.INFO}: cannot be written: {error.strerror}; the journal is safe:"
                " make room, then resume the run"
            ) from error

    def _call(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the call of a transfer or a route."""
        return (self.header.get("calls") or {}).get(record.get("call")) or {}

    def _transfer(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return a transfer as the journal keeps it: with its mover, and what the tool said of itself."""
        call = self._call(record)
        # A simulation has no output of a tool; what it knows of one stands in the record.
        content = {**_SAID_NOTHING, **record, "mover": call.get("mover")}
        if record.get("outcome") != "ok" or record.get("stdout") is None:
            return content
        try:
            content.update(_as_columns(self._parse(call, record)))
        except Exception as error:  # whatever a parser trips over is a fact about this output, not about us
            content["outcome"] = "failed"
            content["error"] = f"the output of {call.get('mover')} could not be understood: {error}; it is kept here"
            return content
        return content


def _tool_report(call: Mapping[str, Any], record: Mapping[str, Any]) -> ToolReport | None:
    """Ask the mover of a call; a tool that a scenario describes in a few words has no parser."""
    mover = movers().get(str(call.get("mover")))
    return mover.parse(record) if mover is not None else None


def _as_columns(report: ToolReport | None) -> Mapping[str, Any]:
    """Return what a tool said, as the journal keeps it.

    Raises
    ------
    ValueError
        If a number is none that a table can hold.
    """
    if report is None:
        return _SAID_NOTHING
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
            raise PlanError(f"{plan}: expected every trial once, found {row.trial} twice; expand the scenario again")
        rows[row.trial] = row
    return rows


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise RunError(f"{path}: expected the plan of the run: {error.strerror}") from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
