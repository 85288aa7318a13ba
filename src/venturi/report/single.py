"""Report of a single section, such as a validation: HTML page, terminal, CSV tables and PNG figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group

from venturi.analysis.quantity import column_is_text, format_quantity
from venturi.analysis.section import ReportSection
from venturi.report.drawing import Picture
from venturi.report.figures_section import section_pictures
from venturi.report.page import environment
from venturi.report.png import save
from venturi.report.tables_section import write_sections
from venturi.report.terminal_section import section_parts

__all__ = ["single_html", "single_terminal", "write_single"]


def single_html(section: ReportSection, about: str, pictures: Sequence[Picture] = ()) -> str:
    """Return a section as a self-contained page, with ``about`` above its title and further pictures below its own."""
    return (
        environment()
        .get_template("single.html")
        .render(
            c=section,
            # The sentence is the title of the page, so the section does not repeat it.
            a={"conclusion": section.sentence},
            about=about,
            drawn=[*section_pictures(section), *pictures],
            format_quantity=format_quantity,
            text_columns=lambda table: [
                column_is_text(column, [row[index] for row in table.rows])
                for index, column in enumerate(table.columns)
            ],
        )
    )


def single_terminal(section: ReportSection) -> Group:
    """Return a renderable of a section for :meth:`rich.console.Console.print`."""
    return Group(*section_parts(section))


def write_single(section: ReportSection, about: str, directory: Path) -> list[Path]:
    """Write page, tables and figures of a section into a directory, and return the paths.

    The directory is created if necessary.
    """
    directory.mkdir(parents=True, exist_ok=True)
    page = directory / f"{section.name}.html"
    page.write_text(single_html(section, about), encoding="utf-8")
    return [page, *write_sections([section], directory), *save(section_pictures(section), directory)]
