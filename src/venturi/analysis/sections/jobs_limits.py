"""Bottlenecks of batches of jobs: resources at their limit, and components that a faster configuration excludes (F156).

A component of a configuration is *cleared* if a faster configuration has the same component in its path. A link is also
cleared if its use was below :data:`IDLE`. The limit must be among the components that remain. Direct measurements come
first: jobs that wait for their own rate, a full link, storage at its rate, or a host without idle CPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from venturi.analysis.batches import JobBatchResult
from venturi.analysis.link_rates import link_rates
from venturi.analysis.section import Column, Scalar, Table
from venturi.run import Run
from venturi.units import BITS_PER_BYTE, format_bit_rate

__all__ = ["limits_table"]

FULL = 0.9
"""Minimum use of a full link, storage or host CPU."""
OWN_RATE = 0.8
"""Minimum fraction of their time that jobs spend computing or waiting for their own rate if they limit themselves."""
IDLE = 0.5
"""Use below which a link is cleared by its own counters. No batch is so uneven that such a link limits it as a whole."""
MIN_LINK_FRACTION = 0.5
"""Fraction of the jobs' read rate that a link must carry to count as part of their path."""
MORE = 1.1
"""Minimum ratio of the rates of two configurations for the faster one to clear a component, above the scatter of batches."""


@dataclass(frozen=True)
class _Load:
    """Resources in the path of a batch and their load."""

    batch: JobBatchResult
    rate_bit_per_s: float
    links: Mapping[str, tuple[float, float | None]]
    """Link → (carried rate, configured rate) in bit/s, for the links of the path."""
    parts: tuple[str, ...]
    """Links, servers and storages of the path."""


def limits_table(run: Run, found: Sequence[JobBatchResult]) -> Table | None:
    """Return the limit of each configuration at its largest batch, or None if no batch is complete."""
    largest: dict[tuple[str, str], JobBatchResult] = {}
    for batch in found:
        if batch.wall_s and batch.slice is not None:
            key = (batch.application, batch.configuration)
            if key not in largest or batch.jobs > largest[key].jobs:
                largest[key] = batch
    if not largest:
        return None
    loads = [_load(run, batch) for batch in largest.values()]
    columns = (
        Column("application", "Application"),
        Column("configuration", "Configuration"),
        Column("limit", "Limit"),
        Column("evidence", "Evidence"),
        Column("jobs", "Jobs"),
        Column("rate_bit_per_s", "Read by the jobs"),
        Column("cleared", "Excluded: more traffic in another configuration, or idle"),
        Column("left", "Remaining"),
    )
    rows = tuple(_row(run, load, loads) for load in loads)
    note = ("A limit is measured if possible: jobs that wait for their own rate, a full link, storage at its read rate, or a host without idle CPU. "
            "Otherwise it is the part of the path that no faster configuration shares (elimination as in section 6.1 of report 003).")  # fmt: skip
    return Table("jobs-limits", "Bottlenecks of the largest batches", columns, rows, note)


def _load(run: Run, batch: JobBatchResult) -> _Load:
    rate = BITS_PER_BYTE * batch.moved_bytes / (batch.wall_s or np.nan)
    known = link_rates(run)
    load_bit_per_s = _link_loads(run, batch)
    links = {
        name: (value, known.mean(name, batch.start_s, batch.end_s))
        for name, value in load_bit_per_s.items()
        if value >= MIN_LINK_FRACTION * rate
    }
    where = ((run.header.get("scenario") or {}).get("workload") or {}).get("configuration", {})
    options = where.get(batch.configuration, {})
    servers = [f"server {name}" for name in options.get("service") or ()]
    mounts = [f"storage {name}" for name in options.get("storage") or ()]
    return _Load(batch, rate, links, (*(f"link {name}" for name in links), *servers, *mounts))


def _link_loads(run: Run, batch: JobBatchResult) -> dict[str, float]:
    """Return the mean rate of each link over a batch, in bit/s. Links of single workers drop out later, by their small rate."""
    rows = run.query(
        """SELECT regexp_extract(counter, '^link\\.(.*)\\.bytes$', 1) AS link,
                  (max(value) - min(value)) / nullif(max(time_s) - min(time_s), 0) AS rate
           FROM samples WHERE counter LIKE 'link.%.bytes' AND time_s BETWEEN $begin AND $end GROUP BY link ORDER BY link""",
        {"begin": batch.start_s, "end": batch.end_s},
    )
    return {
        str(link): BITS_PER_BYTE * float(rate)
        for link, rate in zip(rows["link"], rows["rate"], strict=True)
        if rate is not None and np.isfinite(float(rate))
    }


def _row(run: Run, load: _Load, loads: Sequence[_Load]) -> tuple[Scalar, ...]:
    others = [
        other
        for other in loads
        if other is not load
        and other.batch.application == load.batch.application
        and other.rate_bit_per_s > MORE * load.rate_bit_per_s
    ]
    cleared = {
        f"link {name}": f"{100 * load_bit_per_s / rate:.0f} % of its rate"
        for name, (load_bit_per_s, rate) in load.links.items()
        if others and rate and load_bit_per_s < IDLE * rate
    }
    cleared |= {part: other.batch.configuration for other in others for part in load.parts if part in other.parts}
    left = [part for part in load.parts if part not in cleared]
    limit, evidence = _limit(run, load, left if others else [])
    named = "; ".join(f"{part} ({why})" for part, why in cleared.items())
    batch = load.batch
    return (
        *(batch.application, batch.configuration, limit, evidence, batch.jobs, load.rate_bit_per_s),
        *(named or None, ", ".join(left) or None),
    )


