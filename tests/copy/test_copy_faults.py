"""Faults during a copy, which the same command resumes: kills, signals, a full disk, missing permissions, links."""

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
"""Writes of 64 KiB up to then: all small files and one chunk of the large file; two chunks are still missing."""


@pytest.fixture(scope="module")
def source():
    """Yield a tree of several hundred files, one with several chunks."""
    directory = Path(tempfile.mkdtemp(prefix="venturi-copy-"))
    tree, block = directory / "source", os.urandom(1_000_000)
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
    shutil.rmtree(directory)


def until(what, process, most_s=60.0):
    """Wait until a condition holds or the process has ended; return whether it holds."""
    end = time.monotonic() + most_s
    while time.monotonic() < end:
        if what():
            return True
        if process.poll() is not None:
            return False
    raise AssertionError(f"not within {most_s} s")


def chunks_done(directory):
    """Return the number of complete chunks in the chunk maps below a directory."""
    found = 0
    for location, _, names in os.walk(directory):
        for name in names:
            if name.startswith(".venturi-") and name.endswith(".progress"):
                with suppress(FileNotFoundError):  # the copy continues in the meantime
                    found += Path(location, name).read_bytes()[512:].count(b"1")
    return found


def slow_copy(engine, *words, when, delay_s=0.05, before=()):
    """Start a copy with one worker and small blocks, and delay the writes with these numbers.

    The delay gives a test time to act.
    """
    held = ["strace", "-D", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", "trace=pwrite64"]
    held += ["-e", f"inject=pwrite64:delay_enter={delay_s * 1e6:.0f}:when={when}"]
    slow = ("-q", "--method", "buffers", "--block", "64KiB", "--concurrency", "1")
    return subprocess.Popen([*before, *held, engine, "copy", *slow, *words], stderr=subprocess.PIPE)


def names_are_of_whole_files(source, copied):
    """Check that every final name in an unfinished copy belongs to a complete file."""
    for path in copied.rglob("*"):
        if path.is_file() and not path.name.startswith(".venturi-"):
            assert path.stat().st_size == (source / path.relative_to(copied)).stat().st_size, path


def test_the_same_command_completes_a_copy_killed_at_random_moments(engine, source, tmp_path):
    command = [engine, "copy", "-q", "-r", "-T", source, tmp_path / "copy"]
    started_s = time.monotonic()
    subprocess.run(command, check=True)
    whole_s = time.monotonic() - started_s
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
            whole_s *= 0.8  # the first copy was slower, because of a cold cache or a busy machine
        names_are_of_whole_files(source, tmp_path / "copy")
        if killed % 3 == 0 or not early:  # from the start
            shutil.rmtree(tmp_path / "copy", ignore_errors=True)
    assert killed == 8
    subprocess.run(command, check=True)
    assert tree_of(tmp_path / "copy") == tree_of(source)
    assert leftovers(tmp_path) == []


@STRACE
def test_files_complete_before_a_kill_are_not_copied_again(engine, tmp_path):
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
    # The existing directory is the unfinished copy, so the source is not copied into it.
    output = events(engine, "-r", source, ours)
    assert {Path(event["path"]) for event in output if event.get("outcome") == "kept"} == inodes.keys()
    assert {path: path.stat().st_ino for path in inodes} == inodes
    assert [event["setting"] for event in output if event["event"] == "decision"].count("resumed") == 1
    assert differences_by_others(source, ours) == b""
    assert leftovers(tmp_path) == []


@STRACE
@pytest.mark.parametrize("word", ["kill", "interrupt"])
def test_a_resumed_large_file_copies_only_missing_chunks(engine, source, tmp_path, word):
    process = slow_copy(engine, source / "large", tmp_path / "copy", when=CHUNK_WRITTEN)
    assert until(lambda: chunks_done(tmp_path) >= 1, process)
    process.send_signal(signal.SIGKILL if word == "kill" else signal.SIGINT)
    printed = process.communicate()[1].decode()
    assert not (tmp_path / "copy").exists()
    if word == "interrupt":
        assert process.returncode == 130
        assert "Interrupted. Run the same command again to resume." in printed
    done = chunks_done(tmp_path)
    output = events(engine, source / "large", tmp_path / "copy")
    kept = [event["value"] for event in output if event.get("setting") == "chunks_kept"]
    assert kept == [done]
    assert end_of(output)["moved_bytes"] == LARGE_MB * 10**6 - done * 2**26
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
        output = events(engine, mine, tmp_path / "copy")
        assert not [event for event in output if event.get("setting") == "chunks_kept"]
        assert subprocess.run(["cmp", mine, tmp_path / "copy"], check=False).returncode == 0
        assert leftovers(tmp_path) == []
        (tmp_path / "copy").unlink()


def test_after_a_host_crash_content_decides_which_files_are_complete(engine, tmp_path):
    source, ours = tmp_path / "source", tmp_path / "copy"
    source.mkdir()
    for name in ("lost", "whole"):
        (source / name).write_bytes(b"right")
        os.utime(source / name, (5, 5))
    copy(engine, "-r", source, ours)
    # As after a power cut: name, size and time are correct, the bytes are lost, and the journal has another boot id.
    (ours / "lost").write_bytes(b"\0\0\0\0\0")
    os.utime(ours / "lost", (5, 5))
    journal = journal_name(engine, source, ours)
    (ours / journal).write_text("venturi copy 1\nanother boot\n")
    output = end_of(events(engine, "-r", source, ours))
    assert (output["files"], output["kept"]) == (1, 1)
    assert (ours / "lost").read_bytes() == b"right"
    assert leftovers(ours) == []


@STRACE
@pytest.mark.parametrize("words", [(), ("--sync",)])
def test_size_and_time_are_not_trusted_until_a_copy_completes_after_a_crash(engine, tmp_path, words):
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
    output = events(engine, "-r", *words, source, ours)
    assert any("by content, because the host" in event.get("reason", "") for event in output)
    assert (ours / "lost").read_bytes() == (source / "lost").read_bytes()
    assert leftovers(ours) == []


def journal_name(engine, source, destination):
    """Return the name of the journal of a copy, from a copy that fails and keeps its journal."""
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
def test_an_interrupted_tree_copy_names_only_complete_files_and_resumes(engine, source, tmp_path):
    process = slow_copy(engine, "-r", source, tmp_path / "copy", when=CHUNK_WRITTEN)
    assert until(lambda: chunks_done(tmp_path) >= 1, process)
    process.send_signal(signal.SIGTERM)
    printed = process.communicate()[1].decode()
    assert process.returncode == 130, printed
    names_are_of_whole_files(source, tmp_path / "copy")
    copy(engine, "-r", source, tmp_path / "copy")
    assert tree_of(tmp_path / "copy") == tree_of(source)
    assert leftovers(tmp_path) == []


@STRACE
@pytest.mark.parametrize("ignored", [True, False])
def test_a_signal_ends_a_copy_unless_its_parent_ignored_the_signal(engine, source, tmp_path, ignored):
    shell = ("sh", "-c", 'trap "" HUP INT; exec "$@"', "sh") if ignored else ()
    process = slow_copy(engine, source / "large", tmp_path / "copy", when="100", delay_s=2, before=shell)
    assert until(lambda: is_in_progress(tmp_path), process)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGINT):
        process.send_signal(number)
    printed = process.communicate()[1].decode()
    assert process.returncode == (0 if ignored else 130), printed
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


