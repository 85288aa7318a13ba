"""What the sessions of a run so far have left: which trials they carried out, and how much of the plan's time.

A killed session has not said when it ended. What tells is the last that it wrote down: of trials, of transfers, and in the
last lines of its samples and events.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from venturi.errors import RunError
from venturi.run import directory
from venturi.run.connection import connect
from venturi.run.journal import complete_bytes, last_lines, longest_line
from venturi.run.tables import OBJECT_BYTES, json_lines

__all__ = ["History", "read_history"]

_COLUMNS = {
    "session": "STRUCT(number BIGINT, time_unix_ns BIGINT, elapsed_s DOUBLE)",
    "trial": "STRUCT(trial VARCHAR, outcome VARCHAR, end_s DOUBLE)",
    "transfer": "STRUCT(end_s DOUBLE)",
}

_TAIL_BYTES = 2**20
"""Of samples and events: more than all hosts write in an interval."""


@dataclass(frozen=True, slots=True)
class History:
    """What is in a journal when a session begins.

    Attributes
    ----------
    outcomes
        Trial → outcome of its last attempt, in the order of first attempts.
    attempts
        Trial → how often it was carried out.
    sessions
        Number of the last session; 0: none yet.
    elapsed_s
        Seconds for which all sessions together carried the plan out: from the start of each to the last that it wrote.
    last_end_s
        When the last trial or transfer ended, in seconds.
    """

    outcomes: Mapping[str, str] = field(default_factory=dict)
    attempts: Mapping[str, int] = field(default_factory=dict)
    sessions: int = 0
    elapsed_s: float = 0.0
    last_end_s: float = 0.0


def read_history(path: Path, epoch_unix_ns: int) -> History:
    """Return what the sessions of a run have left.

    Parameters
    ----------
    path
        The run directory.
    epoch_unix_ns
        What times of the run count from.

    Raises
    ------
    RunError
        If a line of the journal cannot be read.
    """
    journal = path / directory.JOURNAL
    if complete_bytes(journal) == 0:
        return History()
    source = json_lines(journal, _COLUMNS, longest_line(journal, OBJECT_BYTES))
    try:
        with connect() as connection:
            trials = connection.execute(
                f"SELECT trial.trial, trial.outcome FROM {source} WHERE trial IS NOT NULL"
            ).fetchall()
            sessions = connection.execute(
                f"""SELECT session.number, session.time_unix_ns, coalesce(session.elapsed_s, 0)
                    FROM {source} WHERE session IS NOT NULL ORDER BY session.number DESC LIMIT 1"""
            ).fetchall()
            last = connection.execute(
                f"SELECT coalesce(greatest(max(trial.end_s), max(transfer.end_s)), 0) FROM {source}"
            ).fetchone()
    except duckdb.Error as error:
        raise RunError(f"{journal}: expected one JSON object a line, found: {error}") from error
    last_end_s = float(last[0]) if last else 0.0
    elapsed_s = 0.0
    for _, time_unix_ns, before_s in sessions:
        last_s = max(last_end_s, *(_last_time_s(path / name) for name in _TIMED))
        elapsed_s = before_s + max(0.0, last_s - (time_unix_ns - epoch_unix_ns) / 1e9)
    attempts = Counter(trial for trial, _ in trials)
    return History(dict(trials), attempts, sessions[0][0] if sessions else 0, elapsed_s, last_end_s)


_TIMED = (directory.SAMPLES, directory.EVENTS)


def _last_time_s(path: Path) -> float:
    """Return the latest time in the last lines of a file, in seconds since the epoch of the run; 0 if there is none."""
    return max((float(json.loads(line)["time_s"]) for line in last_lines(path, _TAIL_BYTES)), default=0.0)
