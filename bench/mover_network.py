"""How fast does ``venturi copy`` move files over a network, beside the tools that physicists use?

    python bench/mover.py network [--quick] [--only PART ...] [--rounds N] [--engine ENGINE]

Parts, each over the lab's emulated network between two hosts, with unmodified servers of others, cubic, and files in memory at both ends:

- *small*: 10,000 files of 10 KB by GridFTP at 20 and 53 ms and 1 Gb/s, download and upload;
- *sets*: the small and the large set of report 002 over 53 ms, the large one and rates scaled by ten;
- *large*: one file of 4 GB at 1 and 5 Gb/s, on a LAN and over 53 ms, beside iperf3 moving as many bytes;
- *cpu*: processor seconds a GB of both ends over loopback;
- *https*: many small files and a large one by HTTPS/WebDAV.

Peers run at the best settings that a sweep finds in the same run, step by step; the sweep is printed. Then rounds of ours and the peers are interleaved
in random order, with empty destinations. A tool that would need hours is given a part of the files: what is compared are rates, of whole commands, logins included.
Of each tool's first round the copy is compared with its source byte by byte. Figures are medians with the quartiles behind them. Needs root.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path

import mover_network_tools as tools
from figures import Bounds, interleaved, print_facts, row, version, with_quartiles
from mover_network_lab import (
    CLIENT,
    SERVE,
    SERVER,
    Files,
    Link,
    Route,
    Took,
    compare,
    emptied,
    iperf3_bit_per_s,
    memory_folder,
    route_up,
)
from mover_network_tools import DOWN, UP, Tool

from venturi.backend import find_engine

GB = 1e9
KIB = 1 << 10
SMALL_BYTES = 10_000
USUAL = "-fast -cc 8"
"""What those who know globus-url-copy well type for many small files; the sweep goes beyond."""


@dataclass(frozen=True)
class Size:
    """How much is moved: the whole bench, or one that ends in three minutes."""

    files: int
    trial_files: int
    slow_files: int
    set_bytes: int
    large_bytes: int
    rounds: int
    round_trips: tuple[str, ...] = ("20 ms", "53 ms")
    rates: tuple[str, ...] = ("1 Gb/s", "5 Gb/s")
    lan: str = "0.2 ms"
    ways: tuple[str, ...] = (DOWN, UP)
    """But of the many small files, which go both ways in any case."""


WHOLE = Size(10_000, 3_000, 300, 2_400_000_000, 4_000_000_000, 5)
QUICK = Size(500, 200, 20, 60_000_000, 100_000_000, 2, ("20 ms",), ("1 Gb/s",), ways=(DOWN,))


@dataclass
class Bench:
    """One run."""

    engine: Path
    size: Size
    quick: bool
    bounds: Bounds = field(default_factory=Bounds)


@dataclass(frozen=True)
class Job:
    """What is to be moved on a route, and which way.

    Attributes
    ----------
    route
        The path that is up.
    files
        The whole set; tools that are given a part have some of all sizes.
    way
        Download or upload.
    host
        Where the client runs.
    """

    route: Route
    files: Files
    way: str
    host: str = CLIENT

    def carry_out(self, tool: Tool, *, check: bool) -> tuple[Files, Took]:
        """Let a tool do it; return the files that it was given and what it took."""
        files = self.files.part(max(1, round(tool.part * self.files.count)))
        sink = emptied((self.route.memory if self.way == DOWN else self.route.served) / "sink")
        local, far = (sink, files.folder) if self.way == DOWN else (files.folder, sink)
        remote = self.route.url(far, tool.scheme)
        listed = self._list(files, remote, local, tool.scheme)
        words = [remote, str(local), str(listed), str(far)]
        if files.count == 1:
            words[:2] = [f"{remote}/000000", f"{local}/000000"]
        took = self.route.call(tool.command, *words, host=self.host, scheme=tool.scheme)
        if check:
            compare(files.folder, sink, tool.name)
        emptied(sink)
        return files, took

    def _list(self, files: Files, remote: str, local: Path, scheme: str) -> Path:
        names = sorted(path.name for path in files.folder.iterdir())
        listed = self.route.memory / "list"
        make = tools.pairs if scheme == "ftp" else tools.curl_config
        listed.write_text(make(remote, local, names, self.way))
        listed.with_name("list.sources").write_text("".join(f"{remote}/{name}\n" for name in names))
        return listed


@dataclass(frozen=True)
class Found:
    """What a tool came to in its rounds."""

    files: Files
    times: list[Took]

    @property
    def wall_s(self) -> float:
        """Median."""
        return statistics.median(took.wall_s for took in self.times)

    @property
    def files_per_s(self) -> float:
        """Of the median."""
        return self.files.count / self.wall_s

    @property
    def bytes_per_s(self) -> float:
        """Of the median."""
        return self.files.size_bytes / self.wall_s

    def cpu_s_per_gb(self, end: Callable[[Took], float]) -> float:
        """Return the median of processor time a GB."""
        return statistics.median(map(end, self.times)) / self.files.size_bytes * GB


def best_setting(job: Job, steps: Sequence[Sequence[str]], make: Callable[[str], Tool], part: float) -> Tool:
    """Return a tool at the best setting that is found step by step: ``{}`` is the best of the steps before."""
    words = ""
    for step in steps:
        settings = {make(one).name: one for one in (one.replace("{}", words) for one in step)}
        best = best_tool(job, [make(one) for one in settings.values()], part)
        words = settings[best.name] if best else words
    return make(words)


def best_tool(job: Job, listed: Sequence[Tool], part: float) -> Tool | None:
    """Return the tool, or the setting of one, that is the fastest in one round with a part of the files, and print each.

    What is near the best is as good, and the rounds that count come afterwards.
    """
    walls_s: dict[float, Tool] = {}
    for tool in listed:
        try:
            _, took = job.carry_out(replace(tool, part=min(part, tool.part)), check=False)
        except SystemExit as failure:
            row("  tried", f"{tool.name}: failed: {str(failure)[-160:]!r}")
            continue
        row("  tried", f"{took.wall_s:8.3f} s  {tool.name}")
        walls_s[took.wall_s] = tool
    return walls_s[min(walls_s)] if walls_s else None


def measure(
    job: Job, listed: Sequence[Tool], rounds: int, beside: Callable[[], None] = lambda: None
) -> dict[str, Found]:
    """Return what each tool comes to, rounds interleaved; one that fails in its first round is told and left out.

    ``beside`` is what else is measured, called once a round.
    """
    known = {tool.name: tool for tool in listed if tool.installed}
    for tool in listed:
        if not tool.installed:
            print(f"  {tool.name} is not installed and is not in this comparison")
    found: dict[str, Found] = {}
    failed: set[str] = set()
    for name in interleaved([*known, ""], rounds):
        if not name:
            beside()
        if name not in known or name in failed:
            continue
        try:
            files, took = job.carry_out(known[name], check=name not in found)
        except SystemExit as failure:
            print(f"  {name} is left out: {' '.join(str(failure).split())[:400]}", flush=True)
            failed.add(name)
            if words := job.route.ended(known[name].scheme):
                print(f"  and the server has ended, so this case ends here: {words}")
                break
            continue
        found.setdefault(name, Found(files, [])).times.append(took)
    return {name: found[name] for name in known if name in found and name not in failed}


def show(title: str, found: Mapping[str, Found]) -> None:
    """Print what was found."""
    print(f"\n{title}; seconds, median [quartiles]; CPU s/GB of client + server")
    for name, one in found.items():
        walls = [took.wall_s for took in one.times]
        client = one.cpu_s_per_gb(lambda took: took.client_cpu_s)
        server = one.cpu_s_per_gb(lambda took: took.server_cpu_s)
        print(f"  {name:34} {one.files.count:7,} files {with_quartiles(walls)}  {one.files_per_s:8,.0f} files/s {one.bytes_per_s * 8 / GB:7.3f} Gb/s  {client:6.2f} + {server:.2f}",
              flush=True)  # fmt: skip


def rate(found: Mapping[str, Found], name: str) -> float:
    """Return a tool's rate in bytes per second, 0 of one that was left out: what is missing meets no bound."""
    return found[name].bytes_per_s if name in found else 0.0


