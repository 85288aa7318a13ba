"""How long a report of a million transfers and ten million samples takes, and how much memory.

    python bench/analysis.py [--directory DIRECTORY] [--transfers N] [--samples N] [--repeat 3]

Writes the run with ``bench/analysis_data.py`` unless it is there, then analyses it and writes the page in a fresh process, a
few times. Sealing (the tables from the journal) is timed by itself: it happens once a run. Prints the median, the spread, the
peak memory of the process, and the limits beside.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT_S = 15.0
LIMIT_BYTES = 2e9
HERE = Path(__file__).parent


def measure(directory: Path) -> dict[str, float]:
    """Seal if need be, analyse, write the page; return the seconds of each and the peak memory."""
    from venturi import report
    from venturi.analysis import analyse
    from venturi.run import Run

    marks = [time.perf_counter()]
    with Run.open(directory) as run:
        run.query("SELECT 1")
        marks.append(time.perf_counter())
        analysis = analyse(run)
        marks.append(time.perf_counter())
        page = report.html(analysis)
        (directory / "report.html").write_text(page, encoding="utf-8")
        marks.append(time.perf_counter())
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "seal_s": marks[1] - marks[0], "analyse_s": marks[2] - marks[1], "page_s": marks[3] - marks[2],
        "peak_bytes": peak_bytes, "page_bytes": len(page.encode()), "transfers": analysis.counts.transfers,
        "samples": sum(series.samples for series in analysis.series),
    }  # fmt: skip


def in_fresh_process(directory: Path) -> dict[str, float]:
    """Return :func:`measure` of a process that did nothing else; ``all_s`` includes its start and imports."""
    before = time.perf_counter()
    done = subprocess.run(
        [sys.executable, __file__, "--directory", str(directory), "--once"],
        check=True,
        capture_output=True,
        text=True,
    )
    return {**json.loads(done.stdout), "all_s": time.perf_counter() - before}


def row(name: str, values: list[float], unit: str, limit: float | None = None) -> None:
    """Print one line of the table."""
    text = f"{name:<28}{statistics.median(values):>9.2f} {unit:<4}{min(values):>9.2f} –{max(values):>7.2f}"
    if limit is not None:
        text += f"   limit {limit:g} {unit}: {'met' if max(values) <= limit else 'MISSED'}"
    print(text)


def main() -> None:
    """Make the run if it is not there, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--transfers", type=int, default=1_000_000)
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        print(json.dumps(measure(options.directory)))
        return
    with tempfile.TemporaryDirectory(prefix="venturi-bench-") as scratch:
        directory = options.directory or Path(scratch) / "run"
        if not (directory / "run.json").exists():
            size = ["--transfers", str(options.transfers), "--samples", str(options.samples)]
            subprocess.run([sys.executable, str(HERE / "analysis_data.py"), str(directory), *size], check=True)
        (directory / "tables.json").unlink(missing_ok=True)
        first = in_fresh_process(directory)
        runs = [in_fresh_process(directory) for _ in range(options.repeat)]
    with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        model = next(
            (line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine()
        )
    load = os.getloadavg()[0]
    print(f"{first['transfers']:,.0f} transfers, {first['samples']:,.0f} moments sampled; {model}, {os.cpu_count()} cores,"
          f" load {load:.1f}, Python {platform.python_version()}")  # fmt: skip
    print(f"{'':<28}{'median':>9}     {'least':>9} –{'most':>7}   of {options.repeat} fresh processes")
    row("analyse", [r["analyse_s"] for r in runs], "s")
    row("page", [r["page_s"] for r in runs], "s")
    row("report, imports included", [r["all_s"] for r in runs], "s", LIMIT_S)
    row("peak memory", [r["peak_bytes"] / 1e9 for r in runs], "GB", LIMIT_BYTES / 1e9)
    row("page, size", [r["page_bytes"] / 1e6 for r in runs], "MB")
    print(f"once a run: sealing {first['seal_s']:.1f} s, peak of that process {first['peak_bytes'] / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
