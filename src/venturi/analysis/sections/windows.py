"""Throughput against the TCP window: figures 8 to 20 and table 5 of document 004, from any run that requests several windows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from venturi.analysis.format import plural
from venturi.analysis.result import About
from venturi.analysis.section import Column, Figure, Panel, ReportSection, Scalar, Series, Table
from venturi.analysis.sections.windows_tuning import tuning_table
from venturi.analysis.windows import Route, WindowPoint, window_points
from venturi.errors import SampleError
from venturi.run import Run
from venturi.stats import Saturation, saturation_point
from venturi.study import study
from venturi.units import format_bytes_exact

__all__ = ["THRESHOLD_FRACTION", "windows_section"]

THRESHOLD_FRACTION = 0.10
"""Fraction of the best rate that may be missing at the threshold. Logins and first round trips take part of a short transfer."""

CLOSE_FRACTION = 0.8
"""Fraction of the link rate below which n · W / T is compared. Closer to the link rate, queues influence the rate."""

LIMITED_FRACTION = 0.7
"""Minimum fraction of the time that the window, or a buffer of the same size, limits a sender.

Short transfers end before TCP has opened the window.
"""

_ROUTES, _WINDOWS = "004-routes", "004-windows"


class _Key(NamedTuple):
    """Common properties of the points of one curve."""

    route: Route
    mover: str
    streams: int
    block_bytes: int | None
    size_bytes: int


class _Curve(NamedTuple):
    """Points by ascending window, with their saturation; None if there are fewer than three windows."""

    key: _Key
    points: tuple[WindowPoint, ...]
    saturation: Saturation | None


class _Published(NamedTuple):
    """Published rows: routes by site, thresholds by site and streams."""

    routes: Mapping[str, Mapping[str, Scalar]]
    thresholds: Mapping[tuple[str, Scalar], Mapping[str, Scalar]]


def windows_section(run: Run, about: About) -> ReportSection | None:
    """Return the section of a run with at least two requested windows; otherwise None."""
    points = window_points(run)
    if len({point.requested_bytes for point in points if point.requested_bytes is not None}) < 2:
        return None
    curves = tuple(_curves(points))
    published = _published(about)
    tuning = tuning_table(points, about)
    return ReportSection(
        name="windows",
        title="Throughput against the TCP window",
        sentence=_sentence(points, curves),
        tables=(
            _routes_table(points, published),
            _points_table(points),
            _thresholds_table(curves, published),
            *([tuning] if tuning else []),
        ),
        figures=tuple(_figures(curves, about)),
    )


def _curves(points: Iterable[WindowPoint]) -> Iterable[_Curve]:
    requesting = [point for point in points if point.requested_bytes is not None]
    requesting.sort(key=lambda point: (*_order(_key(point)), point.requested_bytes))
    for key, own in groupby(requesting, key=_key):
        members = tuple(own)
        yield _Curve(key, members, _saturation(members))


def _key(point: WindowPoint) -> _Key:
    return _Key(point.route, point.mover, point.streams, point.block_bytes, point.size_bytes)


def _order(key: _Key) -> tuple[str, str, int, int, int]:
    return key.mover, key.route.name, key.streams, key.block_bytes or 0, key.size_bytes


def _saturation(points: Sequence[WindowPoint]) -> Saturation | None:
    errors = [point.error_bit_per_s for point in points]
    known = [error for error in errors if error is not None]
    try:
        return saturation_point(
            [float(point.requested_bytes or 0) for point in points], [point.rate_bit_per_s for point in points],
            known if len(known) == len(points) else None, tolerance=THRESHOLD_FRACTION,
        )  # fmt: skip
    except SampleError:  # too few windows
        return None


def _published(about: About) -> _Published:
    """Return the published routes and thresholds of the study of a run."""
    if about.study is None:
        return _Published({}, {})
    tables = {table.id: table.rows for table in study(about.study).published.evidence}
    return _Published(
        {str(row["site"]).lower(): row for row in tables.get(_ROUTES, ())},
        {(str(row["site"]).lower(), row["streams"]): row for row in tables.get(_WINDOWS, ())},
    )


def _site(route: Route) -> str:
    """Return the site of a route as in the published tables, which is the first part of the receiving host's name."""
    return route.receiver.split("-")[0]


# ---- sentence


def _sentence(points: Sequence[WindowPoint], curves: Sequence[_Curve]) -> str:
    saturated = [curve for curve in curves if curve.saturation is not None]
    found = [
        c.saturation.load
        for c in saturated
        if c.saturation and c.saturation.outcome == "reached" and c.saturation.load
    ]
    text = f"{len(found)} of {plural(len(curves), 'curve')} of throughput against the window saturate within the requested windows"
    if found:
        low, high = format_bytes_exact(round(min(found))), format_bytes_exact(round(max(found)))
        text += f", at {low}" if low == high else f", at {low} to {high} per stream"
    ratios = _measured_ratios(points)
    if ratios:
        text += (
            f". If the window was the limit, the sockets delivered {min(ratios):.2f} to {max(ratios):.2f} of n · W / RTT, "
            f"with the effective window W ({plural(len(ratios), 'point')})"
        )
    return text + "."


