"""Is ``venturi copy`` without settings as fast as with the best fixed ones?

    python bench/mover.py tuning [--quick] [--paths N ...] [--rounds N] [--seed N] [--engine ENGINE]

Twenty random paths of the lab's emulated network, drawn from a seed: round trips of 0.1–200 ms and rates of 0.1–10 Gb/s (log-uniform), no loss or one packet in
1,000 to 100,000, and four mixes of files in turn, down and up: many of 10 KB, log-normal sizes, few large ones, one large one. How much is moved is what takes
about five seconds. The server is an unmodified globus-gridftp-server.

On each path settings are swept (``--fixed``): sessions 1, 2, 4, 8, 16 with one stream each; then 4 and 8 streams at the best number of sessions, half and twice as many; then
a pipeline of 32 in place of 256 at the best of these. What is left out of the full product is far from the best of its own row. A setting that takes three times as long as the best so far is ended. The two
best settings and the default are then repeated, interleaved; the better median of the two is what the default is held against. That is the better of two draws: the default has to be better than equal.
Needs root.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

import mover_network_tools as tools
from figures import Bounds, interleaved, print_facts, version, with_quartiles
from mover_network import Job
from mover_network_lab import Files, Link, memory_folder, route_up
from mover_network_tools import DOWN, UP, Tool

from venturi.backend import find_engine

PATHS = 20
QUICK_PATHS = (2, 4, 9, 15)
"""Numbers of paths that are unlike each other."""

WANTED_S = 5.0
MOST_BYTES = 1_200_000_000
"""Of a set: source and copy are in memory."""

MOST_FILES = 30_000
FASTEST_BIT_PER_S = 3e9
"""What four cores emulate, serve and receive at a time."""

WINDOW_BYTES = 3_000_000
"""Of a connection with the kernel's buffers."""

CONNECTIONS = 32
SMALL_BYTES = 10_000
FEW = 6
PATIENCE = 3.0
"""A setting this many times slower than the best is ended."""

LEAST = 0.95
MIXES = ("many small", "log-normal", "few large", "one large")


@dataclass(frozen=True)
class Case:
    """A path and what is moved over it.

    Attributes
    ----------
    number
        Of the path, from 1.
    link
        The path.
    mix
        One of `MIXES`.
    way
        Download or upload.
    sizes_bytes
        Of the files.
    """

    number: int
    link: Link
    mix: str
    way: str
    sizes_bytes: tuple[int, ...]

    @property
    def name(self) -> str:
        """What is printed of it."""
        volume_mb = sum(self.sizes_bytes) / 1e6
        return f"{self.number:2} {self.link.name}: {self.mix}, {len(self.sizes_bytes):,} files, {volume_mb:,.0f} MB, {self.way}"


def cases(seed: int, count: int = PATHS) -> list[Case]:
    """Draw paths: each mix as often as the others, down and up."""
    return [_case(number, random.Random(f"{seed} {number}")) for number in range(1, count + 1)]


def _case(number: int, draw: random.Random) -> Case:
    def log_uniform(least: float, most: float) -> float:
        return math.exp(draw.uniform(math.log(least), math.log(most)))

    rtt_s, rate_bit_per_s = log_uniform(1e-4, 0.2), log_uniform(1e8, 1e10)
    loss = float(f"{log_uniform(1e-5, 1e-3):.2g}") if draw.random() < 0.5 else 0.0
    link = Link(f"{rate_bit_per_s / 1e6:.0f} Mb/s", f"{rtt_s * 1e3:.3g} ms", loss)
    mix = MIXES[(number - 1) % len(MIXES)]
    volume_bytes = min(MOST_BYTES, round(_goodput_bit_per_s(rate_bit_per_s, rtt_s, loss) / 8 * WANTED_S))
    way = DOWN if (number - 1) // len(MIXES) % 2 == 0 else UP
    return Case(number, link, mix, way, tuple(_sizes(mix, volume_bytes, draw)))


def _goodput_bit_per_s(rate_bit_per_s: float, rtt_s: float, loss: float) -> float:
    """What many connections may come to: their windows, and what losses leave of them (Mathis et al. 1997: MSS/RTT · √(3/2p))."""
    window_bytes = float(WINDOW_BYTES)
    if loss:
        window_bytes = min(window_bytes, 1448 * math.sqrt(1.5 / loss))
    return min(rate_bit_per_s, FASTEST_BIT_PER_S, CONNECTIONS * window_bytes * 8 / rtt_s)


