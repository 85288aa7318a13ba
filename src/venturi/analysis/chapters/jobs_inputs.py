"""What was put into a study of jobs, and so cannot be confirmed by it: said in a table and in words, beside what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from venturi.analysis.chapter import Column, Table
from venturi.analysis.result import About
from venturi.errors import ScenarioError
from venturi.study import study

__all__ = ["inputs_of", "inputs_sentence", "inputs_table"]


def inputs_of(about: About) -> Sequence[Mapping[str, Any]]:
    """Return what the study of a run says to have put in; nothing without a study."""
    try:
        return study(about.study).published.inputs if about.study else ()
    except ScenarioError:
        return ()


def inputs_table(inputs: Sequence[Mapping[str, Any]]) -> Table | None:
    """Return the inputs with where each comes from; None if there are none."""
    if not inputs:
        return None
    columns = (
        Column("quantity", "What"),
        Column("value", "Put in, at full size"),
        Column("origin", "Origin"),
        Column("source", "From"),
        Column("consequence", "What follows from it, and what is found"),
    )
    rows = tuple(tuple(str(row[column.name]) for column in columns) for row in inputs)
    note = "Published: made of a figure of the report, which this run can therefore not confirm. Chosen: the report does not say."
    return Table("jobs-inputs", "What was put in", columns, rows, note)


def inputs_sentence(inputs: Sequence[Mapping[str, Any]]) -> str:
    """Return in words which published figures were put in; empty if none was."""
    told = [f"{row['quantity']} ({row['source']})" for row in inputs if row["origin"] == "published"]
    return f"Put in from published figures, which this run does not confirm: {'; '.join(told)}." if told else ""
