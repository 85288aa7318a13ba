"""Common functions of the benchmarks: description of the machine, medians with spread, bounds with verdicts, and signal handling.

Each benchmark contains its own measurements. Read `Bounds` first.
"""

from __future__ import annotations

import os
import platform
import random
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

BUSY_LOAD = 0.5
"""Load average before the start above which a warning is printed, because other work takes cores from the measurement."""


@dataclass(frozen=True)
class Verdict:
    """Measured figure with its bound.

    Attributes
    ----------
    case
        Name of the measurement.
    found
        The figure, with its unit.
    bound
        The bound, with its unit.
    passed
        Whether the figure is within the bound.
    void
        Reason for a meaningless bound: the figure of the machine alone.
    """

    case: str
    found: str
    bound: str
    passed: bool
    void: str = ""

    @property
    def word(self) -> str:
        """The verdict as printed."""
        return "pass" if self.passed else "void" if self.void else "FAIL"


class Bounds:
    """Figures of one benchmark run, with the bounds that the project requires.

    Examples
    --------
    >>> bounds = Bounds()
    >>> bounds.assess("copying", 0.7, least=0.6, unit=" GB/s")
    >>> bounds.assess("error of a round trip", 40, most=30, unit=" µs", machine=35)
    >>> [verdict.word for verdict in bounds.verdicts]
    ['pass', 'void']
    """

    def __init__(self) -> None:
        self.verdicts: list[Verdict] = []

    def assess(
        self,
        case: str,
        found: float,
        *,
        least: float | None = None,
        most: float | None = None,
        unit: str = "",
        machine: float | None = None,
    ) -> None:
        """Compare a figure with its bounds; a failure is void if `machine`, the figure of the machine alone, fails as well."""

        def within(figure: float) -> bool:
            return (least is None or figure >= least) and (most is None or figure <= most)

        bound = " and ".join(
            f"{sign} {limit:g}{unit}" for sign, limit in (("≥", least), ("≤", most)) if limit is not None
        )
        void = "" if machine is None or within(machine) else f"the machine alone: {machine:.4g}{unit}"
        self.verdicts.append(Verdict(case, f"{found:.4g}{unit}", bound, within(found), void))

    def show(self, title: str) -> None:
        """Print each figure with its bound."""
        print(f"\n{title}")
        width = max((len(verdict.case) for verdict in self.verdicts), default=0)
        for verdict in self.verdicts:
            void = f"   ({verdict.void})" if verdict.word == "void" else ""
            print(f"  {verdict.word}  {verdict.case:{width}} {verdict.found:>12}   {verdict.bound}{void}")
        words = [verdict.word for verdict in self.verdicts]
        voided = f", {words.count('void')} void" if "void" in words else ""
        print(f"  {words.count('pass')} of {len(words)} within bounds{voided}")


def print_environment(*programs: str) -> None:
    """Print the programs, the machine, and whether other work is running."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    model = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    load = os.getloadavg()[0]
    cores = f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} cores"
    print(", ".join(programs))
    print(f"  {model}, {cores}, {memory_gb:.0f} GB, Linux {platform.release()}, load {load:.2f}")
    if load > BUSY_LOAD:
        print("  other work is going on: what follows is worse than what is measured can do")


def version(*command: str | Path) -> str:
    """Return the first line of a program's version output."""
    printed = subprocess.run(command, capture_output=True, text=True, check=False)
    return next(iter((printed.stdout or printed.stderr).splitlines()), str(command[0]))


def row(name: str, text: str) -> None:
    """Print one line of a part immediately, because a part takes minutes."""
    print(f"  {name:22} {text}", flush=True)


def with_extremes(values: Sequence[float]) -> str:
    """Return the median, followed by the extremes."""
    spread = f" [{min(values):.4g} … {max(values):.4g}]" if len(values) > 1 else ""
    return f"{statistics.median(values):.4g}{spread}"


def with_quartiles(values: Sequence[float]) -> str:
    """Return the median, followed by the quartiles."""
    low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else (values[0],) * 3
    return f"{statistics.median(values):9.3f} [{low:.3f} … {high:.3f}]"


def interleaved(names: Sequence[str], rounds: int) -> Iterator[str]:
    """Yield complete blocks in random order, so that drift of the machine affects all names equally."""
    order = random.Random(1)
    for _ in range(rounds):
        yield from order.sample(names, len(names))


def execute(main: Callable[[], None]) -> None:
    """Run a benchmark as a command; an interrupt or SIGTERM runs all cleanup and prints no traceback."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        main()
    except KeyboardInterrupt:
        print("stopped: what is above was measured", file=sys.stderr)
        sys.exit(130)
