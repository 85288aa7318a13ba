"""Rates of the host counters in time, reduced to bins, and the steady part of long trials.

Counters are cumulative, so a rate is the difference of two adjacent values over their time difference. A gap between
two sessions of a resumed run gives no rate. A counter that decreased because its host restarted gives no rate either.
"""

from __future__ import annotations

import numpy as np

from venturi.analysis.result import FloatArray, HostSeries, RateTrace, SteadySlice, Trials
from venturi.run import Run
from venturi.stats import steady_state

__all__ = [
    "BINS",
    "MAX_GAP",
    "cpu_seconds",
    "device_bytes",
    "host_series",
    "lab_seconds",
    "merged",
    "steady_slices",
    "watching_slack_s",
]

BINS = 400
"""Bins of a trace, about one per pixel of a figure."""

MAX_GAP = 20.0
"""Maximum distance of two samples with a rate between them, in multiples of the median distance."""

MIN_SAMPLES = 60
"""Minimum number of samples in a trial for the search of its steady part."""

MAX_SLICES = 6

_CHANNELS = {
    "disk read": "counter LIKE 'disk.%.read_bytes'",
    "disk written": "counter LIKE 'disk.%.write_bytes'",
    "network received": "counter LIKE 'nic.%.rx_bytes' AND counter <> 'nic.lo.rx_bytes'",
    "network sent": "counter LIKE 'nic.%.tx_bytes' AND counter <> 'nic.lo.tx_bytes'",
    "loopback": "counter = 'nic.lo.rx_bytes'",
}
_BUSY = "counter IN ('cpu.user_s', 'cpu.system_s', 'cpu.steal_s')"
_IDLE = "counter IN ('cpu.idle_s', 'cpu.iowait_s')"
_WAIT = "counter = 'cpu.iowait_s'"
_OWN_CONDITION = "counter IN ('cgroup.cpu.user_s', 'cgroup.cpu.system_s')"
_COLUMNS = {
    "busy": _BUSY,
    "idle": _IDLE,
    "wait": _WAIT,
    "own": _OWN_CONDITION,
    **{f"c{i}": where for i, where in enumerate(_CHANNELS.values())},
}


def host_series(run: Run, trials: Trials, *, bins: int = BINS) -> tuple[HostSeries, ...]:
    """Return the traces of every sampled host.

    Hosts of a lab run on one machine. If a host has its own CPU time (``cgroup.cpu.*``), this replaces the CPU time of
    the machine. It is a fraction of the cores that the host can use.
    """
    ends = run.query("SELECT min(time_s) AS first, max(time_s) AS last, count(*) AS n FROM samples")
    if int(ends["n"][0]) == 0 or not float(ends["last"][0]) > float(ends["first"][0]):
        return ()
    first, last = float(ends["first"][0]), float(ends["last"][0])
    width = (last - first) / bins
    rows = run.query(f"{_steps()} {_binned()}", {"first": first, "width": width, "bins": bins, "gap": MAX_GAP})
    busy = merged(trials.start_s, trials.end_s, width / 2)
    cores = _cores(run)
    found = []
    for host in dict.fromkeys(rows["host"]):
        own = rows["host"] == host
        middle = first + (rows["bin"][own].astype(np.float64) + 0.5) * width
        of_host = bool(np.isfinite(np.asarray(rows["own_mean"][own], dtype=np.float64)).any()) and bool(
            cores.get(host)
        )
        traces = [
            _trace(name, unit, middle, *(np.asarray(rows[f"{key}_{kind}"][own], dtype=np.float64) / (cores[host] if key == "own" else 1.0)
                                         for kind in ("low", "mean", "high")))
            for name, unit, key in _shown(of_host)
        ]  # fmt: skip
        found.append(
            HostSeries(str(host), tuple(t for t in traces if t is not None), busy, int(rows["n"][own].sum()))
        )
    return tuple(found)


def _shown(of_host: bool) -> list[tuple[str, str, str]]:
    return [("processor", "ratio", "own" if of_host else "cpu"), *([] if of_host else [("waiting for disk", "ratio", "wait")]),
            *((name, "bytes_per_s", f"c{i}") for i, name in enumerate(_CHANNELS))]  # fmt: skip


def _cores(run: Run) -> dict[str, float]:
    """Return the usable cores of each host of a lab: its limit, its pinned cores, or all cores of the machine."""
    found = {}
    for name, host in (run.header.get("hosts") or {}).items():
        lab = host.get("lab") or {}
        pinned = float(len(lab.get("cpus") or ()))
        machine = float((run.environment().get(name) or {}).get("cpu.usable") or 0.0)
        limits = [value for value in (lab.get("cpu_limit_cores"), pinned, machine) if value]
        found[name] = min(limits, default=0.0)
    return found


