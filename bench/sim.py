"""How fast and accurate is the fluid solver, compared with SimGrid on the same files in the same run?

    python bench/sim.py [--quick] [--only PART ...] [--engine ENGINE]

Parts:

- *speed*: open arrivals, closed loops, bursts, stars with and without a window, jobs that read and compute; ratio of the times of SimGrid
  and of our solver;
- *identity*: largest relative difference of completion times between our solver and SimGrid, for open arrivals and replays of closed runs;
- *oracle*: the same between the fast solver and the full refill (``--reference``);
- *growth*: time per flow with 10 to 100,000 concurrent flows on one bottleneck;
- *memory*: peak memory and time of 10,000,000 open flows (1,000,000 with ``--quick``), bytes per live flow and per finished flow;
- *python*: wall time of 1,000,000 transfers as NumPy arrays, compared with the wall time of the simulation in that call.

Times are CPU seconds of the simulation alone, without reading and writing, because other work on the machine affects them
less than wall time. Figures are medians, followed by the extremes; our solver and SimGrid take turns. SimGrid has the
fastest usual settings: model `CM02` without cross-traffic (and without a gamma, except for windows), raw contexts, and
the fastest of its lazy, full and selective updates. An update mode that takes longer than the best so far is ended.
SimGrid is only an oracle and not part of the project. Without it (Debian: libsimgrid-dev, g++), the benchmark measures
only our solver.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sim_python
import sim_workloads as workloads
from figures import Bounds, execute, print_environment, row, version, with_extremes

from venturi.backend import find_engine

SOURCE = Path(__file__).parent / "sim_flows.cpp"
WINDOW_BYTES = 4_194_304
TIMEOUT_S = 900.0
PEER_BUDGET_S = 10.0
"""SimGrid runs again while its total time for a workload is below this limit."""
PEER_SPARE_S = 10.0
"""Additional time of an update mode relative to the best mode so far, because its time includes reading the workload."""

CONTEXTS = ("--cfg=contexts/factory:raw", "--cfg=contexts/stack-size:16", "--cfg=contexts/guard-size:0")
MODEL = ("--cfg=network/model:CM02", "--cfg=network/crosstraffic:0", "--log=root.thres:critical")
"""Only max-min sharing: CM02 has no factors, and without a gamma no window."""
UPDATES = {
    "full": ("--cfg=network/optim:Full", "--cfg=network/maxmin-selective-update:no"),
    "lazy": (),
    "selective": ("--cfg=network/optim:Full", "--cfg=network/maxmin-selective-update:yes"),
}


@dataclass(frozen=True)
class Case:
    """A workload.

    Attributes
    ----------
    write
        Function that writes the workload to a path.
    times
        Required minimum ratio of the time of SimGrid to our time, or None.
    most_s
        Maximum time in seconds, or None.
    window
        Whether flows have a window.
    quick
        Whether the workload is in the subset.
    peer
        Whether SimGrid runs the workload; False if it would take minutes or need another program.
    """

    write: Callable[[Path], None]
    times: float | None = None
    most_s: float | None = None
    window: bool = False
    quick: bool = False
    peer: bool = True


CASES: Mapping[str, Case] = {
    "open 1e5": Case(lambda path: workloads.arrivals(path, 100_000), times=10, quick=True),
    "open 1e6": Case(lambda path: workloads.arrivals(path, 1_000_000), times=10, most_s=0.45),
    "closed_100 1e5": Case(lambda path: workloads.loops(path, 100, 1000), quick=True),
    "closed_1000 1e5": Case(lambda path: workloads.loops(path, 1000, 100), times=450, most_s=0.05),
    "burst 1e4": Case(lambda path: workloads.burst(path, 10_000), times=1700, most_s=0.01),
    "burst 3e4": Case(lambda path: workloads.burst(path, 30_000), most_s=0.03, peer=False),
    "star_100 1e5": Case(lambda path: workloads.star(path, 100, 100_000), times=8, most_s=0.035, quick=True),
    "star_1000 1e5": Case(lambda path: workloads.star(path, 1000, 100_000), quick=True),
    "star_10000 1e5": Case(lambda path: workloads.star(path, 10_000, 100_000), times=200, most_s=0.5),
    "window star_1000 1e5": Case(
        lambda path: workloads.star(path, 1000, 100_000), times=48, most_s=0.05, window=True, quick=True
    ),
    "batch 19200 jobs": Case(lambda path: workloads.batch(path, 19_200), most_s=1.0, peer=False),
}


@dataclass
class Bench:
    """One run of the benchmark.

    Attributes
    ----------
    engine
        The program under test.
    peer
        Our program for SimGrid, or None without SimGrid.
    directory
        Directory of the files.
    quick
        Whether only a subset runs.
    bounds
        Figures and bounds so far.
    """

    engine: Path
    peer: Path | None
    directory: Path
    quick: bool
    bounds: Bounds = field(default_factory=Bounds)

    @property
    def repeats(self) -> int:
        """Number of runs of our solver."""
        return 3 if self.quick else 7

    def ours(self, file: Path, *options: str | Path) -> dict[str, Any]:
        """Return the output of the engine for a workload."""
        return _json([self.engine, "sim", "flows", file, *options])

    def theirs(
        self, file: Path, update: str, ends: Path | str = "-", *, window: bool = False, within_s: float = TIMEOUT_S
    ) -> dict[str, Any]:
        """Return the output of SimGrid for a workload."""
        assert self.peer is not None
        gamma = f"--cfg=network/TCP-gamma:{WINDOW_BYTES if window else 0}"
        return _json([self.peer, file, ends, *MODEL, gamma, *CONTEXTS, *UPDATES[update]], within_s)

    def file(self, name: str) -> Path:
        """Return the file of a case, written at the first call."""
        path = self.directory / name.replace(" ", "_")
        if not path.exists():
            CASES[name].write(path)
        return path


def speed(bench: Bench) -> None:
    """Measure CPU time of the simulation."""
    for name, case in CASES.items():
        if bench.quick and not case.quick:
            continue
        printed, ours, theirs = _take_turns(bench, bench.file(name), case)
        ours_s = statistics.median(ours)
        text = f"{with_extremes(ours)} s, {printed['activities'] / ours_s:.3g}/s, at once ≤ {printed['peak_live']}"
        if case.most_s is not None:
            bench.bounds.assess(f"{name}, time", ours_s, most=case.most_s, unit=" s")
        if theirs:
            update = min(theirs, key=lambda update: statistics.median(theirs[update]))
            times = statistics.median(theirs[update]) / ours_s
            text += f"   SimGrid ({update}) {with_extremes(theirs[update])} s   ×{times:.3g}"
            if case.times is not None:
                bench.bounds.assess(f"{name}, times SimGrid", times, least=case.times)
        row(name, text)


def _take_turns(bench: Bench, file: Path, case: Case) -> tuple[dict[str, Any], list[float], dict[str, list[float]]]:
    """Run our solver and SimGrid in turn; return our output, our times, and the times of SimGrid by update mode."""
    options = ["--window", str(WINDOW_BYTES)] if case.window else []
    ours: list[float] = []
    theirs: dict[str, list[float]] = {update: [] for update in (UPDATES if case.peer and bench.peer else ())}
    spent_s = 0.0
    for turn in range(bench.repeats):
        printed = bench.ours(file, *options)
        ours.append(_cpu_s(printed))
        for update in list(theirs) if turn == 0 or spent_s < PEER_BUDGET_S else ():
            best_s = min((min(times) for times in theirs.values() if times), default=TIMEOUT_S)
            start_s = time.monotonic()
            try:
                within_s = best_s * 1.2 + PEER_SPARE_S
                theirs[update].append(_cpu_s(bench.theirs(file, update, window=case.window, within_s=within_s)))
            except subprocess.TimeoutExpired:
                del theirs[update]
            spent_s += time.monotonic() - start_s
    return printed, ours, theirs


def identity(bench: Bench) -> None:
    """Measure the largest relative difference of completion times between our solver and SimGrid."""
    if bench.peer is None:
        row("not measured", "expected SimGrid, found none")
        return
    for name, file, case in _comparable(bench):
        ours, theirs = bench.directory / "ours", bench.directory / "theirs"
        bench.ours(file, "--ends", ours, *(["--window", str(WINDOW_BYTES)] if case.window else []))
        bench.theirs(file, "full", theirs, window=case.window)
        difference = _difference(ours, theirs)
        row(name, f"{difference:.2g}")
        bench.bounds.assess(f"{name}, difference", difference, most=1e-9)


def oracle(bench: Bench) -> None:
    """Measure the largest relative difference of completion times between partial and full refill."""
    for name, file, case in _comparable(bench):
        if "1e4" not in name:
            continue
        fast, slow = bench.directory / "fast", bench.directory / "slow"
        options = ["--window", str(WINDOW_BYTES)] if case.window else []
        bench.ours(file, "--ends", fast, *options)
        bench.ours(file, "--ends", slow, "--reference", *options)
        difference = _difference(fast, slow)
        row(name, f"{difference:.2g}")
        bench.bounds.assess(f"{name}, full refill", difference, most=1e-12)


def growth(bench: Bench) -> None:
    """Measure time per flow by the number of concurrent flows on one bottleneck."""
    times_s = {}
    for agents in (10, 100, 1000, 10_000, 100_000):
        file = bench.directory / f"growth-{agents}"
        each = max(3, 300_000 // agents)
        flows = agents * each
        workloads.loops(file, agents, each, pairs=10)
        printed = [bench.ours(file) for _ in range(bench.repeats)]
        live = printed[0]["peak_live"]
        times_s[live] = statistics.median([_cpu_s(one) / flows for one in printed])
        row(f"≤ {live} at once", f"{with_extremes([1e6 * _cpu_s(one) / flows for one in printed])} µs a flow")
    fewest, most = min(times_s), max(times_s)
    bench.bounds.assess(f"a flow, {most} at once / {fewest}", times_s[most] / times_s[fewest], most=2)


def memory(bench: Bench) -> None:
    """Measure peak memory of many open flows, and its growth with live flows and with finished flows."""
    flows = 1_000_000 if bench.quick else 10_000_000
    (few_bytes, _), (many_bytes, printed) = (
        _peak(bench, workloads.arrivals, number) for number in (flows // 10, flows)
    )
    row(f"{flows:.0e} flows", f"{many_bytes / 1e9:.3f} GB, {_cpu_s(printed):.2f} s, at once ≤ {printed['peak_live']}")
    bench.bounds.assess(f"{flows:.0e} open flows, memory", many_bytes / 1e9, most=flows / 1e7, unit=" GB")
    if not bench.quick:
        bench.bounds.assess(f"{flows:.0e} open flows, time", _cpu_s(printed), most=5, unit=" s")
    ended_bytes = (many_bytes - few_bytes) / (flows - flows // 10)
    bench.bounds.assess("a flow that has ended, with its input", ended_bytes, most=64, unit=" bytes")
    (few_bytes, few), (many_bytes, many) = (_peak(bench, workloads.burst, number) for number in (100_000, 400_000))
    live_bytes = (many_bytes - few_bytes) / (many["peak_live"] - few["peak_live"])
    row(f"{many['peak_live']} at once", f"{many_bytes / 1e6:.1f} MB")
    bench.bounds.assess("a live flow, with its input and result", live_bytes, most=200, unit=" bytes")


def _peak(bench: Bench, write: Callable[[Path, int], None], number: int) -> tuple[int, dict[str, Any]]:
    """Return the peak memory of the engine for a workload in bytes, as the engine reports it, and its output."""
    # The kernel's peak memory of a child includes the memory of this process at the start of the child.
    file = bench.directory / "many"
    write(file, number)
    printed = bench.ours(file)
    file.unlink()
    return int(printed["peak_bytes"]), printed


def python(bench: Bench) -> None:
    """Measure transfers in NumPy arrays with the costs of their tool: ratio of the times of the call and of its simulation."""
    os.environ["VENTURI_ENGINE"] = str(bench.engine)
    count = 100_000 if bench.quick else 1_000_000
    scenario, given = sim_python.testbed(), sim_python.columns(count)
    both_s = [sim_python.times_s(scenario, given) for _ in range(bench.repeats)]
    ratios = [call_s / engine_s for call_s, engine_s in both_s]
    row(
        f"{count:.0e} transfers",
        f"{with_extremes([call_s for call_s, _ in both_s])} s, ×{with_extremes(ratios)} of the simulation",
    )
    if not bench.quick:
        bench.bounds.assess("Python, arrays in and out / simulation", statistics.median(ratios), most=1.2)


PARTS: Mapping[str, Callable[[Bench], None]] = {
    "speed": speed, "identity": identity, "oracle": oracle, "growth": growth, "memory": memory, "python": python,
}  # fmt: skip


def _comparable(bench: Bench) -> list[tuple[str, Path, Case]]:
    """Return workloads without feedback: open workloads, and closed workloads replayed at the times of our own run."""
    sources = {
        "open 1e4": Case(lambda path: workloads.arrivals(path, 10_000)),
        "burst 3e3": Case(lambda path: workloads.burst(path, 3000)),
        "closed_100 1e4": Case(lambda path: workloads.loops(path, 100, 100)),
        "star_1000 1e4": Case(lambda path: workloads.star(path, 1000, 10_000)),
        "star_3000 1e4": Case(lambda path: workloads.star(path, 3000, 9000)),
        "window star_1000 1e4": Case(lambda path: workloads.star(path, 1000, 10_000), window=True),
        "window open 1e4": Case(lambda path: workloads.arrivals(path, 10_000), window=True),
        "star_1000 1e5": Case(lambda path: workloads.star(path, 1000, 100_000)),
    }
    files = []
    for name, case in sources.items():
        if bench.quick and "1e5" in name:
            continue
        path = bench.directory / f"same-{name.replace(' ', '-')}"
        if not path.exists():
            raw = bench.directory / "raw"
            case.write(raw)
            if "open" in name or "burst" in name:
                raw.rename(path)
            else:
                bench.ours(raw, "--replay", path, *(["--window", str(WINDOW_BYTES)] if case.window else []))
        files.append((name, path, case))
    return files


def _difference(one: Path, other: Path) -> float:
    pairs = zip(one.read_text().split(), other.read_text().split(), strict=True)
    return max(abs(float(a) - float(b)) / max(abs(float(b)), 1e-9) for a, b in pairs)


def _cpu_s(printed: Mapping[str, Any]) -> float:
    return float(printed["run_s"] if printed["cpu_s"] is None else printed["cpu_s"])


def _json(command: Sequence[str | Path], within_s: float = TIMEOUT_S) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=within_s, check=True)
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return printed


def _build_peer(directory: Path) -> Path | None:
    compiler = shutil.which("g++")
    if compiler is None:
        print("  SimGrid is not in this comparison: expected a C++ compiler (Debian: g++), found none")
        return None
    program = directory / "sim_flows"
    command: list[str | Path] = [compiler, "-std=c++17", "-O3", "-march=native", SOURCE, "-o", program, "-lsimgrid"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode == 0:
        return program
    print(
        "  SimGrid is not in this comparison: expected its library (Debian: libsimgrid-dev), found none that compiles"
    )
    return None


def main() -> None:
    """Run the parts and print the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", type=Path, help="the binary under test")
    parser.add_argument("--quick", action="store_true", help="a subset")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="these parts alone")
    given = parser.parse_args()
    start_s = time.monotonic()
    engine = given.engine or find_engine()
    print_environment(version(engine, "--version"))
    with tempfile.TemporaryDirectory(prefix="venturi-bench-sim-") as directory:
        bench = Bench(engine, _build_peer(Path(directory)), Path(directory), given.quick)
        for name in given.only:
            print(f"\n{name}: {(PARTS[name].__doc__ or '').strip()}", flush=True)
            PARTS[name](bench)
    bench.bounds.show(f"What is asked of the solver ({time.monotonic() - start_s:.0f} s)")


if __name__ == "__main__":
    execute(main)
