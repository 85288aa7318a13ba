"""What befalls a copy: killed, stopped, a full disk, no rights, links that change places. Whatever it is, the same command goes on."""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from copykit import copy, differences_by_others, end_of, events, leftovers, tree_of

from testkit import needs_programs

LARGE_MB = 200
STRACE = needs_programs("strace")
CHUNK_WRITTEN = "1700+"
"""Writes of 64 KiB by then: those of all small files and of a chunk of the large one, of which two are still to come."""


@pytest.fixture(scope="module")
def source():
    """A tree of some hundred files, one of several chunks."""
    folder = Path(tempfile.mkdtemp(prefix="venturi-copy-"))
    tree, block = folder / "source", os.urandom(1_000_000)
    for number in range(300):
        path = tree / f"{number % 17}" / f"{number % 5}" / f"file {number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(block[: number * 300])
        os.utime(path, ns=(10**18 + number, 10**18 + number))
    with (tree / "large").open("wb") as file:
        for _ in range(LARGE_MB):
            file.write(block)
    (tree / "3" / "link").symlink_to("../large")
    os.utime(tree / "3", ns=(10**18, 10**18))
    yield tree
    shutil.rmtree(folder)


def until(what, process, most_s=60.0):
    """Wait until something is true, or the process ended; return whether it is true."""
    end = time.monotonic() + most_s
    while time.monotonic() < end:
        if what():
            return True
        if process.poll() is not None:
            return False
    raise AssertionError(f"not within {most_s} s")


def chunks_done(folder):
    """Return how many chunks of large files the records below a folder say are there."""
    found = 0
    for place, _, names in os.walk(folder):
        for name in names:
            if name.startswith(".venturi-") and name.endswith(".progress"):
                with suppress(FileNotFoundError):  # the copy goes on meanwhile
                    found += Path(place, name).read_bytes()[512:].count(b"1")
    return found


