"""Figures of a report as PNG files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from venturi.analysis import Analysis
from venturi.report.drawing import Picture
from venturi.report.figures import pictures
from venturi.report.theme import BACKGROUND, styled

__all__ = ["png", "save"]

DOTS_PER_INCH = 200


def png(analysis: Analysis, directory: Path | str) -> list[Path]:
    """Write every figure of the report as ``NAME.png`` into a directory, and return the paths.

    The directory is created if necessary.
    """
    return save((picture for group in pictures(analysis).values() for picture in group), Path(directory))


def save(drawn: Iterable[Picture], home: Path) -> list[Path]:
    """Write these pictures as ``NAME.png`` into a directory, and return the paths.

    The directory is created if necessary.
    """
    home.mkdir(parents=True, exist_ok=True)
    written = []
    for picture in drawn:
        path = home / f"{picture.name}.png"
        with styled():
            picture.figure.savefig(path, dpi=DOTS_PER_INCH, facecolor=BACKGROUND, metadata={"Software": None})
        written.append(path)
    return written
