"""One attempt: transfer the files of a call, then compare source and destination.

Threads of this process read sizes and checksums of local files. Tools query the checksums of other files. A file
without a tool for its checksum is not compared, and the reason is recorded.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from venturi.mover import OutputError, movers, resolve_options
from venturi.plan import Call
from venturi.testbed.gfal2 import PLUGIN_QUERY, packages_missing
from venturi.transfer_jobs.address import Address
from venturi.transfer_jobs.causes import Cause, cause_of
from venturi.transfer_jobs.checksum import Checksum, checksum_call, file_checksum, parse_checksum_reply
from venturi.transfer_jobs.executor import Leg, TransferExecutor
from venturi.transfer_jobs.options import NO_CHECKSUM
from venturi.transfer_jobs.task import AttemptResult, CallBatch, TransferTask

__all__ = ["Attempt"]

_QUERY_TIMEOUT_S = 600.0
"""A server reads the whole file before it returns a checksum, at about 100 MB/s or more."""

_MAX_QUERIES = 8
_MAX_QUERIES = 3
"""Maximum number of queries to a server: ``gfal-sum`` 2.21 occasionally aborts with SIGABRT for GridFTP."""

_PLUGINS_TIMEOUT_S = 30.0

_FULL_BYTES = 1 << 20
"""A file system with less free space counts as full, because some tools do not report this error."""


class Attempt:
    """One call of a mover for the tasks of a batch, and the comparison after it.

    Parameters
    ----------
    claim
        Tasks of the call.
    executor
        Executor of calls.
    note_copied
        Called after the mover and before the comparison, with the transferred tasks and their sizes. A size is None if
        unknown.
    """

    def __init__(
        self,
        claim: CallBatch,
        executor: TransferExecutor,
        note_copied: Callable[[Sequence[TransferTask], Sequence[int | None]], None],
    ) -> None:
        self._claim = claim
        self._options = claim.options
        self._executor = executor
        self._note_copied = note_copied
        self._query_permits = asyncio.Semaphore(_MAX_QUERIES)
        self._move_s: float | None = None

    async def execute(self) -> list[tuple[TransferTask, AttemptResult]]:
        """Execute the attempt, and return the result of each task.

        Raises
        ------
        BackendError
            If the agent cannot be started, or ends without a result.
        """
        tasks, verdicts = await asyncio.to_thread(self._look_at_sources)
        if tasks and not tasks[0].copied:
            failure = await self._move(tasks)
            if failure is not None:
                return verdicts + [(task, failure) for task in tasks]
            self._note_copied(tasks, [task.size_bytes for task in tasks])
        return verdicts + list(await asyncio.gather(*(self._verify(task) for task in tasks)))

    def _look_at_sources(self) -> tuple[list[TransferTask], list[tuple[TransferTask, AttemptResult]]]:
        """Return the tasks with the sizes of local sources, and the results of tasks that need no attempt."""
        good, bad = [], []
        for task in self._claim.tasks:
            if task.copied or not task.source.is_file:
                good.append(task)
                continue
            try:
                size_bytes = Path(task.source.path).stat().st_size
            except OSError as error:
                cause = cause_of({"error": error.strerror})
                bad.append((task, AttemptResult("failed", cause, f"{task.source.path}: {error.strerror}")))
                continue
            if task.size_bytes is not None and size_bytes != task.size_bytes:
                message = f"expected a source of {task.size_bytes} bytes, found {size_bytes}"
                bad.append((task, AttemptResult("failed", Cause.NOT_AS_LISTED, message)))
                continue
            good.append(dataclasses.replace(task, size_bytes=size_bytes))
        return good, bad

    # Transfer.

    async def _move(self, tasks: Sequence[TransferTask]) -> AttemptResult | None:
        """Call the mover, and return the failure, or None on success."""
        mover = movers()[self._claim.mover]
        missing = [program for program in mover.requires if shutil.which(program) is None]
        if missing:
            return AttemptResult(
                "failed", Cause.NO_TOOL, f"expected the program {missing[0]} on PATH, found none; install it"
            )
        if mover.name == "gfal-copy":
            missing_packages = await asyncio.to_thread(
                _plugins_missing, frozenset(end.scheme for end in _ends(tasks))
            )
            if missing_packages:
                message = f"expected gfal2 with plug-ins for these protocols, found none; install the Debian package {' '.join(missing_packages)}"
                return AttemptResult("failed", Cause.NO_TOOL, message)
        call = mover.call(resolve_options(mover, self._options.mover_options))
        call = dataclasses.replace(call, timeout_s=self._time_left_s(), capture=True)
        if len(tasks) == 1:
            (task,) = tasks
            record = await self._executor.execute(call, Leg(task.source, task.destination, task.size_bytes))
        else:
            scratch = self._executor.scratch()
            await asyncio.to_thread(_write_list, scratch / "list", call, tasks)
            record = await self._executor.execute(_with_list(call, scratch / "list"), Leg(), scratch)
        self._move_s = record["duration_s"]
        if record["outcome"] == "ok":
            try:
                mover.parse(record)
            except OutputError as error:
                record = {**record, "outcome": "failed", "error": str(error)}
        if record["outcome"] == "ok":
            return None
        cause = cause_of(record)
        if cause in (Cause.CORRUPT, Cause.OTHER) and any(_is_full(task.destination) for task in tasks):
            cause = Cause.NO_SPACE
        text = str(record["error"] or f"the mover ended with {record['outcome']}")
        # With several tasks, the failed one is unknown. If the failure is permanent, each task is retried in a separate call.
        return AttemptResult("failed", cause, text, self._move_s, alone=len(tasks) > 1 and cause.is_permanent)

    def _time_left_s(self) -> float:
        deadline = self._options.deadline_unix_s
        left_s = self._options.timeout_s if deadline is None else min(self._options.timeout_s, deadline - time.time())
        return max(left_s, 0.001)

    # Comparison.

    async def _verify(self, task: TransferTask) -> tuple[TransferTask, AttemptResult]:
        """Compare both endpoints of a transferred task."""
        start_s = time.monotonic()
        size_bytes = await asyncio.to_thread(_size_of, task.destination)
        if size_bytes is None and task.destination.is_file and not Path(task.destination.path).exists():
            return task, AttemptResult(
                "failed",
                Cause.CORRUPT,
                f"expected the file {task.destination.path} after the transfer, found none",
                self._move_s,
            )
        if size_bytes is None:
            size_bytes = task.size_bytes
        elif task.size_bytes is not None and size_bytes != task.size_bytes:
            cause = Cause.NO_SPACE if _is_full(task.destination) else Cause.CORRUPT
            message = f"expected a destination of {task.size_bytes} bytes, found {size_bytes}"
            return task, AttemptResult("failed", cause, message, self._move_s, time.monotonic() - start_s)
        algorithm = task.checksum.algorithm if task.checksum else self._options.verify
        if algorithm == NO_CHECKSUM:
            return task, AttemptResult("ok", None, "", self._move_s, None, size_bytes, unverified="not asked for")
        ends = await asyncio.gather(
            self._query_checksum(task.source, algorithm), self._query_checksum(task.destination, algorithm)
        )
        verify_s = time.monotonic() - start_s
        verdict = _compare(task, algorithm, *ends)
        return task, dataclasses.replace(
            verdict,
            move_s=self._move_s,
            verify_s=verify_s,
            moved_bytes=size_bytes if verdict.outcome == "ok" else None,
        )

    async def _query_checksum(self, address: Address, algorithm: str) -> Checksum | str:
        """Return the checksum of an endpoint, or the reason why it is unknown."""
        async with self._query_permits:
            if address.is_file:
                try:
                    return await asyncio.to_thread(file_checksum, Path(address.path), algorithm)
                except OSError as error:
                    return f"{address.path}: cannot read the file: {error.strerror}"
            call = checksum_call(
                address, algorithm, _QUERY_TIMEOUT_S, lambda program: shutil.which(program) is not None
            )
            if call is None:
                return f"{address.scheme}://{address.host}: no installed tool can request the {algorithm} checksum"
            for _ in range(_MAX_QUERIES):
                record = await self._executor.execute(call, Leg())
                # A checksum that was printed before the tool crashed is valid too.
                checksum = parse_checksum_reply(str(record["stdout"] or ""), algorithm)
                if checksum is not None:
                    return checksum
                if record["outcome"] == "ok" or cause_of(record).is_permanent:
                    break
        return f"{address.host}: cannot get the {algorithm} checksum: {record['error'] or 'the reply has an unknown format'}"


def _compare(
    task: TransferTask, algorithm: str, source: Checksum | str, destination: Checksum | str
) -> AttemptResult:
    """Compare the checksums of both endpoints. A text instead of a checksum is the reason why it is unknown."""
    if task.checksum is not None and isinstance(source, Checksum) and source != task.checksum:
        return AttemptResult(
            "failed", Cause.NOT_AS_LISTED, f"expected a source of {task.checksum.text}, found {source.text}"
        )
    expected = task.checksum or source
    for end in (expected, destination):
        if isinstance(end, str):
            return AttemptResult("ok", unverified=end)
    assert isinstance(expected, Checksum) and isinstance(destination, Checksum)
    if expected != destination:
        return AttemptResult(
            "failed", Cause.CORRUPT, f"expected a destination of {expected.text}, found {destination.text}"
        )
    return AttemptResult("ok", verified=algorithm)


def _ends(tasks: Sequence[TransferTask]) -> Iterator[Address]:
    for task in tasks:
        yield from (task.source, task.destination)


@functools.cache
def _plugins_missing(protocols: frozenset[str]) -> list[str]:
    """Query gfal2 once for its missing packages.

    If gfal2 is absent or does not answer, its own error message is shown later.
    """
    try:
        listed = subprocess.run(PLUGIN_QUERY, capture_output=True, text=True, timeout=_PLUGINS_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return packages_missing(listed.stdout, sorted(protocols))


def _size_of(address: Address) -> int | None:
    """Return the size of a local file. None for a device, a missing file, and a file on a server."""
    path = Path(address.path)
    return path.stat().st_size if address.is_file and path.is_file() else None


def _is_full(address: Address) -> bool:
    if not address.is_file:
        return False
    try:
        space = os.statvfs(Path(address.path).parent)
    except OSError:
        return False
    return space.f_bavail * space.f_frsize < _FULL_BYTES


def _write_list(path: Path, call: Call, tasks: Sequence[TransferTask]) -> None:
    """Write the pairs of a call in the syntax of the tool, and create the directories of local destinations."""

    def written(end: Address) -> str:
        return call.local.format(path=end.path) if end.is_file else end.text

    lines = [f"{written(task.source)} {written(task.destination)}\n" for task in tasks]
    path.write_text("".join(lines), encoding="utf-8")
    for directory in {Path(task.destination.path).parent for task in tasks if task.destination.is_file}:
        directory.mkdir(parents=True, exist_ok=True)


def _with_list(call: Call, path: Path) -> Call:
    """Return the call with this list, instead of a list that the agent would create from numbered files."""
    text = str(path).replace("{", "{{").replace("}", "}}")

    def fill(argument: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if isinstance(argument, str):
            return argument.replace("{list}", text)
        return tuple(part.replace("{list}", text) for part in argument)

    return dataclasses.replace(call, argv=tuple(fill(argument) for argument in call.argv))
