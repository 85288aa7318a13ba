"""Makes files of ROOT of an exact size: few with contents of their own, and copies of these under many names (003, L393)."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from venturi.application.libraries import RootFileError, uproot

__all__ = ["Shape", "smallest_bytes", "write"]

_VALUE_BYTES = 8
_FILE_BYTES, _TREE_BYTES, _BRANCH_BYTES, _BASKET_BYTES = 22_000, 1_500, 700, 300
"""A little more than each takes beside the values: head and streamers; what a tree says of its branches and baskets, which uproot writes again
when a list has become too long. Measured with uproot 5.7: 65.8 kB for 2 × 8 × 8 baskets of one value, 165 kB for 1 × 40 × 10."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How a file is cut: trees, branches a tree, baskets a branch."""

    containers: int = 2
    branches: int = 4
    baskets: int = 4

    @property
    def pieces(self) -> int:
        """Baskets of a file."""
        return self.containers * self.branches * self.baskets


def smallest_bytes(shape: Shape) -> int:
    """Return the smallest size of a file of this shape, in bytes: one value a basket."""
    return _fixed_bytes(shape) + shape.pieces * _VALUE_BYTES


def write(
    path: Path, size_bytes: int, *, names: int = 1, unique: int = 1, shape: Shape | None = None, seed: int = 1
) -> int:
    """Make files and return how many had to be made; those that are there and whole are left.

    Parameters
    ----------
    path
        The file, or with more than one of ``names`` the folder of ``000000``, ``000001`` ….
    size_bytes
        Of each file. Its last bytes, behind the end that ROOT knows, are zeros.
    unique
        Name *i* has the content number *i* modulo ``unique``.
    seed
        Of the random values; they do not compress.

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
    shape = shape or Shape()
    if size_bytes < smallest_bytes(shape):
        raise RootFileError(f"expected {smallest_bytes(shape)} B or more for {shape.pieces} baskets, found {size_bytes} B; "
                            "ask for larger files, or fewer baskets")  # fmt: skip
    many = names > 1 or path.is_dir()
    if many:
        path.mkdir(parents=True, exist_ok=True)
    made = 0
    for index in range(names):
        file = path / f"{index:06d}" if many else path
        if file.exists() and file.stat().st_size == size_bytes:
            continue
        original = path / f"{index % unique:06d}" if many else path
        _make(file, original if index >= unique else None, size_bytes, shape, seed, index % unique)
        made += 1
    return made


def _make(file: Path, original: Path | None, size_bytes: int, shape: Shape, seed: int, content: int) -> None:
    part = file.with_name(f".{file.name}.part")
    if original is not None:
        shutil.copyfile(original, part)
    else:
        _fill(part, size_bytes, shape, (seed, content))
        os.truncate(part, size_bytes)
    # In one step: a file that is there is whole.
    part.replace(file)


def _fill(path: Path, size_bytes: int, shape: Shape, seed: tuple[int, int]) -> None:
    """Write as many events as the size holds: first what is sure to fit, then what fits beside what that took."""
    event_bytes = shape.pieces * _VALUE_BYTES
    sure = (size_bytes - _fixed_bytes(shape)) // event_bytes
    _write_events(path, sure, shape, seed)
    room = (size_bytes - path.stat().st_size) // event_bytes
    for events in (sure + room, sure):
        if room > 0:
            _write_events(path, events, shape, seed)
        if path.stat().st_size <= size_bytes:
            return
    raise RootFileError(f"{path}: expected {size_bytes} B at most, found {path.stat().st_size} B written by uproot")


def _write_events(path: Path, events: int, shape: Shape, seed: tuple[int, int]) -> None:
    """Write so many values to each basket."""
    rng = np.random.default_rng(seed)
    branches = [f"value{number}" for number in range(shape.branches)]
    with uproot().recreate(path, compression=None) as file:
        for number in range(shape.containers):
            tree = file.mktree(
                f"events{number}", dict.fromkeys(branches, "f8"), initial_basket_capacity=shape.baskets
            )
            for _ in range(shape.baskets):
                tree.extend({branch: rng.random(events) for branch in branches})


def _fixed_bytes(shape: Shape) -> int:
    trees = shape.containers * (_TREE_BYTES + shape.branches * _BRANCH_BYTES)
    return _FILE_BYTES + trees + shape.pieces * _BASKET_BYTES
