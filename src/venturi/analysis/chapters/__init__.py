"""Chapters of a report, one file each. A new one is a file, a line here and a test."""

from __future__ import annotations

from collections.abc import Callable

from venturi.analysis.chapter import Chapter
from venturi.analysis.chapters.bounds import bounds_chapter
from venturi.analysis.chapters.clients import clients_chapter
from venturi.analysis.chapters.datasets import datasets_chapter
from venturi.analysis.chapters.gridftp import gridftp_chapter
from venturi.analysis.chapters.groups import groups_chapter
from venturi.analysis.chapters.jobs import jobs_chapter
from venturi.analysis.chapters.managed import managed_chapter
from venturi.analysis.chapters.peers import peers_chapter
from venturi.analysis.chapters.routes import routes_chapter
from venturi.analysis.chapters.srm import srm_chapter
from venturi.analysis.chapters.tiers import tiers_chapter
from venturi.analysis.chapters.tools import tools_chapter
from venturi.analysis.chapters.windows import windows_chapter
from venturi.analysis.result import About
from venturi.run import Run

__all__ = ["CHAPTERS", "chapters"]

CHAPTERS: dict[str, Callable[[Run, About], Chapter | None]] = {
    "tools": tools_chapter,
    "windows": windows_chapter,
    "datasets": datasets_chapter,
    "gridftp": gridftp_chapter,
    "srm": srm_chapter,
    "managed": managed_chapter,
    "clients": clients_chapter,
    "jobs": jobs_chapter,
    "groups": groups_chapter,
    "peers": peers_chapter,
    "tiers": tiers_chapter,
    "routes": routes_chapter,
    "bounds": bounds_chapter,
}
"""Name to what makes it; None: the run is not about that."""


def chapters(run: Run, about: About) -> tuple[Chapter, ...]:
    """Return what there is to say about a run beyond points and curves, in the order of the table."""
    found = (make(run, about) for make in CHAPTERS.values())
    return tuple(chapter for chapter in found if chapter is not None)
