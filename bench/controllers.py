"""How fast, and how well, do controllers tune a transfer? The same simulated paths for all of them.

    python bench/controllers.py [--quick] [--seed N] [--probes N]

24 random paths (6 with --quick): round trips of 1 to 100 ms and rates of 0.1 to 10 Gb/s (log-uniform); no loss or loss of
10⁻⁵ to 10⁻³; TCP buffers of 1 to 16 MiB; disks faster or slower than the link; 16 large files, or 320 files of 50 kB to
2 MB. globus-url-copy fetches them from a GridFTP server.

For each path, the simulator runs an exhaustive grid of 1 to 32 concurrent files and 1 to 16 streams. The controllers
probe this surface, between its points by linear interpolation of the logarithms. Each probe has three trials with 3 %
noise. The optimum is the best point of the grid.

Columns, as medians over the paths with the smallest and largest value:

- probes to 95 %: number of the first probe with at least 95 % of the optimum; ours includes the probe of the defaults
- within 6: fraction of the paths with at most 6 probes
- regret: mean loss relative to the optimum over the first 6 probes; the final settings count for probes after the end
- final: rate of the final settings relative to the optimum. Rules without an end have 30 probes, and their final settings
  are the best of the last 10
- one enough: the same on the paths where one connection has 97 % of the optimum or more
- connections: data connections of the final settings
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from venturi.simulation import simulate
from venturi.stats import mean_interval
from venturi.tuning import CONTROLLERS, Controller, StopTuning, TunedSettings, TunePath, TuneProbe, choose

PATHS, QUICK_PATHS = 24, 6
CONCURRENCY = (1, 2, 4, 8, 16, 32)
STREAMS = (1, 2, 4, 8, 16)
LARGE_FILES, SMALL_FILES = 16, 320
LARGE_S = 8.0
"""Time of the large files at the rate of the link."""

NOISE = 0.03
TRIALS = 3
EARLY = 6
LAST = 10
ENOUGH, ONE_ENOUGH = 0.95, 0.97
PAYLOAD = 0.95 * 1448 / 1500

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class SimulatedPath:
    """A path: units as in the names; ``disk_ratio`` is the rate of the disk of the destination relative to the link."""

    rtt_s: float
    rate_bit_per_s: float
    loss: float
    buffer_bytes: int
    disk_ratio: float
    files: int
    file_bytes: int

    @property
    def properties(self) -> TunePath:
        """Properties as `venturi tune` finds them in a run."""
        rate = self.rate_bit_per_s / 8 * min(PAYLOAD, self.disk_ratio)
        window = self.buffer_bytes / 2
        largest = {"concurrency": CONCURRENCY[-1], "streams": STREAMS[-1]}
        return TunePath(self.rtt_s, rate, self.loss or None, window, self.file_bytes, self.files, None, largest)

    def document(self) -> dict[str, Any]:
        """Return the scenario of the grid."""
        link: dict[str, Any] = {"between": ["a", "b"], "rate": self.rate_bit_per_s, "rtt": f"{self.rtt_s} s"}
        link["rate"] = f"{self.rate_bit_per_s / 1e6:.6f} Mb/s"
        if self.loss:
            link["loss"] = self.loss
        tcp = {f"net.ipv4.tcp_{name}": f"4096 131072 {self.buffer_bytes}" for name in ("rmem", "wmem")}
        disk = {"kind": "disk", "size": "10 TB"}
        slow = f"{self.rate_bit_per_s * self.disk_ratio / 1e6:.6f} Mb/s"
        return {
            "venturi": 1,
            "name": "path",
            "testbed": {
                "tcp": {"path": tcp},
                "host": {"a": {"tcp": "path"}, "b": {"tcp": "path"}},
                "link": {"wan": link},
                "storage": {
                    "data": {"host": "a", "path": "data", **disk, "read_rate": "80 Gb/s"},
                    "copies": {"host": "b", "path": "copies", **disk, "write_rate": slow},
                },
                "service": {"server": {"kind": "gridftp", "host": "a", "storage": ["data"]}},
            },
            "workload": {
                "kind": "sweep",
                "mover": "globus-url-copy",
                "source": "data",
                "destination": "copies",
                "files_per_call": self.files,
                "timeout": "100 h",
                "factors": {
                    "size": [f"{self.file_bytes} B"],
                    "concurrency": list(CONCURRENCY),
                    "streams": list(STREAMS),
                },
            },
        }


def draw_paths(number: int, seed: int) -> list[SimulatedPath]:
    """Return random paths; the first ones do not depend on the number."""
    rng = np.random.default_rng(seed)
    found = []
    for index in range(number):
        rtt_s, rate = 10 ** rng.uniform(-3, -1), 10 ** rng.uniform(8, 10)
        loss = float(10 ** rng.uniform(-5, -3)) if rng.random() < 0.4 else 0.0
        buffer_bytes = int(2 ** rng.integers(20, 25))
        disk_ratio = float(rng.choice([0.4, 2.0, 4.0]))
        small_bytes = int(10 ** rng.uniform(math.log10(5e4), math.log10(2e6)))
        if index % 3 == 2:
            files, size = SMALL_FILES, small_bytes
        else:
            files, size = LARGE_FILES, int(rate / 8 * LARGE_S / LARGE_FILES)
        found.append(SimulatedPath(float(rtt_s), float(rate), loss, buffer_bytes, disk_ratio, files, size))
    return found


@dataclass
class Surface:
    """Rates of the grid in B/s, shape (concurrency, streams)."""

    rates: Floats

    @property
    def optimum(self) -> float:
        """Largest rate."""
        return float(self.rates.max())

    def rate(self, settings: TunedSettings) -> float:
        """Return the rate of settings, between the points by linear interpolation of the logarithms."""
        logs = np.log(self.rates)
        across = [np.interp(math.log(settings.streams or 1), np.log(STREAMS), row) for row in logs]
        return float(math.exp(np.interp(math.log(settings.concurrency or 1), np.log(CONCURRENCY), across)))


def simulate_surface(path: SimulatedPath) -> Surface:
    """Return the surface of a path from one run of the simulator."""
    run = simulate(path.document())
    rows = run.query(
        "SELECT factor_concurrency AS concurrency, factor_streams AS streams,"
        " requested_bytes / duration_s AS rate, outcome FROM transfers"
    )
    rates = np.zeros((len(CONCURRENCY), len(STREAMS)))
    for concurrency, streams, rate, outcome in zip(
        *(rows[name] for name in ("concurrency", "streams", "rate", "outcome")), strict=True
    ):
        if outcome != "ok":
            raise SystemExit(f"expected a transfer without errors, found {outcome} for {path}")
        rates[CONCURRENCY.index(int(concurrency)), STREAMS.index(int(streams))] = rate
    return Surface(rates)


@dataclass
class Score:
    """Results of a controller, one value for each path."""

    probes: list[float] = field(default_factory=list)
    regret: list[float] = field(default_factory=list)
    final: list[float] = field(default_factory=list)
    one_enough: list[float] = field(default_factory=list)
    connections: list[float] = field(default_factory=list)


def play(
    controller: Controller, path: SimulatedPath, surface: Surface, most: int, seed: int
) -> tuple[list[TunedSettings], TunedSettings]:
    """Return the settings of all probes of a controller, and its final settings."""
    rng = np.random.default_rng(seed)

    def measure(settings: TunedSettings) -> TuneProbe:
        rates = tuple(float(one) for one in surface.rate(settings) * np.exp(NOISE * rng.standard_normal(TRIALS)))
        return TuneProbe(settings, rates, mean_interval(rates, positive=True))

    baseline = measure(TunedSettings(concurrency=1, streams=1))
    properties = path.properties
    ours = controller.name == "ours"
    if ours:
        properties = TunePath(
            **{
                **{name: getattr(properties, name) for name in properties.__slots__},
                "default_rate_bytes_per_s": baseline.rate_bytes_per_s,
            }
        )
    history: list[TuneProbe] = []
    decision = controller.first(properties)
    while isinstance(decision, TunedSettings) and len(history) + ours < most:
        history.append(measure(properties.limit(decision)))
        decision = controller.next(properties, history)
    probes = [probe.settings for probe in ([baseline] if ours else []) + history]
    if isinstance(decision, StopTuning) and decision.settings is not None:
        return probes, decision.settings
    if isinstance(decision, TunedSettings) and not ours:
        return probes, max(history[-LAST:], key=lambda probe: probe.rate_bytes_per_s).settings
    return probes, choose([baseline, *history]).settings


def score(total: Score, surface: Surface, probes: Sequence[TunedSettings], final: TunedSettings) -> None:
    """Add the results of one path."""
    ratios = [surface.rate(settings) / surface.optimum for settings in probes]
    final_ratio = surface.rate(final) / surface.optimum
    reached = next((number for number, ratio in enumerate(ratios, 1) if ratio >= ENOUGH), math.inf)
    early = (ratios + [final_ratio] * EARLY)[:EARLY]
    total.probes.append(reached)
    total.regret.append(1 - statistics.fmean(early))
    total.final.append(final_ratio)
    if surface.rates[0, 0] >= ONE_ENOUGH * surface.optimum:
        total.one_enough.append(final_ratio)
    total.connections.append(final.connections or 1)


def text(values: Sequence[float], form: str, scale: float = 1.0) -> str:
    """Return median, smallest and largest value."""
    if not values:
        return "–"
    numbers = (statistics.median(values), min(values), max(values))
    middle, low, high = ("never" if math.isinf(one) else format(scale * one, form) for one in numbers)
    return f"{middle} ({low} to {high})"


def main() -> None:
    """Run the bench and print its table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--probes", type=int, default=30)
    options.add_argument("--paths", action="store_true", help="print one line for each path")
    chosen = options.parse_args()
    started_s = time.process_time()
    scores = {name: Score() for name in CONTROLLERS}
    paths = draw_paths(QUICK_PATHS if chosen.quick else PATHS, chosen.seed)
    for index, path in enumerate(paths):
        surface = simulate_surface(path)
        for name, controller in CONTROLLERS.items():
            score(scores[name], surface, *play(controller, path, surface, chosen.probes, chosen.seed + index))
        if chosen.paths:
            best = np.unravel_index(int(surface.rates.argmax()), surface.rates.shape)
            print(index, path, f"optimum {surface.optimum / 1e6:.0f} MB/s at", CONCURRENCY[best[0]], STREAMS[best[1]],
                  {name: f"{one.probes[-1]:g} {one.final[-1]:.3f}" for name, one in scores.items()}, flush=True)  # fmt: skip
    print(
        f"{len(paths)} paths, seed {chosen.seed}, {time.process_time() - started_s:.0f} s of CPU without the engine\n"
    )
    print(
        "| controller | probes to 95 % | within 6 | regret | final | one enough | connections |\n|---|---|---|---|---|---|---|"
    )
    for name, one in scores.items():
        within = sum(number <= EARLY for number in one.probes) / len(paths)
        print(
            f"| {name} | {text(one.probes, '.0f')} | {100 * within:.0f} % | {text(one.regret, '.0f', 100)} %"
            f" | {text(one.final, '.0f', 100)} % | {text(one.one_enough, '.0f', 100)} % | {text(one.connections, '.0f')} |"
        )


if __name__ == "__main__":
    main()