def is_in_progress(directory):
    """Return whether a copy has written bytes."""
    return any(path.stat().st_size > 0 for path in directory.glob(".venturi-*.part"))


@STRACE
def test_a_second_concurrent_copy_of_the_same_source_is_rejected(engine, source, tmp_path):
    # The delay is longer than the other copy needs to find it.
    first = slow_copy(engine, "-r", "-T", source, tmp_path / "copy", when="1000", delay_s=3)
    assert until(lambda: (tmp_path / "copy").is_dir(), first)
    output = copy(engine, "-r", "-T", source, tmp_path / "copy", code=3).stderr.decode()
    assert "found another running copy of the same source; wait" in output
    first.communicate()
    assert first.returncode == 0
    assert tree_of(tmp_path / "copy") == tree_of(source)


def held_before_its_name(command, directory):
    """Start a copy of a tree and delay its final rename."""
    held = ["strace", "-D", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", "trace=renameat"]
    held += ["-e", "inject=renameat:delay_enter=3000000:when=1"]
    process = subprocess.Popen([*held, *command], stderr=subprocess.PIPE, text=True)
    # The journal is written once it is locked.
    assert until(
        lambda: any(path.stat().st_size > 0 for path in directory.glob(".venturi-*.tree/.venturi-*.journal")), process
    )
    return process


@STRACE
def test_only_one_of_two_tree_copies_started_at_the_same_time_continues(engine, source, tmp_path):
    command = [engine, "copy", "-r", "-T", source / "3", tmp_path / "copy"]
    first = held_before_its_name(command, tmp_path)
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    printed = first.communicate()[1]
    assert (done.returncode, first.returncode) == (3, 0), done.stderr + printed
    assert "found another running copy of the same source; wait" in done.stderr
    assert tree_of(tmp_path / "copy") == tree_of(source / "3")
    assert leftovers(tmp_path) == []


@STRACE
def test_a_tree_copy_leaves_nothing_if_its_destination_appears_at_the_last_moment(engine, source, tmp_path):
    first = held_before_its_name([engine, "copy", "-r", "-T", source / "3", tmp_path / "copy"], tmp_path)
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "file").write_bytes(b"theirs")
    printed = first.communicate()[1]
    assert first.returncode == 3
    assert "found another running copy of the same source; wait" in printed
    assert [path.name for path in tmp_path.rglob("*")] == ["copy", "file"]


