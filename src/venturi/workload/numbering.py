"""Numbers of points and repetitions, if the points are not known in advance."""

from __future__ import annotations

__all__ = ["PointNumbering"]


class PointNumbering:
    """Numbers points in the order of their first use, and the repetitions of each point.

    Examples
    --------
    >>> points = PointNumbering()
    >>> points.of("Bari", "upload"), points.of("Bari", "download"), points.of("Bari", "upload")
    ((0, 0), (1, 0), (0, 1))
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[object, ...], list[int]] = {}

    def of(self, *key: object) -> tuple[int, int]:
        """Return the number of a point and of its next repetition."""
        counter = self._counts.setdefault(key, [len(self._counts), -1])
        counter[1] += 1
        return counter[0], counter[1]
