"""What limits batches of jobs: what was at its limit while they ran, and what can be excluded by putting another component in its place (F156).

A component of a configuration is *cleared* if another configuration, with the same component in its path, got more through it, and a link also if it was seen to be
idle half of the time. What is left when all that can be cleared is cleared is where the limit must lie. What is measured directly (a link that is full, a host without idle processors, jobs
that wait for nothing but their own rate) comes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from venturi.analysis.batches import Batch
from venturi.analysis.chapter import Column, Scalar, Table
from venturi.analysis.words import bit_rate
from venturi.run import Run
from venturi.units import BITS_PER_BYTE

__all__ = ["limits_table"]

FULL = 0.9
"""Share of its rate from which a link is full; of its processors from which a host has none left."""
OWN_RATE = 0.8
"""Share of the time that jobs wait for their own rate, or compute, from which that is what limits."""
IDLE = 0.5
"""Share of its rate up to which a link is cleared by what was counted on it: no batch is so uneven that such a link holds it back as a whole."""
CARRIES = 0.5
"""Share of what the jobs read that a link must carry to be in their path."""
MORE = 1.1
"""What another configuration must get through a component, relative, to clear it: beyond the scatter of batches."""


@dataclass(frozen=True)
class _Load:
    """What was in the path of a batch, and how much each part of it had to do."""

    batch: Batch
    rate_bit_per_s: float
    links: Mapping[str, tuple[float, float | None]]
    """Carried, and its rate, in b/s; in the path alone."""
    parts: tuple[str, ...]
    """Links and servers of the path."""


def limits_table(run: Run, found: Sequence[Batch]) -> Table | None:
    """Return what limits each configuration at its largest batch; None if no batch is whole."""
    largest: dict[tuple[str, str], Batch] = {}
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
        Column("limit", "What limits"),
        Column("evidence", "By which evidence"),
        Column("jobs", "Jobs"),
        Column("rate_bit_per_s", "Read by the jobs"),
        Column("cleared", "Cleared: more went through it there, or it was idle"),
        Column("left", "Not cleared"),
    )
    rows = tuple(_row(run, load, loads) for load in loads)
    note = ("Measured limits stand first: jobs that wait for their own rate, a link that is full, a host without idle processors. Where none is, "
            "what no faster configuration shares is left (the search of report 003, 6.1).")  # fmt: skip
    return Table("jobs-limits", "What limits the largest batches", columns, rows, note)


def _load(run: Run, batch: Batch) -> _Load:
    rate = BITS_PER_BYTE * batch.moved_bytes / (batch.wall_s or np.nan)
    known = ((run.header.get("network") or {}).get("links")) or {}
    carried = _carried(run, batch)
    links = {
        name: (value, known.get(name, {}).get("rate_bit_per_s"))
        for name, value in carried.items()
        if value >= CARRIES * rate
    }
    where = ((run.header.get("scenario") or {}).get("workload") or {}).get("configuration", {})
    told = where.get(batch.configuration, {})
    servers = [f"server {name}" for name in told.get("service") or ()]
    mounts = [f"storage {name}" for name in told.get("storage") or ()]
    return _Load(batch, rate, links, (*(f"link {name}" for name in links), *servers, *mounts))


def _carried(run: Run, batch: Batch) -> dict[str, float]:
    """Return what each link carried in the mean over a batch, in b/s; links of one worker each are none of the shared ones."""
    rows = run.query(
        """SELECT regexp_extract(counter, '^link\\.(.*)\\.bytes$', 1) AS link,
                  (max(value) - min(value)) / nullif(max(time_s) - min(time_s), 0) AS rate
           FROM samples WHERE counter LIKE 'link.%.bytes' AND time_s BETWEEN $begin AND $end GROUP BY link ORDER BY link""",
        {"begin": batch.begin_s, "end": batch.end_s},
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
        f"link {name}": f"{100 * carried / rate:.0f} % of its rate"
        for name, (carried, rate) in load.links.items()
        if others and rate and carried < IDLE * rate
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
    waiting = _own_rate(run, load.batch)
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
        return f"storage {disk[0]}", f"it gave {100 * disk[1]:.0f} % of the rate at which it can be read"
    hosts = _busy_hosts(run, load.batch)
    if hosts:
        host = max(hosts, key=lambda key: hosts[key])
        return (
            f"processor of {host}",
            f"{100 * hosts[host]:.0f} % of the processors that it may use were busy over the batch",
        )
    busiest = max(load.links.items(), key=lambda item: item[1][0] / (item[1][1] or np.inf), default=None)
    what = "no link was full and no host without idle processors"
    if busiest is not None and busiest[1][1]:
        what += f" (fullest: link {busiest[0]} with {100 * busiest[1][0] / busiest[1][1]:.0f} % of its rate)"
    if left:
        return (
            f"one of: {', '.join(left)}",
            f"{what}; all else in the path carried more in another configuration, or was idle half of the time",
        )
    if waiting is not None:
        what += f"; the jobs waited for their own rate for {100 * waiting:.0f} % of their time, {bit_rate(load.rate_bit_per_s)} in all"
    return "not found", what


def _full_storage(run: Run, load: _Load) -> tuple[str, float] | None:
    """Return the one storage of a configuration and its share of the rate that the testbed gives it, if it is at that rate."""
    names = [part.removeprefix("storage ") for part in load.parts if part.startswith("storage ")]
    if len(names) != 1:
        return None
    place = (run.header.get("places") or {}).get(names[0]) or {}
    rate = (place.get("storage") or {}).get("read_bytes_per_s")
    share = load.rate_bit_per_s / BITS_PER_BYTE / rate if rate else 0.0
    return (names[0], share) if share >= FULL else None


def _own_rate(run: Run, batch: Batch) -> float | None:
    """Return which share of the jobs' time passed waiting for their own rate or computing, None if they do not say."""
    rows = run.query(
        """SELECT sum(try_cast(tool ->> 'waited_s' AS DOUBLE) + try_cast(tool ->> 'compute_s' AS DOUBLE)) AS own, sum(tool_duration_s) AS total
           FROM transfers WHERE point IS NOT NULL AND outcome = 'ok' AND start_s >= $begin AND end_s <= $end""",
        {"begin": batch.begin_s, "end": batch.end_s},
    )
    own, total = float(rows["own"][0] or np.nan), float(rows["total"][0] or np.nan)
    return own / total if total > 0 and np.isfinite(own) else None