def isolated(script, *words):
    """Run a script in its own mount and user namespaces; skip the test if they are unavailable."""
    inside = ["unshare", "--mount", "--user", "--map-root-user", "sh", "-ec", script, "sh", *words]
    done = subprocess.run(inside, capture_output=True, text=True, check=False, timeout=60)
    if "unshare failed" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip(f"no user namespaces here: {done.stderr.strip()}")
    return done


def test_a_full_disk_is_reported_and_complete_files_stay(engine, source, tmp_path):
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
    printed = (tmp_path / "said").read_text()
    assert "No space left on device; free some space, then run the same command again" in printed
    assert printed.count("\n") < 12  # not one for each remaining file
    assert (tmp_path / "parts").read_text().strip() == "0"


def test_a_large_file_that_does_not_fit_is_rejected_before_the_disk_is_full(engine, source, tmp_path):
    script = """
        mkdir "$3/disk"; mount -t tmpfs -o size=40m none "$3/disk"
        "$1" copy "$2/large" "$3/disk/" 2>"$3/said" && exit 9; code=$?
        ls -A "$3/disk"; exit $code"""
    done = isolated(script, engine, source, tmp_path)
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    printed = (tmp_path / "said").read_text()
    assert f"large: expected space for {LARGE_MB * 10**6} bytes, found 4" in printed


@pytest.mark.parametrize("words", [["--direct"], ["--verify", "--concurrency", "1"]], ids=["buffers", "verified"])
def test_a_block_allocation_failure_is_reported_with_advice(engine, source, tmp_path, words):
    def little():
        resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))

    requested = [*words, "--block", "1GiB", source / "large", tmp_path / "copy"]
    printed = copy(engine, *requested, code=3, preexec_fn=little).stderr.decode()
    assert f"{tmp_path}/copy: expected memory for a block, found Out of memory; reduce `--block` or `" in printed
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def open_directory():
    """Yield a directory that an ordinary user can access."""
    directory = Path(tempfile.mkdtemp(prefix="venturi-copy-"))
    directory.chmod(0o777)
    yield directory
    shutil.rmtree(directory)


def as_ordinary_user(command, groups="--clear-groups"):
    """Return a command that runs without the permissions of root."""
    drop = ["setpriv", "--reuid=65534", "--regid=65534", groups]
    return [*drop, *command] if os.geteuid() == 0 else command


def test_unreadable_files_and_directories_are_reported_and_the_rest_is_copied(engine, open_directory):
    program = open_directory / "engine"
    shutil.copy(engine, program)
    source = open_directory / "source"
    (source / "shut").mkdir(parents=True)
    (source / "open").mkdir()
    for name in ("secret", "open/file"):
        (source / name).write_bytes(b"x")
    (source / "secret").chmod(0)
    (source / "shut").chmod(0)
    command = as_ordinary_user([program, "copy", "--json", "-r", source, open_directory / "copy"])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (source / "secret").chmod(0o644)
    (source / "shut").chmod(0o755)
    assert done.returncode == 3
    for path, expected in ((source / "secret", "file"), (source / "shut", "directory")):
        output = f"{path}: expected a readable {expected}, found Permission denied; grant access"
        assert output in done.stderr
    assert (open_directory / "copy" / "open" / "file").read_bytes() == b"x"
    assert "2 failed; all other files are complete" in done.stderr
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert leftovers(open_directory) == []


