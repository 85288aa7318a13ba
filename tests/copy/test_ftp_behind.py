"""A straggler, whose connection is nearly stalled, passes its files to other sessions, so that no copy waits for it."""

import contextlib
import json
import signal
import subprocess

import pytest
from copykit import end_of, events, leftovers
from ftpkit import content, contents
from kills import Globus, Ours
from middle import Middle

from testkit import needs_programs, wait_until

pytestmark = needs_programs("globus-gridftp-server")

FILES, SIZE, SESSIONS = 1_200, 5_000, 4
"""More files than all sessions pipeline."""


@pytest.fixture(scope="module", params=["globus", "ours"])
def behind(request, engine, root):
    """Yield a server of small files."""
    source = root / f"source {request.param}"
    source.mkdir()
    for number in range(FILES):
        (source / f"f{number:04}").write_bytes(content(number, SIZE + number % 7))
    server = Globus(root) if request.param == "globus" else Ours(engine, root, "--listen")
    yield server, source
    server.kill()


@pytest.fixture
def copying(engine, behind, here, tmp_path):
    """Yield a copy whose sessions all wait for the first byte of files, and the relay that delays them."""
    server, source = behind
    with started(engine, server, source, here, tmp_path, "--concurrency", str(SESSIONS)) as (middle, process, words):
        wait_until(lambda: sum(one.connections > 0 for one in middle.sessions) == SESSIONS, "data connections of all")
        yield middle, process, words


@contextlib.contextmanager
def started(engine, server, source, here, tmp_path, *words):
    middle = Middle(server.port)
    url = f"{server.url(source)}/".replace(str(server.port), str(middle.port), 1)
    words = ["--json", "-r", *words, url, here / "copied"]
    with (tmp_path / "told").open("wb") as output:
        process = subprocess.Popen([engine, "copy", *words], stdout=output)
    try:
        yield middle, process, words
    finally:
        middle.stop()
        process.kill()
        process.wait()


def reported_in(directory):
    whole, _, _ = (directory / "told").read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def progress_in(directory):
    """Return the number of progress events, which are sent once a second."""
    return [event["event"] for event in reported_in(directory)].count("progress")


def bytes_of(source):
    return sum(path.stat().st_size for path in source.iterdir())


@pytest.mark.parametrize("which", [0, SESSIONS - 1], ids=["the first", "the last"])
def test_files_of_a_straggler_session_are_fetched_over_other_sessions(behind, copying, here, tmp_path, which):
    """Two bytes per second would take more than a day."""
    _, source = behind
    middle, process, _ = copying
    held = middle.sessions[which]
    middle.hold(held)
    assert process.wait(timeout=50) == 0
    output = reported_in(tmp_path)
    end = end_of(output)
    assert (end["outcome"], end["files"], end["errors"]) == ("done", FILES, 0)
    assert (end["bytes"], end["moved_bytes"]) == (bytes_of(source), bytes_of(source)), "each byte counts once"
    copied = [event["path"] for event in output if event["event"] == "file"]
    assert len(copied) == len(set(copied)) == FILES
    assert contents(here / "copied") == contents(source) and leftovers(here) == []
    (left,) = [event for event in output if "straggler" in event.get("reason", "")]
    assert (left["setting"], left["value"]) == ("reassigned", len(held.requested))
    assert middle.repeated == set(held.requested)
    wait_until(held.gone.is_set, "the session to be closed")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_copy_interrupted_while_files_are_reassigned_can_be_resumed(engine, behind, copying, here, how):
    _, source = behind
    middle, process, words = copying
    held = middle.sessions[0]
    middle.again.clear()
    middle.hold(held)
    wait_until(lambda: middle.repeated and held.gone.is_set(), "files to be asked for again")
    # Earlier, some requested files are still in flight to the relay.
    whole = FILES - len(held.requested)
    wait_until(lambda: sum(1 for _ in (here / "copied").glob("f*")) == whole, "all others to be there")
    process.send_signal(how)
    assert process.wait(timeout=50) in (-signal.SIGKILL, 130)
    middle.held = None
    middle.again.set()
    end = end_of(events(engine, *words[1:]))
    assert (end["files"], end["kept"], end["errors"]) == (FILES - whole, whole, 0)
    assert contents(here / "copied") == contents(source) and leftovers(here) == []


def test_no_sessions_are_added_before_a_session_has_finished_a_file(engine, behind, here, tmp_path):
    server, source = behind
    with started(engine, server, source, here, tmp_path) as (middle, process, _):
        wait_until(lambda: progress_in(tmp_path) >= 4, "ten intervals of 0.4 s in which nothing moves")
        tried = [event for event in reported_in(tmp_path) if event.get("setting") == "sessions"]
        middle.start_event.set()
        assert process.wait(timeout=50) == 0
    assert [one for one in tried if f"{FILES} known items" not in one["reason"]] == []
    assert contents(here / "copied") == contents(source) and leftovers(here) == []
