"""`venturi-engine copy` from and to unmodified servers of the Globus toolkit: what arrives is what was sent, and told is what does not."""

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from copykit import copy, end_of, events, leftovers, tree_of
from ftpkit import Server

from testkit import needs_programs

pytestmark = needs_programs("globus-gridftp-server")

SIZES = (0, 1, 9_999, 65_536, 65_537, 262_144, 1_048_577)
MODES = (0o644, 0o755, 0o600, 0o640)


@pytest.fixture(scope="module")
def root():
    """A folder that the user of the servers reaches and writes to."""
    # In memory where there is some: large files are large.
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="venturi-ftp-", dir=memory if memory.is_dir() else None))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def server(root):
    found = Server(root)
    yield found
    found.stop()


@pytest.fixture
def here(root, monkeypatch):
    """A folder to be in, below that of the server."""
    folder = Path(tempfile.mkdtemp(dir=root))
    folder.chmod(0o777)
    monkeypatch.chdir(folder)
    return folder


def content(seed, size):
    """Return bytes that tell whose they are, and where."""
    return hashlib.shake_128(str(seed).encode()).digest(size)


def make_tree(folder, *, files=40):
    """Make a tree with files of all sizes, folders and odd names, which anybody may read."""
    for number in range(files):
        path = folder / f"d{number % 5}" / f"e {number % 3}" / f"file {number}'\"$;*?#%é"[: 12 + number].rstrip("é")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(number, SIZES[number % len(SIZES)]))
        path.chmod(MODES[number % len(MODES)] | 0o044)
        os.utime(path, (1_600_000_000 + number, 1_600_000_000 + number))
    (folder / "empty").mkdir()
    (folder / "d0" / "link").symlink_to("../d1")
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
            os.utime(path, (1_500_000_000, 1_500_000_000))


def below(server, path):
    """Return the URL of a path below the folder of a server."""
    return server.url(str(path.relative_to(server.folder)))


def contents(folder):
    """Return what is below a folder without times and modes; of links, where they lead: servers make them lead from the root on."""
    found = {name: [what[0], *what[3:]] for name, what in tree_of(folder).items()}
    for name in found:
        path = folder / os.fsdecode(name)
        if path.is_symlink():
            found[name] = path.resolve().relative_to(folder.resolve())
    return found


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--fixed"],
        ["--streams", "4"],
        ["--concurrency", "3", "--pipelining", "2"],
        ["--fixed", "--streams", "2", "--pipelining", "64", "--block", "64KiB", "--window", "256KiB"],
    ],
)
def test_a_tree_comes_back_as_it_went(engine, server, here, words):
    make_tree(here / "tree")
    there = below(server, here)
    told = events(engine, "-r", *words, "tree", f"{there}/up")
    assert (end_of(told)["files"], end_of(told)["links"]) == (40, 1)
    assert contents(here / "up") == contents(here / "tree")
    told = events(engine, "-r", *words, f"{there}/tree", "down")
    assert (end_of(told)["files"], end_of(told)["links"], end_of(told)["errors"]) == (40, 1, 0)
    # Servers tell and take times in whole seconds; those of links nobody sets.
    kept = {name: what for name, what in tree_of(here / "down").items() if name != b"d0/link"}
    assert kept == {name: what for name, what in tree_of(here / "tree").items() if name != b"d0/link"}
    assert leftovers(here) == []


def test_modes_and_times_are_kept_at_the_server(engine, server, here):
    make_tree(here / "tree")
    copy(engine, "-r", "tree", f"{below(server, here)}/up")
    seen = {name: what[1:3] for name, what in tree_of(here / "up").items() if name != b"d0/link"}
    assert seen == {name: what[1:3] for name, what in tree_of(here / "tree").items() if name != b"d0/link"}


def test_the_same_command_again_moves_nothing_and_a_changed_file_alone_goes(engine, server, here):
    make_tree(here / "tree")
    there = below(server, here)
    for words in (["tree/", f"{there}/up"], [f"{there}/tree/", "down"]):
        assert end_of(events(engine, "-r", *words))["files"] == 40
        again = end_of(events(engine, "-r", *words))
        assert (again["files"], again["kept"], again["moved_bytes"]) == (0, 41, 0)
    changed = next(path for path in sorted((here / "tree").rglob("*")) if path.is_file())
    changed.write_bytes(b"changed")
    changed.chmod(0o644)
    for words, copied in ((["tree/", f"{there}/up"], here / "up"), ([f"{there}/tree/", "down"], here / "down")):
        assert end_of(events(engine, "-r", *words))["files"] == 1
        assert (copied / changed.relative_to(here / "tree")).read_bytes() == b"changed"


