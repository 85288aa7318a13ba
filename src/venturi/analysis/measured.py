"""What the tables of a run hold, fetched once by SQL and kept as columns: a million transfers never become objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from venturi.analysis.result import Factor, FactorValue, FloatArray, IntArray
from venturi.run import Run

__all__ = ["DELIVERED_BYTES", "Measured", "PointFacts", "measure"]

DELIVERED_BYTES = "coalesce(received_bytes, nullif(asked_bytes, 0), tool_bytes, asked_bytes)"
"""A sink such as /dev/null holds nothing, and the receiver's count is null: then the mover's exit code is all there is. One that goes on
for a time is asked for no bytes: then what it counted is all there is."""


@dataclass(frozen=True, slots=True)
class PointFacts:
    """A sweep point: its factors, and how many trials and transfers of it there are."""

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
class Measured:
    """Columns of the transfers that succeeded (``transfer_*``, shape (N,)) and of the trials that hold any (``trial_*``).

    ``transfer_slot`` counts slots of different calls apart. ``point`` is the number that the plan gave.
    """

    points: tuple[PointFacts, ...]
    factors: tuple[Factor, ...]
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


def measure(run: Run) -> Measured:
    """Return the columns of a run. Transfers outside any sweep point are not among them."""
    calls = tuple(
        str(call)
        for call in run.query("SELECT DISTINCT call FROM transfers WHERE call IS NOT NULL ORDER BY 1")["call"]
    )
    transfers = _transfers(run, calls)
    trials = _trials(run)
    points = _points(run)
    return Measured(
        points=points,
        factors=_factors(run, points),
        calls=calls,
        transfer_point=_integers(transfers["point"]),
        transfer_slot=_integers(transfers["slot"]) * max(len(calls), 1) + _integers(transfers["call"]),
        transfer_call=_integers(transfers["call"]),
        transfer_repetition=_integers(transfers["repetition"]),
        transfer_time_s=_floats(transfers["duration_s"]),
        transfer_size_bytes=_floats(transfers["asked_bytes"]),
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
    # A position in a short list costs less than a text a row: 10⁶ rows stay 40 MB.
    return run.query(
        """SELECT point::INTEGER AS point, coalesce(repetition, 0)::INTEGER AS repetition, coalesce(slot, 0)::INTEGER AS slot,
                  coalesce(list_position($calls::VARCHAR[], call) - 1, 0)::INTEGER AS call, duration_s,
                  asked_bytes::DOUBLE AS asked_bytes
           FROM transfers
           WHERE outcome = 'ok' AND point IS NOT NULL AND duration_s > 0 AND asked_bytes IS NOT NULL""",
        {"calls": list(calls)},
    )


def _trials(run: Run) -> dict[str, npt.NDArray[Any]]:
    return run.query(
        f"""SELECT any_value(point)::INTEGER AS point, any_value(coalesce(repetition, 0))::INTEGER AS repetition,
                   coalesce(position, 0) AS position, min(start_s) AS first_start_s, max(end_s) AS last_end_s,
                   max(end_s) - min(end_s) AS tail_s, max(start_s) - min(start_s) AS start_spread_s,
                   sum({DELIVERED_BYTES})::DOUBLE AS bytes
            FROM transfers
            WHERE outcome = 'ok' AND point IS NOT NULL AND duration_s > 0 AND asked_bytes IS NOT NULL
            GROUP BY transfers.position ORDER BY 3"""
    )


def _points(run: Run) -> tuple[PointFacts, ...]:
    names = run.factors
    columns = [f'"factor_{name}"' for name in names]
    wanted = "".join(f", any_value({column}) AS {column}" for column in columns)
    trials = run.query(
        f"""SELECT point, count(*) AS trials, count(*) FILTER (outcome IS DISTINCT FROM 'ok') AS trials_failed{wanted}
            FROM trials WHERE point IS NOT NULL GROUP BY point ORDER BY point"""
    )
    rows = run.query(
        f"""SELECT point, count(*) FILTER (outcome = 'ok') AS ok, count(*) FILTER (outcome <> 'ok') AS failed,
                   coalesce(max(slot), 0) + 1 AS slots, list(DISTINCT call ORDER BY call) AS calls,
                   list(DISTINCT asked_bytes ORDER BY asked_bytes) AS sizes,
                   sum(user_s + system_s) FILTER (outcome = 'ok') AS cpu_s,
                   sum({DELIVERED_BYTES}) FILTER (outcome = 'ok' AND user_s IS NOT NULL)::DOUBLE AS cpu_bytes,
                   sum(read_disk_bytes) FILTER (outcome = 'ok')::DOUBLE AS read_disk,
                   sum({DELIVERED_BYTES}) FILTER (outcome = 'ok' AND read_disk_bytes IS NOT NULL)::DOUBLE AS read_disk_of
            FROM transfers WHERE point IS NOT NULL GROUP BY point"""
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
) -> PointFacts:
    factors = {name: _plain(trials[f"factor_{name}"][index]) for name in names}
    files = factors.get("files")
    slots = 1 if at is None else int(rows["slots"][at])
    return PointFacts(
        point=int(trials["point"][index]),
        factors=factors,
        calls=() if at is None else tuple(str(call) for call in rows["calls"][at] if call is not None),
        files=int(files) if isinstance(files, int | float) else slots,
        sizes_bytes=() if at is None else tuple(int(size) for size in rows["sizes"][at] if size is not None),
        trials=int(trials["trials"][index]),
        trials_failed=int(trials["trials_failed"][index]),
        transfers_ok=0 if at is None else int(rows["ok"][at]),
        transfers_failed=0 if at is None else int(rows["failed"][at]),
        cpu_s=_number(rows["cpu_s"], at),
        cpu_bytes=_number(rows["cpu_bytes"], at),
        read_disk_bytes=_number(rows["read_disk"], at),
        read_disk_of_bytes=_number(rows["read_disk_of"], at),
    )


def _factors(run: Run, points: tuple[PointFacts, ...]) -> tuple[Factor, ...]:
    found = []
    for name in run.factors:
        values = list(dict.fromkeys(point.factors[name] for point in points))
        numeric = all(isinstance(value, int | float) for value in values)
        found.append(Factor(name, tuple(sorted(values, key=float) if numeric else values)))  # type: ignore[arg-type]
    return tuple(found)


def _plain(value: object) -> FactorValue:
    """Return a cell as a plain Python value; whole numbers that a null turned into doubles become whole again."""
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
