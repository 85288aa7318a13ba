"""Measurements of a run by point, in one form for real and simulated transfers.

The time of a transfer is from the start of its tool to its end. For a tool that runs for a set time it is the time per
byte, so that its logarithm represents a rate. A trial counts as the median of its transfers, and a point as the median
of its trials, so that neither a hung call nor a bad trial shifts it. Trials with a failed transfer are omitted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from venturi.analysis.network import route_rate_and_rtt
from venturi.calibration.result import CalibrationPoint
from venturi.run import Run

__all__ = ["LEAST_ERROR", "Moved", "measured", "medians", "points_of"]

LEAST_ERROR = 0.03
"""Minimum standard error of a point's log time, for clock errors and other activity on the machine."""
MEDIAN_EFFICIENCY = 1.2533
"""Standard error of a median divided by the standard error of a mean, √(π/2), for normal errors."""
OF_MAD = 1.4826
"""Standard deviation of a normal distribution divided by the median of absolute deviations."""
TIMED = ("time_s", "duration_s")
"""Options that make a call run for a set time. The rate of such calls is measured."""

Key = tuple[int, str]
"""A point of a plan and a mover. Outside trials: -1 and a call."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A transfer that was executed or simulated.

    ``time_s`` is None if the transfer failed or its time is unknown. ``bottleneck`` maps each resource to the fraction
    of time that it limited the transfer.
    """

    key: Key
    trial: str | None
    actor: str
    slot: int
    call: str
    source_via: str | None
    destination_via: str | None
    host: str
    files: int
    bytes: float
    time_s: float | None
    bottleneck: Mapping[str, float]


def moved(record: Mapping[str, Any], calls: Mapping[str, Any], point: int | None, host: str) -> Moved:
    """Return a record of the journal or of the engine as a transfer. ``calls`` is the table of the plan's header, as JSON."""
    call = str(record["call"])
    options = calls[call]["options"]
    timed = any(options.get(key) is not None for key in TIMED)
    taken = record.get("tool_rate_bytes_per_s" if timed else "duration_s")
    good = record["outcome"] == "ok" and taken is not None and math.isfinite(taken) and taken > 0
    return Moved(
        key=(-1, call) if point is None else (point, str(calls[call]["mover"])),
        trial=record.get("trial"),
        actor=str(record["actor"]),
        slot=int(record["slot"]),
        call=call,
        source_via=record.get("source_via"),
        destination_via=record.get("destination_via"),
        host=host,
        files=int(record["files"]),
        bytes=float(record.get("tool_bytes") or 0.0) if timed else float(record["requested_bytes"]),
        time_s=(1.0 / float(taken) if timed else float(taken)) if good and taken is not None else None,
        bottleneck=record.get("bottleneck") or {},
    )


def measured(run: Run) -> list[Moved]:
    """Return the transfers of a run, in the order of their execution."""
    names = (
        "trial", "point", "actor", "slot", "call", "source_via", "destination_via", "host", "files", "requested_bytes",
        "tool_bytes", "tool_rate_bytes_per_s", "duration_s", "outcome",
    )  # fmt: skip
    table = run.query(f"SELECT {', '.join(names)} FROM transfers ORDER BY position NULLS LAST, start_s")
    calls = run.header["calls"]
    found = []
    for row in zip(*(table[name] for name in names), strict=True):
        record = {name: _known(value) for name, value in zip(names, row, strict=True)}
        point = record["point"]
        found.append(moved(record, calls, None if point is None else int(point), str(record["host"])))
    return found


def _known(value: Any) -> Any:  # noqa: ANN401 - a cell of any column
    return None if isinstance(value, float) and math.isnan(value) else value


def medians(transfers: Iterable[Moved]) -> dict[Key, list[float]]:
    """Return the times of the good trials of each point. The time of a trial is the median of its transfers.

    Outside trials, each transfer counts as a trial.
    """
    trials: dict[tuple[Key, object], list[float | None]] = {}
    for number, one in enumerate(transfers):
        trials.setdefault((one.key, one.trial if one.trial is not None else number), []).append(one.time_s)
    found: dict[Key, list[float]] = {}
    for (key, _), times in trials.items():
        good = [time for time in times if time is not None]
        if len(good) == len(times):
            found.setdefault(key, []).append(float(np.median(good)))
    return found