def slow_copy(engine, *words, when, delay_s=0.05, before=()):
    """Begin a copy with one worker and small blocks, whose writes of these numbers take so long: what a test does meanwhile is in time."""
    held = ["strace", "-D", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", "trace=pwrite64"]
    held += ["-e", f"inject=pwrite64:delay_enter={delay_s * 1e6:.0f}:when={when}"]
    slow = ("-q", "--method", "buffers", "--block", "64KiB", "--concurrency", "1")
    return subprocess.Popen([*before, *held, engine, "copy", *slow, *words], stderr=subprocess.PIPE)


def names_are_of_whole_files(source, copied):
    """See that in an unfinished copy a name is had by what is whole, and by nothing else."""
    for path in copied.rglob("*"):
        if path.is_file() and not path.name.startswith(".venturi-"):
            assert path.stat().st_size == (source / path.relative_to(copied)).stat().st_size, path


def test_killed_at_random_moments_the_same_command_goes_on_until_all_is_there(engine, source, tmp_path):
    command = [engine, "copy", "-q", "-r", "-T", source, tmp_path / "copy"]
    begin = time.monotonic()
    subprocess.run(command, check=True)
    whole_s = time.monotonic() - begin
    shutil.rmtree(tmp_path / "copy")
    moments, killed = random.Random(7), 0
    for _ in range(40):
        if killed == 8:
            break
        process = subprocess.Popen(command)
        with suppress(subprocess.TimeoutExpired):
            process.wait(moments.uniform(0.0, whole_s))
        process.kill()
        early = process.wait() == -signal.SIGKILL
        killed += early
        if not early:
            whole_s *= 0.8  # the first copy was slower: a cold cache, a busy machine
        names_are_of_whole_files(source, tmp_path / "copy")
        if killed % 3 == 0 or not early:  # from its beginning
            shutil.rmtree(tmp_path / "copy", ignore_errors=True)
    assert killed == 8
    subprocess.run(command, check=True)
    assert tree_of(tmp_path / "copy") == tree_of(source)
    assert leftovers(tmp_path) == []


@STRACE
def test_what_was_whole_before_the_kill_is_not_copied_again(engine, tmp_path):
    source, ours = tmp_path / "source", tmp_path / "copy"
    source.mkdir()
    for number in range(3000):
        (source / f"{number}").write_bytes(b"x" * number)
    process = slow_copy(engine, "-r", source, ours, when="200+")
    assert until(lambda: ours.is_dir() and len([*ours.iterdir()]) > 20, process)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    inodes = {path: path.stat().st_ino for path in ours.iterdir() if not path.name.startswith(".venturi-")}
    # Not into a directory of that name, though it is there now: it is the unfinished copy.
    told = events(engine, "-r", source, ours)
    assert {Path(event["path"]) for event in told if event.get("outcome") == "kept"} == inodes.keys()
    assert {path: path.stat().st_ino for path in inodes} == inodes
    assert [event["what"] for event in told if event["event"] == "decision"].count("resumed") == 1
    assert differences_by_others(source, ours) == b""
    assert leftovers(tmp_path) == []


@STRACE
@pytest.mark.parametrize("word", ["kill", "interrupt"])
def test_a_large_file_goes_on_with_the_chunks_that_are_missing(engine, source, tmp_path, word):
    process = slow_copy(engine, source / "large", tmp_path / "copy", when=CHUNK_WRITTEN)
    assert until(lambda: chunks_done(tmp_path) >= 1, process)
    process.send_signal(signal.SIGKILL if word == "kill" else signal.SIGINT)
    said = process.communicate()[1].decode()
    assert not (tmp_path / "copy").exists()
    if word == "interrupt":
        assert process.returncode == 130
        assert "no file is half there. Run the same command again to go on" in said
    done = chunks_done(tmp_path)
    told = events(engine, source / "large", tmp_path / "copy")
    kept = [event["value"] for event in told if event.get("what") == "chunks_kept"]
    assert kept == [done]
    assert end_of(told)["moved_bytes"] == LARGE_MB * 10**6 - done * 2**26
    assert subprocess.run(["cmp", source / "large", tmp_path / "copy"], check=False).returncode == 0
    assert leftovers(tmp_path) == []


@STRACE
def test_chunks_of_another_source_or_of_another_boot_are_not_trusted(engine, source, tmp_path):
    mine = tmp_path / "mine"
    shutil.copy2(source / "large", mine)
    for change in ("source", "boot"):
        process = slow_copy(engine, mine, tmp_path / "copy", when=CHUNK_WRITTEN)
        assert until(lambda: chunks_done(tmp_path) >= 1, process)
        process.kill()
        process.communicate()
        if change == "source":
            with mine.open("r+b") as file:
                file.write(b"another beginning")
        else:
            (record,) = tmp_path.glob(".venturi-*.progress")
            boot = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
            assert boot in record.read_bytes()
            record.write_bytes(record.read_bytes().replace(boot, b"0" * len(boot)))
        told = events(engine, mine, tmp_path / "copy")
        assert not [event for event in told if event.get("what") == "chunks_kept"]
        assert subprocess.run(["cmp", mine, tmp_path / "copy"], check=False).returncode == 0
        assert leftovers(tmp_path) == []
        (tmp_path / "copy").unlink()


def test_after_a_crash_of_the_machine_content_tells_what_is_whole(engine, tmp_path):
    source, ours = tmp_path / "source", tmp_path / "copy"
    source.mkdir()
    for name in ("lost", "whole"):
        (source / name).write_bytes(b"right")
        os.utime(source / name, (5, 5))
    copy(engine, "-r", source, ours)
    # As a disk may be after a power cut: name, size and time are there, the bytes are not; and the journal, of that boot.
    (ours / "lost").write_bytes(b"\0\0\0\0\0")
    os.utime(ours / "lost", (5, 5))
    journal = journal_name(engine, source, ours)
    (ours / journal).write_text("venturi copy 1\nanother boot\n")
    told = end_of(events(engine, "-r", source, ours))
    assert (told["files"], told["kept"]) == (1, 1)
    assert (ours / "lost").read_bytes() == b"right"
    assert leftovers(ours) == []


@STRACE
@pytest.mark.parametrize("words", [(), ("--sync",)])
def test_size_and_time_say_nothing_until_a_copy_after_a_crash_has_ended(engine, tmp_path, words):
    source, ours = tmp_path / "source", tmp_path / "copy"
    source.mkdir()
    for name in ("lost", "long"):
        (source / name).write_bytes(b"right" * 100_000)
        os.utime(source / name, (5, 5))
    copy(engine, "-r", source, ours)
    journal = journal_name(engine, source, ours)
    (ours / journal).write_text("venturi copy 1\nanother boot\n")
    (ours / "long").unlink()
    process = slow_copy(engine, "-r", *words, source, ours, when="2+", delay_s=1)
    assert until(lambda: any(path.suffix == ".part" for path in ours.iterdir()), process)
    process.kill()
    process.communicate()
    (ours / "lost").write_bytes(bytes(500_000))
    os.utime(ours / "lost", (5, 5))
    told = events(engine, "-r", *words, source, ours)
    assert any("told by content" in event.get("reason", "") for event in told)
    assert (ours / "lost").read_bytes() == (source / "lost").read_bytes()
    assert leftovers(ours) == []


def journal_name(engine, source, destination):
    """Return the name of the journal of a copy, from one that fails and so keeps it."""
    kept = destination.with_name("kept aside")
    destination.rename(kept)
    inner = source / "a directory where a file is to be"
    inner.write_bytes(b"x")
    (destination / inner.name).mkdir(parents=True)
    copy(engine, "-r", "-T", source, destination, code=3)
    (name,) = (path.name for path in destination.iterdir() if path.name.startswith(".venturi-"))
    shutil.rmtree(destination)
    inner.unlink()
    kept.rename(destination)
    return name


@STRACE
def test_interrupted_in_a_tree_nothing_half_has_a_name_and_the_same_command_goes_on(engine, source, tmp_path):
    process = slow_copy(engine, "-r", source, tmp_path / "copy", when=CHUNK_WRITTEN)
    assert until(lambda: chunks_done(tmp_path) >= 1, process)
    process.send_signal(signal.SIGTERM)
    said = process.communicate()[1].decode()
    assert process.returncode == 130, said
    names_are_of_whole_files(source, tmp_path / "copy")
    copy(engine, "-r", source, tmp_path / "copy")
    assert tree_of(tmp_path / "copy") == tree_of(source)
    assert leftovers(tmp_path) == []


@STRACE
@pytest.mark.parametrize("ignored", [True, False])
def test_signals_that_whoever_started_a_copy_has_it_ignore_do_not_end_it(engine, source, tmp_path, ignored):
    shell = ("sh", "-c", 'trap "" HUP INT; exec "$@"', "sh") if ignored else ()
    process = slow_copy(engine, source / "large", tmp_path / "copy", when="100", delay_s=2, before=shell)
    assert until(lambda: is_under_way(tmp_path), process)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGINT):
        process.send_signal(number)
    said = process.communicate()[1].decode()
    assert process.returncode == (0 if ignored else 130), said
    assert (tmp_path / "copy").exists() == ignored


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_copy_that_waits_for_its_list_ends_with_the_first_signal(engine, tmp_path, number):
    words = [engine, "copy", "--files-from", "-", tmp_path, tmp_path / "copy"]
    with subprocess.Popen(words, stdin=subprocess.PIPE) as process:
        call = Path(f"/proc/{process.pid}/syscall")
        assert until(lambda: call.read_text().startswith("0 0x0 "), process)  # it reads standard input
        process.send_signal(number)
        try:
            assert process.wait(timeout=20) == 130
        finally:
            process.kill()


