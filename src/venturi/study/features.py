"""Capabilities for all experiments of the five reports (F1 to F168), and their implementations.

``features.csv`` has one row per capability. ``by`` lists implementations, separated by ``; ``: ``study NAME``,
``test FILE::NAME``, ``command venturi WORDS``. ``missing`` describes missing parts. A row with only ``by`` is done, a row
with both is done in part, and a row without ``by`` is not implemented. Tests check that every name exists.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal, NamedTuple

__all__ = ["Feature", "Implementation", "features", "features_reference"]

_FILE = Path(__file__).parent / "features.csv"


class Implementation(NamedTuple):
    """Implementation of a capability: a study, a test (``FILE::NAME``) or a command."""

    kind: Literal["study", "test", "command"]
    name: str


@dataclass(frozen=True)
class Feature:
    """Capability. ``missing`` is empty if it is complete."""

    id: str
    area: str
    capability: str
    by: tuple[Implementation, ...]
    missing: str

    @property
    def state(self) -> Literal["done", "in part", "not implemented"]:
        """State of the implementation."""
        return ("in part" if self.missing else "done") if self.by else "not implemented"


def features() -> tuple[Feature, ...]:
    """Return all capabilities, in their order.

    Raises
    ------
    ValueError
        If a row has neither ``by`` nor ``missing``, or an implementation of an unknown kind.
    """
    with _FILE.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    return tuple(
        Feature(row["id"], row["area"], row["capability"], tuple(_parse_implementations(row)), row["missing"].strip())
        for row in rows
    )


def _parse_implementations(row: dict[str, str]) -> Iterator[Implementation]:
    texts = [text.strip() for text in row["by"].split(";") if text.strip()]
    if not texts and not row["missing"].strip():
        raise ValueError(f"{row['id']} in {_FILE.name}: expected an implementation or a missing part, found neither")
    for text in texts:
        kind, _, name = text.partition(" ")
        match kind:
            case "study" | "test" | "command":
                yield Implementation(kind, name.strip())
            case _:
                raise ValueError(
                    f"{row['id']} in {_FILE.name}: expected study NAME, test FILE::NAME or command WORDS, found {text!r}"
                )


def features_reference() -> str:
    """Return the page ``docs/reference/features.md``."""
    known = features()
    counts = {
        state: sum(feature.state == state for feature in known) for state in ("done", "in part", "not implemented")
    }
    lines = [
        "# Capabilities for the five reports",
        "",
        f"All experiments and analyses of the [reports](bibliography.md#the-five-reproduced-reports) 000 to 004 need {len(known)} capabilities."
        f" {counts['done']} are done, {counts['in part']} are done in part, {counts['not implemented']} are not implemented.",
        "",
        "To list the experiments, run `venturi study list`. `src/venturi/study/features.csv` names each test function.",
    ]
    for area, own in groupby(known, key=lambda feature: feature.area):
        lines += [
            "",
            f"## {area}",
            "",
            "| ID | capability | state | implementation | missing |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| {f.id} | {f.capability} | {f.state} | {_implementation_cell(f.by)} | {f.missing} |" for f in own
        ]
    return "\n".join(lines) + "\n"


def _implementation_cell(implementations: Iterable[Implementation]) -> str:
    """Return studies, commands and test files, without duplicates."""
    texts = []
    for implementation in implementations:
        if implementation.kind == "study":
            texts.append(f"study `{implementation.name}`")
        elif implementation.kind == "command":
            texts.append(f"`{implementation.name}`")
        else:
            texts.append(f"`{implementation.name.partition('::')[0]}`")
    return "<br>".join(dict.fromkeys(texts))