def _limit(run: Run, load: _Load, left: Sequence[str]) -> tuple[str, str]:
    waiting = _own_time_fraction(run, load.batch)
    if waiting is not None and waiting >= OWN_RATE:
        return (
            "the jobs themselves",
            f"they waited for their own rate, or computed, for {100 * waiting:.0f} % of their time",
        )
    full = {name: c / rate for name, (c, rate) in load.links.items() if rate and c >= FULL * rate}
    if full:
        name = max(full, key=lambda key: full[key])
        return f"link {name}", f"it carried {100 * full[name]:.0f} % of its rate over the whole batch"
    disk = _full_storage(run, load)
    if disk is not None:
        return f"storage {disk[0]}", f"it delivered {100 * disk[1]:.0f} % of its read rate"
    hosts = _busy_hosts(run, load.batch)
    if hosts:
        host = max(hosts, key=lambda key: hosts[key])
        return (
            f"CPU of {host}",
            f"{100 * hosts[host]:.0f} % of its CPU capacity was busy during the batch",
        )
    busiest = max(load.links.items(), key=lambda item: item[1][0] / (item[1][1] or np.inf), default=None)
    what = "no link was full, and all hosts had idle CPU"
    if busiest is not None and busiest[1][1]:
        what += f" (fullest: link {busiest[0]} with {100 * busiest[1][0] / busiest[1][1]:.0f} % of its rate)"
    if left:
        return (
            f"one of: {', '.join(left)}",
            f"{what}; the rest of the path carried more in another configuration, or was idle half of the time",
        )
    if waiting is not None:
        what += f"; the jobs waited for their own rate for {100 * waiting:.0f} % of their time, {format_bit_rate(load.rate_bit_per_s)} in all"
    return "not found", what


def _full_storage(run: Run, load: _Load) -> tuple[str, float] | None:
    """Return the storage of a configuration and its use, if it is the only one and delivers its configured read rate."""
    names = [part.removeprefix("storage ") for part in load.parts if part.startswith("storage ")]
    if len(names) != 1:
        return None
    storage = (run.header.get("storages") or {}).get(names[0]) or {}
    rate = (storage.get("spec") or {}).get("read_bytes_per_s")
    fraction = load.rate_bit_per_s / BITS_PER_BYTE / rate if rate else 0.0
    return (names[0], fraction) if fraction >= FULL else None


def _own_time_fraction(run: Run, batch: JobBatchResult) -> float | None:
    """Return the fraction of the jobs' time spent waiting for their own rate or computing, or None if jobs do not report it."""
    rows = run.query(
        """SELECT sum(try_cast(tool ->> 'waited_s' AS DOUBLE) + try_cast(tool ->> 'compute_s' AS DOUBLE)) AS own, sum(tool_duration_s) AS total
           FROM transfers WHERE point IS NOT NULL AND outcome = 'ok' AND start_s >= $begin AND end_s <= $end""",
        {"begin": batch.start_s, "end": batch.end_s},
    )
    own, total = float(rows["own"][0] or np.nan), float(rows["total"][0] or np.nan)
    return own / total if total > 0 and np.isfinite(own) else None


def _busy_hosts(run: Run, batch: JobBatchResult) -> dict[str, float]:
    """Return the hosts whose CPU was nearly always busy during a batch, with the busy fraction.

    Lab hosts are measured by their cgroups.
    """
    rows = run.query(
        """SELECT host, sum(grown) FILTER (counter LIKE 'cgroup.cpu.%') AS own,
                  sum(grown) FILTER (counter IN ('cpu.user_s', 'cpu.system_s', 'cpu.steal_s')) AS busy,
                  sum(grown) FILTER (counter IN ('cpu.user_s', 'cpu.system_s', 'cpu.steal_s', 'cpu.idle_s', 'cpu.iowait_s')) AS total
           FROM (SELECT host, counter, max(value) - min(value) AS grown FROM samples
                 WHERE (counter LIKE 'cpu.%' OR counter LIKE 'cgroup.cpu.%') AND time_s BETWEEN $begin AND $end GROUP BY host, counter)
           GROUP BY host ORDER BY host""",
        {"begin": batch.start_s, "end": batch.end_s},
    )
    wall = batch.wall_s or np.nan
    found = {}
    for index, host in enumerate(rows["host"]):
        own, busy, total = (float(rows[name][index] or np.nan) for name in ("own", "busy", "total"))
        lab = (run.header.get("hosts") or {}).get(str(host), {}).get("lab")
        cores = (lab or {}).get("cpu_limit_cores") or float(len((lab or {}).get("cpus") or ())) or total / wall
        fraction = own / wall / cores if lab and np.isfinite(own) else busy / total
        if fraction >= FULL:
            found[str(host)] = float(fraction)
    return found
