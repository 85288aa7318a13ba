"""Measure time and quality of fitting and ranking, compared with curve_fit of scipy in the same run.

    OMP_NUM_THREADS=1 python bench/fits.py [--curves 1000] [--peer-curves 12] [--rounds 3]

Curves are seeded, with 6 to 12 points and 3 % noise, half as functions of files and half of size, from families of the
table. The peer gets the inputs of a careful user: the same families, bounds on signs, scaled data, several starts with
correct amplitudes, and the exact slopes.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy starts its threads

import argparse
import platform
import statistics
import time
import warnings

import numpy as np
import scipy
from figures import Bounds, execute, print_environment
from scipy.optimize import curve_fit

from venturi.model import EXHAUSTIVE_SEARCH, FAMILIES, Curve, Family, Fit, fit_many, profile, rank, rank_many
from venturi.model._descent import residuals
from venturi.model.curve import pack

# Loss rates are below one, so the two families of loss are not defined at these x.
BENCH_FAMILIES = [family for family in FAMILIES.values() if "loss" not in family.variables]
LIMIT_S = 20.0
"""Limit for 1,000 curves and all families, on one core."""
SAME = 1e-4
"""Relative difference of SSE that counts as equal, because the peer can slightly exceed our limits of parameters."""
FILES = np.array([1.0, 2, 4, 5, 8, 10, 15, 20, 25, 30, 40, 45])
SIZES = np.geomspace(1e7, 4e9, 12)
SHAPES = {
    "files": [
        ("exponential-sum", [3e8, 0.6, 1e8, 0.02]), ("power", [4e8, -0.7]), ("share-capped", [7e8, 1.2e8]),
        ("overload", [1e8, 0.06, 0.002]), ("window", [2e7, 2.5e8]), ("gaussian", [2e8, 18.0, 14.0]),
    ],
    "size": [
        ("setup", [1.7, 1.1e8]), ("exponential-difference", [9e7, 1e-10, 8e7, 1.2e-8]), ("power", [3e3, 0.5]),
        ("exponential-sum", [1e8, 1e-8, 9e7, 1e-10]),
    ],
}  # fmt: skip


def main() -> None:
    """Run all parts and print the results."""
    options = _options()
    curves = make_curves(options.curves)
    print_environment(
        f"Python {platform.python_version()}",
        f"numpy {np.__version__}",
        f"scipy {scipy.__version__}",
        f"OMP_NUM_THREADS={os.environ['OMP_NUM_THREADS']}",
    )
    print(f"{len(curves)} curves of 6 to 12 points, {len(BENCH_FAMILIES)} families\n")

    rounds = []
    for _ in range(options.rounds):
        start = time.perf_counter()
        rankings = rank_many(curves, BENCH_FAMILIES)
        rounds.append(time.perf_counter() - start)
    median_s = statistics.median(rounds)
    show("fit and rank all", rounds, f"{1e3 * median_s / len(curves):.2f} ms a curve")
    fitted = sum(len(ranking.entries) for ranking in rankings)
    ended = sum(entry.fit.converged for ranking in rankings for entry in ranking.entries)
    print(f"{'':24}{fitted} fits, {100 * ended / fitted:.2f} % ended at a minimum")

    alone = [timed(lambda c=curve: rank(c, BENCH_FAMILIES)) for curve in curves[:15]]
    show("one curve by itself", alone)
    profiles = [timed(lambda f=ranking.best: profile(f)) for ranking in rankings[:15]
                if ranking.best.degrees_of_freedom]  # fmt: skip
    show("profile of one fit", profiles)

    against_exhaustive(curves[: options.check_curves])
    against_peer(curves[: options.peer_curves])

    bounds = Bounds()
    bounds.assess("fit and rank 1000 curves", 1000 * median_s / len(curves), most=LIMIT_S, unit=" s")
    bounds.show("What is asked of fitting")


def make_curves(count: int) -> list[Curve]:
    """Return the seeded curves, alternately of files and size."""
    rng = np.random.default_rng(2024)
    curves = []
    for index in range(count):
        kind = ("files", "size")[index % 2]
        name, parameters = SHAPES[kind][int(rng.integers(len(SHAPES[kind])))]
        x = np.sort(rng.choice(FILES if kind == "files" else SIZES, size=int(rng.integers(6, 13)), replace=False))
        varied = np.array(parameters) * rng.uniform(0.7, 1.4, len(parameters))
        exact = FAMILIES[name].value(x[:, None], varied[:, None])[:, 0]
        sigma = 0.03 * np.abs(exact)
        curves.append(Curve(x, exact + sigma * rng.standard_normal(len(x)), sigma, f"{name}-{index}"))
    return curves


def against_exhaustive(curves: list[Curve]) -> None:
    """Print how often an exhaustive search finds a better minimum."""
    print(f"\nbetter minimum found by the exhaustive search ({len(curves)} curves a family)")
    for family in BENCH_FAMILIES:
        if family.searched == 0:
            continue
        pairs = [(a, b) for a, b in zip(fit_many(curves, family), fit_many(curves, family, settings=EXHAUSTIVE_SEARCH),
                                        strict=True) if isinstance(a, Fit) and isinstance(b, Fit)]  # fmt: skip
        missed = sum(a.goodness.sse > b.goodness.sse * (1 + 1e-6) + 1e-9 for a, b in pairs)
        loss = max(b.goodness.r_squared - a.goodness.r_squared for a, b in pairs)
        print(f"  {family.name:24} {missed:4d} of {len(pairs)}, largest loss of R² {max(loss, 0):.1e}")


def against_peer(curves: list[Curve]) -> None:
    """Print time and quality, compared with a multi-start of curve_fit on the same curves and families."""
    ours_s = timed(lambda: rank_many(curves, BENCH_FAMILIES))
    peer_s, wins, ties, losses = 0.0, 0, 0, 0
    for family in BENCH_FAMILIES:
        for curve, mine in zip(curves, fit_many(curves, family), strict=True):
            if not isinstance(mine, Fit):
                continue
            start = time.perf_counter()
            sse = peer_fit(curve, family)
            peer_s += time.perf_counter() - start
            ratio = mine.goodness.sse / sse
            wins += ratio < 1 - SAME
            losses += ratio > 1 + SAME
            ties += abs(ratio - 1) <= SAME
    print(f"\npeer: scipy curve_fit from 4 to 8 starts ({len(curves)} curves, same run)")
    print(f"  ours {1e3 * ours_s / len(curves):9.1f} ms a curve (in a batch of {len(curves)})")
    print(f"  peer {1e3 * peer_s / len(curves):9.1f} ms a curve; ratio {peer_s / ours_s:.0f}")
    print(f"  our minimum is lower {wins}, equal {ties}, higher {losses} times")


def peer_fit(curve: Curve, family: Family) -> float:
    """Return the least SSE of several runs of curve_fit, in units of the curve's sigma."""
    batch = pack([curve], scales_x=family.scales_x, scales_y=True)
    low, high = (each[:, 0] for each in family.box(family.start_box, batch.span))
    count = (1, 4, 6, 8, 8)[family.searched]
    unit = np.random.default_rng(0).random((family.searched, count))

    def function(_x, *p):
        return family.value(curve.x[:, None], np.array(p)[:, None] * scale)[:, 0] * np.ones(len(curve))

    def slopes(_x, *p):
        return (family.jacobian(curve.x[:, None], np.array(p)[:, None] * scale)[:, :, 0] * scale).T

    best = np.inf
    for each in unit.T:
        theta = (low + each * (high - low))[:, None]
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start, _ = residuals(family, batch.points, theta)
            p0 = np.array(family.expand(theta, start.amplitudes, batch.x_scale, batch.y_scale)) * np.ones(1)
            if not np.isfinite(p0).all():
                continue
            scale = np.where(p0 == 0, 1.0, np.abs(p0))
            floor = [0.0 if name in family.positive else -np.inf for name in family.parameters]
            bound = {"max_nfev": 500} if np.isfinite(floor).any() else {"maxfev": 500}
            try:
                p, _ = curve_fit(function, curve.x, curve.y, p0=(p0 / scale)[:, 0], sigma=curve.sigma, jac=slopes,
                                 bounds=(floor, np.inf), **bound)  # fmt: skip
            except (RuntimeError, ValueError):
                continue
            best = min(best, float(np.sum(((curve.y - function(None, *p)) / curve.sigma) ** 2)))
    return best


def timed(work) -> float:
    """Return the seconds that ``work()`` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def show(label: str, seconds: list[float], note: str = "") -> None:
    """Print median and range of some times."""
    unit, factor = ("s", 1.0) if statistics.median(seconds) > 1 else ("ms", 1e3)
    low, middle, high = (factor * f(seconds) for f in (min, statistics.median, max))
    print(f"{label:24}median {middle:.2f} {unit} [{low:.2f}, {high:.2f}], n = {len(seconds)}  {note}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", type=int, default=1000)
    parser.add_argument("--check-curves", type=int, default=60)
    parser.add_argument("--peer-curves", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    execute(main)
