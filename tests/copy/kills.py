"""Kill copies at random moments, client or server, and resume each with the same command until it is complete.

``python tests/copy/kills.py --kills 200`` prints the results for each kind of copy. It exits with 1 if a copy is wrong.
The test suite runs a few kills (`test_kills.py`).
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
"""Files above 128 MiB are copied in chunks, with a chunk map."""
SMALL_FILES = 400
TIMEOUT_S = 120
"""Timeout of an undisturbed copy, which takes seconds."""
MOST_MOMENTS = 3
"""Kills of one copy before it can complete."""
MOST_LATE = 40
"""Maximum kills per kind of copy that come after its end, and therefore do not count; more are an error."""
AT_THE_ENDS = 0.25
"""Fraction of the kills near the start or the end, where names, journals and sessions change."""


class Wrong(AssertionError):
    """A copy is wrong."""


def make_tree(directory, *, large=LARGE, small=SMALL_FILES, wide=False):
    """Create a tree readable by all users: small and empty files, odd names, links, a sparse file and large files.

    If `wide`, it contains names beyond ASCII, which Globus servers do not accept.
    """
    draws = random.Random(str(directory.name))
    names = ["plain {}", "quote'\"{}", "$;*?[{}]", "100%{}#&", *(["é ÿ {}"] if wide else [])]
    for number in range(small):
        path = directory / f"d{number % 7}" / f"e {number % 3}" / names[number % len(names)].format(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(draws.randbytes(draws.choice((0, 1, 4096, 65_537, draws.randrange(200_000)))))
        path.chmod(draws.choice((0o644, 0o755, 0o664)))
    for name, size in large.items():
        with (directory / name).open("wb") as file:
            for start_copy in range(0, size, 1 << 20):
                file.write(draws.randbytes(min(1 << 20, size - start_copy)))
    with (directory / "sparse").open("wb") as file:
        file.truncate(32 << 20)
        file.seek(9 << 20)
        file.write(b"between holes")
    (directory / "empty").mkdir()
    (directory / "d0" / "link").symlink_to("../d1")
    for path in sorted(directory.rglob("*"), reverse=True):
        if not path.is_symlink():
            os.utime(path, (1_600_000_000, 1_600_000_000))
        if path.is_dir() and not path.is_symlink():
            path.chmod(draws.choice((0o755, 0o775)))


class Globus:
    """A globus-gridftp-server of a directory, which can be killed with its sessions and restarted at its port."""

    scheme = "ftp"

    def __init__(self, directory):
        self.directory, self.port, self._server = directory, ftpkit.free_port(), None
        self.start()

    def start(self):
        self._server = ftpkit.Server(self.directory, self.port)

    def kill(self):
        sessions = self._server.sessions()
        self._server.stop()
        for session in sessions:
            with contextlib.suppress(ProcessLookupError):
                os.kill(session, signal.SIGKILL)

    def url(self, path):
        return f"ftp://127.0.0.1:{self.port}{path}"

    def rest(self):
        """End the sessions that outlive their clients, and return their number.

        A third-party copy can leave a session whose other server was killed.
        """
        with contextlib.suppress(Wrong):
            until(lambda: not self._server.sessions(), "the sessions of a client that has gone to end", 30)
        left = self._server.sessions()
        for session in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(session, signal.SIGKILL)
        return len(left)


class Ours:
    """Our own server of a directory, over FTP or HTTP, which can be killed and restarted at its port."""

    def __init__(self, engine, directory, service_port, *words):
        self.directory, self.port, self.scheme = (
            directory,
            ftpkit.free_port(),
            {"--listen": "ftp", "--http": "http"}[service_port],
        )
        self._command = [engine, "serve", directory, service_port, f"127.0.0.1:{self.port}", "--write", *words]
        self._process = None
        self.start()

    def start(self):
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        until(self._is_listening, "our server to listen")

    def _is_listening(self):
        assert self._process.poll() is None, "our server ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5):
            return True
        return False

    def kill(self):
        self._process.kill()
        self._process.wait()

    def url(self, path):
        return f"{self.scheme}://127.0.0.1:{self.port}/{path.relative_to(self.directory)}"

    def rest(self):
        """Check that the server runs, wait until its sessions have closed their files, and return 0.

        A server that crashed would otherwise look like a killed one. It has no child processes.
        """
        assert self._process.poll() is None, "our server ended"
        until(lambda: not self._writes(), "the files of a client that has gone to be closed")
        return 0

    def _writes(self):
        """Return whether an incomplete file is open."""
        found = False
        for descriptor in Path(f"/proc/{self._process.pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # it was closed in the meantime
                found |= descriptor.readlink().name.startswith(".venturi-")
        return found


def until(what, named, most_s=TIMEOUT_S):
    """Wait for a condition without an event."""
    end = time.monotonic() + most_s
    while not what():
        if time.monotonic() > end:
            raise Wrong(f"expected {named} within {most_s} s")
        time.sleep(0.01)


@dataclasses.dataclass
class CopyMethod:
    """A kind of copy."""

    name: str
    source: Path
    copied: Path
    words: list
    """Arguments of the command."""
    servers: list
    times_of: tuple = (stat.S_IFREG,)
    """Kinds of entries whose times are preserved."""
    holes: bool = False
    """`True` if holes are preserved."""


def methods_of(engine, home, expected, **tree):
    """Yield the requested kinds of copy, each with its servers running and with trees in `home`."""
    for name in ("narrow", "wide"):
        (home / name).mkdir()
        make_tree(home / name, wide=name == "wide", **tree)
    (home / "tokens").write_text("sesame\n")
    (home / "tokens").chmod(0o600)
    third = ("--tokens", home / "tokens", "--third-party")
    kinds = {
        "globus": lambda: Globus(home),
        "serve-ftp": lambda: Ours(engine, home, "--listen"),
        "serve-http": lambda: Ours(engine, home, "--http", *third),
    }
    regular, directory = stat.S_IFREG, stat.S_IFDIR
    for name in expected:
        kind, _, other = name.partition(":")
        tree = home / ("narrow" if "globus" in name else "wide")
        out = home / f"out {name.replace(':', ' ')}"
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
            times = ()  # a COPY of HTTP does not preserve times
        method = CopyMethod(
            name, tree, copied, ["-q", "-r", "-T", source, destination], servers, times, kind == "local"
        )
        try:
            yield method
        finally:
            for server in servers:
                server.kill()
            shutil.rmtree(out)


METHODS = [
    "local",
    *(f"{direction}:{server}" for server in ("globus", "serve-ftp", "serve-http") for direction in ("from", "to")),
    "between:globus+globus",
    "between:serve-http+serve-http",
]


def signature(method, root):
    """Return the guaranteed properties of a tree by relative path.

    These are kind, mode and time, and the SHA-256 of files or the target of links.
    """
    found = {}
    for path in sorted([root, *root.rglob("*")]):
        seen, kind = path.lstat(), stat.S_IFMT(path.lstat().st_mode)
        what = [kind, seen.st_mode & 0o7777, seen.st_mtime_ns if kind in method.times_of else None]
        if kind == stat.S_IFREG:
            with path.open("rb") as file:
                what.append(hashlib.file_digest(file, "sha256").hexdigest())
            what.append(method.holes and seen.st_blocks * 512 < seen.st_size // 2)
        elif kind == stat.S_IFLNK:
            what.append(os.fsencode(path.resolve().relative_to(root.resolve())))
        found[os.fsencode(path.relative_to(root))] = what
    return found


def digests(found):
    """Return the SHA-256 of each file."""
    return {name: what[3] for name, what in found.items() if what[0] == stat.S_IFREG}


def start_copy(engine, method):
    """Start a copy."""
    environment = {**os.environ, "BEARER_TOKEN": "sesame"}
    # A new session identifies the processes that it leaves.
    command = [engine, "copy", *method.words]
    return subprocess.Popen(command, stderr=subprocess.PIPE, env=environment, start_new_session=True)


class Killer:
    """Kills copies of one kind at seeded random moments, and compares the results with an undisturbed copy."""

    def __init__(self, engine, method, seed):
        self.method = method
        self.count = Counter()
        self._engine = engine
        self._draws = random.Random(f"{seed} {method.name}")
        source = digests(signature(method, method.source))
        started = time.monotonic()
        self._undisturbed()
        self._whole_s = time.monotonic() - started
        self._expected = signature(method, method.copied)
        self._digests = digests(self._expected)
        # Servers that follow links list the targets under both names.
        by_link = {name for name in self._digests if name.startswith(b"d0/link/")}
        lacking = source.items() ^ self._digests.items()
        if {name for name, _ in lacking} - by_link:
            raise Wrong(f"undisturbed, but not the same: {sorted(lacking)[:5]}")
        self._clear()

    def _clear(self):
        for path in self.method.copied.parent.iterdir():
            shutil.rmtree(path)

    def _end(self, process):
        try:
            printed = process.communicate(timeout=TIMEOUT_S)[1].decode()
        except subprocess.TimeoutExpired as late:
            process.kill()
            process.communicate()
            raise Wrong(f"no end within {TIMEOUT_S} s") from late
        if "panicked" in printed or processes_of(process.pid):
            raise Wrong(f"a panic, or it left {processes_of(process.pid)}: {printed[-2000:]}")
        return printed

    def _undisturbed(self):
        process = start_copy(self._engine, self.method)
        printed = self._end(process)
        if process.returncode != 0:
            raise Wrong(f"undisturbed, but code {process.returncode}: {printed[-2000:]}")

    def moment_s(self):
        """Return the time of a kill after the start, in seconds."""
        location = self._draws.random()
        if self._draws.random() < AT_THE_ENDS:
            location = self._draws.choice((location * 0.05, 1 - location * 0.15))
        return location * self._whole_s

    def copy(self):
        """Kill one copy up to `MOST_MOMENTS` times, complete it, and compare it with the undisturbed one."""
        for _ in range(self._draws.randint(1, MOST_MOMENTS)):
            self._kill_one()
            self._names_are_of_whole_files()
        self._undisturbed()
        found = signature(self.method, self.method.copied)
        if found != self._expected:
            names = sorted(name for name in {*found, *self._expected} if found.get(name) != self._expected.get(name))
            raise Wrong(f"{names[:5]}: {found.get(names[0])} instead of {self._expected.get(names[0])}")
        for server in self.method.servers:
            self.count["stayed"] += server.rest()
        if left := leftovers(self.method.copied.parent) + leftovers(self.method.source):
            raise Wrong(f"it left {left[:5]}")
        self.count["copies"] += 1
        self._clear()

    def _kill_one(self):
        victim = self._draws.choice(["client", *self.method.servers])
        at_once = self._draws.random() < 0.5
        process = start_copy(self._engine, self.method)
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
            printed = self._end(process)
            if not at_once:
                victim.start()
            if process.returncode not in (0, 1, 3) or (process.returncode and not printed.strip()):
                raise Wrong(f"its server was killed: code {process.returncode}, {printed[-2000:]}")
            self.count["went on"] += process.returncode == 0
        self.count["client" if victim == "client" else "server"] += 1

    def _late(self):
        self.count["late"] += 1
        self._whole_s *= 0.9  # the first copy was slower, because of a cold cache or a busy machine
        if self.count["late"] > MOST_LATE:
            raise Wrong("copies end before they are killed")
        self._clear()

    def _names_are_of_whole_files(self):
        if not self.method.copied.exists():
            return
        for path in self.method.copied.rglob("*"):
            name = os.fsencode(path.relative_to(self.method.copied))
            if path.is_symlink() or not path.is_file() or path.name.startswith(".venturi-"):
                continue
            with path.open("rb") as file:
                whole = hashlib.file_digest(file, "sha256").hexdigest() == self._digests.get(name)
            if not whole:
                raise Wrong(f"{name!r} has its name, and other bytes")


def processes_of(session):
    """Return the live processes of a session."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, _, _, owner = (directory / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(owner) == session and state != "Z":
                found.append(int(directory.name))
    return found


