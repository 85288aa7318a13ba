"""How accurate and fast is the network emulator of the lab, compared with veth, veth with HTB, and loopback in the same run?

    python bench/emulator.py [--quick] [--only PART ...] [--engine ENGINE]

Parts, each in separate labs:

- *relay*: goodput without delay; emulator, veth and loopback in turn, as ratios of the same round;
- *delays*: goodput at 10 Gb/s and round-trip times of 0.1, 25, 53, 140 ms, with 1 and 8 streams;
- *shaping*: goodput at 100 Mb/s, 1 and 5 Gb/s with a queue of one bandwidth-delay product, compared with veth with HTB;
- *ring*: 10 flows of 1 Gb/s between 20 hosts over a ring of 5 routers at 10 Gb/s;
- *errors*: round-trip times of a ping-pong minus the requested times. In turn with it, the same over veth, with equal pauses and with CPUs
  kept from halting as the emulator does. If veth alone exceeds a bound, other work disturbs the machine, and the bound is void;
- *cost*: cores that the emulator uses at 1 Gb/s, and its CPU time per Gb that arrives.

Goodput is the rate at the receiving application in the second half of a run, after slow start; theory is the rate ×
1448/1500. Congestion control is always cubic. Figures are medians, followed by the extremes, and printed with the bounds
that the project requires. Absolute figures of *relay* vary by a factor of two within minutes on virtual machines, so only
the ratio has a bound. Requires root, iperf3 and a C compiler (for the ping-pong).
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator_lab import (
    VETH,
    Flow,
    Sandbox,
    build_ping,
    goodput_bit_per_s,
    kept_awake,
    path,
    ring,
    rtts_s,
    theory_bit_per_s,
)
from figures import Bounds, execute, interleaved, print_environment, row, version, with_extremes

from venturi.backend import find_engine

GIGA = 1e9


@dataclass
class Bench:
    """One run of the benchmark.

    Attributes
    ----------
    engine
        The program under test.
    quick
        Whether only a subset runs.
    bounds
        Figures and bounds so far.
    """

    engine: Path
    quick: bool
    bounds: Bounds = field(default_factory=Bounds)

    @property
    def repeats(self) -> int:
        """Number of runs of each case."""
        return 1 if self.quick else 3


def relay(bench: Bench) -> None:
    """Measure the cost of a relay, without delay."""
    rounds, seconds = (5, 2) if bench.quick else (7, 3)
    with Sandbox.up(path(rate="100 Gb/s", rtt="0 ms", queue="64 MB"), bench.engine) as sandbox:
        sandbox.add_veth()
        routes: Mapping[str, Mapping[str, Any]] = {
            "emulator": {"address": sandbox.address("b")},
            "veth": {"address": VETH["b"]},
            "loopback": {"address": "127.0.0.1", "target": "a"},
        }
        for streams in (1,) if bench.quick else (1, 8):
            found: dict[str, list[float]] = {name: [] for name in routes}
            for name in interleaved(list(routes), rounds):
                found[name].append(
                    goodput_bit_per_s(sandbox, seconds=seconds, streams=streams, **routes[name]) / GIGA
                )
            ratios = [ours / theirs for ours, theirs in zip(found["emulator"], found["veth"], strict=True)]
            values = "   ".join(f"{name} {with_extremes(found[name])}" for name in routes)
            row(f"{streams} streams", f"{values} Gb/s   emulator/veth {with_extremes(ratios)}")
            if streams == 1:
                bench.bounds.assess("0 ms, 1 stream, as a ratio to veth", statistics.median(ratios), least=0.6)
        _lateness(sandbox)


def delays(bench: Bench) -> None:
    """Measure 10 Gb/s over long routes."""
    theory = theory_bit_per_s(10 * GIGA)
    # Slow start from ten segments to the bandwidth-delay product ends within half of the time.
    for rtt_ms, seconds in ((0.1, 4), (25, 8), (53, 10), (140, 16)):
        if bench.quick and rtt_ms not in (25, 53):
            continue
        with Sandbox.up(
            path(rate="10 Gb/s", rtt=f"{rtt_ms} ms", queue="1 BDP" if rtt_ms > 1 else "1 MB"), bench.engine
        ) as sandbox:
            for streams in (1,) if bench.quick else (1, 8):
                fractions = [
                    goodput_bit_per_s(sandbox, sandbox.address("b"), seconds, streams=streams) / theory
                    for _ in range(bench.repeats)
                ]
                row(
                    f"{rtt_ms:g} ms, {streams} streams",
                    f"{with_extremes([100 * fraction for fraction in fractions])} % of {theory / GIGA:.2f} Gb/s",
                )
                if streams == 1 and rtt_ms >= 25:
                    bench.bounds.assess(
                        f"10 Gb/s, {rtt_ms:g} ms, 1 stream", 100 * statistics.median(fractions), least=98, unit=" %"
                    )
            _lateness(sandbox)


def shaping(bench: Bench) -> None:
    """Measure rates with a queue of one BDP."""
    rates = {"100 Mb/s": 0.1, "1 Gb/s": 1.0, "5 Gb/s": 5.0}
    for text, rate in rates.items():
        if bench.quick and rate > 1:
            continue
        theory = theory_bit_per_s(rate * GIGA)
        # iperf3 counts blocks; smaller blocks prevent that the blocks of 8 streams are 0.3 % of the received bytes.
        block = "16K" if rate < 1 else "128K"
        with Sandbox.up(path(rate=text, rtt="25 ms"), bench.engine) as sandbox:
            sandbox.add_veth(htb_bit_per_s=rate * GIGA)
            for streams in (1,) if bench.quick else (1, 8):
                ours, theirs = [], []
                for _ in range(bench.repeats):
                    ours.append(
                        goodput_bit_per_s(sandbox, sandbox.address("b"), 8, streams=streams, block=block) / theory
                    )
                    theirs.append(goodput_bit_per_s(sandbox, VETH["b"], 4, streams=streams, block=block) / theory)
                both = f"emulator {with_extremes([100 * fraction for fraction in ours])} %   veth+HTB {with_extremes([100 * fraction for fraction in theirs])} %"
                row(f"{text}, {streams} streams", f"{both} of {theory / GIGA:.4g} Gb/s")
                bench.bounds.assess(
                    f"{text}, 25 ms, {streams} streams", 100 * statistics.median(ours), least=99, most=101, unit=" %"
                )
            _lateness(sandbox)


def around(bench: Bench) -> None:
    """Measure flows between twenty hosts on a ring."""
    seconds = 6 if bench.quick else 10
    theory = theory_bit_per_s(GIGA)
    with Sandbox.up(ring(5, 20), bench.engine) as sandbox:
        sums, least = [], []
        for _ in range(bench.repeats):
            flows = [
                # The other host is two routers away, so each flow uses four links, and each link of the ring has four flows.
                Flow.start(sandbox, f"h{n}", to, sandbox.address(to), seconds, port=5201 + n)
                for n, to in ((n, f"h{10 + 5 * (n // 5) + (n + 2) % 5}") for n in range(10))
            ]
            fractions = [flow.goodput_bit_per_s() / theory for flow in flows]
            sums.append(100 * sum(fractions) / len(fractions))
            least.append(100 * min(fractions))
        row(
            "10 flows × 1 Gb/s",
            f"sum {with_extremes(sums)} % of {10 * theory / GIGA:.2f} Gb/s   smallest flow {with_extremes(least)} % of its share",
        )
        bench.bounds.assess("20 hosts, 10 × 1 Gb/s, sum", statistics.median(sums), least=97, unit=" %")
        _lateness(sandbox)


def errors(bench: Bench) -> None:
    """Measure errors of round-trip times of small packets."""
    with tempfile.TemporaryDirectory(prefix="venturi-bench-ping-") as directory:
        ping = build_ping(Path(directory))
        if ping is None:
            row("not measured", "expected a C compiler (cc), found none (Debian: gcc)")
            return
        for rtt_ms, count in ((0.1, 4000), (1, 2000), (10, 600), (53, 300)):
            if bench.quick and rtt_ms not in (0.1, 10):
                continue
            rtt_s = rtt_ms / 1e3
            count = count // 3 if bench.quick else count
            with Sandbox.up(path(rate="10 Gb/s", rtt=f"{rtt_ms} ms", queue="1 MB"), bench.engine) as sandbox:
                sandbox.add_veth()
                found: dict[str, list[tuple[float, float]]] = {"emulator": [], "veth": []}
                for _ in range(bench.repeats):
                    times_s = rtts_s(sandbox, ping, sandbox.address("b"), count, 0.0)
                    found["emulator"].append(_p50_p99([1e6 * (time_s - rtt_s) for time_s in times_s]))
                    with kept_awake(sandbox, ping):
                        times_s = rtts_s(sandbox, ping, VETH["b"], count, rtt_s)
                    found["veth"].append(_p50_p99([1e6 * time_s for time_s in times_s]))
            texts = []
            for at, name, fraction in ((0, "p50", 0.005), (1, "p99", 0.01)):
                ours, theirs = ([pair[at] for pair in found[route]] for route in ("emulator", "veth"))
                texts.append(f"{name} {with_extremes(ours)} µs, veth {with_extremes(theirs)}")
                case, most = f"RTT {rtt_ms:g} ms, error {name}", max(30 if at == 0 else 100, fraction * rtt_ms * 1e3)
                alone = statistics.median(theirs)
                bench.bounds.assess(case, statistics.median(ours), most=most, unit=" µs", shell=alone)
            row(f"{rtt_ms:g} ms", f"error {'   '.join(texts)}   n {count}")


def cost(bench: Bench) -> None:
    """Measure CPU time at 1 Gb/s in the steady state of the flow."""
    warmup_s, measure_s = (3, 3) if bench.quick else (4, 5)
    with Sandbox.up(path(rate="1 Gb/s", rtt="25 ms"), bench.engine) as sandbox:
        cores, fractions, per_gigabit = [], [], []
        for _ in range(bench.repeats):
            flow = Flow.start(sandbox, "a", "b", sandbox.address("b"), warmup_s + measure_s + 1)
            time.sleep(warmup_s)
            before_s, start_s = sandbox.emulator_cpu_s(), time.monotonic()
            time.sleep(measure_s)
            cores.append((sandbox.emulator_cpu_s() - before_s) / (time.monotonic() - start_s))
            goodput = flow.goodput_bit_per_s()
            fractions.append(100 * goodput / theory_bit_per_s(GIGA))
            per_gigabit.append(1e3 * cores[-1] / (goodput / GIGA))
        row(
            "1 Gb/s, 25 ms",
            f"{with_extremes(cores)} cores   at {with_extremes(fractions)} % of theory   "
            f"{with_extremes(per_gigabit)} ms of CPU time per Gb",
        )
        bench.bounds.assess("CPU at 1 Gb/s", statistics.median(cores), most=0.5, unit=" cores")
        _lateness(sandbox)


PARTS: Mapping[str, Callable[[Bench], None]] = {
    "relay": relay, "delays": delays, "shaping": shaping, "ring": around, "errors": errors, "cost": cost,
}  # fmt: skip


def _p50_p99(values: Sequence[float]) -> tuple[float, float]:
    hundredths = statistics.quantiles(values, n=100, method="inclusive")
    return hundredths[49], hundredths[98]


def _lateness(sandbox: Sandbox) -> None:
    late = sandbox.end()["lateness"]
    output = {str(record["code"]) for record in sandbox.records if record["record"] == "finding"}
    p50, p99, longest = (1e6 * (late[key] or 0.0) for key in ("p50_s", "p99_s", "max_s"))
    findings = f"   findings: {', '.join(sorted(output))}" if output else ""
    row("", f"deliveries late p50 {p50:.0f}, p99 {p99:.0f}, at most {longest:.0f} µs{findings}")


def main() -> None:
    """Run the parts and print the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", type=Path, help="the binary under test")
    parser.add_argument(
        "--quick", action="store_true", help="a subset, once each; under two minutes in place of about fifteen"
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="these parts alone")
    given = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("iperf3") is None:
        # Print a message and exit normally, so that other benchmarks can run.
        print("not measured: expected root and iperf3 (Debian: iperf3), found a machine or a user without")
        return
    bench = Bench(given.engine or find_engine(), given.quick)
    start_s = time.monotonic()
    print_environment(version(bench.engine, "--version"), version("iperf3", "--version"))
    for name in given.only:
        print(f"\n{name}: {(PARTS[name].__doc__ or '').strip()}", flush=True)
        PARTS[name](bench)
    bench.bounds.show(f"What is asked of the wire ({time.monotonic() - start_s:.0f} s)")


if __name__ == "__main__":
    execute(main)