def _trace(
    name: str, unit: str, time_s: FloatArray, low: FloatArray, mean: FloatArray, high: FloatArray
) -> RateTrace | None:
    known = np.isfinite(mean)
    if not known.any() or (name in ("loopback", "waiting for disk") and float(np.nanmax(high)) <= 0):
        return None
    return RateTrace(
        name, "ratio" if unit == "ratio" else "bytes_per_s", time_s[known], low[known], mean[known], high[known]
    )


def _steps(where: str = "true") -> str:
    """Return the SQL of ``steps``: one row per host and sample, with the growth of every column."""
    sums = ", ".join(f"sum(value) FILTER ({condition}) AS {name}" for name, condition in _COLUMNS.items())
    growth = ", ".join(f"{name} - lag({name}) OVER w AS {name}" for name in _COLUMNS)
    condition_sql = " OR ".join(f"({condition})" for condition in (_BUSY, _IDLE, _OWN_CONDITION, *_CHANNELS.values()))
    return f"""WITH moments AS (
            SELECT host, time_s, {sums} FROM samples WHERE ({condition_sql}) AND {where} GROUP BY host, time_s),
        steps AS (
            SELECT host, time_s, time_s - lag(time_s) OVER w AS dt, {growth}
            FROM moments WINDOW w AS (PARTITION BY host ORDER BY time_s))"""


def _binned() -> str:
    def of(name: str, rate: str, above: str, below: str) -> str:
        return (
            f"min({rate}) FILTER ({above} >= 0) AS {name}_low, max({rate}) FILTER ({above} >= 0) AS {name}_high, "
            f"sum({above}) FILTER ({above} >= 0) / nullif(sum({below}) FILTER ({above} >= 0), 0) AS {name}_mean"
        )

    total = "(busy + idle)"
    columns = [
        of("cpu", f"busy / nullif({total}, 0)", "busy", total),
        of("wait", f"wait / nullif({total}, 0)", "wait", total),
        of("own", "own / dt", "own", "dt"),
    ]
    columns += [of(f"c{i}", f"c{i} / dt", f"c{i}", "dt") for i in range(len(_CHANNELS))]
    return f"""SELECT host, least(floor((time_s - dt / 2 - $first) / $width), $bins - 1)::INTEGER AS bin, count(*) AS n,
            {", ".join(columns)}
        FROM steps WHERE dt > 0 AND dt < $gap * (SELECT median(dt) FROM steps WHERE dt > 0)
        GROUP BY host, bin ORDER BY host, bin"""


def merged(start_s: FloatArray, end_s: FloatArray, gap_s: float) -> tuple[tuple[float, float], ...]:
    """Return the union of intervals. Intervals closer than ``gap_s`` are joined.

    Examples
    --------
    >>> import numpy as np
    >>> merged(np.array([0.0, 2.0, 9.0]), np.array([1.0, 3.0, 10.0]), 1.5)
    ((0.0, 3.0), (9.0, 10.0))
    """
    if len(start_s) == 0:
        return ()
    order = np.argsort(start_s, kind="stable")
    start, end = start_s[order], np.maximum.accumulate(end_s[order])
    first_of_run = np.concatenate(([True], start[1:] > end[:-1] + gap_s))
    first = np.flatnonzero(first_of_run)
    last = np.append(first[1:], len(start)) - 1
    return tuple(zip(start[first].tolist(), end[last].tolist(), strict=True))


def steady_slices(run: Run, trials: Trials, interval_s: float | None) -> tuple[SteadySlice, ...]:
    """Return the steady part of the longest trial of each point, for the points with the longest trials.

    The rate belongs to the channel with the most bytes in the trial. The result is empty if no trial holds
    :data:`MIN_SAMPLES` samples.
    """
    if not interval_s:
        return ()
    span = trials.end_s - trials.start_s
    long = np.flatnonzero(span >= MIN_SAMPLES * interval_s)
    chosen: dict[int, int] = {}
    for index in long[np.argsort(-span[long], kind="stable")]:
        chosen.setdefault(int(trials.point[index]), int(index))
        if len(chosen) == MAX_SLICES:
            break
    found = (_slice(run, trials, index) for index in chosen.values())
    return tuple(slice_ for slice_ in found if slice_ is not None)


