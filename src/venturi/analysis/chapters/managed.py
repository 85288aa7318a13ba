"""Managed jobs beside the plain tool: what a job costs, where its time goes, and how that compares with the published service.

A job says of itself where its time went (the column ``tool``): its own start, waiting in the queue, the mover, comparing, and the rest.
The whole time is the agent's. Cells are means over repetitions of a point in which every file arrived.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from venturi.analysis.chapter import Chapter, Column, Figure, Panel, Scalar, Series, Table
from venturi.analysis.result import About
from venturi.run import Run
from venturi.study import study
from venturi.units import format_duration

__all__ = ["managed_chapter"]

_MANAGED = "managed"
_OF_THE_JOB = ("start_up_s", "wait_s", "move_s", "verify_s", "overhead_s", "calls", "retries", "verified")
_PARTS = {
    "start_up_s": "its start",
    "wait_s": "wait in the queue",
    "move_s": "mover",
    "verify_s": "comparing",
    "overhead_s": "rest",
}
_WAYS = ("set", "size_bytes", "files_per_call")
"""Factors that say what is moved; all others say how."""

_Row = dict[str, Any]


def managed_chapter(run: Run, about: About) -> Chapter | None:
    """Return what a run with managed jobs says of them, ``None`` for any other, or before the first job is done."""
    rows = _rows(run)
    if not any(row["mover"] == _MANAGED for row in rows):
        return None
    published = _published(about)
    table = _table(rows, published)
    return Chapter(_MANAGED, "Managed transfer jobs", _sentence(rows, published), (table,), (_figure(rows),))


def _rows(run: Run) -> list[_Row]:
    """Return points in their order: factors, mover, files, mean time and what jobs said."""
    chosen = "".join(f', any_value("factor_{name}") AS "{name}"' for name in run.factors if name != "mover")
    said = "".join(f", avg((tool::JSON->>'{name}')::DOUBLE) AS {name}" for name in _OF_THE_JOB)
    found = run.query(
        f"SELECT point, mover, max(files) AS files, count(*) AS calls_made, avg(duration_s) AS duration_s,"
        f" avg(asked_bytes / duration_s) AS rate {said} {chosen} FROM transfers"
        " WHERE outcome = 'ok' AND point IS NOT NULL AND duration_s > 0 GROUP BY point, mover ORDER BY point"
    )
    count = len(found["point"])
    return [{name: _plain(values[index]) for name, values in found.items()} for index in range(count)]


def _plain(value: Any) -> Scalar:  # noqa: ANN401 - whatever numpy holds
    value = value.item() if hasattr(value, "item") else value
    # What was not measured comes as NaN or as pandas would have it; neither is a number.
    return None if value is None or value != value or str(value) in ("--", "<NA>", "NaT") else value


def _published(about: About) -> dict[str, float]:
    """Return the published rate of the managed service over that of the plain tool, by set."""
    if about.study is None:
        return {}
    columns = {"set", "rate_bit_per_s", "managed_bit_per_s"}
    tables = [table for table in study(about.study).published.tables if columns <= set(table.columns)]
    return {
        str(row["set"]): float(str(row["managed_bit_per_s"])) / float(str(row["rate_bit_per_s"]))
        for table in tables
        for row in table.rows
    }


def _plain_time_s(rows: Sequence[_Row], row: _Row) -> float | None:
    """Return the time of the plain tool for the same files, None if it was not tried."""
    same = [
        other["duration_s"]
        for other in rows
        if other["mover"] != _MANAGED
        and other["files"] == row["files"]
        and all(other.get(key) == row.get(key) for key in _WAYS)
    ]
    return sum(same) / len(same) if same else None


def _how(rows: Sequence[_Row]) -> list[str]:
    """Return the factors that tell jobs apart, those of what is moved first."""
    skipped = {"point", "mover", "files", "calls_made", "duration_s", "rate", "client", *_OF_THE_JOB}
    jobs = [row for row in rows if row["mover"] == _MANAGED]
    names = [name for name in rows[0] if name not in skipped]
    return sorted(
        (name for name in names if len({row[name] for row in jobs}) > 1), key=lambda name: name not in _WAYS
    )


def _table(rows: Sequence[_Row], published: Mapping[str, float]) -> Table:
    how = _how(rows)
    columns = [
        *(Column(name, name.removesuffix("_bytes").removesuffix("_s").replace("_", " ")) for name in how),
        Column("files", "Files"),
        Column("duration_s", "The job"),
        Column("plain_s", "The tool alone"),
        Column("to_plain_ratio", "Rate, job to tool"),
        *([Column("published_to_plain_ratio", "Published, service to tool", published=True)] if published else []),
        Column("extra_per_file_s", "More a file"),
        Column("start_up_s", "Its start"),
        Column("wait_s", "Wait in the queue (mean)"),
        Column("move_s", "In the mover"),
        Column("verify_s", "Comparing"),
        Column("overhead_s", "The rest"),
        Column("calls", "Calls"),
        Column("retries", "Retries"),
        Column("verified", "Files compared"),
    ]
    cells = []
    for row in rows:
        if row["mover"] != _MANAGED:
            continue
        plain_s = _plain_time_s(rows, row)
        cells.append(
            (
                *(row[name] for name in how), row["files"], row["duration_s"], plain_s,
                None if plain_s is None else plain_s / row["duration_s"],
                *([published.get(str(row.get("set")))] if published else []),
                None if plain_s is None else (row["duration_s"] - plain_s) / row["files"],
                *(row[name] for name in _OF_THE_JOB),
            )
        )  # fmt: skip
    note = (
        "Times in the mover, of comparing and of the rest are sums over calls, which run beside each other: they may exceed the job. The rest is"
        " looking at sources, an agent a call, and writing every change of state to the disk."
    )
    return Table("managed-cost", "What a managed job costs", tuple(columns), tuple(cells), note)


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
    panel = Panel("Time a file", "job", "time_s", series, y_log=True)
    return Figure(
        "managed-parts",
        "Where the time of a managed job goes",
        (panel,),
        "Sums over calls, divided by the number of files.",
    )


def _sentence(rows: Sequence[_Row], published: Mapping[str, float]) -> str:
    jobs = [
        (row, plain_s)
        for row in rows
        if row["mover"] == _MANAGED and (plain_s := _plain_time_s(rows, row)) is not None
    ]
    retries = sum(row["retries"] or 0 for row in rows if row["mover"] == _MANAGED)
    if not jobs:
        return f"Jobs were managed; the tool alone was not tried beside them, so what that costs cannot be told. Retries a job: {retries:g}."
    ratios = {id(row): plain_s / row["duration_s"] for row, plain_s in jobs}
    best, worst = max(jobs, key=lambda job: ratios[id(job[0])]), min(jobs, key=lambda job: ratios[id(job[0])])
    more_s = (worst[0]["duration_s"] - worst[1]) / worst[0]["files"]
    text = (
        f"A managed job reaches {ratios[id(worst[0])]:.0%} to {ratios[id(best[0])]:.0%} of the rate of the tool alone; the worst costs"
        f" {format_duration(max(more_s, 0.0))} more a file."
    )
    if published:
        told = ", ".join(f"{name} {ratio:.0%}" for name, ratio in published.items())
        text += f" Published for a hosted service: {told}."
    return text
