"""Verdict: the bottleneck of a design point or run, its evidence, and the change that helps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from venturi.units import format_rate, format_rate_ends

__all__ = [
    "CAUSES",
    "NETWORK_CAUSES",
    "Advice",
    "Cause",
    "Counterfactual",
    "Observed",
    "PointGroup",
    "Setting",
    "TimeFraction",
    "Verdict",
]

Cause: TypeAlias = Literal[
    "source-disk",
    "destination-disk",
    "source-cpu",
    "destination-cpu",
    "server-cpu",
    "send-buffer",
    "receive-window",
    "loss",
    "congestion",
    "link",
    "policer",
    "server-slots",
    "file-latency",
    "authentication",
    "client",
    "rate-limit",
    "start-up",
    "lab",
    "unknown",
]

CAUSES: Mapping[Cause, str] = {
    "source-disk": "the source disk",
    "destination-disk": "the destination disk",
    "source-cpu": "the CPU of the source",
    "destination-cpu": "the CPU of the destination",
    "server-cpu": "the CPU of one server process",
    "send-buffer": "the TCP send buffer",
    "receive-window": "the TCP receive window",
    "loss": "packet loss",
    "congestion": "other traffic on the path",
    "link": "the rate of a link or network interface",
    "policer": "a policer or shallow queue",
    "server-slots": "the slots of the server",
    "file-latency": "the latency of each file",
    "authentication": "the authentication",
    "client": "the requests of the client, one after another",
    "rate-limit": "a configured rate limit",
    "start-up": "the start of sessions and connections",
    "lab": "the machine of the lab or the controller",
    "unknown": "no known resource",
}
"""Cause → name for tables and messages. The last one is never a verdict, because it is the time without evidence."""

MAX_WORDS = 25
"""Maximum number of words in the sentence of a verdict."""

NETWORK_CAUSES: frozenset[Cause] = frozenset({"loss", "congestion", "link", "policer"})


@dataclass(frozen=True, slots=True)
class Observed:
    """One observation.

    Attributes
    ----------
    text
        Phrase with its numbers, such as ``link wan: 94 % busy``.
    supports
        Cause that it supports. With ``against``, the cause that it excludes.
    against
        True if it is evidence against the cause.
    """

    text: str
    supports: Cause
    against: bool = False


@dataclass(frozen=True, slots=True)
class TimeFraction:
    """Fraction of the transfer time that one resource explains, 0 to 1."""

    cause: Cause
    resource: str
    fraction: float


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """Predicted rate after one change.

    Attributes
    ----------
    change
        The change as an instruction: ``raise net.ipv4.tcp_rmem of b to 4 MiB``.
    rate_bytes_per_s
        Predicted rate of the same transfers. None if no other resource has a known limit, or if the files are empty.
    low_bytes_per_s, high_bytes_per_s
        Limits of the 80 % interval.
    next_limit
        Resource that limits after the change.
    """

    change: str
    rate_bytes_per_s: float | None
    low_bytes_per_s: float | None
    high_bytes_per_s: float | None
    next_limit: str


@dataclass(frozen=True, slots=True)
class Setting:
    """One change of a host, mover, service or hardware part.

    Attributes
    ----------
    kind
        One of ``sysctl``, ``mover``, ``service``, ``scenario`` and ``hardware``.
    host
        Host to change. Empty for the mover and the scenario.
    change
        The exact change: a command, a key with its value, or the hardware part.
    reason
        Reason why it helps.
    source
        Document that recommends it.
    """

    kind: str
    host: str
    change: str
    reason: str
    source: str


@dataclass(frozen=True, slots=True)
class PointGroup:
    """Design points of a run with the same bottleneck.

    Attributes
    ----------
    cause, resource
        Their bottleneck. The cause is None if the evidence does not decide.
    points
        Design points.
    where
        Factor values that no other point has (``size up to 1 MB``), or the number of points.
    fraction
        Their fraction of the time of the transfers, 0 to 1.
    """

    cause: Cause | None
    resource: str
    points: tuple[int, ...]
    where: str
    fraction: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Bottleneck of a design point, of a run, or of a measured path.

    Attributes
    ----------
    point
        Design point. None for the whole run or path.
    factors
        Factors of the point.
    rate_bytes_per_s
        Throughput of all transfers of a trial together. For a run with several points: all bytes over all time.
    cause, resource
        The bottleneck. The cause is None if the evidence does not decide.
    fraction
        Fraction of the transfer time that the bottleneck explains.
    runner_up
        The next resource. None if no other resource has a fraction.
    confidence
        Estimated probability that the cause is right.
    evidence
        Observations, strongest first.
    fractions
        All resources, largest fraction first. With the fractions too small to list, they add up to 1.
    counterfactual
        Predicted effect of removing this limit.
    settings
        Changes that can help.
    leave_alone
        Settings that are not the limit, each with its reason.
    probe
        Measurement that would decide. None if not needed.
    missing
        Evidence that the run does not have.
    caveats
        Findings that lower the confidence.
    groups
        Design points with the same bottleneck. Empty for a single point, and for a run with a single bottleneck.
    range_bytes_per_s
        Lowest and highest rate of the design points of a run. None for a single point.
    """

    point: int | None
    factors: Mapping[str, object]
    rate_bytes_per_s: float | None
    cause: Cause | None
    resource: str
    fraction: float
    runner_up: TimeFraction | None
    confidence: float
    evidence: tuple[Observed, ...]
    fractions: tuple[TimeFraction, ...]
    counterfactual: Counterfactual | None = None
    settings: tuple[Setting, ...] = ()
    leave_alone: tuple[str, ...] = ()
    probe: str | None = None
    missing: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    groups: tuple[PointGroup, ...] = ()
    range_bytes_per_s: tuple[float, float] | None = None

    @property
    def sentence(self) -> str:
        """Rate and bottleneck in at most 25 words.

        Examples
        --------
        >>> evidence = (Observed("94 % busy", "link"),)
        >>> Verdict(None, {}, 112e6, "link", "the link wan", 0.9, None, 0.95, evidence, ()).sentence
        '112 MB/s, limited by the link wan (94 % busy).'
        >>> groups = (PointGroup("source-disk", "the disk", (1,), "size 1 GB", 0.9), PointGroup("link", "the link", (0,), "size 1 MB", 0.1))
        >>> Verdict(None, {}, 9e6, "source-disk", "the disk", 0.8, None, 0.9, (), (), groups=groups).sentence
        '9 MB/s, limited by the disk (size 1 GB) and the link (size 1 MB).'
        """
        rate = _rate_text(self.rate_bytes_per_s, self.range_bytes_per_s)
        sign = ";" if self.cause is None else ","
        texts = [f"{rate}{sign} {phrase}." for phrase in self.limit_phrases]
        return next((text for text in texts if len(text.split()) <= MAX_WORDS), texts[-1])

    @property
    def limit_phrases(self) -> tuple[str, ...]:
        """The bottleneck as a phrase, in its long form with a reason first and its shortest form last.

        Examples
        --------
        >>> Verdict(None, {}, 112e6, "link", "the link wan", 0.9, None, 0.95, (Observed("94 % busy", "link"),), ()).limit_phrases
        ('limited by the link wan (94 % busy)', 'limited by the link wan')
        """
        if self.cause is None:
            first = self.fractions[0] if self.fractions else None
            guess = f"; most likely {first.resource}" if first is not None and first.cause != "unknown" else ""
            unknown = "the evidence does not show the limit"
            return (f"{unknown}{guess}", unknown) if guess else (unknown,)
        if self.groups:
            return _group_phrases(self.groups)
        reasons = [one.text for one in self.evidence if one.supports == self.cause and not one.against]
        short = [reason.removeprefix(f"{self.resource.removeprefix('the ')}: ") for reason in reasons[:1]]
        # A long reason ends at its first part.
        short += [re.split("[;:,]", reason)[0] for reason in short]
        return (
            *dict.fromkeys(f"limited by {self.resource} ({reason})" for reason in short),
            f"limited by {self.resource}",
        )


