"""Workloads of flows in the format of ``venturi-engine sim flows`` (see its ``--help``).

Each function writes one file. Sizes are whole bytes, because some simulators accept only integers. All routes of a
workload have the same latency, because some simulators share a link by latency. The same arguments give the same file.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

BYTES_PER_S_OF_GBIT_PER_S = 1e9 / 8
SIZES_BYTES = (300e6, 800e6, 1600e6)
"""Sizes of files; on pairs they vary by ±20 %."""

SITES_GBIT_PER_S = (400, 200, 200, *[100] * 5, *[40] * 4, *[20] * 4, *[10] * 4)
"""Full-duplex links of the sites of a star: one large site and a long tail."""


def arrivals(path: Path, flows: int, *, pairs: int = 100, load: float = 0.8, seed: int = 1) -> None:
    """Write pairs at 10 Gb/s on one backbone of 100 Gb/s; flows arrive at random with a demand of ``load`` of the backbone."""
    draw = random.Random(seed)
    rate_per_s = load * 100 * BYTES_PER_S_OF_GBIT_PER_S * len(SIZES_BYTES) / sum(SIZES_BYTES)
    times = itertools.accumulate(draw.expovariate(rate_per_s) for _ in range(flows))
    _write(path, _pairs(pairs), f"open {2 * pairs} {flows}", _open(draw, times, pairs))


def burst(path: Path, flows: int, *, pairs: int = 100, within_s: float = 60.0, seed: int = 1) -> None:
    """Write the same network; all flows start within ``within_s``, so that nearly all are concurrent."""
    draw = random.Random(seed)
    times = sorted(draw.uniform(0, within_s) for _ in range(flows))
    _write(path, _pairs(pairs), f"open {2 * pairs} {flows}", _open(draw, times, pairs))


def loops(path: Path, agents: int, each: int, *, pairs: int | None = None, seed: int = 1) -> None:
    """Write the same network; every agent moves files in sequence over its pair, so each agent has one flow."""
    draw = random.Random(seed)
    pairs = pairs or agents
    lines = (
        f"{agent} {draw.random() if turn == 0 else 0.0!r} {agent % pairs} {pairs + agent % pairs} {_size(draw)!r}"
        for agent in range(agents)
        for turn in range(each)
    )
    _write(path, _pairs(pairs), f"closed {agents} {agents * each}", lines)


def star(path: Path, agents: int, flows: int, *, seed: int = 1) -> None:
    """Write a star of sites; agents pause up to a minute, and move a file between two sites drawn with weights of their links."""
    draw = random.Random(seed)
    sites = range(len(SITES_GBIT_PER_S))
    network = [f"{2 * len(sites)}"]
    network += [f"{rate * BYTES_PER_S_OF_GBIT_PER_S!r} 0.005" for rate in SITES_GBIT_PER_S for _ in range(2)]
    network += [f"{len(sites)}", *(f"1 {2 * site} 1 {2 * site + 1}" for site in sites)]

    def lines() -> Iterable[str]:
        for agent in range(agents):
            for _ in range(flows // agents):
                source, destination = _two(draw, sites)
                yield f"{agent} {draw.uniform(0, 60)!r} {source} {destination} {draw.choice(SIZES_BYTES)!r}"

    _write(path, network, f"closed {agents} {flows // agents * agents}", lines())


def batch(path: Path, jobs: int, *, slots: int = 192, chunks: int = 64, seed: int = 1) -> None:
    """Write jobs on nodes of 24 cores that read 2 GB in chunks from a 10 Gb/s server with a disk of 1.5 GB/s.

    They compute about 4 s after each chunk.
    """
    draw = random.Random(seed)
    nodes = -(-slots // 24)
    network = [f"{nodes + 1}", *[f"{10 * BYTES_PER_S_OF_GBIT_PER_S!r} 0.0005"] * (nodes + 1)]
    network += [f"{nodes + 1}", "1 0 0", *(f"0 1 {1 + node}" for node in range(nodes))]
    lines = (f"{2e9 / chunks!r} {256 / chunks * draw.uniform(0.8, 1.2)!r}" for _ in range(jobs))
    _write(path, network, f"batch {slots} {jobs} {chunks} 0 1.5e9 24", lines)


def _pairs(pairs: int) -> list[str]:
    access, backbone = 10 * BYTES_PER_S_OF_GBIT_PER_S, 100 * BYTES_PER_S_OF_GBIT_PER_S
    network = [f"{2 * pairs + 1}", f"{backbone!r} 0.01", *[f"{access!r} 0.0001"] * (2 * pairs), f"{2 * pairs}"]
    network += [f"2 {1 + pair} 0 0" for pair in range(pairs)]
    return network + [f"0 1 {1 + pairs + pair}" for pair in range(pairs)]


def _open(draw: random.Random, times: Iterable[float], pairs: int) -> Iterable[str]:
    for time_s in times:
        pair = draw.randrange(pairs)
        yield f"{time_s!r} {pair} {pairs + pair} {_size(draw)!r}"


def _size(draw: random.Random) -> float:
    return float(int(draw.choice(SIZES_BYTES) * draw.uniform(0.8, 1.2)))


def _two(draw: random.Random, sites: Sequence[int]) -> tuple[int, int]:
    source = draw.choices(sites, SITES_GBIT_PER_S)[0]
    others = [site for site in sites if site != source]
    return source, draw.choices(others, [SITES_GBIT_PER_S[site] for site in others])[0]


def _write(path: Path, network: Iterable[str], kind: str, lines: Iterable[str]) -> None:
    with path.open("w") as text:
        for line in itertools.chain(network, [kind], lines):
            text.write(line + "\n")
