"""An agent from the controller's view: a process that takes commands and returns records, on this machine or behind SSH."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from venturi.errors import AgentExitedError, BackendError

__all__ = ["Agent", "ScratchInUseError"]

PROTOCOL = 1

HELLO_TIMEOUT_S = 60.0
"""An ssh can wait long for a slow login node, but an unresponsive ssh must not block the run."""

MAX_LINE_BYTES = 2**30
"""A trial with a million transfers is one line of this size. A longer line is not a record."""

STDERR_TIMEOUT_S = 1.0

END_TIMEOUT_S = 5.0
"""An agent ends within milliseconds, unless one of its threads waits in the kernel for an unresponsive file system."""

_CHUNK_BYTES = 2**18
_STDERR_LINES = 20


class ScratchInUseError(BackendError):
    """Scratch directory that another agent has locked."""


class Agent:
    """A process that speaks the agent protocol (``docs/reference/agent.md``).

    Attributes
    ----------
    host
        Name of its host in the plan.
    hello
        Its first record, after :meth:`start`.
    """

    def __init__(self, host: str, process: asyncio.subprocess.Process) -> None:
        self.host = host
        self.hello: dict[str, Any] = {}
        self._process = process
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._stderr_task = asyncio.create_task(self._read_stderr())
        self._lines: deque[bytes] = deque()
        self._torn: list[bytes] = []

    @classmethod
    async def start(
        cls,
        host: str,
        command: Sequence[str],
        *,
        pass_fds: Sequence[int] = (),
        first_line: Awaitable[bytes] | None = None,
    ) -> Agent:
        """Start an agent and wait for its hello.

        Parameters
        ----------
        host
            Name in the plan.
        command
            Command line that starts the agent, including ``ssh``.
        pass_fds
            Descriptors that the agent inherits.
        first_line
            Line for the command before the protocol starts. The connection is made while this is awaited.

        Raises
        ------
        BackendError
            If the agent does not start, does not send its hello in time, or has another protocol version.
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
            if first_line is not None:
                await agent.send_line(await first_line)
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                agent.hello = await agent._wait_for_hello()
        except TimeoutError as error:
            await agent.kill()
            raise BackendError(
                f"{host}: expected the agent's first record within {HELLO_TIMEOUT_S:g} s, found none. Check the load of the host."
            ) from error
        except BaseException:
            await agent.kill()
            raise
        return agent

    @property
    def pid(self) -> int:
        """PID of the process on this machine: the agent itself, or its ssh."""
        return self._process.pid

    @property
    def stderr_tail(self) -> str:
        """The last lines of standard error, for messages."""
        return " | ".join(self._stderr)

    async def send(self, command: Mapping[str, Any]) -> None:
        """Send one command. A command to an agent that has ended is ignored; its records show the end."""
        await self.send_line(json.dumps(command).encode())

    async def send_line(self, line: bytes) -> None:
        """Send one command that is already JSON, and wait until the pipe accepts it."""
        with contextlib.suppress(ConnectionError):
            self._write(line)
            await self._input.drain()

    def beat(self) -> None:
        """Send a heartbeat of the controller, unless earlier commands still wait for the pipe."""
        if self._input.transport.get_write_buffer_size() == 0:
            self._write(b'{"command":"heartbeat"}')

    def stop(self) -> None:
        """Request a stop without waiting for the pipe, and close the agent's input."""
        self._write(b'{"command":"stop"}')
        self._input.close()

    async def next_record(self) -> Mapping[str, Any] | None:
        """Return the next record, or None at the end. The incomplete last line of a killed agent is dropped.

        Raises
        ------
        BackendError
            If the agent sends a line that is not a record.
        """
        line = await self._next_line()
        if line is None:
            return None
        try:
            record: Mapping[str, Any] = json.loads(line)
            record["record"]
        except (ValueError, TypeError, KeyError) as error:
            raise BackendError(
                f"{self.host}: expected records from the agent, found {line[:80]!r}. Remove other output from its standard output."
            ) from error
        return record

    async def wait(self) -> int:
        """Return the exit code (negative: a signal), after the agent has ended and its standard error was read."""
        code = await self._process.wait()
        # A master connection that ssh left in the background can hold the pipe for any time.
        await asyncio.wait({self._stderr_task}, timeout=STDERR_TIMEOUT_S)
        self._stderr_task.cancel()
        return code

    async def end(self) -> None:
        """Wait until the agent has ended after its last record, or kill it after a timeout."""
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await self.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """Kill the agent. The processes that it started on its host end with it.

        A thread that waits for an unresponsive file system does not end, so this does not wait for it.
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
            # A login script can print before the agent starts.
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict) and record.get("record") == "hello":
                    return self._checked(record)
                if isinstance(record, dict) and record.get("record") == "fatal":
                    raise BackendError(f"{self.host}: {record.get('message')}")
        code = await self.wait()
        raise AgentExitedError(
            f"{self.host}: the agent exited before its first record (exit code {code}): {self.stderr_tail}. Check its log on the host."
        )

    def _checked(self, hello: dict[str, Any]) -> dict[str, Any]:
        if hello.get("protocol") != PROTOCOL:
            raise BackendError(
                f"{self.host}: expected an engine of protocol {PROTOCOL}, found protocol {hello.get('protocol')}"
                f" ({hello.get('engine')}); install the engine of this Venturi version"
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
                    f"{self.host}: expected a record of at most {MAX_LINE_BYTES} bytes from the agent, found a longer record. Make the trial smaller."
                )
        return self._lines.popleft()

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        rest = b""
        while chunk := await self._process.stderr.read(_CHUNK_BYTES):
            *lines, rest = (rest[-_CHUNK_BYTES:] + chunk).split(b"\n")
            self._stderr.extend(text for line in lines if (text := line.decode(errors="replace").strip()))
        if rest.strip():
            self._stderr.append(rest.decode(errors="replace").strip())
