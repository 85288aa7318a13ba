"""How much a plan will move, how long that may take, and whether it fits on the disks.

All of it comes from the header alone, so it costs nothing however long the plan is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from venturi.errors import PlanError
from venturi.plan.header import Header, Host, Place
from venturi.units import BITS_PER_BYTE, format_bytes, format_rate, parse_rate_bit_per_s

__all__ = ["ASSUMED_RATE_BYTES_PER_S", "ASSUMED_TRIAL_S", "Estimate", "check_fits", "estimate"]

ASSUMED_RATE_BYTES_PER_S = 200e6
"""Taken where no storage of the scenario states a rate: about one good disk of today."""

ASSUMED_TRIAL_S = 0.05
"""Taken for what surrounds the transfers of a trial: starting processes, looking at the files, the journal."""


_MOST_TOLD = 10
"""Places that are too small and told: a testbed may have hundreds."""


@dataclass(frozen=True)
class Estimate:
    """What a plan will cost.

    Attributes
    ----------
    trials, transfers, bytes
        Totals of the plan; ``bytes`` counts each byte moved once, without the making of the data sets.
    disk_bytes
        For each place the peak: its data sets, plus the destinations of the largest trial.
    time_s
        A rough time in seconds, by :attr:`assumption`; ``None`` if the plan does not fix how much it moves.
    assumption
        In words, what the time rests on.
    places
        Of the plan.
    scale
        Of the plan.
    hosts
        Of the plan.
    """

    trials: int
    transfers: int | None
    bytes: int | None
    disk_bytes: Mapping[str, int]
    time_s: float | None
    assumption: str
    places: Mapping[str, Place]
    scale: float
    hosts: Mapping[str, Host] = field(default_factory=dict)


def estimate(
    header: Header,
    *,
    rate_bytes_per_s: float | None = None,
    moving: Callable[[float], float | None] | None = None,
) -> Estimate:
    """Estimate what a plan will cost.

    Parameters
    ----------
    header
        Of the plan.
    rate_bytes_per_s
        The rate to reckon with, in bytes per second. Without it: the smallest ``rate`` that a storage of the
        scenario states, or :data:`ASSUMED_RATE_BYTES_PER_S` if none does.
    moving
        Returns the seconds that all transfers take at this rate of storages where a network is between them, or ``None``
        where there is none (:func:`venturi.testbed.pace.moving_s`).

    Returns
    -------
    Estimate
        Its time is ``(bytes moved + bytes of the data sets) / rate + trials ×`` :data:`ASSUMED_TRIAL_S`, the bytes moved
        by ``moving`` where that tells.
    """
    rate, reason = _rate(header, rate_bytes_per_s)
    made_bytes = sum(dataset.bytes for dataset in header.datasets.values())
    totals = header.totals
    moving_s = None if totals.bytes is None else moving(rate) if moving is not None else None
    how = (
        "every byte moves"
        if moving_s is None
        else "transfers are as fast as links and windows let them, and every byte moves at most"
    )
    if moving_s is None and totals.bytes is not None:
        moving_s = totals.bytes / rate
    return Estimate(
        totals.trials,
        totals.transfers,
        totals.bytes,
        dict(totals.disk_bytes),
        None if moving_s is None else moving_s + made_bytes / rate + totals.trials * ASSUMED_TRIAL_S,
        f"{how} at {format_rate(rate)} ({reason}), making the data sets included, and a trial costs "
        f"{ASSUMED_TRIAL_S * 1000:g} ms beside its transfers",
        dict(header.places),
        header.scale,
        dict(header.hosts),
    )


def check_fits(
    cost: Estimate, free_bytes: Mapping[str, int], *, present_bytes: Mapping[str, int] | None = None
) -> None:
    """Refuse a plan that would fill a disk.

    Places with a relative path on one host lie below the same scratch directory and share its free space, and so do those of
    all hosts of a lab; a storage that a lab makes has its own.

    Parameters
    ----------
    cost
        From :func:`estimate`.
    free_bytes
        Free bytes of each place, as its agent says; a place that is not named is not checked.
    present_bytes
        Bytes of the data sets of each place that are already there (a run that is resumed).

    Raises
    ------
    PlanError
        Naming every file system that is too small: how much is needed, how much is free, and what to do.
    """
    present = present_bytes or {}
    shared: dict[tuple[str, str], list[str]] = {}
    for name in cost.disk_bytes:
        place = cost.places.get(name)
        if place is not None and name in free_bytes:
            shared.setdefault(_file_system(name, place, cost), []).append(name)
    problems = []
    for (host, _), names in shared.items():
        needed = sum(max(0, cost.disk_bytes[name] - present.get(name, 0)) for name in names)
        free = min(free_bytes[name] for name in names)
        if needed > free:
            problems.append(_too_small(host, names, needed, free, cost))
    if problems:
        more = len(problems) - _MOST_TOLD
        told = problems if more < 2 else [*problems[:_MOST_TOLD], f"and {more} places more"]
        raise PlanError("\n".join(told))


def _file_system(name: str, place: Place, cost: Estimate) -> tuple[str, str]:
    """Return a key that places on one file system have in common: the host, and the place if it is alone."""
    if _is_made(place) or PurePosixPath(place.path).is_absolute():
        return place.host, name
    host = cost.hosts.get(place.host)
    return "this machine" if host is not None and host.lab is not None else place.host, ""


def _is_made(place: Place) -> bool:
    """Return whether a lab makes a file system for the place."""
    return place.storage is not None and place.storage.kind != "directory"


def _too_small(host: str, names: list[str], needed: int, free: int, cost: Estimate) -> str:
    places = cost.places
    where = " and ".join(f"{name} ({places[name].path})" for name in names)
    place = places[names[0]]
    if _is_made(place):
        other = "a larger size for this storage"
    elif PurePosixPath(place.path).is_absolute():
        other = "a path on a larger file system"
    else:
        other = "another --scratch directory"
    # A tenth is left free: file systems slow down, and refuse, before they are full.
    share = 0.9 * cost.scale * free / needed
    advice = f"a smaller --scale (below {share:.2g}), or {other}" if share >= 1e-6 else other
    return (
        f"{where} on {host}: expected {format_bytes(needed)} of free space, found {format_bytes(free)}; "
        f"use {advice}, or leave out the largest sizes"
    )


def _rate(header: Header, given: float | None) -> tuple[float, str]:
    if given is not None:
        return given, "as asked for"
    testbed = header.scenario.get("testbed")
    storages = testbed.get("storage") if isinstance(testbed, dict) else None
    stated = {
        name: parse_rate_bit_per_s(storage["rate"]) / BITS_PER_BYTE
        for name, storage in (storages.items() if isinstance(storages, dict) else ())
        if isinstance(storage, dict) and storage.get("rate")
    }
    if stated:
        slowest = min(stated, key=lambda name: (stated[name], name))
        return stated[slowest], f"the rate stated for {slowest}"
    return ASSUMED_RATE_BYTES_PER_S, "assumed, as no storage states a rate"