def ratio(found: Mapping[str, Found], ours: str, peer: str) -> float:
    """Return the ratio of two rates, 0 where one is missing."""
    return rate(found, ours) / rate(found, peer) if peer in found else 0.0


def best_of(found: Mapping[str, Found], start: str = "") -> str:
    """Return the fastest of the peers whose names start so."""
    peers = [name for name in found if not name.startswith("venturi") and name.startswith(start)]
    return max(peers, key=lambda name: found[name].bytes_per_s, default=f"{start}: none has come through")


def small(bench: Bench, memory: Path) -> None:
    """Many small files."""
    for rtt in bench.size.round_trips:
        link = Link("1 Gb/s", rtt)
        with route_up(link, memory) as route:
            files = Files.make(route.served / "small", [SMALL_BYTES] * bench.size.files)
            for way in (DOWN, UP):
                _small(bench, Job(route, files, way), link)


def _small(bench: Bench, job: Job, link: Link) -> None:
    title = f"{job.files.count:,} × 10 KB, {job.way}, {link.name}"
    print(f"\n{title}: settings of globus-url-copy, {bench.size.trial_files:,} files each")
    part = bench.size.trial_files / job.files.count
    best = best_setting(job, tools.globus_steps(bench.quick), lambda words: tools.globus(words, job.way), part)
    slow = min(1.0, bench.size.slow_files / job.files.count)
    peers = [tools.globus(words, job.way, part=slow) for words in ("", "-fast")]
    peers.append(tools.globus(USUAL, job.way, part=part))
    peers.append(best)
    if job.way == UP:
        # Of the lists of a Globus server it takes line ends for a part of the names, so that it downloads nothing.
        peers += [tools.verified(best), *(tools.lftp(f"-P {n}") for n in (16, 64))]
    found = measure(job, [tools.ours(bench.engine, job.way), *peers], bench.size.rounds)
    show(title, found)
    globus = best_of(found, "globus")
    bench.bounds.judge(f"{title}: ours / {globus}", ratio(found, "venturi", globus), least=8)
    bench.bounds.judge(f"{title}: ours / globus {USUAL}", ratio(found, "venturi", f"globus {USUAL}"), least=8)
    row(
        "  link-bound",
        f"{rate(found, 'venturi') * 8 / link.bit_per_s:.0%} of the link is filled by ours, its start and end included",
    )
    if job.way == DOWN:
        bench.bounds.judge(f"{title}: ours / globus -fast", ratio(found, "venturi", "globus -fast"), least=30)


