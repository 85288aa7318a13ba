"""Spellings of HTTP locations: different spellings of the same location are recognised as equal."""

import signal
import subprocess
import threading

from copykit import events, leftovers
from httpkit import puppet

from testkit import wait_until


def test_a_large_file_resumes_under_another_spelling_of_its_destination(engine, tmp_path, monkeypatch):
    content = bytes(range(256)) * (64 << 10)
    stalls, ended = threading.Event(), threading.Event()

    def respond(handler, _):
        if handler.command != "GET":
            return handler.reply(404)
        start = int(handler.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        rest = content[start:]
        options = {"ETag": '"1"', "Accept-Ranges": "bytes"}
        if start:
            options["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        if stalls.is_set():
            handler.reply(206 if start else 200, rest[: 9 << 20], length=len(rest), **options)
            return ended.wait(60)
        return handler.reply(206 if start else 200, rest, **options)

    monkeypatch.chdir(tmp_path)
    (tmp_path / "copies").mkdir()
    with puppet(respond) as (url, _):
        stalls.set()
        process = subprocess.Popen([engine, "copy", "--streams", "1", f"{url}/large", "copies/large"])

        def started():
            records = [path for path in (tmp_path / "copies").iterdir() if path.name.endswith(".progress")]
            return any(b"1111" in path.read_bytes()[1024:] for path in records)

        wait_until(started, "some of it to be noted down", 20)
        process.send_signal(signal.SIGKILL)
        process.wait()
        stalls.clear()
        ended.set()
        output = events(engine, f"{url}/large", tmp_path / "copies" / "large")
    assert any(event.get("setting") == "bytes_kept" for event in output)
    assert (tmp_path / "copies" / "large").read_bytes() == content
    assert leftovers(tmp_path) == []