def test_hundreds_of_small_files_are_pipelined_and_each_has_its_own_bytes(engine, server, here):
    (here / "many").mkdir()
    for number in range(600):
        (here / "many" / f"f{number:04}").write_bytes(content(number, 1000))
    there = below(server, here)
    copy(engine, "-r", f"{there}/many", "down")
    copy(engine, "-r", "many", f"{there}/up")
    for copied in ("down", "up"):
        assert contents(here / copied) == contents(here / "many")


def test_a_file_that_fails_takes_no_other_with_it(engine, server, here):
    """The bytes of a refused file never come to be in the next one (reference: protocols, section 6)."""
    (here / "many").mkdir()
    for number in range(60):
        (here / "many" / f"f{number:02}").write_bytes(content(number, 1000))
    (here / "closed").mkdir(mode=0o755)
    there = below(server, here)
    pairs = [
        (f"many/f{number:02}", f"{there}/{'closed' if number % 20 == 7 else 'up'}/f{number:02}")
        for number in range(60)
    ]
    (here / "up").mkdir()
    (here / "up").chmod(0o777)
    (here / "list").write_text("".join(f"{source} {copied}\n" for source, copied in pairs))
    told = copy(engine, "--list", "list", code=3).stderr.decode()
    assert told.count("closed/f") == 3 and "Permission denied" in told
    assert list((here / "closed").iterdir()) == []
    for number in range(60):
        if number % 20 != 7:
            assert (here / "up" / f"f{number:02}").read_bytes() == content(number, 1000)
    (here / "list").write_text(
        "".join(
            f"{there}/many/{'none' if number % 20 == 7 else 'f'}{number:02} {here}/g{number:02}\n"
            for number in range(60)
        )
    )
    assert copy(engine, "--list", "list", code=3).stderr.decode().count("expected a file or directory") == 3
    for number in range(60):
        assert (here / f"g{number:02}").exists() == (number % 20 != 7)
        if number % 20 != 7:
            assert (here / f"g{number:02}").read_bytes() == content(number, 1000)
    assert leftovers(here) == []


def test_names_rules_and_patterns_are_those_of_local_copies(engine, server, here):
    make_tree(here / "tree", files=10)
    (here / "there").mkdir()
    (here / "there").chmod(0o777)
    (here / "a.root").write_bytes(b"1")
    (here / "b.root").write_bytes(b"2")
    there = below(server, here)
    for words, made in (
        ([f"{there}/a.root", "new"], "new"),
        ([f"{there}/a.root", "there"], "there/a.root"),
        ([f"{there}/a.root", "made/"], "made/a.root"),
        ([f"{there}/*.root", "there"], "there/b.root"),
        (["-r", f"{there}/tree", "there"], "there/tree/empty"),
        (["-r", f"{there}/tree/", "into"], "into/empty"),
        (["--mkpath", "a.root", f"{there}/x/y/z"], "x/y/z"),
        (["a.root", "b.root", f"{there}/there/"], "there/b.root"),
        (["-r", "tree", f"{there}/there"], "there/tree/empty"),
        (["--files-from", "-", there, "listed"], "listed/b.root"),
    ):
        copy(engine, *words, input=b"a.root\nb.root\n")
        assert (here / made).exists(), words
    told = copy(engine, f"{there}/*.none", "x", code=1).stderr.decode()
    assert "expected something of that pattern, found nothing" in told


def test_what_cannot_be_is_told_and_no_password_is(engine, server, here):
    there = below(server, here)
    (here / "file").write_bytes(b"1")
    (here / "é").write_bytes(b"1")
    (here / "folder").mkdir()
    closed = there.replace(str(server.port), "1")
    for words, code, told in (
        ([f"{there}/none", "x"], 3, "none: expected a file or directory, found 550"),
        ([f"{there}/folder", "x"], 3, "expected a file, found a directory; say --recursive"),
        ([f"{closed}/file", "x"], 1, "expected a server that lets us in, found no answer of 127.0.0.1:1"),
        ([there.replace("ftp://", "ftp://somebody:secret@") + "/file", "x"], 1, "expected a server that lets us in"),
        ([there.replace("ftp:", "sshftp:") + "/file", "x"], 1, "found one over ssh"),
        (["file", f"{there}/none/x"], 3, "none/x: expected a copy there, found"),
        ([f"{there}/%C3%A9", "x"], 3, "expected a name that the server understands"),
        (["é", f"{there}/"], 3, "expected a name that the server understands"),
        ([f"{there}/file", "https://h/x"], 1, "by way of this host"),
    ):
        said = copy(engine, *words, code=code).stderr.decode()
        assert told in said, said
        assert "secret" not in said
    said = copy(engine, "--json", there.replace("ftp://", "ftp://somebody:secret@") + "/file", "x", code=1)
    assert b"secret" not in said.stdout + said.stderr
    assert not (here / "x").exists()


