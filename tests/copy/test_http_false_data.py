"""`venturi-engine copy` with a faulty HTTP server.

The server fails, truncates, repeats or lies at one step. Every copy ends, and a successful one has the correct bytes.
"""

import random
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from copykit import every
from fakeweb import FakeWeb

SMALL = bytes(range(256)) * 60
# Copied in chunks, with a chunk map.
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
CASES = {
    "one down": ({"/a": SMALL}, False),
    "large down": ({"/a": LARGE}, False),
    "tree down": (TREE, False),
    "one up": ({"/a": SMALL}, True),
    "large up": ({"/a": LARGE}, True),
    "tree up": (TREE, True),
    "between": ({"/a": SMALL}, None),
}
"""Files of a copy, and its direction: upload (`True`), download (`False`), or pull from another server (`None`)."""
# A run of the suite tests every eleventh pair of a step and a fault.
STRIDE = 11
AT_ONCE = 4
# Memory limit of a copy, which ends with a signal beyond it. No response may take more.
MAX_MEMORY_BYTES = 400 << 20


def arguments(peer, directory, files, up):
    """Return the arguments of a copy, after creating its source."""
    recursive = ["-r", "-T"] if "/d/one" in files else []
    name = "/d" if recursive else "/a"
    if up is None:
        return [peer.beyond.url(name), peer.url("/up")]
    if not up:
        return [*recursive, peer.url(name), directory / "copied"]
    for path, content in files.items():
        (directory / "source" / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (directory / "source" / path[1:]).write_bytes(content)
    return [*recursive, directory / "source" / name[1:], peer.url("/up")]


def copied(peer, directory, files, up):
    """Return the bytes at the destination by the name of their source; None for missing files."""
    base = "/d" if "/d/one" in files else "/a"
    found = {}
    for path in files:
        name = path.removeprefix(base)
        if up is not False:
            found[path] = peer.files.get(f"/up{name}")
        else:
            location = directory / f"copied{name}"
            found[path] = location.read_bytes() if location.is_file() else None
    return found


def run(engine, directory, case, step=None, misdeed=""):
    """Copy with a new peer; return the process, the bytes at the destination, other files next to it, and the steps."""
    files, up = CASES[case]
    directory.mkdir()
    beyond = FakeWeb(files) if up is None else None
    peer = FakeWeb(files if up is False else {}, step, misdeed, beyond=beyond)
    command = [engine, "copy", "--fixed", "--existing", "replace", *arguments(peer, directory, files, up)]
    try:
        done = subprocess.run(
            ["prlimit", f"--data={MAX_MEMORY_BYTES}", *command], capture_output=True, check=False, timeout=100
        )
    finally:
        peer.stop()
        if beyond:
            beyond.stop()
    alongside = {path.name for path in directory.iterdir() if not path.name.startswith(".venturi-")}
    return done, copied(peer, directory, files, up), alongside - {"copied", "source"}, peer.steps


def check_fault(engine, directory, case, step, misdeed):
    """Return the error of a copy with a fault, or None."""
    try:
        done, found, alongside, _ = run(engine, directory, case, step, misdeed)
    except subprocess.TimeoutExpired:
        return "no end"
    expected, up = CASES[case]
    others = [name for name, content in found.items() if content not in (None, expected[name])]
    if alongside:
        return f"{alongside} beside the copy"
    if done.returncode == 0 and found != expected:
        return f"done, and other bytes, or none: {others}"
    if done.returncode not in (0, 1, 3) or b"panicked" in done.stderr:
        return f"code {done.returncode}: {done.stderr[-500:]!r}"
    # After a failed upload, the server is responsible for partial files.
    if done.returncode != 0 and (not done.stderr.strip() or (others and not up)):
        return f"failed, and other bytes under its name, or no reason: {done.stderr[-500:]!r}"
    return None


@pytest.mark.parametrize("case", CASES)
def test_a_server_fault_at_any_step_yields_correct_bytes_or_an_error(engine, tmp_path, case):
    done, found, _, steps = run(engine, tmp_path / "honest", case)
    assert (done.returncode, found) == (0, CASES[case][0]), done.stderr
    pairs = [(step, misdeed) for step, change in enumerate(steps) for misdeed in MISDEEDS[change.split()[0]]]
    chosen = every(pairs, STRIDE)
    assert chosen
    with ThreadPoolExecutor(AT_ONCE) as pool:
        directories = [tmp_path / str(number) for number in range(len(chosen))]
        faults = pool.map(lambda pair, directory: check_fault(engine, directory, case, *pair), chosen, directories)
        wrong = [
            (steps[step], misdeed, fault) for (step, misdeed), fault in zip(chosen, faults, strict=True) if fault
        ]
    assert wrong == []
