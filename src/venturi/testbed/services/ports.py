"""Default ports of a service that needs more ports than the scenario sets."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["with_defaults"]


def with_defaults(requested: Sequence[int], defaults: Sequence[int]) -> tuple[int, ...]:
    """Return the requested ports, followed by the missing defaults with the offset of the first requested port.

    Examples
    --------
    >>> with_defaults([], [1094, 1213])
    (1094, 1213)
    >>> with_defaults([2094], [1094, 1213])
    (2094, 2213)
    >>> with_defaults([1, 2, 3], [1094, 1213])
    (1, 2, 3)
    """
    offset = requested[0] - defaults[0] if requested else 0
    return (*requested, *(port + offset for port in defaults[len(requested) :]))
