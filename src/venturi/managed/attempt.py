"""One attempt: move what a call is to move, then compare source and destination.

Sizes and checksums of files of this host are read here, on threads; those of others are asked for by a tool. What no tool
can tell is not compared, and said to be so.
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

from venturi.managed.address import Address
from venturi.managed.carry import Carrier, Leg
from venturi.managed.causes import Cause, cause_of
from venturi.managed.checksum import Checksum, checksum_call, file_checksum, told_checksum
from venturi.managed.options import NO_CHECKSUM
from venturi.managed.work import Claim, Task, Verdict
from venturi.mover import OutputError, movers, resolve_options
from venturi.plan import Call
from venturi.testbed.gfal2 import ASK, packages_missing

__all__ = ["Attempt"]

_ASKING_TIMEOUT_S = 600.0
"""A server reads the whole file before it tells a checksum, at some 100 MB/s at least."""

_ASKED_AT_A_TIME = 8
_ASKINGS = 3
"""How often a server is asked: ``gfal-sum`` 2.21 now and then ends with SIGABRT for GridFTP."""

_PLUGINS_TIMEOUT_S = 30.0

_FULL_BYTES = 1 << 20
"""A file system with less room than this is full: it is what some tools do not tell."""


class Attempt:
    """One call of a mover for the tasks of a claim, and what comes after it.

    Parameters
    ----------
    claim
        What is to be moved.
    carrier
        Who carries calls out.
    note_copied
        Told of the tasks that the mover has moved, with their sizes as far as they are known, before they are compared.
    """

    def __init__(
        self, claim: Claim, carrier: Carrier, note_copied: Callable[[Sequence[Task], Sequence[int | None]], None]
    ) -> None:
        self._claim = claim
        self._options = claim.options
        self._carrier = carrier
        self._note_copied = note_copied
        self._asking = asyncio.Semaphore(_ASKED_AT_A_TIME)
        self._move_s: float | None = None

    async def carry_out(self) -> list[tuple[Task, Verdict]]:
        """Return how it ended, for each task.

        Raises
        ------
        BackendError
            If there is no agent to carry it out.
        """
        tasks, verdicts = await asyncio.to_thread(self._look_at_sources)
        if tasks and not tasks[0].copied:
            failure = await self._move(tasks)
            if failure is not None:
                return verdicts + [(task, failure) for task in tasks]
            self._note_copied(tasks, [task.size_bytes for task in tasks])
        return verdicts + list(await asyncio.gather(*(self._judge(task) for task in tasks)))

    def _look_at_sources(self) -> tuple[list[Task], list[tuple[Task, Verdict]]]:
        """Find the sizes of local sources, and what need not be tried."""
        good, bad = [], []
        for task in self._claim.tasks:
            if task.copied or not task.source.is_file:
                good.append(task)
                continue
            try:
                size_bytes = Path(task.source.path).stat().st_size
            except OSError as error:
                cause = cause_of({"error": error.strerror})
                bad.append((task, Verdict("failed", cause, f"{task.source.path}: {error.strerror}")))
                continue
            if task.size_bytes is not None and size_bytes != task.size_bytes:
                what = f"expected a source of {task.size_bytes} bytes, found {size_bytes}"
                bad.append((task, Verdict("failed", Cause.NOT_AS_LISTED, what)))
                continue
            good.append(dataclasses.replace(task, size_bytes=size_bytes))
        return good, bad

    # Moving.

    async def _move(self, tasks: Sequence[Task]) -> Verdict | None:
        """Call the mover; return why it failed, None if it did not."""
        mover = movers()[self._claim.mover]
        missing = [program for program in mover.requires if shutil.which(program) is None]
        if missing:
            return Verdict(
                "failed", Cause.NO_TOOL, f"expected the program {missing[0]} on PATH, found none; install it"
            )
        if mover.name == "gfal-copy":
            lacking = await asyncio.to_thread(_plugins_missing, frozenset(end.scheme for end in _ends(tasks)))
            if lacking:
                what = f"expected gfal2 with the plug-ins of its protocols, found it without; install the Debian package {' '.join(lacking)}"
                return Verdict("failed", Cause.NO_TOOL, what)
        call = mover.call(resolve_options(mover, self._options.mover_options))
        call = dataclasses.replace(call, timeout_s=self._time_left_s(), capture=True)
        if len(tasks) == 1:
            (task,) = tasks
            record = await self._carrier.carry_out(call, Leg(task.source, task.destination, task.size_bytes))
        else:
            scratch = self._carrier.scratch()
            await asyncio.to_thread(_write_list, scratch / "list", call, tasks)
            record = await self._carrier.carry_out(_with_list(call, scratch / "list"), Leg(), scratch)
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
        text = str(record["error"] or f"it ended with {record['outcome']}")
        # Of several, nobody can tell which one it was: if it is permanent, each is tried alone.
        return Verdict("failed", cause, text, self._move_s, alone=len(tasks) > 1 and cause.is_permanent)

    def _time_left_s(self) -> float:
        deadline = self._options.deadline_unix_s
        left_s = self._options.timeout_s if deadline is None else min(self._options.timeout_s, deadline - time.time())
        return max(left_s, 0.001)

    # Comparing.

    async def _judge(self, task: Task) -> tuple[Task, Verdict]:
        """Compare both ends of a task that has been moved."""
        start_s = time.monotonic()
        size_bytes = await asyncio.to_thread(_size_of, task.destination)
        if size_bytes is None and task.destination.is_file and not Path(task.destination.path).exists():
            return task, Verdict(
                "failed", Cause.CORRUPT, f"expected {task.destination.path}, found nothing there", self._move_s
            )
        if size_bytes is None:
            size_bytes = task.size_bytes
        elif task.size_bytes is not None and size_bytes != task.size_bytes:
            cause = Cause.NO_SPACE if _is_full(task.destination) else Cause.CORRUPT
            what = f"expected a destination of {task.size_bytes} bytes, found {size_bytes}"
            return task, Verdict("failed", cause, what, self._move_s, time.monotonic() - start_s)
        algorithm = task.checksum.algorithm if task.checksum else self._options.verify
        if algorithm == NO_CHECKSUM:
            return task, Verdict("ok", None, "", self._move_s, None, size_bytes, unverified="not asked for")
        ends = await asyncio.gather(self._ask(task.source, algorithm), self._ask(task.destination, algorithm))
        verify_s = time.monotonic() - start_s
        verdict = _compare(task, algorithm, *ends)
        return task, dataclasses.replace(
            verdict,
            move_s=self._move_s,
            verify_s=verify_s,
            moved_bytes=size_bytes if verdict.outcome == "ok" else None,
        )

    async def _ask(self, address: Address, algorithm: str) -> Checksum | str:
        """Return the checksum of an end, or why there is none."""
        async with self._asking:
            if address.is_file:
                try:
                    return await asyncio.to_thread(file_checksum, Path(address.path), algorithm)
                except OSError as error:
                    return f"{address.path} cannot be read: {error.strerror}"
            call = checksum_call(
                address, algorithm, _ASKING_TIMEOUT_S, lambda program: shutil.which(program) is not None
            )
            if call is None:
                return f"no tool here asks {address.scheme}://{address.host} for an {algorithm} checksum"
            for _ in range(_ASKINGS):
                record = await self._carrier.carry_out(call, Leg())
                # What was told before the tool fell over in its last moment counts too.
                told = told_checksum(str(record["stdout"] or ""), algorithm)
                if told is not None:
                    return told
                if record["outcome"] == "ok" or cause_of(record).is_permanent:
                    break
        return (
            f"{address.host} told no {algorithm} checksum: {record['error'] or 'the answer is not of the known form'}"
        )


def _compare(task: Task, algorithm: str, source: Checksum | str, destination: Checksum | str) -> Verdict:
    """Return what checksums of both ends, or the reasons why there are none, come to."""
    if task.checksum is not None and isinstance(source, Checksum) and source != task.checksum:
        return Verdict(
            "failed", Cause.NOT_AS_LISTED, f"expected a source of {task.checksum.text}, found {source.text}"
        )
    expected = task.checksum or source
    for end in (expected, destination):
        if isinstance(end, str):
            return Verdict("ok", unverified=end)
    assert isinstance(expected, Checksum) and isinstance(destination, Checksum)
    if expected != destination:
        return Verdict(
            "failed", Cause.CORRUPT, f"expected a destination of {expected.text}, found {destination.text}"
        )
    return Verdict("ok", verified=algorithm)


def _ends(tasks: Sequence[Task]) -> Iterator[Address]:
    for task in tasks:
        yield from (task.source, task.destination)


@functools.cache
def _plugins_missing(protocols: frozenset[str]) -> list[str]:
    """Ask gfal2 once which packages it lacks; where it is not there or does not answer, its own words are to tell."""
    try:
        asked = subprocess.run(ASK, capture_output=True, text=True, timeout=_PLUGINS_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return packages_missing(asked.stdout, sorted(protocols))


def _size_of(address: Address) -> int | None:
    """Return the size of a local file, None of one that is not there, of a device, and behind a server."""
    path = Path(address.path)
    return path.stat().st_size if address.is_file and path.is_file() else None


def _is_full(address: Address) -> bool:
    if not address.is_file:
        return False
    try:
        room = os.statvfs(Path(address.path).parent)
    except OSError:
        return False
    return room.f_bavail * room.f_frsize < _FULL_BYTES


def _write_list(path: Path, call: Call, tasks: Sequence[Task]) -> None:
    """Write the pairs of a call as the tool takes them, and make the folders of local destinations."""

    def written(end: Address) -> str:
        return call.local.format(path=end.path) if end.is_file else end.text

    lines = [f"{written(task.source)} {written(task.destination)}\n" for task in tasks]
    path.write_text("".join(lines), encoding="utf-8")
    for folder in {Path(task.destination.path).parent for task in tasks if task.destination.is_file}:
        folder.mkdir(parents=True, exist_ok=True)


def _with_list(call: Call, path: Path) -> Call:
    """Return the call with a list of its own in place of one that the agent would make of numbered files."""
    text = str(path).replace("{", "{{").replace("}", "}}")

    def fill(argument: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if isinstance(argument, str):
            return argument.replace("{list}", text)
        return tuple(part.replace("{list}", text) for part in argument)

    return dataclasses.replace(call, argv=tuple(fill(argument) for argument in call.argv))