def is_under_way(folder):
    """Whether a copy has written something."""
    return any(path.stat().st_size > 0 for path in folder.glob(".venturi-*.part"))


@STRACE
def test_two_copies_of_the_same_at_once_do_not_mix(engine, source, tmp_path):
    # It is held for as long as the other takes to find it, and longer.
    first = slow_copy(engine, "-r", "-T", source, tmp_path / "copy", when="1000", delay_s=3)
    assert until(lambda: (tmp_path / "copy").is_dir(), first)
    told = copy(engine, "-r", "-T", source, tmp_path / "copy", code=3).stderr.decode()
    assert "found another copy of the same that goes on; wait for it to end" in told
    first.communicate()
    assert first.returncode == 0
    assert tree_of(tmp_path / "copy") == tree_of(source)


def held_before_its_name(command, folder):
    """Begin a copy of a tree of which all is ready but the name."""
    held = ["strace", "-D", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", "trace=renameat"]
    held += ["-e", "inject=renameat:delay_enter=3000000:when=1"]
    process = subprocess.Popen([*held, *command], stderr=subprocess.PIPE, text=True)
    # What it says is written when it is locked.
    assert until(
        lambda: any(path.stat().st_size > 0 for path in folder.glob(".venturi-*.tree/.venturi-*.journal")), process
    )
    return process


@STRACE
def test_of_two_copies_of_a_tree_that_begin_at_once_one_goes_on(engine, source, tmp_path):
    command = [engine, "copy", "-r", "-T", source / "3", tmp_path / "copy"]
    first = held_before_its_name(command, tmp_path)
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    said = first.communicate()[1]
    assert (done.returncode, first.returncode) == (3, 0), done.stderr + said
    assert "found another copy of the same that goes on; wait for it to end" in done.stderr
    assert tree_of(tmp_path / "copy") == tree_of(source / "3")
    assert leftovers(tmp_path) == []


@STRACE
def test_a_tree_whose_name_is_taken_at_the_last_moment_leaves_nothing(engine, source, tmp_path):
    first = held_before_its_name([engine, "copy", "-r", "-T", source / "3", tmp_path / "copy"], tmp_path)
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "file").write_bytes(b"theirs")
    said = first.communicate()[1]
    assert first.returncode == 3
    assert "found another copy of the same that goes on; wait for it to end" in said
    assert [path.name for path in tmp_path.rglob("*")] == ["copy", "file"]


