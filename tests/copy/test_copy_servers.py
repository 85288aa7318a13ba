"""Copies with our own FTP and HTTP server: few threads, links, stable storage, and a full event log."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from copykit import copy, end_of, events, leftovers, tree_of

from testkit import needs_programs, wait_until


@pytest.fixture
def locations(engine, tmp_path):
    """Run an FTP and HTTP server. Yield the location of its directory for each protocol."""
    (tmp_path / "served").mkdir()
    log = tmp_path / "serve.jsonl"
    service_ports = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    with log.open("wb") as out:
        command = [engine, "serve", tmp_path / "served", *service_ports, "--write", "--json"]
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
def test_a_copy_with_too_few_threads_completes_or_reports_the_limit(engine, locations, tmp_path, kind, upwards):
    source = tmp_path / ("own" if upwards else "served") / "tree"
    for number in range(30):
        (source / f"{number % 3}").mkdir(parents=True, exist_ok=True)
        (source / f"{number % 3}" / f"file {number}").write_bytes(os.urandom(number * 10_000))
    done = 0
    for count in range(1, 8):
        name = f"copy {count}"
        copied = tmp_path / ("served" if upwards else "own") / name
        # In each thread, clone3 fails from call number `count` on.
        none = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"inject=clone3:error=EAGAIN:when={count}+"]
        ends = (source, f"{locations[kind]}/copy%20{count}") if upwards else (f"{locations[kind]}/tree", copied)
        ends = (source, copied) if kind == "local" else ends
        (tmp_path / "own").mkdir(exist_ok=True)
        output = subprocess.run(
            [*none, engine, "copy", "-r", *ends], capture_output=True, text=True, timeout=60, check=False
        )
        assert "panicked" not in output.stderr, (count, output.stderr)
        if output.returncode == 0:
            done += 1
            assert tree_of(copied, times=False).keys() == tree_of(source, times=False).keys()
        else:
            assert output.returncode in {1, 3}, (count, output)
            assert "ulimit -u" in output.stderr, (count, output.stderr)
    assert done > 0


@needs_programs("strace")
@pytest.mark.parametrize("kind", ["local", "ftp", "http"])
def test_a_journal_that_cannot_be_removed_is_reported_and_removed_by_the_next_copy(engine, locations, tmp_path, kind):
    source, copied = tmp_path / "served" / "tree", tmp_path / "copy"
    source.mkdir()
    (source / "file").write_bytes(b"content")
    words = ["copy", "-r", source if kind == "local" else f"{locations[kind]}/tree", copied]
    failing = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "inject=unlinkat:error=EIO", engine, *words]
    done = subprocess.run(failing, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, (copied / "file").read_bytes()) == (3, b"content")
    assert "to remove the journal of the copy" in done.stderr
    assert leftovers(copied) != []
    copy(engine, *words[1:])
    assert leftovers(tmp_path) == []


@needs_programs("strace")
def test_missing_threads_are_reported(engine, locations, tmp_path):
    source = tmp_path / "own"
    source.mkdir()
    (source / "file").write_bytes(bytes(1_000_000))
    # The third clone3 of the first thread starts the progress or the second worker; in a session, it starts a sender.
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
            ('"setting":"workers"', '"value":1', "ulimit -u"),
        ),
        (
            ["-q", source, f"{locations['ftp']}/copy"],
            3,
            ("copy/file: expected a copy at the server", "cannot start a thread", "ulimit -u"),
        ),
    ]:
        output = subprocess.run([*none, *words], capture_output=True, text=True, timeout=60, check=False)
        assert output.returncode == code, output
        printed = [
            line for line in (output.stdout + output.stderr).splitlines() if all(text in line for text in expected)
        ]
        assert len(printed) == 1, output


@pytest.mark.parametrize("kind", ["ftp", "http"])
def test_a_link_named_as_source_is_followed_unless_the_copy_is_recursive(engine, locations, tmp_path, kind):
    own = tmp_path / "own"
    (own / "tree").mkdir(parents=True)
    (own / "tree" / "file").write_bytes(b"content")
    (own / "to file").symlink_to("tree/file")
    (own / "to tree").symlink_to("tree")
    output = end_of(events(engine, "-r", own / "to tree", own / "to file", f"{locations[kind]}/"))
    assert (output["outcome"], output["skipped"], output["files"]) == ("done", 2, 0)
    assert list(locations["local"].iterdir()) == []
    copy(engine, own / "to file", f"{locations[kind]}/")
    copy(engine, "-r", f"{own}/to tree/", f"{locations[kind]}/contents")
    copy(engine, "-rL", own / "to tree", f"{locations[kind]}/followed")
    assert (locations["local"] / "to file").read_bytes() == b"content"
    assert (locations["local"] / "contents" / "file").read_bytes() == b"content"
    assert (locations["local"] / "followed" / "file").read_bytes() == b"content"


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
def test_with_sync_the_parent_directory_is_synced_after_each_new_name(
    engine, locations, tmp_path, monkeypatch, kind, words, made
):
    for directory in (tmp_path / "served", tmp_path / "served" / "deep" / "er"):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "one").write_bytes(b"1")
        (directory / "large").write_bytes(os.urandom(3 << 20))
    here = tmp_path / "here"
    (here / "there").mkdir(parents=True)
    monkeypatch.chdir(here)
    from_there = [f"{locations[kind]}{word}" if word.startswith("/") else word for word in words]
    calls = "trace=fsync,mkdir,mkdirat,rename,renameat,renameat2"
    traced = ["strace", "-f", "-y", "-qq", "-o", tmp_path / "trace", "-e", calls]
    subprocess.run([*traced, engine, "copy", "--sync", *from_there], check=True, timeout=60)
    calls = (tmp_path / "trace").read_text().splitlines()
    for name in made:
        path = here / name
        # Names of temporary files do not count.
        signs = [f'"{made}{end}' for made in (name, path.name) for end in ('"', '/"')]
        names = [at for at, call in enumerate(calls) if any(sign in call for sign in signs)]
        synced = [at for at, call in enumerate(calls) if "fsync(" in call and f"<{path.parent}>" in call]
        assert synced and max(synced) > max(names), (name, calls)


EVENTS_LOST = "standard output: cannot write events: No space left on device"


def copy_to_full(engine, *words):
    """Copy with an event log that is full, and return the error output."""
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


@pytest.mark.parametrize("location", ["local", "ftp", "http"])
@pytest.mark.parametrize("files", [1, 300])
def test_a_copy_ends_if_its_events_cannot_be_written_and_can_be_resumed(engine, locations, tmp_path, location, files):
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(files):
        (tree / f"{number:03}").write_bytes(b"content" * number)
    order = ["-r", f"{tree}/", f"{locations[location]}/copy"]
    copy_to_full(engine, "--dry-run", *order)
    assert not (locations["local"] / "copy").exists()
    copy_to_full(engine, *order)
    output = events(engine, *order)
    assert output[-1]["outcome"] == "done"
    assert tree_of(tree, times=False) == tree_of(locations["local"] / "copy", times=False)


@pytest.mark.parametrize("upwards", [False, True], ids=["down", "up"])
@pytest.mark.parametrize("kind", ["local", "ftp", "http"])
def test_a_rate_limit_applies_to_all_files_and_connections_together(engine, locations, tmp_path, kind, upwards):
    source = tmp_path / ("own" if upwards else "served") / "tree"
    source.mkdir(parents=True)
    size, limit = 0, 10_000_000
    for number, size_bytes in enumerate([3_000_000, *[100_000] * 10]):
        (source / f"file {number}").write_bytes(os.urandom(size_bytes))
        size += size_bytes
    copied = tmp_path / ("served" if upwards else "own") / "copy"
    (tmp_path / "own").mkdir(exist_ok=True)
    ends = (source, f"{locations[kind]}/copy") if upwards else (f"{locations[kind]}/tree", copied)
    ends = (source, copied) if kind == "local" else ends
    done = subprocess.run(
        [engine, "copy", "-r", "--json", "--max-rate", "80 Mb/s", *ends],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    end = json.loads(done.stdout.splitlines()[-1])
    assert (end["outcome"], end["moved_bytes"]) == ("done", size)
    assert end["duration_s"] >= size / limit
    assert tree_of(copied, times=False).keys() == tree_of(source, times=False).keys()


def test_a_rate_limit_between_two_servers_is_rejected(engine, locations):
    done = subprocess.run(
        [engine, "copy", "--max-rate", "80 Mb/s", f"{locations['ftp']}/a", f"{locations['ftp']}/b"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "--max-rate: expected this host as source or destination" in done.stderr
