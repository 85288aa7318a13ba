"""Random numbers that depend only on a seed and a name.

They are keyed hashes without state: numbers are independent of each other and of library versions.
"""

from __future__ import annotations

import hashlib

__all__ = ["draw_bits", "draw_unit", "shuffled"]


def draw_bits(seed: int, *names: str | int, bits: int = 128) -> int:
    """Return the random integer of these names, with ``bits`` bits.

    Examples
    --------
    >>> draw_bits(1, "a", bits=16) == draw_bits(1, "a", bits=16) != draw_bits(2, "a", bits=16)
    True
    """
    text = "\x1f".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16]) >> (128 - bits)


def draw_unit(seed: int, *names: str | int) -> float:
    """Return the random number of these names in [0, 1), with 53 bits.

    Examples
    --------
    >>> 0 <= draw_unit(1, "pause", 7) < 1
    True
    """
    return float(draw_bits(seed, *names, bits=53) * 2.0**-53)


def shuffled(count: int, seed: int, *names: str | int) -> list[int]:
    """Return a random permutation of ``range(count)``; all permutations have the same probability."""
    prefix = hashlib.sha256("\x1f".join(map(str, (seed, *names))).encode())

    def key(index: int) -> tuple[bytes, int]:
        state = prefix.copy()
        state.update(f"\x1f{index}".encode())
        return state.digest(), index

    return sorted(range(count), key=key)
