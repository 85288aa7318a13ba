"""Numbers of points and repetitions where points are not known beforehand."""

from __future__ import annotations

__all__ = ["Points"]


class Points:
    """Numbers points as they first come, and the repetitions of each.

    Examples
    --------
    >>> points = Points()
    >>> points.of("Bari", "upload"), points.of("Bari", "download"), points.of("Bari", "upload")
    ((0, 0), (1, 0), (0, 1))
    """

    def __init__(self) -> None:
        self._of: dict[tuple[object, ...], list[int]] = {}

    def of(self, *key: object) -> tuple[int, int]:
        """Return the number of a point and that of its next repetition."""
        place = self._of.setdefault(key, [len(self._of), -1])
        place[1] += 1
        return place[0], place[1]
