"""One session of a run: start the agents, send them the plan, record their results, and end in order.

Decisions are synchronous and short, and the event loop only waits. One task for each host reads the records of its
agent, and restarts an agent that exited. Another task replaces lost host shells, starts the services there again, and
repeats the trials that needed them. Timeouts and limits have names at the top.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeVar

from venturi.backend.agent import Agent, ScratchInUseError
from venturi.backend.agent_site import HostGroup
from venturi.backend.base import RunProgress, SessionOutcome
from venturi.backend.checks import (
    check_free_space,
    check_tools,
    clock_findings,
    clock_warning,
    drift_finding,
    missing_findings,
)
from venturi.backend.clock import ClockOffset
from venturi.backend.connection import SILENCE_S
from venturi.backend.ended_services import EndedServices
from venturi.backend.event_messages import format_event
from venturi.backend.file_operations import FileOperations
from venturi.backend.host_state import EarlyAgent, HostState
from venturi.backend.listed_files import ListedFiles
from venturi.backend.meter import ProgressMeter
from venturi.backend.plan_usage import actor_lines, users_of
from venturi.backend.remote_shell import RemoteHostShell
from venturi.backend.shell_client import COMMAND_TIMEOUT_S, HEARTBEAT_INTERVAL_S, SILENT, ShellLostError
from venturi.backend.signals import stop_on_signals
from venturi.errors import AgentExitedError, BackendError, RunError
from venturi.mover.globus_url_copy import with_ipv6
from venturi.plan import read_header
from venturi.run import Finding, RunWriter
from venturi.run.directory import PLAN

__all__ = ["MAX_RESTARTS_WITHOUT_PROGRESS", "RunController"]

MAX_RESTARTS_WITHOUT_PROGRESS = 3
"""Limit of consecutive restarts of an agent, and of replacements of lost shells, without a finished trial.

Then the session fails.
"""

RESTART_DELAYS_S = (0.0, 1.0, 4.0)
"""Delay before each of these restarts: none after a crash, longer for a connection that can come back."""

READY_TIMEOUT_S = 600.0
"""An agent can search for tools and free space on a slow shared file system."""

STOP_GRACE_S = 15.0
"""Limit for agents to end after `stop`. Movers get SIGTERM, and SIGKILL 2 s later."""

SCRATCH_WAIT_S = SILENCE_S + 10.0
"""Limit of the wait for the lock of the scratch directory.

