"""Measure time and memory of the report of a million transfers and ten million samples.

    python bench/analysis.py [--directory DIRECTORY] [--transfers N] [--samples N] [--repeat 3]

``bench/analysis_data.py`` writes the run if it does not exist. Like a killed run, it has no tables and an incomplete last
line. The following are measured in turn, several times, each in a new process:

- *sealing*: only the creation of the tables from journal and samples;
- *first report* of the killed run: sealing and report;
- *report* of the sealed run: analysis, terminal, page.

A total is the time of the whole process with its start and imports. The output has medians, spread, peak memory and
limits. To measure with fewer cores, prefix the command with ``taskset -c 0,1``.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from figures import Bounds, execute, print_environment

LIMIT_S = 15.0
LIMIT_BYTES = 2e9
HERE = Path(__file__).parent
Seconds = dict[str, float]
"""Measurements of one process: seconds under ``*_s``, bytes under ``*_bytes``, counts."""


def sealing(directory: Path) -> Seconds:
    """Create the tables only."""
    from venturi.run import Run

    before_s = time.perf_counter()
    with Run.open(directory) as run:
        counts = run.query("SELECT (SELECT count(*) FROM transfers) AS t, (SELECT count(*) FROM samples) AS s")
    return {
        "seal_s": time.perf_counter() - before_s,
        "transfers": float(counts["t"][0]),
        "samples": float(counts["s"][0]),
    }


def reporting(directory: Path) -> Seconds:
    """Do the same as ``venturi report``: analyse (and seal if necessary), terminal, page."""
    marks = [time.perf_counter()]
    from rich.console import Console

    from venturi import report
    from venturi.analysis import analyse
    from venturi.run import Run

    marks.append(time.perf_counter())
    with Run.open(directory) as run:
        run.query("SELECT 1")
        marks.append(time.perf_counter())
        analysis = analyse(run)
        marks.append(time.perf_counter())
        Console(file=io.StringIO()).print(report.terminal(analysis))
        (directory / "report.html").write_text(report.html(analysis), encoding="utf-8")
        marks.append(time.perf_counter())
    names = ("import_s", "seal_s", "analyse_s", "page_s")
    return dict(zip(names, (end - start for start, end in itertools.pairwise(marks)), strict=True))


STAGES = {"sealing": sealing, "reporting": reporting}


def in_fresh_process(stage: str, directory: Path, *, sealed: bool) -> Seconds:
    """Return the measurements of a stage in a new process, with ``all_s`` and ``peak_bytes`` of that process."""
    if not sealed:
        (directory / "tables.json").unlink(missing_ok=True)
    before_s = time.perf_counter()
    command = [sys.executable, __file__, "--directory", str(directory), "--stage", stage]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return {**json.loads(done.stdout), "all_s": time.perf_counter() - before_s}


def show(name: str, runs: list[Seconds], key: str) -> None:
    """Print one line of the table: seconds, or gigabytes."""
    unit, scale = _unit(key)
    values = [run[key] / scale for run in runs]
    print(f"{name:<42}{statistics.median(values):>7.2f} {unit:<3}{min(values):>7.2f} –{max(values):>6.2f}")


def total(name: str, runs: list[Seconds], parts: dict[str, str], bounds: Bounds, limits: dict[str, float]) -> None:
    """Print times of whole processes, times of their parts, and peak memory; bounds apply to the worst values."""
    for label, key in {name: "all_s", **{f"    {part}": key for part, key in parts.items()}}.items():
        show(label, runs, key)
    show("    peak memory", runs, "peak_bytes")
    for key, limit in limits.items():
        unit, scale = _unit(key)
        worst = max(run[key] for run in runs)
        bounds.assess(f"{name}, {key.partition('_')[0]}", worst / scale, most=limit / scale, unit=f" {unit}")


def _unit(key: str) -> tuple[str, float]:
    return ("GB", 1e9) if key.endswith("_bytes") else ("s", 1.0)


def main() -> None:
    """Create the run if necessary, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--transfers", type=int, default=1_000_000)
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        measured = STAGES[options.stage](options.directory)
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({**measured, "peak_bytes": peak_bytes}))
        return
    with tempfile.TemporaryDirectory(prefix="venturi-bench-") as scratch:
        directory = options.directory or Path(scratch) / "run"
        if not (directory / "run.json").exists():
            size = ["--transfers", str(options.transfers), "--samples", str(options.samples)]
            subprocess.run([sys.executable, str(HERE / "analysis_data.py"), str(directory), *size], check=True)
        print_environment(f"Python {platform.python_version()}")
        seals, firsts, reports = [], [], []
        for _ in range(options.repeat):  # in turn, so that other work of the machine affects all stages equally
            seals.append(in_fresh_process("sealing", directory, sealed=False))
            firsts.append(in_fresh_process("reporting", directory, sealed=False))
            reports.append(in_fresh_process("reporting", directory, sealed=True))
    print(f"{seals[0]['transfers']:,.0f} transfers, {seals[0]['samples']:,.0f} samples")
    print(f"{'':<42}{'median':>7}    {'least':>7} –{'most':>6}   of {options.repeat} fresh processes each")
    parts = {"imports": "import_s", "analysis": "analyse_s", "terminal and page": "page_s"}
    bounds, memory, both = Bounds(), {"peak_bytes": LIMIT_BYTES}, {"all_s": LIMIT_S, "peak_bytes": LIMIT_BYTES}
    total("sealing a killed run", seals, {}, bounds, memory)
    total("report of a sealed run", reports, parts, bounds, both)
    total("first report of a killed run, sealing and all", firsts, {"sealing": "seal_s", **parts}, bounds, both)
    bounds.show("What is asked of reports, of the worst of all")


if __name__ == "__main__":
    execute(main)
