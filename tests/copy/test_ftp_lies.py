"""`venturi-engine copy` with a faulty FTP server.

The server fails, truncates, repeats or lies at one step. Every copy ends, and a successful one has the correct bytes.
"""

import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from copykit import every
from fakepeer import FakePeer

CONTENT = bytes(range(256)) * 60
MISDEEDS = {
    "do": ["fail"],
    "say": ["hang up", "cut", "garbage", "flood", "endless", "number", "done", "twice"],
    "send": ["close data", "skip", "noise", "cut"],
    "take": ["close data"],
}
# A run of the suite tests every 25th pair of a step and a fault; each takes a quarter of a second.
STRIDE = 25
AT_ONCE = 4

TREE = {"/d/one": CONTENT, "/d/none": b"", "/d/deep/two": CONTENT[::-1]}
DIRECTORIES = ("/d", "/d/deep")
DIRECTIONS = {
    "down": {"/a": CONTENT},
    "up": {"/a": CONTENT},
    "tree down": TREE,
    "tree up": TREE,
    "third from": {"/a": CONTENT},
    "third to": {"/a": CONTENT},
}
"""Copied files. In a third-party copy, the source or the destination has the fault."""


def words(peer, other, directory, direction):
    """Return the arguments of a copy, after creating its source."""
    tree = ["-r", "-T"] if direction.startswith("tree") else []
    name = "/d" if tree else "/a"
    if direction.startswith("third"):
        source, destination = (peer, other) if direction == "third from" else (other, peer)
        return [source.url("/a"), destination.url("/up")]
    if direction.endswith("down"):
        return [*tree, peer.url(name), directory / "copied"]
    for path, content in DIRECTIONS[direction].items():
        (directory / "source" / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (directory / "source" / path[1:]).write_bytes(content)
    return [*tree, directory / "source" / name[1:], peer.url("/up")]


def copied(peer, directory, direction):
    """Return the bytes at the destination by the name of their source; None for missing files."""
    found = {}
    for path in DIRECTIONS[direction]:
        name = path.removeprefix("/d" if direction.startswith("tree") else "/a")
        location = directory / f"copied{name}"
        there = location.read_bytes() if location.is_file() else None
        found[path] = there if direction.endswith("down") else peer.files.get(f"/up{name}")
    return found


def run(engine, directory, direction, step=None, misdeed=""):
    """Copy with a new peer; return the process, the bytes at the destination, and the steps."""
    directory.mkdir()
    files = DIRECTIONS[direction]
    is_source = direction.endswith(("down", "from"))
    peer = FakePeer(files if is_source else {}, step, misdeed, directories=DIRECTORIES if is_source else ())
    other = FakePeer({} if is_source else files)
    try:
        done = subprocess.run(
            [engine, "copy", *words(peer, other, directory, direction)],
            capture_output=True,
            check=False,
            timeout=50,
            cwd=directory,
        )
    finally:
        peer.stop()
        other.stop()
    return done, copied(other if direction == "third from" else peer, directory, direction), peer.steps


def fault_of(engine, directory, direction, step, misdeed):
    """Return the error of a copy with a fault, or None."""
    try:
        done, there, _ = run(engine, directory, direction, step, misdeed)
    except subprocess.TimeoutExpired:
        return "no end"
    expected = DIRECTIONS[direction]
    if done.returncode == 0 and there != expected:
        return "done, and other bytes"
    if done.returncode not in (0, 1, 3) or b"panicked" in done.stderr:
        return f"code {done.returncode}: {done.stderr[-500:]!r}"
    others = [path for path, content in there.items() if content not in (None, expected[path])]
    if done.returncode != 0 and (others or not done.stderr.strip()):
        return f"failed, and other bytes under a name, or no reason: {done.stderr[-500:]!r}"
    return None


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_server_fault_at_any_step_yields_correct_bytes_or_an_error(engine, tmp_path, direction):
    done, there, steps = run(engine, tmp_path / "honest", direction)
    assert (done.returncode, there) == (0, DIRECTIONS[direction]), done.stderr
    # Only a checksum detects bytes that a source omits on the way to another server.
    unseen = ["skip"] if direction == "third from" else []
    misdeeds = {kind: [one for one in known if one not in unseen] for kind, known in MISDEEDS.items()}
    pairs = [(step, misdeed) for step, what in enumerate(steps) for misdeed in misdeeds[what.split()[0]]]
    chosen = every(pairs, STRIDE)
    assert chosen
    with ThreadPoolExecutor(AT_ONCE) as pool:
        directories = [tmp_path / str(number) for number in range(len(chosen))]
        faults = pool.map(lambda pair, directory: fault_of(engine, directory, direction, *pair), chosen, directories)
        wrong = [
            (steps[step], misdeed, fault) for (step, misdeed), fault in zip(chosen, faults, strict=True) if fault
        ]
    assert wrong == []


def upload_of(engine, directory, peer, *words):
    """Upload files with unusual modes to a peer; return the output and the state of the peer."""
    (directory / "source").mkdir(exist_ok=True)
    for name in "abcde":
        (directory / "source" / name).write_bytes(CONTENT)
        (directory / "source" / name).chmod(0o600)
    try:
        command = [engine, "copy", "-r", "-T", *words, directory / "source", peer.url("/up")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    finally:
        peer.stop()
    assert done.returncode == 0, done
    assert peer.files == {f"/up/{name}": CONTENT for name in "abcde"}
    return done, peer.steps


def test_rejected_modes_are_reported_once_and_only_if_modes_are_requested(engine, tmp_path):
    done, steps = upload_of(engine, tmp_path, FakePeer({}, rejected=["SITE"]))
    assert steps.count("do SITE") >= 5
    assert done.stderr.count("does not set its mode (550 No.)") == 1
    done, _ = upload_of(engine, tmp_path, FakePeer({}, rejected=["SITE"]), "--json")
    assert done.stdout.count('"setting":"mode"') == 1
    for words in (["-q"], ["--preserve", "times"]):
        assert upload_of(engine, tmp_path, FakePeer({}, rejected=["SITE"]), *words)[0].stderr == ""
    assert upload_of(engine, tmp_path, FakePeer({}))[0].stderr == ""


def test_a_mode_command_is_repeated_after_its_session_is_lost(engine, tmp_path):
    words = ("--fixed", "--preserve", "mode")
    steps = upload_of(engine, tmp_path, FakePeer({}), *words)[1]
    requested = max(at for at, step in enumerate(steps) if step == "do SITE")
    done, lost = upload_of(engine, tmp_path, FakePeer({}, requested + 1, "hang up"), *words)
    assert lost[requested] == "do SITE", "the same step"
    assert lost.count("do SITE") > steps.count("do SITE")
    assert done.stderr == ""
