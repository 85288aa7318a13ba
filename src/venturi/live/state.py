"""State of a run from its records, without I/O: lines of the run directory in, snapshots out."""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from venturi.backend.base import RunProgress
from venturi.backend.event_messages import format_event, format_failure
from venturi.live.counters import SampledHost
from venturi.live.remaining import PlannedTrial, RemainingTime
from venturi.live.snapshot import (
    HostNow,
    HostStateNow,
    LinkNow,
    MoverNow,
    RunningTrial,
    Snapshot,
    VerdictNow,
    ViewState,
)
from venturi.live.trial_line import parse_record
from venturi.units import format_bytes

__all__ = ["TRIAL_START", "LiveState", "PlanRow"]

TRIAL_START = "trial-start"
"""Kind of the event that the controller records when a trial starts."""

RATE_WINDOW_S = 10.0
"""Transfers that ended in this time give the current rate."""

SILENT_S = 5.0
SILENT_SAMPLES = 10
"""A host is silent after this time without a sample, or after this many intervals if that is longer."""

RECENT_LOSS_S = 60.0
"""Time for which a restarted host shows its loss. An agent on this machine restarts within a second."""

SHOWN_FINDINGS = 5
MAX_RECENT = 100_000
"""Most groups of transfers in the window of the current rate; further ones replace the oldest."""

LOSSES = frozenset({"agent-restarted", "shell-lost"})
"""Findings of the controller about a host that it lost. The evidence contains the time: ``at 12.345 s``."""

_STARTED = re.compile(
    rb'\{"host":"[^"\\]*","time_s":(\d+(?:\.\d+)?),"kind":"trial-start","detail":\{"trial":"([^"\\]+)"\}\}\Z'
)
_TIME = re.compile(r" at ([0-9]+\.[0-9]+) s: (.*)", re.DOTALL)


class PlanRow(PlannedTrial, Protocol):
    """Trial of a plan, such as :class:`venturi.plan.TrialRow`."""

    @property
    def actor(self) -> str: ...  # noqa: D102 - actor of the plan
    @property
    def host(self) -> str: ...  # noqa: D102 - host of the actor
    @property
    def factors(self) -> Mapping[str, Any]: ...  # noqa: D102 - factor → level


@dataclass(slots=True)
class _Mover:
    transfers: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class _Group:
    """Transfers of one mover in one trial: their time span in seconds since the epoch of the run, and received bytes."""

    mover: str
    start_s: float
    end_s: float
    bytes: int