def isolated(script, *words):
    """Run a script in mount and user namespaces of its own; a machine without them is a named skip."""
    inside = ["unshare", "--mount", "--user", "--map-root-user", "sh", "-ec", script, "sh", *words]
    done = subprocess.run(inside, capture_output=True, text=True, check=False, timeout=60)
    if "unshare failed" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip(f"no user namespaces here: {done.stderr.strip()}")
    return done


def test_a_full_disk_ends_the_copy_with_a_sentence_and_what_is_whole_stays(engine, source, tmp_path):
    script = """
        mkdir "$3/disk"; mount -t tmpfs -o size=4m none "$3/disk"
        "$1" copy -r "$2" "$3/disk/copy" 2>"$3/said" && exit 9; code=$?
        find "$3/disk" -type f ! -name '.venturi-*' -exec sh -c 'cmp "$0" "$1${0#$2}"' '{}' "$2" "$3/disk/copy" ';'
        find "$3/disk" -name '*.part' | wc -l >"$3/parts"
        mount -o remount,size=400m "$3/disk"
        "$1" copy -r "$2" "$3/disk/copy"; diff -r --no-dereference "$2" "$3/disk/copy"; exit $code"""
    done = isolated(script, engine, source, tmp_path)
    assert done.returncode == 3, done.stdout + done.stderr
    assert done.stdout == ""
    said = (tmp_path / "said").read_text()
    assert "No space left on device; free some space, then run the same command again" in said
    assert said.count("\n") < 12  # not one for each file that is left
    assert (tmp_path / "parts").read_text().strip() == "0"


def test_a_large_file_without_room_is_refused_before_the_disk_is_full(engine, source, tmp_path):
    script = """
        mkdir "$3/disk"; mount -t tmpfs -o size=40m none "$3/disk"
        "$1" copy "$2/large" "$3/disk/" 2>"$3/said" && exit 9; code=$?
        ls -A "$3/disk"; exit $code"""
    done = isolated(script, engine, source, tmp_path)
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    said = (tmp_path / "said").read_text()
    assert f"expected room for {LARGE_MB * 10**6} bytes, found 4" in said


@pytest.mark.parametrize("words", [["--direct"], ["--verify", "--concurrency", "1"]], ids=["buffers", "verified"])
def test_blocks_for_which_there_is_no_memory_are_told_of_with_what_to_ask_for_instead(
    engine, source, tmp_path, words
):
    def little():
        resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))

    asked = [*words, "--block", "1GiB", source / "large", tmp_path / "copy"]
    said = copy(engine, *asked, code=3, preexec_fn=little).stderr.decode()
    assert f"{tmp_path}/copy: expected memory for a block, found Out of memory; ask for less (`--block`," in said
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def open_folder():
    """A folder that an ordinary user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="venturi-copy-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def as_ordinary_user(command, groups="--clear-groups"):
    """Return a command as one that root's rights do not help."""
    drop = ["setpriv", "--reuid=65534", "--regid=65534", groups]
    return [*drop, *command] if os.geteuid() == 0 else command


def test_what_may_not_be_read_or_written_is_told_and_the_rest_goes_on(engine, open_folder):
    program = open_folder / "engine"
    shutil.copy(engine, program)
    source = open_folder / "source"
    (source / "shut").mkdir(parents=True)
    (source / "open").mkdir()
    for name in ("secret", "open/file"):
        (source / name).write_bytes(b"x")
    (source / "secret").chmod(0)
    (source / "shut").chmod(0)
    command = as_ordinary_user([program, "copy", "--json", "-r", source, open_folder / "copy"])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (source / "secret").chmod(0o644)
    (source / "shut").chmod(0o755)
    assert done.returncode == 3
    for path, expected in ((source / "secret", "a file"), (source / "shut", "a directory")):
        told = f"{path}: expected {expected} that can be read, found Permission denied; get the right to it"
        assert told in done.stderr
    assert (open_folder / "copy" / "open" / "file").read_bytes() == b"x"
    assert "2 failed, the rest is there" in done.stderr
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert leftovers(open_folder) == []