def points_of(run: Run, transfers: list[Moved], number: int = 0) -> list[CalibrationPoint]:
    """Return the points of a run that have a good trial, with their errors.

    The error is the standard error of the median of log times. The scatter of two or three trials is uncertain, so it
    is combined with the pooled scatter of the run, which has the weight of four trials.

    Parameters
    ----------
    number
        Number of the run, if several runs are calibrated together.
    """
    times = medians(transfers)
    first = {one.key: one for one in reversed(transfers)}
    together = _together(transfers)
    factors = _factors(run)
    spread = _pooled(times.values())
    routes: dict[tuple[str, str], tuple[float | None, float | None]] = {}
    found = []
    for key, of_trials in sorted(times.items()):
        one = first[key]
        ends = _hosts(run, one)
        if ends not in routes:
            routes[ends] = route_rate_and_rtt(run, *ends)
        rate_bit_per_s, rtt_s = routes[ends]
        error = MEDIAN_EFFICIENCY * _shrunk(of_trials, spread) / math.sqrt(len(of_trials))
        found.append(
            CalibrationPoint(
                run=number,
                point=key[0],
                mover=str(run.header["calls"][one.call]["mover"]),
                call=one.call,
                factors=factors.get(key[0], {}),
                files=one.files,
                bytes=float(np.median([t.bytes for t in transfers if t.key == key])),
                together=together[key],
                timed=_is_timed(run, one),
                trials=len(of_trials),
                time_s=float(np.exp(np.median(np.log(of_trials)))),
                error=max(LEAST_ERROR, error),
                path_bytes_per_s=None if rate_bit_per_s is None else rate_bit_per_s / 8,
                rtt_s=rtt_s,
            )
        )
    return found


def _is_timed(run: Run, one: Moved) -> bool:
    options = run.header["calls"][one.call]["options"]
    return any(options.get(key) is not None for key in TIMED)


def _together(transfers: Iterable[Moved]) -> dict[Key, int]:
    """Return the number of transfers in a trial of each point."""
    counts: dict[tuple[Key, object], int] = {}
    for one in transfers:
        counts[one.key, one.trial] = counts.get((one.key, one.trial), 0) + 1
    return {key: count if trial is not None else 1 for (key, trial), count in counts.items()}


def _factors(run: Run) -> dict[int, dict[str, Any]]:
    if not run.factors:
        return {}
    names = [f'any_value("factor_{name}") AS "{name}"' for name in run.factors]
    rows = run.query(f"SELECT point, {', '.join(names)} FROM transfers WHERE point IS NOT NULL GROUP BY point")
    return {
        int(point): {name: _plain(rows[name][index]) for name in run.factors if _known(rows[name][index]) is not None}
        for index, point in enumerate(rows["point"])
    }


def _plain(value: Any) -> Any:  # noqa: ANN401 - a cell of any column
    return value.item() if isinstance(value, np.generic) else value


def _hosts(run: Run, one: Moved) -> tuple[str, str]:
    services = run.header.get("services") or {}
    ends = []
    for via in (one.source_via, one.destination_via):
        service = services.get(via.split("/", 1)[0]) if via else None
        ends.append(str(service["host"]) if service else one.host)
    return ends[0], ends[1]


def _pooled(times: Iterable[list[float]]) -> float:
    """Return a robust standard deviation of log times about the median of their point.

    Points with a single trial are ignored.
    """
    deviations = [
        abs(math.log(time) - float(np.median(np.log(trials)))) * math.sqrt(len(trials) / (len(trials) - 1))
        for trials in times
        if len(trials) > 1
        for time in trials
    ]
    return OF_MAD * float(np.median(deviations)) if deviations else 0.0


def _shrunk(trials: list[float], pooled: float) -> float:
    own = float(np.var(np.log(trials), ddof=1)) if len(trials) > 1 else 0.0
    freedom = len(trials) - 1
    return math.sqrt((freedom * own + 4 * pooled**2) / (freedom + 4))