def _busy_hosts(run: Run, batch: Batch) -> dict[str, float]:
    """Return hosts whose own processors were nearly all busy over a batch, with the share: those of a lab by their control groups."""
    rows = run.query(
        """SELECT host, sum(grown) FILTER (counter LIKE 'cgroup.cpu.%') AS own,
                  sum(grown) FILTER (counter IN ('cpu.user_s', 'cpu.system_s', 'cpu.steal_s')) AS busy,
                  sum(grown) FILTER (counter LIKE 'cpu.%') AS total
           FROM (SELECT host, counter, max(value) - min(value) AS grown FROM samples
                 WHERE (counter LIKE 'cpu.%' OR counter LIKE 'cgroup.cpu.%') AND time_s BETWEEN $begin AND $end GROUP BY host, counter)
           GROUP BY host ORDER BY host""",
        {"begin": batch.begin_s, "end": batch.end_s},
    )
    wall = batch.wall_s or np.nan
    found = {}
    for index, host in enumerate(rows["host"]):
        own, busy, total = (float(rows[name][index] or np.nan) for name in ("own", "busy", "total"))
        lab = (run.header.get("hosts") or {}).get(str(host), {}).get("lab")
        cores = (lab or {}).get("cpu_limit_cores") or float(len((lab or {}).get("cpus") or ())) or total / wall
        share = own / wall / cores if lab and np.isfinite(own) else busy / total
        if share >= FULL:
            found[str(host)] = float(share)
    return found
