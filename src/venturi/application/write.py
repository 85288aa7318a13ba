"""Creation of ROOT files of an exact size: a few different files, and copies under more names (003, L393)."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from venturi.application.libraries import RootFileError, uproot

__all__ = ["RootFileShape", "smallest_bytes", "write"]

_VALUE_BYTES = 8
_FILE_BYTES, _TREE_BYTES, _BRANCH_BYTES, _BASKET_BYTES = 22_000, 1_500, 700, 300
"""Upper limits of the bytes in addition to the values: header and streamers, and metadata of trees, branches and baskets.

uproot rewrites the metadata of long lists. Measured with uproot 5.7: 65.8 kB for 2 × 8 × 8 baskets of one value, 165 kB for
1 × 40 × 10."""


@dataclass(frozen=True, slots=True)
class RootFileShape:
    """Structure of a file: trees, branches per tree, baskets per branch."""

    containers: int = 2
    branches: int = 4
    baskets: int = 4

    @property
    def basket_count(self) -> int:
        """Number of baskets in a file."""
        return self.containers * self.branches * self.baskets


def smallest_bytes(shape: RootFileShape) -> int:
    """Return the minimum size of a file of this shape in bytes: one value per basket."""
    return _fixed_bytes(shape) + shape.basket_count * _VALUE_BYTES


def write(
    path: Path, size_bytes: int, *, names: int = 1, unique: int = 1, shape: RootFileShape | None = None, seed: int = 1
) -> int:
    """Create files and return the number of created files; complete files are kept.

    Parameters
    ----------
    path
        The file, or with several ``names`` the directory of ``000000``, ``000001`` ….
    size_bytes
        Size of each file. Zeros fill the space after the end of the ROOT data.
    unique
        Number of different contents; file *i* has content *i* modulo ``unique``.
    seed
        Seed of the random values, which do not compress.

    Raises
    ------
    RootFileError
        If the size is too small for the shape.
    OSError
        If a file cannot be written.

    Examples
    --------
    >>> write(Path("/tmp/events.root"), 100_000)  # doctest: +SKIP
    1
    """
    shape = shape or RootFileShape()
    if size_bytes < smallest_bytes(shape):
        raise RootFileError(f"expected {smallest_bytes(shape)} B or more for {shape.basket_count} baskets, found {size_bytes} B; "
                            "use larger files or fewer baskets")  # fmt: skip
    many = names > 1 or path.is_dir()
    if many:
        path.mkdir(parents=True, exist_ok=True)
    created = 0
    for index in range(names):
        file = path / f"{index:06d}" if many else path
        if file.exists() and file.stat().st_size == size_bytes:
            continue
        original = path / f"{index % unique:06d}" if many else path
        _make(file, original if index >= unique else None, size_bytes, shape, seed, index % unique)
        created += 1
    return created


def _make(file: Path, original: Path | None, size_bytes: int, shape: RootFileShape, seed: int, content: int) -> None:
    part = file.with_name(f".{file.name}.part")
    if original is not None:
        shutil.copyfile(original, part)
    else:
        _fill(part, size_bytes, shape, (seed, content))
        os.truncate(part, size_bytes)
    # Atomic rename: an existing file is complete.
    part.replace(file)


def _fill(path: Path, size_bytes: int, shape: RootFileShape, seed: tuple[int, int]) -> None:
    """Write as many events as fit: first a safe number, then as many as fit with the measured metadata."""
    event_bytes = shape.basket_count * _VALUE_BYTES
    certain_events = (size_bytes - _fixed_bytes(shape)) // event_bytes
    _write_events(path, certain_events, shape, seed)
    spare_events = (size_bytes - path.stat().st_size) // event_bytes
    for events in (certain_events + spare_events, certain_events):
        if spare_events > 0:
            _write_events(path, events, shape, seed)
        if path.stat().st_size <= size_bytes:
            return
    raise RootFileError(
        f"{path}: expected {size_bytes} B at most, found {path.stat().st_size} B written by uproot; use larger files"
    )


def _write_events(path: Path, events: int, shape: RootFileShape, seed: tuple[int, int]) -> None:
    """Write ``events`` values to each basket."""
    rng = np.random.default_rng(seed)
    branches = [f"value{number}" for number in range(shape.branches)]
    with uproot().recreate(path, compression=None) as file:
        for number in range(shape.containers):
            tree = file.mktree(
                f"events{number}", dict.fromkeys(branches, "f8"), initial_basket_capacity=shape.baskets
            )
            for _ in range(shape.baskets):
                tree.extend({branch: rng.random(events) for branch in branches})


def _fixed_bytes(shape: RootFileShape) -> int:
    trees = shape.containers * (_TREE_BYTES + shape.branches * _BRANCH_BYTES)
    return _FILE_BYTES + trees + shape.basket_count * _BASKET_BYTES
