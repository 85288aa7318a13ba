"""Bibliographic data of the five reproduced reports, from ``reports.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

__all__ = ["BIBLIOGRAPHY", "PublishedReport", "reports"]

BIBLIOGRAPHY = "docs/reference/bibliography.md"
"""Page with an entry for each report, relative to the repository."""
_FILE = Path(__file__).parent / "reports.toml"


@dataclass(frozen=True)
class PublishedReport:
    """Report that studies reproduce.

    Attributes
    ----------
    id
        Number of the report, such as ``"003"``.
    authors, title, year, publication
        As the report prints them; empty or ``None`` if it does not.
    anchor
        Anchor of its entry in :data:`BIBLIOGRAPHY`.
    """

    id: str
    anchor: str
    authors: tuple[str, ...] = ()
    title: str = ""
    year: int | None = None
    publication: str = ""

    @property
    def entry(self) -> str:
        """Location of the entry in the bibliography.

        Examples
        --------
        >>> reports()["003"].entry
        'docs/reference/bibliography.md#report-003'
        """
        return f"{BIBLIOGRAPHY}#{self.anchor}"

    def short_citation(self) -> str:
        """Return the first author and the year.

        Examples
        --------
        >>> reports()["003"].short_citation(), reports()["004"].short_citation()
        ('G. H. Kaganas 2014', 'S. Bagnasco et al. 2004')
        >>> reports()["000"].short_citation()
        'D. Dongiovanni et al., no year'
        """
        year = ", no year" if self.year is None else f" {self.year}"
        if not self.authors:
            return f"no authors{year}"
        return f"{self.authors[0]}{' et al.' if len(self.authors) > 1 else ''}{year}"

    def full_reference(self) -> str:
        """Return authors, title, publication and year as one text.

        Examples
        --------
        >>> reports()["001"].full_reference()
        'Enhancing GridFTP and GPFS performances. Poster of the INFN Tier1, Bologna. The report prints no authors and no year.'
        """
        parts = [", ".join(self.authors), self.title]
        parts.append(f"{self.publication}, {self.year}" if self.year is not None else self.publication)
        missing = [
            f"no {name}"
            for name, value in (("title", self.title), ("authors", self.authors), ("year", self.year))
            if not value
        ]
        if missing:
            listed = f"{', '.join(missing[:-1])} and {missing[-1]}" if len(missing) > 1 else missing[0]
            parts.append(f"The report prints {listed}")
        return " ".join(f"{part.removesuffix('.')}." for part in parts if part)


@cache
def reports() -> Mapping[str, PublishedReport]:
    """Return the five reports by number.

    Examples
    --------
    >>> list(reports())
    ['000', '001', '002', '003', '004']
    """
    rows = tomllib.loads(_FILE.read_text(encoding="utf-8"))["report"]
    found = [PublishedReport(**{**row, "authors": tuple(row.get("authors", ()))}) for row in rows]
    return MappingProxyType({report.id: report for report in found})
