"""Faults during each kind of copy: signals, a lost or full destination, a source that shrinks or grows."""

import contextlib
import shutil
import signal
import socket
import subprocess
import time

import kills
import pytest
from copykit import every, leftovers
from test_copy_faults import isolated
from test_kills import memory  # noqa: F401  a fixture

from testkit import free_port, needs_programs

GLOBUS = needs_programs("globus-gridftp-server")
LARGE_BYTES = 140 << 20
TREE = {"large": {"large": LARGE_BYTES}, "small": 10}
MOST_S = 60
"""Maximum wait for a lost server."""
STRIDE = 3


def cases(*others):
    """Return the kinds of copy with their faults; a run of the suite tests every third."""
    found = [(method, *other) for method in kills.METHODS for other in others or [()]]
    return [pytest.param(*case, marks=GLOBUS if "globus" in case[0] else ()) for case in every(found, STRIDE)]


@pytest.fixture
def copies(engine, memory):  # noqa: F811
    """Return a function that returns a kind of copy with its servers running."""
    with contextlib.ExitStack() as ends:

        def start(name):
            methods = kills.methods_of(engine, memory, [name], **TREE)
            ends.callback(methods.close)
            return next(methods)

        yield start


def start(engine, method):
    """Start a copy; return it once its large file is in progress."""
    process = kills.start_copy(engine, method)
    end = time.monotonic() + MOST_S
    while process.poll() is None and not is_in_progress(method.copied):
        assert time.monotonic() < end
    return process


def is_in_progress(directory):
    """Return whether a temporary file contains bytes, ignoring files that disappear."""
    with contextlib.suppress(FileNotFoundError):
        return any(path.stat().st_size > 0 for path in directory.rglob(".venturi-*.part"))
    return False


def end(process, codes):
    """Check the end of a copy: one of these codes, no panic, and a reason for a failure."""
    printed = process.communicate(timeout=MOST_S)[1].decode()
    assert process.returncode in codes, printed
    assert "panicked" not in printed
    assert process.returncode == 0 or printed.strip()
    return process.returncode


def seen(path):
    """Return the bytes of a file, or None if it does not exist."""
    return path.read_bytes() if path.exists() else None


@pytest.mark.parametrize(("name", "number"), cases([signal.SIGINT], [signal.SIGTERM]))
def test_a_signal_ends_a_copy_and_the_same_command_completes_it(engine, copies, name, number):
    method = copies(name)
    process = start(engine, method)
    process.send_signal(number)
    end(process, (0, 130))
    expected = (method.source / "large").read_bytes()
    assert seen(method.copied / "large") in (None, expected)
    again = kills.start_copy(engine, method)
    assert end(again, (0,)) == 0
    assert seen(method.copied / "large") == expected
    assert leftovers(method.copied.parent) == []


@pytest.mark.parametrize("name", cases())
def test_removing_the_destination_during_a_copy_leaves_no_partial_file(engine, copies, name):
    method = copies(name)
    process = start(engine, method)
    shutil.rmtree(method.copied, ignore_errors=True)
    code = end(process, (0, 1, 3))
    expected = (method.source / "large").read_bytes()
    assert seen(method.copied / "large") in (None, expected)
    assert code != 0 or seen(method.copied / "large") == expected or not method.copied.exists()


@pytest.mark.parametrize(("name", "change"), cases(["cut"], ["grown"]))
def test_a_source_that_changes_during_the_copy_never_yields_a_mixed_file(engine, copies, name, change):
    method = copies(name)
    before = (method.source / "large").read_bytes()
    process = start(engine, method)
    with (method.source / "large").open("r+b") as file:
        file.truncate(LARGE_BYTES // 3 if change == "cut" else LARGE_BYTES + (1 << 20))
    end(process, (0, 3))
    after = (method.source / "large").read_bytes()
    assert seen(method.copied / "large") in (None, before, after)
    again = kills.start_copy(engine, method)
    assert end(again, (0,)) == 0
    assert seen(method.copied / "large") == after


@pytest.mark.parametrize("scheme", ["ftp", "http"])
def test_a_full_local_disk_is_reported_and_leaves_no_partial_file(engine, memory, scheme):  # noqa: F811
    (memory / "source").mkdir()
    kills.make_tree(memory / "source", **TREE)
    server = kills.Ours(engine, memory, {"ftp": "--listen", "http": "--http"}[scheme])
    script = """
        mkdir "$3/disk"; mount -t tmpfs -o size=40m none "$3/disk"
        "$1" copy -r -T "$2" "$3/disk/copy" 2>"$3/said" && exit 9; code=$?
        [ ! -e "$3/disk/copy/large" ] || exit 8
        mount -o remount,size=400m "$3/disk"
        "$1" copy -r -T "$2" "$3/disk/copy" && cmp "$3/source/large" "$3/disk/copy/large" && exit $code"""
    done = isolated(script, engine, server.url(memory / "source"), memory)
    server.kill()
    printed = (memory / "said").read_text()
    assert done.returncode == 3, done.stdout + done.stderr + printed
    assert "panicked" not in printed and "No space left on device; free some space" in printed, printed
    assert printed.count("\n") < 20


@pytest.mark.parametrize("scheme", ["ftp", "http"])
def test_a_full_server_disk_is_reported_and_leaves_no_partial_file(engine, memory, scheme):  # noqa: F811
    (memory / "source").mkdir()
    kills.make_tree(memory / "source", **TREE)
    service_port = {"ftp": "--listen", "http": "--http"}[scheme]
    script = """
        mkdir "$3/disk"; mount -t tmpfs -o size=40m none "$3/disk"
        "$1" serve "$3/disk" --write --json "$4" "127.0.0.1:$5" >"$3/log" & server=$!
        turn=0; until [ -s "$3/log" ] || [ $turn = 400 ]; do sleep 0.05; turn=$((turn + 1)); done
        "$1" copy -r -T "$2" "$6/copy" 2>"$3/said" && exit 9; code=$?
        [ ! -e "$3/disk/copy/large" ] || exit 8
        mount -o remount,size=400m "$3/disk"
        "$1" copy -r -T "$2" "$6/copy"; cmp "$3/source/large" "$3/disk/copy/large"
        kill "$server"; wait "$server"; exit $code"""
    port = free_port()
    words = [engine, memory / "source", memory, service_port, str(port), f"{scheme}://127.0.0.1:{port}"]
    done = isolated(script, *words)
    printed = (memory / "said").read_text()
    assert done.returncode == 3, done.stdout + done.stderr + printed
    assert "panicked" not in printed and printed.strip()


@pytest.mark.parametrize("scheme", ["ftp", "http"])
def test_ctrl_c_ends_a_copy_from_a_silent_server(engine, tmp_path, scheme):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        words = [engine, "copy", f"{scheme}://127.0.0.1:{silent.getsockname()[1]}/x", tmp_path / "x"]
        process = subprocess.Popen(words, stderr=subprocess.PIPE)
        accepted, _ = silent.accept()
        process.send_signal(signal.SIGINT)
        assert end(process, (130,)) == 130
        accepted.close()
    assert list(tmp_path.iterdir()) == []