def kill(engine, directory, kills, seed, expected=None, report=print, **tree):
    """Kill copies of the requested kinds (default: all), about `kills` times in total. Return the errors."""
    wrong = []
    names = expected or METHODS
    kills_per_method = -(-kills // len(names))
    for method in methods_of(engine, directory, names, **tree):
        started, count = time.monotonic(), Counter()
        try:
            killer = Killer(engine, method, seed)
            count = killer.count
            while count["client"] + count["server"] < kills_per_method:
                killer.copy()
        except (Wrong, AssertionError) as fault:
            wrong.append(f"{method.name}, after {dict(count)}: {fault}")
            report(f"WRONG {wrong[-1]}")
        report(
            f"{method.name:30} killed: client {count['client']:3}, server {count['server']:3} (the client finished {count['went on']} times); "
            f"{count['copies']:3} correct copies, {count['late']} ended before the kill, "
            f"{count['stayed']} sessions of other servers remained; {time.monotonic() - started:.0f} s"
        )
    return wrong


def main():
    """Run the command line."""
    words = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    words.add_argument("--engine", type=Path, default=Path(sys.executable).with_name("venturi-engine"))
    words.add_argument("--kills", type=int, default=200)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--method", action="append", choices=METHODS)
    words.add_argument(
        "--directory",
        type=Path,
        default=Path("/dev/shm"),
        help="directory with 2 GB of free space (default: /dev/shm)",
    )
    given = words.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="venturi-kills-", dir=given.directory))
    directory.chmod(0o755)
    try:
        wrong = kill(str(given.engine.absolute()), directory, given.kills, given.seed, given.method)
    finally:
        shutil.rmtree(directory)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
