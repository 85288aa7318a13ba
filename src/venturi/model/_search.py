"""Search for the best minimum of a family on many curves: seeded starts, a screening, and heats of descent.

Screening solves only for the amplitudes, so hundreds of starts cost as much as a few steps of the descent. The search
keeps the best starts of all and the best of disjoint groups, so that a single wide basin does not take all places.
Short heats compare the basins, and the best ones continue to full precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from venturi.model._descent import Descent, descend
from venturi.model._projection import project
from venturi.model.curve import CurveBatch
from venturi.model.family import Array, Box, Family

__all__ = ["DEFAULT_SEARCH", "EXHAUSTIVE_SEARCH", "Search", "cloud", "search"]


@dataclass(frozen=True)
class Search:
    """Effort of the search for the best minimum.

    Parameters
    ----------
    screened
        Number of screened starts, by number of searched coordinates. The last entry also applies to more coordinates.
    kept
        Number of starts in the first heat, by number of searched coordinates.
    heats
        Pairs of steps and survivors. The last survivors continue to convergence.
    last_steps
        Maximum number of steps of the last round.
    seed
        Seed of the starts.
    """

    screened: tuple[int, ...] = (48, 128, 256, 768)
    kept: tuple[int, ...] = (4, 6, 12, 96)
    heats: tuple[tuple[int, int], ...] = ((8, 24), (20, 3))
    last_steps: int = 300
    seed: int = 0


DEFAULT_SEARCH = Search()
"""Default effort. An exhaustive search rarely finds a better minimum; ``bench/fits.py`` measures how rarely."""

EXHAUSTIVE_SEARCH = Search(screened=(128, 1024, 2048, 4096), kept=(24, 64, 128, 384), heats=((40, 16),))
"""Effort many times the default, to check the default."""

LANES_AT_ONCE = 4096
"""Lanes in one pass. Arrays of 10 points then stay within the cache of a core."""
KEPT_OF_GIVEN = 8
"""Starts kept around a start that the caller gives; all of them run to the end."""
CURVES_AT_ONCE = 128
"""Minimum number of curves in one pass. With fewer, the last rounds have so few lanes that the interpreter dominates the time."""


def search(family: Family, batch: CurveBatch, settings: Search, starts: Array | None = None) -> Descent:
    """Return the best minimum of each lane of ``batch``.

    Parameters
    ----------
    starts
        Given starts, (m, count), which replace the seeded ones for every curve. The first one is always kept.
    """
    if family.searched == 0:
        return descend(family, batch.points, np.empty((0, len(batch.x_scale))), _no_limits(batch), steps=1)
    count = _entry(settings.screened, family.searched) if starts is None else starts.shape[1]
    kept = _entry(settings.kept, family.searched)
    if starts is not None:
        kept = min(kept, KEPT_OF_GIVEN)
    per_pass = max(CURVES_AT_ONCE, LANES_AT_ONCE // count)
    parts = [
        _search(family, _lanes(batch, np.arange(first, min(first + per_pass, len(batch.x_scale)))), settings, starts, count, kept)
        for first in range(0, len(batch.x_scale), per_pass)
    ]  # fmt: skip
    return Descent(*(np.concatenate(columns, axis=-1) for columns in zip(*parts, strict=True)))


def cloud(start: Array, decades: float, settings: Search) -> Array:
    """Return ``start`` (m,) and seeded points around it, (m, count), in a range of ``decades`` decades per coordinate."""
    if decades == 0 or len(start) == 0:
        return start[:, None]
    count = _entry(settings.screened, len(start))
    factors = 10.0 ** (decades * (_lattice(len(start), count, settings.seed) - 0.5))
    return np.concatenate([start[:, None], start[:, None] * factors], axis=1)


def _entry(by_dimension: tuple[int, ...], dimension: int) -> int:
    return by_dimension[min(dimension, len(by_dimension)) - 1]


def _search(
    family: Family, batch: CurveBatch, settings: Search, starts: Array | None, count: int, kept: int
) -> Descent:
    curves = len(batch.x_scale)
    limits = family.box(family.limits, batch.span)
    everyone = np.arange(curves)
    if starts is None:
        theta = _starts(family, batch, _lattice(family.searched, count, settings.seed))
    else:
        theta = np.repeat(starts[:, :, None], curves, axis=2)
    theta = np.clip(theta, limits[0][:, None, :], limits[1][:, None, :])
    chosen = np.arange(count)[:, None].repeat(curves, axis=1)
    if count > kept:
        lanes = np.tile(everyone, count)
        sse = _screen(family, batch, theta.reshape(family.searched, -1), lanes).reshape(count, curves)
        if starts is not None:
            sse[0] = -1.0  # always keep the start of the caller
        chosen = _keep(sse, kept, ordered=starts is None and family.searched == 1)
    # With given starts, no heat removes any: one curve costs little, and its start may converge slowly at first.
    for steps, survivors in (*(settings.heats if starts is None else ()), (settings.last_steps, 1)):
        theta = np.take_along_axis(theta, chosen[None], axis=1)
        lanes = np.tile(everyone, theta.shape[1])
        ended = descend(family, batch.points.take(lanes), theta.reshape(family.searched, -1),
                        (limits[0][:, lanes], limits[1][:, lanes]), steps=steps)  # fmt: skip
        theta = ended.theta.reshape(family.searched, -1, curves)
        chosen = np.argsort(ended.sse.reshape(-1, curves), axis=0, kind="stable")[:survivors]
    best = chosen[0] * curves + everyone
    return Descent(ended.theta[:, best], ended.amplitudes[:, best], ended.sse[best], ended.converged[best])


def _starts(family: Family, batch: CurveBatch, unit: Array) -> Array:
    if family.initial_positions is not None:
        return family.initial_positions(unit, batch.span)
    low, high = family.box(family.start_box, batch.span)
    even: Array = low[:, None, :] + unit[:, :, None] * (high - low)[:, None, :]
    return even


def _screen(family: Family, batch: CurveBatch, theta: Array, lanes: Array) -> Array:
    points = batch.points.take(lanes)
    with np.errstate(all="ignore"):
        terms = family.terms(points.x, theta)
        data = points.y if terms.offset is None else points.y - points.weight * terms.offset
        return project([points.weight * phi for phi in terms.phi], data, family.nonnegative).sse


def _keep(sse: Array, kept: int, ordered: bool) -> Array:
    """Return the rows to continue with, (kept, curves).

    If the starts are in order along one coordinate, these are the deepest of the local minima on that grid. Otherwise,
    half of them are the best of all, and the rest are the best of each of several groups.
    """
    count = len(sse)
    if ordered:
        fence = np.full((1, sse.shape[1]), np.inf)
        walled = np.concatenate([fence, sse, fence])
        hollow = (sse <= walled[:-2]) & (sse <= walled[2:])
        return np.lexsort((sse, ~hollow), axis=0)[:kept]
    overall = np.argsort(sse, axis=0, kind="stable")[: (kept + 1) // 2]
    groups = kept - len(overall)
    borders = np.linspace(0, count, groups + 1).astype(int)
    best = [first + np.argmin(sse[first:last], axis=0) for first, last in pairwise(borders)]
    return np.concatenate([overall, np.array(best, dtype=overall.dtype).reshape(groups, -1)])


def _lattice(dimensions: int, count: int, seed: int) -> Array:
    """Return evenly spread, seeded points of the unit cube, (dimensions, count), in order of their first coordinate.

    The method is the additive recurrence of Roberts (2018), whose steps are powers of the root of g^(d+1) = g + 1, with
    a random shift. Through the order, the groups of `_keep` are slabs of the cube.
    """
    root = 1.5
    for _ in range(60):
        root = (1 + root) ** (1 / (dimensions + 1))
    shift = np.random.default_rng(seed).random(dimensions)
    steps = root ** -np.arange(1.0, dimensions + 1)
    points = (shift[:, None] + steps[:, None] * np.arange(1, count + 1)) % 1.0
    return points[:, np.argsort(points[0])]


def _lanes(batch: CurveBatch, lanes: Array) -> CurveBatch:
    span = type(batch.span)(*(column[..., lanes] for column in batch.span))
    return CurveBatch(batch.points.take(lanes), span, batch.x_scale[lanes], batch.y_scale[lanes])


def _no_limits(batch: CurveBatch) -> Box:
    nothing = np.empty((0, len(batch.x_scale)))
    return nothing, nothing
