"""Results for servers, storages, links and published tables, as frozen data in base units.

This module computes nothing. A value of None means that it was not measured. The results common to all runs are in
:mod:`venturi.analysis.result`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from venturi.analysis.values import FactorValue, FloatArray
from venturi.stats import Interval

__all__ = [
    "ByteCount",
    "FixedCost",
    "FixedCostRatio",
    "LinkBundle",
    "LinkResult",
    "LinkSeries",
    "LinkUse",
    "NetworkPath",
    "Node",
    "PublishedRowComparison",
    "PublishedTableComparison",
    "ServiceProperties",
    "SessionSummary",
    "SocketSummary",
    "StorageRate",
    "TestbedDiagram",
    "TestbedResult",
]  # fmt: skip

Direction = Literal["all", "forward", "reverse"]


@dataclass(frozen=True, slots=True)
class StorageRate:
    """Read and write rate of one storage at one point: bytes of the transfers over the time of the whole trial.

    Attributes
    ----------
    direction
        ``"all"``. If files move in both directions at the same time, there are also results for ``"forward"`` and
        ``"reverse"``, which add up to ``"all"``.
    read_requested, write_requested
        True if a byte was read or written. The rate of a direction without bytes is None, not zero.
    read_error_bytes_per_s, write_error_bytes_per_s
        Standard error over the trials. None below two trials.
    """

    point: int
    storage: str
    direction: Direction
    factors: Mapping[str, FactorValue]
    trials: int
    read_requested: bool
    write_requested: bool
    read_bytes_per_s: float | None
    read_error_bytes_per_s: float | None
    read_interval: Interval | None
    write_bytes_per_s: float | None
    write_error_bytes_per_s: float | None
    write_interval: Interval | None


@dataclass(frozen=True, slots=True)
class FixedCost:
    """Distribution of the times of zero-size transfers, which contain every fixed cost (000-E18).

    ``quantiles_s`` are the 0, 1, … 100 % quantiles of the single transfers.
    """

    point: int
    factors: Mapping[str, FactorValue]
    transfers: int
    trials: int
    mean_s: float
    least_s: float
    lower_quartile_s: float
    median_s: float
    upper_quartile_s: float
    greatest_s: float
    quantiles_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FixedCostRatio:
    """Ratio of the mean times of zero-size transfers for two values of a factor.

    The other factors (``others``) are equal. ``value`` and ``reference`` are the values of the scenario. ``value_text``
    and ``reference_text`` also name the authentication of a service. The replicate is the trial.
    """

    factor: str
    value: FactorValue
    reference: FactorValue
    value_text: str
    reference_text: str
    others: Mapping[str, FactorValue]
    ratio: Interval


@dataclass(frozen=True, slots=True)
class LinkResult:
    """Directed link of the emulated network: requested properties, and its counters over the run (None if not sampled)."""

    name: str
    start_node: str
    end: str
    rate_bit_per_s: float | None
    delay_s: float
    jitter_s: float
    queue_bytes: float | None
    loss: str | None
    reorder_probability: float
    overhead_bytes: int
    bytes: float | None
    packets: float | None
    queue_drops: float | None
    loss_drops: float | None
    queue_high_bytes: float | None


@dataclass(frozen=True, slots=True)
class NetworkPath:
    """Path of the bytes from one host to another.

    ``rate_bit_per_s`` is the rate of the slowest link, or None if no link has a rate. ``rtt_s`` is the sum of the
    delays in both directions. It is None if the path is unknown because of address translation.
    """

    source: str
    destination: str
    transfers: int
    links: tuple[str, ...]
    rate_bit_per_s: float | None
    rtt_s: float | None


@dataclass(frozen=True, slots=True)
class ServiceProperties:
    """Server program of the lab."""

    name: str
    kind: str
    host: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Node:
    """Host or router of a testbed diagram.

    ``services`` are the kinds of server programs with their numbers. ``storages`` are names of storages. A router only
    has a name.
    """

    name: str
    is_host: bool
    site: str | None = None
    services: tuple[tuple[str, int], ...] = ()
    storages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LinkBundle:
    """``count`` equal pairs of links between two nodes.

    ``rtt_s`` is the delay in both directions together. A rate of None means no limit.
    """

    start_node: str
    end: str
    rate_bit_per_s: float | None
    back_rate_bit_per_s: float | None
    rtt_s: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class TestbedDiagram:
    """Hosts, routers and their links at the start of the run."""

    nodes: tuple[Node, ...]
    link_bundles: tuple[LinkBundle, ...]


@dataclass(frozen=True, slots=True)
class TestbedResult:
    """Emulated or simulated testbed of a run.

    Attributes
    ----------
    rates_scale
        Factor for published rates before a comparison. It is the scale if a link on a path, or a storage, has a rate,
        and otherwise 1.
    local_transfers, local_hosts
        Transfers with both endpoints on one host, which no link carried, and these hosts.
    packages
        Package → version, of the services.
    changes
        Planned changes of links during the run.
    simulated
        True if the testbed was simulated and not emulated.
    """

    scale: float
    rates_scale: float
    hosts: tuple[str, ...]
    links: tuple[LinkResult, ...]
    paths: tuple[NetworkPath, ...]
    local_transfers: int
    local_hosts: tuple[str, ...]
    services: tuple[ServiceProperties, ...]
    packages: Mapping[str, str]
    changes: tuple[Mapping[str, Any], ...]
    layout: TestbedDiagram
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class ByteCount:
    """Bytes that crossed the network as counted by one party, and the requested bytes.

    A count between ``least`` and ``most`` is possible without loss of data. Headers, control connections and
    retransmissions explain counts up to ``most``. ``agrees`` is None if the count was not checked. ``note`` gives the
    reason or names subtracted bytes.
    """

    party: str
    counted_bytes: float
    requested_bytes: float
    ratio: float | None
    least: float
    most: float
    agrees: bool | None
    note: str


@dataclass(frozen=True, slots=True)
class SocketSummary:
    """TCP connections that carried the data of one point, as seen by the sender's kernel.

    Attributes
    ----------
    connections
        Number over all trials, without connections that carried less than 64 KiB.
    requested_window_bytes
        Window that the mover requested. None if the kernel chose it.
    window_bytes, greatest_window_bytes
        Window in effect, the smaller of congestion window and the peer's window: median and maximum of the samples.
    rtt_s, least_rtt_s
        Median of the smoothed round-trip time over the samples, and the minimum over all time.
    retransmitted_ratio
        Retransmitted bytes over all sent bytes.
    receive_window_limited_ratio, send_buffer_limited_ratio
        Fraction of the time with data to send during which the peer's window, or the send buffer, limited the
        connection.
    delivery_bytes_per_s
        Delivery rate of one connection: median of the kernel's estimate over the samples.
    """

    point: int
    factors: Mapping[str, FactorValue]
    trials: int
    connections: int
    congestion_control: str | None
    requested_window_bytes: float | None
    window_bytes: float | None
    greatest_window_bytes: float | None
    greatest_congestion_window_bytes: float | None
    rtt_s: float | None
    least_rtt_s: float | None
    retransmitted_ratio: float | None
    receive_window_limited_ratio: float | None
    send_buffer_limited_ratio: float | None
    delivery_bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """Control connections of a server at one point.

    ``point`` is None if only the log of the server has them. ``most_outstanding`` is the maximum number of requested
    transfers without a reply in one connection. It is None if only a log has them.
    """

    service: str
    seen: str
    point: int | None
    factors: Mapping[str, FactorValue]
    sessions: int
    logins: int
    commands: int
    transfers: int
    data_channels: int
    most_outstanding: int | None


@dataclass(frozen=True, slots=True)
class LinkUse:
    """Load of a link during the trials of a point.

    ``mean_bit_per_s`` is the rate over whole trials. ``full_bit_per_s`` is the 90 % quantile of the sampling intervals
    of a trial. It estimates the rate while bytes flowed, without connection setup and shutdown. Both are means over the
    trials.
    """

    point: int
    factors: Mapping[str, FactorValue]
    link: str
    trials: int
    mean_bit_per_s: float
    full_bit_per_s: float
    full_error_bit_per_s: float | None
    rate_bit_per_s: float | None
    drops: float


@dataclass(frozen=True, slots=True)
class LinkSeries:
    """Link in time, reduced to bins: traffic, maximum queue, and dropped packets (queue and loss)."""

    link: str
    rate_bit_per_s: float | None
    time_s: FloatArray
    low_bytes_per_s: FloatArray
    mean_bytes_per_s: FloatArray
    high_bytes_per_s: FloatArray
    queue_high_bytes: FloatArray
    drops_per_s: FloatArray


@dataclass(frozen=True, slots=True)
class PublishedRowComparison:
    """Row of a published table: its factors, and for each value column the published value, our value and their ratio.

    The ratio is our value over the published value. A published zero has no ratio. ``point`` is our point with the same
    factors, or None without a match.
    """

    factors: Mapping[str, FactorValue]
    published: Mapping[str, float | None]
    ours: Mapping[str, float | None]
    ratio: Mapping[str, float | None]
    point: int | None
    errata: tuple[str, ...]
    note: str


@dataclass(frozen=True, slots=True)
class PublishedTableComparison:
    """Published table compared with this run.

    The ratios use published rates multiplied by ``scale``.
    """

    name: str
    about: str
    storage: str | None
    factors: tuple[str, ...]
    values: tuple[str, ...]
    rows: tuple[PublishedRowComparison, ...]
    scale: float
