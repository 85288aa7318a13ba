"""Datasets of several file sizes, with a fixed volume: smaller files are more files.

Source: report 002, section on GridFTP. Its three categories are powers of two: small from 8 KB to 4 MB, medium from 8 MB
to 1 GB, large from 2 to 8 GB. The volumes of its SRM section are multiples of binary sizes (002-E02), so KB is KiB here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from venturi.messages import Problem, path_text
from venturi.plan import SizeGroup
from venturi.scenario.fields import ScenarioTable, Size, Whole, validation_error
from venturi.units import format_bytes_exact
from venturi.workload.design import scale_clashes, scaled_bytes

__all__ = ["CATEGORIES", "FileSet", "size_groups"]

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30


def _some_sizes(sizes: tuple[int, ...]) -> tuple[int, ...]:
    if not sizes or len(set(sizes)) < len(sizes) or 0 in sizes:
        raise validation_error(
            f"expected one or more distinct sizes above 0, found {list(map(format_bytes_exact, sizes))}; change the list"
        )
    return sizes


class FileSet(ScenarioTable):
    """Files of several sizes: a number of files of each size, or an equal volume of each size."""

    sizes: Annotated[tuple[Size, ...], AfterValidator(_some_sizes)] = Field(description="Sizes of the files.")
    volume: Size | None = Field(None, description="Volume of the dataset, divided equally among the sizes.")
    files: Annotated[Whole, Field(ge=1)] | None = Field(
        None, description="Number of files of each size, instead of a volume."
    )


def _powers_of_two(first_bytes: int, count: int) -> FileSet:
    return FileSet.model_validate({"sizes": [format_bytes_exact(first_bytes << power) for power in range(count)]})


CATEGORIES: Mapping[str, FileSet] = {
    "small": _powers_of_two(8 * _KIB, 10),
    "medium": _powers_of_two(8 * _MIB, 8),
    "large": _powers_of_two(2 * _GIB, 3),
}
"""Categories of report 002; a scenario sets the volume or the number of files of each size."""


def size_groups(
    name: str, files: FileSet, usual_bytes: int | None, scale: float, problems: list[Problem]
) -> tuple[SizeGroup, ...]:
    """Return the files of a dataset by size, in the order of its sizes; an empty tuple after errors.

    Parameters
    ----------
    name
        Name of the dataset, for error messages.
    files
        The dataset.
    usual_bytes
        Volume of a dataset without its own volume.
    scale
        Factor for sizes; the numbers of files do not change.
    problems
        Errors are appended to it.

    Examples
    --------
    >>> [group.files for group in size_groups("x", FileSet.model_validate({"sizes": ["8 KiB", "16 KiB"], "volume": "64 KiB"}), None, 1.0, [])]
    [4, 2]
    """
    volume = files.volume or (None if files.files else usual_bytes)
    where = path_text(("workload", "sets", name))
    if (volume is None) == (files.files is None):
        found = "neither" if volume is None else "both"
        problems.append((where, f"expected volume or files, found {found}; set one of them"))
        return ()
    min_volume = max(files.sizes) * len(files.sizes)
    if volume is not None and volume < min_volume:
        expected = f"a volume of at least {format_bytes_exact(min_volume)} for {len(files.sizes)} sizes"
        problems.append((where, f"expected {expected}, found {format_bytes_exact(volume)}; increase the volume"))
        return ()
    clash = scale_clashes({size: scaled_bytes(size, scale) for size in files.sizes})
    if clash:
        problems.append(("scale", clash))
        return ()
    if volume is None:
        assert files.files is not None
        return tuple(SizeGroup(files.files, scaled_bytes(size, scale)) for size in files.sizes)
    volume_per_size = volume / len(files.sizes)
    return tuple(SizeGroup(round(volume_per_size / size), scaled_bytes(size, scale)) for size in files.sizes)
