"""How good is the wire, the lab's emulated network, beside veth, veth with HTB, and loopback in the same run?

    python bench/wire.py [--quick] [--only PART ...] [--engine ENGINE]

Parts, each in labs of its own:

- *relay*: goodput without delay, ours and veth and loopback in turn, as ratios of the same round;
- *delays*: goodput at 10 Gb/s and round trips of 0.1, 25, 53, 140 ms, 1 and 8 streams;
- *shaping*: goodput at 100 Mb/s, 1 and 5 Gb/s with a queue of one bandwidth-delay product, beside veth with HTB;
- *ring*: 10 flows of 1 Gb/s between 20 hosts over a ring of 5 routers at 10 Gb/s;
- *errors*: round-trip times of a ping-pong less what was asked for; in turn with it the same over veth, with pauses as long and processors kept from halting
  as the wire does. What veth alone misses, a machine that is not quiet misses: such a bound is void, neither passed nor failed;
- *cost*: cores that the wire uses at 1 Gb/s.

Goodput is what the receiver's application got in the second half of a run, so after slow start; theory is the rate × 1448/1500. Congestion control
is cubic throughout. Figures are medians, with the extremes behind them. What the project asks of the wire is printed beside what was found;
absolute figures of *relay* differ by a factor of two from minute to minute on virtual machines, which is why only the ratio is judged. Needs root,
iperf3 and a C compiler (for the ping-pong).
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

from figures import Bounds, carry_out, interleaved, print_facts, row, version, with_extremes
from wire_lab import (
    VETH,
    Flow,
    Ground,
    build_ping,
    goodput_bit_per_s,
    kept_awake,
    path,
    ring,
    rtts_s,
    theory_bit_per_s,
)

from venturi.backend import find_engine

GIGA = 1e9


@dataclass
class Bench:
    """One run.

    Attributes
    ----------
    engine
        The program under test.
    quick
        Whether a subset will do.
    bounds
        What was found beside them so far.
    """

    engine: Path
    quick: bool
    bounds: Bounds = field(default_factory=Bounds)

    @property
    def repeats(self) -> int:
        """How often a case is run."""
        return 1 if self.quick else 3


def relay(bench: Bench) -> None:
    """Without delay: what a relay costs."""
    rounds, seconds = (5, 2) if bench.quick else (7, 3)
    with Ground.up(path(rate="100 Gb/s", rtt="0 ms", queue="64 MB"), bench.engine) as ground:
        ground.add_veth()
        ways: Mapping[str, Mapping[str, Any]] = {
            "wire": {"address": ground.address("b")},
            "veth": {"address": VETH["b"]},
            "loopback": {"address": "127.0.0.1", "target": "a"},
        }
        for streams in (1,) if bench.quick else (1, 8):
            found: dict[str, list[float]] = {name: [] for name in ways}
            for name in interleaved(list(ways), rounds):
                found[name].append(goodput_bit_per_s(ground, seconds=seconds, streams=streams, **ways[name]) / GIGA)
            ratios = [ours / theirs for ours, theirs in zip(found["wire"], found["veth"], strict=True)]
            values = "   ".join(f"{name} {with_extremes(found[name])}" for name in ways)
            row(f"{streams} streams", f"{values} Gb/s   wire/veth {with_extremes(ratios)}")
            if streams == 1:
                bench.bounds.judge("0 ms, 1 stream, as a ratio to veth", statistics.median(ratios), least=0.6)
        _lateness(ground)


def delays(bench: Bench) -> None:
    """10 Gb/s over long ways."""
    theory = theory_bit_per_s(10 * GIGA)
    # Slow start from ten segments to the bandwidth-delay product is done by the half of it.
    for rtt_ms, seconds in ((0.1, 4), (25, 8), (53, 10), (140, 16)):
        if bench.quick and rtt_ms not in (25, 53):
            continue
        with Ground.up(
            path(rate="10 Gb/s", rtt=f"{rtt_ms} ms", queue="1 BDP" if rtt_ms > 1 else "1 MB"), bench.engine
        ) as ground:
            for streams in (1,) if bench.quick else (1, 8):
                shares = [
                    goodput_bit_per_s(ground, ground.address("b"), seconds, streams=streams) / theory
                    for _ in range(bench.repeats)
                ]
                row(
                    f"{rtt_ms:g} ms, {streams} streams",
                    f"{with_extremes([100 * share for share in shares])} % of {theory / GIGA:.2f} Gb/s",
                )
                if streams == 1 and rtt_ms >= 25:
                    bench.bounds.judge(
                        f"10 Gb/s, {rtt_ms:g} ms, 1 stream", 100 * statistics.median(shares), least=98, unit=" %"
                    )
            _lateness(ground)


def shaping(bench: Bench) -> None:
    """Rates with a queue of one BDP."""
    rates = {"100 Mb/s": 0.1, "1 Gb/s": 1.0, "5 Gb/s": 5.0}
    for text, rate in rates.items():
        if bench.quick and rate > 1:
            continue
        theory = theory_bit_per_s(rate * GIGA)
        # What is counted is blocks: those of 8 streams are not to be 0.3 % of what arrives.
        block = "16K" if rate < 1 else "128K"
        with Ground.up(path(rate=text, rtt="25 ms"), bench.engine) as ground:
            ground.add_veth(htb_bit_per_s=rate * GIGA)
            for streams in (1,) if bench.quick else (1, 8):
                ours, theirs = [], []
                for _ in range(bench.repeats):
                    ours.append(
                        goodput_bit_per_s(ground, ground.address("b"), 8, streams=streams, block=block) / theory
                    )
                    theirs.append(goodput_bit_per_s(ground, VETH["b"], 4, streams=streams, block=block) / theory)
                both = f"wire {with_extremes([100 * share for share in ours])} %   veth+HTB {with_extremes([100 * share for share in theirs])} %"
                row(f"{text}, {streams} streams", f"{both} of {theory / GIGA:.4g} Gb/s")
                bench.bounds.judge(
                    f"{text}, 25 ms, {streams} streams", 100 * statistics.median(ours), least=99, most=101, unit=" %"
                )
            _lateness(ground)


def around(bench: Bench) -> None:
    """Twenty hosts around a ring."""
    seconds = 6 if bench.quick else 10
    theory = theory_bit_per_s(GIGA)
    with Ground.up(ring(5, 20), bench.engine) as ground:
        sums, least = [], []
        for _ in range(bench.repeats):
            flows = [
                # Two routers on: four links a flow, four flows a link of the ring.
                Flow.start(ground, f"h{n}", to, ground.address(to), seconds, port=5201 + n)
                for n, to in ((n, f"h{10 + 5 * (n // 5) + (n + 2) % 5}") for n in range(10))
            ]
            shares = [flow.goodput_bit_per_s() / theory for flow in flows]
            sums.append(100 * sum(shares) / len(shares))
            least.append(100 * min(shares))
        row(
            "10 flows × 1 Gb/s",
            f"sum {with_extremes(sums)} % of {10 * theory / GIGA:.2f} Gb/s   smallest flow {with_extremes(least)} % of its share",
        )
        bench.bounds.judge("20 hosts, 10 × 1 Gb/s, sum", statistics.median(sums), least=97, unit=" %")
        _lateness(ground)


def errors(bench: Bench) -> None:
    """Round-trip times of small packets."""
    with tempfile.TemporaryDirectory(prefix="venturi-bench-ping-") as folder:
        ping = build_ping(Path(folder))
        if ping is None:
            row("not measured", "expected a C compiler (cc), found none (Debian: gcc)")
            return
        for rtt_ms, count in ((0.1, 4000), (1, 2000), (10, 600), (53, 300)):
            if bench.quick and rtt_ms not in (0.1, 10):
                continue
            rtt_s = rtt_ms / 1e3
            count = count // 3 if bench.quick else count
            with Ground.up(path(rate="10 Gb/s", rtt=f"{rtt_ms} ms", queue="1 MB"), bench.engine) as ground:
                ground.add_veth()
                found: dict[str, list[tuple[float, float]]] = {"wire": [], "veth": []}
                for _ in range(bench.repeats):
                    times_s = rtts_s(ground, ping, ground.address("b"), count, 0.0)
                    found["wire"].append(_p50_p99([1e6 * (time_s - rtt_s) for time_s in times_s]))
                    with kept_awake(ground, ping):
                        times_s = rtts_s(ground, ping, VETH["b"], count, rtt_s)
                    found["veth"].append(_p50_p99([1e6 * time_s for time_s in times_s]))
            texts = []
            for at, name, share in ((0, "p50", 0.005), (1, "p99", 0.01)):
                ours, theirs = ([pair[at] for pair in found[way]] for way in ("wire", "veth"))
                texts.append(f"{name} {with_extremes(ours)} µs, veth {with_extremes(theirs)}")
                case, most = f"RTT {rtt_ms:g} ms, error {name}", max(30 if at == 0 else 100, share * rtt_ms * 1e3)
                alone = statistics.median(theirs)
                bench.bounds.judge(case, statistics.median(ours), most=most, unit=" µs", machine=alone)
            row(f"{rtt_ms:g} ms", f"error {'   '.join(texts)}   n {count}")


def cost(bench: Bench) -> None:
    """Processor time at 1 Gb/s, once the flow is steady."""
    settle_s, measure_s = (3, 3) if bench.quick else (4, 5)
    with Ground.up(path(rate="1 Gb/s", rtt="25 ms"), bench.engine) as ground:
        cores, shares = [], []
        for _ in range(bench.repeats):
            flow = Flow.start(ground, "a", "b", ground.address("b"), settle_s + measure_s + 1)
            time.sleep(settle_s)
            before_s, start_s = ground.wire_cpu_s(), time.monotonic()
            time.sleep(measure_s)
            cores.append((ground.wire_cpu_s() - before_s) / (time.monotonic() - start_s))
            shares.append(100 * flow.goodput_bit_per_s() / theory_bit_per_s(GIGA))
        row("1 Gb/s, 25 ms", f"{with_extremes(cores)} cores   at {with_extremes(shares)} % of theory")
        bench.bounds.judge("CPU at 1 Gb/s", statistics.median(cores), most=0.5, unit=" cores")
        _lateness(ground)


PARTS: Mapping[str, Callable[[Bench], None]] = {
    "relay": relay, "delays": delays, "shaping": shaping, "ring": around, "errors": errors, "cost": cost,
}  # fmt: skip


def _p50_p99(values: Sequence[float]) -> tuple[float, float]:
    hundredths = statistics.quantiles(values, n=100, method="inclusive")
    return hundredths[49], hundredths[98]


def _lateness(ground: Ground) -> None:
    late = ground.end()["lateness"]
    told = {str(record["code"]) for record in ground.records if record["record"] == "finding"}
    p50, p99, longest = (1e6 * (late[key] or 0.0) for key in ("p50_s", "p99_s", "max_s"))
    findings = f"   findings: {', '.join(sorted(told))}" if told else ""
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
        # A bench among others: who cannot run it is told, and the others go on.
        print("not measured: expected root and iperf3 (Debian: iperf3), found a machine or a user without")
        return
    bench = Bench(given.engine or find_engine(), given.quick)
    start_s = time.monotonic()
    print_facts(version(bench.engine, "--version"), version("iperf3", "--version"))
    for name in given.only:
        print(f"\n{name}: {(PARTS[name].__doc__ or '').strip()}", flush=True)
        PARTS[name](bench)
    bench.bounds.show(f"What is asked of the wire ({time.monotonic() - start_s:.0f} s)")


if __name__ == "__main__":
    carry_out(main)
