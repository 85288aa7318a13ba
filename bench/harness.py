"""How precisely does the agent start and time processes, compared with common tools?

Four questions; the first three compare Venturi with other programs in turn, in one run:

1. How far apart are the first instructions of N processes that were started together? Compared with a shell loop with
   ``&``, GNU parallel and Python's asyncio.
2. How much time does a trial take in addition to its processes?
3. Does the agent measure the same duration of one command as ``hyperfine -N``?
4. How much CPU time do the counters of a run cost on a host with 4 movers and 8 connections? In total, for each thread of
   the agent, and for each family of counters alone.

Missing peers are listed. Times are medians, followed by the quartiles.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import harness_probe
from figures import execute, interleaved, print_environment, with_quartiles

from venturi.backend import find_engine
from venturi.workload.header import LOCAL_COUNTERS

MOVERS = 4
CONNECTIONS = 2
"""Connections of each mover."""

FAMILIES = (*LOCAL_COUNTERS, "tcp")
SENT_S = 5.0
COST_LIMIT = 0.01
"""Limit as a fraction of one core."""

_SENDER = """
import socket, sys, time
port, count, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
links = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
end, block = time.monotonic() + seconds, bytes(100_000)
while time.monotonic() < end:
    for link in links:
        link.sendall(block)
    time.sleep(0.02)
"""

DD = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1M", "count=2000", "status=none"]


class Agent:
    """A real agent with a plan of trials that wait for their turn, so that peers can run between them."""

    def __init__(
        self,
        engine: Path,
        scratch: Path,
        trials: list[list[list[str]]],
        *,
        interval_s: float | None = None,
        server_port: int | None = None,
        counters: Sequence[str] = FAMILIES,
    ) -> None:
        self.process = subprocess.Popen([engine, "agent"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        calls = {" ".join(argv): argv for trial in trials for argv in trial}
        self._send(command="start", host="me", scratch=str(scratch), epoch_unix_ns=time.time_ns(), skip=[], search=[],
                  header=_header(calls, len(trials), interval_s, server_port, counters))  # fmt: skip
        for number, trial in enumerate(trials):
            self._send(command="actor", line={"actor": "bench", "host": "me", "steps": _steps(number, trial)})
        self._send(command="go")
        self.hello = self._receive("hello")
        self.ready = self._receive("ready")
        self.turn = 0

    def trial(self) -> dict[str, Any]:
        """Execute the next trial and return its record."""
        self.turn += 1
        self._send(command="counter", counter="turn", value=self.turn)
        record = self._receive("trial")
        if record["outcome"] != "ok":
            sys.exit(f"expected a trial without failures, found {record}")
        return record

    def threads_s(self) -> dict[str, float]:
        """Return the CPU time of each thread of the agent so far, without its children."""
        used: dict[str, float] = {}
        for thread in Path(f"/proc/{self.process.pid}/task").iterdir():
            with contextlib.suppress(OSError):  # it has ended
                name, times = ((thread / file).read_text() for file in ("comm", "schedstat"))
                used[name.strip()] = used.get(name.strip(), 0.0) + int(times.split()[0]) / 1e9
        return used

    def close(self) -> None:
        """Let the agent exit if it is still running; it also exits after the last trial."""
        with contextlib.suppress(BrokenPipeError):
            self._send(command="stop")
        self.process.communicate()

    def _send(self, **command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def _receive(self, kind: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            record: dict[str, Any] = json.loads(line)
            if record["record"] == kind:
                return record
        sys.exit(f"expected a record `{kind}` from the agent, found its end")


def _header(
    calls: dict[str, list[str]],
    trials: int,
    interval_s: float | None,
    server_port: int | None,
    counters: Sequence[str],
) -> dict[str, Any]:
    call = {"mover": "bench", "options": {}, "requires": [], "timeout_s": 60.0, "capture": True, "expect": "nothing"}
    service = {"kind": "url", "host": "me", "ports": [server_port]}
    return {
        "format": "venturi-plan", "version": 2, "name": "harness", "seed": 1, "scale": 1.0, "scenario": {},
        "hosts": {"me": {"ssh": None, "memory_bytes": None}}, "storages": {}, "datasets": {},
        "calls": {name: {**call, "argv": argv} for name, argv in calls.items()}, "draws": {}, "pools": {},
        "services": {} if server_port is None else {"sink": service},
        "measure": {"interval_s": interval_s, "counters": [*counters]},
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
    outputs = await asyncio.gather(*(process.communicate() for process in started))
    return "".join(out.decode() for out, _ in outputs)


def overhead(engine: Path, scratch: Path, children: int, rounds: int) -> None:
    """Print the time from the start of a trial to its record, minus the run time of its processes."""
    command = shutil.which("true") or "/bin/true"
    for count in (1, children):
        agent = Agent(engine, scratch, [[[command]] * count] * rounds)
        before, whole = [], []
        for _ in range(rounds):
            requested = time.monotonic()
            record = agent.trial()
            elapsed = time.monotonic() - requested
            first = min(transfer["start_s"] for transfer in record["transfers"])
            last = max(transfer["end_s"] for transfer in record["transfers"])
            before.append((first - record["start_s"]) * 1e3)
            whole.append((elapsed - (last - first)) * 1e3)
        agent.close()
        print(f"  {count} processes")
        print(f"    fork, exec and stop, before the release {with_quartiles(before)} ms")
        print(f"    all, with both ways through the pipe    {with_quartiles(whole)} ms")


def agreement(engine: Path, scratch: Path, rounds: int) -> None:
    """Print the duration of one command as measured by the agent and by hyperfine."""
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


def sampling_cost(engine: Path, scratch: Path, rounds: int) -> None:
    """Print the CPU time of an agent per second of transfers: by interval, by thread, by family of counters."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_discard, args=(listener,), daemon=True).start()
        port = listener.getsockname()[1]
        cases: dict[str, tuple[float | None, Sequence[str]]] = {
            "no counters": (None, ()), "every 1 s": (1.0, FAMILIES), "every 0.1 s": (0.1, FAMILIES),
            **{f"only {family}": (0.1, (family,)) for family in FAMILIES},
        }  # fmt: skip
        used: dict[str, list[float]] = {name: [] for name in cases}
        of_threads: dict[str, list[float]] = {}
        for name in interleaved(list(cases), rounds):
            threads = _agent_cost(engine, scratch, port, *cases[name])
            used[name].append(sum(threads.values()))
            if name == "every 0.1 s":
                for thread, percent in threads.items():
                    of_threads.setdefault(thread, []).append(percent)
    for name, values in used.items():
        within = f"   {_passed(statistics.median(values) <= 100 * COST_LIMIT)}" if name.startswith("every") else ""
        print(f"  {name:20} {with_quartiles(values)} % of a core{within}")
    for thread, values in sorted(of_threads.items(), key=lambda item: -statistics.median(item[1])):
        print(f"  thread {thread:13} {with_quartiles(values)} % of a core, every 0.1 s")


