"""How long does the start of a run on existing hosts take?

    python bench/hosts.py [--rounds 5]

A third host reaches two hosts of the test kit (``tests/hosts/hostkit.py``) by ssh, with a round-trip time near 0, of 100 ms
and of 1 s. The benchmark measures the time from the command line to the start of the first trial, both at the first
contact and with the engine in the cache of the hosts. The difference between the paths near 0 and of 1 s gives the number
of round trips, almost independent of the load of the machine.

Then the shells of 100 hosts start with a connection prefix (``connect``).

Requires root and the requirements of the lab in ``venturi doctor``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from figures import Bounds, execute, print_environment, row, with_extremes

from venturi.backend import find_engine
from venturi.backend.connection import CONNECTIONS_AT_ONCE, Connection, open_shell
from venturi.backend.engine import find_engines

_TESTS = Path(__file__).resolve().parents[1] / "tests"
FAR_RTT_S = 1.0
RTT_S = 0.1
"""Round-trip time of the limits."""
LINKS = 4
"""Links on the route to a host and back."""

CACHED_S, FIRST_S = 3.0, 10.0
HOSTS, PREFIX_S = 100, 30.0
PATHS = {
    "near": "0.05 ms",
    "limit": f"{RTT_S / LINKS * 1e3:g} ms",
    "far": f"{FAR_RTT_S / LINKS * 1e3:g} ms",
}
SCENARIO = """
venturi = 1
name = "{name}"
[testbed.host.a]
ssh = "a"
[testbed.host.b]
ssh = "b"
[testbed.storage.sa]
host = "a"
path = "data"
[testbed.storage.sb]
host = "b"
path = "data"
[workload]
kind = "sweep"
mover = "venturi"
source = "sa"
destination = "sb"
repeat = 1
[workload.factors]
size = ["1 kB"]
"""


def main() -> None:
    """Measure, and print the figures with their limits."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="starts of each kind")
    rounds = parser.parse_args().rounds
    sys.path[:0] = [str(_TESTS), str(_TESTS / "lab"), str(_TESTS / "hosts")]
    # An installed program has its compiled files; with this variable, each start would compile the package.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    print_environment("venturi run, by ssh and behind a prefix")
    bounds = Bounds()
    with tempfile.TemporaryDirectory(prefix="venturi-bench-") as base:
        Path(base).chmod(0o755)
        os.environ["VENTURI_ACTIVE_RUNS"] = f"{base}/active-runs"
        starts = {name: _starts(Path(base), name, delay, rounds) for name, delay in PATHS.items()}
    for kind, limit_s in (("engine in the cache", CACHED_S), ("first contact", FIRST_S)):
        far, near = starts["far"][kind], starts["near"][kind]
        trips = (statistics.median(far) - statistics.median(near)) / FAR_RTT_S
        at_limit = starts["limit"][kind]
        row(
            kind,
            f"{with_extremes(at_limit)} s at 100 ms; {with_extremes(near)} s near 0; {with_extremes(far)} s at 1 s; {trips:.1f} round trips",
        )
        bounds.assess(f"start at 100 ms, {kind}", statistics.median(at_limit), most=limit_s, unit=" s")
        bounds.assess(f"round trips, {kind}", trips, most=limit_s / RTT_S)
    took_s = _start_many()
    bounds.assess(f"{HOSTS} hosts behind a prefix", took_s, most=PREFIX_S, unit=" s")
    bounds.show("start of runs on hosts")
    sys.exit(0 if all(verdict.passed for verdict in bounds.verdicts) else 1)


def _starts(base: Path, name: str, delay: str, rounds: int) -> dict[str, list[float]]:
    """Return the times of starts over a path, by kind."""
    from hostkit import RealHosts  # type: ignore[import-not-found] # in tests/hosts

    (base / name).mkdir()
    times: dict[str, list[float]] = {"first contact": [], "engine in the cache": []}
    with RealHosts(find_engine(), base / name, delay=delay) as hosts:
        for number in range(2 * rounds):
            kind = list(times)[number % 2]
            if kind == "first contact":
                for host in hosts.hosts:
                    hosts.sh(host, "rm -rf ~/.cache/venturi")
            scenario = hosts.work / f"start-{number}.toml"
            scenario.write_text(SCENARIO.format(name=scenario.stem))
            times[kind].append(_start(hosts, scenario))
    return times


def _start(hosts, scenario: Path) -> float:  # type: ignore[no-untyped-def]
    started_s = time.monotonic()
    runs = hosts.work / "runs"
    process = hosts.start_venturi("run", scenario, "--yes", "--runs", runs, "--json")
    # The journal begins with the record of the session, which is written when the agents start the plan.
    while process.poll() is None and not any(
        path.stat().st_size for path in runs.glob(f"{scenario.stem}-2*/journal.jsonl")
    ):
        time.sleep(0.002)
    took_s = time.monotonic() - started_s
    _, errors = process.communicate(timeout=300)
    if process.returncode != 0:
        raise RuntimeError(errors)
    return took_s


def _start_many() -> float:
    """Return the time until the shells of many hosts with a connection prefix are ready."""
    engines = find_engines()
    with tempfile.TemporaryDirectory() as home, ThreadPoolExecutor(CONNECTIONS_AT_ONCE) as pool:
        started_s = time.monotonic()
        connections = [Connection.to(f"h{number}", connect=["env", f"HOME={home}"]) for number in range(HOSTS)]
        shells = list(pool.map(lambda connection: open_shell(connection, engines), connections))
        took_s = time.monotonic() - started_s
        list(pool.map(lambda shell: shell.close(), shells))
    return took_s


if __name__ == "__main__":
    execute(main)
