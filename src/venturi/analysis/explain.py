"""What kept simulated transfers from being faster, summed up over a run or over one trial.

Shares of a transfer's time weigh by how long it took, so that the sum says of all the time that was spent in transfers what it went to.
"""

from __future__ import annotations

from dataclasses import dataclass

from venturi.errors import RunError
from venturi.run import Run

__all__ = ["BoundShare", "Explanation", "explain"]

_ALL = """WITH all_of AS (
        SELECT 1 AS transfers, duration_s, bound, trial FROM transfers UNION ALL SELECT transfers, duration_s, bound, trial FROM routes),
    bounded AS (
        SELECT transfers, duration_s, bound FROM all_of
        WHERE bound IS NOT NULL AND duration_s > 0 AND ($trial IS NULL OR trial = $trial))"""
_SHARES = f"""{_ALL},
    told AS (SELECT transfers, duration_s, bound, unnest(json_keys(bound)) AS name FROM bounded)
    SELECT name, sum(transfers)::BIGINT AS transfers,
           sum(duration_s * CAST(json_extract(bound, '$."' || name || '"') AS DOUBLE)) AS time_s
    FROM told GROUP BY name ORDER BY time_s DESC, name"""
_WHOLE = f"""{_ALL}
    SELECT coalesce(sum(transfers), 0)::BIGINT AS transfers, coalesce(sum(duration_s), 0.0) AS time_s FROM bounded"""


@dataclass(frozen=True, slots=True)
class BoundShare:
    """One thing that bound: its name, the share of all transfer time, this time in seconds, and how many transfers it bound at some time
    (of those that are counted by route: how many there are on routes that it bound)."""

    name: str
    share: float
    time_s: float
    transfers: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that bound, the greatest share first, of so many transfers and so much time in them."""

    transfers: int
    time_s: float
    shares: tuple[BoundShare, ...]


def explain(run: Run, trial: str | None = None) -> Explanation:
    """Return what bound the transfers of a run, or of one of its trials.

    Raises
    ------
    RunError
        If nothing is known of it: the run was not simulated, or has no such trial.
    """
    whole = run.query(_WHOLE, {"trial": trial})
    transfers, time_s = int(whole["transfers"][0]), float(whole["time_s"][0])
    if transfers == 0:
        what = (
            f"transfers of the trial {trial} that tell what bound them"
            if trial
            else "transfers that tell what bound them"
        )
        raise RunError(
            f"{run.path}: expected {what}, found none; only --on sim notes it (backend of this run: {run.backend})"
        )
    rows = run.query(_SHARES, {"trial": trial})
    shares = tuple(
        BoundShare(str(name), float(spent_s) / time_s, float(spent_s), int(count))
        for name, spent_s, count in zip(rows["name"], rows["time_s"], rows["transfers"], strict=True)
    )
    return Explanation(transfers, time_s, shares)
