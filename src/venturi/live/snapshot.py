"""Snapshot of a run at one time: plain data for the page, the terminal and tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from venturi.live.remaining import TimeLeft

__all__ = ["HostNow", "HostStateNow", "LinkNow", "MoverNow", "RunningTrial", "Snapshot", "VerdictNow", "ViewState"]

ViewState = Literal["running", "complete", "stopped", "failed", "lost"]
"""``"lost"``: the controller ended without a record, such as after a kill. ``"failed"``: it reported an error."""

HostStateNow = Literal["waiting", "running", "silent", "lost", "ended"]
"""``"silent"``: no sample for some seconds. ``"lost"``: the controller has reported the loss of its agent or shell."""


@dataclass(frozen=True, slots=True)
class HostNow:
    """A host at one time. Rates are in bytes per second; None without counters.

    Attributes
    ----------
    state, reason
        State, and why it is or was silent or lost; "" otherwise.
    cpu
        Busy fraction of the CPU of the host, 0 to 1.
    received, sent
        Network without loopback.
    loopback
        Bytes between programs of the host.
    read, written
        Disks.
    """

    name: str
    state: HostStateNow
    reason: str
    cpu: float | None
    received: float | None
    sent: float | None
    loopback: float | None
    read: float | None
    written: float | None


@dataclass(frozen=True, slots=True)
class LinkNow:
    """An emulated link at one time: bytes per second, and its busy fraction of the time, 0 to 1."""

    name: str
    bytes_per_s: float
    busy: float | None


@dataclass(frozen=True, slots=True)
class MoverNow:
    """A mover: its transfers so far, and the rate of its transfers that ended in the last seconds (None: no transfer)."""

    name: str
    transfers: int
    failed: int
    bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class RunningTrial:
    """A trial in progress. Times are in seconds."""

    trial: str
    host: str
    factors: str
    running_s: float


@dataclass(frozen=True, slots=True)
class VerdictNow:
    """The verdict of the finished trials.

    Attributes
    ----------
    sentence
        The verdict. "" before the first one.
    trials
        Finished trials that it covers.
    note
        When the next verdict follows, or why there is none.
    """

    sentence: str = ""
    trials: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A run at one time.

    Attributes
    ----------
    path, name, backend
        Run directory, name of the scenario, and backend.
    controller
        Process that makes the run, such as ``"PID 71 on node1"``. "" before it is known.
    state, reason
        State of the run, and why it stopped or failed; "" otherwise.
    phase
        Current activity.
    time_s, elapsed_s
        Time of the snapshot since the epoch of the run, and duration of the session. Seconds.
    fraction_done
        Finished fraction, 0 to 1.
    left
        Time left; None if nothing is known.
    bytes_per_s
        Rate of the transfers that ended in the last seconds, from the start of the first to the end of the last. None if
        none ended.
    quiet_s
        Time since the end of the last transfer. None before the first one. Seconds.
    trials_done, trials_total, trials_failed
        Trials of the plan.
    points_done, points
        Design points of the plan.
    running
        Trials in progress, with the oldest first.
    hosts, links, movers
        Rates now.
    findings
        Number of findings, and the last ones as code, subject and evidence.
    first_failure
        Reason of the first failed transfer. "" if none failed.
    """

    path: str
    name: str
    backend: str
    controller: str
    state: ViewState
    reason: str
    phase: str
    time_s: float
    elapsed_s: float
    fraction_done: float
    left: TimeLeft | None
    bytes_per_s: float | None
    quiet_s: float | None
    trials_done: int
    trials_total: int
    trials_failed: int
    points_done: int
    points: int
    running: tuple[RunningTrial, ...]
    hosts: tuple[HostNow, ...]
    links: tuple[LinkNow, ...]
    movers: tuple[MoverNow, ...]
    findings: tuple[int, tuple[tuple[str, str, str], ...]]
    first_failure: str
    verdict: VerdictNow
