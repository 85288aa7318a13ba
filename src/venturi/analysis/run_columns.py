"""Tables of a run as columns, loaded once by SQL. A million transfers never become objects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from venturi.analysis.byte_counts import only_tool_knows_bytes
from venturi.analysis.result import FactorColumn, FactorValue, FloatArray, IntArray
from venturi.run import Run

__all__ = ["DELIVERED_BYTES", "MeasuredPoint", "RunColumns", "load_run_columns"]

DELIVERED_BYTES = "coalesce(received_bytes, nullif(requested_bytes, 0), tool_bytes, requested_bytes)"
"""SQL of the delivered bytes of a transfer.

A sink such as ``/dev/null`` holds nothing, so the receiver's count is null, and the requested bytes replace it. A
transfer that runs for a time has no requested bytes, so the count of the tool replaces them.
"""


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """Sweep point with its factors and its numbers of trials and transfers."""

    point: int
    factors: dict[str, FactorValue]
    calls: tuple[str, ...]
    files: int
    sizes_bytes: tuple[int, ...]
    trials: int
    trials_failed: int
    transfers_ok: int
    transfers_failed: int
    cpu_s: float | None
    cpu_bytes: float | None
    read_disk_bytes: float | None
    read_disk_of_bytes: float | None


@dataclass(frozen=True, slots=True, eq=False)
class RunColumns:
    """Columns of the successful transfers (``transfer_*``, shape (N,)) and of their trials (``trial_*``).

    ``transfer_slot`` counts slots of different calls separately. ``point`` is the number from the plan.
    """

    points: tuple[MeasuredPoint, ...]
    factors: tuple[FactorColumn, ...]
    calls: tuple[str, ...]
    transfer_point: IntArray
    transfer_slot: IntArray
    transfer_call: IntArray
    transfer_repetition: IntArray
    transfer_time_s: FloatArray
    transfer_size_bytes: FloatArray
    trial_point: IntArray
    trial_repetition: IntArray
    trial_position: IntArray
    trial_start_s: FloatArray
    trial_end_s: FloatArray
    trial_bytes: FloatArray
    trial_tail_s: FloatArray
    trial_start_spread_s: FloatArray


def load_run_columns(run: Run) -> RunColumns:
    """Return the columns of a run, without transfers outside sweep points."""
    calls = tuple(
        str(call)
        for call in run.query("SELECT DISTINCT call FROM transfers WHERE call IS NOT NULL ORDER BY 1")["call"]
    )
    transfers = _transfers(run, calls)
    trials = _trials(run)
    points = _points(run)
    return RunColumns(
        points=points,
        factors=_factors(run, points),
        calls=calls,
        transfer_point=_integers(transfers["point"]),
        transfer_slot=_integers(transfers["slot"]) * max(len(calls), 1) + _integers(transfers["call"]),
        transfer_call=_integers(transfers["call"]),
        transfer_repetition=_integers(transfers["repetition"]),
        transfer_time_s=_floats(transfers["duration_s"]),
        transfer_size_bytes=_floats(transfers["requested_bytes"]),
        trial_point=_integers(trials["point"]),
        trial_repetition=_integers(trials["repetition"]),
        trial_position=_integers(trials["position"]),
        trial_start_s=_floats(trials["first_start_s"]),
        trial_end_s=_floats(trials["last_end_s"]),
        trial_bytes=_floats(trials["bytes"]),
        trial_tail_s=_floats(trials["tail_s"]),
        trial_start_spread_s=_floats(trials["start_spread_s"]),
    )


def _transfers(run: Run, calls: tuple[str, ...]) -> dict[str, npt.NDArray[Any]]:
    # A position in a short list needs less memory than one text per row: 10⁶ rows need 40 MB.
    return run.query(
        """SELECT point::INTEGER AS point, coalesce(repetition, 0)::INTEGER AS repetition, coalesce(slot, 0)::INTEGER AS slot,
                  coalesce(list_position($calls::VARCHAR[], call) - 1, 0)::INTEGER AS call, duration_s,
                  requested_bytes::DOUBLE AS requested_bytes
           FROM transfers
           WHERE outcome = 'ok' AND point IS NOT NULL AND duration_s > 0 AND requested_bytes IS NOT NULL""",
        {"calls": list(calls)},
    )


def _trials(run: Run) -> dict[str, npt.NDArray[Any]]:
    return run.query(
        f"""SELECT any_value(point)::INTEGER AS point, any_value(coalesce(repetition, 0))::INTEGER AS repetition,
                   coalesce(position, 0) AS position, min(start_s) AS first_start_s, max(end_s) AS last_end_s,
                   max(end_s) - min(end_s) AS tail_s, max(start_s) - min(start_s) AS start_spread_s,
                   sum({DELIVERED_BYTES})::DOUBLE AS bytes
            FROM transfers
            WHERE outcome = 'ok' AND point IS NOT NULL AND duration_s > 0 AND requested_bytes IS NOT NULL
            GROUP BY transfers.position ORDER BY 3"""
    )


def _points(run: Run) -> tuple[MeasuredPoint, ...]:
    names = run.factors
    timed = [name for name, call in (run.header.get("calls") or {}).items() if only_tool_knows_bytes(call)]
    columns = [f'"factor_{name}"' for name in names]
    factor_columns = "".join(f", any_value({column}) AS {column}" for column in columns)
    trials = run.query(
        f"""SELECT point, count(*) AS trials, count(*) FILTER (outcome IS DISTINCT FROM 'ok') AS trials_failed{factor_columns}
            FROM trials WHERE point IS NOT NULL GROUP BY point ORDER BY point"""
    )
    rows = run.query(
        f"""SELECT point, count(*) FILTER (outcome = 'ok') AS ok, count(*) FILTER (outcome <> 'ok') AS failed,
                   coalesce(max(slot), 0) + 1 AS slots, list(DISTINCT call ORDER BY call) AS calls,
                   list(DISTINCT requested_bytes ORDER BY requested_bytes) AS sizes,
                   coalesce(bool_or(requested_bytes = 0 AND (list_contains($timed::VARCHAR[], call) OR {DELIVERED_BYTES} > 0)), false)
                       AS unsized,
                   sum(user_s + system_s) FILTER (outcome = 'ok') AS cpu_s,
                   sum({DELIVERED_BYTES}) FILTER (outcome = 'ok' AND user_s IS NOT NULL)::DOUBLE AS cpu_bytes,
                   sum(read_disk_bytes) FILTER (outcome = 'ok')::DOUBLE AS read_disk,
                   sum({DELIVERED_BYTES}) FILTER (outcome = 'ok' AND read_disk_bytes IS NOT NULL)::DOUBLE AS read_disk_of
            FROM transfers WHERE point IS NOT NULL GROUP BY point""",
        {"timed": timed},
    )
    at = {int(point): index for index, point in enumerate(rows["point"])}
    return tuple(
        _point(trials, index, rows, at.get(int(point)), names) for index, point in enumerate(trials["point"])
    )


def _point(
    trials: dict[str, npt.NDArray[Any]],
    index: int,
    rows: dict[str, npt.NDArray[Any]],
    at: int | None,
    names: tuple[str, ...],
) -> MeasuredPoint:
    factors = {name: _to_factor_value(trials[f"factor_{name}"][index]) for name in names}
    files = factors.get("files")
    slots = 1 if at is None else int(rows["slots"][at])
    return MeasuredPoint(
        point=int(trials["point"][index]),
        factors=factors,
        calls=() if at is None else tuple(str(call) for call in rows["calls"][at] if call is not None),
        files=int(files) if isinstance(files, int | float) else slots,
        sizes_bytes=() if at is None else _sizes(rows["sizes"][at], unsized=bool(rows["unsized"][at])),
        trials=int(trials["trials"][index]),
        trials_failed=int(trials["trials_failed"][index]),
        transfers_ok=0 if at is None else int(rows["ok"][at]),
        transfers_failed=0 if at is None else int(rows["failed"][at]),
        cpu_s=_number(rows["cpu_s"], at),
        cpu_bytes=_number(rows["cpu_bytes"], at),
        read_disk_bytes=_number(rows["read_disk"], at),
        read_disk_of_bytes=_number(rows["read_disk_of"], at),
    )


def _sizes(sizes: Iterable[object], *, unsized: bool) -> tuple[int, ...]:
    """Return the requested sizes.

    A transfer without requested bytes that moves some has no size: it is not an empty file.
    """
    return tuple(int(size) for size in sizes if size is not None and not (unsized and size == 0))  # type: ignore[call-overload]


def _factors(run: Run, points: tuple[MeasuredPoint, ...]) -> tuple[FactorColumn, ...]:
    found = []
    for name in run.factors:
        values = list(dict.fromkeys(point.factors[name] for point in points))
        numeric = all(isinstance(value, int | float) for value in values)
        found.append(FactorColumn(name, tuple(sorted(values, key=float) if numeric else values)))  # type: ignore[arg-type]
    return tuple(found)


def _to_factor_value(value: object) -> FactorValue:
    """Return a cell as a plain Python value. Whole numbers that a null converted to doubles become integers again."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    number = float(value)  # type: ignore[arg-type]
    if np.isnan(number):
        return None
    return int(number) if number.is_integer() else number


def _number(column: npt.NDArray[Any], at: int | None) -> float | None:
    if at is None or column[at] is None or np.isnan(float(column[at])):
        return None
    return float(column[at])


def _integers(column: npt.NDArray[Any]) -> IntArray:
    return np.asarray(column, dtype=np.int64)


def _floats(column: npt.NDArray[Any]) -> FloatArray:
    return np.asarray(column, dtype=np.float64)
