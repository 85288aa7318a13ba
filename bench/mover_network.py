"""How fast does ``venturi copy`` transfer files over a network, compared with the tools that physicists use?

    python bench/mover.py network [--quick] [--only PART ...] [--rounds N] [--engine ENGINE]

Each part uses the emulated network of the lab between two hosts, with unmodified third-party servers, cubic, and files in
memory at both ends:

- *small*: 10,000 files of 10 KB by GridFTP at 20 and 53 ms and 1 Gb/s, download and upload;
- *sets*: the small and the large set of report 002 over 53 ms; the large set and rates are scaled by ten;
- *large*: one file of 4 GB at 1 and 5 Gb/s, on a LAN and over 53 ms, compared with iperf3 with the same number of bytes;
- *cpu*: CPU seconds per GB of both hosts over loopback;
- *https*: many small files and a large file by HTTPS/WebDAV.

Peers run with the best settings from a stepwise sweep in the same run; the sweep is printed. Then rounds of Venturi and
its peers are interleaved in random order, with empty destinations. A tool that would need hours gets only a fraction of
the files, because rates of whole commands with their logins are compared. The copy of the first round of each tool is
compared with its source byte by byte. Figures are medians, followed by the quartiles. Requires root.
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
from figures import Bounds, interleaved, print_environment, row, version, with_quartiles
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
    memory_directory,
    route_up,
)
from mover_network_tools import DOWN, UP, Tool

from venturi.backend import find_engine

GB = 1e9
KIB = 1 << 10
SMALL_BYTES = 10_000
USUAL = "-fast -cc 8"
"""Common options of experienced globus-url-copy users for many small files; the sweep tests more."""


@dataclass(frozen=True)
class Size:
    """Amounts of data: of the whole benchmark, or of a benchmark of three minutes."""

    files: int
    trial_files: int
    slow_files: int
    set_bytes: int
    large_bytes: int
    rounds: int
    round_trips: tuple[str, ...] = ("20 ms", "53 ms")
    rates: tuple[str, ...] = ("1 Gb/s", "5 Gb/s")
    lan: str = "0.2 ms"
    directions: tuple[str, ...] = (DOWN, UP)
    """Directions, except of many small files, which always use both."""


WHOLE = Size(10_000, 3_000, 300, 2_400_000_000, 4_000_000_000, 5)
QUICK = Size(500, 200, 20, 60_000_000, 100_000_000, 2, ("20 ms",), ("1 Gb/s",), directions=(DOWN,))


@dataclass
class Bench:
    """One run of the benchmark."""

    engine: Path
    size: Size
    quick: bool
    bounds: Bounds = field(default_factory=Bounds)


@dataclass(frozen=True)
class Job:
    """Files to transfer over a route, and the direction.

    Attributes
    ----------
    route
        The open route.
    files
        The whole set; a fraction for a slow tool has files of all sizes.
    direction
        Download or upload.
    host
        Host of the client.
    """

    route: Route
    files: Files
    direction: str
    host: str = CLIENT

    def execute(self, tool: Tool, *, check: bool) -> tuple[Files, Took]:
        """Transfer the files with a tool; return its files and times."""
        files = self.files.part(max(1, round(tool.part * self.files.count)))
        sink = emptied((self.route.memory if self.direction == DOWN else self.route.served) / "sink")
        local, far = (sink, files.directory) if self.direction == DOWN else (files.directory, sink)
        remote = self.route.url(far, tool.scheme)
        listed = self._list(files, remote, local, tool.scheme)
        words = [remote, str(local), str(listed), str(far)]
        if files.count == 1:
            words[:2] = [f"{remote}/000000", f"{local}/000000"]
        took = self.route.call(tool.command, *words, host=self.host, scheme=tool.scheme)
        if check:
            compare(files.directory, sink, tool.name)
        emptied(sink)
        return files, took

    def _list(self, files: Files, remote: str, local: Path, scheme: str) -> Path:
        names = sorted(path.name for path in files.directory.iterdir())
        listed = self.route.memory / "list"
        make = tools.pairs if scheme == "ftp" else tools.curl_config
        listed.write_text(make(remote, local, names, self.direction))
        listed.with_name("list.sources").write_text("".join(f"{remote}/{name}\n" for name in names))
        return listed


@dataclass(frozen=True)
class Found:
    """Times of a tool in its rounds."""

    files: Files
    times: list[Took]

    @property
    def wall_s(self) -> float:
        """Median of the times."""
        return statistics.median(took.wall_s for took in self.times)

    @property
    def files_per_s(self) -> float:
        """Files per second at the median time."""
        return self.files.count / self.wall_s

    @property
    def bytes_per_s(self) -> float:
        """Bytes per second at the median time."""
        return self.files.size_bytes / self.wall_s

    def cpu_s_per_gb(self, end: Callable[[Took], float]) -> float:
        """Return the median of the CPU time per GB."""
        return statistics.median(map(end, self.times)) / self.files.size_bytes * GB


def best_setting(job: Job, steps: Sequence[Sequence[str]], make: Callable[[str], Tool], part: float) -> Tool:
    """Return a tool with its best setting from a stepwise search: ``{}`` is the best setting of the previous steps."""
    words = ""
    for step in steps:
        settings = {make(one).name: one for one in (one.replace("{}", words) for one in step)}
        best = best_tool(job, [make(one) for one in settings.values()], part)
        words = settings[best.name] if best else words
    return make(words)


def best_tool(job: Job, listed: Sequence[Tool], part: float) -> Tool | None:
    """Return the fastest tool or setting in one round with a fraction of the files, and print each.

    One round is enough, because settings near the best are equivalent. The rounds of the comparison follow later.
    """
    walls_s: dict[float, Tool] = {}
    for tool in listed:
        try:
            _, took = job.execute(replace(tool, part=min(part, tool.part)), check=False)
        except SystemExit as failure:
            row("  tried", f"{tool.name}: failed: {str(failure)[-160:]!r}")
            continue
        row("  tried", f"{took.wall_s:8.3f} s  {tool.name}")
        walls_s[took.wall_s] = tool
    return walls_s[min(walls_s)] if walls_s else None


def measure(
    job: Job, listed: Sequence[Tool], rounds: int, meanwhile: Callable[[], None] = lambda: None
) -> dict[str, Found]:
    """Return the times of each tool in interleaved rounds; a tool that fails in its first round is reported and omitted.

    ``meanwhile`` is an additional measurement, called once per round.
    """
    known = {tool.name: tool for tool in listed if tool.installed}
    for tool in listed:
        if not tool.installed:
            print(f"  {tool.name} is not installed and is not in this comparison")
    found: dict[str, Found] = {}
    failed: set[str] = set()
    for name in interleaved([*known, ""], rounds):
        if not name:
            meanwhile()
        if name not in known or name in failed:
            continue
        try:
            files, took = job.execute(known[name], check=name not in found)
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
    """Print the results."""
    print(f"\n{title}; seconds, median [quartiles]; CPU s/GB of client + server")
    for name, one in found.items():
        walls = [took.wall_s for took in one.times]
        client = one.cpu_s_per_gb(lambda took: took.client_cpu_s)
        server = one.cpu_s_per_gb(lambda took: took.server_cpu_s)
        print(f"  {name:34} {one.files.count:7,} files {with_quartiles(walls)}  {one.files_per_s:8,.0f} files/s {one.bytes_per_s * 8 / GB:7.3f} Gb/s  {client:6.2f} + {server:.2f}",
              flush=True)  # fmt: skip


def rate(found: Mapping[str, Found], name: str) -> float:
    """Return the rate of a tool in bytes per second, or 0 for an omitted tool, so that it fails every bound."""
    return found[name].bytes_per_s if name in found else 0.0


def ratio(found: Mapping[str, Found], ours: str, peer: str) -> float:
    """Return the ratio of two rates, or 0 if a rate is missing."""
    return rate(found, ours) / rate(found, peer) if peer in found else 0.0


def best_of(found: Mapping[str, Found], start: str = "") -> str:
    """Return the fastest peer with this prefix of its name."""
    peers = [name for name in found if not name.startswith("venturi") and name.startswith(start)]
    return max(peers, key=lambda name: found[name].bytes_per_s, default=f"{start}: none has come through")


def small(bench: Bench, memory: Path) -> None:
    """Measure many small files."""
    for rtt in bench.size.round_trips:
        link = Link("1 Gb/s", rtt)
        with route_up(link, memory) as route:
            files = Files.make(route.served / "small", [SMALL_BYTES] * bench.size.files)
            for direction in (DOWN, UP):
                _small(bench, Job(route, files, direction), link)


def _small(bench: Bench, job: Job, link: Link) -> None:
    title = f"{job.files.count:,} × 10 KB, {job.direction}, {link.name}"
    print(f"\n{title}: settings of globus-url-copy, {bench.size.trial_files:,} files each")
    part = bench.size.trial_files / job.files.count
    best = best_setting(job, tools.globus_steps(bench.quick), lambda words: tools.globus(words, job.direction), part)
    slow = min(1.0, bench.size.slow_files / job.files.count)
    peers = [tools.globus(words, job.direction, part=slow) for words in ("", "-fast")]
    peers.append(tools.globus(USUAL, job.direction, part=part))
    peers.append(best)
    if job.direction == UP:
        # lftp treats line ends in the lists of a Globus server as parts of the names, so its downloads fail.
        peers += [tools.verified(best), *(tools.lftp(f"-P {n}") for n in (16, 64))]
    found = measure(job, [tools.ours(bench.engine, job.direction), *peers], bench.size.rounds)
    show(title, found)
    globus = best_of(found, "globus")
    bench.bounds.assess(f"{title}: ours / {globus}", ratio(found, "venturi", globus), least=8)
    bench.bounds.assess(f"{title}: ours / globus {USUAL}", ratio(found, "venturi", f"globus {USUAL}"), least=8)
    row(
        "  link-bound",
        f"{rate(found, 'venturi') * 8 / link.bit_per_s:.0%} of the link is filled by ours, its start and end included",
    )
    if job.direction == DOWN:
        bench.bounds.assess(f"{title}: ours / globus -fast", ratio(found, "venturi", "globus -fast"), least=30)


def sets(bench: Bench, memory: Path) -> None:
    """Measure the sets of report 002, which have equal numbers of bytes in small and large files."""
    link = Link("1 Gb/s", "53 ms")
    volume = bench.size.set_bytes
    large_sizes = [size for size in (volume // 12, volume // 6, volume // 3) for _ in range(volume // 3 // size)]
    small_sizes = [size for step in range(10) for size in [8 * KIB << step] * (volume // 10 // (8 * KIB << step))]
    with route_up(link, memory) as route:
        made = {"large": Files.make(route.served / "set-large", large_sizes),
                "small": Files.make(route.served / "set-small", small_sizes)}  # fmt: skip
        for direction in bench.size.directions:
            rates: dict[str, dict[str, float]] = {}
            for name, files in made.items():
                slow = min(1.0, 2 * bench.size.slow_files / files.count)
                peers = [tools.globus("-fast -p 4 -cc 2" if name == "large" else "-fast -cc 64", direction)]
                peers += [tools.globus("-fast -pp", direction, part=slow)] if name == "small" else []
                found = measure(
                    Job(route, files, direction), [tools.ours(bench.engine, direction), *peers], bench.size.rounds
                )
                show(f"002 {name} set, {files.size_bytes / 1e6:,.0f} MB, {direction}, {link.name}", found)
                rates[name] = {tool: one.bytes_per_s for tool, one in found.items()}
            large_rate = rates["large"].get("venturi", 0)
            for tool, found_rate in rates["small"].items():
                print(
                    f"  {tool}: small set at {found_rate / max(rates['large'].values()):.1%} of the best rate of the large one"
                )
            ratio = rates["small"].get("venturi", 0) / large_rate if large_rate else 0.0
            bench.bounds.assess(f"002 sets, {direction}: rate of small / large", ratio, least=0.8)


def large(bench: Bench, memory: Path) -> None:
    """Measure one large file."""
    for link_rate in bench.size.rates:
        for rtt in (bench.size.lan, "53 ms"):
            link = Link(link_rate, rtt)
            with route_up(link, memory) as route:
                files = Files.make(route.served / "large", [bench.size.large_bytes])
                trial = Files.make(route.served / "trial", [bench.size.large_bytes // 4])
                for direction in bench.size.directions:
                    _large(bench, Job(route, files, direction), Job(route, trial, direction), link)


def _large(bench: Bench, job: Job, trial: Job, link: Link) -> None:
    title = f"1 × {job.files.size_bytes / GB:.2g} GB, {job.direction}, {link.name}"
    print(f"\n{title}: settings of globus-url-copy, once each with a quarter of the bytes")
    best = best_setting(
        trial, tools.globus_large_steps(bench.quick), lambda words: tools.globus_large(words, job.direction), 1.0
    )
    ends = (SERVER, CLIENT) if job.direction == DOWN else (CLIENT, SERVER)
    goodputs: list[float] = []
    found = measure(
        job,
        [tools.ours_large(bench.engine, job.direction), best],
        bench.size.rounds,
        lambda: goodputs.append(iperf3_bit_per_s(job.route.sandbox, *ends, job.files.size_bytes)),
    )
    show(title, found)
    # Without a measurement, because the server has exited, the bound must fail.
    goodput = statistics.median(goodputs or [inf])
    print(f"  {'iperf3, of its receiver':34} {goodput / GB:9.3f} Gb/s of as many bytes")
    ours = rate(found, "venturi") * 8 / goodput
    bench.bounds.assess(f"{title}: ours / iperf3's goodput", ours, least=0.97)
    bench.bounds.assess(f"{title}: ours / {best_of(found)}", ratio(found, "venturi", best_of(found)), least=1)


def cpu(bench: Bench, memory: Path) -> None:
    """Measure CPU time per byte of both hosts, without another limit."""
    with route_up(Link("10 Gb/s", "0.2 ms"), memory, xrootd=True) as route:
        route.serve(bench.engine)
        files = Files.make(route.served / "large", [bench.size.large_bytes])
        for direction in bench.size.directions:
            title = f"1 × {files.size_bytes / GB:.2g} GB, {direction}, loopback"
            listed = [tools.ours_large(bench.engine, direction, scheme=scheme) for scheme in (SERVE, "ftp", "https")]
            found = measure(
                Job(route, files, direction, SERVER), [*listed, *tools.loopback_peers(direction)], bench.size.rounds
            )
            show(title, found)
            spent = {name: one.cpu_s_per_gb(Took.both_cpu_s) for name, one in found.items()}
            best = min((name for name in spent if not name.startswith("venturi")), key=lambda name: spent[name])
            ours = spent.get(f"venturi {SERVE}", inf)
            bench.bounds.assess(f"{title}: processor time of our ends / {best}", ours / spent[best], most=0.7)


def https(bench: Bench, memory: Path) -> None:
    """Measure HTTPS, with WebDAV to list directories."""
    with route_up(Link("1 Gb/s", "20 ms"), memory, xrootd=True) as route:
        many = Files.make(route.served / "small", [SMALL_BYTES] * bench.size.files)
        one = Files.make(route.served / "large", [bench.size.large_bytes // 4])
        for direction in bench.size.directions:
            job = Job(route, many, direction)
            title = f"{many.count:,} × 10 KB by HTTPS, {direction}, 1 Gb/s, 20 ms"
            print(f"\n{title}: settings of the peers, {bench.size.trial_files:,} files each")
            peers = [
                best_tool(job, listed, bench.size.trial_files / many.count)
                for listed in tools.https_peers(direction, many.count, quick=bench.quick)
            ]
            _https(bench, job, title, [tools.ours(bench.engine, direction, scheme="https"), *filter(None, peers)])
            job, title = (
                Job(route, one, direction),
                f"1 × {one.size_bytes / GB:.2g} GB by HTTPS, {direction}, 1 Gb/s, 20 ms",
            )
            _https(
                bench,
                job,
                title,
                [tools.ours_large(bench.engine, direction, scheme="https"), *tools.https_large_peers(direction)],
            )


def _https(bench: Bench, job: Job, title: str, listed: Sequence[Tool]) -> None:
    found = measure(job, listed, bench.size.rounds)
    show(title, found)
    best = best_of(found)
    bench.bounds.assess(f"{title}: ours / {best}", ratio(found, "venturi https", best), least=1)


def main(words: Sequence[str] | None = None) -> None:
    """Run the requested parts."""
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
    print_environment(version(bench.engine, "--version"))
    started_s = time.monotonic()
    for name in given.only:
        with memory_directory() as memory:
            PARTS[name](bench, memory)
        print(f"  ({name}: {time.monotonic() - started_s:.0f} s since the start)")
    bench.bounds.show("What is asked of the mover")


PARTS: dict[str, Callable[[Bench, Path], None]] = {
    "small": small,
    "sets": sets,
    "large": large,
    "cpu": cpu,
    "https": https,
}
