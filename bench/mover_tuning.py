"""Is ``venturi copy`` without settings as fast as with the best fixed settings?

    python bench/mover.py tuning [--quick] [--paths N ...] [--rounds N] [--seed N] [--engine ENGINE]

The benchmark uses twenty random paths of the emulated network of the lab, drawn from a seed. Round-trip times are 0.1–200
ms and rates 0.1–10 Gb/s (log-uniform), with no loss or loss of one packet in 1,000 to 100,000. Four mixes of files take
turns, for download and upload: many files of 10 KB, log-normal sizes, few large files, and one large file. Each transfer
takes about five seconds. The server is an unmodified globus-gridftp-server.

A sweep on each path tries fixed settings (``--fixed``): 1, 2, 4, 8, 16 sessions with one stream each; then 4 and 8
streams with the best number of sessions, half of it and twice of it; then a pipeline of 32 instead of 256 with the best
of these. Other combinations are far from the best. A setting that takes three times as long as the best so far is ended.
The two best settings and the default are then repeated, interleaved. The default is compared with the better of the two
medians. Because this is the better of two draws, the default must be better than equal. Requires root.
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
from figures import Bounds, interleaved, print_environment, version, with_quartiles
from mover_network import Job
from mover_network_lab import Files, Link, memory_directory, route_up
from mover_network_tools import DOWN, UP, Tool

from venturi.backend import find_engine

PATHS = 20
QUICK_PATHS = (2, 4, 9, 15)
"""Numbers of dissimilar paths."""

TARGET_S = 5.0
MOST_BYTES = 1_200_000_000
"""Limit of a set, because source and copy are in memory."""

MOST_FILES = 30_000
FASTEST_BIT_PER_S = 3e9
"""Rate that four cores can emulate, serve and receive together."""

WINDOW_BYTES = 3_000_000
"""Window of a connection with the default buffers of the kernel."""

CONNECTIONS = 32
SMALL_BYTES = 10_000
FEW = 6
TIMEOUT_FACTOR = 3.0
"""A setting that takes this multiple of the best time is ended."""

LEAST = 0.95
MIXES = ("many small", "log-normal", "few large", "one large")


@dataclass(frozen=True)
class Case:
    """A path and the files to transfer over it.

    Attributes
    ----------
    number
        Number of the path, from 1.
    link
        The path.
    mix
        One of `MIXES`.
    direction
        Download or upload.
    sizes_bytes
        Sizes of the files.
    """

    number: int
    link: Link
    mix: str
    direction: str
    sizes_bytes: tuple[int, ...]

    @property
    def name(self) -> str:
        """Name for the output."""
        volume_mb = sum(self.sizes_bytes) / 1e6
        return f"{self.number:2} {self.link.name}: {self.mix}, {len(self.sizes_bytes):,} files, {volume_mb:,.0f} MB, {self.direction}"


def cases(seed: int, count: int = PATHS) -> list[Case]:
    """Draw random paths, with equal numbers of each mix and direction."""
    return [_case(number, random.Random(f"{seed} {number}")) for number in range(1, count + 1)]


def _case(number: int, draw: random.Random) -> Case:
    def log_uniform(least: float, most: float) -> float:
        return math.exp(draw.uniform(math.log(least), math.log(most)))

    rtt_s, rate_bit_per_s = log_uniform(1e-4, 0.2), log_uniform(1e8, 1e10)
    loss = float(f"{log_uniform(1e-5, 1e-3):.2g}") if draw.random() < 0.5 else 0.0
    link = Link(f"{rate_bit_per_s / 1e6:.0f} Mb/s", f"{rtt_s * 1e3:.3g} ms", loss)
    mix = MIXES[(number - 1) % len(MIXES)]
    volume_bytes = min(MOST_BYTES, round(_goodput_bit_per_s(rate_bit_per_s, rtt_s, loss) / 8 * TARGET_S))
    direction = DOWN if (number - 1) // len(MIXES) % 2 == 0 else UP
    return Case(number, link, mix, direction, tuple(_sizes(mix, volume_bytes, draw)))


def _goodput_bit_per_s(rate_bit_per_s: float, rtt_s: float, loss: float) -> float:
    """Return the limit of many connections from their windows, which losses reduce (Mathis et al. 1997: MSS/RTT · √(3/2p))."""
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
    """Fixed settings of one call.

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
        """Options of the command line."""
        return f"--fixed --concurrency {self.sessions} --streams {self.streams} --pipelining {self.pipelining}"

    @property
    def name(self) -> str:
        """Name for the output."""
        return f"{self.sessions} × {self.streams}, {self.pipelining} ahead"


