"""What the counters of the hosts say: rates in time, thinned to bins, and the steady part of long trials.

Counters are cumulative, so a rate is the difference of two neighbours over their distance. A gap (between two sessions
of a resumed run) and a counter that went back (a host that was started anew) give no rate.
"""

from __future__ import annotations

import numpy as np

from venturi.analysis.result import FloatArray, HostSeries, SteadySlice, Trace, Trials
from venturi.run import Run
from venturi.stats import steady_state

__all__ = [
    "BINS",
    "LONGEST_GAP",
    "device_bytes",
    "host_series",
    "lab_seconds",
    "merged",
    "processor_seconds",
    "steady_slices",
    "watching_slack_s",
]

BINS = 400
"""Bins of a trace: about as many as a figure has pixels to show them."""

LONGEST_GAP = 20.0
"""Neighbours further apart than so many times the median distance have no rate between them."""

FEWEST_SAMPLES = 60
"""Samples that a trial must hold before its steady part is looked for."""

MOST_SLICES = 6

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
_OWN = "counter IN ('cgroup.cpu.user_s', 'cgroup.cpu.system_s')"
_COLUMNS = {
    "busy": _BUSY,
    "idle": _IDLE,
    "wait": _WAIT,
    "own": _OWN,
    **{f"c{i}": where for i, where in enumerate(_CHANNELS.values())},
}


def host_series(run: Run, trials: Trials, *, bins: int = BINS) -> tuple[HostSeries, ...]:
    """Return the traces of every host that was sampled.

    Hosts of a lab share one machine. Where a host's own processor time is known (``cgroup.cpu.*``), it stands in place of the
    machine's, as a share of the cores that the host may use.
    """
    ends = run.query("SELECT min(time_s) AS first, max(time_s) AS last, count(*) AS n FROM samples")
    if int(ends["n"][0]) == 0 or not float(ends["last"][0]) > float(ends["first"][0]):
        return ()
    first, last = float(ends["first"][0]), float(ends["last"][0])
    width = (last - first) / bins
    rows = run.query(f"{_steps()} {_binned()}", {"first": first, "width": width, "bins": bins, "gap": LONGEST_GAP})
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
    """Return how many cores each host of a lab may use: its limit, those that it is pinned to, or all of the machine."""
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
) -> Trace | None:
    known = np.isfinite(mean)
    if not known.any() or (name in ("loopback", "waiting for disk") and float(np.nanmax(high)) <= 0):
        return None
    return Trace(
        name, "ratio" if unit == "ratio" else "bytes_per_s", time_s[known], low[known], mean[known], high[known]
    )


def _steps(where: str = "true") -> str:
    """Return the SQL of ``steps``: one row a host and moment, with the growth of every column since the one before."""
    sums = ", ".join(f"sum(value) FILTER ({condition}) AS {name}" for name, condition in _COLUMNS.items())
    growth = ", ".join(f"{name} - lag({name}) OVER w AS {name}" for name in _COLUMNS)
    wanted = " OR ".join(f"({condition})" for condition in (_BUSY, _IDLE, _OWN, *_CHANNELS.values()))
    return f"""WITH moments AS (
            SELECT host, time_s, {sums} FROM samples WHERE ({wanted}) AND {where} GROUP BY host, time_s),
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
    """Return the union of intervals, those closer than ``gap_s`` joined.

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
    begins = np.concatenate(([True], start[1:] > end[:-1] + gap_s))
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(start)) - 1
    return tuple(zip(start[first].tolist(), end[last].tolist(), strict=True))


def steady_slices(run: Run, trials: Trials, interval_s: float | None) -> tuple[SteadySlice, ...]:
    """Return the steady part of the longest trial of each point, of the points with the longest trials.

    The rate looked at is that of the channel which carried most bytes in the trial. Empty if no trial holds
    :data:`FEWEST_SAMPLES` samples.
    """
    if not interval_s:
        return ()
    span = trials.end_s - trials.start_s
    long = np.flatnonzero(span >= FEWEST_SAMPLES * interval_s)
    chosen: dict[int, int] = {}
    for index in long[np.argsort(-span[long], kind="stable")]:
        chosen.setdefault(int(trials.point[index]), int(index))
        if len(chosen) == MOST_SLICES:
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
    keep = np.concatenate(([True], np.diff(time) > 0))  # two hosts may be sampled at the same moment
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
    """Return how far each channel's counters went over the whole run, in bytes; a channel without counters is left out.

    The hosts of a lab are one machine with the same disks, which count once. A loop device is a file on another disk, and counts
    only where there is none.
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


def processor_seconds(run: Run) -> tuple[float, float, float] | None:
    """Return busy, stolen and all processor seconds of all machines over the run; None if they were not sampled.

    The hosts of a lab are one machine: that of the host which was sampled longest counts. Processors that the network only kept from
    halting were not busy.
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
    awake = run.query("SELECT max(value) - min(value) AS s FROM samples WHERE counter = 'wire.awake_cpu_s'")["s"]
    return (busy - float(np.nansum(np.asarray(awake, dtype=np.float64))), steal, total) if total > 0 else None


def lab_seconds(run: Run) -> float | None:
    """Return the processor seconds of all hosts of a lab and of its network; None if one was not watched to the end."""
    rows = run.query(
        """SELECT host, sum(grown) AS used, max(last) AS last, (SELECT max(end_s) FROM transfers) AS needed
           FROM (SELECT host, max(value) - min(value) AS grown, max(time_s) AS last FROM samples
                 WHERE counter LIKE 'cgroup.cpu.%' OR counter = 'wire.cpu_s' GROUP BY host, counter) GROUP BY host"""
    )
    slack_s = watching_slack_s(run)
    watched = {host for host, last, needed in zip(rows["host"], rows["last"], rows["needed"], strict=True)
               if last >= needed - slack_s}  # fmt: skip
    if not watched or not set(run.header.get("hosts") or {}) <= watched:
        return None
    return float(sum(rows["used"]))


def watching_slack_s(run: Run) -> float:
    """Return how long before the last end the last sample of a host may be that was watched to the end."""
    return 5 * float((run.header.get("measure") or {}).get("interval_s") or 0.1) + 0.5
