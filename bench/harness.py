"""How exactly does the agent start and time processes, beside what people use today?

Three questions, each asked of ours and of the peers in turn, in one run:

1. How far apart are the first instructions of N processes that were started together? Against a shell loop with ``&``,
   GNU parallel and Python's asyncio.
2. How much time does a trial cost beyond its processes?
3. Does the agent measure the same duration of one command as ``hyperfine -N``?

A peer that is not installed is named, not passed over. Times are medians with the quartiles behind them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harness_probe
from figures import carry_out, interleaved, print_facts, with_quartiles

from venturi.backend import find_engine

DD = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1M", "count=2000", "status=none"]


class Agent:
    """A real agent with a plan of trials, each of which waits for its turn: so that peers can come in between."""

    def __init__(self, engine: Path, scratch: Path, trials: list[list[list[str]]]) -> None:
        self.process = subprocess.Popen([engine, "agent"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        calls = {" ".join(argv): argv for trial in trials for argv in trial}
        self._say(command="start", host="me", scratch=str(scratch), epoch_unix_ns=time.time_ns(), skip=[], search=[],
                  header=_header(calls, len(trials)))  # fmt: skip
        for number, trial in enumerate(trials):
            self._say(command="actor", line={"actor": "bench", "host": "me", "steps": _steps(number, trial)})
        self._say(command="go")
        self.hello = self._hear("hello")
        self.ready = self._hear("ready")
        self.turn = 0

    def trial(self) -> dict[str, Any]:
        """Carry out the next trial and return its record."""
        self.turn += 1
        self._say(command="counter", counter="turn", value=self.turn)
        record = self._hear("trial")
        if record["outcome"] != "ok":
            sys.exit(f"expected a trial without failures, found {record}")
        return record

    def close(self) -> None:
        """Let the agent end, if it has not: it does by itself after the last trial."""
        with contextlib.suppress(BrokenPipeError):
            self._say(command="stop")
        self.process.communicate()

    def _say(self, **command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def _hear(self, kind: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            record: dict[str, Any] = json.loads(line)
            if record["record"] == kind:
                return record
        sys.exit(f"expected a record `{kind}` from the agent, found its end")


def _header(calls: dict[str, list[str]], trials: int) -> dict[str, Any]:
    call = {"mover": "bench", "options": {}, "requires": [], "timeout_s": 60.0, "capture": True, "expect": "nothing"}
    return {
        "format": "venturi-plan", "version": 1, "name": "harness", "seed": 1, "scale": 1.0, "scenario": {},
        "hosts": {"me": {"ssh": None, "memory_bytes": None}}, "places": {}, "datasets": {},
        "calls": {name: {**call, "argv": argv} for name, argv in calls.items()}, "draws": {}, "pools": {},
        "measure": {"interval_s": None, "counters": []},
        "totals": {"trials": trials, "transfers": None, "bytes": 0, "disk_bytes": {}},
    }  # fmt: skip


def _steps(number: int, commands: list[list[str]]) -> list[dict[str, Any]]:
    transfer = {"step": "transfer", "source": "zero:", "destination": "null:", "files": 1, "bytes": 0}
    children = [[{**transfer, "slot": slot, "call": " ".join(argv)}] for slot, argv in enumerate(commands)]
    body: list[dict[str, Any]] = children[0] if len(children) == 1 else [{"step": "parallel", "children": children}]
    trial = {"step": "trial", "id": f"t{number:07}", "point": 0, "repetition": number, "block": 0, "factors": {}}
    return [{"step": "wait", "counter": "turn", "until": number + 1}, {**trial, "steps": body}]


def start_spread(engine: Path, scratch: Path, probe: list[str], children: int, rounds: int) -> None:
    """Print the time between the first and the last start of processes that were started together."""
    agent = Agent(engine, scratch, [[probe] * children] * rounds)
    output = subprocess.run
    loop = f"for i in $(seq {children}); do {' '.join(probe)} & done; wait"
    methods: dict[str, Callable[[], str]] = {
        "venturi": lambda: "".join(transfer["stdout"] for transfer in agent.trial()["transfers"]),
        "shell loop with &": lambda: output(["sh", "-c", loop], capture_output=True, text=True, check=True).stdout,
        "Python asyncio": lambda: asyncio.run(_together(probe, children)),
    }
    if shutil.which("parallel"):
        numbers = [str(number) for number in range(children)]
        command = ["parallel", "--will-cite", "-N0", f"-j{children}", *probe, ":::", *numbers]
        methods["GNU parallel"] = lambda: output(command, capture_output=True, text=True, check=True).stdout
    else:
        print("  GNU parallel is not installed and is not in this comparison")
    spreads: dict[str, list[float]] = {name: [] for name in methods}
    for name in interleaved(list(methods), rounds):
        starts = [int(line) for line in methods[name]().split()]
        if len(starts) != children:
            sys.exit(f"expected {children} starts from {name}, found {len(starts)}")
        spreads[name].append((max(starts) - min(starts)) / 1e6)
    agent.close()
    ours = statistics.median(spreads["venturi"])
    for name, values in spreads.items():
        print(f"  {name:20} {with_quartiles(values)} ms   ×{statistics.median(values) / ours:.1f}")


async def _together(argv: list[str], count: int) -> str:
    pipe = asyncio.subprocess.PIPE
    started = await asyncio.gather(*(asyncio.create_subprocess_exec(*argv, stdout=pipe) for _ in range(count)))
    told = await asyncio.gather(*(process.communicate() for process in started))
    return "".join(out.decode() for out, _ in told)


def overhead(engine: Path, scratch: Path, children: int, rounds: int) -> None:
    """Print what a trial takes from its start to its record, less the time in which its processes ran."""
    command = shutil.which("true") or "/bin/true"
    for count in (1, children):
        agent = Agent(engine, scratch, [[[command]] * count] * rounds)
        before, whole = [], []
        for _ in range(rounds):
            asked = time.monotonic()
            record = agent.trial()
            elapsed = time.monotonic() - asked
            first = min(transfer["start_s"] for transfer in record["transfers"])
            last = max(transfer["end_s"] for transfer in record["transfers"])
            before.append((first - record["start_s"]) * 1e3)
            whole.append((elapsed - (last - first)) * 1e3)
        agent.close()
        print(f"  {count} processes")
        print(f"    fork, exec and stop, before the release {with_quartiles(before)} ms")
        print(f"    all, with both ways through the pipe    {with_quartiles(whole)} ms")


def agreement(engine: Path, scratch: Path, rounds: int) -> None:
    """Print how long one command takes by the agent and by hyperfine."""
    if not shutil.which("hyperfine"):
        print("  hyperfine is not installed; nothing to compare with")
        return
    agent = Agent(engine, scratch, [[DD]] * rounds)
    report = scratch / "hyperfine.json"
    measured: dict[str, list[float]] = {"venturi": [], "hyperfine -N": []}
    for name in interleaved(list(measured), rounds):
        if name == "venturi":
            measured[name].append(agent.trial()["transfers"][0]["duration_s"] * 1e3)
        else:
            command = [
                "hyperfine",
                "-N",
                "--runs",
                "1",
                "--style",
                "none",
                "--export-json",
                str(report),
                " ".join(DD),
            ]
            subprocess.run(command, check=True, capture_output=True)
            measured[name] += [run * 1e3 for run in json.loads(report.read_text())["results"][0]["times"]]
    agent.close()
    for name, values in measured.items():
        mean, deviation = statistics.mean(values), statistics.stdev(values)
        print(f"  {name:20} {with_quartiles(values)} ms   mean {mean:.2f}, σ {deviation:.2f}, n {len(values)}")
    _verdict(measured["venturi"], measured["hyperfine -N"])


def _verdict(ours: list[float], theirs: list[float]) -> None:
    difference = statistics.mean(ours) - statistics.mean(theirs)
    error = (statistics.variance(ours) / len(ours) + statistics.variance(theirs) / len(theirs)) ** 0.5
    inside = abs(difference) <= 1.96 * error
    print(f"  difference of means  {difference:+.2f} ms, 95 % ± {1.96 * error:.2f} ms (normal, two samples): "
          f"{'no difference seen' if inside else 'they differ'}")  # fmt: skip
    sigma = abs(statistics.mean(ours) - statistics.mean(theirs)) <= statistics.stdev(theirs)
    print(
        f"  our mean is {'within' if sigma else 'outside'} hyperfine's mean ± σ; its time includes fork and exec, ours does not"
    )


def main() -> None:
    """Run all three comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", type=Path, help="the binary under test")
    parser.add_argument("--rounds", type=int, default=50, help="rounds of each comparison (default 50)")
    parser.add_argument("--children", type=int, default=45, help="processes that are started together (default 45)")
    given = parser.parse_args()
    engine = given.engine or find_engine()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        _facts(engine, scratch)
        probe = scratch / "probe"
        title = f"\n1. Spread of {given.children} starts, median [quartiles] of {given.rounds}"
        if harness_probe.write(probe):
            print(f"{title}, to the first instruction of a bare program")
            start_spread(engine, scratch, [str(probe)], given.children, given.rounds)
        print(f"{title}, to `main` of a static program with its runtime")
        held = [str(engine), "probe", "--hold-ms", str(harness_probe.HOLD_MS)]
        start_spread(engine, scratch, held, given.children, given.rounds)
        print(f"\n2. Time of a trial beyond its processes, median [quartiles] of {given.rounds}")
        overhead(engine, scratch, given.children, given.rounds)
        print(f"\n3. Duration of `{' '.join(DD)}`, median [quartiles]")
        agreement(engine, scratch, given.rounds)


def _facts(engine: Path, scratch: Path) -> None:
    agent = Agent(engine, scratch, [])
    print_facts(
        f"engine {agent.hello['engine']}, release by {agent.ready['release']}, "
        f"hypervisor {agent.hello['facts'].get('virtual.hypervisor', 'not told')}"
    )
    agent.close()


if __name__ == "__main__":
    carry_out(main)
