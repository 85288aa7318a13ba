"""Inputs of a study of jobs, which the study therefore cannot confirm, as a table and as a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from venturi.analysis.result import About
from venturi.analysis.section import Column, Table
from venturi.errors import ScenarioError
from venturi.study import study

__all__ = ["inputs_of", "inputs_sentence", "inputs_table"]


def inputs_of(about: About) -> Sequence[Mapping[str, Any]]:
    """Return the inputs that the study of a run declares; empty without a study."""
    try:
        return study(about.study).published.inputs if about.study else ()
    except ScenarioError:
        return ()


def inputs_table(inputs: Sequence[Mapping[str, Any]]) -> Table | None:
    """Return the inputs with their origins, or None without inputs."""
    if not inputs:
        return None
    columns = (
        Column("quantity", "Quantity"),
        Column("value", "Value at full size"),
        Column("origin", "Origin"),
        Column("source", "Source"),
        Column("consequence", "Consequence"),
    )
    rows = tuple(tuple(str(row[column.name]) for column in columns) for row in inputs)
    note = "Published: derived from a figure of the report, which this run cannot confirm. Chosen: the report has no figure."
    return Table("jobs-inputs", "Inputs", columns, rows, note)


def inputs_sentence(inputs: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence that lists the inputs from published figures; empty without any."""
    published_inputs = [f"{row['quantity']} ({row['source']})" for row in inputs if row["origin"] == "published"]
    return (
        f"Inputs from published figures, which this run cannot confirm: {'; '.join(published_inputs)}."
        if published_inputs
        else ""
    )