def _measured_ratios(points: Iterable[WindowPoint]) -> list[float]:
    """Return the ratio of flow to n · W / T for the points that are limited by the window and not by the link.

    The kernel's counters decide whether the window is the limit.
    """
    return [
        point.flow_bit_per_s / point.limit_bit_per_s
        for point in points
        if point.flow_bit_per_s and point.limit_bit_per_s and point.requested_bytes is not None
        and (point.by_window_ratio or 0.0) + (point.by_buffer_ratio or 0.0) >= LIMITED_FRACTION
        and (point.route.rate_bit_per_s is None or point.limit_bit_per_s < CLOSE_FRACTION * point.route.rate_bit_per_s)
    ]  # fmt: skip


# ---- tables

_WHICH = (
    Column("route", "route"), Column("mover", "tool"), Column("streams", "streams"), Column("block_bytes", "I/O block"),
    Column("size_bytes", "file"),
)  # fmt: skip


def _which(key: _Key) -> tuple[Scalar, ...]:
    return key.route.name, key.mover, key.streams, key.block_bytes, key.size_bytes


def _points_table(points: Sequence[WindowPoint]) -> Table:
    columns = (
        *_WHICH,
        Column("requested_window_bytes", "requested window"),
        Column("window_in_effect_bytes", "effective window"),
        Column("connections", "connections"),
        Column("trials", "trials"),
        Column("rate_bit_per_s", "throughput"),
        Column("error_bit_per_s", "standard error"),
        Column("flow_bit_per_s", "rate while data flowed"),
        Column("limit_requested_bit_per_s", "n · W / RTT, requested"),
        Column("limit_bit_per_s", "n · W / RTT, effective"),
        Column("flow_to_expected_ratio", "rate while data flowed ÷ expected"),
        Column("rtt_s", "RTT while data flowed"),
        Column("held_by_window_ratio", "fraction of time limited by the window"),
        Column("held_by_buffer_ratio", "fraction of time limited by the send buffer"),
    )
    rows = tuple(
        (
            *_which(_key(point)), point.requested_bytes, point.window_bytes, point.connections, point.trials, point.rate_bit_per_s,
            point.error_bit_per_s, point.flow_bit_per_s, point.requested_limit_bit_per_s, point.limit_bit_per_s,
            _ratio(point.flow_bit_per_s, point.expected_bit_per_s), point.rtt_s, point.by_window_ratio, point.by_buffer_ratio,
        )
        for point in sorted(points, key=lambda point: (*_order(_key(point)), point.requested_bytes or 0))
    )  # fmt: skip
    note = (
        "The throughput is that of whole trials, including logins, with its standard error over the trials. Effective window, RTT and the rate while data "
        "flowed (delivery rate) are medians of TCP_INFO of the data connections while data flowed. n · W / RTT uses the round-trip time without queues; "
        "its effective value counts only the whole segments that fit into the window. Expected: the lower of this value and the link rate."
    )
    return Table("window-points", "Throughput by window", columns, rows, note)


def _thresholds_table(curves: Sequence[_Curve], published: _Published) -> Table:
    columns = (
        *_WHICH,
        Column("outcome", "saturation"),
        Column("threshold_bytes", "threshold (window per stream)"),
        Column("threshold_low_bytes", "at least"),
        Column("threshold_high_bytes", "at most"),
        Column("in_flight_bytes", "threshold × streams"),
        Column("bdp_bytes", "BDP"),
        Column("in_flight_to_bdp_ratio", "threshold × streams ÷ BDP"),
        Column("best_rate_bit_per_s", "best throughput"),
        Column("gain_ratio", "throughput, largest ÷ smallest window"),
        Column("printed_threshold_bytes", "threshold, large files", published=True),
        Column("printed_gain_ratio", "throughput, largest ÷ smallest window", published=True),
    )
    rows = tuple(_threshold_row(curve, published) for curve in curves)
    note = (
        f"The threshold is the smallest requested window whose throughput is within {100 * THRESHOLD_FRACTION:.0f} % of the best of its curve; "
        'its limits follow from the standard errors. "not reached": only the largest window is within this range.'
    )
    return Table("window-thresholds", "Saturation by window", columns, rows, note)


