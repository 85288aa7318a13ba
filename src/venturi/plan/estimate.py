"""Estimate of bytes, time and disk space of a plan, from its header only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from venturi.errors import PlanError
from venturi.plan.header import Header, Host, Storage
from venturi.units import BITS_PER_BYTE, format_bytes, format_rate, parse_rate_bit_per_s

__all__ = ["ASSUMED_RATE_BYTES_PER_S", "ASSUMED_TRIAL_S", "PlanEstimate", "check_fits", "estimate"]

ASSUMED_RATE_BYTES_PER_S = 200e6
"""Assumed rate without a rate in the scenario: about one fast disk."""

ASSUMED_TRIAL_S = 0.05
"""Assumed overhead of a trial: start of processes, check of files, journal."""


_MAX_LISTED = 10
"""Maximum number of storages in a message."""


@dataclass(frozen=True)
class PlanEstimate:
    """Estimated bytes, time and disk space of a plan.

    Attributes
    ----------
    trials, transfers, bytes
        Totals of the plan; ``bytes`` excludes the creation of datasets.
    disk_bytes
        Peak of each storage: datasets and the destinations of the largest trial.
    time_s
        Approximate time in seconds, based on :attr:`assumption`; ``None`` if the plan does not define its bytes.
    assumption
        Assumption of the time, as text.
    storages, scale, hosts
        Values of the plan.
    """

    trials: int
    transfers: int | None
    bytes: int | None
    disk_bytes: Mapping[str, int]
    time_s: float | None
    assumption: str
    storages: Mapping[str, Storage]
    scale: float
    hosts: Mapping[str, Host] = field(default_factory=dict)


def estimate(
    header: Header,
    *,
    rate_bytes_per_s: float | None = None,
    moving: Callable[[float], float | None] | None = None,
) -> PlanEstimate:
    """Return the estimate of a plan.

    Parameters
    ----------
    header
        Header of the plan.
    rate_bytes_per_s
        Rate in bytes per second. Default: the smallest ``rate`` of a storage in the scenario, or
        :data:`ASSUMED_RATE_BYTES_PER_S`.
    moving
        Returns the seconds of all transfers over the network at this rate of storages, or ``None`` without a network
        (:func:`venturi.testbed.duration_estimate.estimate_transfer_s`).

    Returns
    -------
    PlanEstimate
        Its time is ``(bytes moved + bytes of datasets) / rate + trials ×`` :data:`ASSUMED_TRIAL_S`. If ``moving`` returns a
        time, it replaces the time of the bytes moved.
    """
    rate, reason = _rate(header, rate_bytes_per_s)
    dataset_bytes = sum(dataset.bytes for dataset in header.datasets.values() if not dataset.is_existing)
    totals = header.totals
    moving_s = None if totals.bytes is None else moving(rate) if moving is not None else None
    how = (
        "all transfers run" if moving_s is None else "transfers run at the speed of links and windows, with storages"
    )
    if moving_s is None and totals.bytes is not None:
        moving_s = totals.bytes / rate
    return PlanEstimate(
        totals.trials,
        totals.transfers,
        totals.bytes,
        dict(totals.disk_bytes),
        None if moving_s is None else moving_s + dataset_bytes / rate + totals.trials * ASSUMED_TRIAL_S,
        f"{how} at {format_rate(rate)} ({reason}), including the creation of datasets, and each trial has an "
        f"overhead of {ASSUMED_TRIAL_S * 1000:g} ms",
        dict(header.storages),
        header.scale,
        dict(header.hosts),
    )


def check_fits(
    cost: PlanEstimate,
    free_bytes: Mapping[str, int],
    *,
    present_bytes: Mapping[str, int] | None = None,
    one_scratch: bool = True,
) -> None:
    """Reject a plan that exceeds the free disk space.

    Storages with a relative path share the free space of the scratch directory of their host, or of the lab. A storage that
    a lab creates has its own space.

    Parameters
    ----------
    cost
        From :func:`estimate`.
    free_bytes
        Free bytes of each storage, reported by its agent; other storages are not checked.
    present_bytes
        Existing bytes of datasets on each storage (of a resumed run).
    one_scratch
        Whether all hosts of a testbed with links or limits have one scratch directory: in the lab, and on this machine.

    Raises
    ------
    PlanError
        For each file system that is too small, with required and free space and a next step.
    """
    present = present_bytes or {}
    shared: dict[tuple[str, str], list[str]] = {}
    for name in cost.disk_bytes:
        storage = cost.storages.get(name)
        if storage is not None and storage.host is not None and name in free_bytes:
            shared.setdefault(_file_system(name, storage, storage.host, cost, one_scratch=one_scratch), []).append(
                name
            )
    problems = []
    for (host, _), names in shared.items():
        needed = sum(max(0, cost.disk_bytes[name] - present.get(name, 0)) for name in names)
        free = min(free_bytes[name] for name in names)
        if needed > free:
            problems.append(_too_small(host, names, needed, free, cost, one_scratch=one_scratch))
    if problems:
        more = len(problems) - _MAX_LISTED
        lines = problems if more < 2 else [*problems[:_MAX_LISTED], f"and {more} more storages"]
        raise PlanError("\n".join(lines))


def _file_system(name: str, storage: Storage, host: str, cost: PlanEstimate, *, one_scratch: bool) -> tuple[str, str]:
    """Return a key of the file system: the host, and the storage if it has its own file system."""
    if _is_created(storage) or PurePosixPath(storage.path).is_absolute():
        return host, name
    found = cost.hosts.get(host)
    return "this machine" if one_scratch and found is not None and found.lab is not None else host, ""


def _is_created(storage: Storage) -> bool:
    """Return whether a lab creates a file system for the storage."""
    return storage.spec is not None and storage.spec.kind != "directory"


def _too_small(host: str, names: list[str], needed: int, free: int, cost: PlanEstimate, *, one_scratch: bool) -> str:
    storages = cost.storages
    where = " and ".join(f"{name} ({storages[name].path})" for name in names)
    storage = storages[names[0]]
    if _is_created(storage):
        other = "a larger size for this storage"
    elif PurePosixPath(storage.path).is_absolute():
        other = "a path on a larger file system"
    else:
        other = "another --scratch directory" if one_scratch else "another --scratch directory or path in --hosts"
    # Keep a tenth free: file systems slow down and fail before they are full.
    max_scale = 0.9 * cost.scale * free / needed
    advice = f"--set scale={max_scale:.2g} or less, or {other}" if max_scale >= 1e-6 else other
    return (
        f"{where} on {host}: expected {format_bytes(needed)} of free space, found {format_bytes(free)}; "
        f"use {advice}, or remove the largest sizes"
    )


def _rate(header: Header, requested: float | None) -> tuple[float, str]:
    if requested is not None:
        return requested, "as requested"
    testbed = header.scenario.get("testbed")
    storages = testbed.get("storage") if isinstance(testbed, dict) else None
    stated = {
        name: parse_rate_bit_per_s(storage["rate"]) / BITS_PER_BYTE
        for name, storage in (storages.items() if isinstance(storages, dict) else ())
        if isinstance(storage, dict) and storage.get("rate")
    }
    if stated:
        slowest = min(stated, key=lambda name: (stated[name], name))
        return stated[slowest], f"rate of {slowest} in the scenario"
    return ASSUMED_RATE_BYTES_PER_S, "assumed, because no storage has a rate"
