"""What the benches share: the facts of the machine, medians with their spread, bounds with their verdicts, and how a bench ends.

It leaves out what is measured and how: each bench does that itself. Read `Bounds` first.
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
"""A load average above it before the start is told: other work takes cores from what is measured."""


@dataclass(frozen=True)
class Verdict:
    """What was asked for, and what was found.

    Attributes
    ----------
    case
        What was measured.
    found
        The figure, with its unit.
    bound
        What it is held against.
    passed
        Whether it is within.
    void
        Why the bound says nothing here: what the machine alone comes to.
    """

    case: str
    found: str
    bound: str
    passed: bool
    void: str = ""

    @property
    def word(self) -> str:
        """What is printed of it."""
        return "pass" if self.passed else "void" if self.void else "FAIL"


class Bounds:
    """Figures of one run of a bench, each held against what the project asks for.

    Examples
    --------
    >>> bounds = Bounds()
    >>> bounds.judge("copying", 0.7, least=0.6, unit=" GB/s")
    >>> bounds.judge("error of a round trip", 40, most=30, unit=" µs", machine=35)
    >>> [verdict.word for verdict in bounds.verdicts]
    ['pass', 'void']
    """

    def __init__(self) -> None:
        self.verdicts: list[Verdict] = []

    def judge(
        self,
        case: str,
        found: float,
        *,
        least: float | None = None,
        most: float | None = None,
        unit: str = "",
        machine: float | None = None,
    ) -> None:
        """Hold a figure against its bounds; what `machine`, the same without what is measured, misses as well is void."""

        def within(figure: float) -> bool:
            return (least is None or figure >= least) and (most is None or figure <= most)

        bound = " and ".join(
            f"{sign} {limit:g}{unit}" for sign, limit in (("≥", least), ("≤", most)) if limit is not None
        )
        void = "" if machine is None or within(machine) else f"the machine alone: {machine:.4g}{unit}"
        self.verdicts.append(Verdict(case, f"{found:.4g}{unit}", bound, within(found), void))

    def show(self, title: str) -> None:
        """Print each bound beside what was found."""
        print(f"\n{title}")
        width = max((len(verdict.case) for verdict in self.verdicts), default=0)
        for verdict in self.verdicts:
            void = f"   ({verdict.void})" if verdict.word == "void" else ""
            print(f"  {verdict.word}  {verdict.case:{width}} {verdict.found:>12}   {verdict.bound}{void}")
        words = [verdict.word for verdict in self.verdicts]
        voided = f", {words.count('void')} void" if "void" in words else ""
        print(f"  {words.count('pass')} of {len(words)} within bounds{voided}")


def print_facts(*programs: str) -> None:
    """Print what the figures depend on: the programs, the machine, and whether it has other work."""
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
    """Return the first line that a program says of its version."""
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    return next(iter((said.stdout or said.stderr).splitlines()), str(command[0]))


def row(name: str, text: str) -> None:
    """Print one line of a part, at once: a part takes minutes."""
    print(f"  {name:22} {text}", flush=True)


def with_extremes(values: Sequence[float]) -> str:
    """Return the median, and the extremes behind it."""
    spread = f" [{min(values):.4g} … {max(values):.4g}]" if len(values) > 1 else ""
    return f"{statistics.median(values):.4g}{spread}"


def with_quartiles(values: Sequence[float]) -> str:
    """Return the median, and the quartiles behind it."""
    low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else (values[0],) * 3
    return f"{statistics.median(values):9.3f} [{low:.3f} … {high:.3f}]"


def interleaved(names: Sequence[str], rounds: int) -> Iterator[str]:
    """Complete blocks in random order: what drifts on the machine meets all alike."""
    order = random.Random(1)
    for _ in range(rounds):
        yield from order.sample(names, len(names))


def carry_out(main: Callable[[], None]) -> None:
    """Run a bench as a command: whoever ends it, what it has mounted and started goes, and there is no traceback."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        main()
    except KeyboardInterrupt:
        print("stopped: what is above was measured", file=sys.stderr)
        sys.exit(130)
