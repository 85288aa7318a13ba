"""Trees from and to servers of HTTP whose copies were ended before they were done."""

import os
import signal
import subprocess
import threading
import zlib

import pytest
from copykit import copy, end_of, events, leftovers
from httpkit import puppet

from testkit import wait_until

NAMES = [f"f{number}" for number in range(40)]


def listing(path, entries):
    """Return a multistatus of a directory and the files in it, with their sizes."""
    kinds = [(f"{path}/", "<D:resourcetype><D:collection/></D:resourcetype>")]
    kinds += [
        (
            f"{path}/{name}",
            f"<D:resourcetype/><D:getcontentlength>{size}</D:getcontentlength>"
            "<D:getlastmodified>Sun, 13 Sep 2020 12:26:40 GMT</D:getlastmodified>",
        )
        for name, size in entries.items()
    ]
    texts = [
        f"<D:response><D:href>{place}</D:href><D:propstat><D:prop>{what}</D:prop>"
        "<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
        for place, what in kinds
    ]
    return f'<D:multistatus xmlns:D="DAV:">{"".join(texts)}</D:multistatus>'.encode()


class Stalling:
    """A server of a tree `/run8` that answers for some of the files at once, and for the others when the gate is open."""

    def __init__(self, free, **told):
        self.free, self.gate, self.told, self.made = free, threading.Event(), told, set()

    def __call__(self, handler, _):
        handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        path = handler.path.rstrip("/")
        match handler.command:
            case "PROPFIND" if path in ("", "/run8"):
                return handler.say(207, listing(path, dict.fromkeys(NAMES, 5)))
            case "GET" | "HEAD" | "PUT" if "/f" in path:
                if path.rpartition("/")[2] not in NAMES[: self.free]:
                    self.gate.wait(60)
                if handler.command == "PUT":
                    return handler.say(201)
                body = b"right" if handler.command == "GET" else b""
                return handler.say(200, body, 5, Last_Modified="Sun, 13 Sep 2020 12:26:40 GMT", **self.told)
            case "PROPFIND" if path in self.made:
                return handler.say(207, listing(path, {}))
            case "MKCOL":
                self.made.add(path)
                return handler.say(201)
        return handler.say(404)


def ended_by(engine, word, *words, until):
    """Begin a copy and end it by a signal when something is true; return what it said."""
    with subprocess.Popen([engine, "copy", *words], stderr=subprocess.PIPE) as process:
        try:
            wait_until(until, "some of it to be there", 20)
            process.send_signal(word)
            said = process.communicate(timeout=20)[1].decode()
        finally:
            process.kill()
    assert process.returncode == (130 if word == signal.SIGINT else -word)
    return said


@pytest.mark.parametrize("source", ["run8", "run8/"])
@pytest.mark.parametrize("word", [signal.SIGINT, signal.SIGKILL])
def test_the_same_command_goes_on_in_the_tree_that_it_has_begun(engine, tmp_path, monkeypatch, word, source):
    monkeypatch.chdir(tmp_path)
    served, copied = Stalling(free=9), tmp_path / "dst"
    with puppet(served) as (url, seen):
        words = ["-r", f"{url}/{source}", "dst"]
        ended_by(engine, word, *words, until=lambda: all((copied / name).exists() for name in NAMES[:9]))
        assert [name for name in leftovers(copied) if name.endswith(".journal")]
        served.gate.set()
        seen.clear()
        told = events(engine, *words)
        end = end_of(told)
        assert (end["files"], end["kept"], end["errors"]) == (len(NAMES) - 9, 9, 0)
        assert [event["value"] for event in told if event.get("what") == "resumed"] == [1]
        assert sorted(path.name for path in copied.iterdir()) == sorted(NAMES)
        # When it is done it is a directory to put another copy into, as ever.
        again = end_of(events(engine, *words))
        assert (again["files"], again["kept"]) == ((len(NAMES), 0) if source == "run8" else (0, len(NAMES)))
    assert leftovers(tmp_path) == []


def test_two_copies_of_a_tree_to_the_same_place_at_once_are_refused(engine, tmp_path):
    served = Stalling(free=9)
    with puppet(served) as (url, _):
        words = ["-r", "-T", f"{url}/run8", tmp_path / "dst"]
        process = subprocess.Popen([engine, "copy", *words])
        wait_until(lambda: (tmp_path / "dst" / NAMES[0]).exists(), "the first file", 20)
        told = copy(engine, *words, code=3).stderr.decode()
        assert "expected a copy that nobody works on, found another copy of the same" in told
        served.gate.set()
        assert process.wait(timeout=20) == 0
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("told", [{}, {"Digest": f"adler32={zlib.adler32(b'right'):08x}"}], ids=["silent", "told"])
def test_files_of_an_unfinished_tree_are_told_by_their_content_when_the_machine_was_started_anew(
    engine, tmp_path, told
):
    served, copied = Stalling(free=9, **told), tmp_path / "dst"
    with puppet(served) as (url, _):
        words = ["-r", f"{url}/run8", copied]
        ended_by(engine, signal.SIGINT, *words, until=lambda: all((copied / name).exists() for name in NAMES[:9]))
        # As a disk may be after a power cut: name, size and time are there, the bytes are not; and the journal, of that boot.
        seen = (copied / "f3").stat()
        (copied / "f3").write_bytes(b"wrong")
        os.utime(copied / "f3", ns=(seen.st_atime_ns, seen.st_mtime_ns))
        (journal,) = copied.glob(".venturi-*.journal")
        journal.write_text("venturi copy 1\nanother boot\n")
        served.gate.set()
        end = end_of(events(engine, *words))
    # Where no checksum is told all of them come again.
    assert (end["files"], end["kept"]) == ((len(NAMES) - 8, 8) if told else (len(NAMES), 0))
    assert {path.read_bytes() for path in copied.iterdir()} == {b"right"}
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(("more", "place"), [([], "/up"), (["-T"], "/up"), ([], "/up/")])
def test_an_upload_of_a_tree_that_is_stopped_says_when_the_same_command_would_not_go_on(
    engine, tmp_path, more, place
):
    (tmp_path / "tree").mkdir()
    for name in NAMES:
        (tmp_path / "tree" / name).write_bytes(b"right")
    served = Stalling(free=0)
    with puppet(served) as (url, seen):
        words = ["-v", "-r", *more, tmp_path / "tree", f"{url}{place}"]
        said = ended_by(engine, signal.SIGINT, *words, until=lambda: any(asked[0] == "PUT" for asked in seen))
        served.gate.set()
    assert "stopped" in said
    assert ("--no-target-directory" in said.splitlines()[-1]) == (not more and place == "/up")


def test_an_upload_of_a_tree_of_which_a_file_failed_says_how_it_goes_on(engine, tmp_path):
    (tmp_path / "tree").mkdir()
    for name in NAMES:
        (tmp_path / "tree" / name).write_bytes(b"right")
    served = Stalling(free=len(NAMES))

    def answer(handler, number):
        if handler.command == "PUT" and handler.path.endswith("/f7"):
            handler.rfile.read(int(handler.headers["Content-Length"]))
            return handler.say(403)
        return served(handler, number)

    with puppet(answer) as (url, _):
        words = ["-r", tmp_path / "tree", f"{url}/up"]
        said = copy(engine, *words, code=3).stderr.decode()
        assert "--no-target-directory" in said.splitlines()[-1]
        assert "--no-target-directory" not in copy(engine, "--dry-run", *words).stderr.decode()
