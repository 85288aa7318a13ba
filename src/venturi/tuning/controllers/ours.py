"""Controller of Venturi: a model of the rate, and the probe with the largest expected gain.

Source: this project; :mod:`venturi.tuning.rate_model` has the formulas. The prior comes from the path: r1 from window and
loss, C from the slowest link or disk. The first guess has 25 % more connections than the knee C/r1, and at least four if
there are four files. After each probe, the model is updated. Two models predict the
gain of more connections, min(n·r1, C) and a saturating curve through the last two probes. The larger gain counts. The next probe is the
smallest number of connections with at least 70 % of the largest gain over the best rate so far. The rule stops when this
gain is below 2 %. From the third probe on (with the one of the defaults), it never tries a setting with a predicted
rate more than 10 % below the rate of the defaults.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from venturi.plan.network import INITIAL_WINDOW_BYTES
from venturi.tuning.controller import StopTuning
from venturi.tuning.path import TunePath
from venturi.tuning.probe import TuneProbe
from venturi.tuning.rate_model import RateModel, RatePoint, fit_rate_model, saturating_gain
from venturi.tuning.settings import TunedSettings

__all__ = ["ModelController", "path_model", "split_connections"]

HEADROOM = 1.25
"""Connections of the first guess relative to the knee: one more costs little, one fewer costs its whole rate."""

MIN_GAIN = 0.02
NEAR_LARGEST = 0.7
"""Fraction of the largest gain that is enough: two of the doublings of a saturating curve have 75 %."""

NO_HARM = 0.9
PROBES_BEFORE_NO_HARM = 3
OVERLOAD = 0.9
"""A rate below this fraction of the best one at fewer connections shows that more connections do harm."""

KNOWN_CONNECTION, UNKNOWN_CONNECTION = 0.5, 1.0
"""Deviation of ln r1. Start-up, CPU and queues are not in the prior: r1 is known to a factor of about 1.6."""

KNOWN_CAPACITY, UNKNOWN_CAPACITY = 0.15, 1.0
GOODPUT = 0.98
"""Fraction of the payload rate of the path that a transfer of some seconds reaches, with its start-up."""

GUESS_BYTES_PER_S = 12.5e6
"""Rate without any information: 100 Mb/s."""

SETUP_ROUND_TRIPS = 3.0
"""Connection, request and confirmation of a file without pipelining."""

STREAM_BYTES, BLOCK_BYTES = 4 << 20, 256 << 10
"""Smallest part of a file for one stream: below 4 MiB, slow start takes most of its time. A GridFTP block has 256 KiB."""

USUAL_CONCURRENCY, USUAL_STREAMS = 8, 4
"""Concurrent files before they get more than one stream, and streams before there are more files.

