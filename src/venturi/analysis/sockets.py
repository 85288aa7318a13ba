"""TCP connections by connection and by point, as recorded by the kernels of the hosts.

Host, addresses, ports and the life of the pair of ports identify a connection. After the last record of a connection
(``closed``), the same pair is another connection. Counts are cumulative, so the maximum is the last value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from venturi.analysis.result import PointResult
from venturi.analysis.result_lab import SocketSummary
from venturi.run import Run

if TYPE_CHECKING:
    from venturi.analysis.run_columns import RunColumns

__all__ = ["LIVES", "socket_summaries"]

MIN_DATA = 65_536
"""Minimum bytes of a data connection. Control connections stay below, even with certificates."""

LIVES = r"""numbered AS (
        SELECT *, coalesce(sum(closed::INTEGER) OVER (PARTITION BY host, "local", remote ORDER BY time_s, closed
                  ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS life FROM sockets),
    lives AS (
        SELECT host, "local", remote, life, least(min(time_s), max(time_s) - coalesce(max(busy_s), 0.0)) AS first_s, max(time_s) AS last_s, bool_or(closed) AS closed,
               regexp_extract("local", '^(.*):\d+$', 1) = regexp_extract(remote, '^(.*):\d+$', 1) AS loopback,
               max(acked_bytes)::DOUBLE AS acked, max(received_bytes)::DOUBLE AS received, max(sent_bytes)::DOUBLE AS sent,
               max(retransmitted_bytes)::DOUBLE AS retransmitted, max(busy_s) AS busy,
               max(receive_window_limited_s) AS by_window, max(send_buffer_limited_s) AS by_buffer,
               max(cwnd_bytes) AS cwnd, max(mss_bytes) AS mss, min(min_rtt_s) AS least_rtt, any_value(congestion_control) AS congestion_control,
               median(rtt_s) FILTER (flowing) AS rtt, median(delivery_bytes_per_s) FILTER (flowing) AS delivery,
               median(least(cwnd_bytes, send_window_bytes)) FILTER (flowing) AS effective,
               max(least(cwnd_bytes, send_window_bytes)) FILTER (flowing) AS greatest
        FROM (SELECT *, NOT closed AND acked_bytes > 0 AS flowing FROM numbered) GROUP BY host, "local", remote, life)"""
"""SQL of ``lives``: one row per connection and end."""

_BY_POINT = f"""WITH {LIVES},
    data AS (SELECT * FROM lives WHERE acked >= {MIN_DATA} AND acked > coalesce(received, 0)),
    begun AS (SELECT trial, point, start_s FROM trials WHERE start_s IS NOT NULL)
    SELECT begun.point::INTEGER AS point, mode(host) AS host, count(*) AS connections, count(DISTINCT begun.trial) AS trials,
           mode(congestion_control) AS congestion_control, median(effective) AS effective, max(greatest) AS greatest,
           max(cwnd) AS cwnd, median(rtt) AS rtt, min(least_rtt) AS least_rtt,
           sum(retransmitted) / nullif(sum(sent), 0) AS retransmitted, sum(by_window) / nullif(sum(busy), 0) AS by_window,
           sum(by_buffer) / nullif(sum(busy), 0) AS by_buffer, median(delivery) AS delivery
    FROM data ASOF JOIN begun ON data.first_s >= begun.start_s WHERE begun.point IS NOT NULL GROUP BY 1 ORDER BY 1"""


def socket_summaries(run: Run, points: Sequence[PointResult], measured: RunColumns) -> tuple[SocketSummary, ...]:
    """Return the data connections of each point, as seen by their senders.

    A connection belongs to the trial in progress at its first record. If its only record is the last one, the busy time
    gives the start of its data. The result is empty without recorded sockets.
    """
    if int(run.query("SELECT count(*) AS n FROM sockets")["n"][0]) == 0:
        return ()
    rows = run.query(_BY_POINT)
    at = {int(point): index for index, point in enumerate(rows["point"])}
    calls = {measured_point.point: measured_point.calls for measured_point in measured.points}
    return tuple(
        _summary(run.header, point, rows, at[point.point], calls.get(point.point, ()))
        for point in points
        if point.point in at
    )


def _option(header: Mapping[str, Any], calls: Sequence[str], key: str) -> object:
    """Return the value of an option that all calls of a point share. None if they differ or do not have the option."""
    known = header.get("calls") or {}
    requested = {((known.get(call) or {}).get("options") or {}).get(key) for call in calls}
    return requested.pop() if len(requested) == 1 else None


def _made(header: Mapping[str, Any], calls: Sequence[str], host: object) -> str | None:
    """Return the congestion control of a point: the option of its calls, or the setting of its lab host.

    The kernel's last record of a connection omits the congestion control. A connection shorter than the sampling
    interval only has this record. A lab checks the setting beforehand.
    """
    requested = _option(header, calls, "congestion_control")
    lab = ((header.get("hosts") or {}).get(host) or {}).get("lab") or {}
    value = requested or lab.get("congestion_control")
    return None if value is None else str(value)


def _summary(
    header: Mapping[str, Any], point: PointResult, rows: Mapping[str, Any], at: int, calls: Sequence[str]
) -> SocketSummary:
    requested = _option(header, calls, "window_bytes")

    def number(name: str) -> float | None:
        value = rows[name][at]
        return None if value is None or np.isnan(float(value)) else float(value)

    return SocketSummary(
        point=point.point,
        factors=point.factors,
        trials=int(rows["trials"][at]),
        connections=int(rows["connections"][at]),
        congestion_control=rows["congestion_control"][at] or _made(header, calls, rows["host"][at]),
        requested_window_bytes=float(requested) if isinstance(requested, int | float) else None,
        window_bytes=number("effective"),
        greatest_window_bytes=number("greatest"),
        greatest_congestion_window_bytes=number("cwnd"),
        rtt_s=number("rtt"),
        least_rtt_s=number("least_rtt"),
        retransmitted_ratio=number("retransmitted"),
        receive_window_limited_ratio=number("by_window"),
        send_buffer_limited_ratio=number("by_buffer"),
        delivery_bytes_per_s=number("delivery"),
    )
