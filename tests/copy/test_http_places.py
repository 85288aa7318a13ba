"""How places are written of which one is at a server of HTTP: the same place is the same however that is."""

import signal
import subprocess
import threading

from copykit import events, leftovers
from httpkit import puppet

from testkit import wait_until


def test_a_large_file_goes_on_under_another_spelling_of_its_place(engine, tmp_path, monkeypatch):
    content = bytes(range(256)) * (64 << 10)
    stalls, ended = threading.Event(), threading.Event()

    def answer(handler, _):
        if handler.command != "GET":
            return handler.say(404)
        begin = int(handler.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
        rest = content[begin:]
        how = {"ETag": '"1"', "Accept-Ranges": "bytes"}
        if begin:
            how["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
        if stalls.is_set():
            handler.say(206 if begin else 200, rest[: 9 << 20], length=len(rest), **how)
            return ended.wait(60)
        return handler.say(206 if begin else 200, rest, **how)

    monkeypatch.chdir(tmp_path)
    (tmp_path / "copies").mkdir()
    with puppet(answer) as (url, _):
        stalls.set()
        process = subprocess.Popen([engine, "copy", "--streams", "1", f"{url}/large", "copies/large"])

        def begun():
            records = [path for path in (tmp_path / "copies").iterdir() if path.name.endswith(".progress")]
            return any(b"1111" in path.read_bytes()[1024:] for path in records)

        wait_until(begun, "some of it to be noted down", 20)
        process.send_signal(signal.SIGKILL)
        process.wait()
        stalls.clear()
        ended.set()
        told = events(engine, f"{url}/large", tmp_path / "copies" / "large")
    assert any(event.get("what") == "bytes_kept" for event in told)
    assert (tmp_path / "copies" / "large").read_bytes() == content
    assert leftovers(tmp_path) == []