Concurrent files also fill the pauses between files (Yildirim et al., NDM 2012), but each needs a session.
"""

MIN_FIRST = 4
"""Smallest first guess for several files, like rclone and AzCopy."""

MIN_PIPELINING = 128
"""Minimum number of small files in flight per session. Long paths have more, to cover two round trips."""


@dataclass(frozen=True, slots=True)
class ModelController:
    """First guess from the path, then probes with the largest expected gain."""

    name: str = "ours"
    summary: str = "Model min(n·r1, C) with loss and window; probes where the expected gain is 2 % or more."
    source: str = "Venturi, src/venturi/tuning/rate_model.py"

    def first(self, properties: TunePath) -> TunedSettings:
        """Return settings with 25 % more connections than the knee of the prior."""
        least = min(MIN_FIRST, properties.files)
        return split_connections(properties, max(least, math.ceil(HEADROOM * path_model(properties).knee)))

    def next(self, properties: TunePath, history: Sequence[TuneProbe]) -> TunedSettings | StopTuning:
        """Return the settings with the largest expected gain, or stop."""
        points = sorted(
            (
                RatePoint(probe.settings.connections or 1, probe.rate_bytes_per_s, probe.relative_error)
                for probe in history
            ),
            key=lambda point: point.connections,
        )
        default = properties.default_rate_bytes_per_s or 0.0
        best = max(default, *(point.rate_bytes_per_s for point in points))
        if best <= 0:
            return StopTuning("no transfer succeeded")
        model = fit_rate_model(path_model(properties), points)
        harmless = len(history) + 1 < PROBES_BEFORE_NO_HARM
        found = [
            (_gain(model, points, default, settings.connections or 1), settings)
            for settings in _candidates(properties, points)
            if harmless or model.rate(settings.connections or 1) >= NO_HARM * default
        ]
        largest = max((gain for gain, _ in found), default=0.0)
        if largest < MIN_GAIN:
            text = "no other setting is left" if not found else f"the expected gain is {100 * largest:.1f} %"
            return StopTuning(f"{text}, below {100 * MIN_GAIN:g} %" if found else text)
        return next(settings for gain, settings in found if gain >= NEAR_LARGEST * largest)


def _gain(model: RateModel, points: Sequence[RatePoint], default: float, connections: int) -> float:
    """Return the expected gain over the best rate: the larger of both models.

    The defaults count as half of the connections of the first point, because their number is unknown.
    """
    top = max(points, key=lambda point: point.rate_bytes_per_s)
    best = max(default, top.rate_bytes_per_s)
    gain = model.expected_gain(connections, best)
    if top is not points[-1] or top.rate_bytes_per_s < best or connections <= top.connections:
        return gain
    if len(points) > 1:
        return max(gain, saturating_gain(points[-2], top, connections))
    # In units of half a connection, all numbers are whole.
    last = RatePoint(2 * top.connections, top.rate_bytes_per_s)
    return max(gain, saturating_gain(RatePoint(top.connections, default), last, 2 * connections))


def path_model(properties: TunePath) -> RateModel:
    """Return the prior of a path.

    r1 is the long-run rate of a connection by window and loss (:attr:`TunePath.connection_bytes_per_s`), at most C.
    Without pipelining, each file also waits for its set-up and for slow start: r1 becomes S / (S/r1 + t0), the family
    ``setup`` of :mod:`venturi.model`.

    Examples
    --------
    >>> properties = TunePath(rtt_s=0.1, rate_bytes_per_s=125e6, window_bytes=2e6, file_bytes=1e9)
    >>> model = path_model(properties)
    >>> round(model.connection_bytes_per_s / 1e6, 1), round(model.capacity_bytes_per_s / 1e6, 1)
    (19.6, 122.5)
    """
    default = properties.default_rate_bytes_per_s
    known = properties.rate_bytes_per_s
    if known is not None:
        capacity, capacity_error = GOODPUT * known, KNOWN_CAPACITY
    else:
        capacity, capacity_error = 2 * (default or GUESS_BYTES_PER_S), UNKNOWN_CAPACITY
    connection = properties.connection_bytes_per_s
    connection_error = UNKNOWN_CONNECTION if connection is None else KNOWN_CONNECTION
    connection = min(capacity, (default or capacity / 2) / 2 if connection is None else connection)
    wait_s = _set_up_s(properties, connection)
    if wait_s > 0 and properties.file_bytes:
        connection = properties.file_bytes / (properties.file_bytes / connection + wait_s)
    return RateModel(connection, connection_error, capacity, capacity_error)


def _set_up_s(properties: TunePath, connection_bytes_per_s: float) -> float:
    """Return the waiting time of each file: its set-up unless pipelining hides it, and slow start for large files."""
    if not properties.rtt_s or not properties.file_bytes:
        return 0.0
    hidden = "pipelining" in properties.largest and properties.files > 1
    target = min(properties.file_bytes, connection_bytes_per_s * properties.rtt_s)
    rounds = max(0.0, math.log2(max(1.0, target / INITIAL_WINDOW_BYTES)))
    return 0.0 if hidden else (SETUP_ROUND_TRIPS + rounds) * properties.rtt_s


def split_connections(properties: TunePath, connections: int) -> TunedSettings:
    """Return settings with about this number of connections, as concurrent files and streams.

    A stream gets at least :data:`STREAM_BYTES` of a file, so small files have one stream. Several files first get
    :data:`USUAL_CONCURRENCY` sessions, then :data:`USUAL_STREAMS` streams each, then more sessions, then more streams, down
    to :data:`BLOCK_BYTES` of a file. A single file first gets streams.

    Examples
    --------
    >>> large = TunePath(file_bytes=1e9, files=32)
    >>> [str(split_connections(large, number)) for number in (4, 16, 64)]
    ['concurrency 4, streams 1', 'concurrency 8, streams 2', 'concurrency 16, streams 4']
    """
    size = properties.file_bytes
    most_streams = properties.most("streams")
    if size is not None:
        most_streams = max(1, min(most_streams, int(size // STREAM_BYTES)))
    # With a setting of the mover, more sessions than files have no work.
    most_files = properties.most("concurrency")
    if properties.files > 1:
        most_files = min(most_files, properties.files)
    concurrency = 1 if properties.files == 1 and most_streams > 1 else min(most_files, USUAL_CONCURRENCY, connections)
    usual = USUAL_STREAMS if properties.files > 1 else most_streams
    streams = min(most_streams, usual, math.ceil(connections / concurrency))
    concurrency = max(concurrency, min(most_files, math.ceil(connections / streams)))
    if size is not None and concurrency == most_files:
        most_streams = max(1, min(properties.most("streams"), int(size // BLOCK_BYTES)))
    streams = min(most_streams, max(streams, math.ceil(connections / concurrency)))
    pipelining = None
    if properties.bdp_bytes and size and properties.files > 1 and size < properties.bdp_bytes:
        pipelining = max(MIN_PIPELINING, math.ceil(2 * properties.bdp_bytes / size))
    return properties.limit(TunedSettings(concurrency=concurrency, streams=streams, pipelining=pipelining))


def _candidates(properties: TunePath, points: Sequence[RatePoint]) -> list[TunedSettings]:
    """Return settings that were not tried, with fewest connections first.

    They have more connections than the best probe, and fewer than a measured overload. If the defaults or an overload show
    that fewer connections can be better, they are included.
    """
    largest = properties.most("concurrency") * properties.most("streams")
    top = max(points, key=lambda point: point.rate_bytes_per_s)
    overload = _overload(points)
    fewer = (properties.default_rate_bytes_per_s or 0.0) > top.rate_bytes_per_s or overload < math.inf
    tried = {point.connections for point in points}
    found: dict[TunedSettings, None] = {}
    for power in range(largest.bit_length()):
        settings = split_connections(properties, 2**power)
        number = settings.connections or 1
        if number not in tried and number < overload and (fewer or number > top.connections):
            found[settings] = None
    return list(found)


def _overload(points: Sequence[RatePoint]) -> float:
    """Return the smallest number of connections with a clearly lower rate than fewer connections."""
    best = 0.0
    for point in points:
        if point.rate_bytes_per_s < OVERLOAD * best:
            return point.connections
        best = max(best, point.rate_bytes_per_s)
    return math.inf