class LiveState:
    """State of one run.

    Feed it with the lines of ``samples.jsonl``, ``journal.jsonl`` and ``events.jsonl``, in this order after each reading, and
    with the progress of the controller if it is in this process. Lines that cannot be parsed are ignored. Times are in
    seconds since the epoch of the run.

    Parameters
    ----------
    path, name, backend
        Run directory, name and backend of the run.
    header
        Header of the plan, in the keys of the current version.
    trials
        Trial → its row in the plan.
    epoch_unix_ns
        Time 0 of the run. Nanoseconds since 1970.
    estimate_s
        Time of the whole run by the plan, in seconds. None if the plan does not fix it.
    """

    def __init__(
        self,
        path: str,
        name: str,
        backend: str,
        header: Mapping[str, Any],
        trials: Mapping[str, PlanRow],
        epoch_unix_ns: int,
        estimate_s: float | None,
    ) -> None:
        self._path, self._name, self._backend = path, name, backend
        self._header = header
        self._trials = trials
        self._epoch_unix_ns = epoch_unix_ns
        self._estimate_s = estimate_s
        self._interval_s = float((header.get("measure") or {}).get("interval_s") or 0.0)
        self.verdict = VerdictNow()
        self._progress: RunProgress | None = None
        self._state: ViewState = "running"
        self._reason = ""
        self._controller = ""
        self.restart()

    def restart(self) -> None:
        """Forget all records, because their files were replaced."""
        self._remaining = RemainingTime(self._trials, self._estimate_s)
        self._outcomes: dict[str, tuple[str, float]] = {}
        self._failed = 0
        self._first_failure = ""
        self._running: dict[str, float] = {}
        self._movers: dict[str, _Mover] = {}
        self._recent: deque[_Group] = deque(maxlen=MAX_RECENT)
        self._last_transfer_s: float | None = None
        self._sampled: dict[str, SampledHost] = {}
        self._arrived_s: dict[str, float] = {}
        self._lost: dict[str, tuple[float, str]] = {}
        self._last_loss: dict[str, tuple[float, str]] = {}
        self._findings: deque[tuple[str, str, str]] = deque(maxlen=SHOWN_FINDINGS)
        self._finding_count = 0
        self._session = 0
        self._session_start_s = 0.0
        self._properties: Mapping[str, Any] = {}
        self._message = ""
        self._latest_s = 0.0

    @property
    def points_done(self) -> int:
        """Design points without remaining trials."""
        return self._remaining.points_done

    @property
    def trials_done(self) -> int:
        """Trials with an outcome."""
        return len(self._outcomes)

    @property
    def is_over(self) -> bool:
        """Whether the run is no longer in progress."""
        return self._state != "running"

    def set_progress(self, progress: RunProgress) -> None:
        """Set the progress that the controller reports. It may be called from any thread."""
        self._progress = progress

    def set_controller(self, controller: str) -> None:
        """Set the process that makes the run, as text."""
        self._controller = controller

    def end(self, state: ViewState, reason: str = "") -> None:
        """Record the end of the run, and its reason."""
        self._state, self._reason = state, reason

    def add_sample(self, line: bytes, now_s: float) -> None:
        """Add a line of ``samples.jsonl`` that was read at ``now_s``."""
        sample = _parse(line)
        try:
            host, time_s = str(sample["host"]), float(sample["time_s"])
            self._sampled.setdefault(host, SampledHost()).add(sample)
        except (KeyError, TypeError, ValueError, IndexError):
            return
        self._arrived_s[host] = now_s
        self._latest_s = max(self._latest_s, time_s)
        self._found(host, time_s)

    def add_event(self, line: bytes) -> None:
        """Add a line of ``events.jsonl``."""
        started = _STARTED.match(line)
        if started is not None:
            # Most trials have ended when their start is read.
            finished = self._outcomes.get(started[2].decode())
            if finished is not None and finished[1] >= float(started[1]):
                return
        event = _parse(line)
        host, kind = str(event.get("host")), event.get("kind")
        time_s = float(event.get("time_s") or 0.0)
        if kind == TRIAL_START:
            self._start_trial(host, str((event.get("detail") or {}).get("trial")), time_s)
        elif kind in ("progress", "dataset"):
            self._message = format_event(host, event) if kind == "progress" else ""

    def add_journal(self, line: bytes, now_s: float) -> None:
        """Add a line of ``journal.jsonl`` that was read at ``now_s``."""
        record = parse_record(line)
        try:
            if trial := record.get("trial"):
                self._add_trial(trial, now_s)
            elif finding := record.get("finding"):
                self._add_finding(finding, now_s)
            elif session := record.get("session"):
                self._add_session(session)
            elif transfer := record.get("transfer"):
                self._add_transfers([transfer])
        except (KeyError, TypeError, ValueError, AttributeError):
            return

    def snapshot(self, now_s: float) -> Snapshot:
        """Return the run at ``now_s``, the time of the reader."""
        # The records of a simulation are in virtual time.
        time_s = self._latest_s if self._backend == "sim" else now_s
        recent = self._in_window(time_s)
        progress = self._progress
        fraction, left = self._remaining.fraction_done(), self._remaining.left(self._session_start_s, now_s)
        if progress is not None and progress.time_fraction is not None:
            fraction = progress.time_fraction
        if not self._session:
            left = self._remaining.left(now_s, now_s)
        if self.is_over:
            left = None
        return Snapshot(
            path=self._path,
            name=self._name,
            backend=self._backend,
            controller=self._controller,
            state=self._state,
            reason=self._reason,
            phase=self._phase(),
            time_s=now_s,
            elapsed_s=max(now_s - self._session_start_s, 0.0) if self._session else 0.0,
            fraction_done=fraction,
            left=left,
            bytes_per_s=_rate(recent),
            quiet_s=None if self._last_transfer_s is None else max(time_s - self._last_transfer_s, 0.0),
            trials_done=len(self._outcomes),
            trials_total=len(self._trials),
            trials_failed=self._failed,
            points_done=self._remaining.points_done,
            points=self._remaining.points,
            running=() if self.is_over else tuple(self._running_trials(now_s)),
            hosts=tuple(self._host(name, now_s) for name in self._header.get("hosts") or {}),
            links=self._links(),
            movers=tuple(
                MoverNow(name, mover.transfers, mover.failed, _rate([one for one in recent if one.mover == name]))
                for name, mover in sorted(self._movers.items())
            ),
            findings=(self._finding_count, tuple(reversed(self._findings))),
            first_failure=self._first_failure,
            verdict=self.verdict,
        )

    def _phase(self) -> str:
        if self._state != "running":
            return {
                "complete": "complete", "stopped": "stopped", "failed": "failed", "lost": "no contact to the controller",
            }[self._state]  # fmt: skip
        message = self._message if self._progress is None else self._progress.message
        if message:
            return message
        if not self._session:
            return "preparing"
        if len(self._outcomes) >= len(self._trials):
            return "finishing"
        return "measuring" if self._running or self._backend == "sim" else "between trials"

    def _add_session(self, session: Mapping[str, Any]) -> None:
        self._session = int(session["number"])
        self._session_start_s = (int(session["time_unix_ns"]) - self._epoch_unix_ns) / 1e9
        self._properties = session.get("hosts") or {}
        self._remaining.start_session()
        # Its first events can be read before it.
        self._running = {t: start_s for t, start_s in self._running.items() if start_s >= self._session_start_s}
        self._lost, self._message = {}, ""

    def _add_trial(self, trial: Mapping[str, Any], now_s: float) -> None:
        name, host = str(trial["trial"]), str(trial.get("host"))
        start_s, end_s = float(trial["start_s"]), float(trial["end_s"])
        if name in self._outcomes:
            self._repeat([name])
        outcome = str(trial["outcome"])
        self._outcomes[name] = outcome, end_s
        if outcome != "ok":
            self._failed += 1
            self._first_failure = self._first_failure or format_failure(trial)
        # The end of a simulated trial is in virtual time.
        axis_s = now_s if self._backend == "sim" else min(end_s, now_s)
        of_session = trial.get("session", self._session) == self._session
        self._remaining.finish(name, end_s - start_s, of_session=of_session, end_s=axis_s)
        self._running.pop(name, None)
        self._latest_s = max(self._latest_s, end_s)
        self._found(host, end_s)
        for key in ("transfers", "routes"):
            if records := trial.get(key):
                self._add_transfers(records)
        for finding in trial.get("findings") or ():
            self._add_finding(finding, now_s)

    def _add_transfers(self, transfers: Any) -> None:  # noqa: ANN401 - a JSON array of objects
        """Add transfers, or routes: summaries of many transfers."""
        groups: dict[str, list[tuple[float, float, int]]] = {}
        for one in transfers:
            mover = str(one.get("mover") or one.get("call") or "")
            counted = self._movers.setdefault(mover, _Mover())
            outcomes = one.get("outcomes")
            counted.transfers += int(one.get("transfers") or 1)
            counted.failed += (
                sum(int(count) for outcome, count in outcomes.items() if outcome != "ok")
                if outcomes
                else int(one.get("outcome", "ok") != "ok")
            )
            if one.get("start_s") is not None and one.get("end_s") is not None:
                span = (float(one["start_s"]), float(one["end_s"]), int(one.get("received_bytes") or 0))
                groups.setdefault(mover, []).append(span)
        for mover, spans in groups.items():
            start_s, end_s = min(span[0] for span in spans), max(span[1] for span in spans)
            self._recent.append(_Group(mover, start_s, end_s, sum(span[2] for span in spans)))
            self._last_transfer_s = max(self._last_transfer_s or 0.0, end_s)
            self._latest_s = max(self._latest_s, end_s)

    def _add_finding(self, finding: Mapping[str, Any], now_s: float) -> None:
        code, host, evidence = str(finding["code"]), finding.get("host"), str(finding.get("evidence") or "")
        self._finding_count += 1
        self._findings.append((code, str(finding.get("subject") or ""), evidence))
        if code == "failed-trials-retried" and finding.get("session", self._session) == self._session:
            self._repeat([trial for trial, (outcome, _) in self._outcomes.items() if outcome != "ok"])
        if code in LOSSES and host is not None:
            match = _TIME.search(evidence)
            lost_s, reason = (float(match[1]), match[2]) if match else (now_s, evidence)
            last_s = self._sampled[host].last_s if host in self._sampled else None
            self._running = {t: start for t, start in self._running.items() if self._host_of(t) != host}
            self._last_loss[str(host)] = lost_s, reason
            if last_s is None or last_s <= lost_s:
                self._lost[str(host)] = lost_s, reason

    def _repeat(self, trials: list[str]) -> None:
        for trial in trials:
            outcome, _ = self._outcomes.pop(trial)
            self._failed -= outcome != "ok"
        if not self._failed:
            self._first_failure = ""
        self._remaining.repeat(trials)

    def _start_trial(self, host: str, trial: str, time_s: float) -> None:
        row = self._trials.get(trial)
        finished = self._outcomes.get(trial)
        if row is None or (finished is not None and finished[1] >= time_s):
            return  # its line of the journal was read first
        # An actor is a sequential program.
        others = {t for t, start_s in self._running.items() if self._trials[t].actor == row.actor
                  and self._host_of(t) == host and start_s <= time_s}  # fmt: skip
        for other in others:
            del self._running[other]
        self._running[trial] = time_s
        self._message = ""
        self._found(host, time_s)

    def _found(self, host: str, time_s: float) -> None:
        """A record of a host that is younger than its loss shows that it is back."""
        if host in self._lost and time_s > self._lost[host][0]:
            del self._lost[host]

    def _host_of(self, trial: str) -> str:
        return self._trials[trial].host

    def _in_window(self, time_s: float) -> list[_Group]:
        while self._recent and self._recent[0].end_s < time_s - RATE_WINDOW_S:
            self._recent.popleft()
        return [one for one in self._recent if one.end_s >= time_s - RATE_WINDOW_S]

    def _running_trials(self, now_s: float) -> list[RunningTrial]:
        return [
            RunningTrial(trial, self._host_of(trial), _factor_text(self._trials[trial].factors), max(now_s - start_s, 0.0))
            for trial, start_s in sorted(self._running.items(), key=lambda item: item[1])
        ]  # fmt: skip

    def _host(self, name: str, now_s: float) -> HostNow:
        sampled = self._sampled.get(name)
        silent_s = max(SILENT_S, SILENT_SAMPLES * self._interval_s)
        quiet_s = now_s - self._arrived_s[name] if name in self._arrived_s else 0.0
        is_silent = self._backend != "sim" and quiet_s > silent_s
        state: HostStateNow
        reason = ""
        if name in self._lost:
            lost_s, why = self._lost[name]
            state, reason = "lost", f"lost at {lost_s:.1f} s: {why}"
        elif self.is_over:
            state = "ended"
        elif not self._session:
            state = "waiting"
        elif is_silent:
            state, reason = "silent", f"no sample for {quiet_s:.0f} s"
        else:
            state = "running"
            lost_s, why = self._last_loss.get(name, (-math.inf, ""))
            if now_s - lost_s < RECENT_LOSS_S:
                reason = f"back after its loss at {lost_s:.1f} s: {why}"
        rates = sampled.rates() if sampled is not None and state == "running" else {}
        cpu = sampled.cpu(self._cores(name)) if sampled is not None and state == "running" else None
        return HostNow(
            name, state, reason, cpu, rates.get("received"), rates.get("sent"), rates.get("loopback"),
            rates.get("read"), rates.get("written"),
        )  # fmt: skip

    def _cores(self, host: str) -> float | None:
        """Return the cores that a host of a lab can use; None for other hosts."""
        lab = ((self._header.get("hosts") or {}).get(host) or {}).get("lab")
        if lab is None:
            return None
        machine = float((self._properties.get(host) or {}).get("cpu.usable") or 0.0)
        limits = [
            value for value in (lab.get("cpu_limit_cores"), float(len(lab.get("cpus") or ())), machine) if value
        ]
        return min(limits, default=None)

    def _links(self) -> tuple[LinkNow, ...]:
        if self.is_over:
            return ()
        found = [LinkNow(name, *now) for host in self._sampled.values() for name, now in host.links().items()]
        return tuple(sorted(found, key=lambda link: link.name))


def _parse(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line.decode())  # faster than json.loads(line), which detects the encoding
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _rate(groups: list[_Group]) -> float | None:
    """Return the bytes of groups over the time from the start of the first to the end of the last."""
    if not groups:
        return None
    span_s = max(one.end_s for one in groups) - min(one.start_s for one in groups)
    return sum(one.bytes for one in groups) / span_s if span_s > 0.0 else None


def _factor_text(factors: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name.removesuffix('_bytes')} {format_bytes(value) if name.endswith('_bytes') else value}"
        for name, value in factors.items()
    )
