"""What it takes to carry out all experiments of the five reports (F1 to F168), and what carries it out today.

The source is ``features.csv``, a row a capability. ``by`` names what carries it out, with ``; `` between: ``study NAME``,
``test FILE::NAME``, ``command venturi WORDS``. ``missing`` says what is not there yet. A row with ``by`` and nothing missing is done, one with
both is done in part, one without ``by`` is not possible yet. Tests hold every name against what there is.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal, NamedTuple

__all__ = ["Feature", "Means", "features", "features_reference"]

_FILE = Path(__file__).parent / "features.csv"


class Means(NamedTuple):
    """What carries a capability out: a study, a test (``FILE::NAME``), or a command."""

    kind: Literal["study", "test", "command"]
    name: str


@dataclass(frozen=True)
class Feature:
    """A capability; ``missing`` is empty where nothing is."""

    id: str
    area: str
    capability: str
    by: tuple[Means, ...]
    missing: str

    @property
    def state(self) -> Literal["done", "in part", "not yet"]:
        """How far it is possible today."""
        return ("in part" if self.missing else "done") if self.by else "not yet"


def features() -> tuple[Feature, ...]:
    """Return all capabilities, in their order.

    Raises
    ------
    ValueError
        If a row names neither what carries it out nor what is missing, or something of another kind; the message tells which.
    """
    with _FILE.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    return tuple(
        Feature(row["id"], row["area"], row["capability"], tuple(_means(row)), row["missing"].strip()) for row in rows
    )


def _means(row: dict[str, str]) -> Iterator[Means]:
    texts = [text.strip() for text in row["by"].split(";") if text.strip()]
    if not texts and not row["missing"].strip():
        raise ValueError(
            f"{row['id']} in {_FILE.name}: expected what carries it out or what is missing, found neither"
        )
    for text in texts:
        kind, _, name = text.partition(" ")
        match kind:
            case "study" | "test" | "command":
                yield Means(kind, name.strip())
            case _:
                raise ValueError(
                    f"{row['id']} in {_FILE.name}: expected study NAME, test FILE::NAME or command WORDS, found {text!r}"
                )


def features_reference() -> str:
    """Return the page ``docs/reference/features.md``."""
    known = features()
    counts = {state: sum(feature.state == state for feature in known) for state in ("done", "in part", "not yet")}
    lines = [
        "# What the five reports need",
        "",
        f"Carrying out every experiment and analysis of the reports 000 to 004 takes {len(known)} capabilities. Of these"
        f" {counts['done']} are there, {counts['in part']} in part, {counts['not yet']} not yet. The experiments themselves: `venturi study list`.",
    ]
    for area, own in groupby(known, key=lambda feature: feature.area):
        lines += ["", f"## {area}", "", "| | capability | | carried out by | missing |", "|---|---|---|---|---|"]
        lines += [
            f"| {f.id} | {f.capability} | {f.state} | {'<br>'.join(_cell(m) for m in f.by)} | {f.missing} |"
            for f in own
        ]
    return "\n".join(lines) + "\n"


def _cell(means: Means) -> str:
    if means.kind == "study":
        return f"study `{means.name}`"
    if means.kind == "command":
        return f"`{means.name}`"
    path, _, name = means.name.partition("::")
    return f"{name.removeprefix('test_').replace('_', ' ')} (`{path}`)"
