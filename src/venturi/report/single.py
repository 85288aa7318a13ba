"""A chapter that stands alone, such as a validation: one page, the terminal, CSV tables and PNG figures."""

from __future__ import annotations

from pathlib import Path

from rich.console import Group

from venturi.analysis.chapter import Chapter
from venturi.analysis.quantity import column_is_text, quantity_text
from venturi.report.figures_chapter import chapter_pictures
from venturi.report.page import environment
from venturi.report.png import save
from venturi.report.tables_chapter import write_chapters
from venturi.report.terminal_chapter import chapter_parts

__all__ = ["single_html", "single_terminal", "write_single"]


def single_html(chapter: Chapter, about: str) -> str:
    """Return a chapter as one self-contained page; ``about`` says above it what it is of."""
    return (
        environment()
        .get_template("single.html")
        .render(
            c=chapter,
            # The sentence is the head of the page, and not said again.
            a={"answer": chapter.sentence},
            about=about,
            drawn=chapter_pictures(chapter),
            quantity_text=quantity_text,
            text_columns=lambda table: [
                column_is_text(column, [row[place] for row in table.rows])
                for place, column in enumerate(table.columns)
            ],
        )
    )


def single_terminal(chapter: Chapter) -> Group:
    """Return what :meth:`rich.console.Console.print` shows of a chapter."""
    return Group(*chapter_parts(chapter))


def write_single(chapter: Chapter, about: str, directory: Path) -> list[Path]:
    """Write page, tables and figures of a chapter into a directory, made if it is not there; return the paths."""
    directory.mkdir(parents=True, exist_ok=True)
    page = directory / f"{chapter.name}.html"
    page.write_text(single_html(chapter, about), encoding="utf-8")
    return [page, *write_chapters([chapter], directory), *save(chapter_pictures(chapter), directory)]
