"""Seeded draws that depend on nothing but a seed and the name of what they are for.

A keyed hash, not a generator: it has no state that one draw could shift for another, and no version of a library can
change it.
"""

from __future__ import annotations

import hashlib

__all__ = ["draw_bits", "draw_unit", "shuffled"]


def draw_bits(seed: int, *names: str | int, bits: int = 128) -> int:
    """Return a whole number of ``bits`` random bits that belongs to these names.

    Examples
    --------
    >>> draw_bits(1, "a", bits=16) == draw_bits(1, "a", bits=16) != draw_bits(2, "a", bits=16)
    True
    """
    text = "\x1f".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16]) >> (128 - bits)


def draw_unit(seed: int, *names: str | int) -> float:
    """Return a number of [0, 1) with 53 random bits that belongs to these names.

    Examples
    --------
    >>> 0 <= draw_unit(1, "pause", 7) < 1
    True
    """
    return float(draw_bits(seed, *names, bits=53) * 2.0**-53)


def shuffled(count: int, seed: int, *names: str | int) -> list[int]:
    """Return a permutation of ``range(count)``, each equally probable: sorted by a random number each."""
    prefix = hashlib.sha256("\x1f".join(map(str, (seed, *names))).encode())

    def key(index: int) -> tuple[bytes, int]:
        state = prefix.copy()
        state.update(f"\x1f{index}".encode())
        return state.digest(), index

    return sorted(range(count), key=key)
