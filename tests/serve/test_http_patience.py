"""How long the HTTP side of the server waits for others, and how long it works for who has gone."""

import base64
import contextlib
import http.client
import os
import socket
import time
from pathlib import Path
from threading import Thread

import pytest
from webkit import run, web

from testkit import wait_until

# So large that its checksum takes a minute and more; nothing of it is on a disk.
HUGE = 60 << 30


@pytest.fixture
def slow_source():
    """Have a server that is silent for longer than 10 s before it says that a file is there; yields its URL."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            for _ in range(4):
                link, _ = listener.accept()
                with link, link.makefile("rb") as stream:
                    head = b"".join(iter(stream.readline, b"\r\n"))
                    if b"want-digest" not in head.lower():
                        time.sleep(10.5)
                        link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc")
                    else:
                        link.sendall(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    thread = Thread(target=serve)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    listener.close()


def test_a_copy_between_servers_waits_for_one_that_is_slow_to_begin(engine, tmp_path, slow_source):
    hashed = run("openssl", "passwd", "-6", "-salt", "saltsalt", "word").strip()
    (tmp_path / "users").write_text(f"ann:{hashed}\n")
    (tmp_path / "data").mkdir()
    words = ("--users", tmp_path / "users", "--write", "--third-party", "--stall-time", "6")
    with web(engine, tmp_path / "data", tmp_path, *words) as server:
        ann = "Basic " + base64.b64encode(b"ann:word").decode()
        said = server.ask("COPY", "/x", Source=f"{slow_source}/y", Authorization=ann)
    assert b"success" in said[2]
    assert (tmp_path / "data" / "x").read_bytes() == b"abc"


def processor_s(process):
    """Return the processor time of a process, in s."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_checksum_is_given_up_when_its_client_hangs_up(engine, tmp_path):
    (tmp_path / "data").mkdir()
    with (tmp_path / "data" / "huge").open("wb") as file:
        file.truncate(HUGE)
    with web(engine, tmp_path / "data", tmp_path) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as link:
            link.sendall(b"HEAD /huge HTTP/1.1\r\nHost: x\r\nWant-Digest: md5\r\n\r\n")
            wait_until(lambda: processor_s(server.process) > 0.3, "the checksum to be begun", 20)

        def rests():
            before = processor_s(server.process)
            time.sleep(0.3)
            return processor_s(server.process) - before < 0.1

        wait_until(rests, "the checksum to be given up", 5)


def test_a_wrong_password_is_answered_after_a_second_and_three_end_a_connection(engine, tmp_path):
    (tmp_path / "users").write_text("")
    (tmp_path / "data").mkdir()
    with web(engine, tmp_path / "data", tmp_path, "--users", tmp_path / "users") as server:
        link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        closes, begin = [], time.monotonic()
        for guess in (b"ann:1", b"ann:2", b"ann:3"):
            link.request("GET", "/", headers={"Authorization": "Basic " + base64.b64encode(guess).decode()})
            answer = link.getresponse()
            assert (answer.status, answer.read() != b"") == (401, True)
            closes.append(answer.will_close)
        assert time.monotonic() - begin >= 3
        assert closes == [False, False, True]
        link.close()
