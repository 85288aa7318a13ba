"""Data connections of a run: time, windows and losses of each connection in a window of time.

The counters of sender and receiver are combined.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from venturi.advice.series import FloatArray
from venturi.run import Run

__all__ = ["DataFlow", "SocketSeries", "flows_in", "load_connections"]

DATA_FRACTION = 0.98
"""Fraction of the bytes on the largest connections, which are data connections. The rest are control connections."""

MAX_CONNECTIONS = 20_000
"""Maximum number of connections to read. Larger connections come first."""

MAX_RECORDS = 500_000
"""Number of records above which only every n-th record is read, and the first and last of each connection."""

_COUNTS = (
    "sent_bytes",
    "acked_bytes",
    "received_bytes",
    "retransmitted_bytes",
    "busy_s",
    "receive_window_limited_s",
    "send_buffer_limited_s",
)
_GAUGES = (
    "rtt_s",
    "min_rtt_s",
    "cwnd_bytes",
    "mss_bytes",
    "send_window_bytes",
    "send_buffer_bytes",
    "receive_buffer_bytes",
    "pacing_bytes_per_s",
    "ssthresh_bytes",
    "receive_queue_bytes",
    "send_queue_bytes",
    "app_limited",
    "receive_window_bytes",
)


@dataclass(frozen=True, slots=True)
class SocketSeries:
    """One end of a connection, with its records in the order of time.

    Attributes
    ----------
    host, local, remote
        Host of this end, and addresses with ports.
    time_s
        Times of the records. The first one is the estimated start, with all counts at zero.
    counts, gauges
        Cumulative counts, and momentary values (NaN: not recorded).
    """

    host: str
    local: str
    remote: str
    time_s: FloatArray
    counts: Mapping[str, FloatArray]
    gauges: Mapping[str, FloatArray]


@dataclass(frozen=True, slots=True)
class DataFlow:
    """One data connection in a window of time.

    Attributes
    ----------
    sender, receiver
        Hosts. None if the end was not sampled.
    start_s, end_s
        Start and end of its life within the window.
    bytes, sent_bytes, retransmitted_bytes
        Acknowledged, sent and retransmitted bytes.
    busy_s, receive_window_limited_s, send_buffer_limited_s
        Times of the sender. None if the sender was not sampled.
    gauges
        Means of the sender, such as `rtt_s`, `min_rtt_s` and `cwnd_bytes`. `min_rtt_s` is a minimum.
    receiver_gauges
        Means of the receiver, such as `receive_queue_bytes`.
    max_send_window_bytes
        Largest window that the receiver offered.
    """

    sender: str | None
    receiver: str | None
    start_s: float
    end_s: float
    bytes: float
    sent_bytes: float
    retransmitted_bytes: float
    busy_s: float | None
    receive_window_limited_s: float | None
    send_buffer_limited_s: float | None
    gauges: Mapping[str, float]
    receiver_gauges: Mapping[str, float]
    max_send_window_bytes: float | None

    @property
    def alive_s(self) -> float:
        """Life within the window."""
        return self.end_s - self.start_s


def load_connections(run: Run) -> tuple[SocketSeries, ...]:
    """Return the ends of the largest connections between hosts."""
    known = {str(name) for name in run.query("SELECT column_name FROM (DESCRIBE sockets)")["column_name"]}
    gauges = [name for name in _GAUGES if name in known]
    columns = ", ".join(f'"{name}"::DOUBLE AS "{name}"' for name in (*_COUNTS, *gauges))
    rows = run.query(
        rf"""WITH numbered AS (
                SELECT *, coalesce(sum(closed::INTEGER) OVER (PARTITION BY host, "local", remote ORDER BY time_s, closed
                       ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS life FROM sockets
                WHERE regexp_extract("local", '^(.*):\d+$', 1) <> regexp_extract(remote, '^(.*):\d+$', 1)),
             largest AS (
                SELECT host, "local", remote, life FROM numbered GROUP BY ALL
                ORDER BY max(greatest(coalesce(acked_bytes, 0), coalesce(received_bytes, 0))) DESC LIMIT {MAX_CONNECTIONS})
             SELECT host, "local", remote, life, time_s, {columns} FROM numbered SEMI JOIN largest USING (host, "local", remote, life)
             WINDOW w AS (PARTITION BY host, "local", remote, life ORDER BY time_s)
             QUALIFY row_number() OVER w % $every = 0 OR row_number() OVER w = 1 OR lead(time_s) OVER w IS NULL
             ORDER BY host, "local", remote, life, time_s""",
        {"every": 1 + int(run.query("SELECT count(*) AS n FROM sockets")["n"][0]) // MAX_RECORDS},
    )
    keys = list(zip(rows["host"], rows["local"], rows["remote"], rows["life"], strict=True))
    edges = [0, *(i for i in range(1, len(keys)) if keys[i] != keys[i - 1]), len(keys)] if keys else [0]
    return tuple(_connection(rows, gauges, first, last) for first, last in itertools.pairwise(edges))


def _connection(rows: Mapping[str, FloatArray], gauges: Sequence[str], first: int, last: int) -> SocketSeries:
    own = slice(first, last)
    time_s = np.asarray(rows["time_s"][own], dtype=np.float64)
    counts = {name: np.nan_to_num(np.asarray(rows[name][own], dtype=np.float64)) for name in _COUNTS}
    # The start is not recorded. The connection was busy before its first record for the busy time of this record.
    start_s = time_s[0] - max(counts["busy_s"][0], 1e-3)
    return SocketSeries(
        str(rows["host"][first]),
        str(rows["local"][first]),
        str(rows["remote"][first]),
        np.concatenate(([start_s], time_s)),
        {name: np.concatenate(([0.0], np.maximum.accumulate(values))) for name, values in counts.items()},
        {name: np.concatenate(([np.nan], np.asarray(rows[name][own], dtype=np.float64))) for name in gauges},
    )


def flows_in(connections: Sequence[SocketSeries], start_s: float, end_s: float) -> tuple[DataFlow, ...]:
    """Return the data connections that were open in a window of time, largest first."""
    inside = [one for one in connections if one.time_s[0] < end_s and one.time_s[-1] > start_s]
    receivers = {(one.remote, one.local): one for one in inside}
    found: list[DataFlow] = []
    for one in inside:
        grown = _grown(one, start_s, end_s)
        if grown["acked_bytes"] > grown["received_bytes"]:
            found.append(_flow(one, receivers.get((one.local, one.remote)), grown, start_s, end_s))
    seen = {(one.local, one.remote) for one in inside}
    for one in inside:  # Connections without samples of the sender.
        grown = _grown(one, start_s, end_s)
        if (one.remote, one.local) not in seen and grown["received_bytes"] > grown["acked_bytes"]:
            found.append(_flow(None, one, grown, start_s, end_s))
    return tuple(_largest(sorted(found, key=lambda flow: -flow.bytes)))


def _largest(flows: Sequence[DataFlow]) -> Iterator[DataFlow]:
    total = sum(flow.bytes for flow in flows)
    seen = 0.0
    for flow in flows:
        if seen >= DATA_FRACTION * total:
            return
        seen += flow.bytes
        yield flow


def _grown(one: SocketSeries, start_s: float, end_s: float) -> Mapping[str, float]:
    ends = [max(start_s, float(one.time_s[0])), min(end_s, float(one.time_s[-1]))]
    return {name: float(np.diff(np.interp(ends, one.time_s, values))[0]) for name, values in one.counts.items()}


def _means(one: SocketSeries, start_s: float, end_s: float) -> dict[str, float]:
    inside = (one.time_s >= start_s) & (one.time_s <= end_s)
    found = {}
    for name, values in one.gauges.items():
        known = values[inside & np.isfinite(values)]
        if len(known):
            found[name] = float(known.min() if name == "min_rtt_s" else known.mean())
    return found


def _flow(
    sender: SocketSeries | None,
    receiver: SocketSeries | None,
    grown: Mapping[str, float],
    start_s: float,
    end_s: float,
) -> DataFlow:
    one = sender or receiver
    assert one is not None
    windows = sender.gauges.get("send_window_bytes") if sender is not None else None
    known = windows[np.isfinite(windows)] if windows is not None else ()
    return DataFlow(
        sender=sender.host if sender is not None else None,
        receiver=receiver.host if receiver is not None else None,
        start_s=max(start_s, float(one.time_s[0])),
        end_s=min(end_s, float(one.time_s[-1])),
        bytes=grown["acked_bytes"] if sender is not None else grown["received_bytes"],
        sent_bytes=grown["sent_bytes"] if sender is not None else grown["received_bytes"],
        retransmitted_bytes=grown["retransmitted_bytes"],
        busy_s=grown["busy_s"] if sender is not None else None,
        receive_window_limited_s=grown["receive_window_limited_s"] if sender is not None else None,
        send_buffer_limited_s=grown["send_buffer_limited_s"] if sender is not None else None,
        gauges=_means(sender, start_s, end_s) if sender is not None else {},
        receiver_gauges=_means(receiver, start_s, end_s) if receiver is not None else {},
        max_send_window_bytes=float(np.max(known)) if len(known) else None,
    )
