"""How fast is ``venturi copy``, compared with common tools?

Part ``network``: over networks, see ``mover.py network --help``. Part ``tuning``: automatic settings compared with the
best fixed settings, see ``mover.py tuning --help``. Part ``local``: one large file, many small files and a source tree on
a file system of this machine, each tool with good settings. It has two modes:

* ``cache``: the source is in the page cache, and the clock stops at the end of the command;
* ``disk``: the source is not in the page cache, and the clock stops when all data are on the device. ``venturi copy`` bypasses the page
  cache (``--direct``).

Rounds of Venturi and its peers are interleaved in random order. Only reading and only writing in the same rounds give the
limits for the rates. Times are medians, followed by the quartiles. The ratio is the time of the peer divided by ours, so
above 1 ours is faster.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mover_network
import mover_tuning
from figures import Bounds, execute, interleaved, print_environment, version, with_quartiles

from venturi.backend import find_engine

BLOCK = 1 << 20
CORES = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Case:
    """A source and the command lines of the tools that copy it: ``$1`` is the source, ``$2`` the path of the copy."""

    name: str
    source: Path
    files: int
    size_bytes: int
    tools: dict[str, str]


@dataclass(frozen=True)
class Time:
    """Times of one call."""

    wall_s: float
    cpu_s: float


def large(directory: Path, size_bytes: int, engine: Path, mode: str) -> Case:
    """Return the case of one large file."""
    source = directory / "large"
    with source.open("wb") as file:
        for _ in range(size_bytes // BLOCK):
            file.write(os.urandom(BLOCK))
    direct = " --direct" if mode == "disk" else ""
    tools = {
        "venturi": f'{engine} copy{direct} "$1" "$2"',
        "venturi 1 worker": f'{engine} copy{direct} --concurrency 1 "$1" "$2"',
        "cp": 'cp "$1" "$2"',
        "rsync": 'rsync -W --inplace "$1" "$2"',
        "rclone": f'rclone copyto --config= --ignore-checksum --multi-thread-streams={CORES} "$1" "$2"',
    }
    if mode == "disk":
        tools["venturi cached"] = f'{engine} copy "$1" "$2"'
        tools["dd direct"] = 'dd if="$1" of="$2" bs=8M iflag=direct oflag=direct status=none'
    return Case("large", source, 1, source.stat().st_size, tools)


def many(directory: Path, count: int, engine: Path, mode: str) -> Case:
    """Return the case of files of 100 KB, 100 per directory."""
    source = directory / "many"
    content = os.urandom(100_000)
    for number in range(count):
        path = source / f"{number // 100:03d}" / f"{number:06d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return Case("many", source, count, count * len(content), _tree_tools(engine, mode))


def tree(directory: Path, engine: Path, mode: str) -> Case:
    """Return the case of a source tree: the standard library of this Python with its installed packages."""
    source = directory / "tree"
    shutil.copytree(sysconfig.get_path("stdlib"), source, symlinks=True, ignore_dangling_symlinks=True)
    files = [path for path in source.rglob("*") if path.is_file() and not path.is_symlink()]
    return Case("tree", source, len(files), sum(path.stat().st_size for path in files), _tree_tools(engine, mode))


def _tree_tools(engine: Path, mode: str) -> dict[str, str]:
    direct = " --direct" if mode == "disk" else ""
    xargs = f"xargs -0 -P {CORES} -n 64 cp --parents -t"
    return {
        "venturi": f'{engine} copy -r{direct} "$1" "$2"',
        "venturi 1 worker": f'{engine} copy -r{direct} --concurrency 1 "$1" "$2"',
        "cp": 'cp -r "$1" "$2"',
        "rsync": 'rsync -rlt -W "$1/" "$2"',
        "rclone": f'rclone copy --config= --links --ignore-checksum --transfers={2 * CORES} "$1" "$2"',
        "fpsync": f'fpsync -n {CORES} -f 500 -t "$2.fpsync" -o "-lptgoD -W" "$1" "$2"; rm -rf "$2.fpsync"',
        "tar | tar": 'mkdir "$2" && tar -C "$1" -cf - . | tar -C "$2" -xf -',
        "find | xargs cp": f'mkdir "$2"; cd "$1" && find . -type d -print0 | (cd "$2" && xargs -0 mkdir -p) && find . ! -type d -print0 | {xargs} "$2"',
    }


def measure(case: Case, mode: str, rounds: int) -> dict[str, list[Time]]:
    """Return the times of all installed tools, and of only reading and only writing."""
    tools = {name: command for name, command in case.tools.items() if _is_there(name)}
    for name in case.tools.keys() - tools.keys():
        print(f"  {name} is not installed and is not in this comparison")
    tools |= _limits(case, mode)
    times: dict[str, list[Time]] = {name: [] for name in tools}
    copy = case.source.parent / "copy"
    for name in interleaved(list(tools), rounds):
        _wait_for_writeback(case, mode)
        command = tools[name] + (f'; sync -f "{copy.parent}"' if mode == "disk" and name != "read alone" else "")
        times[name].append(_timed(["sh", "-c", command, "sh", str(case.source), str(copy)]))
        if not name.endswith("alone") and len(times[name]) == 1:
            _compare(case.source, copy, name)
        _put_away(copy)
    return times


def _is_there(name: str) -> bool:
    return shutil.which(name.split()[0]) is not None or name.startswith("venturi")


def _limits(case: Case, mode: str) -> dict[str, str]:
    if case.files > 1:
        return {"read alone": 'find "$1" -type f -print0 | xargs -0 cat >/dev/null'}
    flags = ("iflag=direct ", "oflag=direct ") if mode == "disk" else ("", "")
    count = case.size_bytes // (8 << 20)
    block = "bs=8M" if mode == "disk" else "bs=256K"
    count *= 1 if mode == "disk" else 32
    return {
        "read alone": f'dd if="$1" of=/dev/null {block} {flags[0]}status=none',
        "write alone": f'dd if=/dev/zero of="$2" {block} count={count} {flags[1]}status=none',
    }


def _wait_for_writeback(case: Case, mode: str) -> None:
    """Flush all pending writes, and load the source into the page cache or drop it, according to the mode."""
    subprocess.run(["sync", "-f", case.source], check=True)
    advice = os.POSIX_FADV_DONTNEED if mode == "disk" else os.POSIX_FADV_WILLNEED
    for path in [case.source] if case.source.is_file() else [p for p in case.source.rglob("*") if p.is_file()]:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, advice)
            if mode == "cache":
                while file.read(BLOCK):
                    pass


def _put_away(path: Path) -> None:
    """Free the space of a copy; files of directories are truncated and stay until the end.

    ext4 without a journal does not reuse the inode of a removed file for one minute, or for six minutes if the removal is
    not on the device. Each creation of a file first checks all these inodes. The same ``cp -r`` of 46,541 files took 1.3
    s, but 10 to 20 s after the removal of as many files. So measure trees on a file system without many removals in the
    last six minutes, by any program.
    """
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    away = path.parent / "away"
    away.mkdir(exist_ok=True)
    path = path.rename(away / str(len(list(away.iterdir()))))
    for file in path.rglob("*"):
        if file.is_file() and not file.is_symlink():
            file.chmod(0o600)
            os.truncate(file, 0)


def _timed(command: list[str]) -> Time:
    started_s = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.monotonic() - started_s
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"expected exit code 0 from {command[2]}, found {process.returncode}")
    return Time(wall_s, usage.ru_utime + usage.ru_stime)


def _compare(source: Path, copy: Path, name: str) -> None:
    """Exit with an error if a copy differs from its source, because an incomplete copy is not comparable."""
    differ = subprocess.run(
        ["diff", "-rq", "--no-dereference", source, copy], capture_output=True, text=True, check=False
    )
    if differ.returncode:
        sys.exit(f"expected a copy by {name} like its source, found: {differ.stdout}{differ.stderr}")


def show(case: Case, mode: str, times: dict[str, list[Time]], bounds: Bounds) -> None:
    """Print time, ratio to ours, rate and CPU time of each tool."""
    print(
        f"\n{case.name}, {mode}: {case.files:,} files, {case.size_bytes / 1e6:,.1f} MB; seconds, median [quartiles]"
    )
    ours = statistics.median(time.wall_s for time in times["venturi"])
    for name, found in times.items():
        walls = [time.wall_s for time in found]
        median = statistics.median(walls)
        cpu = statistics.median(time.cpu_s for time in found) / case.size_bytes * 1e9
        print(f"  {name:18} {with_quartiles(walls)}  ×{median / ours:5.2f}  {case.size_bytes / median / 1e6:8.0f} MB/s"
              f"  {case.files / median:9,.0f} files/s  {cpu:6.2f} CPU s/GB")  # fmt: skip
    alone = [statistics.median(time.wall_s for time in times[name]) for name in times if name.endswith("alone")]
    peers = {name: statistics.median(time.wall_s for time in found) for name, found in times.items()
             if not name.startswith("venturi") and not name.endswith("alone")}  # fmt: skip
    best = min(peers, key=lambda name: peers[name])
    print(
        f"  best peer: {best}, ×{peers[best] / ours:.2f}; the slower of reading and writing alone takes ×{max(alone) / ours:.2f} of our time"
    )
    bounds.assess(f"{case.name}, {mode}: time of {best} / ours", peers[best] / ours, least=1)


def main() -> None:
    """Run the requested parts."""
    if sys.argv[1:2] == ["network"]:
        mover_network.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["tuning"]:
        mover_tuning.main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=["local", "network", "tuning"], default="local")
    parser.add_argument("--engine", type=Path, help="the binary under test")
    parser.add_argument("--scratch", type=Path, default=None, help="a folder on the file system to measure")
    parser.add_argument("--only", nargs="+", choices=["large", "many", "tree"], default=["large", "many", "tree"])
    parser.add_argument("--modes", nargs="+", choices=["cache", "disk"], default=["cache", "disk"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size-mb", type=int, default=8000, help="of the large file (default 8000)")
    parser.add_argument("--count", type=int, default=10_000, help="of small files (default 10000)")
    parser.add_argument("--quick", action="store_true", help="1 GB, 2000 files, 3 rounds")
    given = parser.parse_args()
    if given.quick:
        given.rounds, given.size_mb, given.count = 3, 1000, 2000
    engine = (given.engine or find_engine()).absolute()
    bounds = Bounds()
    with tempfile.TemporaryDirectory(dir=given.scratch) as scratch:
        directory = Path(scratch)
        _print_environment(engine, directory)
        makers: dict[str, Callable[[str], Case]] = {
            "large": lambda mode: large(directory, given.size_mb * 1_000_000, engine, mode),
            "many": lambda mode: many(directory, given.count, engine, mode),
            "tree": lambda mode: tree(directory, engine, mode),
        }
        for name in given.only:
            for mode in given.modes:
                case = makers[name](mode)
                if mode == "cache":
                    _print_pending(case)
                show(case, mode, measure(case, mode, given.rounds), bounds)
                _put_away(case.source)
    bounds.show("What is asked of the mover")


def _print_pending(case: Case) -> None:
    """Print a warning if a copy is too large for the page cache.

    The kernel makes a writer wait for the device above the mean of the two thresholds: the start of background writing
    and the maximum of dirty pages.
    """
    counters = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    least, most = (int(counters[name]) * os.sysconf("SC_PAGE_SIZE") for name in ("nr_dirty_background_threshold", "nr_dirty_threshold"))  # fmt: skip
    if case.size_bytes > (least + most) / 2:
        print(
            f"\n{case.name}: of {case.size_bytes / 1e9:.1f} GB {(least + most) / 2e9:.1f} may wait to be written (vm.dirty_background_ratio, vm.dirty_ratio): "
            "unless this file system is in memory, times of the page cache are its device's in part"
        )


def _print_environment(engine: Path, directory: Path) -> None:
    output = subprocess.run(
        ["df", "--output=fstype,source,avail", "-h", directory], capture_output=True, text=True, check=True
    ).stdout
    print_environment(version(engine, "--version"))
    print(f"  {output.splitlines()[1].strip()}")
    for tool in ("cp", "rsync", "rclone", "fpsync", "tar"):
        if shutil.which(tool):
            print(f"  {version(tool, '-v' if tool == 'fpsync' else '--version')}")


if __name__ == "__main__":
    execute(main)
