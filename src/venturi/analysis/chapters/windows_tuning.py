"""The same route with other TCP settings of its hosts, or in other I/O blocks: figures 19 and 20 of document 004 beside 15 and 17.

A route is from a site to a site; hosts of one site may differ in their TCP settings. Of the points that have all else in common the first in the plan is
what the others are held against.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from venturi.analysis.chapter import Column, Scalar, Table
from venturi.analysis.result import About
from venturi.analysis.windows import WindowPoint
from venturi.testbed.profiles import DEFAULT_PROFILE

__all__ = ["tuning_table"]


class _Kind(NamedTuple):
    """What points have in common that are held against each other."""

    route: str
    mover: str
    streams: int
    size_bytes: int
    asked_bytes: int


class _Setting(NamedTuple):
    """What they differ in."""

    tcp: str
    block_bytes: int | None


def tuning_table(points: Iterable[WindowPoint], about: About) -> Table | None:
    """Return the points beside those with other TCP settings or blocks; ``None`` if there are none."""
    hosts: Mapping[str, Any] = (about.scenario.get("testbed") or {}).get("host") or {}
    found = sorted(points, key=lambda point: (_kind(point, hosts), point.point))
    if len({_profile(point, hosts) for point in found}) < 2:
        return None
    rows: list[tuple[Scalar, ...]] = []
    for kind, own in groupby(found, key=lambda point: _kind(point, hosts)):
        base, *others = own
        rows += [_row(kind, base, other, hosts) for other in others]
    if not rows:
        return None
    return Table("window-tuning", "The same route with other TCP settings and blocks", _COLUMNS, tuple(rows), _NOTE)


_COLUMNS = (
    Column("mover", "tool"), Column("streams", "streams"), Column("window_asked_bytes", "window asked for"), Column("tcp", "TCP settings"),
    Column("gain_ratio", "more by"), Column("first_window_bytes", "window before"), Column("window_in_effect_bytes", "window in effect"),
    Column("first_bit_per_s", "throughput before"), Column("rate_bit_per_s", "throughput"), Column("changed", "changed"),
    Column("block_bytes", "I/O block"), Column("size_bytes", "file"), Column("route", "route"),
)  # fmt: skip
_NOTE = (
    "Before: with what stands first in the plan. More by: a factor. Without a window asked for the kernel chooses it, up to the largest "
    "buffer of the TCP settings; what is asked for they do not limit."
)


def _kind(point: WindowPoint, hosts: Mapping[str, Any]) -> _Kind:
    ends = (str((hosts.get(host) or {}).get("site") or host) for host in (point.route.sender, point.route.receiver))
    return _Kind(" to ".join(ends), point.mover, point.streams, point.size_bytes, point.asked_bytes or 0)


def _profile(point: WindowPoint, hosts: Mapping[str, Any]) -> str:
    """Return the TCP settings of both ends by name, once where they are the same."""
    ends = (
        str((hosts.get(host) or {}).get("tcp") or DEFAULT_PROFILE)
        for host in (point.route.sender, point.route.receiver)
    )
    return " to ".join(dict.fromkeys(ends))


def _row(kind: _Kind, base: WindowPoint, other: WindowPoint, hosts: Mapping[str, Any]) -> tuple[Scalar, ...]:
    before, after = (_Setting(_profile(point, hosts), point.block_bytes) for point in (base, other))
    return (
        kind.mover, kind.streams, other.asked_bytes, after.tcp, other.rate_bit_per_s / base.rate_bit_per_s, base.window_bytes, other.window_bytes,
        base.rate_bit_per_s, other.rate_bit_per_s, _changed(before, after), after.block_bytes, kind.size_bytes, kind.route,
    )  # fmt: skip


def _changed(before: _Setting, after: _Setting) -> str:
    names: Sequence[str] = ("TCP settings", "I/O block")
    return (
        " and ".join(name for name, old, new in zip(names, before, after, strict=True) if old != new) or "the hosts"
    )
