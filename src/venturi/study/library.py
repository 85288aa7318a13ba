"""Library of claims: testable statements of the five reports, and their tables.

``claims/REPORT.toml`` has ``[[tables]]`` (files in ``published/``) and ``[[claims]]`` in the form of
``[[published.claims]]`` of a study. A study uses claims by id: ``claims = ["002-rises-with-processes"]``. It can also
have a row with the id of a library claim, whose keys override the keys of the library.
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

__all__ = ["Library", "complete_claims", "library"]

_HOME = Path(__file__).parent


@dataclass(frozen=True)
class Library:
    """Claims by id, and published tables by id."""

    claims: Mapping[str, Mapping[str, Any]]
    tables: Mapping[str, PublishedTable]


@cache
def library() -> Library:
    """Return the library of the package.

    Examples
    --------
    >>> library().tables["002-srm"].rows[3]["throughput_bit_per_s"]
    87360000000
    """
    claims: dict[str, Mapping[str, Any]] = {}
    tables: dict[str, PublishedTable] = {}
    for path in sorted((_HOME / "claims").glob("*.toml")):
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        claims |= {str(row["id"]): row for row in content.get("claims", ())}
        tables |= {str(row["id"]): read_table(_HOME / "published", row) for row in content.get("tables", ())}
    return Library(claims, tables)


def complete_claims(
    ids: Iterable[str], rows: Sequence[Mapping[str, Any]], where: str
) -> tuple[tuple[dict[str, Any], ...], tuple[PublishedTable, ...]]:
    """Return the claims of a study, completed from the library, and the library tables that they use.

    Raises
    ------
    ScenarioError
        If a claim is not in the library.
    """
    known = library()
    claims = {str(row["id"]): {**known.claims.get(str(row["id"]), {}), **row} for row in rows}
    for name in ids:
        if name not in known.claims:
            near = difflib.get_close_matches(name, known.claims, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else ""
            raise ScenarioError(
                [("claims", f'expected an id of the library of claims (study/claims), found "{name}"{hint}')], where
            )
        claims.setdefault(name, dict(known.claims[name]))
    named = [
        str(part.get("table"))
        for claim in claims.values()
        for part in (claim, claim.get("published", {}))
        if part.get("table")
    ]
    return tuple(claims.values()), tuple(known.tables[name] for name in dict.fromkeys(named) if name in known.tables)
