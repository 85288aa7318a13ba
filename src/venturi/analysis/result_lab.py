"""The numbers of an analysis that servers, storages, links and published tables add, as plain frozen data in base units.

Nothing here computes; None means: not measured. What is common to all runs is in :mod:`venturi.analysis.result`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from venturi.analysis.values import FactorValue, FloatArray
from venturi.stats import Interval

__all__ = [
    "ByteAccount",
    "Cable",
    "FixedCost",
    "FixedCostRatio",
    "Layout",
    "Link",
    "LinkSeries",
    "LinkUse",
    "NetworkPath",
    "Node",
    "RowBeside",
    "ServiceFacts",
    "SessionSummary",
    "SocketSummary",
    "StorageRate",
    "TableBeside",
    "Testbed",
]  # fmt: skip

Direction = Literal["all", "there", "back"]


@dataclass(frozen=True, slots=True)
class StorageRate:
    """What one storage gave and took at one point: bytes of the transfers over the time of the whole trial.

    Attributes
    ----------
    direction
        ``"all"``, or where files go both ways at the same time ``"there"`` and ``"back"`` besides; both add up to all.
    read_asked, write_asked
        Whether anything was to be read, written. Where nothing was, the rate is None, not zero.
    read_error_bytes_per_s, write_error_bytes_per_s
        Standard error over the trials; None below two.
    """

    point: int
    storage: str
    direction: Direction
    factors: Mapping[str, FactorValue]
    trials: int
    read_asked: bool
    write_asked: bool
    read_bytes_per_s: float | None
    read_error_bytes_per_s: float | None
    read_interval: Interval | None
    write_bytes_per_s: float | None
    write_error_bytes_per_s: float | None
    write_interval: Interval | None


@dataclass(frozen=True, slots=True)
class FixedCost:
    """How long transfers of size zero take: every fixed cost of a transfer (000-E18), as a distribution.

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
    """Mean time of size zero with one value of a factor over that with another, the other factors (``others``) equal.

    ``value`` and ``reference`` are as the scenario has them, ``value_text`` and ``reference_text`` say besides how a service
    authenticates. The replicate is the trial.
    """

    factor: str
    value: FactorValue
    reference: FactorValue
    value_text: str
    reference_text: str
    others: Mapping[str, FactorValue]
    ratio: Interval


@dataclass(frozen=True, slots=True)
class Link:
    """A directed link of the emulated network: as asked for, and what it counted over the run (None: not sampled)."""

    name: str
    begin: str
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
    """Where bytes go from one host to another. ``rate_bit_per_s`` is that of the slowest link, None if none has a rate;
    ``rtt_s`` is the sum of the delays there and back, None where the way cannot be followed (address translation)."""

    source: str
    destination: str
    transfers: int
    links: tuple[str, ...]
    rate_bit_per_s: float | None
    rtt_s: float | None


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """A server program of the lab."""

    name: str
    kind: str
    host: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Node:
    """A host or a router of a layout.

    ``services`` are kinds of server programs, each with their number; ``storages`` names of places. Of a router only the name is known.
    """

    name: str
    is_host: bool
    site: str | None = None
    services: tuple[tuple[str, int], ...] = ()
    storages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cable:
    """``count`` pairs of links between two nodes, all alike; ``rtt_s`` is the delay there and back, a rate None without limit."""

    begin: str
    end: str
    rate_bit_per_s: float | None
    back_rate_bit_per_s: float | None
    rtt_s: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class Layout:
    """Hosts and routers, and what joins them, as the run began."""

    nodes: tuple[Node, ...]
    cables: tuple[Cable, ...]


@dataclass(frozen=True, slots=True)
class Testbed:
    """The emulated testbed of a run.

    Attributes
    ----------
    rates_scale
        By what published rates are to be multiplied before they are compared: the scale, where a link on the way, or a
        storage, has a rate.
    local_transfers, local_hosts
        Transfers whose two ends are on one host, so that no link saw them, and on which hosts.
    packages
        Package → version, of the services.
    changes
        Changes of links during the run, as the plan has them.
    """

    scale: float
    rates_scale: float
    hosts: tuple[str, ...]
    links: tuple[Link, ...]
    paths: tuple[NetworkPath, ...]
    local_transfers: int
    local_hosts: tuple[str, ...]
    services: tuple[ServiceFacts, ...]
    packages: Mapping[str, str]
    changes: tuple[Mapping[str, Any], ...]
    layout: Layout


@dataclass(frozen=True, slots=True)
class ByteAccount:
    """The bytes that crossed the network as one party counted them, beside those asked of it.

    ``least`` and ``most`` are what the count may be if no byte was lost: headers, control channels and repetitions explain up
    to ``most``. ``agrees`` is None where the count is not judged; ``note`` says why, or what was taken off.
    """

    party: str
    counted_bytes: float
    asked_bytes: float
    ratio: float | None
    least: float
    most: float
    agrees: bool | None
    note: str


@dataclass(frozen=True, slots=True)
class SocketSummary:
    """The TCP connections that carried the data of one point, as the sender's kernel saw them.

    Attributes
    ----------
    connections
        How many there were over all trials; those that carried less than 64 KiB are left out.
    asked_window_bytes
        What the mover was asked to set; None: left to the kernel.
    window_bytes, greatest_window_bytes
        Window in effect, the smaller of congestion window and the peer's window: median and greatest of the samples.
    rtt_s, least_rtt_s
        Median of the smoothed round-trip time over the samples, and the least ever seen.
    retransmitted_ratio
        Bytes sent again over all bytes sent.
    receive_window_limited_ratio, send_buffer_limited_ratio
        Share of the time with data to send in which the peer's window, or the own buffer, was what held it up.
    delivery_bytes_per_s
        Median of the kernel's estimate over the samples, of one connection.
    """

    point: int
    factors: Mapping[str, FactorValue]
    trials: int
    connections: int
    congestion_control: str | None
    asked_window_bytes: float | None
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
    """The control connections of a server, those of a point together; ``point`` is None where only the server's log tells.

    ``most_outstanding``: transfers asked for and not yet answered, at most at once in one connection; None where only a log tells.
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
    """How full a link was during the trials of a point.

    ``mean_bit_per_s`` is over whole trials, ``full_bit_per_s`` the 90 % quantile of the sampling intervals of a trial: what
    the link carried while bytes flowed, connecting and closing left out. Both are means over the trials.
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
    """A link in time, thinned to bins: traffic, the highest its queue stood, and packets dropped (queue and loss)."""

    link: str
    rate_bit_per_s: float | None
    time_s: FloatArray
    low_bytes_per_s: FloatArray
    mean_bytes_per_s: FloatArray
    high_bytes_per_s: FloatArray
    queue_high_bytes: FloatArray
    drops_per_s: FloatArray


@dataclass(frozen=True, slots=True)
class RowBeside:
    """A row of a published table: its factors, and for each value column what is published, ours, and ours over published.

    A published zero where nothing was asked has no ratio. ``point`` is ours with the same factors, None if there is none.
    """

    factors: Mapping[str, FactorValue]
    published: Mapping[str, float | None]
    ours: Mapping[str, float | None]
    ratio: Mapping[str, float | None]
    point: int | None
    errata: tuple[str, ...]
    note: str


@dataclass(frozen=True, slots=True)
class TableBeside:
    """A published table beside our numbers. ``scale``: what published rates were multiplied by for the ratios."""

    name: str
    about: str
    storage: str | None
    factors: tuple[str, ...]
    values: tuple[str, ...]
    rows: tuple[RowBeside, ...]
    scale: float
