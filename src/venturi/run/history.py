"""History of a run: trials executed by earlier sessions, and their total time.

A killed session leaves no record of its end. The last times in its trials, transfers, samples and events replace it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from venturi.errors import RunError
from venturi.run import directory
from venturi.run.connection import connect
from venturi.run.journal import complete_bytes, last_lines, max_line_bytes
from venturi.run.tables import OBJECT_BYTES, json_lines

__all__ = ["History", "read_history"]

_COLUMNS = {
    "session": "STRUCT(number BIGINT, time_unix_ns BIGINT, elapsed_s DOUBLE)",
    "trial": "STRUCT(trial VARCHAR, outcome VARCHAR, end_s DOUBLE)",
    "transfer": "STRUCT(end_s DOUBLE)",
}

_TAIL_BYTES = 2**20
"""Length of the end of samples and events to read, more than all hosts write in an interval."""


@dataclass(frozen=True, slots=True)
class History:
    """Contents of a journal at the start of a session.

    Attributes
    ----------
    outcomes
        Trial → outcome of its last attempt, in the order of first attempts.
    attempts
        Trial → number of executions.
    sessions
        Number of the last session, or 0 before the first one.
    elapsed_s
        Total time of all sessions, each from its start to its last record. Seconds.
    last_end_s
        End of the last trial or transfer, in seconds since the epoch.
    """

    outcomes: Mapping[str, str] = field(default_factory=dict)
    attempts: Mapping[str, int] = field(default_factory=dict)
    sessions: int = 0
    elapsed_s: float = 0.0
    last_end_s: float = 0.0


def read_history(path: Path, epoch_unix_ns: int) -> History:
    """Return the history of a run.

    Parameters
    ----------
    path
        The run directory.
    epoch_unix_ns
        Time 0 of the run. Nanoseconds since 1970.

    Raises
    ------
    RunError
        If a line of the journal cannot be read.
    """
    journal = path / directory.JOURNAL
    if complete_bytes(journal) == 0:
        return History()
    import duckdb  # takes 0.1 s to import, and a new run has no journal

    source = json_lines(journal, _COLUMNS, max_line_bytes(journal, OBJECT_BYTES))
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
    """Return the latest time in the last lines of a file, in seconds since the epoch of the run, or 0 without lines."""
    return max((float(json.loads(line)["time_s"]) for line in last_lines(path, _TAIL_BYTES)), default=0.0)
