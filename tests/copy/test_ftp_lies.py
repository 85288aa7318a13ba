"""`venturi-engine copy` with a server that fails, cuts, repeats or lies at one step: it ends, and what it calls done is right."""

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
# Of all pairs of a step and a misdeed one run of the suite has every 25th: they take a quarter of a second each.
STRIDE = 25
AT_ONCE = 4

TREE = {"/d/one": CONTENT, "/d/none": b"", "/d/deep/two": CONTENT[::-1]}
FOLDERS = ("/d", "/d/deep")
DIRECTIONS = {
    "down": {"/a": CONTENT},
    "up": {"/a": CONTENT},
    "tree down": TREE,
    "tree up": TREE,
    "third from": {"/a": CONTENT},
    "third to": {"/a": CONTENT},
}
"""What is copied. Of a third-party copy the source does the misdeed, or the destination."""


def words(peer, other, folder, direction):
    """Return the places of a copy, with its source made."""
    tree = ["-r", "-T"] if direction.startswith("tree") else []
    name = "/d" if tree else "/a"
    if direction.startswith("third"):
        source, destination = (peer, other) if direction == "third from" else (other, peer)
        return [source.url("/a"), destination.url("/up")]
    if direction.endswith("down"):
        return [*tree, peer.url(name), folder / "copied"]
    for path, content in DIRECTIONS[direction].items():
        (folder / "source" / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (folder / "source" / path[1:]).write_bytes(content)
    return [*tree, folder / "source" / name[1:], peer.url("/up")]


def copied(peer, folder, direction):
    """Return what has come to be at the destination, by the names of its source; nothing for what is not there."""
    found = {}
    for path in DIRECTIONS[direction]:
        name = path.removeprefix("/d" if direction.startswith("tree") else "/a")
        place = folder / f"copied{name}"
        there = place.read_bytes() if place.is_file() else None
        found[path] = there if direction.endswith("down") else peer.files.get(f"/up{name}")
    return found


def run(engine, folder, direction, step=None, misdeed=""):
    """Copy with a peer of its own; return how it ended, what is at the destination, and the steps."""
    folder.mkdir()
    files = DIRECTIONS[direction]
    is_source = direction.endswith(("down", "from"))
    peer = FakePeer(files if is_source else {}, step, misdeed, folders=FOLDERS if is_source else ())
    other = FakePeer({} if is_source else files)
    try:
        done = subprocess.run(
            [engine, "copy", *words(peer, other, folder, direction)],
            capture_output=True,
            check=False,
            timeout=50,
            cwd=folder,
        )
    finally:
        peer.stop()
        other.stop()
    return done, copied(other if direction == "third from" else peer, folder, direction), peer.steps


def fault_of(engine, folder, direction, step, misdeed):
    """Return what is wrong with a copy beside a misdeed, or nothing."""
    try:
        done, there, _ = run(engine, folder, direction, step, misdeed)
    except subprocess.TimeoutExpired:
        return "no end"
    wanted = DIRECTIONS[direction]
    if done.returncode == 0 and there != wanted:
        return "done, and other bytes"
    if done.returncode not in (0, 1, 3) or b"panicked" in done.stderr:
        return f"code {done.returncode}: {done.stderr[-500:]!r}"
    others = [path for path, content in there.items() if content not in (None, wanted[path])]
    if done.returncode != 0 and (others or not done.stderr.strip()):
        return f"failed, and other bytes under a name, or no reason: {done.stderr[-500:]!r}"
    return None


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_misdeed_at_any_step_ends_in_the_right_bytes_or_in_a_reason(engine, tmp_path, direction):
    done, there, steps = run(engine, tmp_path / "honest", direction)
    assert (done.returncode, there) == (0, DIRECTIONS[direction]), done.stderr
    # Bytes that a source passes over on the way to another server nobody sees but a checksum.
    unseen = ["skip"] if direction == "third from" else []
    misdeeds = {kind: [one for one in known if one not in unseen] for kind, known in MISDEEDS.items()}
    pairs = [(step, misdeed) for step, what in enumerate(steps) for misdeed in misdeeds[what.split()[0]]]
    chosen = every(pairs, STRIDE)
    assert chosen
    with ThreadPoolExecutor(AT_ONCE) as pool:
        folders = [tmp_path / str(number) for number in range(len(chosen))]
        faults = pool.map(lambda pair, folder: fault_of(engine, folder, direction, *pair), chosen, folders)
        wrong = [
            (steps[step], misdeed, fault) for (step, misdeed), fault in zip(chosen, faults, strict=True) if fault
        ]
    assert wrong == []


def upload_of(engine, folder, peer, *words):
    """Copy files whose modes are not the usual one to a peer; return what was said, and what the peer did."""
    (folder / "source").mkdir(exist_ok=True)
    for name in "abcde":
        (folder / "source" / name).write_bytes(CONTENT)
        (folder / "source" / name).chmod(0o600)
    try:
        command = [engine, "copy", "-r", "-T", *words, folder / "source", peer.url("/up")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    finally:
        peer.stop()
    assert done.returncode == 0, done
    assert peer.files == {f"/up/{name}": CONTENT for name in "abcde"}
    return done, peer.steps


def test_modes_that_a_server_refuses_are_told_once_and_not_to_who_asks_for_none(engine, tmp_path):
    done, steps = upload_of(engine, tmp_path, FakePeer({}, refused=["SITE"]))
    assert steps.count("do SITE") >= 5
    assert done.stderr.count("does not set its mode (550 No.)") == 1
    done, _ = upload_of(engine, tmp_path, FakePeer({}, refused=["SITE"]), "--json")
    assert done.stdout.count('"what":"mode"') == 1
    for words in (["-q"], ["--preserve", "times"]):
        assert upload_of(engine, tmp_path, FakePeer({}, refused=["SITE"]), *words)[0].stderr == ""
    assert upload_of(engine, tmp_path, FakePeer({}))[0].stderr == ""


def test_a_mode_is_asked_for_again_when_its_session_is_lost(engine, tmp_path):
    words = ("--fixed", "--preserve", "mode")
    steps = upload_of(engine, tmp_path, FakePeer({}), *words)[1]
    asked = max(at for at, step in enumerate(steps) if step == "do SITE")
    done, lost = upload_of(engine, tmp_path, FakePeer({}, asked + 1, "hang up"), *words)
    assert lost[asked] == "do SITE", "the same step"
    assert lost.count("do SITE") > steps.count("do SITE")
    assert done.stderr == ""
