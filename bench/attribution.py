"""Does `venturi advise` name the known limit of a testbed?

Each testbed is random: mover, service, rate, round trip, file sizes. One resource has a known limit; a second one is 1.3
to 5 times as fast, all others are faster. The limit is confirmed by removing it and running again: only a testbed that
becomes at least 1.15 times as fast counts. The truth never comes from the analysis.

    python bench/attribution.py --seed 0 --count 20 --keep results
    python bench/attribution.py --seed 0 --count 20 --keep results --resume
    python bench/attribution.py --keep results --fit

Seeds 0 to 999 are for development, seeds from 100000 on score the result. With `--keep`, each testbed adds a line to
`results.jsonl`. `--resume` runs the testbeds without a line and analyses the other runs again with the present code.
`--fit` runs nothing and prints the four numbers of the confidence that fit the development seeds best.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import venturi
from venturi.advice import NETWORK_CAUSES, Verdict, advise
from venturi.advice.decide import CONFIDENCE
from venturi.run import Run

CONFIRMED = 1.15
"""Minimum gain from the removal that confirms the limit."""

MARKING_SEED = 100_000

RESULTS = "results.jsonl"

CEILING_BYTES_PER_S = 25e6
"""200 Mb/s; all other resources of the machine support this rate."""

SFTP_REQUEST_BYTES = 32_768
"""Default of OpenSSH."""

TRIAL_S = 4.0
"""Intended time of one trial."""

WAITING = 6
"""Simultaneous transfers at a server with one slot."""


@dataclass(frozen=True)
class Tool:
    """A mover with its service.

    Attributes
    ----------
    mover, kind, options
        Mover, kind of the service (empty: local copy) and options of the mover.
    service_host
        Host of the service: `src` for a download, `dst` for an upload.
    cpu
        Whether its CPU cost per byte is large enough for a quota (encryption).
    lists
        Whether one call moves many files.
    fsync
        Whether it waits for the destination disk.
    """

    name: str
    mover: str
    kind: str
    service_host: str
    options: str = ""
    cpu: bool = False
    lists: bool = False
    fsync: bool = False
    service_options: str = ""


TOOLS = (
    Tool("guc-get", "globus-url-copy", "gridftp", "src", lists=True),
    Tool("guc-put", "globus-url-copy", "gridftp", "dst", lists=True),
    Tool("xrdcp-get", "xrdcp", "xrootd", "src", lists=True),
    Tool("xrdcp-put", "xrdcp", "xrootd", "dst", lists=True),
    Tool("curl-get", "curl", "nginx", "src"),
    Tool("curl-put", "curl", "nginx", "dst"),
    Tool("rclone-put", "rclone", "ssh", "dst", cpu=True),
    Tool("sftp-get", "sftp", "sshd", "src"),
    Tool("venturi-get", "venturi", "venturi-serve", "src", lists=True),
    Tool("venturi-sync", "venturi", "venturi-serve", "src", "fsync = true", lists=True, fsync=True),
    Tool("venturi-put", "venturi", "gridftp", "dst", lists=True),
    Tool("gfal-srm", "gfal-copy", "srm", "src"),
    Tool("cp", "cp", "", ""),
    Tool("cp-sync", "cp", "", "", "fsync = true", fsync=True),
)

CAUSES = (
    "source-disk",
    "destination-disk",
    "source-cpu",
    "destination-cpu",
    "send-buffer",
    "receive-window",
    "loss",
    "link",
    "source-interface",
    "destination-interface",
    "policer",
    "file-latency",
    "authentication",
    "client",
    "rate-limit",
    "congestion",
    "server-slots",
)

ACCEPTED = {
    "source-interface": {"link"},
    "destination-interface": {"link"},
    "source-cpu": {"source-cpu", "server-cpu"},
    "destination-cpu": {"destination-cpu", "server-cpu"},
    "file-latency": {"file-latency", "start-up"},
    "authentication": {"authentication", "start-up"},
    "policer": {"policer"},
}
"""Imposed limit → verdicts that name it."""


@dataclass(frozen=True)
class Testbed:
    """One random testbed; rates in bytes/s. None: no such limit."""

    seed: int
    cause: str
    tool: Tool
    rtt_s: float
    limits: dict[str, float] = field(default_factory=dict)
    size_bytes: int = 0
    files: int = 1
    rate_bytes_per_s: float = 0.0
    second: str = ""
    others: int = 0

    def without(self) -> Testbed:
        """Return the testbed without its limit."""
        limits = {name: value for name, value in self.limits.items() if name != self.cause}
        if self.cause == "congestion":
            # The link keeps its rate, but has no other traffic.
            limits["link"] = self.limits["congestion"] * (1 + self.others)
        files, size = (
            (1, self.size_bytes * self.files) if self.cause == "file-latency" else (self.files, self.size_bytes)
        )
        return dataclasses.replace(self, limits=limits, files=files, size_bytes=size)


def generate(seed: int) -> Testbed:
    """Return the testbed of a seed."""
    random_ = random.Random(seed)
    cause = CAUSES[seed % len(CAUSES)]
    tool = random_.choice([one for one in TOOLS if _possible(cause, one)])
    rtt_s = random_.choice([0.005, 0.01, 0.02, 0.04]) if tool.kind else 0.01
    if cause in ("receive-window", "send-buffer", "loss", "file-latency", "policer", "client"):
        rtt_s = random_.choice([0.015, 0.025, 0.04])
    rate = math.exp(random_.uniform(math.log(1.0e6), math.log(5e6)))
    ratio = math.exp(random_.uniform(math.log(1.3), math.log(5.0)))
    second = random_.choice(
        [one for one in ("source-disk", "link", "receive-window", "loss") if _second(one, cause, tool)]
    )
    testbed = Testbed(seed, cause, tool, rtt_s, {cause: rate, second: rate * ratio}, 0, 1, rate, second)
    if cause == "congestion":
        return dataclasses.replace(
            testbed,
            limits={cause: rate},
            size_bytes=int(rate * TRIAL_S),
            second="link",
            others=random_.choice([2, 3, 4]),
        )
    if cause == "server-slots":
        # One transfer reaches its window, so the others only wait.
        limits = {cause: 1.0, "receive-window": rate}
        return dataclasses.replace(testbed, limits=limits, size_bytes=int(rate * 1.5), second="receive-window")
    if cause in ("file-latency", "authentication"):
        # The rate follows from round trips and sizes.
        size, files = (random_.choice([10_000, 30_000]), 30) if cause == "file-latency" else (200_000, 1)
        return dataclasses.replace(testbed, limits={cause: 1.0, second: 5e6 * ratio}, size_bytes=size, files=files)
    return dataclasses.replace(testbed, size_bytes=int(rate * TRIAL_S))


def _possible(cause: str, tool: Tool) -> bool:
    if not tool.kind:
        return cause in ("source-disk", "destination-disk") and (cause != "destination-disk" or tool.fsync)
    if cause == "server-slots" or tool.kind == "srm":
        return cause == "server-slots" and tool.kind == "srm"
    match cause:
        case "congestion":
            return tool.mover in ("globus-url-copy", "xrdcp", "curl", "venturi") and not tool.fsync
        case "destination-disk":
            return tool.fsync
        case "source-cpu" | "destination-cpu":
            return tool.cpu
        case "file-latency":
            return tool.name in ("guc-get", "guc-put", "xrdcp-get", "xrdcp-put")
        case "authentication":
            return tool.name in ("guc-get", "guc-put", "xrdcp-get")
        case "rate-limit":
            return tool.mover in ("curl", "xrdcp")
        case "client":
            return tool.mover == "sftp"
    return tool.mover != "sftp"


def _second(name: str, cause: str, tool: Tool) -> bool:
    if not tool.kind:
        return name == "source-disk" if cause == "destination-disk" else name == "link"
    return name != cause and not (name == "link" and cause == "policer")


def loss_probability(rate_bytes_per_s: float, rtt_s: float) -> float:
    """Return the loss for a rate of one CUBIC connection: the larger of Reno (Mathis 1997) and CUBIC (RFC 9438, eq. 5)."""
    window = rate_bytes_per_s * rtt_s / 1448
    return max(1.5 / window**2, float(rtt_s * (1.054 / window) ** (4 / 3)))


def scenario(testbed: Testbed, name: str, cpu_s_per_byte: tuple[float, float], repeat: int) -> str:
    """Return the scenario of a testbed."""
    limits, tool = testbed.limits, testbed.tool
    lines = ["venturi = 1", f'name = "{name}"', f"seed = {testbed.seed + 1}"]
    for host, cpu, cost in (("src", "source-cpu", cpu_s_per_byte[0]), ("dst", "destination-cpu", cpu_s_per_byte[1])):
        lines.append(f"[testbed.host.{host}]")
        lines.append(f'tcp = "{host}"')
        if cpu in limits:
            lines.append(f"cpu_limit = {max(0.05, limits[cpu] * cost):.4f}")
    rtt_s = testbed.rtt_s
    # Half of a receive buffer is window.
    receive = int(max(8192, 2 * limits["receive-window"] * rtt_s)) if "receive-window" in limits else 6291456
    send = int(max(8192, limits["send-buffer"] * rtt_s)) if "send-buffer" in limits else 4194304
    for host in ("src", "dst"):
        lines += [
            f"[testbed.tcp.{host}]",
            f'net.ipv4.tcp_rmem = "4096 {min(131072, receive if host == "dst" else 131072)} {receive if host == "dst" else 6291456}"',
            f'net.ipv4.tcp_wmem = "4096 {min(16384, send if host == "src" else 16384)} {send if host == "src" else 4194304}"',
        ]
    lines += ["[testbed.router.r1]", "[testbed.router.r2]"]
    wan = limits.get("link", limits.get("policer", CEILING_BYTES_PER_S))
    if "congestion" in limits:
        wan = limits["congestion"] * (1 + testbed.others)
        lines += ["[testbed.host.other]", "[testbed.host.sink]"]
    for link, ends, limit in (
        ("source", '"src", "r1"', limits.get("source-interface", 5 * CEILING_BYTES_PER_S)),
        ("wan", '"r1", "r2"', wan),
        ("destination", '"r2", "dst"', limits.get("destination-interface", 5 * CEILING_BYTES_PER_S)),
        *(
            (("other", '"other", "r1"', 5 * CEILING_BYTES_PER_S), ("sink", '"r2", "sink"', 5 * CEILING_BYTES_PER_S))
            if "congestion" in limits
            else ()
        ),
    ):
        lines += [f"[testbed.link.{link}]", f"between = [{ends}]", f'rate = "{8 * limit * 1.04 / 1e6:.6f} Mb/s"']
        if link == "wan":
            lines.append(f'rtt = "{1000 * rtt_s:g} ms"')
            if "policer" in limits:
                lines.append('queue = "6 kB"')
            if "loss" in limits:
                lines.append(f"loss = {loss_probability(limits['loss'], rtt_s):.3g}")
    lines += ["[testbed.storage]"]
    disk_bytes = max(64_000_000, 3 * testbed.size_bytes * testbed.files)
    for storage, host, key, disk_limit in (
        ("data", "src", "read_rate", limits.get("source-disk")),
        ("copies", "dst" if tool.kind else "src", "write_rate", limits.get("destination-disk")),
    ):
        rate = f', {key} = "{disk_limit / 1e6:.6f} MB/s"' if disk_limit else ""
        # The workload with other traffic needs space for its largest possible number of transfers.
        disk = f', kind = "disk", size = "{disk_bytes} B"{rate}' if testbed.cause != "congestion" else ""
        lines.append(f'{storage} = {{ host = "{host}", path = "{storage}"{disk} }}')
    lines += _services(testbed)
    if testbed.cause == "congestion":
        return "\n".join([*lines, *_inject(testbed)]) + "\n"
    lines += ["[workload]", 'kind = "sweep"', f'mover = "{tool.mover}"', 'source = "data"', 'destination = "copies"',
              f"repeat = {repeat}", 'cache = "cold"', 'timeout = "2 min"']  # fmt: skip
    if tool.kind == "srm":
        lines += ['client = "dst"', 'source_service = "server"']
    if testbed.files > 1:
        lines.append(f"files_per_call = {testbed.files}")
    lines += ["[workload.options]"]
    if tool.options:
        lines.append(tool.options)
    if "client" in limits:
        lines.append(f"requests = {max(1, round(limits['client'] * rtt_s / SFTP_REQUEST_BYTES))}")
    if "rate-limit" in limits:
        lines.append(f'rate = "{limits["rate-limit"] / 1e6:.6f} MB/s"')
    lines += ["[workload.factors]", f'size = ["{testbed.size_bytes} B"]']
    if testbed.cause == "server-slots":
        lines.append(f"files = [{WAITING}]")
    return "\n".join(lines) + "\n"


def _services(testbed: Testbed) -> list[str]:
    """Return the tables of the services, and of the storages of other traffic."""
    tool, limits = testbed.tool, testbed.limits
    if not tool.kind:
        return []
    lines = []
    served, host, far = ("data", "src", "other") if tool.service_host == "src" else ("copies", "dst", "sink")
    if "congestion" in limits:
        lines += [
            f'other-{name} = {{ host = "{at}", path = "{name}" }}'
            for name, at in (("data", "other"), ("copies", "sink"))
        ]
    options = 'auth = "gsi"' if "authentication" in limits else tool.service_options
    if tool.kind == "srm":
        lines += [
            "[testbed.service.door]",
            'kind = "gridftp"',
            f'host = "{host}"',
            f'storage = ["{served}"]',
            'options = { auth = "gsi" }',
        ]
        options = 'doors = "door"' + (", ready = 1" if "server-slots" in limits else "")
    for name, at, storage in (
        ("server", host, served),
        *((("other", far, f"other-{served}"),) if "congestion" in limits else ()),
    ):
        lines += [f"[testbed.service.{name}]", f'kind = "{tool.kind}"', f'host = "{at}"', f'storage = ["{storage}"]',
                  f"options = {{ {options} }}"]  # fmt: skip
    return lines


def _inject(testbed: Testbed) -> list[str]:
    """Return one transfer and, with the limit, the other traffic that shares its link: each connection gets an equal part."""
    client = "destination" if testbed.tool.service_host == "src" else "source"
    lines = [
        "[workload]",
        'kind = "inject"',
        f'mover = "{testbed.tool.mover}"',
        'arrivals = "even"',
        'lead = "3 s"',
        'timeout = "2 min"',
    ]
    flows = [("test", "data", "copies", 1, 1.0, testbed.size_bytes)]
    if "congestion" in testbed.limits:
        flows.append(("other", "other-data", "other-copies", testbed.others, 0.0, 3 * testbed.size_bytes))
    for name, source, destination, number, start_s, size in flows:
        lines += [f"[workload.flow.{name}]", f'source = ["{source}"]', f'destination = ["{destination}"]', f'rate = "{number * 10} /s"',
                  f'start = "{start_s} s"', f'end = "{start_s + 0.1} s"', f'size = "{size} B"', f'client = "{client}"']  # fmt: skip
    return lines


@dataclass(frozen=True)
class Mark:
    """Result of one testbed."""

    testbed: Testbed
    verdict: Verdict
    rate_bytes_per_s: float
    free_bytes_per_s: float
    seconds: float
    advise_s: float
    run: str

    @property
    def confirmed(self) -> bool:
        """Whether the removal made the transfer faster."""
        return self.free_bytes_per_s >= CONFIRMED * self.rate_bytes_per_s

    @property
    def accepted(self) -> set[str]:
        """Verdicts that are right."""
        return ACCEPTED.get(self.testbed.cause, {self.testbed.cause})

    @property
    def first(self) -> bool:
        """Whether the verdict is right."""
        return self.verdict.cause in self.accepted

    @property
    def second(self) -> bool:
        """Whether verdict or runner-up is right."""
        causes = [fraction.cause for fraction in self.verdict.fractions if fraction.cause != "unknown"][:2]
        return self.first or bool(self.accepted & set(causes))

    @property
    def inside(self) -> bool | None:
        """Whether the predicted interval contains the measured gain; None: no prediction for the right cause."""
        found = self.verdict.counterfactual
        if not self.first or found is None or found.low_bytes_per_s is None or found.high_bytes_per_s is None:
            return None
        return found.low_bytes_per_s <= self.free_bytes_per_s <= found.high_bytes_per_s


def execute(text: str, directory: Path, name: str) -> Path:
    """Run a scenario in the lab and return its run."""
    path = directory / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    venturi = Path(sys.executable).with_name("venturi")
    command = [
        str(venturi),
        "run",
        str(path),
        "--on",
        "lab",
        "--runs",
        str(directory),
        "--scratch",
        str(directory / "scratch"),
        "-q",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise RuntimeError(f"{name}: {done.stderr.strip()[-600:]}")
    return Path(json.loads(done.stdout)["run"])


def measured_rate(run: Path) -> float:
    """Return the throughput of the successful transfers of a run, from its table; with several flows, of the flow under test."""
    found = Run.open(run)
    own = "AND factor_flow = 'test'" if "factor_flow" in found.factors else ""
    rows = found.query(
        f"""SELECT sum(bytes) / sum(time_s) AS rate FROM (
            SELECT sum(received_bytes) AS bytes, max(end_s) - min(start_s) AS time_s FROM transfers
            WHERE outcome = 'ok' AND trial IS NOT NULL {own} GROUP BY trial)"""
    )
    rate = float(rows["rate"][0] or 0.0)
    if not rate > 0:
        raise RuntimeError(f"{run}: no transfer succeeded")
    return rate


def cpu_costs(tool: Tool, directory: Path, cache: dict[str, tuple[float, float]]) -> tuple[float, float]:
    """Return the CPU seconds per byte at source and destination, measured without a limit."""
    if tool.name not in cache:
        base = Testbed(0, "source-cpu", tool, 0.01, {"source-cpu": 1e12, "destination-cpu": 1e12}, 40_000_000, 1, 1e6)
        run = Run.open(
            execute(scenario(base, f"cost-{tool.name}", (1e-12, 1e-12), 1), directory, f"cost-{tool.name}")
        )
        found = []
        for host in ("src", "dst"):
            rows = run.query(
                """SELECT sum(grown) AS s FROM (SELECT max(value) - min(value) AS grown FROM samples
                   WHERE host = $host AND counter IN ('cgroup.cpu.user_s', 'cgroup.cpu.system_s') GROUP BY counter)""",
                {"host": host},
            )
            found.append(max(float(rows["s"][0]), 1e-3) / base.size_bytes)
        cache[tool.name] = (found[0], found[1])
    return cache[tool.name]


def mark(seed: int, directory: Path, costs: dict[str, tuple[float, float]]) -> Mark:
    """Run one testbed with its limit and without, and return the result."""
    testbed = generate(seed)
    cost = cpu_costs(testbed.tool, directory, costs) if testbed.cause.endswith("-cpu") else (1e-9, 1e-9)
    name = f"s{seed}"
    started_s = time.monotonic()
    run = execute(scenario(testbed, name, cost, 1), directory, name)
    took_s = time.monotonic() - started_s
    started_s = time.monotonic()
    verdict = verdict_of(run)
    advise_s = time.monotonic() - started_s
    free = execute(scenario(testbed.without(), f"{name}-free", cost, 1), directory, f"{name}-free")
    return Mark(testbed, verdict, measured_rate(run), measured_rate(free), took_s + advise_s, advise_s, run.name)


def verdict_of(run: Path) -> Verdict:
    """Return the verdict of a run; with several flows, the verdict of the flow under test."""
    found = advise(Run.open(run))
    return next((one for one in found.points if one.factors.get("flow") == "test"), found.run)


def line_of(one: Mark) -> dict[str, Any]:
    """Return a result as one line of `results.jsonl`."""
    return {
        "seed": one.testbed.seed, "version": venturi.__version__, "run": one.run, "cause": one.testbed.cause, "tool": one.testbed.tool.name,
        "rate_bytes_per_s": one.rate_bytes_per_s, "free_bytes_per_s": one.free_bytes_per_s, "seconds": one.seconds,
        "advise_s": one.advise_s, "verdict": one.verdict.cause, "confidence": one.verdict.confidence, "right": one.first,
        "right_or_second": one.second, "gain_inside": one.inside,
    }  # fmt: skip


def read_marks(directory: Path) -> list[Mark]:
    """Return the results of a directory, with verdicts of the present code."""
    path = directory / RESULTS
    found = {}
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        line = json.loads(text)
        run = directory / line["run"]
        if not run.is_dir():
            sys.exit(
                f"{path}: seed {line['seed']}: expected the run {run}. Remove the line to run the testbed again."
            )
        numbers = (line["rate_bytes_per_s"], line["free_bytes_per_s"], line["seconds"], line["advise_s"])
        found[line["seed"]] = Mark(generate(line["seed"]), verdict_of(run), *numbers, line["run"])
    return list(found.values())


def features(verdict: Verdict) -> tuple[float, float, float]:
    """Return the three inputs of the confidence (`venturi.advice.decide`)."""
    first, second = (*(one.fraction for one in verdict.fractions[:2]), 0.0, 0.0)[:2]
    return first / (first + second) - 0.75, first - 0.5, float(len(verdict.missing))


def fit(marks: Sequence[Mark]) -> tuple[float, ...]:
    """Return the numbers a, b, c and d that maximise the posterior probability of the results.

    The prior of each number is normal around its present value, with half of it as standard deviation, so few results
    change little.
    """
    used = [one for one in marks if one.verdict.fractions and one.verdict.fractions[0].cause != "unknown"]
    x = np.array([(1.0, *features(one.verdict)) for one in used]) * (1, 1, 1, -1)
    y = np.array([one.verdict.fractions[0].cause in one.accepted for one in used], dtype=float)
    prior = np.array(CONFIDENCE)
    precision = np.diag(1 / (0.5 * prior) ** 2)
    found = prior.copy()
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ found))
        gradient = x.T @ (y - p) - precision @ (found - prior)
        found = found + np.linalg.solve(x.T @ (x * (p * (1 - p))[:, None]) + precision, gradient)
    return tuple(float(value) for value in found)


def report(marks: Sequence[Mark]) -> None:
    """Print confusion table, scores, calibration and coverage."""
    print("\nimposed limit        verdicts")
    for cause in CAUSES:
        own = [one for one in marks if one.testbed.cause == cause]
        if own:
            counts = Counter(one.verdict.cause or "abstains" for one in own)
            print(f"{cause:20} {', '.join(f'{name} {count}' for name, count in counts.most_common())}")
    network = [one for one in marks if not one.accepted & {*NETWORK_CAUSES, "receive-window", "send-buffer"}]
    false_network = [one for one in network if one.verdict.cause in NETWORK_CAUSES]
    print(f"\ntestbeds            {len(marks)}")
    print(f"top-1               {_percent(one.first for one in marks)}   (goal 95 %)")
    print(f"top-2               {_percent(one.second for one in marks)}   (goal 99 %)")
    print(f"abstained           {_percent(one.verdict.cause is None for one in marks)}")
    print(f"false network       {len(false_network)} of {len(network)} with another limit   (goal 2 %)")
    inside = [one.inside for one in marks if one.inside is not None]
    print(f"gain in interval    {_percent(inside)} of {len(inside)} predictions   (goal 80 %)")
    for low, high in ((0.5, 0.7), (0.7, 0.85), (0.85, 0.95), (0.95, 1.0001)):
        own = [one for one in marks if one.verdict.cause is not None and low <= one.verdict.confidence < high]
        if own:
            stated = statistics.mean(one.verdict.confidence for one in own)
            print(f"confidence {100 * stated:3.0f} %    {_percent(one.first for one in own)} true of {len(own)}")
    print(f"time to verdict     {statistics.median(one.seconds for one in marks):.1f} s with the run, "
          f"{statistics.median(one.advise_s for one in marks):.2f} s alone (medians)")  # fmt: skip


def _percent(values: Any) -> str:
    found = list(values)
    return f"{100 * sum(found) / len(found):.1f} %" if found else "–"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="first seed; each testbed has the next one")
    parser.add_argument("--count", type=int, default=20, help="number of testbeds")
    parser.add_argument("--keep", type=Path, help="directory for runs and results; default: a temporary one")
    parser.add_argument(
        "--resume", action="store_true", help="run only the testbeds without a result in the directory of --keep"
    )
    parser.add_argument(
        "--fit", action="store_true", help="run nothing; fit the confidence to the results in the directory of --keep"
    )
    options = parser.parse_args()
    if (options.resume or options.fit) and options.keep is None:
        parser.error("--resume and --fit need --keep DIRECTORY")
    if options.fit:
        found = [one for one in read_marks(options.keep) if one.confirmed and one.testbed.seed < MARKING_SEED]
        if not found:
            sys.exit(f"{options.keep / RESULTS}: no confirmed result of a development seed; run some first")
        print(
            f"{len(found)} results: a, b, c, d = {', '.join(f'{value:.2f}' for value in fit(found))} (now {CONFIDENCE})"
        )
        return
    if options.seed < MARKING_SEED <= options.seed + options.count:
        parser.error("development seeds end before 100000; use a smaller --count")
    if os.geteuid() != 0:
        sys.exit("expected root: the lab creates disks and control groups. Run with sudo.")
    with tempfile.TemporaryDirectory(prefix="attribution-") as temporary:
        directory = options.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        if not options.resume and (directory / RESULTS).exists():
            sys.exit(f"{directory / RESULTS} exists; use --resume, or another directory")
        known = read_marks(directory)
        marks = [one for one in known if one.confirmed]
        done = {one.testbed.seed for one in known}
        costs: dict[str, tuple[float, float]] = {}
        for seed in range(options.seed, options.seed + options.count):
            if seed in done:
                continue
            testbed = generate(seed)
            head = f"{seed:6} {testbed.cause:21} {testbed.tool.name:13}"
            try:
                one = mark(seed, directory, costs)
            except RuntimeError as error:
                print(f"{head} not run: {error}", flush=True)
                continue
            with (directory / RESULTS).open("a", encoding="utf-8") as results:
                results.write(f"{json.dumps(line_of(one))}\n")
            gain = one.free_bytes_per_s / one.rate_bytes_per_s
            state = "" if one.confirmed else " VOID: the removal does not help"
            print(f"{head} {one.rate_bytes_per_s / 1e6:6.2f} MB/s ×{gain:5.2f} {'ok ' if one.first else 'NO '}"
                  f"{one.verdict.cause or 'abstains'} {one.verdict.confidence:.2f}"
                  f" {'' if one.inside is None else 'in' if one.inside else 'OUT'}{state}", flush=True)  # fmt: skip
            if one.confirmed:
                marks.append(one)
        if not marks:
            sys.exit("no testbed was confirmed")
        report(marks)


if __name__ == "__main__":
    main()
