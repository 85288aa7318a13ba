"""One agent as the controller sees it: a process that takes commands and gives records, here or behind SSH."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from venturi.errors import BackendError

__all__ = ["Agent"]

PROTOCOL = 1

HELLO_TIMEOUT_S = 60.0
"""An ssh that has to wait for a slow login node takes its time; one that never answers must not hang the campaign."""

MAX_LINE_BYTES = 2**30
"""A trial of a million transfers is one line of this size; more than that is no record."""

TALK_TIMEOUT_S = 1.0

END_TIMEOUT_S = 5.0
"""An agent ends within milliseconds, unless one of its threads waits in the kernel for a file system that does not answer."""

_CHUNK_BYTES = 2**18
_TALK_LINES = 20


class Agent:
    """A process that speaks the agent protocol (``docs/reference/agent.md``).

    Attributes
    ----------
    host
        Name of its host in the plan.
    hello
        Its first record, once :meth:`start` has returned.
    """

    def __init__(self, host: str, process: asyncio.subprocess.Process) -> None:
        self.host = host
        self.hello: dict[str, Any] = {}
        self._process = process
        self._talk: deque[str] = deque(maxlen=_TALK_LINES)
        self._talking = asyncio.create_task(self._listen())
        self._lines: deque[bytes] = deque()
        self._torn: list[bytes] = []

    @classmethod
    async def start(cls, host: str, command: Sequence[str], *, pass_fds: Sequence[int] = ()) -> Agent:
        """Start an agent and wait for its hello.

        Parameters
        ----------
        host
            Name in the plan.
        command
            What starts it, ``ssh`` and all.
        pass_fds
            Descriptors that it inherits.

        Raises
        ------
        BackendError
            If it does not start, does not say hello in time, or speaks another version of the protocol.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=pass_fds,
                # Ctrl-C on the terminal is for the controller, which then stops the agents in order.
                start_new_session=True,
            )
        except OSError as error:
            raise BackendError(f"{host}: cannot start {command[0]}: {error.strerror}") from error
        agent = cls(host, process)
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                agent.hello = await agent._wait_for_hello()
        except TimeoutError as error:
            await agent.kill()
            raise BackendError(
                f"{host}: expected the agent's hello within {HELLO_TIMEOUT_S:g} s, found silence; is the host overloaded?"
            ) from error
        except BaseException:
            await agent.kill()
            raise
        return agent

    @property
    def pid(self) -> int:
        """PID of the process on this machine: the agent itself, or the ssh that leads to it."""
        return self._process.pid

    @property
    def talk(self) -> str:
        """The last lines of its standard error, for messages."""
        return " | ".join(self._talk)

    async def send(self, command: Mapping[str, Any]) -> None:
        """Send one command; an agent that is gone takes nothing, which its records show."""
        await self.send_line(json.dumps(command).encode())

    async def send_line(self, line: bytes) -> None:
        """Send one command that is JSON already, when there is room in the pipe."""
        with contextlib.suppress(ConnectionError):
            self._write(line)
            await self._input.drain()

    def stop(self) -> None:
        """Ask it to stop, without waiting for room in the pipe, and let it see the end of its input."""
        self._write(b'{"command":"stop"}')
        self._input.close()

    async def next_record(self) -> Mapping[str, Any] | None:
        """Return its next record, or None at its end. The torn last line of an agent that was killed is dropped.

        Raises
        ------
        BackendError
            If it sends something that is no record.
        """
        line = await self._next_line()
        if line is None:
            return None
        try:
            record: Mapping[str, Any] = json.loads(line)
            record["record"]
        except (ValueError, TypeError, KeyError) as error:
            raise BackendError(
                f"{self.host}: expected records from the agent, found {line[:80]!r}; is something else printing there?"
            ) from error
        return record

    async def wait(self) -> int:
        """Return its exit code (negative: a signal) once it has ended and its talk is read."""
        code = await self._process.wait()
        # A master connection that ssh left in the background may hold the pipe for as long as it likes.
        await asyncio.wait({self._talking}, timeout=TALK_TIMEOUT_S)
        self._talking.cancel()
        return code

    async def end(self) -> None:
        """Return when it has ended after its last word, or was killed as it did not."""
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await self.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """End it now; what it started on its host ends with it.

        A thread of it that waits for a file system whose server is gone ends with that file system alone: it is not waited for.
        """
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._input.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_TIMEOUT_S):
                await self.wait()

    @property
    def _input(self) -> asyncio.StreamWriter:
        assert self._process.stdin is not None
        return self._process.stdin

    def _write(self, line: bytes) -> None:
        if not self._input.is_closing():
            self._input.write(line + b"\n")

    async def _wait_for_hello(self) -> dict[str, Any]:
        while (line := await self._next_line()) is not None:
            # A login script may print before the agent is there.
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict) and record.get("record") == "hello":
                    return self._checked(record)
                if isinstance(record, dict) and record.get("record") == "fatal":
                    raise BackendError(f"{self.host}: {record.get('message')}")
        code = await self.wait()
        raise BackendError(f"{self.host}: expected the agent's hello, found its end (exit code {code}): {self.talk}")

    def _checked(self, hello: dict[str, Any]) -> dict[str, Any]:
        if hello.get("protocol") != PROTOCOL:
            raise BackendError(
                f"{self.host}: expected an engine of protocol {PROTOCOL}, found protocol {hello.get('protocol')}"
                f" ({hello.get('engine')}); install the engine of this Venturi"
            )
        return hello

    async def _next_line(self) -> bytes | None:
        assert self._process.stdout is not None
        while not self._lines:
            chunk = await self._process.stdout.read(_CHUNK_BYTES)
            if not chunk:
                return None
            *lines, rest = chunk.split(b"\n")
            for line in lines:
                self._lines.append(b"".join([*self._torn, line]))
                self._torn = []
            self._torn.append(rest)
            if len(self._torn) * _CHUNK_BYTES > MAX_LINE_BYTES:
                raise BackendError(
                    f"{self.host}: expected a record of at most {MAX_LINE_BYTES} bytes, found a longer one"
                )
        return self._lines.popleft()

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        rest = b""
        while chunk := await self._process.stderr.read(_CHUNK_BYTES):
            *lines, rest = (rest[-_CHUNK_BYTES:] + chunk).split(b"\n")
            self._talk.extend(text for line in lines if (text := line.decode(errors="replace").strip()))
        if rest.strip():
            self._talk.append(rest.decode(errors="replace").strip())
