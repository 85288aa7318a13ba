"""Rates of disks and of the network as single tools measured them: what a machine can give before a transfer asks for it.

A tool of disks moves a file between storage and memory of one host; one of the network moves bytes between the memories of two. Both tell a
rate of their own, which counts here: tables of tools are made of what tools say. Where one tells none, it is the bytes over the time of its call.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from venturi.analysis.network import way_rate_and_rtt
from venturi.mover import movers
from venturi.run import Run

__all__ = ["DiskRate", "NetworkRate", "disk_rates", "network_rates"]

Way = Literal["write", "read"]

FAMILIES = {"fio-read": "fio", "fio-write": "fio", "read": "dd", "write": "dd"}
"""Movers that are one tool: each way is a mover of its own."""


@dataclass(frozen=True, slots=True)
class DiskRate:
    """What a tool says of a storage in one way: mean and standard error over its calls (no error of one), bytes per second.

    ``memory_bytes`` is what the host may use, ``limit_bytes_per_s`` what a lab made the storage to give; None: nothing tells.
    """

    machine: str
    tool: str
    way: Way
    rate_bytes_per_s: float
    error_bytes_per_s: float | None
    calls: int
    file_bytes: int
    memory_bytes: float | None
    limit_bytes_per_s: float | None


@dataclass(frozen=True, slots=True)
class NetworkRate:
    """What a tool says of the way from one host's memory to another's with so many streams; ``link_bit_per_s``: the slowest link."""

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
    """Return the rates of storages by machine, tool and way, of tools that only read, only write, or say both."""
    told: dict[tuple[str, str, Way, str, int], list[float]] = {}
    for row in _rows(run):
        tool = str(row["mover"])
        place = next(
            (str(row[end]).partition(":")[0] for end in ("source", "destination") if _is_place(row[end])), ""
        )
        for way, rate in _ways(tool, row):
            told.setdefault((str(row["host"]), FAMILIES.get(tool, tool), way, place, int(row["asked"])), []).append(
                rate
            )
    found = [
        DiskRate(machine, tool, way, *_mean(rates), len(rates), size, _memory(run, machine), _limit(run, place, way))
        for (machine, tool, way, place, size), rates in told.items()
    ]
    return tuple(sorted(found, key=lambda rate: (rate.machine, rate.way, rate.tool, rate.file_bytes)))


def network_rates(run: Run) -> tuple[NetworkRate, ...]:
    """Return the rates between memories by machine, tool and streams; ``machine`` is the host that the tool ran on."""
    services, calls = run.header.get("services") or {}, run.header.get("calls") or {}
    told: dict[tuple[str, str, str, str, int], list[float]] = {}
    for row in _rows(run):
        mover = movers().get(str(row["mover"]))
        if mover is None or mover.reads or mover.writes or not mover.speaks:
            continue
        host = str(row["host"])
        sender, receiver = (
            str((services.get(str(row[via] or "").partition("/")[0]) or {}).get("host") or host)
            for via in ("source_via", "destination_via")
        )
        options = (calls.get(str(row["call"])) or {}).get("options") or {}
        key = (host, sender, receiver, mover.name, int(options.get("streams") or 1))
        told.setdefault(key, []).append(8 * _rate(row))
    found = []
    for (host, sender, receiver, tool, streams), rates in told.items():
        link = way_rate_and_rtt(run, sender, receiver)[0]
        found.append(NetworkRate(host, sender, receiver, tool, streams, *_mean(rates), len(rates), link))
    return tuple(sorted(found, key=lambda rate: (rate.machine, rate.tool, rate.streams)))


def _rows(run: Run) -> Iterable[dict[str, Any]]:
    columns = run.query(
        """SELECT mover, call, host, source, destination, source_via, destination_via, asked_bytes::DOUBLE AS asked, duration_s,
                  tool_rate_bytes_per_s AS told, tool::VARCHAR AS detail
           FROM transfers WHERE outcome = 'ok' AND asked_bytes > 0 AND duration_s > 0 ORDER BY host, mover, start_s"""
    )
    for index in range(len(columns["mover"])):
        yield {name: column[index] for name, column in columns.items()}


def _ways(tool: str, row: Mapping[str, Any]) -> Iterable[tuple[Way, float]]:
    """Yield the ways that a call tells of: those in its report, or the one that it is made for."""
    detail = _detail(row)
    ways: tuple[Way, ...] = ("write", "read")
    for way in ways:
        if isinstance(rate := detail.get(f"{way}_bytes_per_s"), int | float):
            yield way, float(rate)
    mover = movers().get(tool)
    if mover is None or mover.speaks or mover.reads == mover.writes or tool not in FAMILIES:
        return
    yield ("read" if mover.reads else "write"), _rate(row)


def _detail(row: Mapping[str, Any]) -> Mapping[str, Any]:
    found = json.loads(row["detail"]) if row["detail"] else {}
    return found if isinstance(found, dict) else {}


def _rate(row: Mapping[str, Any]) -> float:
    told = row["told"]
    known = told is not None and not math.isnan(float(told))
    return float(told) if known else float(row["asked"]) / float(row["duration_s"])


def _is_place(end: object) -> bool:
    return isinstance(end, str) and end.partition(":")[0] not in ("null", "zero", "")


def _mean(rates: list[float]) -> tuple[float, float | None]:
    error = float(np.std(rates, ddof=1) / math.sqrt(len(rates))) if len(rates) > 1 else None
    return float(np.mean(rates)), error


def _memory(run: Run, machine: str) -> float | None:
    """Return what the processes of a host may use together: its limit in a lab, else what the scenario says it has."""
    host = (run.header.get("hosts") or {}).get(machine) or {}
    return (host.get("lab") or {}).get("memory_limit_bytes") or host.get("memory_bytes")


def _limit(run: Run, place: str, way: Way) -> float | None:
    storage = ((run.header.get("places") or {}).get(place) or {}).get("storage") or {}
    value = storage.get(f"{way}_bytes_per_s")
    return None if value is None else float(value)
