"""The library of claims: what the five reports say that a table can be held against, and their tables.

``claims/REPORT.toml`` holds ``[[tables]]`` (files in ``published/``) and ``[[claims]]``, the latter in the form of
``[[published.claims]]`` of a study. A study takes claims over by their ids: ``claims = ["002-rises-with-processes"]``, or by a row of its own
that has the id of one of them, whose keys come before those of the library.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from venturi.errors import ScenarioError
from venturi.study.table import PublishedTable, read_table

__all__ = ["Library", "library", "with_library"]

_HOME = Path(__file__).parent


@dataclass(frozen=True)
class Library:
    """All claims by id, and all published tables by id."""

    claims: Mapping[str, Mapping[str, Any]]
    tables: Mapping[str, PublishedTable]


@cache
def library() -> Library:
    """Return the library that came with the package.

    Examples
    --------
    >>> library().tables["002-srm"].rows[3]["throughput_bit_per_s"]
    87360000000
    """
    claims: dict[str, Mapping[str, Any]] = {}
    tables: dict[str, PublishedTable] = {}
    for path in sorted((_HOME / "claims").glob("*.toml")):
        told = tomllib.loads(path.read_text(encoding="utf-8"))
        claims |= {str(row["id"]): row for row in told.get("claims", ())}
        tables |= {str(row["id"]): read_table(_HOME / "published", row) for row in told.get("tables", ())}
    return Library(claims, tables)


def with_library(
    ids: Iterable[str], rows: Sequence[Mapping[str, Any]], where: str
) -> tuple[tuple[dict[str, Any], ...], tuple[PublishedTable, ...]]:
    """Return a study's own claims, completed from the library, then those it names, and the tables of the library for them.

    Raises
    ------
    ScenarioError
        If a claim is named that the library does not have.
    """
    known = library()
    own = {str(row["id"]): {**known.claims.get(str(row["id"]), {}), **row} for row in rows}
    for name in ids:
        if name not in known.claims:
            near = difflib.get_close_matches(name, known.claims, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            raise ScenarioError(
                [("claims", f'expected ids of claims of the library (study/claims), found "{name}"{hint}')], where
            )
        own.setdefault(name, dict(known.claims[name]))
    named = [
        str(part.get("table"))
        for claim in own.values()
        for part in (claim, claim.get("published", {}))
        if part.get("table")
    ]
    return tuple(own.values()), tuple(known.tables[name] for name in dict.fromkeys(named) if name in known.tables)