class Sweep:
    """Times of settings on one path."""

    def __init__(self, job: Job, engine: Path) -> None:
        self.job = job
        self.engine = engine
        self.times_s: dict[Setting, float] = {}

    def tool(self, setting: Setting | None, limit_s: float = inf) -> Tool:
        """Return the call with a setting, or with the default, and with a time limit."""
        make = tools.ours if self.job.files.count > 1 else tools.ours_large
        tool = make(self.engine, self.job.direction, setting.words if setting else "")
        return tool if limit_s == inf else replace(tool, command=f"timeout {limit_s:.1f} {tool.command}")

    def best(self) -> list[Setting]:
        """Return the settings that finished, the fastest first."""
        return sorted((one for one in self.times_s if self.times_s[one] < inf), key=lambda one: self.times_s[one])

    def try_each(self, settings: Sequence[Setting]) -> None:
        """Measure each new setting once."""
        for setting in settings:
            if setting in self.times_s:
                continue
            best_s = min(self.times_s.values(), default=inf)
            limit_s = TIMEOUT_FACTOR * best_s if best_s < inf else 60.0
            try:
                _, took = self.job.execute(self.tool(setting, limit_s), check=False)
                self.times_s[setting] = took.wall_s
            except SystemExit:
                self.times_s[setting] = inf

    def execute(self, *, quick: bool) -> None:
        """Measure stepwise, starting with middle values, so that slow settings are ended early."""
        sessions = (4, 1, 16) if quick else (4, 2, 8, 16, 1)
        self.try_each([Setting(count) for count in sessions])
        near = self.best()[0].sessions
        others = [near] if quick else [count for count in (near, near // 2, near * 2) if 1 <= count <= 16]
        self.try_each([Setting(count, streams) for streams in ((4,) if quick else (4, 8)) for count in others])
        if self.job.files.count > 1 and not quick:
            self.try_each([replace(self.best()[0], pipelining=32)])


def measure(case: Case, engine: Path, rounds: int, *, quick: bool) -> float:
    """Return the rate without settings divided by the rate with the best setting; print both."""
    with memory_directory() as memory, route_up(case.link, memory) as route:
        files = Files.make(route.served / "set", case.sizes_bytes)
        sweep = Sweep(Job(route, files, case.direction), engine)
        print(f"\n{case.name}", flush=True)
        sweep.execute(quick=quick)
        tried = ", ".join(f"{one.name}: {sweep.times_s[one]:.2f}" for one in sweep.best())
        print(f"  tried, s: {tried}; {sum(time == inf for time in sweep.times_s.values())} ended", flush=True)
        names: dict[str, Setting | None] = {"default": None, **{one.name: one for one in sweep.best()[:2]}}
        times_s: dict[str, list[float]] = {name: [] for name in names}
        for name in interleaved(list(names), rounds):
            _, took = sweep.job.execute(sweep.tool(names[name]), check=not times_s[name])
            times_s[name].append(took.wall_s)
    for name, walls_s in times_s.items():
        print(f"  {name:20} {with_quartiles(walls_s)} s", flush=True)
    ours_s = statistics.median(times_s.pop("default"))
    return min(map(statistics.median, times_s.values())) / ours_s


def main(words: Sequence[str] | None = None) -> None:
    """Run the requested paths."""
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
    print_environment(version(engine, "--version"))
    requested = given.paths or (QUICK_PATHS if given.quick else range(1, PATHS + 1))
    rounds = given.rounds or (2 if given.quick else 3)
    bounds, ratios = Bounds(), []
    for case in cases(given.seed):
        if case.number in requested:
            ratio = measure(case, engine, rounds, quick=given.quick)
            bounds.assess(f"{case.name}: default / best fixed", ratio, least=LEAST)
            ratios.append(ratio)
    bounds.show("Without settings, beside the best that were found")
    within = sum(ratio >= LEAST for ratio in ratios)
    print(
        f"  {within} of {len(ratios)} paths within 5 %; geometric mean {statistics.geometric_mean(ratios):.3f}, worst {min(ratios):.3f}"
    )
