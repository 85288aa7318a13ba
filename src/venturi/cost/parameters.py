"""The parameters: what each means is said in *What a transfer costs* of the concepts, with the formulas that use them.

``None`` is what nobody has measured or said. Names end in their unit: ``_s`` seconds, ``_core_s`` processor time in seconds of one
core, ``_bytes``, ``_bytes_per_s``; ``_round_trips`` are multiples of the round-trip time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from venturi.plan.header import OptionValue

__all__ = ["Cost", "HostCost", "MoverCost", "MoverRule", "ServiceCost", "StorageCost", "over"]


@dataclass(frozen=True, slots=True)
class MoverCost:
    """What a call of a mover costs besides its bytes.

    ``start_s + start_core_s + session_round_trips · RTT``, and for each file ``file_s + file_core_s + file_round_trips · RTT``; what the
    services take comes besides.

    Attributes
    ----------
    start_s, start_core_s
        Once a call: time in which nobody works for it, and processor time of the client.
    session_round_trips
        Once a call: connection, greeting, login, farewell.
    file_s, file_core_s, file_round_trips
        The same for each file; a data connection of its own is in the round trips.
    byte_core_s
        Processor time of the client for a byte.
    pipelining
        Files whose commands are under way together in a session.
    sessions, session_files, session_bytes
        Sessions side by side of a call that is not told how many, and files, or bytes, for each: of less it opens fewer; ``None``: one.
    sessions_least
        Sessions, but no more than files, that it opens also where less is worth one; ``None``: one.
    large_bytes, piece_bytes
        The smallest file that goes in pieces, each as a file of its own, and their size; ``None``: none does.
    in_flight_bytes
        Bytes that the tool asks for ahead on a connection; ``None``: as many as TCP lets.
    block_bytes, block_s
        Bytes that are read and then sent, by turns, and what each block costs besides; ``None``: both at the same time.
    keeps_connection
        Whether a data connection stays for the next file.
    logins
        How often each server finds out in a session who the client is; ``None``: once.
    session_s, session_core_s
        Of a job that calls a tool several times, for each of its calls: time in which nobody works for it, and processor time of the client.
    check_s, check_core_s, check_round_trips, check_byte_core_s
        Of a tool that asks both ends of each file for a checksum, for each question: waiting, processor time of the client, round trips,
        and processor time of the server for a byte. Without ``check_s`` it asks nothing.
    checks
        Questions under way together; ``None``: one after the other.
    patience_s
        Time without a byte after which the tool gives an attempt up; ``None``: as long as TCP and the timeout of the call let it.
    retries
        Further attempts of a call that broke; ``None``: those of its options ``retries`` or ``restarts``, else none.
    retry_pause_s
        Pause before the second attempt; before each later one twice as long.
    resumes
        Whether an attempt goes on where the one before broke off.
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
    sessions_least: int | None = None
    large_bytes: float | None = None
    piece_bytes: float | None = None
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
    patience_s: float | None = None
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
        """Return a cost from what a call and a file take each: waiting in s, processor time in s, round trips.

        Without ``file`` all is in the call, as it is with a tool that takes one file a call.

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
    """What a server program costs.

    Attributes
    ----------
    session_core_s, auth_core_s, file_core_s, byte_core_s
        Its processor time for a session, for finding out who the client is, for a file or request, for a byte.
    auth_scatter
        Standard deviation over mean of the time for finding out who the client is, as where keys are made; ``None``: none.
    sessions
        Sessions that it serves together; ``None``: any number.
    process_bytes_per_s
        The fastest that one process of it is.
    redirect_round_trips
        Round trips of a client that it sends elsewhere.
    contention, coherency
        Of its sessions: sigma and kappa of the universal scalability law.
    cache_bytes
        What it keeps of other servers' files.
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
    """What storage costs: a single head, an array, or the universal scalability law, one of them or none.

    Attributes
    ----------
    read_bytes_per_s, write_bytes_per_s
        By one user; of an array, by many.
    seek_s, read_ahead_bytes
        A single head: time to begin elsewhere, and what it reads before it does.
    half_users
        An array: the number of users at which it gives half of its rate.
    contention, coherency
        Sigma and kappa of the law.
    open_s
        To open or to create a file.
    block_bytes, block_s
        What it reads and writes at once, and the time until that has been found, for a tool that asks for one block after the other.
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
    """What a machine gives.

    Attributes
    ----------
    cores, core_speed
        Processors, and their speed relative to the machine on which processor times were measured.
    page_cache_bytes, page_cache_bytes_per_s
        Memory that keeps files once read, and the fastest that they are read from it.
    send_buffer_bytes, receive_buffer_bytes
        Buffers of a connection at most.
    initial_window_segments
        Segments that a connection begins with.
    rtt_exponent
        a of a flow's weight where flows share a link, streams · RTT^-a.
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
    """Calls of a mover that cost so much: those with these options between these ends.

    ``source`` and ``destination`` are protocols of doors, or ``file``; ``None`` is any.
    """

    mover: str
    cost: MoverCost
    source: str | None = None
    destination: str | None = None
    options: Mapping[str, OptionValue] = field(default_factory=dict)

    def fits(self, mover: str, options: Mapping[str, OptionValue], source: str, destination: str) -> bool:
        """Return whether a call with these options between these ends is meant."""
        return (
            self.mover == mover
            and self.source in (None, source)
            and self.destination in (None, destination)
            and all(key in options and options[key] == value for key, value in self.options.items())
        )


@dataclass(frozen=True, slots=True)
class Cost:
    """What a scenario says of costs.

    Attributes
    ----------
    movers
        Rules. Those that fit a call all count, later ones over earlier ones, parameter by parameter.
    services, places, hosts
        By name.
    machine_cores
        Processors that all hosts share, as those of a lab on one machine do; ``None``: each host has its own.
    """

    movers: tuple[MoverRule, ...] = ()
    services: Mapping[str, ServiceCost] = field(default_factory=dict)
    places: Mapping[str, StorageCost] = field(default_factory=dict)
    hosts: Mapping[str, HostCost] = field(default_factory=dict)
    machine_cores: float | None = None


Parameters = TypeVar("Parameters", MoverCost, ServiceCost, StorageCost, HostCost)


def over(below: Parameters, above: Parameters) -> Parameters:
    """Return ``below`` with what ``above`` says in its place.

    Examples
    --------
    >>> over(StorageCost(seek_s=0.008, open_s=0.1), StorageCost(open_s=0.0))
    StorageCost(read_bytes_per_s=None, write_bytes_per_s=None, seek_s=0.008, read_ahead_bytes=None, half_users=None, \
contention=None, coherency=None, open_s=0.0, block_bytes=None, block_s=None)
    """
    given: dict[str, Any] = {
        part.name: getattr(above, part.name)
        for part in dataclasses.fields(above)
        if getattr(above, part.name) is not None
    }
    return dataclasses.replace(below, **given)
