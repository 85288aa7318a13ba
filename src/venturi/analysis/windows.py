r"""Throughput against the TCP window: what was asked for, what was in effect, and what n windows a round trip can carry.

A sender may have one window in flight and must then wait for a round trip, so *n* streams carry no more than

.. math:: R = \min(B,\; n W / T)

======  ==========================================================================================
symbol  meaning
======  ==========================================================================================
W       window of one stream, in bytes: asked for, or in effect (median of TCP_INFO while data flowed)
T       round-trip time without queues, in seconds: delays of the way, else the least that TCP saw
B       what the slowest link of the way carries, in bit/s, headers included
R       rate, in bit/s
======  ==========================================================================================

(004, section c; RFC 7323, section 1.1.) A sender held back by a window sends whole segments only: of W counts what
they fill. What a window gives is seen in the rate *while data flowed*, as TCP estimates it (delivery rate); the throughput of a whole transfer has the
login and the start of TCP in it besides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from venturi.analysis.network import way_rate_and_rtt
from venturi.analysis.sockets import LIVES, SMALLEST_DATA
from venturi.run import Run
from venturi.units import BITS_PER_BYTE

__all__ = ["Route", "WindowPoint", "window_points"]


@dataclass(frozen=True, slots=True)
class Route:
    """A way from a sending host to a receiving host; rate and round trip are None where nothing tells them."""

    sender: str
    receiver: str
    rate_bit_per_s: float | None
    rtt_s: float | None

    @property
    def name(self) -> str:
        """Its two hosts."""
        return f"{self.sender} to {self.receiver}"

    @property
    def bdp_bytes(self) -> float | None:
        """Bandwidth-delay product: what is on the way when the link is full."""
        known = self.rate_bit_per_s is not None and self.rtt_s is not None
        return self.rate_bit_per_s * self.rtt_s / BITS_PER_BYTE if known else None  # type: ignore[operator]


@dataclass(frozen=True, slots=True)
class WindowPoint:
    """One sweep point whose transfers crossed one route.

    Attributes
    ----------
    streams, connections
        Asked for, and data connections of a trial that were seen (median).
    asked_bytes, window_bytes
        Window of one stream asked for, and in effect; None: not asked for, or not seen.
    rate_bit_per_s, error_bit_per_s
        Bytes over the time of a whole trial, mean and standard error over the trials; no error of one.
    mss_bytes
        Of a segment.
    flow_bit_per_s
        What the sockets delivered while data flowed: sum over the connections of the median, median of the trials.
    by_window_ratio, by_buffer_ratio
        Shares of the busy time in which the receiver's window, and the sender's buffer, held the sender back.
    """

    point: int
    route: Route
    mover: str
    streams: int
    block_bytes: int | None
    size_bytes: int
    asked_bytes: int | None
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
    def asked_limit_bit_per_s(self) -> float | None:
        """n · W / T with the window asked for, streams as asked for."""
        return _limit(self.streams, self.asked_bytes, self.route.rtt_s)

    @property
    def limit_bit_per_s(self) -> float | None:
        """n · W / T with what whole segments fill of the window in effect, of the connections seen."""
        window, mss = self.window_bytes, self.mss_bytes
        if window is not None and mss:
            window = window // mss * mss
        return _limit(self.connections, window, self.route.rtt_s)

    @property
    def expected_bit_per_s(self) -> float | None:
        """R: the lesser of the link and the window in effect."""
        known = [rate for rate in (self.limit_bit_per_s, self.route.rate_bit_per_s) if rate is not None]
        return min(known) if self.limit_bit_per_s is not None else None


def _limit(streams: float | None, window: float | None, rtt_s: float | None) -> float | None:
    return BITS_PER_BYTE * streams * window / rtt_s if streams and window and rtt_s else None


_TRIALS = """
    SELECT trial, any_value(point)::INTEGER AS point, any_value(call) AS call, any_value(host) AS host,
           split_part(coalesce(any_value(source_via), ''), '/', 1) AS source_service,
           split_part(coalesce(any_value(destination_via), ''), '/', 1) AS destination_service, max(asked_bytes)::BIGINT AS size,
           8 * sum(coalesce(received_bytes, asked_bytes)) / (max(end_s) - min(start_s)) AS rate
    FROM transfers
    WHERE outcome = 'ok' AND point IS NOT NULL AND asked_bytes > 0 AND end_s > start_s
    GROUP BY trial HAVING count(DISTINCT call) = 1 ORDER BY point, trial"""

_SOCKETS = f"""WITH {LIVES},
    data AS (SELECT * FROM lives WHERE acked >= {SMALLEST_DATA} AND acked > coalesce(received, 0)),
    begun AS (SELECT trial, start_s FROM trials WHERE start_s IS NOT NULL AND point IS NOT NULL)
    SELECT begun.trial AS trial, count(*) AS connections, median(effective) AS window_bytes,
           median(mss) AS mss, 8 * sum(delivery) AS flow, median(rtt) AS rtt, min(least_rtt) AS least_rtt,
           sum(by_window) / nullif(sum(busy), 0) AS by_window, sum(by_buffer) / nullif(sum(busy), 0) AS by_buffer
    FROM data ASOF JOIN begun ON data.first_s >= begun.start_s GROUP BY 1"""


def window_points(run: Run) -> tuple[WindowPoint, ...]:
    """Return the points of which each trial is calls of one kind from one host to another, in the order of the plan.

    Trials of movers without a window to ask for are among them: what was in effect is known of them too.
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

    rate, rtt = way_rate_and_rtt(run, sender, receiver)
    least = min((row["least_rtt"] for row in sockets if not math.isnan(row["least_rtt"])), default=None)
    return WindowPoint(
        point=point,
        route=Route(sender, receiver, rate, rtt if rtt is not None else least),
        mover=str(call.get("mover") or "?"),
        streams=int(options.get("streams") or 1),
        block_bytes=options.get("block_bytes"),
        size_bytes=int(rows["size"][first]),
        asked_bytes=options.get("window_bytes"),
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