def test_a_dry_run_tells_and_does_nothing(engine, server, here):
    make_tree(here / "tree", files=10)
    there = below(server, here)
    before = tree_of(here)
    for words in (["tree", f"{there}/up"], [f"{there}/tree", "down"]):
        told = events(engine, "-r", "--dry-run", *words)
        assert sum(event.get("outcome") == "would copy" for event in told) == 10
        assert tree_of(here) == before


def large(path, size):
    """Make a large file with a few bytes that tell where they are."""
    with path.open("wb") as file:
        file.truncate(size)
        for place in range(0, size, 7 << 20):
            file.seek(place)
            file.write(content(place, min(1000, size - place)))
    path.chmod(0o644)


def digest(path):
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@pytest.mark.parametrize("words", [[], ["--streams", "4"], ["--concurrency", "4"]])
def test_a_large_file_comes_in_chunks_over_all_sessions(engine, server, here, words):
    large(here / "large", (130 << 20) + 12_345)
    there = below(server, here)
    told = events(engine, *words, f"{there}/large", "down")
    assert [event["how"] for event in told if event["event"] == "file"] == ["ftp in chunks"]
    copy(engine, *words, "large", f"{there}/up")
    assert digest(here / "down") == digest(here / "up") == digest(here / "large")
    assert leftovers(here) == []