@STRACE
def test_a_large_file_that_nobody_may_write_to_goes_on_after_a_kill(engine, source, open_folder):
    program, mine, ours = open_folder / "engine", open_folder / "mine", open_folder / "copy"
    shutil.copy(engine, program)
    shutil.copy2(source / "large", mine)
    mine.chmod(0o444)
    process = slow_copy(program, mine, ours, when=CHUNK_WRITTEN, before=as_ordinary_user([]))
    assert until(lambda: chunks_done(open_folder) >= 1, process)
    process.kill()
    process.communicate()
    done = chunks_done(open_folder)
    command = as_ordinary_user([program, "copy", "--json", mine, ours])
    told = subprocess.run(command, capture_output=True, check=True).stdout
    kept = [event["value"] for event in map(json.loads, told.splitlines()) if event.get("what") == "chunks_kept"]
    assert kept == [done]
    assert ours.stat().st_mode & 0o7777 == 0o444
    assert subprocess.run(["cmp", mine, ours], check=False).returncode == 0
    assert leftovers(open_folder) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_who_is_not_root_gives_a_copy_to_groups_that_he_is_in(engine, open_folder):
    program, source, ours = (open_folder / name for name in ("engine", "source", "copy"))
    shutil.copy(engine, program)
    source.mkdir()
    owners = {"mine": (65534, 65534), "shared": (65534, 12345), "given": (23456, 12345), "other": (23456, 23456)}
    for name, owner in owners.items():
        (source / name).write_bytes(b"x")
        (source / f"to {name}").symlink_to(name)
        os.chown(source / name, *owner)
        (source / name).chmod(0o2755)
        os.chown(source / f"to {name}", *owner, follow_symlinks=False)
    command = [program, "copy", "-r", "--preserve", "all", source, ours]
    subprocess.run(as_ordinary_user(command, "--groups=65534,12345"), check=True)
    for name, (owner, group) in owners.items():
        for made in (ours / name, ours / f"to {name}"):
            found = made.lstat()
            assert (found.st_uid, found.st_gid) == (65534, 12345 if group == 12345 else 65534), name
        lends = (ours / name).stat().st_mode & 0o2000 != 0
        assert lends == (owner == 65534), "what lends the rights of others is theirs alone"


@pytest.mark.parametrize("words", [(), ("--preserve", "none")])
def test_a_tree_that_nobody_may_write_to_is_copied_again_and_again(engine, open_folder, words):
    program, source, ours = (open_folder / name for name in ("engine", "source", "copy"))
    shutil.copy(engine, program)
    (source / "inner").mkdir(parents=True)
    (source / "inner" / "file").write_bytes(b"old")
    modes = dict.fromkeys((source, source / "inner", ours, ours / "inner"), 0o555)
    command = as_ordinary_user([program, "copy", "-r", *words, f"{source}/", f"{ours}/"])
    for content in (b"old", b"old", b"another"):
        (source / "inner").chmod(0o755)
        (source / "inner" / "file").write_bytes(content)
        (source / "inner").chmod(0o555)
        source.chmod(0o555)
        done = subprocess.run(command, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert (ours / "inner" / "file").read_bytes() == content
        assert {path: path.stat().st_mode & 0o777 for path in modes} == modes
        assert leftovers(open_folder) == []
    refused = as_ordinary_user([program, "copy", "-r", "-T", ours, ours])
    assert subprocess.run(refused, capture_output=True, check=False).returncode == 3
    assert ours.stat().st_mode & 0o777 == 0o555


def test_a_link_in_the_copy_leads_nowhere_else(engine, tmp_path):
    (tmp_path / "source" / "inner").mkdir(parents=True)
    (tmp_path / "source" / "inner" / "file").write_bytes(b"ours")
    (tmp_path / "source" / "name").write_bytes(b"ours")
    (tmp_path / "outside").mkdir()
    (tmp_path / "victim").write_bytes(b"theirs")
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "inner").symlink_to("../outside")
    (tmp_path / "copy" / "name").symlink_to("../victim")
    told = copy(engine, "-r", "-T", tmp_path / "source", tmp_path / "copy", code=3).stderr.decode()
    assert "copy/inner: expected a directory, or a place for one" in told
    assert list((tmp_path / "outside").iterdir()) == []
    assert (tmp_path / "victim").read_bytes() == b"theirs"
    assert not (tmp_path / "copy" / "name").is_symlink()


