"""`venturi-engine copy` with a server of HTTP that fails, cuts, repeats or lies at one step: it ends, and what it calls done is right."""

import random
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from copykit import every
from fakeweb import FakeWeb

SMALL = bytes(range(256)) * 60
# It comes in pieces, and leaves a record.
LARGE = random.Random(1).randbytes((9 << 20) + 5)
TREE = {"/d/one": SMALL, "/d/none": b"", "/d/deep/two": SMALL[::-1]}
MISDEEDS = {
    "do": ["hang up", "refuse", "busy", "redirect"],
    "say": [
        *("hang up", "garbage", "endless", "interim", "twice", "longer", "shorter", "shifted", "another", "status"),
        *("lie", "cut"),
    ],
    "send": ["close", "skip", "noise", "change", "cut"],
    "take": ["close"],
    "list": ["half", "elsewhere", "sizes", "loop", "page"],
    "tell": ["nothing", "failure", "silence"],
}
WAYS = {
    "one down": ({"/a": SMALL}, False),
    "large down": ({"/a": LARGE}, False),
    "tree down": (TREE, False),
    "one up": ({"/a": SMALL}, True),
    "large up": ({"/a": LARGE}, True),
    "tree up": (TREE, True),
    "between": ({"/a": SMALL}, None),
}
"""What is copied, and whether it goes to the server; or it pulls from another one."""
# Of all pairs of a step and a misdeed one run of the suite has every eleventh.
STRIDE = 11
AT_ONCE = 4
# More than this it does not get, and ends with a signal: nobody's answer may take so much.
MOST_MEMORY_BYTES = 400 << 20


def words(peer, folder, files, up):
    """Return the places of a copy, with its source made."""
    recursive = ["-r", "-T"] if "/d/one" in files else []
    name = "/d" if recursive else "/a"
    if up is None:
        return [peer.beyond.url(name), peer.url("/up")]
    if not up:
        return [*recursive, peer.url(name), folder / "copied"]
    for path, content in files.items():
        (folder / "source" / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (folder / "source" / path[1:]).write_bytes(content)
    return [*recursive, folder / "source" / name[1:], peer.url("/up")]


def copied(peer, folder, files, up):
    """Return what has come to be at the destination, by the names of its source; nothing for what is not there."""
    base = "/d" if "/d/one" in files else "/a"
    found = {}
    for path in files:
        name = path.removeprefix(base)
        if up is not False:
            found[path] = peer.files.get(f"/up{name}")
        else:
            place = folder / f"copied{name}"
            found[path] = place.read_bytes() if place.is_file() else None
    return found


def run(engine, folder, way, step=None, misdeed=""):
    """Copy with a peer of its own; return how it ended, what is at the destination, what is beside it, and the steps."""
    files, up = WAYS[way]
    folder.mkdir()
    beyond = FakeWeb(files) if up is None else None
    peer = FakeWeb(files if up is False else {}, step, misdeed, beyond=beyond)
    command = [engine, "copy", "--fixed", "--existing", "replace", *words(peer, folder, files, up)]
    try:
        done = subprocess.run(
            ["prlimit", f"--data={MOST_MEMORY_BYTES}", *command], capture_output=True, check=False, timeout=100
        )
    finally:
        peer.stop()
        if beyond:
            beyond.stop()
    beside = {path.name for path in folder.iterdir() if not path.name.startswith(".venturi-")}
    return done, copied(peer, folder, files, up), beside - {"copied", "source"}, peer.steps


def fault_of(engine, folder, way, step, misdeed):
    """Return what is wrong with a copy beside a misdeed, or nothing."""
    try:
        done, found, beside, _ = run(engine, folder, way, step, misdeed)
    except subprocess.TimeoutExpired:
        return "no end"
    wanted, up = WAYS[way]
    others = [name for name, content in found.items() if content not in (None, wanted[name])]
    if beside:
        return f"{beside} beside the copy"
    if done.returncode == 0 and found != wanted:
        return f"done, and other bytes, or none: {others}"
    if done.returncode not in (0, 1, 3) or b"panicked" in done.stderr:
        return f"code {done.returncode}: {done.stderr[-500:]!r}"
    # What is half at a server after an upload that failed is that server's doing.
    if done.returncode != 0 and (not done.stderr.strip() or (others and not up)):
        return f"failed, and other bytes under its name, or no reason: {done.stderr[-500:]!r}"
    return None


@pytest.mark.parametrize("way", WAYS)
def test_a_misdeed_at_any_step_ends_in_the_right_bytes_or_in_a_reason(engine, tmp_path, way):
    done, found, _, steps = run(engine, tmp_path / "honest", way)
    assert (done.returncode, found) == (0, WAYS[way][0]), done.stderr
    pairs = [(step, misdeed) for step, what in enumerate(steps) for misdeed in MISDEEDS[what.split()[0]]]
    chosen = every(pairs, STRIDE)
    assert chosen
    with ThreadPoolExecutor(AT_ONCE) as pool:
        folders = [tmp_path / str(number) for number in range(len(chosen))]
        faults = pool.map(lambda pair, folder: fault_of(engine, folder, way, *pair), chosen, folders)
        wrong = [
            (steps[step], misdeed, fault) for (step, misdeed), fault in zip(chosen, faults, strict=True) if fault
        ]
    assert wrong == []
