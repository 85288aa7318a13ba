"""Repeat the endings of a run on hosts: ``python tests/hosts/soak.py --count 50`` (as root, about an hour).

Every repetition has the checks of ``test_hosts_cleanup.py``: hosts are clean within a minute, and the resumed run has
every trial exactly once. Prints one row per case: repetitions, failures, and the time until the hosts were clean.
"""

import argparse
import os
import statistics
import sys
import tempfile
import traceback
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "lab"), str(Path(__file__).parents[1])]
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

from hostkit import RealHosts
from test_hosts_cleanup import CASES, exercise

from venturi.backend import find_engine


def main():
    """Run the command line; exit with 1 if a check failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=50, help="repetitions of each case")
    parser.add_argument("--case", action="append", choices=CASES, help="only this case; repeatable")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="venturi-soak-") as base:
        Path(base).chmod(0o755)
        os.environ["VENTURI_ACTIVE_RUNS"] = f"{base}/active-runs"
        for case in options.case or CASES:
            # Each case has new hosts, so that remains of one do not affect the next.
            labs = Path(base, f"labs-{case}")
            labs.mkdir()
            with RealHosts(find_engine(), labs) as hosts:
                failed += _repeat(hosts, case, options.count)
    return 1 if failed else 0


def _repeat(hosts, case, count):
    times_s, failed = [], 0
    for number in range(count):
        try:
            times_s.append(exercise(hosts, case, f"{case}-{number}"))
        except Exception:
            failed += 1
            print(f"{case}, repetition {number}:", flush=True)
            traceback.print_exc()
            hosts.repair("b")
    spread = (
        f"clean after {statistics.median(times_s):.1f} s (median), {max(times_s):.1f} s (maximum)" if times_s else ""
    )
    print(f"{case:16} {count} repetitions, {failed} failed  {spread}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