def _threshold_row(curve: _Curve, published: _Published) -> tuple[Scalar, ...]:
    found = curve.saturation
    at = found.load if found else None
    in_flight = at * curve.key.streams if at else None
    rates = [point.rate_bit_per_s for point in curve.points]
    printed = published.thresholds.get((_site(curve.key.route), curve.key.streams), {})
    return (
        *_which(curve.key),
        found.outcome if found else "too few windows",
        at,
        found.load_low if found else None,
        found.load_high if found else None,
        in_flight,
        curve.key.route.bdp_bytes,
        _ratio(in_flight, curve.key.route.bdp_bytes),
        max(rates),
        _ratio(rates[-1], rates[0]) if len(rates) > 1 else None,
        printed.get("threshold_bytes"),
        printed.get("gain_ratio"),
    )


def _routes_table(points: Sequence[WindowPoint], published: _Published) -> Table:
    columns = (
        Column("route", "route"),
        Column("rtt_s", "RTT"),
        Column("rate_bit_per_s", "bandwidth"),
        Column("bdp_bytes", "BDP"),
        Column("best_flow_bit_per_s", "highest rate while data flowed"),
        Column("printed_rtt_s", "RTT", published=True),
        Column("printed_rate_bit_per_s", "bandwidth", published=True),
        Column("printed_bdp_bytes", "BDP", published=True),
        Column("preferred_rate_bit_per_s", "bandwidth, preferred reading", published=True),
        Column("preferred_bdp_bytes", "BDP, preferred reading", published=True),
    )
    printed_columns = (
        "rtt_s",
        "bandwidth_printed_bit_per_s",
        "bdp_printed_bytes",
        "bandwidth_preferred_bit_per_s",
        "bdp_preferred_bytes",
    )
    rows = []
    for route in dict.fromkeys(point.route for point in sorted(points, key=lambda point: point.route.name)):
        flows = [point.flow_bit_per_s for point in points if point.route == route and point.flow_bit_per_s]
        row = published.routes.get(_site(route), {})
        rows.append(
            (
                route.name,
                route.rtt_s,
                route.rate_bit_per_s,
                route.bdp_bytes,
                max(flows, default=None),
                *(row.get(name) for name in printed_columns),
            )
        )
    return Table("window-routes", "Routes", columns, tuple(rows))


def _ratio(over: float | None, under: float | None) -> float | None:
    return over / under if over is not None and under else None


# ---- figures


def _figures(curves: Sequence[_Curve], about: About) -> Iterable[Figure]:
    """Yield one figure for each route and tool, with a panel for each number of streams and a curve for each file size."""
    for (mover, name), own in groupby(curves, key=lambda curve: (curve.key.mover, curve.key.route.name)):
        panels = tuple(
            _panel(tuple(members))
            for _, members in groupby(own, key=lambda curve: (curve.key.streams, curve.key.block_bytes))
        )
        yield Figure(
            name=f"windows-{mover}-{name.replace(' ', '-')}",
            title=f"{mover}, {name}",
            panels=panels,
            caption="Throughput of whole trials (mean, one standard error to either side) against the requested window, and the lower of "
            "n · W / RTT and the link.",
            source="004, figures 8 to 20" if about.study is not None and _is_of_004(about.study) else "",
        )


def _is_of_004(name: str) -> bool:
    return study(name).document == "004"


def _panel(curves: Sequence[_Curve]) -> Panel:
    key = curves[0].key
    block = f", blocks of {format_bytes_exact(key.block_bytes)}" if key.block_bytes else ""
    measured = [
        Series(
            name=format_bytes_exact(curve.key.size_bytes),
            x=tuple(float(point.requested_bytes or 0) for point in curve.points),
            y=tuple(point.rate_bit_per_s for point in curve.points),
            low=_shifted(curve.points, -1),
            high=_shifted(curve.points, +1),
        )
        for curve in curves
    ]
    longest = max(curves, key=lambda curve: len(curve.points)).points
    bottleneck = [(float(point.requested_bytes or 0), _bound(point)) for point in longest]
    if all(value is not None for _, value in bottleneck):
        measured.append(
            Series("n · W / RTT, or the link", tuple(x for x, _ in bottleneck), tuple(y for _, y in bottleneck))
        )
    return Panel(
        f"{plural(key.streams, 'stream')}{block}", "window_bytes", "rate_bit_per_s", tuple(measured), x_log=True
    )


def _bound(point: WindowPoint) -> float | None:
    known = [rate for rate in (point.requested_limit_bit_per_s, point.route.rate_bit_per_s) if rate is not None]
    return min(known) if point.requested_limit_bit_per_s is not None else None


def _shifted(points: Sequence[WindowPoint], sign: int) -> tuple[float | None, ...]:
    if all(point.error_bit_per_s is None for point in points):
        return ()
    return tuple(point.rate_bit_per_s + sign * (point.error_bit_per_s or 0.0) for point in points)