def _sizes(mix: str, volume_bytes: int, draw: random.Random) -> list[int]:
    if mix == "many small":
        return [SMALL_BYTES] * max(100, min(MOST_FILES, volume_bytes // SMALL_BYTES))
    if mix == "log-normal":
        sizes: list[int] = []
        while (left := volume_bytes - sum(sizes)) > 0 and len(sizes) < MOST_FILES:
            sizes.append(min(round(draw.lognormvariate(math.log(2e5), 1.5)) + 1, left))
        return sizes
    count = FEW if mix == "few large" else 1
    return [volume_bytes // count] * count


@dataclass(frozen=True)
class Setting:
    """Of one call.

    Attributes
    ----------
    sessions
        ``--concurrency``.
    streams
        ``--streams``.
    pipelining
        ``--pipelining``.
    """

    sessions: int
    streams: int = 1
    pipelining: int = 256

    @property
    def words(self) -> str:
        """On the command line."""
        return f"--fixed --concurrency {self.sessions} --streams {self.streams} --pipelining {self.pipelining}"

    @property
    def name(self) -> str:
        """What is printed of it."""
        return f"{self.sessions} × {self.streams}, {self.pipelining} ahead"


class Sweep:
    """Times of settings on one path."""

    def __init__(self, job: Job, engine: Path) -> None:
        self.job = job
        self.engine = engine
        self.times_s: dict[Setting, float] = {}

    def tool(self, setting: Setting | None, limit_s: float = inf) -> Tool:
        """Return the call of a setting, or of none, that is ended when it takes too long."""
        make = tools.ours if self.job.files.count > 1 else tools.ours_large
        tool = make(self.engine, self.job.way, setting.words if setting else "")
        return tool if limit_s == inf else replace(tool, command=f"timeout {limit_s:.1f} {tool.command}")

    def best(self) -> list[Setting]:
        """Return the settings that came through, the fastest first."""
        return sorted((one for one in self.times_s if self.times_s[one] < inf), key=lambda one: self.times_s[one])

    def try_each(self, settings: Sequence[Setting]) -> None:
        """Measure what was not measured before, once each."""
        for setting in settings:
            if setting in self.times_s:
                continue
            best_s = min(self.times_s.values(), default=inf)
            limit_s = PATIENCE * best_s if best_s < inf else 60.0
            try:
                _, took = self.job.carry_out(self.tool(setting, limit_s), check=False)
                self.times_s[setting] = took.wall_s
            except SystemExit:
                self.times_s[setting] = inf

    def carry_out(self, *, quick: bool) -> None:
        """Measure step by step; from the middle on, so that what is slow is ended soon."""
        sessions = (4, 1, 16) if quick else (4, 2, 8, 16, 1)
        self.try_each([Setting(count) for count in sessions])
        near = self.best()[0].sessions
        others = [near] if quick else [count for count in (near, near // 2, near * 2) if 1 <= count <= 16]
        self.try_each([Setting(count, streams) for streams in ((4,) if quick else (4, 8)) for count in others])
        if self.job.files.count > 1 and not quick:
            self.try_each([replace(self.best()[0], pipelining=32)])


def measure(case: Case, engine: Path, rounds: int, *, quick: bool) -> float:
    """Return the rate without settings in parts of that with the best; print both."""
    with memory_folder() as memory, route_up(case.link, memory) as route:
        files = Files.make(route.served / "set", case.sizes_bytes)
        sweep = Sweep(Job(route, files, case.way), engine)
        print(f"\n{case.name}", flush=True)
        sweep.carry_out(quick=quick)
        tried = ", ".join(f"{one.name}: {sweep.times_s[one]:.2f}" for one in sweep.best())
        print(f"  tried, s: {tried}; {sum(time == inf for time in sweep.times_s.values())} ended", flush=True)
        names: dict[str, Setting | None] = {"default": None, **{one.name: one for one in sweep.best()[:2]}}
        times_s: dict[str, list[float]] = {name: [] for name in names}
        for name in interleaved(list(names), rounds):
            _, took = sweep.job.carry_out(sweep.tool(names[name]), check=not times_s[name])
            times_s[name].append(took.wall_s)
    for name, walls_s in times_s.items():
        print(f"  {name:20} {with_quartiles(walls_s)} s", flush=True)
    ours_s = statistics.median(times_s.pop("default"))
    return min(map(statistics.median, times_s.values())) / ours_s


def main(words: Sequence[str] | None = None) -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(
        prog="mover.py tuning", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", type=Path, help="the binary under test")
    parser.add_argument("--paths", type=int, nargs="+", help=f"numbers of the paths, 1 to {PATHS}")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seed", type=int, default=6, help="of the paths (default 6)")
    parser.add_argument("--quick", action="store_true", help="four paths, few settings: four minutes")
    given = parser.parse_args(words)
    engine = (given.engine or find_engine()).absolute()
    print_facts(version(engine, "--version"))
    wanted = given.paths or (QUICK_PATHS if given.quick else range(1, PATHS + 1))
    rounds = given.rounds or (2 if given.quick else 3)
    bounds, ratios = Bounds(), []
    for case in cases(given.seed):
        if case.number in wanted:
            ratio = measure(case, engine, rounds, quick=given.quick)
            bounds.judge(f"{case.name}: default / best fixed", ratio, least=LEAST)
            ratios.append(ratio)
    bounds.show("Without settings, beside the best that were found")
    within = sum(ratio >= LEAST for ratio in ratios)
    print(
        f"  {within} of {len(ratios)} paths within 5 %; geometric mean {statistics.geometric_mean(ratios):.3f}, worst {min(ratios):.3f}"
    )
