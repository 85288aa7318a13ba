"""What befalls copies to and from our own server, of FTP and of HTTP alike: few threads, links that are named, names on stable storage, events without room."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from copykit import copy, end_of, events, leftovers, tree_of

from testkit import needs_programs, wait_until


@pytest.fixture
def places(engine, tmp_path):
    """Have a server of FTP and HTTP; yields a place of each kind for the same tree, and where that is."""
    (tmp_path / "served").mkdir()
    log = tmp_path / "serve.jsonl"
    doors = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    with log.open("wb") as out:
        command = [engine, "serve", tmp_path / "served", *doors, "--write", "--json"]
        process = subprocess.Popen(command, stdout=out)
    with process:
        wait_until(lambda: b"\n" in log.read_bytes(), "the server to listen", 20)
        started = json.loads(log.read_text().split("\n")[0])
        names = {"local": tmp_path / "served"}
        names |= {
            "ftp": f"ftp://{started['listen'][0]}",
            "http": f"http://localhost:{started['http'][0].rpartition(':')[2]}",
        }
        yield names
        process.kill()


@needs_programs("strace")
@pytest.mark.parametrize("upwards", [False, True], ids=["down", "up"])
@pytest.mark.parametrize("kind", ["local", "ftp", "http"])
def test_a_copy_for_which_there_are_few_threads_is_slower_or_says_so(engine, places, tmp_path, kind, upwards):
    source = tmp_path / ("own" if upwards else "served") / "tree"
    for number in range(30):
        (source / f"{number % 3}").mkdir(parents=True, exist_ok=True)
        (source / f"{number % 3}" / f"file {number}").write_bytes(os.urandom(number * 10_000))
    done = 0
    for count in range(1, 8):
        name = f"copy {count}"
        copied = tmp_path / ("served" if upwards else "own") / name
        # The thread of that number, and none of those after it, is to be had, of those that a thread starts.
        none = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"inject=clone3:error=EAGAIN:when={count}+"]
        ends = (source, f"{places[kind]}/copy%20{count}") if upwards else (f"{places[kind]}/tree", copied)
        ends = (source, copied) if kind == "local" else ends
        (tmp_path / "own").mkdir(exist_ok=True)
        told = subprocess.run(
            [*none, engine, "copy", "-r", *ends], capture_output=True, text=True, timeout=60, check=False
        )
        assert "panicked" not in told.stderr, (count, told.stderr)
        if told.returncode == 0:
            done += 1
            assert tree_of(copied, times=False).keys() == tree_of(source, times=False).keys()
        else:
            assert told.returncode in {1, 3}, (count, told)
            assert "ulimit -u" in told.stderr, (count, told.stderr)
    assert done > 0


@needs_programs("strace")
@pytest.mark.parametrize("kind", ["local", "ftp", "http"])
def test_a_journal_that_stays_is_told_and_the_same_command_takes_it_away(engine, places, tmp_path, kind):
    source, copied = tmp_path / "served" / "tree", tmp_path / "copy"
    source.mkdir()
    (source / "file").write_bytes(b"content")
    words = ["copy", "-r", source if kind == "local" else f"{places[kind]}/tree", copied]
    failing = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=unlinkat:error=EIO", engine, *words]
    done = subprocess.run(failing, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, (copied / "file").read_bytes()) == (3, b"content")
    assert "to remove the journal of the copy" in done.stderr
    assert leftovers(copied) != []
    copy(engine, *words[1:])
    assert leftovers(tmp_path) == []


@needs_programs("strace")
def test_threads_that_lack_are_told(engine, places, tmp_path):
    source = tmp_path / "own"
    source.mkdir()
    (source / "file").write_bytes(bytes(1_000_000))
    # The third of the first thread would tell progress, or be the second worker; that of a session would send.
    none = [
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "inject=clone3:error=EAGAIN:when=3+",
        engine,
        "copy",
        "-r",
    ]
    for words, code, expected in [
        (
            ["--json", "--concurrency", "4", source, tmp_path / "copy"],
            0,
            ('"what":"workers"', '"value":1', "ulimit -u"),
        ),
        (
            ["-q", source, f"{places['ftp']}/copy"],
            3,
            ("copy/file: expected a copy there", "no thread for it", "ulimit -u"),
        ),
    ]:
        told = subprocess.run([*none, *words], capture_output=True, text=True, timeout=60, check=False)
        assert told.returncode == code, told
        said = [line for line in (told.stdout + told.stderr).splitlines() if all(text in line for text in expected)]
        assert len(said) == 1, told


@pytest.mark.parametrize("kind", ["ftp", "http"])
def test_a_link_that_is_named_is_followed_unless_a_tree_is_asked_for(engine, places, tmp_path, kind):
    own = tmp_path / "own"
    (own / "tree").mkdir(parents=True)
    (own / "tree" / "file").write_bytes(b"content")
    (own / "to file").symlink_to("tree/file")
    (own / "to tree").symlink_to("tree")
    told = end_of(events(engine, "-r", own / "to tree", own / "to file", f"{places[kind]}/"))
    assert (told["outcome"], told["left_out"], told["files"]) == ("done", 2, 0)
    assert list(places["local"].iterdir()) == []
    copy(engine, own / "to file", f"{places[kind]}/")
    copy(engine, "-r", f"{own}/to tree/", f"{places[kind]}/contents")
    copy(engine, "-rL", own / "to tree", f"{places[kind]}/followed")
    assert (places["local"] / "to file").read_bytes() == b"content"
    assert (places["local"] / "contents" / "file").read_bytes() == b"content"
    assert (places["local"] / "followed" / "file").read_bytes() == b"content"


@needs_programs("strace")
@pytest.mark.parametrize(
    ("words", "made"),
    [
        (["/one", "new"], ["new"]),
        (["/large", "there"], ["there/large"]),
        (["/one", "made/"], ["made", "made/one"]),
        (["--mkpath", "/one", "a/b/c"], ["a", "a/b", "a/b/c"]),
        (["-r", "/deep", "new"], ["new", "new/er", "new/er/large", "new/er/one"]),
        (["-r", "/deep", "there"], ["there/deep", "there/deep/er", "there/deep/er/one"]),
        (["-r", "--mkpath", "/deep", "a/b/c"], ["a", "a/b", "a/b/c", "a/b/c/er", "a/b/c/er/one"]),
        (["-r", "/deep/", "there"], ["there/er", "there/er/one"]),
    ],
)
@pytest.mark.parametrize("kind", ["local", "ftp", "http"])
def test_with_sync_a_name_is_on_stable_storage_as_what_it_names_is(
    engine, places, tmp_path, monkeypatch, kind, words, made
):
    for folder in (tmp_path / "served", tmp_path / "served" / "deep" / "er"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "one").write_bytes(b"1")
        (folder / "large").write_bytes(os.urandom(3 << 20))
    here = tmp_path / "here"
    (here / "there").mkdir(parents=True)
    monkeypatch.chdir(here)
    from_there = [f"{places[kind]}{word}" if word.startswith("/") else word for word in words]
    calls = "trace=fsync,mkdir,mkdirat,rename,renameat,renameat2"
    traced = ["strace", "-f", "-y", "-qq", "-o", tmp_path / "trace", "-e", calls]
    subprocess.run([*traced, engine, "copy", "--sync", *from_there], check=True, timeout=60)
    calls = (tmp_path / "trace").read_text().splitlines()
    for name in made:
        path = here / name
        # Under a temporary name it is nobody's.
        signs = [f'"{made}{end}' for made in (name, path.name) for end in ('"', '/"')]
        names = [at for at, call in enumerate(calls) if any(sign in call for sign in signs)]
        synced = [at for at, call in enumerate(calls) if "fsync(" in call and f"<{path.parent}>" in call]
        assert synced and max(synced) > max(names), (name, calls)


EVENTS_LOST = "standard output: expected that events can be written there, found No space left on device"


def copy_to_full(engine, *words):
    """Copy with events for which there is no room, and return what was said."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [engine, "copy", "--json", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 3, (done.returncode, done.stderr)
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"venturi copy: {EVENTS_LOST}; "), line


@pytest.mark.parametrize("place", ["local", "ftp", "http"])
@pytest.mark.parametrize("files", [1, 300])
def test_events_without_room_end_a_copy_and_the_same_command_goes_on(engine, places, tmp_path, place, files):
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(files):
        (tree / f"{number:03}").write_bytes(b"content" * number)
    order = ["-r", f"{tree}/", f"{places[place]}/copy"]
    copy_to_full(engine, "--dry-run", *order)
    assert not (places["local"] / "copy").exists()
    copy_to_full(engine, *order)
    told = events(engine, *order)
    assert told[-1]["outcome"] == "done"
    assert tree_of(tree, times=False) == tree_of(places["local"] / "copy", times=False)