def _slice(run: Run, trials: Trials, index: int) -> SteadySlice | None:
    start, end = float(trials.start_s[index]), float(trials.end_s[index])
    names = list(_CHANNELS)
    sums = ", ".join(f"sum(c{i})::DOUBLE / dt AS c{i}" for i in range(len(names)))
    rows = run.query(
        f"{_steps('time_s BETWEEN $start AND $end')} SELECT time_s, {sums} FROM steps WHERE dt > 0 GROUP BY time_s, dt ORDER BY 1",
        {"start": start, "end": end},
    )
    rates = {name: np.asarray(rows[f"c{i}"], dtype=np.float64) for i, name in enumerate(names)}
    known = {name: rate for name, rate in rates.items() if len(rate) and np.isfinite(rate).all()}
    if not known:
        return None
    name = max(known, key=lambda key: float(known[key].sum()))
    time = np.asarray(rows["time_s"], dtype=np.float64)
    keep = np.concatenate(([True], np.diff(time) > 0))  # two hosts can have samples at the same time
    state = steady_state(time[keep], known[name][keep])
    return SteadySlice(
        trial=str(
            run.query("SELECT trial FROM trials WHERE position = ?", [int(trials.position[index])])["trial"][0]
        ),
        point=int(trials.point[index]),
        counter=name,
        whole_bytes_per_s=state.whole.mean,
        steady_bytes_per_s=None if state.steady is None else state.steady.mean,
        start_s=None if state.start_s is None else state.start_s - start,
        end_s=None if state.end_s is None else state.end_s - start,
        rule=state.rule,
        reason=state.reason,
    )


def device_bytes(run: Run) -> dict[str, float]:
    """Return the growth of each channel's counters over the whole run, in bytes.

    Channels without counters are left out. The hosts of a lab are one machine with the same disks, which count once. A
    loop device is a file on another disk, so it only counts without another disk.
    """
    sums = ", ".join(f"sum(grown) FILTER ({where}) AS c{i}" for i, where in enumerate(_CHANNELS.values()))
    machine = "'lab'" if _is_lab(run) else "host"
    rows = run.query(
        f"""WITH counted AS (
                SELECT CASE WHEN counter LIKE 'disk.%' THEN {machine} ELSE host END AS owner, counter,
                       max(value) - min(value) AS grown
                FROM samples WHERE counter LIKE 'disk.%' OR counter LIKE 'nic.%' GROUP BY host, counter),
            once AS (SELECT owner, counter, max(grown) AS grown FROM counted GROUP BY owner, counter),
            loops AS (SELECT owner FROM once GROUP BY owner HAVING bool_or(counter LIKE 'disk.%' AND counter NOT LIKE 'disk.loop%'))
            SELECT {sums} FROM once
            WHERE NOT (counter LIKE 'disk.loop%' AND owner IN (SELECT owner FROM loops))"""
    )
    values = {name: rows[f"c{i}"][0] for i, name in enumerate(_CHANNELS)}
    return {name: float(value) for name, value in values.items() if value is not None and np.isfinite(float(value))}


def _is_lab(run: Run) -> bool:
    return any(host.get("lab") for host in (run.header.get("hosts") or {}).values())


def cpu_seconds(run: Run) -> tuple[float, float, float] | None:
    """Return busy, stolen and total CPU seconds of all machines over the run, or None without samples.

    The hosts of a lab are one machine, so only the host with the longest sampling counts. CPU time that the network
    emulator uses to prevent idle states does not count as busy.
    """
    rows = run.query(
        f"""SELECT host, sum(grown) FILTER ({_BUSY}) AS busy, sum(grown) FILTER (counter = 'cpu.steal_s') AS steal, sum(grown) AS total
            FROM (SELECT host, counter, max(value) - min(value) AS grown FROM samples
                  WHERE {_BUSY} OR {_IDLE} GROUP BY host, counter) GROUP BY host ORDER BY total DESC"""
    )
    kept = slice(0, 1 if _is_lab(run) else None)
    busy, steal, total = (
        float(np.nansum(np.asarray(rows[name][kept], dtype=np.float64))) for name in ("busy", "steal", "total")
    )
    awake_rows = run.query("SELECT max(value) - min(value) AS s FROM samples WHERE counter = 'emulator.awake_cpu_s'")[
        "s"
    ]
    return (busy - float(np.nansum(np.asarray(awake_rows, dtype=np.float64))), steal, total) if total > 0 else None


def lab_seconds(run: Run) -> float | None:
    """Return the CPU seconds of all hosts of a lab and of its network.

    None if a host was not sampled to the end.
    """
    rows = run.query(
        """SELECT host, sum(grown) AS used, max(last) AS last, (SELECT max(end_s) FROM transfers) AS needed
           FROM (SELECT host, max(value) - min(value) AS grown, max(time_s) AS last FROM samples
                 WHERE counter LIKE 'cgroup.cpu.%' OR counter = 'emulator.cpu_s' GROUP BY host, counter) GROUP BY host"""
    )
    slack_s = watching_slack_s(run)
    watched = {host for host, last, needed in zip(rows["host"], rows["last"], rows["needed"], strict=True)
               if last >= needed - slack_s}  # fmt: skip
    if not watched or not set(run.header.get("hosts") or {}) <= watched:
        return None
    return float(sum(rows["used"]))


def watching_slack_s(run: Run) -> float:
    """Return the maximum time between the last sample of a host and the last end, for a host sampled to the end."""
    return 5 * float((run.header.get("measure") or {}).get("interval_s") or 0.1) + 0.5
