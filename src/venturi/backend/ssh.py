"""A host behind the system's ssh: what it is, the engine copied there, its clock, and the way to its agent.

The user's own ssh is called, so that its configuration holds: jump hosts, Kerberos, multiplexing, keys. Nothing is
asked interactively. Remote commands go through ``sh -c '…'`` on one line without ``'`` and ``!``, which every login
shell passes on unharmed.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass

from venturi.backend.clock import ClockOffset, RoundTrip, estimate_offset
from venturi.backend.engine import Engine
from venturi.errors import BackendError

__all__ = ["SSH_VARIABLE", "RemoteHost"]

SSH_VARIABLE = "VENTURI_SSH"
"""Environment variable with further arguments of ssh, such as ``-F config`` or ``-p 2222``."""

CACHE = "$HOME/.cache/venturi"
CLOCK_ROUNDS = 8
CONNECT_TIMEOUT_S = 30
UPLOAD_TIMEOUT_S = 600.0
COMMAND_TIMEOUT_S = 60.0

_MARK = "venturi:"
_UNREACHABLE = 255
"""Exit code of ssh when ssh itself failed, and not the command."""


@dataclass(frozen=True, slots=True)
class RemoteHost:
    """A host that is reached by ssh.

    Attributes
    ----------
    name
        Its name in the plan.
    target
        What stands in the scenario: ``user@host``, after options of ssh if need be.
    engine
        The engine to run there.
    """

    name: str
    target: str
    engine: Engine

    def command(self, script: str) -> list[str]:
        """Return the command line that runs a script of the shell on the host."""
        options = ("-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_TIMEOUT_S}",
                   "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4")  # fmt: skip
        # ssh takes the first value of an option that it meets: what the user says goes first.
        more = shlex.split(os.environ.get(SSH_VARIABLE, ""))
        return ["ssh", *more, *options, *shlex.split(self.target), f"exec sh -c '{script}'"]

    def agent_command(self, scratch: str) -> list[str]:
        """Return the command line that makes the scratch directory and runs the agent."""
        return self.command(f'mkdir -p -- "{scratch}" && exec "{self._engine_path}" agent')

    async def deploy(self) -> str:
        """Make sure that the engine is on the host; return the home directory there.

        Raises
        ------
        BackendError
            If the host cannot be reached, is of another kind than the engine, or takes no file.
        """
        system, machine, home, found = await self._probe()
        expected = self.engine.machine
        if system != "Linux" or (expected and machine != expected):
            raise BackendError(
                f"{self.name}: expected a host with Linux on {expected}, for which {self.engine.path} is built, found"
                f" {system} on {machine}; build the engine there and start the campaign from such a machine"
            )
        if found != self.engine.sha256:
            await self._upload()
            if (await self._probe())[3] != self.engine.sha256:
                raise BackendError(
                    f"{self.name}: expected the engine in {CACHE} to be as sent, found another content"
                )
        return home

    async def clock_offset(self) -> ClockOffset:
        """Estimate how far the clock there is ahead.

        ``date`` is asked, which starts fast and so bounds the offset closely; where it knows no nanoseconds, the
        agent's hello is.

        Raises
        ------
        BackendError
            If it cannot be reached, or says something else.
        """
        try:
            trips = await self._ask_clock("date +%s%N", int)
        except ValueError:
            trips = await self._ask_clock(f'"{self._engine_path}" agent < /dev/null', _hello_clock)
        return estimate_offset(trips)

    @property
    def _engine_path(self) -> str:
        return f"{CACHE}/{self.engine.remote_name}"

    async def _probe(self) -> tuple[str, str, str, str]:
        """Return system, machine, home directory, and hash of the engine there (its size where nothing can hash)."""
        path = self._engine_path
        script = (
            f'echo "{_MARK} $(uname -s) $(uname -m)"; echo "{_MARK}home $HOME"; if [ -x "{path}" ]; then'
            f' echo "{_MARK}sum $(sha256sum < "{path}" 2>/dev/null || wc -c < "{path}")"; fi'
        )
        output = await self._run(self.command(script), b"", COMMAND_TIMEOUT_S)
        lines = dict(line.split(" ", 1) for line in output.decode(errors="replace").splitlines() if _is_ours(line))
        system, _, machine = lines.get(_MARK, "nothing known").partition(" ")
        words = lines.get(f"{_MARK}sum", "").split() or [""]
        found = self.engine.sha256 if words[0] == str(self.engine.size_bytes) else words[0]
        return system, machine, lines.get(f"{_MARK}home", ""), found

    async def _upload(self) -> None:
        part, path = f"{CACHE}/.{self.engine.remote_name}.$$", self._engine_path
        # A connection that breaks looks like the end of the file: only the whole is moved into place.
        script = (
            f'umask 077; mkdir -p "{CACHE}" && cat > "{part}" && [ $(wc -c < "{part}") -eq {self.engine.size_bytes} ]'
            f' && chmod 700 "{part}" && mv -f "{part}" "{path}" || {{ rm -f "{part}"; exit 1; }}'
        )
        content = await asyncio.to_thread(self.engine.path.read_bytes)
        await self._run(self.command(script), content, UPLOAD_TIMEOUT_S)

    async def _ask_clock(self, program: str, read: Callable[[bytes], int]) -> list[RoundTrip]:
        process = await self._start(self.command(f"while read -r line; do {program}; done"))
        assert process.stdin is not None and process.stdout is not None
        trips = []
        try:
            async with asyncio.timeout(COMMAND_TIMEOUT_S):
                for _ in range(CLOCK_ROUNDS):
                    sent_ns = time.time_ns()
                    process.stdin.write(b"\n")
                    line = await process.stdout.readline()
                    received_ns = time.time_ns()
                    if not line:
                        raise BackendError(await self._explain(process, b""))
                    trips.append(RoundTrip(sent_ns, read(line), received_ns))
        except (TimeoutError, ConnectionError) as error:
            raise BackendError(
                f"{self.name}: expected {CLOCK_ROUNDS} readings of its clock, found {error!r}"
            ) from error
        finally:
            process.stdin.close()
            await _end(process)
        return trips

    async def _run(self, command: list[str], content: bytes, timeout_s: float) -> bytes:
        process = await self._start(command)
        try:
            async with asyncio.timeout(timeout_s):
                output, talk = await process.communicate(content)
        except TimeoutError as error:
            raise BackendError(f"{self.name}: expected an answer within {timeout_s:g} s, found none; try `ssh {self.target}`"
                               ) from error  # fmt: skip
        finally:
            await _end(process)
        if process.returncode != 0:
            raise BackendError(await self._explain(process, talk))
        return output

    async def _start(self, command: list[str]) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        try:
            return await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
            )
        except OSError as error:
            raise BackendError(
                f"{self.name}: cannot start ssh ({error.strerror}); install an OpenSSH client"
            ) from error

    async def _explain(self, process: asyncio.subprocess.Process, talk: bytes) -> str:
        if not talk:
            _, talk = await process.communicate()
        said = " | ".join(talk.decode(errors="replace").split("\n")[-5:]).strip(" |")
        if process.returncode == _UNREACHABLE:
            return f"{self.name}: cannot be reached: {said}; try `ssh -o BatchMode=yes {self.target}`, then resume the run"
        return f"{self.name}: expected a command to succeed there, found exit code {process.returncode}: {said}"


def _hello_clock(line: bytes) -> int:
    return int(json.loads(line)["clock"]["unix_ns"])


def _is_ours(line: str) -> bool:
    return line.startswith(_MARK) and " " in line


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a process that may have ended, and read what it left in its pipes."""
    if process.returncode is None:
        try:
            async with asyncio.timeout(1.0):
                await process.communicate()
        except TimeoutError:
            process.kill()
            await process.communicate()
