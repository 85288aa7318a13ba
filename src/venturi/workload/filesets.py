"""Sets of files: sizes, and how many of each, by a volume that stays while sizes fall and counts rise.

Source: report 002, section on GridFTP. Its three categories are powers of two, small from 8 KB to 4 MB, medium from 8 MB to 1 GB, large
from 2 to 8 GB; the volumes that it prints beside SRM are multiples of binary sizes (002-E02), so KB is KiB here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from venturi.plan import Portion
from venturi.scenario.fields import Part, Size, Whole, refuse
from venturi.scenario.words import Problem, path_text
from venturi.units import format_bytes_exact
from venturi.workload.design import scale_clashes, scaled_bytes

__all__ = ["CATEGORIES", "FileSet", "portions"]

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30


def _some_sizes(sizes: tuple[int, ...]) -> tuple[int, ...]:
    if not sizes or len(set(sizes)) < len(sizes) or 0 in sizes:
        raise refuse(f"expected distinct sizes above 0, one or more, found {list(map(format_bytes_exact, sizes))}")
    return sizes


class FileSet(Part):
    """Files of given sizes: so many of each, or as many as make up a volume, every size the same share of it."""

    sizes: Annotated[tuple[Size, ...], AfterValidator(_some_sizes)] = Field(description="Of its files.")
    volume: Size | None = Field(None, description="Bytes of the set; each size has an equal share of it.")
    files: Annotated[Whole, Field(ge=1)] | None = Field(None, description="Of each size, in place of a volume.")


def _powers_of_two(first_bytes: int, count: int) -> FileSet:
    return FileSet.model_validate({"sizes": [format_bytes_exact(first_bytes << power) for power in range(count)]})


CATEGORIES: Mapping[str, FileSet] = {
    "small": _powers_of_two(8 * _KIB, 10),
    "medium": _powers_of_two(8 * _MIB, 8),
    "large": _powers_of_two(2 * _GIB, 3),
}
"""The categories of report 002; a scenario says their volume, or how many files of each size."""


def portions(
    name: str, files: FileSet, usual_bytes: int | None, scale: float, problems: list[Problem]
) -> tuple[Portion, ...]:
    """Return the files of a set by size, in the order of its sizes; nothing if something is wrong with it.

    Parameters
    ----------
    name
        Of the set, for problems.
    files
        The set.
    usual_bytes
        Its volume if it says nothing of one.
    scale
        Multiplies sizes; counts stay.
    problems
        What is wrong is appended here.

    Examples
    --------
    >>> [portion.files for portion in portions("x", FileSet.model_validate({"sizes": ["8 KiB", "16 KiB"], "volume": "64 KiB"}), None, 1.0, [])]
    [4, 2]
    """
    volume = files.volume or (None if files.files else usual_bytes)
    where = path_text(("workload", "sets", name))
    if (volume is None) == (files.files is None):
        found = "neither" if volume is None else "both"
        problems.append((where, f"expected a volume or a number of files of each size, found {found}"))
        return ()
    least = max(files.sizes) * len(files.sizes)
    if volume is not None and volume < least:
        expected = f"a volume of at least {format_bytes_exact(least)}, an equal share for each of its {len(files.sizes)} sizes"
        problems.append((where, f"expected {expected}, found {format_bytes_exact(volume)}"))
        return ()
    clash = scale_clashes({size: scaled_bytes(size, scale) for size in files.sizes})
    if clash:
        problems.append(("scale", clash))
        return ()
    share = None if volume is None else volume / len(files.sizes)
    return tuple(
        Portion(files.files if share is None else round(share / size), scaled_bytes(size, scale))  # type: ignore[arg-type]
        for size in files.sizes
    )
