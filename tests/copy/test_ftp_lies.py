"""`venturi-engine copy` with a server that fails, cuts, repeats or lies at one step: it ends, and what it calls done is right."""

import itertools
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from fakepeer import FakePeer

CONTENT = bytes(range(256)) * 60
MISDEEDS = {
    "do": ["fail"],
    "say": ["hang up", "cut", "garbage", "flood", "endless", "number", "done", "twice"],
    "send": ["close data", "skip", "noise", "cut"],
    "take": ["close data"],
}
# Of all pairs of a step and a misdeed one run of the suite has every fifth: they take a quarter of a second each.
STRIDE = 5
AT_ONCE = 4


def words(peer, folder, direction):
    if direction == "down":
        return [peer.url("/a"), str(folder / "a")]
    (folder / "source").write_bytes(CONTENT)
    return [str(folder / "source"), peer.url("/up")]


def run(engine, folder, direction, step=None, misdeed=""):
    """Copy with a peer of its own; return how it ended, what is at the destination, and the steps."""
    folder.mkdir()
    peer = FakePeer({"/a": CONTENT}, step, misdeed)
    try:
        done = subprocess.run(
            [engine, "copy", *words(peer, folder, direction)],
            capture_output=True,
            check=False,
            timeout=50,
            cwd=folder,
        )
    finally:
        peer.stop()
    there = peer.files.get("/up")
    if direction == "down":
        there = (folder / "a").read_bytes() if (folder / "a").exists() else None
    return done, there, peer.steps


def fault_of(engine, folder, direction, step, misdeed):
    """Return what is wrong with a copy beside a misdeed, or nothing."""
    try:
        done, there, _ = run(engine, folder, direction, step, misdeed)
    except subprocess.TimeoutExpired:
        return "no end"
    if done.returncode == 0 and there != CONTENT:
        return "done, and other bytes"
    if done.returncode not in (0, 1, 3):
        return f"code {done.returncode}: {done.stderr[-500:]!r}"
    if done.returncode != 0 and (there not in (None, CONTENT) or not done.stderr.strip()):
        return f"failed, and other bytes under its name, or no reason: {done.stderr[-500:]!r}"
    return None


@pytest.mark.parametrize("direction", ["down", "up"])
def test_a_misdeed_at_any_step_ends_in_the_right_bytes_or_in_a_reason(engine, tmp_path, direction):
    done, there, steps = run(engine, tmp_path / "honest", direction)
    assert (done.returncode, there) == (0, CONTENT), done.stderr
    pairs = [(step, misdeed) for step, what in enumerate(steps) for misdeed in MISDEEDS[what.split()[0]]]
    chosen = list(itertools.islice(pairs, 0, None, STRIDE))
    assert len(chosen) > 20
    with ThreadPoolExecutor(AT_ONCE) as pool:
        folders = [tmp_path / str(number) for number in range(len(chosen))]
        faults = pool.map(lambda pair, folder: fault_of(engine, folder, direction, *pair), chosen, folders)
        wrong = [
            (steps[step], misdeed, fault) for (step, misdeed), fault in zip(chosen, faults, strict=True) if fault
        ]
    assert wrong == []
