"""Timeouts of the HTTP server, and the end of work for clients that have disconnected."""

import base64
import contextlib
import http.client
import os
import socket
import time
from pathlib import Path
from threading import Thread

import pytest
from servekit import client
from webkit import Web, run, web

from testkit import throwaway_certificates, wait_until

# Its checksum takes more than a minute; the file is sparse and uses no disk space.
HUGE = 60 << 30


@pytest.fixture
def slow_source():
    """Run a server that replies about a file only after more than 10 s; yield its URL."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            for _ in range(4):
                link, _ = listener.accept()
                with link, link.makefile("rb") as stream:
                    head = b"".join(iter(stream.readline, b"\r\n"))
                    if b"digest" not in head.lower():
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


def test_a_third_party_copy_waits_for_a_source_that_is_slow_to_start(engine, tmp_path, slow_source):
    hashed = run("openssl", "passwd", "-6", "-salt", "saltsalt", "word").strip()
    (tmp_path / "users").write_text(f"ann:{hashed}\n")
    (tmp_path / "data").mkdir()
    arguments = ("--users", tmp_path / "users", "--write", "--third-party", "--stall-time", "6")
    with web(engine, tmp_path / "data", tmp_path, *arguments) as server:
        ann = "Basic " + base64.b64encode(b"ann:word").decode()
        output = server.send("COPY", "/x", Source=f"{slow_source}/y", Authorization=ann)
    assert b"success" in output[2]
    assert (tmp_path / "data" / "x").read_bytes() == b"abc"


@pytest.mark.parametrize("status", ["206 Partial Content", "416 Range Not Satisfiable"])
def test_a_pull_rejects_a_partial_response(engine, tmp_path, status):
    hashed = run("openssl", "passwd", "-6", "-salt", "saltsalt", "word").strip()
    (tmp_path / "users").write_text(f"ann:{hashed}\n")
    (tmp_path / "data").mkdir()
    text = f"HTTP/1.1 {status}\r\nContent-Length: 3\r\nContent-Range: bytes 0-2/9\r\nConnection: close\r\n\r\nabc"
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        web(engine, tmp_path / "data", tmp_path, "--users", tmp_path / "users", "--write", "--third-party") as server,
    ):

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    link, _ = listener.accept()
                    with link, link.makefile("rb") as stream:
                        b"".join(iter(stream.readline, b"\r\n"))
                        link.sendall(text.encode())

        Thread(target=serve, daemon=True).start()
        ann = "Basic " + base64.b64encode(b"ann:word").decode()
        source = f"http://127.0.0.1:{listener.getsockname()[1]}/y"
        output = server.send("COPY", "/x", Source=source, Authorization=ann)[2]
        listener.shutdown(socket.SHUT_RDWR)
    assert b"failure" in output
    assert status[:3].encode() in output
    assert list((tmp_path / "data").iterdir()) == []


def cpu_s(process):
    """Return the CPU time of a process, in s."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_checksum_is_aborted_when_its_client_disconnects(engine, tmp_path):
    (tmp_path / "data").mkdir()
    with (tmp_path / "data" / "huge").open("wb") as file:
        file.truncate(HUGE)
    with web(engine, tmp_path / "data", tmp_path) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as link:
            link.sendall(b"HEAD /huge HTTP/1.1\r\nHost: x\r\nWant-Digest: md5\r\n\r\n")
            wait_until(lambda: cpu_s(server.process) > 0.3, "the checksum to be begun", 20)

        def rests():
            before = cpu_s(server.process)
            time.sleep(0.3)
            return cpu_s(server.process) - before < 0.1

        wait_until(rests, "the checksum to be given up", 5)


def test_wrong_passwords_are_delayed_and_the_third_closes_the_connection(engine, tmp_path):
    (tmp_path / "data").mkdir()
    with web(engine, tmp_path / "data", tmp_path, "--users", client(tmp_path)) as server:
        link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        closes, start = [], time.monotonic()
        for guess in (b"ann:1", b"ann:2", b"ann:3"):
            link.request("GET", "/", headers={"Authorization": "Basic " + base64.b64encode(guess).decode()})
            response = link.getresponse()
            assert (response.status, response.read() != b"") == (401, True)
            closes.append(response.will_close)
        assert time.monotonic() - start >= 3
        assert closes == [False, False, True]
        link.close()


def test_clients_that_trickle_single_bytes_are_disconnected(engine, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "large").write_bytes(bytes(50_000_000))
    with web(engine, tmp_path / "data", tmp_path, "--write", "--stall-time", "2") as server:
        with socket.create_connection(("127.0.0.1", server.port)) as link:
            link.sendall(b"PUT /file HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
            link.settimeout(0.1)
            wait_until(lambda: hung_up(link, b"1"), "the server to hang up on who sends bytes one by one", 15)
        with socket.socket() as link:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            link.connect(("127.0.0.1", server.port))
            link.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
            wait_until(lambda: link.recv(1) and len(server.events("transfer")) == 2, "the other to be given up", 20)
        assert [event["code"] for event in server.events("transfer")] == [499, 499]
        with socket.create_connection(("127.0.0.1", server.port)) as link:
            # The transfer is as slow as a bad network, and is served to the end.
            link.sendall(b"PUT /slow HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n")
            for _ in range(10):
                time.sleep(0.4)
                link.sendall(bytes(10_000))
            assert b" 201 " in link.recv(1000)


def hung_up(link, drip):
    """Send a byte, and return whether the peer has closed the connection."""
    try:
        link.sendall(drip)
        return link.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_slow_readers_of_long_listings_do_not_delay_other_clients(engine, tmp_path):
    (tmp_path / "data").mkdir()
    for number in range(20_000):
        (tmp_path / "data" / f"{number:0200}").touch()
    with (
        web(engine, tmp_path / "data", tmp_path, "--write", "--threads", "1") as server,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(40):
            link = stack.enter_context(socket.socket())
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            link.connect(("127.0.0.1", server.port))
            link.sendall(b"PROPFIND / HTTP/1.1\r\nHost: x\r\nDepth: 1\r\nContent-Length: 0\r\n\r\n")
            assert link.recv(12) == b"HTTP/1.1 207"
        assert server.send("PUT", "/new", body=b"1")[0] == 201
        listing = server.send("PROPFIND", "/", Depth="1")[2]
    assert listing.count(b"<D:href>") == 20_002


def test_an_unfinished_handshake_does_not_delay_the_server_shutdown(engine, tmp_path):
    _, cert, key = throwaway_certificates(tmp_path / "pki")
    directory = tmp_path / "data"
    directory.mkdir()
    arguments = ["--write", "--tls-cert", cert, "--tls-key", key, "--drain-time", "1"]
    server = Web(engine, directory, tmp_path, *arguments)
    port = int(server.secure_url.rpartition(":")[2])
    with server.process, socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
        # When the server replies to a later client, it has accepted the earlier ones.
        server.send("GET", "/")
        start = time.monotonic()
        server.process.terminate()
        assert server.process.wait(30) == 130
        assert time.monotonic() - start < 6
