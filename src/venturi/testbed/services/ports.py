"""The ports of a service that needs several, where a scenario gives fewer."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["with_defaults"]


def with_defaults(given: Sequence[int], usual: Sequence[int]) -> tuple[int, ...]:
    """Return the given ports, and after them the usual ones that are missing, moved as far as the first one was.

    Examples
    --------
    >>> with_defaults([], [1094, 1213])
    (1094, 1213)
    >>> with_defaults([2094], [1094, 1213])
    (2094, 2213)
    >>> with_defaults([1, 2, 3], [1094, 1213])
    (1, 2, 3)
    """
    moved = given[0] - usual[0] if given else 0
    return (*given, *(port + moved for port in usual[len(given) :]))