def sets(bench: Bench, memory: Path) -> None:
    """The sets of report 002: as many bytes in small files as in large ones."""
    link = Link("1 Gb/s", "53 ms")
    volume = bench.size.set_bytes
    large_sizes = [size for size in (volume // 12, volume // 6, volume // 3) for _ in range(volume // 3 // size)]
    small_sizes = [size for step in range(10) for size in [8 * KIB << step] * (volume // 10 // (8 * KIB << step))]
    with route_up(link, memory) as route:
        made = {"large": Files.make(route.served / "set-large", large_sizes),
                "small": Files.make(route.served / "set-small", small_sizes)}  # fmt: skip
        for way in bench.size.ways:
            rates: dict[str, dict[str, float]] = {}
            for name, files in made.items():
                slow = min(1.0, 2 * bench.size.slow_files / files.count)
                peers = [tools.globus("-fast -p 4 -cc 2" if name == "large" else "-fast -cc 64", way)]
                peers += [tools.globus("-fast -pp", way, part=slow)] if name == "small" else []
                found = measure(Job(route, files, way), [tools.ours(bench.engine, way), *peers], bench.size.rounds)
                show(f"002 {name} set, {files.size_bytes / 1e6:,.0f} MB, {way}, {link.name}", found)
                rates[name] = {tool: one.bytes_per_s for tool, one in found.items()}
            large_rate = rates["large"].get("venturi", 0)
            for tool, found_rate in rates["small"].items():
                print(
                    f"  {tool}: small set at {found_rate / max(rates['large'].values()):.1%} of the best rate of the large one"
                )
            ratio = rates["small"].get("venturi", 0) / large_rate if large_rate else 0.0
            bench.bounds.judge(f"002 sets, {way}: rate of small / large", ratio, least=0.8)


def large(bench: Bench, memory: Path) -> None:
    """One large file."""
    for link_rate in bench.size.rates:
        for rtt in (bench.size.lan, "53 ms"):
            link = Link(link_rate, rtt)
            with route_up(link, memory) as route:
                files = Files.make(route.served / "large", [bench.size.large_bytes])
                trial = Files.make(route.served / "trial", [bench.size.large_bytes // 4])
                for way in bench.size.ways:
                    _large(bench, Job(route, files, way), Job(route, trial, way), link)


def _large(bench: Bench, job: Job, trial: Job, link: Link) -> None:
    title = f"1 × {job.files.size_bytes / GB:.2g} GB, {job.way}, {link.name}"
    print(f"\n{title}: settings of globus-url-copy, once each with a quarter of the bytes")
    best = best_setting(
        trial, tools.globus_large_steps(bench.quick), lambda words: tools.globus_large(words, job.way), 1.0
    )
    ends = (SERVER, CLIENT) if job.way == DOWN else (CLIENT, SERVER)
    goodputs: list[float] = []
    found = measure(
        job,
        [tools.ours_large(bench.engine, job.way), best],
        bench.size.rounds,
        lambda: goodputs.append(iperf3_bit_per_s(job.route.ground, *ends, job.files.size_bytes)),
    )
    show(title, found)
    # None were measured if the server has ended: that meets no bound.
    goodput = statistics.median(goodputs or [inf])
    print(f"  {'iperf3, of its receiver':34} {goodput / GB:9.3f} Gb/s of as many bytes")
    ours = rate(found, "venturi") * 8 / goodput
    bench.bounds.judge(f"{title}: ours / iperf3's goodput", ours, least=0.97)
    bench.bounds.judge(f"{title}: ours / {best_of(found)}", ratio(found, "venturi", best_of(found)), least=1)


def cpu(bench: Bench, memory: Path) -> None:
    """Processor time a byte of both ends, where nothing else limits."""
    with route_up(Link("10 Gb/s", "0.2 ms"), memory, xrootd=True) as route:
        route.serve(bench.engine)
        files = Files.make(route.served / "large", [bench.size.large_bytes])
        for way in bench.size.ways:
            title = f"1 × {files.size_bytes / GB:.2g} GB, {way}, loopback"
            listed = [tools.ours_large(bench.engine, way, scheme=scheme) for scheme in (SERVE, "ftp", "https")]
            found = measure(Job(route, files, way, SERVER), [*listed, *tools.loopback_peers(way)], bench.size.rounds)
            show(title, found)
            spent = {name: one.cpu_s_per_gb(Took.both_cpu_s) for name, one in found.items()}
            best = min((name for name in spent if not name.startswith("venturi")), key=lambda name: spent[name])
            ours = spent.get(f"venturi {SERVE}", inf)
            bench.bounds.judge(f"{title}: processor time of our ends / {best}", ours / spent[best], most=0.7)


def https(bench: Bench, memory: Path) -> None:
    """HTTPS, with WebDAV where folders are read."""
    with route_up(Link("1 Gb/s", "20 ms"), memory, xrootd=True) as route:
        many = Files.make(route.served / "small", [SMALL_BYTES] * bench.size.files)
        one = Files.make(route.served / "large", [bench.size.large_bytes // 4])
        for way in bench.size.ways:
            job = Job(route, many, way)
            title = f"{many.count:,} × 10 KB by HTTPS, {way}, 1 Gb/s, 20 ms"
            print(f"\n{title}: settings of the peers, {bench.size.trial_files:,} files each")
            peers = [
                best_tool(job, listed, bench.size.trial_files / many.count)
                for listed in tools.https_peers(way, many.count, quick=bench.quick)
            ]
            _https(bench, job, title, [tools.ours(bench.engine, way, scheme="https"), *filter(None, peers)])
            job, title = Job(route, one, way), f"1 × {one.size_bytes / GB:.2g} GB by HTTPS, {way}, 1 Gb/s, 20 ms"
            _https(
                bench,
                job,
                title,
                [tools.ours_large(bench.engine, way, scheme="https"), *tools.https_large_peers(way)],
            )


def _https(bench: Bench, job: Job, title: str, listed: Sequence[Tool]) -> None:
    found = measure(job, listed, bench.size.rounds)
    show(title, found)
    best = best_of(found)
    bench.bounds.judge(f"{title}: ours / {best}", ratio(found, "venturi https", best), least=1)


def main(words: Sequence[str] | None = None) -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(
        prog="mover.py network", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", type=Path, help="the binary under test")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--rounds", type=int)
    parser.add_argument(
        "--quick", action="store_true", help="few files, one round trip, one rate: three to four minutes"
    )
    given = parser.parse_args(words)
    size = QUICK if given.quick else WHOLE
    bench = Bench((given.engine or find_engine()).absolute(), size, given.quick)
    if given.rounds:
        bench.size = Size(**{**size.__dict__, "rounds": given.rounds})
    print_facts(version(bench.engine, "--version"))
    begin = time.monotonic()
    for name in given.only:
        with memory_folder() as memory:
            PARTS[name](bench, memory)
        print(f"  ({name}: {time.monotonic() - begin:.0f} s since the start)")
    bench.bounds.show("What is asked of the mover")


PARTS: dict[str, Callable[[Bench, Path], None]] = {
    "small": small,
    "sets": sets,
    "large": large,
    "cpu": cpu,
    "https": https,
}