def _rate_text(rate: float | None, ends: tuple[float, float] | None) -> str:
    """Return the rate. Design points have a range of rates, never a mean over points."""
    if ends is not None:
        return format_rate_ends(*ends)
    return "No rate" if rate is None else format_rate(rate)


def _group_phrases(groups: tuple[PointGroup, ...]) -> tuple[str, ...]:
    """Return the bottlenecks of groups of points: all of them first, then fewer with the number of the other points."""
    decided = [group for group in groups if group.cause is not None]
    texts = []
    for shown in range(len(decided), 0, -1):
        limits = [f"{group.resource} ({group.where})" for group in decided[:shown]]
        listed = " and ".join([*filter(None, [", ".join(limits[:-1])]), limits[-1]])
        others = [group for group in groups if group not in decided[:shown]]
        hidden = sum(len(group.points) for group in others)
        state = "see the table" if any(group.cause for group in others) else "not decided"
        rest = f"; {hidden} other point{'' if hidden == 1 else 's'}: {state}" if hidden else ""
        texts.append(f"limited by {listed}{rest}")
    return (*texts, f"limited by {len(decided)} resources: see the table of the points")


@dataclass(frozen=True, slots=True)
class Advice:
    """Verdicts of a run.

    Attributes
    ----------
    version
        Version of Venturi that made the verdicts.
    backend
        Backend of the run: ``hosts``, ``lab`` or ``sim``. A measured path has ``path``.
    run
        Verdict of the whole run.
    points
        Verdict of each design point, in their order.
    """

    version: str
    backend: str
    run: Verdict
    points: tuple[Verdict, ...]