def test_a_file_that_becomes_a_link_meanwhile_is_never_followed(engine, tmp_path):
    source, secret, stop = tmp_path / "source", tmp_path / "secret", threading.Event()
    source.mkdir()
    secret.write_bytes(b"secret")
    names = [source / f"{number}" for number in range(50)]
    for name in names:
        name.write_bytes(b"public")

    def swap():
        while not stop.is_set():
            for name in names:
                (source / ".new").symlink_to(secret)
                (source / ".new").replace(name)
                (source / ".new").write_bytes(b"public")
                (source / ".new").replace(name)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for turn in range(15):
            subprocess.run(
                [engine, "copy", "-q", "-r", source, tmp_path / f"{turn}"], capture_output=True, check=False
            )
            for path in (tmp_path / f"{turn}").iterdir():
                assert path.is_symlink() or path.read_bytes() != b"secret"
    finally:
        stop.set()
        swapping.join()


def with_a_lack(call, errno, command):
    """Return a command for which a call of the system does not exist, as on some file systems."""
    lacking = ["strace", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", f"trace={call}"]
    return [*lacking, "-e", f"inject={call}:error={errno}", *command]


@STRACE
@pytest.mark.parametrize("errno", ["ENOSYS", "ENOLCK", "EOPNOTSUPP"])
def test_a_file_system_without_locks_has_trees_copied_to(engine, source, tmp_path, errno):
    command = with_a_lack("flock", errno, [engine, "copy", "-r", "-T", source, tmp_path / "copy"])
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
    assert tree_of(tmp_path / "copy") == tree_of(source)
    assert leftovers(tmp_path) == []


@STRACE
@pytest.mark.parametrize("errno", ["EINVAL", "ENOSYS"])
def test_a_file_system_that_cannot_rename_without_replacing_has_new_files_copied_to(engine, tmp_path, errno):
    source, ours = tmp_path / "source", tmp_path / "copy"
    for folder in (source, ours):
        folder.mkdir()
    for name in ("new", "there"):
        (source / name).write_bytes(b"ours")
    (source / "link").symlink_to("new")
    (ours / "there").write_bytes(b"theirs")
    words = ["-r", "-T", "--existing", "keep", source, ours]
    done = subprocess.run(with_a_lack("renameat2", errno, [engine, "copy", *words]), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ((ours / "new").read_bytes(), (ours / "there").read_bytes()) == (b"ours", b"theirs")
    assert (ours / "link").is_symlink()
    assert leftovers(ours) == []


@STRACE
@pytest.mark.parametrize(("call", "what"), [("fchmod", "the mode"), ("utimensat", "the times")])
def test_a_file_system_without_modes_or_times_is_told_of_with_the_option_that_leaves_them_out(
    engine, tmp_path, call, what
):
    source, ours = tmp_path / "source", tmp_path / "copy"
    (source / "in").mkdir(parents=True)
    (source / "in" / "file").write_bytes(b"x")
    for path in (source, source / "in", source / "in" / "file"):
        path.chmod(0o750)
    command = with_a_lack(call, "EPERM", [engine, "copy", "-r", "-T", source, ours])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = f"expected to set {what}, found Operation not permitted; get the right to it, or leave out what the file system there does not take (`--preserve none`"
    assert (done.returncode, told in done.stderr) == (3, True), done.stderr
    done = subprocess.run([*command, "--preserve", "none"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (ours / "in" / "file").read_bytes() == b"x"
    assert leftovers(ours) == []


@STRACE
def test_a_file_that_is_written_to_meanwhile_gets_no_name(engine, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"x" * 100_000_000)
    process = slow_copy(engine, source, tmp_path / "copy", when="1000", delay_s=3)
    assert until(lambda: any(path.stat().st_size > 0 for path in tmp_path.glob(".venturi-*")), process)
    with source.open("ab") as file:
        file.write(b"more")
    said = process.communicate()[1].decode()
    assert process.returncode == 3
    assert "expected a file at rest, found that it was written to while it was copied" in said
    assert not (tmp_path / "copy").exists()
    assert leftovers(tmp_path) == []
