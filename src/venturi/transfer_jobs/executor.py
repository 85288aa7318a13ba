"""Execution of one call of a mover by a separate agent, which runs a plan with one step and returns its record.

As in every run, the agent starts, times, limits and ends the tool, and captures its output. One agent per call costs
about 7 ms, but makes calls independent: the tool ends when the agent's pipe is closed, even if the worker dies.
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
from venturi.plan import (
    Call,
    Header,
    Host,
    Measure,
    PlanService,
    Storage,
    Totals,
    TransferStep,
    emit_header,
    emit_line,
)
from venturi.plan.steps import ActorLine
from venturi.transfer_jobs.address import Address

__all__ = ["Leg", "TransferExecutor"]

_LOCAL_HOST, _REMOTE_HOST, _FILES, _SERVED = "here", "there", "files", "served"
_STOP_GRACE_S = 5.0
"""Maximum time for an agent to end, because it kills its children first."""


@dataclasses.dataclass(frozen=True, slots=True)
class Leg:
    """Endpoints of a call, and its number of bytes. An endpoint is None if the call contains it."""

    source: Address | None = None
    destination: Address | None = None
    size_bytes: int | None = None


class TransferExecutor:
    """Executor of calls.

    Parameters
    ----------
    engine
        Path of the engine.
    directory
        Directory of the agents' scratch directories, one for each call.
    lock_descriptor
        Descriptor that agents hold open while they live.
    """

    def __init__(self, engine: Path, directory: Path, lock_descriptor: int) -> None:
        self._command = ["env", "LC_ALL=C", str(engine), "agent"]
        self._directory = directory
        self._lock_descriptor = lock_descriptor
        self._count = 0

    def scratch(self) -> Path:
        """Create a scratch directory for a call, and return it. :meth:`execute` removes it."""
        self._count += 1
        path = self._directory / str(self._count)
        path.mkdir(parents=True)
        return path

    def remove(self) -> None:
        """Remove the directory of all scratch directories."""
        shutil.rmtree(self._directory, ignore_errors=True)

    async def execute(self, call: Call, leg: Leg, scratch: Path | None = None) -> Mapping[str, Any]:
        """Execute a call, and return the agent's record of it (``docs/reference/agent.md``, *A transfer*).

        On cancellation the agent is stopped first, so that the tool has ended when this raises.

        Raises
        ------
        BackendError
            If the agent cannot be started or ends without a record.
        """
        scratch = scratch or self.scratch()
        try:
            agent = await Agent.start(_LOCAL_HOST, self._command, pass_fds=[self._lock_descriptor])
            try:
                return await _exchange(agent, call, leg, scratch)
            finally:
                await asyncio.shield(_end(agent))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


async def _exchange(agent: Agent, call: Call, leg: Leg, scratch: Path) -> Mapping[str, Any]:
    source, source_via = _end_of("source", leg.source, "zero:")
    destination, destination_via = _end_of("destination", leg.destination, "null:")
    proves = leg.destination is not None and leg.destination.is_file and leg.size_bytes is not None
    call = dataclasses.replace(call, requires=(), expect="destination" if proves else "nothing")
    step = TransferStep("call", 0, source, destination, 1, leg.size_bytes or 0, True, {}, source_via, destination_via)
    start = {
        "host": _LOCAL_HOST, "scratch": str(scratch), "epoch_unix_ns": time.time_ns(), "skip": [], "search": [],
        "header": json.loads(emit_header(_header(call, leg))),
    }  # fmt: skip
    await agent.send({"command": "start", **start})
    await agent.send_line(
        b'{"command":"actor","line":' + emit_line(ActorLine("call", _LOCAL_HOST, (step,))).encode() + b"}"
    )
    await agent.send({"command": "go"})
    found: Mapping[str, Any] | None = None
    while (record := await agent.next_record()) is not None:
        match record["record"]:
            case "transfer":
                found = record
            case "fatal":
                raise BackendError(f"transfer agent: {record['message']}")
            case "done":
                break
    if found is None:
        raise BackendError(f"the transfer agent exited without a result: {agent.stderr_tail or 'no message'}")
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
    """Return an endpoint of the plan, and its service port."""
    if end is None:
        return device, None
    if end.is_file:
        return f"{_FILES}:{end.path.lstrip('/')}", None
    return f"{_SERVED}:{end.path.lstrip('/')}", f"{name}/{end.scheme}"


def _header(call: Call, leg: Leg) -> Header:
    """Return the header of a plan with all local files below ``/``.

    The service port of each server contains the leading slashes of the path in its URL.
    """
    services = {
        name: PlanService(end.scheme, _REMOTE_HOST, storages=(_SERVED,), service_ports={end.scheme: _template(end)})
        for name, end in (("source", leg.source), ("destination", leg.destination))
        if end is not None and not end.is_file
    }
    return Header(
        "transfer", 0, 1.0, {}, {_LOCAL_HOST: Host(), _REMOTE_HOST: Host()},
        {_FILES: Storage(_LOCAL_HOST, "/"), _SERVED: Storage(_REMOTE_HOST, "/")}, {}, {"call": call}, Measure(None, ()),
        Totals(0, 1, leg.size_bytes or 0, {}), services=services,
    )  # fmt: skip


def _template(end: Address) -> str:
    slashes = end.path[: len(end.path) - len(end.path.lstrip("/"))]
    return f"{end.scheme}://{end.authority}{slashes}{{relative}}"
