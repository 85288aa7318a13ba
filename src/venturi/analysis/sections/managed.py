"""Managed jobs compared with the plain tool: overhead, time by phase, and the published service.

A job reports its times in the column ``tool``: its own start, the wait in the queue, the mover, comparing, and the
rest. The agent measures the total time. Table cells are means over the repetitions of a point, if every file arrived.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from venturi.analysis.result import About
from venturi.analysis.section import Column, Figure, Panel, ReportSection, Scalar, Series, Table
from venturi.run import Run
from venturi.study import study
from venturi.units import format_duration

__all__ = ["managed_section"]

_MANAGED = "managed"
_OF_THE_JOB = ("start_up_s", "wait_s", "move_s", "verify_s", "overhead_s", "calls", "retries", "verified")
_PARTS = {
    "start_up_s": "start",
    "wait_s": "queue wait",
    "move_s": "mover",
    "verify_s": "verification",
    "overhead_s": "other",
}
_MATCHING_KEYS = ("set", "size_bytes", "files_per_call")
"""Factors that identify the moved files; all others describe the method."""

_Row = dict[str, Any]


def managed_section(run: Run, about: About) -> ReportSection | None:
    """Return the section of a run with managed jobs, ``None`` for another run or before the first job is done."""
    rows = _rows(run)
    if not any(row["mover"] == _MANAGED for row in rows):
        return None
    published = _published(about)
    table = _table(rows, published)
    return ReportSection(_MANAGED, "Managed transfer jobs", _sentence(rows, published), (table,), (_figure(rows),))


def _rows(run: Run) -> list[_Row]:
    """Return the points in their order: factors, mover, files, mean time and the values that jobs reported."""
    chosen = "".join(f', any_value("factor_{name}") AS "{name}"' for name in run.factors if name != "mover")
    job_columns = "".join(f", avg((tool::JSON->>'{name}')::DOUBLE) AS {name}" for name in _OF_THE_JOB)
    found = run.query(
        f"SELECT point, mover, max(files) AS files, count(*) AS calls_made, avg(duration_s) AS duration_s,"
        f" avg(requested_bytes / duration_s) AS rate {job_columns} {chosen} FROM transfers"
        " WHERE outcome = 'ok' AND point IS NOT NULL AND duration_s > 0 GROUP BY point, mover ORDER BY point"
    )
    count = len(found["point"])
    return [{name: _plain(values[index]) for name, values in found.items()} for index in range(count)]


def _plain(value: Any) -> Scalar:  # noqa: ANN401 - any value of numpy
    value = value.item() if hasattr(value, "item") else value
    # Missing values arrive as NaN or as a missing value of numpy or pandas.
    return None if value is None or value != value or str(value) in ("--", "<NA>", "NaT") else value


def _published(about: About) -> dict[str, float]:
    """Return the ratio of the published rates of the managed service and of the plain tool, by dataset."""
    if about.study is None:
        return {}
    columns = {"set", "rate_bit_per_s", "managed_bit_per_s"}
    tables = [table for table in study(about.study).published.tables if columns <= set(table.columns)]
    return {
        str(row["set"]): float(str(row["managed_bit_per_s"])) / float(str(row["rate_bit_per_s"]))
        for table in tables
        for row in table.rows
    }


def _tool_time_s(rows: Sequence[_Row], row: _Row) -> float | None:
    """Return the time of the plain tool for the same files, or None without such a measurement."""
    same = [
        other["duration_s"]
        for other in rows
        if other["mover"] != _MANAGED
        and other["files"] == row["files"]
        and all(other.get(key) == row.get(key) for key in _MATCHING_KEYS)
    ]
    return sum(same) / len(same) if same else None


def _how(rows: Sequence[_Row]) -> list[str]:
    """Return the factors that distinguish the jobs, with the factors of the moved files first."""
    skipped = {"point", "mover", "files", "calls_made", "duration_s", "rate", "client", *_OF_THE_JOB}
    jobs = [row for row in rows if row["mover"] == _MANAGED]
    names = [name for name in rows[0] if name not in skipped]
    return sorted(
        (name for name in names if len({row[name] for row in jobs}) > 1), key=lambda name: name not in _MATCHING_KEYS
    )


def _table(rows: Sequence[_Row], published: Mapping[str, float]) -> Table:
    how = _how(rows)
    columns = [
        *(Column(name, name.removesuffix("_bytes").removesuffix("_s").replace("_", " ")) for name in how),
        Column("files", "Files"),
        Column("duration_s", "Time of the job"),
        Column("plain_s", "Time of the tool alone"),
        Column("to_plain_ratio", "Rate, job ÷ tool"),
        *([Column("published_to_plain_ratio", "Rate, service ÷ tool", published=True)] if published else []),
        Column("extra_per_file_s", "Extra time per file"),
        Column("start_up_s", "Start"),
        Column("wait_s", "Queue wait (mean)"),
        Column("move_s", "Mover"),
        Column("verify_s", "Verification"),
        Column("overhead_s", "Other"),
        Column("calls", "Calls"),
        Column("retries", "Retries"),
        Column("verified", "Verified files"),
    ]
    cells = []
    for row in rows:
        if row["mover"] != _MANAGED:
            continue
        tool_s = _tool_time_s(rows, row)
        cells.append(
            (
                *(row[name] for name in how), row["files"], row["duration_s"], tool_s,
                None if tool_s is None else tool_s / row["duration_s"],
                *([published.get(str(row.get("set")))] if published else []),
                None if tool_s is None else (row["duration_s"] - tool_s) / row["files"],
                *(row[name] for name in _OF_THE_JOB),
            )
        )  # fmt: skip
    note = (
        "Mover, verification and other are sums over calls. Calls run in parallel, so a sum can exceed the time of the job. Other: examining sources, one"
        " agent per call, and writing each change of state to the disk."
    )
    return Table("managed-cost", "Overhead of a managed job", tuple(columns), tuple(cells), note)


def _figure(rows: Sequence[_Row]) -> Figure:
    how = _how(rows)
    jobs = [row for row in rows if row["mover"] == _MANAGED]
    names = tuple(
        ", ".join(str(row[name]) if name == "set" else f"{name} {row[name]}" for name in how) or "job" for row in jobs
    )
    series = tuple(
        Series(
            title, names, tuple(None if row[part] is None else row[part] / row["files"] for row in jobs), style="bars"
        )
        for part, title in _PARTS.items()
    )
    panel = Panel("Time per file", "job", "time_s", series, y_log=True)
    return Figure(
        "managed-parts",
        "Time of a managed job by phase",
        (panel,),
        "Sums over calls, divided by the number of files.",
    )


def _sentence(rows: Sequence[_Row], published: Mapping[str, float]) -> str:
    jobs = [
        (row, tool_s) for row in rows if row["mover"] == _MANAGED and (tool_s := _tool_time_s(rows, row)) is not None
    ]
    retries = sum(row["retries"] or 0 for row in rows if row["mover"] == _MANAGED)
    if not jobs:
        return f"Only managed jobs were run, so their overhead over the tool alone is unknown. Retries per job: {retries:g}."
    ratios = {id(row): tool_s / row["duration_s"] for row, tool_s in jobs}
    best, worst = max(jobs, key=lambda job: ratios[id(job[0])]), min(jobs, key=lambda job: ratios[id(job[0])])
    more_s = (worst[0]["duration_s"] - worst[1]) / worst[0]["files"]
    text = (
        f"A managed job reaches {ratios[id(worst[0])]:.0%} to {ratios[id(best[0])]:.0%} of the rate of the tool alone; the worst costs"
        f" {format_duration(max(more_s, 0.0))} more per file."
    )
    if published:
        ratios_text = ", ".join(f"{name} {ratio:.0%}" for name, ratio in published.items())
        text += f" Published for a hosted service: {ratios_text}."
    return text