@STRACE
def test_a_read_only_large_file_resumes_after_a_kill(engine, source, open_directory):
    program, mine, ours = open_directory / "engine", open_directory / "mine", open_directory / "copy"
    shutil.copy(engine, program)
    shutil.copy2(source / "large", mine)
    mine.chmod(0o444)
    process = slow_copy(program, mine, ours, when=CHUNK_WRITTEN, before=as_ordinary_user([]))
    assert until(lambda: chunks_done(open_directory) >= 1, process)
    process.kill()
    process.communicate()
    done = chunks_done(open_directory)
    command = as_ordinary_user([program, "copy", "--json", mine, ours])
    output = subprocess.run(command, capture_output=True, check=True).stdout
    kept = [event["value"] for event in map(json.loads, output.splitlines()) if event.get("setting") == "chunks_kept"]
    assert kept == [done]
    assert ours.stat().st_mode & 0o7777 == 0o444
    assert subprocess.run(["cmp", mine, ours], check=False).returncode == 0
    assert leftovers(open_directory) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_copy_by_an_ordinary_user_keeps_only_groups_of_that_user(engine, open_directory):
    program, source, ours = (open_directory / name for name in ("engine", "source", "copy"))
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
def test_a_read_only_tree_can_be_copied_repeatedly(engine, open_directory, words):
    program, source, ours = (open_directory / name for name in ("engine", "source", "copy"))
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
        assert leftovers(open_directory) == []
    rejected = as_ordinary_user([program, "copy", "-r", "-T", ours, ours])
    assert subprocess.run(rejected, capture_output=True, check=False).returncode == 3
    assert ours.stat().st_mode & 0o777 == 0o555


def test_links_in_the_destination_are_not_followed(engine, tmp_path):
    (tmp_path / "source" / "inner").mkdir(parents=True)
    (tmp_path / "source" / "inner" / "file").write_bytes(b"ours")
    (tmp_path / "source" / "name").write_bytes(b"ours")
    (tmp_path / "outside").mkdir()
    (tmp_path / "victim").write_bytes(b"theirs")
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "inner").symlink_to("../outside")
    (tmp_path / "copy" / "name").symlink_to("../victim")
    output = copy(engine, "-r", "-T", tmp_path / "source", tmp_path / "copy", code=3).stderr.decode()
    assert "copy/inner: expected a directory" in output
    assert list((tmp_path / "outside").iterdir()) == []
    assert (tmp_path / "victim").read_bytes() == b"theirs"
    assert not (tmp_path / "copy" / "name").is_symlink()


def test_a_source_file_replaced_by_a_link_during_the_copy_is_not_followed(engine, tmp_path):
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
    """Return a command with a failing system call, as on some file systems."""
    lacking = ["strace", "-f", "--seccomp-bpf", "-qq", "-o", "/dev/null", "-e", f"trace={call}"]
    return [*lacking, "-e", f"inject={call}:error={errno}", *command]


@STRACE
@pytest.mark.parametrize("errno", ["ENOSYS", "ENOLCK", "EOPNOTSUPP"])
def test_trees_are_copied_to_a_file_system_without_locks(engine, source, tmp_path, errno):
    command = with_a_lack("flock", errno, [engine, "copy", "-r", "-T", source, tmp_path / "copy"])
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
    assert tree_of(tmp_path / "copy") == tree_of(source)
    assert leftovers(tmp_path) == []


@STRACE
@pytest.mark.parametrize("errno", ["EINVAL", "ENOSYS"])
def test_new_files_are_copied_to_a_file_system_without_rename_noreplace(engine, tmp_path, errno):
    source, ours = tmp_path / "source", tmp_path / "copy"
    for directory in (source, ours):
        directory.mkdir()
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
def test_unsupported_modes_or_times_are_reported_with_the_option_to_exclude_them(engine, tmp_path, call, what):
    source, ours = tmp_path / "source", tmp_path / "copy"
    (source / "in").mkdir(parents=True)
    (source / "in" / "file").write_bytes(b"x")
    for path in (source, source / "in", source / "in" / "file"):
        path.chmod(0o750)
    command = with_a_lack(call, "EPERM", [engine, "copy", "-r", "-T", source, ours])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    output = f"expected to set {what}, found Operation not permitted; grant access, or exclude attributes that the file system does not support (`--preserve none`"
    assert (done.returncode, output in done.stderr) == (3, True), done.stderr
    done = subprocess.run([*command, "--preserve", "none"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (ours / "in" / "file").read_bytes() == b"x"
    assert leftovers(ours) == []


@STRACE
def test_a_file_that_changes_during_its_copy_is_reported_and_not_copied(engine, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"x" * 100_000_000)
    process = slow_copy(engine, source, tmp_path / "copy", when="1000", delay_s=3)
    assert until(lambda: any(path.stat().st_size > 0 for path in tmp_path.glob(".venturi-*")), process)
    with source.open("ab") as file:
        file.write(b"more")
    printed = process.communicate()[1].decode()
    assert process.returncode == 3
    assert f"{source}: expected" in printed
    assert "changed during the copy" in printed
    assert not (tmp_path / "copy").exists()
    assert leftovers(tmp_path) == []
