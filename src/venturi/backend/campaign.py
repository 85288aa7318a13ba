"""One session: agents started, the plan handed out, records taken in, deaths survived, an orderly end.

All that decides is synchronous and short; the event loop only waits. One task a host reads its agent until it is done,
starting it again where it died. Time-outs and bounds have names at the top.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeVar

from venturi.backend.agent import Agent
from venturi.backend.base import Outcome, Progress
from venturi.backend.checks import check_free_space, clock_findings, missing_findings
from venturi.backend.clock import ClockOffset
from venturi.backend.meter import Meter
from venturi.backend.site import Site
from venturi.backend.source import Source
from venturi.backend.stopping import stop_on_signals
from venturi.backend.words import event_in_words
from venturi.errors import BackendError, RunError
from venturi.run import Finding, RunWriter
from venturi.run.directory import PLAN

__all__ = ["MAX_RESTARTS_WITHOUT_PROGRESS", "Campaign"]

MAX_RESTARTS_WITHOUT_PROGRESS = 3
"""How often an agent may die in a row without a finished trial in between before the campaign gives up."""

RESTART_DELAYS_S = (0.0, 1.0, 4.0)
"""Before each of these restarts: at once after a crash, later where a connection may come back."""

READY_TIMEOUT_S = 600.0
"""An agent that looks for tools and free space on a slow shared file system takes its time."""

STOP_GRACE_S = 15.0
"""How long agents may take to end after `stop`: movers get SIGTERM, and SIGKILL 2 s later."""

PROGRESS_INTERVAL_S = 0.1

_T = TypeVar("_T")
_CALL = re.compile(rb'"call":\s*"((?:[^"\\]|\\.)*)"')


class _Post:
    """One host of the campaign: where it is, its agent at the moment, and what it has said so far."""

    def __init__(self, site: Site, clock: ClockOffset | None) -> None:
        self.site = site
        self.clock = clock
        self.agent: Agent | None = None
        self.ready: Mapping[str, Any] = {}
        self.calls: set[str] = set()
        self.counters: dict[str, int] = {}
        self.counted: dict[str, int] = {}
        self.restarts = 0
        self.restarts_in_a_row = 0
        self.trial: str | None = None
        self.going = False
        self.idle = False
        self.done = False

    @property
    def name(self) -> str:
        return self.site.name

    def signal(self, counter: str, add: int) -> None:
        """Count a signal. A restarted agent begins anew and repeats what it signalled: that counts once."""
        self.counted[counter] = self.counted.get(counter, 0) + add
        self.counters[counter] = max(self.counters.get(counter, 0), self.counted[counter])


class Campaign:
    """One session of a run.

    Parameters
    ----------
    run
        What is to be carried on with.
    sites
        Where the agents run, one for each host of the plan.
    search
        Folders for agents to look for tools in.
    on_progress
        Who wants to know.
    source
        Who has records beside the agents: the lab.
    """

    def __init__(
        self,
        run: RunWriter,
        sites: Sequence[Site],
        search: Sequence[str],
        on_progress: Callable[[Progress], None] | None,
        source: Source | None = None,
    ) -> None:
        self._run = run
        self._sites = sites
        self._search = list(search)
        self._on_progress = on_progress
        self._source = source
        self._broken = ""
        self._meter = Meter(run, time.monotonic())
        self._posts: list[_Post] = []
        self._stopping = False
        self._stop = asyncio.Event()
        self._hurried = False
        self._shown_s = 0.0

    async def carry_out(self) -> Outcome:
        """Carry out what is left: see :class:`venturi.backend.Backend`."""
        with stop_on_signals(self._stop):
            try:
                work = asyncio.create_task(self._work())
                asked = asyncio.create_task(self._stop.wait())
                await asyncio.wait({work, asked}, return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    await self._stop_agents(work)
                asked.cancel()
                if not work.cancelled():
                    work.result()
                if self._broken:
                    raise BackendError(self._broken)
                return await self._end()
            except BaseException:
                await self._kill_agents()
                await self._end_source()
                with suppress(OSError):
                    self._run.finish("stopped")
                raise

    async def _work(self) -> None:
        self._say(f"preparing {', '.join(site.name for site in self._sites)}")
        clocks = await _all(site.prepare() for site in self._sites)
        self._posts = [_Post(site, clock) for site, clock in zip(self._sites, clocks, strict=True)]
        await _all(self._start(post) for post in self._posts)
        self._begin_session()
        await _all(self._send_go(post) for post in self._posts)
        if self._source is not None:
            self._source.go(self._run.elapsed_s)
        await _all(self._attend(post) for post in self._posts)

    def _begin_session(self) -> None:
        """Look before the first byte moves: does it fit, is everything there, what are these machines."""
        check_free_space(self._run, {post.name: post.ready for post in self._posts}, self._local_scratch())
        facts = {post.name: _facts(post) for post in self._posts}
        for name, more in (self._source.facts() if self._source is not None else {}).items():
            facts[name] = {**facts.get(name, {}), **more}
        self._run.begin_session(facts)
        self._listen_to_source()
        for post in self._posts:
            for finding in (
                *clock_findings(post.name, post.clock, alone=len(self._posts) == 1),
                *missing_findings(post.name, post.ready.get("missing") or {}, post.calls),
            ):
                self._run.finding(finding)
                if finding.code == "missing-tool":  # known before anything is tried, and so it is said at once
                    self._say(
                        f"{finding.subject} is not on {post.name}: its transfers are recorded as missing, the rest goes on"
                    )

    def _local_scratch(self) -> dict[str, str]:
        return {post.name: post.site.home for post in self._posts if post.site.home is not None}

    def _seen_by(self, post: _Post) -> dict[str, str]:
        """Return the scratch directories of the other hosts whose files are on this machine too, as it is there."""
        if post.site.home is None:
            return {}
        others = (other.site for other in self._posts if other is not post)
        return {site.name: site.scratch for site in others if site.home is not None}

    async def _start(self, post: _Post) -> None:
        """Start the agent of a host and hand it its part of the plan, up to `ready`."""
        post.going = post.idle = False
        agent = post.agent = await post.site.start_agent()
        offset_ns = post.clock.offset_ns if post.clock else 0
        start = {
            "host": post.name,
            "scratch": post.site.scratch,
            # The epoch by the clock of that host, so that the times of all hosts lie on this machine's axis.
            "epoch_unix_ns": self._run.epoch_unix_ns + offset_ns,
            "header": self._run.header,
            "skip": sorted(self._run.finished),
            "search": self._search,
            "sees": self._seen_by(post),
            "cgroups": post.site.cgroups,
            "stay": len(self._posts) > 1,
        }
        await agent.send({"command": "start", **start})
        for line in self._lines_of(post):
            await agent.send_line(b'{"command":"actor","line":' + line + b"}")
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                while (record := await agent.next_record()) is not None:
                    if record["record"] == "ready":
                        post.ready = record
                        return
                    self._take(post, record)
        except TimeoutError as error:
            raise BackendError(f"{post.name}: expected the agent to be ready within {READY_TIMEOUT_S:g} s, found silence"
                               ) from error  # fmt: skip
        raise BackendError(f"{post.name}: expected the agent to be ready, found its end: {await _end_of(agent)}")

    def _lines_of(self, post: _Post) -> Iterator[bytes]:
        with (self._run.path / PLAN).open("rb") as lines:
            next(lines, None)
            for line in lines:
                if json.loads(line)["host"] == post.name:
                    post.calls.update(json.loads(b'"' + call + b'"') for call in _CALL.findall(line))
                    yield line.strip()

    async def _send_go(self, post: _Post) -> None:
        assert post.agent is not None
        await post.agent.send({"command": "go"})
        post.going = True
        await self._send_counters(post)

    async def _attend(self, post: _Post) -> None:
        """Take the records of a host until its part is done, starting its agent again where it dies."""
        while True:
            agent = post.agent
            assert agent is not None
            # `done` is its last word. Where a thread of it hangs in a file system, the end of its output does not come.
            while not post.done and (record := await agent.next_record()) is not None:
                if self._take(post, record):
                    for other in self._posts:
                        await self._send_counters(other)
            if post.done:
                await agent.end()
                return
            code = await agent.wait()
            if self._stopping:
                return
            await self._restart(post, f"{_cause(code)}{f': {agent.talk}' if agent.talk else ''}")

    async def _restart(self, post: _Post, cause: str) -> None:
        while True:
            where = f"in trial {post.trial}" if post.trial else "between trials"
            if post.restarts_in_a_row >= MAX_RESTARTS_WITHOUT_PROGRESS:
                raise BackendError(
                    f"{post.name}: expected the agent to finish a trial, found that it ended {post.restarts_in_a_row + 1}"
                    f" times in a row, at last {where} ({cause}); mend the cause (memory? connection?), then resume"
                )
            delay_s = RESTART_DELAYS_S[min(post.restarts_in_a_row, len(RESTART_DELAYS_S) - 1)]
            post.restarts_in_a_row += 1
            post.restarts += 1
            post.counted = {}
            self._say(f"the agent on {post.name} ended ({cause}) and is started again")
            self._run.finding(
                Finding(
                    "agent-restarted",
                    post.name,
                    f"the agent ended {where} at {self._run.now_s():.3f} s: {cause}",
                    "the trial was carried out again; look into the host's log for why it ended",
                    host=post.name,
                )
            )
            await asyncio.sleep(delay_s)
            if self._stopping:
                return
            try:
                await self._start(post)
            except BackendError as error:
                cause = str(error)
                continue
            if self._stopping and post.agent is not None:
                post.agent.stop()
            await self._send_go(post)
            return

    async def _send_counters(self, post: _Post) -> None:
        counted = self._run.counts
        if post.agent is None or not post.going or (len(self._posts) == 1 and not counted):
            return  # not yet; or the only agent, which counts by itself
        for counter in sorted({*counted, *(counter for other in self._posts for counter in other.counters)}):
            value = counted.get(counter, 0) + sum(other.counters.get(counter, 0) for other in self._posts)
            await post.agent.send({"command": "counter", "counter": counter, "value": value})

    def _take(self, post: _Post, record: Mapping[str, Any]) -> bool:
        """Take one record; return whether a shared counter has changed."""
        match record["record"]:
            case "trial_start":
                post.trial = str(record["trial"])
                self._meter.begin(post.trial)
            case "trial":
                before = sum(self._run.counts.values())
                self._take_trial(post, record)
                self._show()
                return sum(self._run.counts.values()) > before
            case "transfer":
                self._run.transfer(record, post.name)
            case "sample":
                self._run.sample(record, post.name)
            case "sockets":
                self._run.sockets(record, post.name)
            case "event":
                self._run.event(record, post.name)
                if message := event_in_words(post.name, record):
                    self._meter.say(message)
            case "finding":
                self._run.finding(Finding.from_record(record, host=post.name))
            case "signal":
                post.signal(str(record["counter"]), int(record["add"]))
                return True
            case "idle":
                post.idle = True
                self._end_together()
            case "done":
                post.done = True
            case "fatal":
                raise BackendError(f"{post.name}: {record['message']}")
            case _:
                pass  # a newer agent of the same protocol may say more
        self._show()
        return False

    def _end_together(self) -> None:
        """Stop the agents once none has anything left to do: until then they see what the others do with their hosts."""
        if all(post.idle for post in self._posts):
            for post in self._posts:
                if post.agent is not None:
                    post.agent.stop()

    def _listen_to_source(self) -> None:
        if self._source is None:
            return
        loop = asyncio.get_running_loop()

        def listen(host: str, record: Mapping[str, Any]) -> None:
            with suppress(RuntimeError):  # the loop has ended: so has the run
                loop.call_soon_threadsafe(self._take_from_source, host, record)

        self._source.listen(listen)

    def _take_from_source(self, host: str, record: Mapping[str, Any]) -> None:
        try:
            match record["record"]:
                case "sample":
                    self._run.sample(record, host)
                case "event":
                    self._run.event(record, host)
                    if message := event_in_words(host, record):
                        self._meter.say(message)
                case "finding":
                    self._run.finding(Finding.from_record(record, host=host))
                case "fatal":
                    raise BackendError(f"{host}: {record['message']}")
        except (BackendError, RunError) as error:  # nobody waits for this call: the session ends with it all the same
            self._broken = self._broken or str(error)
            self._stop.set()
        self._show()

    async def _end_source(self) -> None:
        """Let the source come to its end, and take in its last words."""
        if self._source is not None and self._run.session:
            await asyncio.to_thread(self._source.end)
            # What it said stands in the queue of the loop, before this.
            await asyncio.sleep(0)

    def _take_trial(self, post: _Post, record: Mapping[str, Any]) -> None:
        post.trial = None
        if any(transfer["outcome"] == "stopped" for transfer in record["transfers"]):
            return  # not carried out to its end by our own doing: it is not done
        outcome = self._run.trial(record, post.name)
        if outcome is not None:
            post.restarts_in_a_row = 0
            self._meter.finish(record, outcome, time.monotonic())

    async def _stop_agents(self, work: asyncio.Task[None]) -> None:
        """Ask all agents to stop, and see to it that they do."""
        self._stopping = True
        self._say("stopping")
        for post in self._posts:
            if post.agent is not None:
                post.agent.stop()
        if self._run.session == 0:
            work.cancel()  # nothing has begun
        self._stop.clear()
        again = asyncio.create_task(self._stop.wait())
        await asyncio.wait({work, again}, timeout=STOP_GRACE_S, return_when=asyncio.FIRST_COMPLETED)
        again.cancel()
        if not work.done():
            self._hurried = True
            work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        await self._kill_agents()

    async def _kill_agents(self) -> None:
        await asyncio.gather(*(post.agent.kill() for post in self._posts if post.agent), return_exceptions=True)

    async def _end(self) -> Outcome:
        await self._end_source()
        # An agent that was stopped says `done` as well, and steps outside trials leave no trace to judge by.
        state: Literal["complete", "stopped"] = "stopped" if self._stopping else "complete"
        left = next((trial for trial in self._run.remaining() if not self._too_late(trial)), None)
        if state == "complete" and left is not None:
            raise BackendError(
                f"expected every trial to be carried out once all agents are done, found that {left} was not, of host"
                f" {self._run.trials[left].host}; this is an error of Venturi or of the plan: please report it"
            )
        self._run.finish(state, tables=not self._hurried)
        self._say("")
        restarts = sum(post.restarts for post in self._posts)
        return Outcome(state, len(self._run.finished), len(self._run.trials), self._meter.failed, restarts)

    def _too_late(self, trial: str) -> bool:
        """Return whether a trial is one that its agent has passed over because its time was over."""
        until_s = self._run.trials[trial].until_s
        return until_s is not None and until_s <= self._run.now_s()

    def _say(self, message: str) -> None:
        self._meter.say(message)
        self._show(now=True)

    def _show(self, *, now: bool = False) -> None:
        time_s = time.monotonic()
        if self._on_progress is not None and (now or time_s - self._shown_s >= PROGRESS_INTERVAL_S):
            self._shown_s = time_s
            self._on_progress(self._meter.progress(time_s))


async def _all(awaitables: Iterable[Awaitable[_T]]) -> list[_T]:
    """Await all; when one fails, cancel the others and raise its error itself, not a group."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _facts(post: _Post) -> dict[str, Any]:
    """Return what is known of a host, for the table `environment`."""
    assert post.agent is not None
    hello = post.agent.hello
    facts = {**(hello.get("facts") or {}), "engine": hello.get("engine"), "scratch": post.site.scratch}
    for key in ("release", "memory_bytes", "places", "tools"):
        facts[key] = post.ready.get(key)
    clock = post.clock or ClockOffset(0.0, 0.0)
    facts["clock"] = {"offset_s": clock.offset_s, "uncertainty_s": clock.uncertainty_s}
    return facts


async def _end_of(agent: Agent) -> str:
    code = await agent.wait()
    return f"{_cause(code)}: {agent.talk}" if agent.talk else _cause(code)


def _cause(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
