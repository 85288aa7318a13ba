"""Random trees, copied and compared with `cp -a`, `diff` and `rsync`."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from copykit import copy, differences_by_others, end_of, events, leftovers, tree_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testkit import needs_programs

NAMES = st.binary(min_size=1, max_size=12).filter(
    lambda name: not set(name) & set(b"/\0") and name not in (b".", b"..") and not name.startswith(b".venturi-")
)
TIMES = st.integers(0, 2**31 * 10**9)
FILES = st.tuples(
    st.just("file"),
    st.one_of(st.binary(max_size=40), st.integers(0, 300_000)),
    st.sampled_from([0o644, 0o600, 0o755, 0o444, 0o4755]),
    TIMES,
)
LINKS = st.tuples(st.just("link"), st.binary(min_size=1, max_size=30).filter(lambda name: b"\0" not in name))
OTHERS = st.tuples(st.just("other"), st.integers(0, 10))
TREES = st.recursive(
    st.one_of(FILES, FILES, LINKS, OTHERS),
    lambda inner: st.tuples(
        st.just("folder"), st.dictionaries(NAMES, inner, max_size=6), st.sampled_from([0o755, 0o700, 0o555]), TIMES
    ),
    max_leaves=25,
)


def grow(path, tree, files):
    """Create a tree; ``other`` is another name of an earlier file."""
    if tree[0] == "folder":
        path.mkdir()
        for name, inner in tree[1].items():
            grow(path / os.fsdecode(name), inner, files)
        path.chmod(tree[2])
        os.utime(path, ns=(tree[3], tree[3]))
    elif tree[0] == "file":
        write(path, tree[1])
        path.chmod(tree[2])
        os.utime(path, ns=(tree[3], tree[3]))
        files.append(path)
    elif tree[0] == "link":
        path.symlink_to(os.fsdecode(tree[1]))
    elif files:
        path.hardlink_to(files[tree[1] % len(files)])


def write(path, content):
    """Write bytes, or for a number, a hole of this size that ends with a byte."""
    if isinstance(content, bytes):
        path.write_bytes(content)
        return
    with path.open("wb") as file:
        file.truncate(content)
        file.seek(max(0, content - 1))
        file.write(b"x" if content else b"")


def forget(directory):
    """Remove a tree with any modes."""
    subprocess.run(["chmod", "-R", "u+rwx", directory], check=True)
    shutil.rmtree(directory)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.dictionaries(NAMES, TREES, max_size=8))
def test_a_copied_tree_equals_the_tree_that_cp_creates(engine, content):
    directory = Path(tempfile.mkdtemp(prefix="venturi-copy-"))
    try:
        grow(directory / "source", ("folder", content, 0o755, 10**18 + 1), [])
        subprocess.run(["cp", "-a", directory / "source", directory / "theirs"], check=True)
        copy(engine, "-r", "--preserve", "all", directory / "source", directory / "ours")
        expected = tree_of(directory / "theirs")
        assert tree_of(directory / "ours") == expected
        assert differences_by_others(directory / "source", directory / "ours") == b""
        # The second copy transfers nothing and changes nothing.
        output = events(engine, "-r", "-T", "--preserve", "all", directory / "source", directory / "ours")
        assert (end_of(output)["files"], end_of(output)["hard_links"]) == (0, 0)
        assert tree_of(directory / "ours") == expected
    finally:
        forget(directory)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.dictionaries(NAMES, TREES, max_size=6),
    words=st.sampled_from(
        [("--method", "buffers"), ("--method", "kernel", "--block", "4KiB"), ("--direct",), ("--direct", "--verify", "--checksum"), ("--verify", "--sync"),
         ("--fixed", "--concurrency", "3", "--block", "8KiB"), ("--checksum",)]
    ),
)  # fmt: skip
def test_every_method_of_moving_bytes_moves_the_same_bytes(engine, content, words):
    directory = Path(tempfile.mkdtemp(prefix="venturi-copy-"))
    try:
        grow(directory / "source", ("folder", content, 0o755, 10**18), [])
        copy(engine, "-r", *words, "--preserve", "all", directory / "source", directory / "ours")
        assert tree_of(directory / "ours") == tree_of(directory / "source")
        output = events(engine, "-r", "-T", *words, "--preserve", "all", directory / "source", directory / "ours")
        assert (end_of(output)["files"], end_of(output)["links"], end_of(output)["errors"]) == (0, 0, 0)
    finally:
        forget(directory)


def test_holes_are_preserved_in_a_sparse_file_of_five_terabytes(engine, tmp_path):
    source, ours = tmp_path / "sparse", tmp_path / "copy"
    with source.open("wb") as file:
        for start in (0, 3 << 30, 1 << 40, (5 << 40) - 5):
            file.seek(start)
            file.write(b"data!")
    assert end_of(events(engine, source, ours))["bytes"] == 5 << 40
    assert ours.stat().st_size == 5 << 40
    assert ours.stat().st_blocks == source.stat().st_blocks
    assert data_ranges(ours) == data_ranges(source)
    with ours.open("rb") as file:
        for start in (0, 3 << 30, 1 << 40, (5 << 40) - 5):
            file.seek(start)
            assert file.read(5) == b"data!"


def data_ranges(path):
    """Return the data ranges of a file, as the kernel reports them."""
    found, at = [], 0
    with path.open("rb") as file:
        while True:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                return found
            end = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            found.append((at, end))
            at = end


def test_a_large_file_copied_in_chunks_is_identical(engine, tmp_path):
    source = tmp_path / "large"
    with source.open("wb") as file:
        for number in range(150):
            file.write(number.to_bytes(4, "big") * 250_000)
        file.write(b"an end off any block")
    for name, words in {
        "auto": (),
        "kernel": ("--method", "kernel"),
        "buffers": ("--method", "buffers"),
        "direct": ("--direct",),
    }.items():
        copy(engine, "--concurrency", "4", *words, source, tmp_path / name)
        assert subprocess.run(["cmp", source, tmp_path / name], check=False).returncode == 0, name
        assert (tmp_path / name).stat().st_mtime_ns == source.stat().st_mtime_ns
    assert leftovers(tmp_path) == []


def test_files_in_proc_with_a_reported_size_of_zero_are_copied_with_content(engine, tmp_path):
    copy(engine, "/proc/version", tmp_path / "version")
    assert (tmp_path / "version").read_bytes() == Path("/proc/version").read_bytes() != b""


def test_files_in_sys_with_a_reported_size_of_a_page_get_their_actual_content(engine, tmp_path):
    for words in ((), ("--verify",), ("--direct",), ("--method", "buffers")):
        copy(engine, *words, "--existing", "replace", "/sys/class/net/lo/mtu", tmp_path / "mtu")
        assert (tmp_path / "mtu").read_bytes() == Path("/sys/class/net/lo/mtu").read_bytes() != b""
    assert leftovers(tmp_path) == []


def test_a_tree_deeper_than_the_maximum_path_length_is_copied(engine, tmp_path):
    depth = 500  # of 12 bytes each, more than the 4096 of a path
    bottom = os.open(tmp_path, os.O_RDONLY)
    for name in ["source", *(["a-directory"] * depth)]:
        os.mkdir(name, dir_fd=bottom)
        inner = os.open(name, os.O_RDONLY, dir_fd=bottom)
        os.close(bottom)
        bottom = inner
    os.close(os.open("at the bottom", os.O_CREAT | os.O_WRONLY, dir_fd=bottom))
    os.close(bottom)
    try:
        assert end_of(events(engine, "-r", tmp_path / "source", tmp_path / "copy"))["directories"] == depth + 1
        found = os.open(tmp_path / "copy", os.O_RDONLY)
        for _ in range(depth):
            inner = os.open("a-directory", os.O_RDONLY, dir_fd=found)
            os.close(found)
            found = inner
        assert [entry.name for entry in os.scandir(found)] == ["at the bottom"]
        os.close(found)
    finally:
        subprocess.run(["rm", "-rf", tmp_path / "source", tmp_path / "copy"], check=True)


def test_memory_does_not_grow_with_the_number_of_files(engine, tmp_path):
    peaks = []
    # Enough files to keep all workers busy.
    for count in (10_000, 40_000):
        source = tmp_path / f"source{count}"
        source.mkdir()
        for number in range(count):
            os.close(os.open(source / f"a rather long name of a small file {number:08d}", os.O_CREAT | os.O_WRONLY))
        peaks.append(peak_kib(engine, "copy", "-r", source, tmp_path / f"copy{count}"))
        assert sum(1 for _ in (tmp_path / f"copy{count}").iterdir()) == count
    # 30,000 names alone would take 1.5 MB, and twice that with their overhead.
    assert 0 < peaks[0] < 30_000, peaks
    assert peaks[1] - peaks[0] < 1000, peaks


def peak_kib(*argv):
    """Return the peak memory of a command, in KiB.

    `wait4` is not usable, because its value starts with the memory of the parent process.
    """
    process, peak = subprocess.Popen(argv), 0
    while process.poll() is None:
        output = Path(f"/proc/{process.pid}/status").read_text()
        peak = max([peak, *(int(line.split()[1]) for line in output.splitlines() if line.startswith("VmHWM:"))])
    assert process.returncode == 0
    return peak


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_owners_are_kept_on_request_and_setuid_bits_only_with_their_owner(engine, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name, mode in {"plain": 0o640, "lends": 0o6755}.items():
        (source / name).write_bytes(b"x")
        os.chown(source / name, 12345, 23456)
        (source / name).chmod(mode)
    copy(engine, "-r", "--preserve", "all", source, tmp_path / "all")
    assert tree_of(tmp_path / "all", owners=True) == tree_of(source, owners=True)
    copy(engine, "-r", source, tmp_path / "usual")
    assert (tmp_path / "usual" / "lends").stat().st_uid == os.geteuid()
    assert (tmp_path / "usual" / "lends").stat().st_mode & 0o7777 == 0o755


def test_extended_attributes_are_kept_on_request(engine, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"x")
    try:
        os.setxattr(source, "user.origin", b"a value")
    except OSError as error:
        pytest.skip(f"no extended attributes here: {error}")
    copy(engine, "--preserve", "all", source, tmp_path / "all")
    copy(engine, source, tmp_path / "usual")
    assert os.getxattr(tmp_path / "all", "user.origin") == b"a value"
    assert "user.origin" not in os.listxattr(tmp_path / "usual")


def test_without_preserve_modes_follow_the_umask_and_contents_are_compared(engine, tmp_path):
    source = tmp_path / "source"
    source.mkdir(mode=0o777)
    source.chmod(0o777)
    (source / "file").write_bytes(b"x")
    (source / "file").chmod(0o666)
    os.utime(source / "file", (1, 1))
    words = ("-r", "-T", "--preserve", "none", source, tmp_path / "copy")
    copy(engine, *words, umask=0o027)
    made = tmp_path / "copy"
    assert (made.stat().st_mode & 0o777, (made / "file").stat().st_mode & 0o777) == (0o750, 0o640)
    assert (made / "file").stat().st_mtime > 1
    assert end_of(events(engine, *words))["kept"] == 1
    (source / "file").write_bytes(b"y")
    assert end_of(events(engine, *words))["files"] == 1
    assert (made / "file").read_bytes() == b"y"


@pytest.mark.parametrize(("kept", "mode"), [("none", 0o2755), ("mode", 0o2775), ("mode,owner", 0o775)])
def test_directories_created_in_a_setgid_directory_inherit_its_setgid_bit(engine, tmp_path, kept, mode):
    source, shared = tmp_path / "source", tmp_path / "shared"
    (source / "inner").mkdir(parents=True)
    shared.mkdir()
    for directory, has in ((source, 0o775), (source / "inner", 0o775), (shared, 0o2775)):
        directory.chmod(has)
    for _ in range(2):
        copy(engine, "-r", "-T", "--preserve", kept, source, shared / "copy", umask=0o022)
        modes = [path.stat().st_mode & 0o7777 for path in (shared / "copy", shared / "copy" / "inner")]
        assert modes == [mode, mode]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file")
@needs_programs("mkfs.xfs", "strace")
def test_files_are_cloned_on_a_file_system_that_supports_clones(engine, tmp_path):
    script = """
        truncate -s 400M "$2/image"; mkfs.xfs -q "$2/image"; mkdir "$2/disk"; mount -o loop "$2/image" "$2/disk"
        cd "$2/disk"; mkdir tree; head -c 200000000 /dev/urandom >tree/large; head -c 100000 /dev/urandom >tree/small
        "$1" copy -r --json tree auto >"$2/auto"; "$1" copy --json --method copy tree/small copied >"$2/copy"
        cmp tree/large auto/large; cmp tree/small auto/small; cmp tree/small copied
        # Whoever has begun the large file, and wakes the others, goes on late, at times later than they are done with it.
        for late in 1 2 3 4 5 6 7 8 9 10 11 12; do
            strace -f -qq -o /dev/null -e trace=futex -e inject=futex:delay_enter=20000 "$1" copy -r tree late$late
            cmp tree/large late$late/large
        done; cd /; umount -l "$2"/disk"""
    inside = ["unshare", "--mount", "sh", "-ec", script, "sh", engine, tmp_path]
    done = subprocess.run(inside, capture_output=True, text=True, check=False, timeout=60)
    if "mount:" in done.stderr:
        pytest.skip(f"no loop devices here: {done.stderr.strip()}")
    # strace prints a line for each thread that ends during its delay.
    printed = [line for line in done.stderr.splitlines() if not line.startswith("strace: dispatch_event: ")]
    assert (done.returncode, done.stdout, printed) == (0, "", []), done.stderr
    methods = {
        Path(event["path"]).name: event["method"]
        for name in ("auto", "copy")
        for event in map(json.loads, (tmp_path / name).read_text().splitlines())
        if event["event"] == "file"
    }
    # A 400 MB disk can hold 200 MB twice only as clones.
    assert methods == {"large": "clone", "small": "clone", "copied": "kernel"}
