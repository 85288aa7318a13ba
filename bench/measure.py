"""Do the 90 % intervals of `venturi measure` hold the truth, and is the smallest part the right one?

Each pair of hosts is random: rate and round-trip time of the link, read rate of the source, write rate of the destination. These limits are
the truth. `iperf3` and `fio` check in the same minute that the limits are in force; a part whose limit is not does not count.

    python bench/measure.py --seed 0 --count 20                  # needs root, tc, iperf3, fio and cgroup v1 for disks
    python bench/measure.py --seed 0 --count 100 --keep results.jsonl

With `--keep`, each pair of hosts adds a line to the file, and the pairs in the file are not measured again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "measure"))

from pathkit import TwoHosts, slow_disk

from venturi.measure import MeasureOptions, PathResult, measure

PACKET_BYTES, PAYLOAD_BYTES = 1500, 1448
"""Packet on the link, and its data: IPv4, and TCP with time stamps."""

RATES_BIT_PER_S = (20e6, 200e6)
RTTS_S = (0.001, 0.040)
DISKS_BYTES_PER_S = (4e6, 40e6)
"""Ranges of the limits, below the rates of a busy machine with two cores."""

CHECK_RATIO = 0.10
"""A limit is in force if the other program finds it within 10 %."""

DISTINCT_RATIO = 0.80
"""The smallest limit is distinct if the next one is larger by this ratio."""

CHECK_S = 3
GOAL = 0.88
_PARTS = ("network", "read", "write")


@dataclass(frozen=True)
class Limits:
    """Planted limits of a pair of hosts."""

    seed: int
    link_bit_per_s: float
    rtt_s: float
    read_bytes_per_s: int
    write_bytes_per_s: int

    @property
    def rates(self) -> dict[str, float]:
        """Rate of each part in bytes per second."""
        return {
            "network": self.link_bit_per_s / 8 * PAYLOAD_BYTES / PACKET_BYTES,
            "read": float(self.read_bytes_per_s),
            "write": float(self.write_bytes_per_s),
        }


@dataclass(frozen=True)
class Outcome:
    """Result of one pair of hosts: by part, in bytes per second."""

    limits: Limits
    medians: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    checks: Mapping[str, float]
    smallest: str | None
    load: float

    def in_force(self, part: str) -> bool:
        """Return whether the other program has found the limit."""
        return abs(self.checks[part] / self.limits.rates[part] - 1) <= CHECK_RATIO

    def holds(self, part: str) -> bool:
        """Return whether the interval holds the truth."""
        low, high = self.intervals[part]
        return low <= self.limits.rates[part] <= high


def generate(seed: int) -> Limits:
    """Return random limits."""
    draw = random.Random(seed)

    def between(bounds: tuple[float, float]) -> float:
        return math.exp(draw.uniform(math.log(bounds[0]), math.log(bounds[1])))

    return Limits(
        seed,
        between(RATES_BIT_PER_S),
        between(RTTS_S),
        round(between(DISKS_BYTES_PER_S)),
        round(between(DISKS_BYTES_PER_S)),
    )


def run(limits: Limits, time_s: float) -> Outcome:
    """Measure one pair of hosts, and check its limits."""
    with tempfile.TemporaryDirectory(prefix="measure-") as name, TwoHosts(Path(name)) as hosts:
        hosts.emulate(rate_bit_per_s=limits.link_bit_per_s, delay_s=limits.rtt_s / 2)
        with (
            slow_disk(Path(name) / "from", read_bytes_per_s=limits.read_bytes_per_s) as source,
            slow_disk(Path(name) / "to", write_bytes_per_s=limits.write_bytes_per_s) as destination,
        ):
            options = MeasureOptions(time_s=time_s)
            result = measure(hosts.endpoint("a", source), hosts.endpoint("b", destination), options).paths[0]
            checks = {
                "network": iperf3_rate(hosts),
                "read": fio_rate(source, "read", limits.read_bytes_per_s),
                "write": fio_rate(destination, "write", limits.write_bytes_per_s),
            }
    return outcome(limits, result, checks)


def outcome(limits: Limits, result: PathResult, checks: Mapping[str, float]) -> Outcome:
    """Return the result of one pair of hosts."""
    medians: dict[str, float] = {}
    intervals: dict[str, tuple[float, float]] = {}
    for part, found in result.parts.items():
        if part in _PARTS and found.rate_bytes_per_s is not None and found.interval is not None:
            medians[part] = found.rate_bytes_per_s
            intervals[part] = (found.interval.low, found.interval.high)
    if len(medians) < len(_PARTS):
        raise RuntimeError("; ".join(result.notes))
    return Outcome(limits, medians, intervals, checks, result.smallest, os.getloadavg()[0])


@contextmanager
def iperf3_server(hosts: TwoHosts) -> Iterator[None]:
    """Run iperf3 on host b for one client."""
    argv = ["nsenter", f"--net=/run/netns/{hosts.names['b']}", "iperf3", "-s", "-1", "--forceflush"]
    server = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        for line in server.stdout:
            if "listening" in line.lower():
                break
        yield
    finally:
        server.kill()
        server.communicate()


def iperf3_rate(hosts: TwoHosts) -> float:
    """Return the bytes per second at the receiver."""
    with iperf3_server(hosts):
        words = ("iperf3", "-c", hosts.addresses["b"], "-t", CHECK_S, "-P", 4, "-O", 1, "-J")
        return float(json.loads(hosts.run("a", *words))["end"]["sum_received"]["bits_per_second"]) / 8


def fio_rate(directory: Path, direction: str, rate_bytes_per_s: int) -> float:
    """Return the bytes per second of fio past the page cache."""
    size = max(round(rate_bytes_per_s * CHECK_S), 1 << 20)
    argv = ["fio", "--name=check", f"--directory={directory}", "--bs=1M", f"--size={size}", "--direct=1", "--iodepth=4",
            "--ioengine=libaio", f"--rw={direction}", "--output-format=json"]  # fmt: skip
    if direction == "write":
        argv.append("--end_fsync=1")
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    (Path(directory) / "check.0.0").unlink()
    return float(json.loads(done.stdout)["jobs"][0][direction]["bw_bytes"])


def report(found: Sequence[Outcome]) -> bool:
    """Print how often the intervals hold the truth, and return whether the goal is reached."""
    print(
        f"\n{len(found)} pairs of hosts, load {min(one.load for one in found):.1f} to {max(one.load for one in found):.1f}"
    )
    held = counted = 0
    for part in _PARTS:
        own = [one for one in found if one.in_force(part)]
        hits = sum(one.holds(part) for one in own)
        errors = sorted(one.medians[part] / one.limits.rates[part] - 1 for one in own)
        held, counted = held + hits, counted + len(own)
        spread = f", median {100 * errors[0]:+.1f} to {100 * errors[-1]:+.1f} % of the truth" if errors else ""
        print(f"{part:8} {hits} of {len(own)} intervals hold the truth{spread}")
    ratio = held / counted if counted else math.nan
    print(f"all      {held} of {counted}: {100 * ratio:.0f} % (goal: {100 * GOAL:.0f} %)")
    distinct = [one for one in found if is_distinct(one)]
    right = sum(one.smallest == smallest_limit(one) for one in distinct)
    print(f"smallest part right: {right} of {len(distinct)} with a distinct limit")
    return ratio >= GOAL


def smallest_limit(one: Outcome) -> str:
    """Return the part with the smallest planted limit."""
    return min(_PARTS, key=lambda part: one.limits.rates[part])


def is_distinct(one: Outcome) -> bool:
    """Return whether the smallest limit is clearly the smallest one, and in force."""
    first, second, _ = sorted(one.limits.rates.values())
    return first <= DISTINCT_RATIO * second and one.in_force(smallest_limit(one))


def read_outcomes(path: Path | None) -> list[Outcome]:
    """Return the results in a file."""
    if path is None or not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [Outcome(**{**line, "limits": Limits(**line["limits"])}) for line in lines]


def main() -> None:
    """Measure the pairs of hosts and print the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, default=20, help="pairs of hosts")
    parser.add_argument("--time", type=float, default=15.0, metavar="SECONDS", help="time of one measurement")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="add the results to this file")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("expected root: namespaces and disks need it. Run with sudo.")
    seeds = range(options.seed, options.seed + options.count)
    found = [one for one in read_outcomes(options.keep) if one.limits.seed in seeds]
    done = {one.limits.seed for one in found}
    for seed in seeds:
        if seed in done:
            continue
        one = run(generate(seed), options.time)
        found.append(one)
        if options.keep is not None:
            with options.keep.open("a", encoding="utf-8") as results:
                results.write(f"{json.dumps(asdict(one))}\n")
        cells = [
            f"{part} {one.limits.rates[part] / 1e6:5.2f} [{low / 1e6:5.2f}, {high / 1e6:5.2f}]"
            f" check {one.checks[part] / 1e6:5.2f} {'in' if one.holds(part) else 'OUT'}"
            for part, (low, high) in one.intervals.items()
        ]
        print(f"{seed:6} {1e3 * one.limits.rtt_s:4.1f} ms  {'  '.join(cells)}  {one.smallest}", flush=True)
    sys.exit(0 if report(found) else 1)


if __name__ == "__main__":
    main()
