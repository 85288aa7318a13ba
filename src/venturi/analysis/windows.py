r"""Throughput against the TCP window: requested window, window in effect, and the limit of n windows per round trip.

A sender can have one window in flight and must then wait for a round trip, so *n* streams carry no more than

.. math:: R = \min(B,\; n W / T)

======  ==========================================================================================
symbol  meaning
======  ==========================================================================================
W       window of one stream, in bytes: requested, or in effect (median of TCP_INFO while data flowed)
T       round-trip time without queues, in seconds: delays of the route, or the minimum that TCP saw
B       capacity of the slowest link of the route, in bit/s, headers included
R       rate, in bit/s
======  ==========================================================================================

Sources: 004, section c; RFC 7323, section 1.1.

A sender limited by a window only sends whole segments, so W counts as a multiple of the segment size, or unchanged if
it is below one segment. The effect of a window is visible in the rate *while data flowed*, which TCP estimates
(delivery rate). The throughput of a whole transfer also includes the login and the start of TCP.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from venturi.analysis.network import route_rate_and_rtt
from venturi.analysis.sockets import LIVES, MIN_DATA
from venturi.run import Run
from venturi.units import BITS_PER_BYTE

__all__ = ["Route", "WindowPoint", "window_points"]


@dataclass(frozen=True, slots=True)
class Route:
    """Route from a sending host to a receiving host. Rate and round-trip time are None if unknown."""

    sender: str
    receiver: str
    rate_bit_per_s: float | None
    rtt_s: float | None

    @property
    def name(self) -> str:
        """Names of its two hosts."""
        return f"{self.sender} to {self.receiver}"

    @property
    def bdp_bytes(self) -> float | None:
        """Bandwidth-delay product: bytes in flight when the link is full."""
        known = self.rate_bit_per_s is not None and self.rtt_s is not None
        return self.rate_bit_per_s * self.rtt_s / BITS_PER_BYTE if known else None  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class WindowPoint:
    """One sweep point whose transfers crossed one route.

    Attributes
    ----------
    streams, connections
        Requested streams, and observed data connections of a trial (median).
    requested_bytes, window_bytes
        Requested window of one stream and its window in effect. None if not requested or not observed.
    rate_bit_per_s, error_bit_per_s
        Bytes over the time of a whole trial: mean and standard error over the trials. No error for a single trial.
    mss_bytes
        Size of a segment.
    flow_bit_per_s
        Delivery rate of the sockets while data flowed: sum over the connections of the median, median of the trials.
    by_window_ratio, by_buffer_ratio
        Fractions of the busy time with the sender limited by the receiver's window, or by its own buffer.
    """

    point: int
    route: Route
    mover: str
    streams: int
    block_bytes: int | None
    size_bytes: int
    requested_bytes: int | None
    trials: int
    rate_bit_per_s: float
    error_bit_per_s: float | None
    connections: float | None = None
    window_bytes: float | None = None
    mss_bytes: float | None = None
    flow_bit_per_s: float | None = None
    rtt_s: float | None = None
    by_window_ratio: float | None = None
    by_buffer_ratio: float | None = None

    @property
    def requested_limit_bit_per_s(self) -> float | None:
        """n · W / T with the requested window and the requested streams."""
        return _limit(self.streams, self.requested_bytes, self.route.rtt_s)

    @property
    def limit_bit_per_s(self) -> float | None:
        """n · W / T with the observed connections and the whole segments of the window in effect.

        A window below one segment counts unchanged.
        """
        window, mss = self.window_bytes, self.mss_bytes
        if window is not None and mss:
            window = window // mss * mss or window
        return _limit(self.connections, window, self.route.rtt_s)

    @property
    def expected_bit_per_s(self) -> float | None:
        """R: the smaller limit of the link and the window in effect."""
        known = [rate for rate in (self.limit_bit_per_s, self.route.rate_bit_per_s) if rate is not None]
        return min(known) if self.limit_bit_per_s is not None else None


def _limit(streams: float | None, window: float | None, rtt_s: float | None) -> float | None:
    return BITS_PER_BYTE * streams * window / rtt_s if streams and window and rtt_s else None


_TRIALS = """
    SELECT trial, any_value(point)::INTEGER AS point, any_value(call) AS call, any_value(host) AS host,
           split_part(coalesce(any_value(source_via), ''), '/', 1) AS source_service,
           split_part(coalesce(any_value(destination_via), ''), '/', 1) AS destination_service, max(requested_bytes)::BIGINT AS size,
           8 * sum(coalesce(received_bytes, requested_bytes)) / (max(end_s) - min(start_s)) AS rate
    FROM transfers
    WHERE outcome = 'ok' AND point IS NOT NULL AND requested_bytes > 0 AND end_s > start_s
    GROUP BY trial HAVING count(DISTINCT call) = 1 ORDER BY point, trial"""

_SOCKETS = f"""WITH {LIVES},
    data AS (SELECT * FROM lives WHERE acked >= {MIN_DATA} AND acked > coalesce(received, 0)),
    begun AS (SELECT trial, start_s FROM trials WHERE start_s IS NOT NULL AND point IS NOT NULL)
    SELECT begun.trial AS trial, count(*) AS connections, median(effective) AS window_bytes,
           median(mss) AS mss, 8 * sum(delivery) AS flow, median(rtt) AS rtt, min(least_rtt) AS least_rtt,
           sum(by_window) / nullif(sum(busy), 0) AS by_window, sum(by_buffer) / nullif(sum(busy), 0) AS by_buffer
    FROM data ASOF JOIN begun ON data.first_s >= begun.start_s GROUP BY 1"""


def window_points(run: Run) -> tuple[WindowPoint, ...]:
    """Return the points whose trials have calls of one kind from one host to another, in the order of the plan.

    Movers without a window option are included, because their window in effect is known too.
    """
    rows = run.query(_TRIALS)
    seen = _by_trial(run)
    of_point: dict[int, list[int]] = {}
    for index, point in enumerate(rows["point"]):
        of_point.setdefault(int(point), []).append(index)
    found = (_point(run, point, rows, own, seen) for point, own in of_point.items())
    return tuple(point for point in found if point is not None)


def _by_trial(run: Run) -> dict[str, dict[str, float]]:
    rows = run.query(_SOCKETS)
    names = [name for name in rows if name != "trial"]
    return {
        str(trial): {name: _number(rows[name][index]) for name in names} for index, trial in enumerate(rows["trial"])
    }


def _point(
    run: Run, point: int, rows: Mapping[str, Any], own: Sequence[int], seen: Mapping[str, Mapping[str, float]]
) -> WindowPoint | None:
    first = own[0]
    services = run.header.get("services") or {}
    sender, receiver = (
        str((services.get(rows[side][first]) or {}).get("host") or rows["host"][first])
        for side in ("source_service", "destination_service")
    )
    if sender == receiver:
        return None
    call = (run.header.get("calls") or {}).get(rows["call"][first]) or {}
    options = call.get("options") or {}
    rates = np.array([rows["rate"][index] for index in own], dtype=np.float64)
    sockets = [seen[trial] for trial in (str(rows["trial"][index]) for index in own) if trial in seen]

    def median(name: str) -> float | None:
        values = [row[name] for row in sockets if not math.isnan(row[name])]
        return float(np.median(values)) if values else None

    rate, rtt = route_rate_and_rtt(run, sender, receiver)
    least = min((row["least_rtt"] for row in sockets if not math.isnan(row["least_rtt"])), default=None)
    return WindowPoint(
        point=point,
        route=Route(sender, receiver, rate, rtt if rtt is not None else least),
        mover=str(call.get("mover") or "?"),
        streams=int(options.get("streams") or 1),
        block_bytes=options.get("block_bytes"),
        size_bytes=int(rows["size"][first]),
        requested_bytes=options.get("window_bytes"),
        trials=len(rates),
        rate_bit_per_s=float(rates.mean()),
        error_bit_per_s=float(rates.std(ddof=1) / math.sqrt(len(rates))) if len(rates) > 1 else None,
        connections=median("connections"),
        window_bytes=median("window_bytes"),
        mss_bytes=median("mss"),
        flow_bit_per_s=median("flow"),
        rtt_s=median("rtt"),
        by_window_ratio=median("by_window"),
        by_buffer_ratio=median("by_buffer"),
    )


def _number(value: object) -> float:
    return math.nan if value is None else float(value)  # type: ignore[arg-type]
