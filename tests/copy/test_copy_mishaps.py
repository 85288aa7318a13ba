"""What befalls a copy on its way, whichever way that is: signals, a destination that goes away or is full, a source that shrinks or grows."""

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
"""No server that goes away is waited for longer."""
STRIDE = 3


def cases(*others):
    """Return the ways and what befalls them; one run of the suite has every third."""
    found = [(way, *other) for way in kills.WAYS for other in others or [()]]
    return [pytest.param(*case, marks=GLOBUS if "globus" in case[0] else ()) for case in every(found, STRIDE)]


@pytest.fixture
def copies(engine, memory):  # noqa: F811
    """Return a function that gives a way, with its servers up."""
    with contextlib.ExitStack() as ends:

        def begin(name):
            ways = kills.ways_of(engine, memory, [name], **TREE)
            ends.callback(ways.close)
            return next(ways)

        yield begin


def begin(engine, way):
    """Begin a copy; return it when its large file is on its way."""
    process = kills.begin(engine, way)
    end = time.monotonic() + MOST_S
    while process.poll() is None and not is_under_way(way.copied):
        assert time.monotonic() < end
    return process


def is_under_way(folder):
    """Whether bytes come under a temporary name; of what goes meanwhile it is asked again."""
    with contextlib.suppress(FileNotFoundError):
        return any(path.stat().st_size > 0 for path in folder.rglob(".venturi-*.part"))
    return False


def end(process, codes):
    """See how a copy ends: with one of these codes, without a panic, and with a reason."""
    said = process.communicate(timeout=MOST_S)[1].decode()
    assert process.returncode in codes, said
    assert "panicked" not in said
    assert process.returncode == 0 or said.strip()
    return process.returncode


def seen(path):
    """Return all bytes of a file, or nothing where it is not."""
    return path.read_bytes() if path.exists() else None


@pytest.mark.parametrize(("name", "number"), cases([signal.SIGINT], [signal.SIGTERM]))
def test_a_signal_ends_it_and_the_same_command_goes_on(engine, copies, name, number):
    way = copies(name)
    process = begin(engine, way)
    process.send_signal(number)
    end(process, (0, 130))
    wanted = (way.source / "large").read_bytes()
    assert seen(way.copied / "large") in (None, wanted)
    again = kills.begin(engine, way)
    assert end(again, (0,)) == 0
    assert seen(way.copied / "large") == wanted
    assert leftovers(way.copied.parent) == []


@pytest.mark.parametrize("name", cases())
def test_a_destination_that_is_removed_ends_it_with_a_reason(engine, copies, name):
    way = copies(name)
    process = begin(engine, way)
    shutil.rmtree(way.copied, ignore_errors=True)
    code = end(process, (0, 1, 3))
    wanted = (way.source / "large").read_bytes()
    assert seen(way.copied / "large") in (None, wanted)
    assert code != 0 or seen(way.copied / "large") == wanted or not way.copied.exists()


@pytest.mark.parametrize(("name", "change"), cases(["cut"], ["grown"]))
def test_a_source_that_changes_meanwhile_is_copied_as_it_was_or_not_at_all(engine, copies, name, change):
    way = copies(name)
    before = (way.source / "large").read_bytes()
    process = begin(engine, way)
    with (way.source / "large").open("r+b") as file:
        file.truncate(LARGE_BYTES // 3 if change == "cut" else LARGE_BYTES + (1 << 20))
    end(process, (0, 3))
    after = (way.source / "large").read_bytes()
    assert seen(way.copied / "large") in (None, before, after)
    again = kills.begin(engine, way)
    assert end(again, (0,)) == 0
    assert seen(way.copied / "large") == after


@pytest.mark.parametrize("scheme", ["ftp", "http"])
def test_a_full_disk_here_is_told_and_leaves_nothing_half(engine, memory, scheme):  # noqa: F811
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
    said = (memory / "said").read_text()
    assert done.returncode == 3, done.stdout + done.stderr + said
    assert "panicked" not in said and ("space" in said or "room" in said), said
    assert said.count("\n") < 20


@pytest.mark.parametrize("scheme", ["ftp", "http"])
def test_a_full_disk_at_the_server_is_told_and_leaves_nothing_half(engine, memory, scheme):  # noqa: F811
    (memory / "source").mkdir()
    kills.make_tree(memory / "source", **TREE)
    door = {"ftp": "--listen", "http": "--http"}[scheme]
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
    words = [engine, memory / "source", memory, door, str(port), f"{scheme}://127.0.0.1:{port}"]
    done = isolated(script, *words)
    said = (memory / "said").read_text()
    assert done.returncode == 3, done.stdout + done.stderr + said
    assert "panicked" not in said and said.strip()


@pytest.mark.parametrize("scheme", ["ftp", "http"])
def test_a_server_that_says_nothing_is_left_at_ctrl_c(engine, tmp_path, scheme):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        words = [engine, "copy", f"{scheme}://127.0.0.1:{silent.getsockname()[1]}/x", tmp_path / "x"]
        process = subprocess.Popen(words, stderr=subprocess.PIPE)
        accepted, _ = silent.accept()
        process.send_signal(signal.SIGINT)
        assert end(process, (130,)) == 130
        accepted.close()
    assert list(tmp_path.iterdir()) == []
