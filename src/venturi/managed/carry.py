"""One call of a mover through an agent of its own: a plan of one step, carried out, its record returned.

An agent starts, times, captures, limits and ends the tool as in every run. One agent a call costs about 7 ms, and makes
a call something that can be ended alone: whoever closes its pipe ends the tool, whatever happens to the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from venturi.backend.agent import Agent
from venturi.errors import BackendError
from venturi.managed.address import Address
from venturi.plan import Call, Header, Host, Measure, Place, Service, Totals, Transfer, emit_header, emit_line
from venturi.plan.steps import ActorLine

__all__ = ["Carrier", "Leg"]

_HERE, _THERE, _FILES, _SERVED = "here", "there", "files", "served"
_STOP_GRACE_S = 5.0
"""How long an agent may take to end: it kills its children first."""


@dataclasses.dataclass(frozen=True, slots=True)
class Leg:
    """What a call is about: from where to where, and how many bytes; an end is None where the call names it itself."""

    source: Address | None = None
    destination: Address | None = None
    size_bytes: int | None = None


class Carrier:
    """Carries out calls.

    Parameters
    ----------
    engine
        The engine.
    folder
        Where agents have their scratch directories, one a call.
    lock_descriptor
        What agents hold open while they live.
    """

    def __init__(self, engine: Path, folder: Path, lock_descriptor: int) -> None:
        self._command = ["env", "LC_ALL=C", str(engine), "agent"]
        self._folder = folder
        self._lock_descriptor = lock_descriptor
        self._count = 0

    def scratch(self) -> Path:
        """Make a directory for a call and return it; :meth:`carry_out` removes it."""
        self._count += 1
        path = self._folder / str(self._count)
        path.mkdir(parents=True)
        return path

    def remove(self) -> None:
        """Remove the folder of these directories."""
        shutil.rmtree(self._folder, ignore_errors=True)

    async def carry_out(self, call: Call, leg: Leg, scratch: Path | None = None) -> Mapping[str, Any]:
        """Carry out a call and return the agent's record of it (``docs/reference/agent.md``, *A transfer*).

        When it is cancelled, the agent is stopped first, and the tool has ended when this raises.

        Raises
        ------
        BackendError
            If the agent cannot be started or ends without a record.
        """
        scratch = scratch or self.scratch()
        try:
            agent = await Agent.start(_HERE, self._command, pass_fds=[self._lock_descriptor])
            try:
                return await _talk(agent, call, leg, scratch)
            finally:
                await asyncio.shield(_end(agent))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


async def _talk(agent: Agent, call: Call, leg: Leg, scratch: Path) -> Mapping[str, Any]:
    source, source_via = _end_of("source", leg.source, "zero:")
    destination, destination_via = _end_of("destination", leg.destination, "null:")
    proves = leg.destination is not None and leg.destination.is_file and leg.size_bytes is not None
    call = dataclasses.replace(call, requires=(), expect="destination" if proves else "nothing")
    step = Transfer("call", 0, source, destination, 1, leg.size_bytes or 0, True, {}, source_via, destination_via)
    start = {
        "host": _HERE, "scratch": str(scratch), "epoch_unix_ns": time.time_ns(), "skip": [], "search": [],
        "header": json.loads(emit_header(_header(call, leg))),
    }  # fmt: skip
    await agent.send({"command": "start", **start})
    await agent.send_line(
        b'{"command":"actor","line":' + emit_line(ActorLine("call", _HERE, (step,))).encode() + b"}"
    )
    await agent.send({"command": "go"})
    found: Mapping[str, Any] | None = None
    while (record := await agent.next_record()) is not None:
        match record["record"]:
            case "transfer":
                found = record
            case "fatal":
                raise BackendError(f"the agent of a transfer: {record['message']}")
            case "done":
                break
    if found is None:
        raise BackendError(
            f"expected the agent of a transfer to tell how it went, found its end: {agent.talk or 'no word'}"
        )
    return {**found, "mover": call.mover}


async def _end(agent: Agent) -> None:
    agent.stop()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_STOP_GRACE_S):
            while await agent.next_record() is not None:
                pass
            await agent.wait()
            return
    await agent.kill()


def _end_of(name: str, end: Address | None, device: str) -> tuple[str, str | None]:
    """Return an endpoint of the plan, and the way to it."""
    if end is None:
        return device, None
    if end.is_file:
        return f"{_FILES}:{end.path.lstrip('/')}", None
    return f"{_SERVED}:{end.path.lstrip('/')}", f"{name}/{end.scheme}"


def _header(call: Call, leg: Leg) -> Header:
    """Return a plan in which files of this host lie below ``/``, and each server has a door with the slashes of its URL."""
    services = {
        name: Service(end.scheme, _THERE, places=(_SERVED,), doors={end.scheme: _template(end)})
        for name, end in (("source", leg.source), ("destination", leg.destination))
        if end is not None and not end.is_file
    }
    return Header(
        "transfer", 0, 1.0, {}, {_HERE: Host(), _THERE: Host()},
        {_FILES: Place(_HERE, "/"), _SERVED: Place(_THERE, "/")}, {}, {"call": call}, Measure(None, ()),
        Totals(0, 1, leg.size_bytes or 0, {}), services=services,
    )  # fmt: skip


def _template(end: Address) -> str:
    slashes = end.path[: len(end.path) - len(end.path.lstrip("/"))]
    return f"{end.scheme}://{end.authority}{slashes}{{relative}}"
