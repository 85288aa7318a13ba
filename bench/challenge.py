"""Time and memory of `venturi challenge` for a grid of sites with a rate between all pairs.

    python bench/challenge.py
    python bench/challenge.py --sites 100 --total "4 Tb/s" --steps 8

The table has one row for each pair of sites and step of time. Each step has a larger part of the total, so the last one
overloads most links. The process prints its own times, and the peak of its resident memory (`ru_maxrss`).
"""

from __future__ import annotations

import argparse
import dataclasses
import platform
import resource
import time

from venturi.challenge import ChallengeOptions, ChallengeTable, build_testbed, check_feasibility
from venturi.challenge.generate import generate_table
from venturi.challenge.sections import challenge_sentence
from venturi.testbed.wlcg import wlcg
from venturi.units import parse_rate_bit_per_s

STEP_S = 86_400.0
GOAL_S, GOAL_BYTES = 30.0, 2e9


def stepped(table: ChallengeTable, steps: int) -> ChallengeTable:
    """Return a table whose rates rise to their full value in equal steps."""
    rows = tuple(
        dataclasses.replace(
            row,
            rate_bit_per_s=row.rate_bit_per_s * (step + 1) / steps,
            start_s=step * STEP_S,
            end_s=(step + 1) * STEP_S,
        )
        for step in range(steps)
        for row in table.rows
    )
    return ChallengeTable(rows, table.source)


def main() -> None:
    """Measure one table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sites", type=int, default=100)
    options.add_argument("--total", default="4 Tb/s")
    options.add_argument("--steps", type=int, default=1)
    options.add_argument("--uncertainty", type=float, default=0.05)
    chosen = options.parse_args()
    started_s, cpu_s = time.perf_counter(), time.process_time()
    testbed = build_testbed(wlcg(chosen.sites, 1), "wlcg")
    table = stepped(generate_table(testbed, parse_rate_bit_per_s(chosen.total), STEP_S, (10**9,)), chosen.steps)
    built_s = time.perf_counter()
    result = check_feasibility(table, testbed, ChallengeOptions(chosen.uncertainty))
    ended_s = time.perf_counter()
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(challenge_sentence(result))
    print(f"machine        {platform.processor() or platform.machine()}, Python {platform.python_version()}")
    print(f"table          {len(table.rows):,} rows, {chosen.sites} sites, {result.intervals} intervals of time")
    print(f"resources      {len(result.resources):,}, {len(result.limiting)} of them limit")
    print(f"generate       {built_s - started_s:.2f} s")
    print(f"feasibility    {ended_s - built_s:.2f} s (goal for 100 sites: {GOAL_S:g} s)")
    print(f"CPU            {time.process_time() - cpu_s:.2f} s")
    print(f"peak memory    {peak_bytes / 1e6:.0f} MB (goal: {GOAL_BYTES / 1e6:.0f} MB)")


if __name__ == "__main__":
    main()
