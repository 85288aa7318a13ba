"""Interrupted copies of trees from and to HTTP servers."""

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
    """Return a multistatus of a directory and its files, with their sizes."""
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
        f"<D:response><D:href>{location}</D:href><D:propstat><D:prop>{change}</D:prop>"
        "<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
        for location, change in kinds
    ]
    return f'<D:multistatus xmlns:D="DAV:">{"".join(texts)}</D:multistatus>'.encode()


class Stalling:
    """A server of a tree `/run8` that sends some files immediately, and the others once the gate is open."""

    def __init__(self, free, **output):
        self.free, self.gate, self.output, self.made = free, threading.Event(), output, set()

    def __call__(self, handler, _):
        handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        path = handler.path.rstrip("/")
        match handler.command:
            case "PROPFIND" if path in ("", "/run8"):
                return handler.reply(207, listing(path, dict.fromkeys(NAMES, 5)))
            case "GET" | "HEAD" | "PUT" if "/f" in path:
                if path.rpartition("/")[2] not in NAMES[: self.free]:
                    self.gate.wait(60)
                if handler.command == "PUT":
                    return handler.reply(201)
                body = b"right" if handler.command == "GET" else b""
                return handler.reply(200, body, 5, Last_Modified="Sun, 13 Sep 2020 12:26:40 GMT", **self.output)
            case "PROPFIND" if path in self.made:
                return handler.reply(207, listing(path, {}))
            case "MKCOL":
                self.made.add(path)
                return handler.reply(201)
        return handler.reply(404)


def end_event(engine, word, *arguments, until):
    """Start a copy and end it by a signal once a condition holds; return its output."""
    with subprocess.Popen([engine, "copy", *arguments], stderr=subprocess.PIPE) as process:
        try:
            wait_until(until, "some of it to be there", 20)
            process.send_signal(word)
            output = process.communicate(timeout=20)[1].decode()
        finally:
            process.kill()
    assert process.returncode == (130 if word == signal.SIGINT else -word)
    return output


@pytest.mark.parametrize("source", ["run8", "run8/"])
@pytest.mark.parametrize("word", [signal.SIGINT, signal.SIGKILL])
def test_the_same_command_resumes_the_tree_that_it_started(engine, tmp_path, monkeypatch, word, source):
    monkeypatch.chdir(tmp_path)
    served, copied = Stalling(free=9), tmp_path / "dst"
    with puppet(served) as (url, recorded):
        arguments = ["-r", f"{url}/{source}", "dst"]
        end_event(engine, word, *arguments, until=lambda: all((copied / name).exists() for name in NAMES[:9]))
        assert [name for name in leftovers(copied) if name.endswith(".journal")]
        served.gate.set()
        recorded.clear()
        output = events(engine, *arguments)
        end = end_of(output)
        assert (end["files"], end["kept"], end["errors"]) == (len(NAMES) - 9, 9, 0)
        assert [event["value"] for event in output if event.get("setting") == "resumed"] == [1]
        assert sorted(path.name for path in copied.iterdir()) == sorted(NAMES)
        # A complete copy is a normal directory again, so another copy goes into it.
        again = end_of(events(engine, *arguments))
        assert (again["files"], again["kept"]) == ((len(NAMES), 0) if source == "run8" else (0, len(NAMES)))
    assert leftovers(tmp_path) == []


def test_a_second_concurrent_copy_of_a_tree_to_the_same_destination_is_rejected(engine, tmp_path):
    served = Stalling(free=9)
    with puppet(served) as (url, _):
        arguments = ["-r", "-T", f"{url}/run8", tmp_path / "dst"]
        process = subprocess.Popen([engine, "copy", *arguments])
        wait_until(lambda: (tmp_path / "dst" / NAMES[0]).exists(), "the first file", 20)
        output = copy(engine, *arguments, code=3).stderr.decode()
        assert "expected a copy that no other process writes, found another running copy" in output
        served.gate.set()
        assert process.wait(timeout=20) == 0
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("output", [{}, {"Digest": f"adler32={zlib.adler32(b'right'):08x}"}], ids=["silent", "told"])
def test_files_of_an_unfinished_tree_are_verified_by_content_after_a_host_restart(engine, tmp_path, output):
    served, copied = Stalling(free=9, **output), tmp_path / "dst"
    with puppet(served) as (url, _):
        arguments = ["-r", f"{url}/run8", copied]
        end_event(
            engine, signal.SIGINT, *arguments, until=lambda: all((copied / name).exists() for name in NAMES[:9])
        )
        # As after a power cut: name, size and time are correct, the bytes are lost; the journal is from another boot.
        recorded = (copied / "f3").stat()
        (copied / "f3").write_bytes(b"wrong")
        os.utime(copied / "f3", ns=(recorded.st_atime_ns, recorded.st_mtime_ns))
        (journal,) = copied.glob(".venturi-*.journal")
        journal.write_text("venturi copy 1\nanother boot\n")
        served.gate.set()
        end = end_of(events(engine, *arguments))
    # Without a checksum, all files are copied again.
    assert (end["files"], end["kept"]) == ((len(NAMES) - 8, 8) if output else (len(NAMES), 0))
    assert {path.read_bytes() for path in copied.iterdir()} == {b"right"}
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(("more", "location"), [([], "/up"), (["-T"], "/up"), ([], "/up/")])
def test_an_interrupted_tree_upload_prints_the_option_needed_to_resume(engine, tmp_path, more, location):
    (tmp_path / "tree").mkdir()
    for name in NAMES:
        (tmp_path / "tree" / name).write_bytes(b"right")
    served = Stalling(free=0)
    with puppet(served) as (url, recorded):
        arguments = ["-v", "-r", *more, tmp_path / "tree", f"{url}{location}"]
        output = end_event(
            engine, signal.SIGINT, *arguments, until=lambda: any(requests[0] == "PUT" for requests in recorded)
        )
        served.gate.set()
    assert "Interrupted" in output
    assert ("--no-target-directory" in output.splitlines()[-1]) == (not more and location == "/up")


def test_a_tree_upload_with_a_failed_file_prints_the_option_needed_to_resume(engine, tmp_path):
    (tmp_path / "tree").mkdir()
    for name in NAMES:
        (tmp_path / "tree" / name).write_bytes(b"right")
    served = Stalling(free=len(NAMES))

    def respond(handler, number):
        if handler.command == "PUT" and handler.path.endswith("/f7"):
            handler.rfile.read(int(handler.headers["Content-Length"]))
            return handler.reply(403)
        return served(handler, number)

    with puppet(respond) as (url, _):
        arguments = ["-r", tmp_path / "tree", f"{url}/up"]
        output = copy(engine, *arguments, code=3).stderr.decode()
        assert "--no-target-directory" in output.splitlines()[-1]
        assert "--no-target-directory" not in copy(engine, "--dry-run", *arguments).stderr.decode()
