"""Copies that are killed at random moments, client or server, until the same command has all there: each way, as many moments as are asked for.

``python tests/copy/kills.py --kills 200`` prints what came of them, and ends with 1 if one copy is not as it should be. The suite has a few (`test_kills.py`).
"""

import argparse
import contextlib
import dataclasses
import hashlib
import os
import random
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import ftpkit
from copykit import leftovers

LARGE = {"large": (130 << 20) + 12_345, "larger": (200 << 20) + 1}
"""Above 128 MiB files come in chunks, of which a record is kept."""
SMALL_FILES = 400
PATIENCE_S = 120
"""An undisturbed copy takes seconds."""
MOST_MOMENTS = 3
"""Kills of one copy, before it may go on to its end."""
MOST_LATE = 40
"""Kills of a way that come after the copy's end, until that is a fault: they count for nothing."""
AT_THE_ENDS = 0.25
"""Share of the moments that are near the beginning or the end, where names, journals and sessions change."""


class Wrong(AssertionError):
    """A copy is not as it should be."""


def make_tree(folder, *, large=LARGE, small=SMALL_FILES, wide=False):
    """Make a tree of small and empty files, odd names, links, a sparse file and files in chunks, which anybody may read.

    Names beyond ASCII are there if it is `wide`: servers of the Globus toolkit do not take them.
    """
    draws = random.Random(str(folder.name))
    names = ["plain {}", "quote'\"{}", "$;*?[{}]", "100%{}#&", *(["é ÿ {}"] if wide else [])]
    for number in range(small):
        path = folder / f"d{number % 7}" / f"e {number % 3}" / names[number % len(names)].format(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(draws.randbytes(draws.choice((0, 1, 4096, 65_537, draws.randrange(200_000)))))
        path.chmod(draws.choice((0o644, 0o755, 0o664)))
    for name, size in large.items():
        with (folder / name).open("wb") as file:
            for begin in range(0, size, 1 << 20):
                file.write(draws.randbytes(min(1 << 20, size - begin)))
    with (folder / "sparse").open("wb") as file:
        file.truncate(32 << 20)
        file.seek(9 << 20)
        file.write(b"between holes")
    (folder / "empty").mkdir()
    (folder / "d0" / "link").symlink_to("../d1")
    for path in sorted(folder.rglob("*"), reverse=True):
        if not path.is_symlink():
            os.utime(path, (1_600_000_000, 1_600_000_000))
        if path.is_dir() and not path.is_symlink():
            path.chmod(draws.choice((0o755, 0o775)))


class Globus:
    """A globus-gridftp-server of a folder for anybody, which can be killed with its sessions and be there again at its port."""

    scheme = "ftp"

    def __init__(self, folder):
        self.folder, self.port, self._server = folder, ftpkit.free_port(), None
        self.start()

    def start(self):
        self._server = ftpkit.Server(self.folder, self.port)

    def kill(self):
        sessions = self._server.sessions()
        self._server.stop()
        for session in sessions:
            with contextlib.suppress(ProcessLookupError):
                os.kill(session, signal.SIGKILL)

    def url(self, path):
        return f"ftp://127.0.0.1:{self.port}{path}"

    def rest(self):
        """Return how many of its sessions outlive their clients, and end them: a third-party copy may leave one whose other server was killed."""
        with contextlib.suppress(Wrong):
            until(lambda: not self._server.sessions(), "the sessions of a client that has gone to end", 30)
        left = self._server.sessions()
        for session in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(session, signal.SIGKILL)
        return len(left)


class Ours:
    """Our own server of a folder, by FTP or HTTP, which can be killed and be there again at its port."""

    def __init__(self, engine, folder, door, *words):
        self.folder, self.port, self.scheme = folder, ftpkit.free_port(), {"--listen": "ftp", "--http": "http"}[door]
        self._command = [engine, "serve", folder, door, f"127.0.0.1:{self.port}", "--write", *words]
        self._process = None
        self.start()

    def start(self):
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        until(self._answers, "our server to listen")

    def _answers(self):
        assert self._process.poll() is None, "our server ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5):
            return True
        return False

    def kill(self):
        self._process.kill()
        self._process.wait()

    def url(self, path):
        return f"{self.scheme}://127.0.0.1:{self.port}/{path.relative_to(self.folder)}"

    def rest(self):
        """See that it lives, and wait until it has ended its sessions: a server that ends by itself would pass for one that was killed. It has no process but its own."""
        assert self._process.poll() is None, "our server ended"
        until(lambda: not self._writes(), "the files of a client that has gone to be closed")
        return 0

    def _writes(self):
        """Return whether a file that is not whole is open."""
        found = False
        for descriptor in Path(f"/proc/{self._process.pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # it was closed meanwhile
                found |= descriptor.readlink().name.startswith(".venturi-")
        return found


def until(what, named, most_s=PATIENCE_S):
    """Wait until something is true that no event tells of."""
    end = time.monotonic() + most_s
    while not what():
        if time.monotonic() > end:
            raise Wrong(f"expected {named} within {most_s} s")
        time.sleep(0.01)


@dataclasses.dataclass
class Way:
    """A kind of copy."""

    name: str
    source: Path
    copied: Path
    words: list
    """Of the command."""
    servers: list
    times_of: tuple = (stat.S_IFREG,)
    """Kinds of which times are promised."""
    holes: bool = False
    """Whether holes stay holes."""


def ways_of(engine, folder, wanted, **tree):
    """Begin the servers of the ways that are wanted, with their trees in `folder`; yield the ways, and end the servers."""
    for name in ("narrow", "wide"):
        (folder / name).mkdir()
        make_tree(folder / name, wide=name == "wide", **tree)
    (folder / "tokens").write_text("sesame\n")
    (folder / "tokens").chmod(0o600)
    third = ("--tokens", folder / "tokens", "--third-party")
    kinds = {
        "globus": lambda: Globus(folder),
        "serve-ftp": lambda: Ours(engine, folder, "--listen"),
        "serve-http": lambda: Ours(engine, folder, "--http", *third),
    }
    regular, directory = stat.S_IFREG, stat.S_IFDIR
    for name in wanted:
        kind, _, other = name.partition(":")
        tree = folder / ("narrow" if "globus" in name else "wide")
        out = folder / f"out {name.replace(':', ' ')}"
        out.mkdir()
        out.chmod(0o777)
        copied = out / "copy"
        servers = [kinds[one]() for one in other.split("+") if one]
        source, destination = tree, copied
        if kind in ("from", "between"):
            source = servers[0].url(tree)
        if kind in ("to", "between"):
            destination = servers[-1].url(copied)
        times = (regular, stat.S_IFLNK, directory) if kind == "local" else (regular,)
        if name == "between:serve-http+serve-http":
            times = ()  # a COPY of HTTP says nothing of them
        way = Way(name, tree, copied, ["-q", "-r", "-T", source, destination], servers, times, kind == "local")
        try:
            yield way
        finally:
            for server in servers:
                server.kill()
            shutil.rmtree(out)


WAYS = [
    "local",
    *(f"{direction}:{server}" for server in ("globus", "serve-ftp", "serve-http") for direction in ("from", "to")),
    "between:globus+globus",
    "between:serve-http+serve-http",
]


def signature(way, root):
    """Return what is promised of a tree, by relative path: kind, mode, time, and the SHA-256 of files or what a link leads to."""
    found = {}
    for path in sorted([root, *root.rglob("*")]):
        seen, kind = path.lstat(), stat.S_IFMT(path.lstat().st_mode)
        what = [kind, seen.st_mode & 0o7777, seen.st_mtime_ns if kind in way.times_of else None]
        if kind == stat.S_IFREG:
            with path.open("rb") as file:
                what.append(hashlib.file_digest(file, "sha256").hexdigest())
            what.append(way.holes and seen.st_blocks * 512 < seen.st_size // 2)
        elif kind == stat.S_IFLNK:
            what.append(os.fsencode(path.resolve().relative_to(root.resolve())))
        found[os.fsencode(path.relative_to(root))] = what
    return found


def digests(found):
    """Return the SHA-256 of each file."""
    return {name: what[3] for name, what in found.items() if what[0] == stat.S_IFREG}


def begin(engine, way):
    """Begin a copy."""
    environment = {**os.environ, "BEARER_TOKEN": "sesame"}
    # A session of its own tells what it leaves behind.
    command = [engine, "copy", *way.words]
    return subprocess.Popen(command, stderr=subprocess.PIPE, env=environment, start_new_session=True)


class Killer:
    """Kills copies of one way at moments that a seed decides, and holds what comes of them against an undisturbed one."""

    def __init__(self, engine, way, seed):
        self.way = way
        self.count = Counter()
        self._engine = engine
        self._draws = random.Random(f"{seed} {way.name}")
        source = digests(signature(way, way.source))
        begun = time.monotonic()
        self._undisturbed()
        self._whole_s = time.monotonic() - begun
        self._expected = signature(way, way.copied)
        self._digests = digests(self._expected)
        # Servers that follow links show what they lead to under both names.
        by_link = {name for name in self._digests if name.startswith(b"d0/link/")}
        lacking = source.items() ^ self._digests.items()
        if {name for name, _ in lacking} - by_link:
            raise Wrong(f"undisturbed, but not the same: {sorted(lacking)[:5]}")
        self._clear()

    def _clear(self):
        for path in self.way.copied.parent.iterdir():
            shutil.rmtree(path)

    def _end(self, process):
        try:
            said = process.communicate(timeout=PATIENCE_S)[1].decode()
        except subprocess.TimeoutExpired as late:
            process.kill()
            process.communicate()
            raise Wrong(f"no end within {PATIENCE_S} s") from late
        if "panicked" in said or processes_of(process.pid):
            raise Wrong(f"a panic, or it left {processes_of(process.pid)}: {said[-2000:]}")
        return said

    def _undisturbed(self):
        process = begin(self._engine, self.way)
        said = self._end(process)
        if process.returncode != 0:
            raise Wrong(f"undisturbed, but code {process.returncode}: {said[-2000:]}")

    def moment_s(self):
        """Return when to kill after the beginning, in seconds."""
        place = self._draws.random()
        if self._draws.random() < AT_THE_ENDS:
            place = self._draws.choice((place * 0.05, 1 - place * 0.15))
        return place * self._whole_s

    def copy(self):
        """Have one copy killed up to so many times, then go on to its end; hold it against the undisturbed one."""
        for _ in range(self._draws.randint(1, MOST_MOMENTS)):
            self._kill_one()
            self._names_are_of_whole_files()
        self._undisturbed()
        found = signature(self.way, self.way.copied)
        if found != self._expected:
            names = sorted(name for name in {*found, *self._expected} if found.get(name) != self._expected.get(name))
            raise Wrong(f"{names[:5]}: {found.get(names[0])} instead of {self._expected.get(names[0])}")
        for server in self.way.servers:
            self.count["stayed"] += server.rest()
        if left := leftovers(self.way.copied.parent) + leftovers(self.way.source):
            raise Wrong(f"it left {left[:5]}")
        self.count["copies"] += 1
        self._clear()

    def _kill_one(self):
        victim = self._draws.choice(["client", *self.way.servers])
        at_once = self._draws.random() < 0.5
        process = begin(self._engine, self.way)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(self.moment_s())
        if process.poll() is not None:
            self._end(process)
            self._late()
            return
        if victim == "client":
            process.kill()
            self._end(process)
        else:
            victim.kill()
            if at_once:
                victim.start()
            said = self._end(process)
            if not at_once:
                victim.start()
            if process.returncode not in (0, 1, 3) or (process.returncode and not said.strip()):
                raise Wrong(f"its server was killed: code {process.returncode}, {said[-2000:]}")
            self.count["went on"] += process.returncode == 0
        self.count["client" if victim == "client" else "server"] += 1

    def _late(self):
        self.count["late"] += 1
        self._whole_s *= 0.9  # the first copy was slower: a cold cache, a busy machine
        if self.count["late"] > MOST_LATE:
            raise Wrong("copies end before they are killed")
        self._clear()

    def _names_are_of_whole_files(self):
        if not self.way.copied.exists():
            return
        for path in self.way.copied.rglob("*"):
            name = os.fsencode(path.relative_to(self.way.copied))
            if path.is_symlink() or not path.is_file() or path.name.startswith(".venturi-"):
                continue
            with path.open("rb") as file:
                whole = hashlib.file_digest(file, "sha256").hexdigest() == self._digests.get(name)
            if not whole:
                raise Wrong(f"{name!r} has its name, and other bytes")


def processes_of(session):
    """Return the processes of a session that live."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, _, _, owner = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(owner) == session and state != "Z":
                found.append(int(folder.name))
    return found


def kill(engine, folder, kills, seed, wanted=None, tell=print, **tree):
    """Kill copies of the ways that are wanted (all), `kills` times in all or a few more; return what is wrong, a sentence each."""
    wrong = []
    names = wanted or WAYS
    share = -(-kills // len(names))
    for way in ways_of(engine, folder, names, **tree):
        begun, count = time.monotonic(), Counter()
        try:
            killer = Killer(engine, way, seed)
            count = killer.count
            while count["client"] + count["server"] < share:
                killer.copy()
        except (Wrong, AssertionError) as fault:
            wrong.append(f"{way.name}, after {dict(count)}: {fault}")
            tell(f"WRONG {wrong[-1]}")
        tell(
            f"{way.name:30} killed: client {count['client']:3}, server {count['server']:3} ({count['went on']} times the client went on); "
            f"{count['copies']:3} copies as they should be, {count['late']} ended before, "
            f"{count['stayed']} sessions of other people's servers stayed; {time.monotonic() - begun:.0f} s"
        )
    return wrong


def main():
    """Do as the words of the command say."""
    words = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    words.add_argument("--engine", default="venturi-engine")
    words.add_argument("--kills", type=int, default=200)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--way", action="append", choices=WAYS)
    words.add_argument("--folder", type=Path, default=Path("/dev/shm"), help="where there are 2 GB (/dev/shm)")
    given = words.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="venturi-kills-", dir=given.folder))
    folder.chmod(0o755)
    try:
        wrong = kill(shutil.which(given.engine), folder, given.kills, given.seed, given.way)
    finally:
        shutil.rmtree(folder)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