def test_a_large_file_goes_on_with_the_chunks_that_are_missing(engine, server, here):
    large(here / "large", (200 << 20) + 1)
    command = [engine, "copy", "--fixed", "--window", "4KiB", f"{below(server, here)}/large", "down"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 20
    while not _chunks(here) and process.poll() is None:
        assert time.monotonic() < end
    process.send_signal(signal.SIGKILL)
    process.wait()
    if (here / "down").exists():
        pytest.fail("it was done before it was killed: the file is too small for this machine")
    there = _chunks(here)
    told = events(engine, f"{below(server, here)}/large", "down")
    kept = [event["value"] for event in told if event.get("what") == "chunks_kept"]
    assert kept and kept[0] >= there
    assert end_of(told)["moved_bytes"] <= (200 << 20) + 1 - there * (32 << 20)
    assert digest(here / "down") == digest(here / "large")
    assert leftovers(here) == []


def _chunks(folder):
    """Return how many chunks the record of a copy has."""
    for path in folder.glob(".venturi-*.progress"):
        return path.read_bytes()[512:].count(b"1")
    return 0


@pytest.mark.parametrize("way", ["up", "down"])
def test_whatever_ended_a_copy_the_same_command_goes_on(engine, server, here, way):
    (here / "many").mkdir()
    for number in range(800):
        (here / "many" / f"f{number:04}").write_bytes(content(number, 20_000))
    there = below(server, here)
    words = ["-r", "many", f"{there}/copied"] if way == "up" else ["-r", f"{there}/many", "copied"]
    process = subprocess.Popen([engine, "copy", "--fixed", "--pipelining", "8", *words], stderr=subprocess.DEVNULL)
    end = time.monotonic() + 20
    while not any((here / "copied").glob("f*")) and process.poll() is None:
        assert time.monotonic() < end
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = sum(1 for _ in (here / "copied").glob("f*"))
    told = end_of(events(engine, *words))
    # It is the copy, and no directory to put another into.
    assert told["files"] + told["kept"] == 800 and told["kept"] >= before
    if way == "down":
        assert leftovers(here) == []
    mine = {name: what for name, what in contents(here / "copied").items() if not name.startswith(b".venturi-")}
    assert mine == contents(here / "many")


def test_a_signal_stops_it_and_no_file_is_half_there(engine, server, here):
    large(here / "large", 300 << 20)
    command = [engine, "copy", "--fixed", "--window", "4KiB", f"{below(server, here)}/large", "down"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    end = time.monotonic() + 20
    while not any(here.glob(".venturi-*.part")):
        assert time.monotonic() < end
    process.send_signal(signal.SIGTERM)
    told = process.communicate(timeout=20)[1]
    assert process.returncode == 130 and b"Run the same command again" in told
    assert not (here / "down").exists()


def test_what_is_verified_is_compared_at_both_ends_and_content_tells_where_it_is_asked(engine, server, here):
    (here / "many").mkdir()
    for number in range(20):
        (here / "many" / f"f{number:02}").write_bytes(content(number, SIZES[number % len(SIZES)]))
    large(here / "many" / "large", (130 << 20) + 5)
    there = below(server, here)
    assert end_of(events(engine, "--verify", "-r", "many", f"{there}/up"))["files"] == 21
    assert end_of(events(engine, "--verify", "-r", f"{there}/many", "down"))["files"] == 21
    assert contents(here / "up") == contents(here / "down") == contents(here / "many")
    # As long and as old, but not the same: only its content tells.
    for copied in ("up", "down"):
        wrong = here / copied / "f01"
        seen = wrong.stat()
        wrong.write_bytes(b"?")
        os.utime(wrong, (seen.st_atime, seen.st_mtime))
    for words, copied in ((["many/", f"{there}/up"], "up"), ([f"{there}/many/", "down"], "down")):
        assert end_of(events(engine, "-r", *words))["kept"] == 21
        told = end_of(events(engine, "--checksum", "-r", *words))
        assert (told["files"], told["kept"]) == (1, 20)
        assert (here / copied / "f01").read_bytes() == content(1, 1)


def test_a_file_that_is_cut_while_it_is_sent_gets_no_name(engine, server, here):
    """It is told, and the other files arrive."""
    large(here / "growing", 400 << 20)
    (here / "list").write_text("".join(f"{name} {below(server, here)}/up/{name}\n" for name in ("growing", "b", "c")))
    for name in ("b", "c"):
        (here / name).write_bytes(content(name, 5000))
    (here / "up").mkdir()
    (here / "up").chmod(0o777)
    process = subprocess.Popen(
        [engine, "copy", "--fixed", "--window", "4KiB", "--list", "list"], stderr=subprocess.PIPE
    )
    end = time.monotonic() + 20
    while not any((here / "up").glob(".venturi-*.part")):
        assert time.monotonic() < end
    with (here / "growing").open("r+b") as file:
        file.truncate(1000)
    told = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 3 and "written to while it was copied" in told, told
    assert not (here / "up" / "growing").exists()
    for name in ("b", "c"):
        assert (here / "up" / name).read_bytes() == content(name, 5000)


def test_copies_between_servers_pass_by_us_and_arrive(engine, server, here):
    other = Server(server.folder)
    try:
        make_tree(here / "tree")
        there, beyond = below(server, here), below(other, here)
        told = events(engine, "-r", f"{there}/tree/", f"{beyond}/third")
        assert end_of(told)["files"] == 40 and end_of(told)["errors"] == 0
        want = {name: what for name, what in contents(here / "tree").items() if name != b"d0/link"}
        assert contents(here / "third") == want
        again = end_of(events(engine, "-r", f"{there}/tree/", f"{beyond}/third"))
        assert (again["files"], again["kept"]) == (0, 40)
        # A file that cannot be read takes no other with it.
        next(path for path in sorted((here / "tree").rglob("*file*")) if path.is_file()).chmod(0)
        told = events(engine, "-r", f"{there}/tree/", f"{beyond}/fourth", code=3)
        assert (end_of(told)["files"], end_of(told)["errors"]) == (39, 1)
        for path in (here / "fourth").rglob("*"):
            if path.is_file():
                assert path.read_bytes() == (here / "tree" / path.relative_to(here / "fourth")).read_bytes()
    finally:
        other.stop()


def test_decisions_are_told_and_fixed_ones_are_as_asked_for(engine, server, here):
    (here / "file").write_bytes(b"1")
    words = [
        "--fixed",
        "--streams",
        "3",
        "--pipelining",
        "7",
        "--concurrency",
        "2",
        f"{below(server, here)}/file",
        "x",
    ]
    told = {event["what"]: event for event in events(engine, *words) if event["event"] == "decision"}
    assert (told["streams"]["value"], told["pipelining"]["value"], told["sessions"]["value"]) == (3, 7, 2)
    assert all(decision["reason"] for decision in told.values())


def test_a_server_that_goes_away_is_told_and_what_is_there_stays(engine, here, root):
    gone = Server(root)
    (here / "many").mkdir()
    for number in range(300):
        (here / "many" / f"f{number:04}").write_bytes(content(number, 100_000))
    command = [engine, "copy", "--fixed", "-r", f"{below(gone, here)}/many", "copied"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    end = time.monotonic() + 20
    while not any((here / "copied").glob("f*")):
        assert time.monotonic() < end
    # Sessions of this server are processes of their own, which would go on.
    sessions = gone.sessions()
    gone.stop()
    for session in sessions:
        with contextlib.suppress(ProcessLookupError):
            os.kill(session, signal.SIGKILL)
    told = process.communicate(timeout=40)[1].decode()
    if process.returncode == 0:
        pytest.fail("it was done before the server went away")
    assert process.returncode == 3 and "expected a session" in told
    for path in (here / "copied").glob("f*"):
        assert path.read_bytes() == content(int(path.name[1:]), 100_000)
