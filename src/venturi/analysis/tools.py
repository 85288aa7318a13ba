"""Disk and network rates measured by single tools: the limits of a host before a transfer uses it.

A disk tool moves a file between the storage and the memory of one host. A network tool moves bytes between the memories
of two hosts. The rate is the tool's own rate, because tables of tools list reported rates. If a tool reports no rate,
the rate is the bytes over the time of its call.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from venturi.analysis.network import route_rate_and_rtt
from venturi.mover import movers
from venturi.run import Run

__all__ = ["DiskRate", "NetworkRate", "disk_rates", "network_rates"]

TransferDirection = Literal["write", "read"]

FAMILIES = {"fio-read": "fio", "fio-write": "fio", "read": "dd", "write": "dd"}
"""Movers that belong to one tool, which has a mover for each direction."""


@dataclass(frozen=True, slots=True)
class DiskRate:
    """Rate of a storage in one direction as reported by a tool: mean and standard error over its calls.

    Rates are in bytes per second. The error is None for a single call. ``memory_bytes`` is the memory that the host can
    use. ``limit_bytes_per_s`` is the rate limit of a storage in the lab. Both are None if unknown.
    """

    machine: str
    tool: str
    direction: TransferDirection
    rate_bytes_per_s: float
    error_bytes_per_s: float | None
    calls: int
    file_bytes: int
    memory_bytes: float | None
    limit_bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class NetworkRate:
    """Rate between the memories of two hosts with a number of streams, as reported by a tool.

    ``link_bit_per_s`` is the rate of the slowest link.
    """

    machine: str
    sender: str
    receiver: str
    tool: str
    streams: int
    rate_bit_per_s: float
    error_bit_per_s: float | None
    calls: int
    link_bit_per_s: float | None


def disk_rates(run: Run) -> tuple[DiskRate, ...]:
    """Return the rates of storages by host, tool and direction.

    The tools only read, only write, or report both rates.
    """
    tool_rate: dict[tuple[str, str, TransferDirection, str, int], list[float]] = {}
    for row in _rows(run):
        tool = str(row["mover"])
        storage = next(
            (str(row[end]).partition(":")[0] for end in ("source", "destination") if _is_storage(row[end])), ""
        )
        for direction, rate in _directions(tool, row):
            tool_rate.setdefault(
                (str(row["host"]), FAMILIES.get(tool, tool), direction, storage, int(row["requested"])), []
            ).append(rate)
    found = [
        DiskRate(
            machine,
            tool,
            direction,
            *_mean(rates),
            len(rates),
            size,
            _memory(run, machine),
            _limit(run, storage, direction),
        )
        for (machine, tool, direction, storage, size), rates in tool_rate.items()
    ]
    return tuple(sorted(found, key=lambda rate: (rate.machine, rate.direction, rate.tool, rate.file_bytes)))


def network_rates(run: Run) -> tuple[NetworkRate, ...]:
    """Return the rates between memories by host, tool and streams.

    ``machine`` is the host that the tool ran on.
    """
    services, calls = run.header.get("services") or {}, run.header.get("calls") or {}
    tool_rate: dict[tuple[str, str, str, str, int], list[float]] = {}
    for row in _rows(run):
        mover = movers().get(str(row["mover"]))
        if mover is None or mover.reads or mover.writes or not mover.protocols:
            continue
        host = str(row["host"])
        sender, receiver = (
            str((services.get(str(row[via] or "").partition("/")[0]) or {}).get("host") or host)
            for via in ("source_via", "destination_via")
        )
        options = (calls.get(str(row["call"])) or {}).get("options") or {}
        key = (host, sender, receiver, mover.name, int(options.get("streams") or 1))
        tool_rate.setdefault(key, []).append(8 * _rate(row))
    found = []
    for (host, sender, receiver, tool, streams), rates in tool_rate.items():
        link = route_rate_and_rtt(run, sender, receiver)[0]
        found.append(NetworkRate(host, sender, receiver, tool, streams, *_mean(rates), len(rates), link))
    return tuple(sorted(found, key=lambda rate: (rate.machine, rate.tool, rate.streams)))


def _rows(run: Run) -> Iterable[dict[str, Any]]:
    columns = run.query(
        """SELECT mover, call, host, source, destination, source_via, destination_via, requested_bytes::DOUBLE AS requested, duration_s,
                  tool_rate_bytes_per_s AS tool_rate, tool::VARCHAR AS detail
           FROM transfers WHERE outcome = 'ok' AND requested_bytes > 0 AND duration_s > 0 ORDER BY host, mover, start_s"""
    )
    for index in range(len(columns["mover"])):
        yield {name: column[index] for name, column in columns.items()}


def _directions(tool: str, row: Mapping[str, Any]) -> Iterable[tuple[TransferDirection, float]]:
    """Yield the directions and rates of a call: those in its report, or the single direction of the tool."""
    detail = _detail(row)
    directions: tuple[TransferDirection, ...] = ("write", "read")
    for direction in directions:
        if isinstance(rate := detail.get(f"{direction}_bytes_per_s"), int | float):
            yield direction, float(rate)
    mover = movers().get(tool)
    if mover is None or mover.protocols or mover.reads == mover.writes or tool not in FAMILIES:
        return
    yield ("read" if mover.reads else "write"), _rate(row)


def _detail(row: Mapping[str, Any]) -> Mapping[str, Any]:
    found = json.loads(row["detail"]) if row["detail"] else {}
    return found if isinstance(found, dict) else {}


def _rate(row: Mapping[str, Any]) -> float:
    tool_rate = row["tool_rate"]
    known = tool_rate is not None and not math.isnan(float(tool_rate))
    return float(tool_rate) if known else float(row["requested"]) / float(row["duration_s"])


def _is_storage(end: object) -> bool:
    return isinstance(end, str) and end.partition(":")[0] not in ("null", "zero", "")


def _mean(rates: list[float]) -> tuple[float, float | None]:
    error = float(np.std(rates, ddof=1) / math.sqrt(len(rates))) if len(rates) > 1 else None
    return float(np.mean(rates)), error


def _memory(run: Run, machine: str) -> float | None:
    """Return the memory for the processes of a host: its limit in a lab, or the memory in the scenario."""
    host = (run.header.get("hosts") or {}).get(machine) or {}
    return (host.get("lab") or {}).get("memory_limit_bytes") or host.get("memory_bytes")


def _limit(run: Run, storage: str, direction: TransferDirection) -> float | None:
    spec = ((run.header.get("storages") or {}).get(storage) or {}).get("spec") or {}
    value = spec.get(f"{direction}_bytes_per_s")
    return None if value is None else float(value)
