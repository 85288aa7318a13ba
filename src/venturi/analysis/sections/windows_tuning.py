"""Comparison of a route with other TCP settings of its hosts or other I/O blocks: figures 15, 17, 19 and 20 of document 004.

A route connects two sites, and hosts of one site may differ in their TCP settings. Points that are otherwise equal are
compared with the first of them in the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from venturi.analysis.result import About
from venturi.analysis.section import Column, Scalar, Table
from venturi.analysis.windows import WindowPoint
from venturi.testbed.profiles import DEFAULT_PROFILE

__all__ = ["tuning_table"]


class _Kind(NamedTuple):
    """Common properties of points that are compared."""

    route: str
    mover: str
    streams: int
    size_bytes: int
    requested_bytes: int


class _Setting(NamedTuple):
    """Properties that differ between compared points."""

    tcp: str
    block_bytes: int | None


def tuning_table(points: Iterable[WindowPoint], about: About) -> Table | None:
    """Return the comparison of points with different TCP settings or blocks, or ``None`` if there are none."""
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
    return Table("window-tuning", "Route with different TCP settings and blocks", _COLUMNS, tuple(rows), _NOTE)


_COLUMNS = (
    Column("mover", "tool"), Column("streams", "streams"), Column("requested_window_bytes", "requested window"), Column("tcp", "TCP settings"),
    Column("gain_ratio", "throughput, after ÷ before"), Column("first_window_bytes", "window before"), Column("window_in_effect_bytes", "effective window"),
    Column("first_bit_per_s", "throughput before"), Column("rate_bit_per_s", "throughput"), Column("changed", "changed"),
    Column("block_bytes", "I/O block"), Column("size_bytes", "file"), Column("route", "route"),
)  # fmt: skip
_NOTE = (
    "Before: the first settings of the plan. Without a requested window, the kernel chooses the window, up to the largest buffer of the TCP "
    "settings. They do not limit a requested window."
)


def _kind(point: WindowPoint, hosts: Mapping[str, Any]) -> _Kind:
    ends = (str((hosts.get(host) or {}).get("site") or host) for host in (point.route.sender, point.route.receiver))
    return _Kind(" to ".join(ends), point.mover, point.streams, point.size_bytes, point.requested_bytes or 0)


def _profile(point: WindowPoint, hosts: Mapping[str, Any]) -> str:
    """Return the names of the TCP settings of both hosts, or one name if they are equal."""
    ends = (
        str((hosts.get(host) or {}).get("tcp") or DEFAULT_PROFILE)
        for host in (point.route.sender, point.route.receiver)
    )
    return " to ".join(dict.fromkeys(ends))


def _row(kind: _Kind, base: WindowPoint, other: WindowPoint, hosts: Mapping[str, Any]) -> tuple[Scalar, ...]:
    before, after = (_Setting(_profile(point, hosts), point.block_bytes) for point in (base, other))
    return (
        kind.mover, kind.streams, other.requested_bytes, after.tcp, other.rate_bit_per_s / base.rate_bit_per_s, base.window_bytes, other.window_bytes,
        base.rate_bit_per_s, other.rate_bit_per_s, _changed(before, after), after.block_bytes, kind.size_bytes, kind.route,
    )  # fmt: skip


def _changed(before: _Setting, after: _Setting) -> str:
    names: Sequence[str] = ("TCP settings", "I/O block")
    return (
        " and ".join(name for name, old, new in zip(names, before, after, strict=True) if old != new) or "the hosts"
    )