An agent on a silent connection holds it until its silence limit.
"""

SCRATCH_PAUSE_S = 1.0

CLOCK_INTERVAL_S = 600.0
CLOCK_TIMEOUT_S = 10.0
"""Limit of later readings of a clock, because a silent host must not delay the end."""

LOSS_PAUSE_S = 0.3
"""Time window in seconds. Losses of several shells in it are handled together."""

PROGRESS_INTERVAL_S = 0.1

_T = TypeVar("_T")
_CALL = re.compile(rb'"call":\s*"((?:[^"\\]|\\.)*)"')


class RunController:
    """One session of a run.

    Parameters
    ----------
    run
        The new or resumed run.
    hosts
        The hosts of the plan.
    search
        Directories that agents search for tools.
    on_progress
        Called with the progress.
    """

    def __init__(
        self,
        run: RunWriter,
        hosts: HostGroup,
        search: Sequence[str],
        on_progress: Callable[[RunProgress], None] | None,
    ) -> None:
        self._run = run
        self._hosts = hosts
        self._search = list(search)
        self._on_progress = on_progress
        self._source = hosts.source
        self._affected: dict[str, set[str]] = {}
        self._lost: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._replies: set[asyncio.Task[None]] = set()
        self._ended = EndedServices()
        self._files = FileOperations(run, self._shell)
        self._listed = ListedFiles()
        self._error = ""
        self._losses_in_a_row = 0
        self._recovered = asyncio.Event()
        self._recovered.set()
        self._meter = ProgressMeter(run, time.monotonic())
        self._host_states: list[HostState] = []
        self._stopping = False
        self._stop = asyncio.Event()
        self._skip_tables = False
        self._shown_s = 0.0

    async def execute(self) -> SessionOutcome:
        """Execute the remaining trials: see :class:`venturi.backend.Backend`."""
        with stop_on_signals(self._stop):
            try:
                work = asyncio.create_task(self._work())
                stop_requested = asyncio.create_task(self._stop.wait())
                await asyncio.wait({work, stop_requested}, return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    await self._stop_agents(work)
                stop_requested.cancel()
                if not work.cancelled():
                    work.result()
                if self._error:
                    raise BackendError(self._error)
                return await self._end()
            except BaseException:
                await self._kill_agents()
                with suppress(BackendError, RunError):
                    await self._remove_created()
                await self._end_source()
                with suppress(OSError):
                    self._run.finish("stopped")
                raise

    async def _work(self) -> None:
        names = list(self._run.header["hosts"])
        self._report(f"preparing {', '.join(names)}")
        loop = asyncio.get_running_loop()
        self._hosts.on_lost(lambda host, reason: _call_soon(loop, self._lost.put_nowait, (host, reason)))
        early = {
            name: EarlyAgent(name, command, loop.create_future())
            for name, command in self._hosts.early_commands().items()
        }
        try:
            sites = await asyncio.to_thread(self._hosts.bring_up, self._on_step())
        except BaseException:
            for agent in early.values():
                await agent.cancel()
            raise
        self._host_states = [HostState(site) for site in sites]
        for host_state in self._host_states:
            host_state.early = early.get(host_state.name)
        self._find_dependencies()
        self._files.open()
        # The silence limit of an agent counts from its start, and some agents are ready long before others.
        beats = asyncio.create_task(self._send_heartbeats())
        try:
            await self._execute_plan()
        finally:
            beats.cancel()

    async def _execute_plan(self) -> None:
        # Over a long path, round trips take most of the time: independent steps run at the same time.
        await _all([asyncio.to_thread(self._hosts.start_services, self._on_step()), self._prepare_agents()])
        self._start_session()
        await _all(self._send_go(host_state) for host_state in self._host_states)
        if self._source is not None:
            self._source.start_clock(self._run.elapsed_s)
        await self._read_agents()

    async def _prepare_agents(self) -> None:
        """Start all agents and distribute the plan."""
        checks = [asyncio.to_thread(self._hosts.check), asyncio.to_thread(self._files.check_access)]
        await _all([*checks, *(self._connect(host_state) for host_state in self._host_states)])
        self._listed = await asyncio.to_thread(
            ListedFiles.of_run,
            self._run.path,
            read_header(self._run.path / PLAN),
            {host_state.name: host_state.site.scratch for host_state in self._host_states},
            self._files.client,
        )
        await _all(self._hand_out(host_state) for host_state in self._host_states)

    def _on_step(self) -> Callable[[str], None]:
        """Return a function that reports a message, from any thread."""
        loop = asyncio.get_running_loop()
        return lambda step: _call_soon(loop, self._report, step)

    def _find_dependencies(self) -> None:
        """Find the hosts whose trials cannot continue without the shell of a host."""
        usage = self._hosts.usage
        if not usage:
            return
        header = read_header(self._run.path / PLAN)
        started = set(self._hosts.services())
        clients = {name for name, used in usage.items() if used.services & started}
        for host_state in self._host_states:
            # All services start again with new ports, because they know each other's ports.
            self._affected[host_state.name] = users_of(host_state.name, usage, header) | clients

    async def _read_agents(self) -> None:
        """Read all agents until their parts are done. Also read clocks and replace lost shells."""

        async def read_all() -> None:
            await _all(self._read_agent(host_state) for host_state in self._host_states)
            # A host without dependent agents can be last: its services are started again before they are stopped.
            await self._recovered.wait()

        # Only the first step ends without an error.
        steps = (read_all(), self._read_clocks(), self._replace_shells())
        tasks = [asyncio.create_task(step) for step in steps]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _start_session(self) -> None:
        """Check free space, clocks and tools, and record the properties of the hosts, before the first transfer."""
        check_free_space(
            self._run, {host_state.name: host_state.ready for host_state in self._host_states}, self._local_scratch()
        )
        check_tools(
            {host_state.name: host_state.ready.get("missing") or {} for host_state in self._host_states},
            {host_state.name: host_state.calls for host_state in self._host_states},
        )
        properties = {host_state.name: _host_properties(host_state) for host_state in self._host_states}
        for name, more in (self._source.properties() if self._source is not None else {}).items():
            properties[name] = {**properties.get(name, {}), **more}
        self._run.start_session(properties)
        self._listen_to_source()
        for finding in self._hosts.findings():
            self._run.finding(finding)
        for host_state in self._host_states:
            if (warning := clock_warning(host_state.name, host_state.clock)) is not None:
                self._report(warning)
            for finding in (
                *clock_findings(host_state.name, host_state.clock, single_host=len(self._host_states) == 1),
                *missing_findings(host_state.name, host_state.ready.get("missing") or {}, host_state.calls),
            ):
                self._run.finding(finding)
                if finding.code == "missing-tool":
                    self._report(
                        f"{finding.subject} is not on {host_state.name}: its transfers are recorded as missing; the run continues"
                    )

    def _local_scratch(self) -> dict[str, str]:
        return {
            host_state.name: host_state.site.local_scratch
            for host_state in self._host_states
            if host_state.site.local_scratch is not None
        }

    async def _connect(self, host_state: HostState) -> None:
        """Start the agent of a host, and read its clock."""
        host_state.started = host_state.idle = host_state.discarding = False

        async def start() -> None:
            early, host_state.early = host_state.early, None
            agent = await early.start(host_state.site.early_line) if early is not None else None
            host_state.agent = agent or await host_state.site.start_agent()

        async def read_clock() -> None:
            host_state.set_clock(await self._clock(host_state, COMMAND_TIMEOUT_S))

        await _all([start(), read_clock()])

    async def _hand_out(self, host_state: HostState) -> None:
        """Send its part of the plan to the agent of a host, and wait for `ready`."""
        agent = host_state.agent
        assert agent is not None
        offset_ns = host_state.clock.offset_ns if host_state.clock else 0
        start = {
            "host": host_state.name,
            "scratch": host_state.site.scratch,
            # The epoch by the clock of that host, so that the times of all hosts are on the time axis of this machine.
            "epoch_unix_ns": self._run.epoch_unix_ns + offset_ns,
            "header": self._header_of(host_state),
            "skip": sorted(self._run.finished),
            "search": self._search,
            "hosts": host_state.site.hosts,
            "services": self._hosts.services(),
            "silence_s": host_state.site.silence_s,
            "cgroups": host_state.site.cgroups,
            "work_groups": list(host_state.site.work_groups),
            "stay": len(self._host_states) > 1,
            "server_failures": self._hosts.server_failures,
            "ended_services": sorted(self._ended.reasons),
        }
        if self._files.run_directory is not None:
            start["run_directory"] = self._files.run_directory
        await agent.send({"command": "start", **start})
        for line in self._actor_lines(host_state):
            await agent.send_line(b'{"command":"actor","line":' + line + b"}")
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                while (record := await agent.next_record()) is not None:
                    if record["record"] == "ready":
                        host_state.ready = record
                        return
                    self._record(host_state, record)
        except TimeoutError as error:
            raise BackendError(f"{host_state.name}: expected the agent to be ready within {READY_TIMEOUT_S:g} s, found no record. Check the host's file systems."
                               ) from error  # fmt: skip
        raise AgentExitedError(
            f"{host_state.name}: the agent exited before it was ready: {await _exit_reason(agent)}. Check its log on the host."
        )

    def _header_of(self, host_state: HostState) -> Mapping[str, Any]:
        """Return the header of the plan for the agent of a host, with the values that became known after the start."""
        header = self._listed.header(self._run.header)
        over_ipv6 = self._hosts.ipv6_services(host_state.name)
        if not any({"gsiftp", "ftp"} & set(header["services"][name]["service_ports"]) for name in over_ipv6):
            return header
        calls = {
            name: {**call, "argv": with_ipv6(call["argv"])} if call["mover"] == "globus-url-copy" else call
            for name, call in header["calls"].items()
        }
        return {**header, "calls": calls}

    def _actor_lines(self, host_state: HostState) -> Iterator[bytes]:
        for host, line in actor_lines(self._run.path):
            if host == host_state.name:
                host_state.calls.update(json.loads(b'"' + call + b'"') for call in _CALL.findall(line))
                yield self._listed.line(line)

    async def _send_go(self, host_state: HostState) -> None:
        assert host_state.agent is not None
        await host_state.agent.send({"command": "go"})
        host_state.started = True
        for service in self._ended.reasons:  # it may have ended since `start`
            await host_state.agent.send({"command": "end_service", "service": service})
        await self._send_counters(host_state)

    async def _read_agent(self, host_state: HostState) -> None:
        """Record the results of a host until its part is done. Restart an agent that exited."""
        while True:
            agent = host_state.agent
            assert agent is not None
            if host_state.discarding:  # a shell was lost while the agent started: it has the ports of ended servers
                await agent.kill()
            # `done` is the last record. The output does not end if a thread of the agent waits in a file system.
            while not host_state.done and (record := await agent.next_record()) is not None:
                if host_state.discarding or not await self._is_valid(host_state, record):
                    # The next agent repeats the trial; further records of this agent do not count.
                    host_state.discarding = True
                elif record["record"] == "service_ended":
                    await self._end_service(host_state, record)
                elif self._record(host_state, record):
                    for other in self._host_states:
                        await self._send_counters(other)
            if host_state.done:
                await agent.end()
                return
            code = await agent.wait()
            if self._stopping:
                return
            await self._restart(host_state, f"{_cause(code)}{f': {agent.stderr_tail}' if agent.stderr_tail else ''}")

    async def _end_service(self, host_state: HostState, record: Mapping[str, Any]) -> None:
        """End the trials at a service on all hosts, before the agent passes its turn to another host."""
        service = str(record["service"])
        finding = self._ended.end(record, host_state.name, self._describe_server(service))
        if finding is None:
            return
        self._run.finding(finding)
        self._report(f"{service}: {self._ended.reasons[service]}; its trials end")
        for other in self._host_states:
            if other is not host_state and other.agent is not None and other.started and not other.done:
                await other.agent.send({"command": "end_service", "service": service})

    def _describe_server(self, service: str) -> str:
        host = (self._run.header["services"].get(service) or {}).get("host")
        return f"host {host}" if host else "an existing server"

    async def _is_valid(self, host_state: HostState, record: Mapping[str, Any]) -> bool:
        """Return whether a record is valid.

        The failure of a trial or server is not valid if a lost shell ended the servers of its host.
        """
        if record["record"] != "service_ended" and (record["record"] != "trial" or not _has_failed(record)):
            return True
        for other in self._host_states:
            if host_state.name in self._affected.get(other.name, ()) and (shell := other.site.shell) is not None:
                try:
                    # A result proves that the shell and its servers were alive during the trial.
                    await asyncio.wrap_future(shell.submit("clock"))
                except BackendError:
                    return False
        return True

    async def _replace_shells(self) -> None:
        """Connect again to hosts whose shell is lost, and repeat the trials that needed it.

        Raises
        ------
        BackendError
            If a host cannot be reached again, or is lost repeatedly without a finished trial.
        """
        while True:
            lost = dict([await self._lost.get()])
            # A broken network affects several hosts at the same time.
            await asyncio.sleep(LOSS_PAUSE_S)
            while not self._lost.empty():
                lost |= [self._lost.get_nowait()]
            if self._stopping:
                continue
            if self._losses_in_a_row >= MAX_RESTARTS_WITHOUT_PROGRESS:
                raise BackendError(
                    f"{next(iter(lost.values()))} This is loss {self._losses_in_a_row + 1} in a row without a finished trial."
                    " Fix the cause, then resume the run."
                )
            self._losses_in_a_row += 1
            for host, reason in lost.items():
                self._report(f"lost the connection to {host} ({reason}); connecting again")
                self._run.finding(
                    Finding(
                        "shell-lost",
                        host,
                        f"the connection to the host shell ended at {self._run.now_s():.3f} s: {reason}",
                        "Servers of the host ended with it and were started again. Trials that needed them were repeated from their start.",
                        host=host,
                    )
                )
            waiting = [host_state for host_state in self._host_states if self._needs_any(host_state.name, lost)]
            for host_state in waiting:
                host_state.shells_ready.clear()
                host_state.discarding = not host_state.done
            agents = [host_state.agent for host_state in waiting if host_state.agent and not host_state.done]
            await asyncio.gather(*(agent.kill() for agent in agents))
            self._recovered.clear()
            try:
                await self._recover()
            except asyncio.CancelledError:
                self._hosts.interrupt()  # its thread would continue
                raise
            self._recovered.set()
            for host_state in waiting:
                host_state.shells_ready.set()

    def _needs_any(self, host: str, lost: Mapping[str, str]) -> bool:
        """Return whether the agent of a host cannot continue without the lost shells: host → reason."""
        # A silent connection is also silent for the agent.
        return any(host in self._affected.get(other, ()) for other in lost) or SILENT in lost.get(host, "")

    async def _recover(self) -> None:
        for number, delay_s in enumerate(RESTART_DELAYS_S):
            await asyncio.sleep(delay_s)
            try:
                await asyncio.to_thread(self._hosts.recover)
                return
            except BackendError as error:
                if self._stopping:
                    return
                if number + 1 == len(RESTART_DELAYS_S):
                    raise BackendError(f"{error} Then resume the run.") from error

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_INTERVAL_S)
            for host_state in self._host_states:
                if host_state.agent is not None and not host_state.done:
                    host_state.agent.beat()

    async def _clock(self, host_state: HostState, limit_s: float) -> ClockOffset | None:
        """Return the offset of the clock of a host. None for this machine."""
        shell = host_state.site.shell
        if shell is None or host_state.site.local_scratch is not None or shell.is_lost:
            return host_state.clock
        try:
            return await asyncio.to_thread(shell.clock, limit_s)
        except ShellLostError:
            if host_state.clock is None:
                raise
            return host_state.clock  # the shell is replaced soon, and its loss is not a failure of the agent

    async def _read_clocks(self) -> None:
        while True:
            await asyncio.sleep(CLOCK_INTERVAL_S)
            await self._record_clocks()

    async def _record_clocks(self) -> None:
        """Read all clocks of other machines and record them."""

        async def read(host_state: HostState) -> None:
            with suppress(BackendError):  # the last offset stays
                host_state.set_clock(await self._clock(host_state, CLOCK_TIMEOUT_S))

        await asyncio.gather(*(read(host_state) for host_state in self._host_states))
        for host_state in self._host_states:
            if host_state.clock is not None and host_state.first_clock is not None:
                detail = {
                    "offset_s": host_state.clock.offset_s,
                    "uncertainty_s": host_state.clock.uncertainty_s,
                    "drift_s": host_state.clock.offset_s - host_state.first_clock.offset_s,
                }
                self._run.event({"time_s": self._run.now_s(), "kind": "clock", "detail": detail}, host_state.name)

    async def _restart(self, host_state: HostState, cause: str) -> None:
        """Restart the agent of a host after all shells that its trials need are connected.

        Raises
        ------
        AgentExitedError
            If it exited several times in a row without a finished trial.
        """
        while not self._stopping:
            if not host_state.discarding:
                await self._record_exit(host_state, cause)
            host_state.restarts += 1
            host_state.counted = {}
            try:
                await self._start_again(host_state)
            except BackendError as error:
                cause = str(error)
            else:
                return

    async def _record_exit(self, host_state: HostState, cause: str) -> None:
        """Record the unexpected exit of an agent, and wait before its restart."""
        where = f"in trial {host_state.trial}" if host_state.trial else "between trials"
        if host_state.restarts_in_a_row >= MAX_RESTARTS_WITHOUT_PROGRESS:
            raise AgentExitedError(
                f"{host_state.name}: the agent exited {host_state.restarts_in_a_row + 1}"
                f" times in a row without a finished trial, most recently {where} ({cause}). Fix the cause, such as memory or connection, then resume the run."
            )
        delay_s = RESTART_DELAYS_S[min(host_state.restarts_in_a_row, len(RESTART_DELAYS_S) - 1)]
        host_state.restarts_in_a_row += 1
        self._report(f"the agent on {host_state.name} exited ({cause}); restarting it")
        self._run.finding(
            Finding(
                "agent-restarted",
                host_state.name,
                f"the agent exited {where} at {self._run.now_s():.3f} s: {cause}",
                "The trial was run again. Check the host's log for the cause.",
                host=host_state.name,
            )
        )
        await asyncio.sleep(delay_s)

    async def _start_again(self, host_state: HostState) -> None:
        """Start a new agent as soon as the previous one has released the scratch directory."""
        deadline_s = time.monotonic() + SCRATCH_WAIT_S
        while True:
            # The ports of services are known when all shells are connected again.
            while not host_state.shells_ready.is_set():
                await host_state.shells_ready.wait()
            if self._stopping:
                return
            try:
                await self._connect(host_state)
                await self._hand_out(host_state)
                break
            except BackendError as error:
                if host_state.agent is not None:
                    await host_state.agent.kill()
                if not isinstance(error, ScratchInUseError) or time.monotonic() > deadline_s:
                    raise
                await asyncio.sleep(SCRATCH_PAUSE_S)
        if self._stopping and host_state.agent is not None:
            host_state.agent.stop()
        await self._send_go(host_state)

    async def _send_counters(self, host_state: HostState) -> None:
        counted = self._run.counts
        if host_state.agent is None or not host_state.started or (len(self._host_states) == 1 and not counted):
            return  # not yet; or the only agent, which counts by itself
        for counter in sorted({*counted, *(counter for other in self._host_states for counter in other.counters)}):
            value = counted.get(counter, 0) + sum(other.counters.get(counter, 0) for other in self._host_states)
            await host_state.agent.send({"command": "counter", "counter": counter, "value": value})

    def _record(self, host_state: HostState, record: Mapping[str, Any]) -> bool:
        """Record one record of an agent, and return whether a shared counter has changed."""
        match record["record"]:
            case "trial_start":
                host_state.trial = str(record["trial"])
                self._meter.start_trial(host_state.trial)
                # Readers of a run in progress see the trials that run now.
                started = {"time_s": record["time_s"], "kind": "trial-start", "detail": {"trial": host_state.trial}}
                self._run.event(started, host_state.name)
            case "trial":
                before = sum(self._run.counts.values())
                self._record_trial(host_state, record)
                self._show()
                return sum(self._run.counts.values()) > before
            case "trial_skipped":
                self._ended.skipped[str(record["trial"])] = str(record["service"])
            case "transfer":
                self._run.transfer(record, host_state.name)
            case "sample":
                self._run.sample(record, host_state.name)
            case "sockets":
                self._run.sockets(record, host_state.name)
            case "event":
                self._run.event(record, host_state.name)
                if message := format_event(host_state.name, record):
                    self._meter.set_message(message)
            case "finding":
                self._run.finding(Finding.from_record(record, host=host_state.name))
            case "signal":
                host_state.signal(str(record["counter"]), int(record["add"]))
                return True
            case "request":
                self._reply(host_state, record)
            case "idle":
                host_state.idle = True
                self._stop_idle_agents()
            case "done":
                host_state.done = True
            case "fatal":
                error = ScratchInUseError if record.get("kind") == "scratch-in-use" else BackendError
                raise error(f"{host_state.name}: {record['message']}")
            case _:
                pass  # a newer agent of the same protocol can have more kinds of records
        self._show()
        return False

    def _reply(self, host_state: HostState, record: Mapping[str, Any]) -> None:
        """Pass an operation on files of another host to its shell, and send the outcome to the agent."""
        agent = host_state.agent

        async def reply() -> None:
            assert agent is not None
            try:
                response: dict[str, Any] = {
                    "outcome": await self._files.execute(str(record["host"]), record["operation"])
                }
            except BackendError as error:
                response = {"error": str(error)}
            except Exception as error:  # no task waits for this one, and the agent waits for the response
                response = {"error": str(error)}
                self._error = self._error or str(error) or type(error).__name__
                self._stop.set()
            if agent is host_state.agent:  # numbers belong to one agent process
                await agent.send({"command": "response", "number": record["number"], **response})

        task = asyncio.create_task(reply())
        self._replies.add(task)
        task.add_done_callback(self._replies.discard)

    def _shell(self, host: str) -> RemoteHostShell:
        for other in self._host_states:
            if other.name == host and other.site.shell is not None:
                return other.site.shell
        raise BackendError(f"{host}: expected a host with a shell, found none; use a storage of this host")

    async def _remove_created(self) -> None:
        """Remove all files of the run on existing servers."""
        if not self._files.has_journal:
            return
        self._report("removing the files of the run on existing servers")
        for finding in await self._files.remove_created():
            if self._run.session:
                self._run.finding(finding)

    def _stop_idle_agents(self) -> None:
        """Stop the agents when all are idle. Until then, idle agents still sample the counters of their hosts."""
        if all(host_state.idle for host_state in self._host_states):
            for host_state in self._host_states:
                if host_state.agent is not None:
                    host_state.agent.stop()

    def _listen_to_source(self) -> None:
        if self._source is None:
            return
        loop = asyncio.get_running_loop()

        def listen(host: str, record: Mapping[str, Any]) -> None:
            with suppress(RuntimeError):  # the loop has ended, and the run with it
                loop.call_soon_threadsafe(self._record_from_source, host, record)

        self._source.listen(listen)

    def _record_from_source(self, host: str, record: Mapping[str, Any]) -> None:
        try:
            match record["record"]:
                case "sample":
                    self._run.sample(record, host)
                case "event":
                    self._run.event(record, host)
                    self._ended.add_event(host, record)
                    if message := format_event(host, record):
                        self._meter.set_message(message)
                case "finding":
                    self._run.finding(Finding.from_record(record, host=host))
                case "fatal":
                    raise BackendError(f"{host}: {record['message']}")
        except (BackendError, RunError) as error:  # no task waits for this call: the session ends through `_stop`
            self._error = self._error or str(error)
            self._stop.set()
        self._show()

    async def _end_source(self) -> None:
        """End the source and record its last records."""
        if self._source is not None and self._run.session:
            await asyncio.to_thread(self._source.end)
            # Its records are already queued in the loop.
            await asyncio.sleep(0)

    def _record_trial(self, host_state: HostState, record: Mapping[str, Any]) -> None:
        host_state.trial = None
        if any(transfer["outcome"] == "stopped" for transfer in record["transfers"]):
            return  # stopped by this controller, so the trial is not done
        outcome = self._run.trial(record, host_state.name)
        if outcome is not None:
            host_state.restarts_in_a_row = self._losses_in_a_row = 0
            self._meter.finish(record, outcome, time.monotonic())

    async def _stop_agents(self, work: asyncio.Task[None]) -> None:
        """Stop all agents: first in order, then with SIGKILL after a second signal or the grace period."""
        self._stopping = True
        self._report("stopping")
        for host_state in self._host_states:
            if host_state.agent is not None:
                host_state.agent.stop()
        if self._run.session == 0 or not self._recovered.is_set():
            self._hosts.interrupt()
        if self._run.session == 0:
            work.cancel()  # no trial has started
        self._stop.clear()
        second_stop = asyncio.create_task(self._stop.wait())
        await asyncio.wait({work, second_stop}, timeout=STOP_GRACE_S, return_when=asyncio.FIRST_COMPLETED)
        second_stop.cancel()
        if not work.done():
            self._skip_tables = True
            work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        await self._kill_agents()

    async def _kill_agents(self) -> None:
        await asyncio.gather(
            *(host_state.agent.kill() for host_state in self._host_states if host_state.agent), return_exceptions=True
        )

    async def _end(self) -> SessionOutcome:
        await self._record_clocks()
        for host_state in self._host_states:
            if host_state.clock is not None and host_state.first_clock is not None:
                finding = drift_finding(host_state.name, host_state.first_clock, host_state.clock)
                if finding is not None:
                    self._run.finding(finding)
        await self._remove_created()
        await self._end_source()
        # An agent that was stopped also sends `done`, and steps outside of trials leave no record.
        state: Literal["complete", "stopped"] = "stopped" if self._stopping else "complete"
        remaining = [trial for trial in self._run.remaining() if not self._is_past_deadline(trial)]
        unfinished = next((trial for trial in remaining if trial not in self._ended.skipped), None)
        if state == "complete" and unfinished is not None:
            raise BackendError(
                f"expected outcomes of all trials from the agents, found none for {unfinished} of host"
                f" {self._run.trials[unfinished].host}. This is a bug in Venturi or an invalid plan; please report it."
            )
        reason = ""
        if state == "complete" and remaining:
            state, reason = "stopped", self._ended.describe(len(remaining))
        self._run.finish(state, tables=not self._skip_tables)
        self._report("")
        restarts = sum(host_state.restarts for host_state in self._host_states)
        return SessionOutcome(
            state, len(self._run.finished), len(self._run.trials), self._meter.failed, restarts, reason
        )

    def _is_past_deadline(self, trial: str) -> bool:
        """Return whether the agent skipped a trial because its deadline has passed."""
        until_s = self._run.trials[trial].until_s
        return until_s is not None and until_s <= self._run.now_s()

    def _report(self, message: str) -> None:
        self._meter.set_message(message)
        self._show(now=True)

    def _show(self, *, now: bool = False) -> None:
        time_s = time.monotonic()
        if self._on_progress is not None and (now or time_s - self._shown_s >= PROGRESS_INTERVAL_S):
            self._shown_s = time_s
            self._on_progress(self._meter.progress(time_s))


async def _all(awaitables: Iterable[Awaitable[_T]]) -> list[_T]:
    """Await all. If one fails, cancel the others and raise its error itself, not a group."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _has_failed(record: Mapping[str, Any]) -> bool:
    return record.get("outcome") != "ok" or any(
        transfer.get("outcome") != "ok" for transfer in record.get("transfers") or ()
    )


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[_T], object], value: _T) -> None:
    """Call a function in the event loop, from any thread. Do nothing after the end of the loop."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, value)


def _host_properties(host_state: HostState) -> dict[str, Any]:
    """Return the properties of a host for the table `environment`."""
    assert host_state.agent is not None
    hello = host_state.agent.hello
    properties = {
        **(hello.get("properties") or {}),
        "engine": hello.get("engine"),
        "scratch": host_state.site.scratch,
    }
    for key in ("release", "memory_bytes", "storages", "tools"):
        properties[key] = host_state.ready.get(key)
    clock = host_state.clock or ClockOffset(0.0, 0.0)
    properties["clock"] = {"offset_s": clock.offset_s, "uncertainty_s": clock.uncertainty_s}
    return properties


async def _exit_reason(agent: Agent) -> str:
    code = await agent.wait()
    return f"{_cause(code)}: {agent.stderr_tail}" if agent.stderr_tail else _cause(code)


def _cause(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