def _agent_cost(
    engine: Path, scratch: Path, port: int, interval_s: float | None, counters: Sequence[str]
) -> dict[str, float]:
    """Return the CPU time of each thread of an agent during a trial, in percent of a core."""
    sender = [sys.executable, "-I", "-S", "-c", _SENDER, str(port), str(CONNECTIONS), str(SENT_S)]
    # An agent exits after its last trial: the second one never starts.
    trials = [[sender] * MOVERS, [["true"]]]
    agent = Agent(engine, scratch, trials, interval_s=interval_s, server_port=port, counters=counters)
    before_s, started_s = agent.threads_s(), time.monotonic()
    agent.trial()
    after_s, passed_s = agent.threads_s(), time.monotonic() - started_s
    agent.close()
    return {name: 100 * (used_s - before_s.get(name, 0.0)) / passed_s for name, used_s in after_s.items()}


def _discard(listener: socket.socket) -> None:
    """Read everything from all connections, in threads that end with the program."""
    while True:
        try:
            link, _ = listener.accept()
        except OSError:
            return  # the listener is closed
        threading.Thread(target=_read_all, args=(link,), daemon=True).start()


def _read_all(link: socket.socket) -> None:
    with link, contextlib.suppress(OSError):
        while link.recv(1 << 20):
            pass


def _passed(passed: bool) -> str:
    return f"{'within' if passed else 'above'} the limit of {COST_LIMIT:.0%}"


def main() -> None:
    """Run all parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", type=Path, help="the binary under test")
    parser.add_argument("--rounds", type=int, default=50, help="rounds of each comparison (default 50)")
    parser.add_argument("--children", type=int, default=45, help="processes that are started together (default 45)")
    parser.add_argument("--parts", type=int, nargs="+", choices=range(1, 5), default=[1, 2, 3, 4], help="these questions alone")  # fmt: skip
    given = parser.parse_args()
    engine = given.engine or find_engine()
    with tempfile.TemporaryDirectory() as directory:
        scratch = Path(directory)
        _print_environment(engine, scratch)
        if 1 in given.parts:
            title = f"\n1. Spread of {given.children} starts, median [quartiles] of {given.rounds}"
            probe = scratch / "probe"
            if harness_probe.write(probe):
                print(f"{title}, to the first instruction of a bare program")
                start_spread(engine, scratch, [str(probe)], given.children, given.rounds)
            print(f"{title}, to `main` of a static program with its runtime")
            held = [str(engine), "probe", "--sleep-ms", str(harness_probe.HOLD_MS)]
            start_spread(engine, scratch, held, given.children, given.rounds)
        if 2 in given.parts:
            print(f"\n2. Time of a trial beyond its processes, median [quartiles] of {given.rounds}")
            overhead(engine, scratch, given.children, given.rounds)
        if 3 in given.parts:
            print(f"\n3. Duration of `{' '.join(DD)}`, median [quartiles]")
            agreement(engine, scratch, given.rounds)
        if 4 in given.parts:
            cost_rounds = max(3, given.rounds // 10)
            title = f"{MOVERS} movers, {MOVERS * CONNECTIONS} connections, median [quartiles] of {cost_rounds}"
            print(f"\n4. CPU time of the agent, {title}")
            sampling_cost(engine, scratch, cost_rounds)


def _print_environment(engine: Path, scratch: Path) -> None:
    agent = Agent(engine, scratch, [])
    print_environment(
        f"engine {agent.hello['engine']}, release by {agent.ready['release']}, "
        f"hypervisor {agent.hello['properties'].get('virtual.hypervisor', 'not told')}"
    )
    agent.close()


if __name__ == "__main__":
    execute(main)
