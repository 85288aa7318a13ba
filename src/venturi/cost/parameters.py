"""Cost parameters of movers, services, storages and hosts. The concept page *Transfer costs* contains the formulas.

``None`` is an unknown parameter. Names end in their unit: ``_s`` seconds, ``_core_s`` CPU time in seconds of one core,
``_bytes``, ``_bytes_per_s``. ``_round_trips`` are multiples of the round-trip time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from venturi.plan.header import OptionValue

__all__ = ["CostParameters", "HostCost", "MoverCost", "MoverRule", "ServiceCost", "StorageCost", "merge_cost"]


@dataclass(frozen=True, slots=True)
class MoverCost:
    """Cost of a call of a mover, in addition to its bytes.

    A call costs ``start_s + start_core_s + session_round_trips · RTT``. Each file costs
    ``file_s + file_core_s + file_round_trips · RTT``. The costs of services are additional.

    Attributes
    ----------
    start_s, start_core_s
        Waiting time and CPU time of the client for a call.
    session_round_trips
        Round trips of a call: connection, greeting, login, logout.
    file_s, file_core_s, file_round_trips
        Waiting time, CPU time and round trips of a file, including a data connection per file.
    byte_core_s
        CPU time of the client for a byte.
    pipelining
        Files with commands in flight in a session.
    sessions, session_files, session_bytes
        Concurrent sessions of a call without an option for their number, and the minimum number of files or bytes for each
        session; ``None``: one.
    min_sessions
        Minimum number of sessions, at most the number of files; ``None``: one.
    large_bytes, chunk_bytes
        Smallest file that is transferred in chunks, and the size of a chunk; ``None``: no chunks.
    in_flight_bytes
        Requested bytes in flight on a connection; ``None``: limited by TCP.
    block_bytes, block_s
        Size and additional time of a block, if the tool alternates between reading and sending; ``None``: both overlap.
    keeps_connection
        Whether the tool reuses a data connection for the next file.
    logins
        Authentications of a session on each server; ``None``: one.
    session_s, session_core_s
        Waiting time and CPU time of the client for each call of a tool, in a job with several calls.
    check_s, check_core_s, check_round_trips, check_byte_core_s
        Waiting time, CPU time of the client and round trips of a checksum request, and CPU time of the server for a byte.
        Without ``check_s``, the tool requests no checksums.
    checks
        Checksum requests in flight; ``None``: one.
    stall_timeout_s
        Time without a byte after which an attempt fails; ``None``: limits of TCP and the timeout of the call.
    retries
        Retries of a failed call; ``None``: from the options ``retries`` or ``restarts``, otherwise none.
    retry_pause_s
        Pause before the second attempt; it doubles before each further attempt.
    resumes
        Whether an attempt resumes after the bytes of the previous one.
    """

    start_s: float | None = None
    start_core_s: float | None = None
    session_round_trips: float | None = None
    file_s: float | None = None
    file_core_s: float | None = None
    file_round_trips: float | None = None
    byte_core_s: float | None = None
    pipelining: int | None = None
    sessions: int | None = None
    session_files: int | None = None
    session_bytes: float | None = None
    min_sessions: int | None = None
    large_bytes: float | None = None
    chunk_bytes: float | None = None
    in_flight_bytes: float | None = None
    block_bytes: float | None = None
    block_s: float | None = None
    keeps_connection: bool | None = None
    logins: float | None = None
    session_s: float | None = None
    session_core_s: float | None = None
    check_s: float | None = None
    check_core_s: float | None = None
    check_round_trips: float | None = None
    check_byte_core_s: float | None = None
    checks: int | None = None
    stall_timeout_s: float | None = None
    retries: int | None = None
    retry_pause_s: float | None = None
    resumes: bool | None = None

    @classmethod
    def of(
        cls,
        call: tuple[float, float, float],
        file: tuple[float, float, float] = (0.0, 0.0, 0.0),
        *,
        pipelining: int | None = None,
        in_flight_bytes: float | None = None,
        keeps_connection: bool | None = None,
    ) -> MoverCost:
        """Return a cost from the waiting time in s, the CPU time in s and the round trips of a call and of a file.

        For a tool with one file per call, ``call`` contains all costs.

        Examples
        --------
        >>> MoverCost.of((0.005, 0.006, 8.2), (0.0, 0.0005, 3.1)).file_round_trips
        3.1
        """
        start_s, start_core_s, session_round_trips = call
        file_s, file_core_s, file_round_trips = file
        return cls(
            start_s,
            start_core_s,
            session_round_trips,
            file_s,
            file_core_s,
            file_round_trips,
            pipelining=pipelining,
            in_flight_bytes=in_flight_bytes,
            keeps_connection=keeps_connection,
        )


@dataclass(frozen=True, slots=True)
class ServiceCost:
    """Cost of a server program.

    Attributes
    ----------
    session_core_s, auth_core_s, file_core_s, byte_core_s
        CPU time of the server for a session, an authentication, a file or request, and a byte.
    auth_scatter
        Coefficient of variation of the authentication time, for example with key generation; ``None``: none.
    sessions
        Maximum number of concurrent sessions; ``None``: unlimited.
    process_bytes_per_s
        Maximum rate of one process.
    redirect_round_trips
        Round trips of a redirected client.
    contention, coherency
        Sigma and kappa of the universal scalability law, for its sessions.
    cache_bytes
        Cache for the files of other servers.
    """

    session_core_s: float | None = None
    auth_core_s: float | None = None
    auth_scatter: float | None = None
    file_core_s: float | None = None
    byte_core_s: float | None = None
    sessions: int | None = None
    process_bytes_per_s: float | None = None
    redirect_round_trips: float | None = None
    contention: float | None = None
    coherency: float | None = None
    cache_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class StorageCost:
    """Cost of a storage: at most one of a single head, an array, or the universal scalability law.

    Attributes
    ----------
    read_bytes_per_s, write_bytes_per_s
        Maximum rates of one user; for an array, of many users.
    seek_s, read_ahead_bytes
        Single head: time of a seek, and bytes between two seeks.
    half_users
        Array: number of users at half of its rate.
    contention, coherency
        Sigma and kappa of the law.
    open_s
        Time to open or create a file.
    block_bytes, block_s
        Size and latency of a block, for a tool that requests one block after the other.
    """

    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None
    seek_s: float | None = None
    read_ahead_bytes: float | None = None
    half_users: float | None = None
    contention: float | None = None
    coherency: float | None = None
    open_s: float | None = None
    block_bytes: float | None = None
    block_s: float | None = None


@dataclass(frozen=True, slots=True)
class HostCost:
    """Resources of a host.

    Attributes
    ----------
    cores, core_speed
        CPU cores, and their speed relative to the host of the measurements.
    page_cache_bytes, page_cache_bytes_per_s
        Size and read rate of the page cache.
    send_buffer_bytes, receive_buffer_bytes
        Maximum buffers of a connection.
    initial_window_segments
        Initial congestion window in segments.
    rtt_exponent
        Exponent a in the weight of a flow on a shared link, streams · RTT^-a.
    """

    cores: float | None = None
    core_speed: float | None = None
    page_cache_bytes: float | None = None
    page_cache_bytes_per_s: float | None = None
    send_buffer_bytes: float | None = None
    receive_buffer_bytes: float | None = None
    initial_window_segments: float | None = None
    rtt_exponent: float | None = None


@dataclass(frozen=True, slots=True)
class MoverRule:
    """Cost of the calls with these options between these endpoints.

    ``source`` and ``destination`` are protocols of service ports, or ``file``; ``None`` matches all.
    """

    mover: str
    cost: MoverCost
    source: str | None = None
    destination: str | None = None
    options: Mapping[str, OptionValue] = field(default_factory=dict)

    def fits(self, mover: str, options: Mapping[str, OptionValue], source: str, destination: str) -> bool:
        """Return whether the rule matches a call with these options between these endpoints."""
        return (
            self.mover == mover
            and self.source in (None, source)
            and self.destination in (None, destination)
            and all(key in options and options[key] == value for key, value in self.options.items())
        )


@dataclass(frozen=True, slots=True)
class CostParameters:
    """Costs of a scenario.

    Attributes
    ----------
    movers
        Rules. All matching rules apply; later rules override earlier ones, by parameter.
    services, storages, hosts
        Costs by name.
    machine_cores
        CPU cores that all hosts share, like the hosts of a lab on one machine; ``None``: separate cores.
    """

    movers: tuple[MoverRule, ...] = ()
    services: Mapping[str, ServiceCost] = field(default_factory=dict)
    storages: Mapping[str, StorageCost] = field(default_factory=dict)
    hosts: Mapping[str, HostCost] = field(default_factory=dict)
    machine_cores: float | None = None


Parameters = TypeVar("Parameters", MoverCost, ServiceCost, StorageCost, HostCost)


def merge_cost(below: Parameters, above: Parameters) -> Parameters:
    """Return ``below``, overridden by the parameters of ``above``.

    Examples
    --------
    >>> merge_cost(StorageCost(seek_s=0.008, open_s=0.1), StorageCost(open_s=0.0))
    StorageCost(read_bytes_per_s=None, write_bytes_per_s=None, seek_s=0.008, read_ahead_bytes=None, half_users=None, \
contention=None, coherency=None, open_s=0.0, block_bytes=None, block_s=None)
    """
    changes: dict[str, Any] = {
        part.name: getattr(above, part.name)
        for part in dataclasses.fields(above)
        if getattr(above, part.name) is not None
    }
    return dataclasses.replace(below, **changes)
