"""Chapters of a report, one file each. A new one is a file, a line here and a test."""

from __future__ import annotations

from collections.abc import Callable

from venturi.analysis.chapter import Chapter
from venturi.analysis.result import About
from venturi.run import Run

__all__ = ["CHAPTERS", "chapters"]

CHAPTERS: dict[str, Callable[[Run, About], Chapter | None]] = {}
"""Name to what makes it; None: the run is not about that."""


def chapters(run: Run, about: About) -> tuple[Chapter, ...]:
    """Return what there is to say about a run beyond points and curves, in the order of the table."""
    found = (make(run, about) for make in CHAPTERS.values())
    return tuple(chapter for chapter in found if chapter is not None)
