"""Limits of a server, which hold regardless of the duration and number of attempts."""

import contextlib
import ftplib
import io
import resource
import select
import socket
import time
import urllib.request
from pathlib import Path

import pytest
from servekit import Server, client, logged_in, run, serving

from testkit import free_port, wait_until

IDLE = 10_000
"""Number of idle sessions. The server needs this many open files, plus a reserve."""
FILES = IDLE + 600


def open_session(server):
    """Open a control connection and read the greeting."""
    link = socket.create_connection(("127.0.0.1", server.port), 20)
    assert link.recv(1000).startswith(b"220")
    return link


def receive(link, max_s=20.0):
    """Return all bytes until the server closes the connection."""
    link.settimeout(max_s)
    return b"".join(iter(lambda: link.recv(65536), b""))


def receive_until(link, expected):
    """Return the bytes up to and including an expected text."""
    output = b""
    while expected not in output:
        more = link.recv(1000)
        assert more, f"expected {expected!r}, found the end behind {output!r}"
        output += more
    return output


@pytest.fixture
def served(tmp_path):
    """A directory with a file and links that point outside, next to a secret."""
    directory = tmp_path / "served"
    (directory / "d").mkdir(parents=True)
    (directory / "file").write_bytes(b"content")
    (tmp_path / "secret").write_bytes(b"secret")
    (directory / "out").symlink_to("../secret")
    (directory / "up").symlink_to("..")
    (directory / "absolute").symlink_to(tmp_path / "secret")
    (directory / "within").symlink_to("d/../file")
    return directory


def test_paths_and_links_cannot_leave_the_served_directory(engine, served, tmp_path):
    outside = [
        "../secret",
        "/../secret",
        "d/../../secret",
        "out",
        "up/secret",
        "absolute",
        "/etc/passwd",
        "//etc/passwd",
        "./../secret",
    ]
    with serving(engine, served, tmp_path, "--write") as server, logged_in(server) as ftp:
        for path in outside:
            for command in (f"SIZE {path}", f"MDTM {path}", f"CKSM MD5 0 -1 {path}", f"MLST {path}", f"CWD {path}"):
                with pytest.raises(ftplib.error_perm):
                    ftp.sendcmd(command)
            with pytest.raises(ftplib.error_perm):
                ftp.retrbinary(f"RETR {path}", lambda _: None)
        for path in ("up/new", "up/secret", "absolute"):
            with pytest.raises(ftplib.error_perm):
                ftp.storbinary(f"ESTO A 0 {path}", io.BytesIO(b"x"))
            with pytest.raises(ftplib.error_perm):
                ftp.rename("file", path.replace("absolute", "up/file"))
        for command in (
            "MKD up/new",
            "RMD up/served",
            "DELE up/secret",
            "SITE CHMOD 777 out",
            "SITE TRNC 0 absolute",
        ):
            with pytest.raises(ftplib.error_perm):
                ftp.sendcmd(command)
        # The server does not decode these: they are names of files that do not exist.
        for path in (
            "%2e%2e/secret",
            "..%2fsecret",
            "..\\secret",
            "d/..%00/secret",
            "~/secret",
            "x" * 5000,
            "d/" * 3000,
        ):
            with pytest.raises(ftplib.error_perm):
                ftp.sendcmd(f"SIZE {path}")
        got = io.BytesIO()
        ftp.retrbinary("RETR within", got.write)
        assert got.getvalue() == b"content", "links within are followed"
        # `..` in the root is the root itself.
        ftp.cwd("..")
        assert ftp.pwd() == "/"
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert not (tmp_path / "new").exists()


def test_data_connections_to_other_hosts_and_privileged_ports_are_rejected(engine, served, tmp_path):
    with serving(engine, served, tmp_path) as server, logged_in(server) as ftp:
        for command in (
            "PORT 192,0,2,1,200,10",
            "EPRT |1|192.0.2.1|5000|",
            "PORT 127,0,0,1,0,25",
            "SPOR 192,0,2,1,200,10",
            "EPRT |2|::ffff:192.0.2.1|5000|",
            "PORT 0,0,0,0,200,10",
            "PORT 127,0,0,2,200,10",
        ):
            with pytest.raises(ftplib.error_perm, match=r"^504"):
                ftp.sendcmd(command)
        # Other hosts do not get data meant for the client: 127.0.0.2 is another host.
        host, port = ftplib.parse227(ftp.sendcmd("PASV"))
        with socket.create_connection((host, port), 20, source_address=("127.0.0.2", 0)) as other:
            ftp.putcmd("RETR file")
            assert receive(other) == b""
        assert ftp.getline().startswith("150")
        with socket.create_connection((host, port), 20) as own:
            assert receive(own) == b"content"


def test_anonymous_clients_cannot_send_data_to_third_hosts_even_if_users_can(engine, served, tmp_path):
    arguments = ("--third-party", "--anonymous", "--users", client(tmp_path))
    with serving(engine, served, tmp_path, *arguments) as server, logged_in(server) as ftp:
        for command in ("PORT 127,0,0,2,200,10", "SPOR 127,0,0,1,200,10\r\nSPOR 127,0,0,2,200,10"):
            with pytest.raises(ftplib.error_perm, match=r"^504"):
                ftp.sock.sendall(command.encode() + b"\r\n")
                for _ in command.splitlines():
                    ftp.getresp()


def test_a_line_of_many_megabytes_costs_no_memory(engine, served, tmp_path):
    with serving(engine, served, tmp_path) as server, logged_in(server) as ftp:
        before = memory_bytes(server)
        for _ in range(40):
            ftp.sock.sendall(b"x" * 1_000_000)
        assert memory_bytes(server) - before < 2_000_000
        ftp.sock.sendall(b"\r\n")
        with pytest.raises(ftplib.error_perm, match=r"^500"):
            ftp.getresp()
        assert ftp.size("file") == 7


def test_unused_data_connections_are_limited_and_closed_with_the_session(engine, served, tmp_path):
    arguments = ("--streams", "8", "--idle-time", "2")
    with (
        serving(engine, served, tmp_path, *arguments) as server,
        logged_in(server) as ftp,
        contextlib.ExitStack() as stack,
    ):
        ftp.sendcmd("MODE E")
        address = ftplib.parse227(ftp.sendcmd("PASV"))
        links = [stack.enter_context(socket.create_connection(address, 20)) for _ in range(12)]
        # The server closes the connections above the limit.
        wait_until(lambda: len(hung_up(links)) == 4, "the ninth and all behind it to be closed", 10)
        assert ftp.getline().startswith("421"), "connections are no command"
        wait_until(lambda: len(hung_up(links)) == 12, "all to be closed", 10)


def test_unused_data_connections_do_not_exhaust_the_limit_of_open_files(engine, served, tmp_path):
    few = tmp_path / "few"
    few.write_text(f'#!/bin/sh\nulimit -n 400\nexec {engine} "$@"\n')
    few.chmod(0o755)
    server = Server(few, served, tmp_path)
    with server.process, contextlib.ExitStack() as stack:
        for _ in range(8):
            ftp = stack.enter_context(logged_in(server))
            ftp.sendcmd("MODE E")
            address = ftplib.parse227(ftp.sendcmd("PASV"))
            with contextlib.suppress(ConnectionError):
                for _ in range(60):
                    stack.enter_context(socket.create_connection(address, 20))
        with logged_in(server) as ftp:
            assert ftp.size("file") == 7
        server.process.kill()


def hung_up(links):
    """Return the connections that the server has closed."""
    closed = []
    for link in links:
        link.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            try:
                disconnected = link.recv(1) == b""
            except ConnectionError:
                disconnected = True
            closed += [link] * disconnected
    return closed


def test_endless_lines_and_slow_logins_are_ended(engine, served, tmp_path):
    with serving(engine, served, tmp_path, "--login-time", "2", "--idle-time", "2") as server:
        with open_session(server) as link:
            start = time.monotonic()
            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                while time.monotonic() < start + 15:
                    link.sendall(b"A")
                    time.sleep(0.02)
            assert 1.5 < time.monotonic() - start < 10, "bytes do not put off the end of a login"
        with open_session(server) as link:
            link.sendall(b"USER " + b"x" * 100_000 + b"\r\nNOOP\r\n")
            assert receive_until(link, b"200").startswith(b"500")
        with logged_in(server) as ftp:
            assert ftp.getline().startswith("421"), "nothing is said for too long"


def test_a_session_allows_three_password_attempts(engine, served, tmp_path):
    with serving(engine, served, tmp_path, "--users", client(tmp_path)) as server, open_session(server) as link:
        start = time.monotonic()
        link.sendall(b"USER a\r\nPASS b\r\n" * 5)
        output = receive(link)
        assert output.count(b"530 End") == 3
        assert b"421 " in output
        assert time.monotonic() - start > 2.5, "each takes a second"


def test_a_stalled_transfer_is_aborted(engine, served, tmp_path):
    (served / "large").write_bytes(bytes(50_000_000))
    with serving(engine, served, tmp_path, "--stall-time", "1") as server, logged_in(server) as ftp:
        host, port = ftplib.parse227(ftp.sendcmd("PASV"))
        with socket.create_connection((host, port), 20) as data:
            ftp.putcmd("RETR large")
            assert ftp.getline().startswith("150")
            assert ftp.getline().startswith("426")
            data.recv(1)
        ftp.sendcmd("PASV")
        ftp.putcmd("RETR large")  # and no client connects
        assert ftp.getline().startswith("150")
        assert ftp.getline().startswith("426")
        assert ftp.size("file") == 7


def test_transfers_that_trickle_single_bytes_are_aborted(engine, served, tmp_path):
    (served / "large").write_bytes(bytes(50_000_000))
    options = ("--write", "--stall-time", "2")
    with serving(engine, served, tmp_path, *options) as server, logged_in(server) as ftp:
        ftp.sendcmd("TYPE I")
        host, port = ftplib.parse227(ftp.sendcmd("PASV"))
        with socket.create_connection((host, port), 20) as data:
            ftp.putcmd("STOR drips")
            assert ftp.getline().startswith("150")
            wait_until(lambda: closed(data, b"1"), "the server to hang up on who sends bytes one by one", 15)
        assert ftp.getline().startswith("426")
        host, port = ftplib.parse227(ftp.sendcmd("PASV"))
        with socket.socket() as data:
            data.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            data.connect((host, port))
            ftp.putcmd("RETR large")
            assert ftp.getline().startswith("150")
            ended = lambda: data.recv(1) and len(server.events("transfer")) == 2  # noqa: E731
            wait_until(ended, "who takes bytes one by one to be given up", 20)
        assert ftp.getline().startswith("426")
        for name, fast_bytes in (("slow", 0), ("slow later", 8 << 20)):
            host, port = ftplib.parse227(ftp.sendcmd("PASV"))
            with socket.create_connection((host, port), 20) as data:
                # The upload is as slow as a bad network, and is accepted to the end.
                ftp.putcmd(f"STOR {name}")
                data.sendall(bytes(fast_bytes))
                for _ in range(10):
                    time.sleep(0.4)
                    data.sendall(bytes(10_000))
            assert [ftp.getline()[:3] for _ in range(2)] == ["150", "226"], name
        assert [event["code"] for event in server.transfers(4)] == [426, 426, 226, 226]


def closed(link, drip):
    """Send a byte, wait, and return whether the peer has closed the connection."""
    time.sleep(0.1)
    try:
        link.sendall(drip)
    except ConnectionError:
        return True
    return False


def test_a_client_that_reads_no_replies_is_blocked_and_uses_little_memory(engine, served, tmp_path):
    for number in range(2000):
        (served / f"a-name-that-makes-listings-long-{number}").touch()
    with serving(engine, served, tmp_path) as server, open_session(server) as link:
        link.sendall(b"USER anonymous\r\nPASS x\r\n")
        link.settimeout(1)
        with pytest.raises(TimeoutError):
            for _ in range(10_000):
                link.sendall(b"MLSC /\r\n" * 500)
        assert memory_bytes(server) < 60e6


def test_sessions_are_limited_in_total_and_per_address(engine, served, tmp_path):
    with serving(engine, served, tmp_path, "--sessions", "5", "--sessions-per-address", "3") as server:
        links = [open_session(server) for _ in range(3)]
        with socket.create_connection(("127.0.0.1", server.port), 20) as fourth:
            assert receive(fourth).startswith(b"421 too many sessions from your address")
        links += [
            socket.create_connection(("127.0.0.1", server.port), 20, source_address=("127.0.0.2", 0))
            for _ in range(2)
        ]
        assert all(link.recv(1000).startswith(b"220") for link in links[3:])
        with socket.create_connection(("127.0.0.1", server.port), 20, source_address=("127.0.0.3", 0)) as sixth:
            assert receive(sixth) == b"421 too many sessions, try again later.\r\n"
        for link in links:
            link.close()
        wait_until(lambda: len(server.events("session_end")) == 5, "the sessions to end", 10)
        open_session(server).close()


def test_idle_sessions_cost_little_memory_and_a_fixed_number_of_threads(engine, served, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < FILES:
        pytest.skip(f"needs {FILES} open files, the kernel allows {hard} (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        arguments = ("--sessions", str(IDLE + 1), "--sessions-per-address", "100000", "--threads", "2")
        with serving(engine, served, tmp_path, *arguments) as server:
            before, threads = memory_bytes(server), count_threads(server)
            links = [socket.create_connection(("127.0.0.1", server.port), 20) for _ in range(IDLE)]
            try:
                for link in links:
                    link.sendall(b"USER anonymous\r\nPASS x\r\n")
                for link in links:
                    receive_until(link, b"230")
                assert memory_bytes(server) - before < IDLE * 10_000
                assert count_threads(server) == threads
                with logged_in(server) as ftp:
                    assert ftp.size("file") == 7
            finally:
                for link in links:
                    link.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def count_threads(server):
    """Return the number of threads of the server."""
    return sum(1 for _ in Path(f"/proc/{server.process.pid}/task").iterdir())


def memory_bytes(server):
    """Return the resident memory of the server."""
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_data_connections_use_the_configured_ports_and_public_address(engine, served, tmp_path):
    first = free_port()
    with (
        serving(
            engine, served, tmp_path, "--data-ports", f"{first}-{first}", "--public-address", "127.0.0.9"
        ) as server,
        logged_in(server) as ftp,
    ):
        for _ in range(3):
            assert ftplib.parse227(ftp.sendcmd("PASV")) == ("127.0.0.9", first)


def test_metrics_are_reported_in_the_prometheus_format(engine, served, tmp_path):
    port = free_port()
    with serving(engine, served, tmp_path, "--metrics", str(port)) as server:
        with logged_in(server) as ftp:
            ftp.retrbinary("RETR file", lambda _: None)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
                lines = response.read().decode().splitlines()
        counted = dict(line.split() for line in lines if not line.startswith("#"))
        assert counted["venturi_serve_sessions"] == "1"
        assert counted["venturi_serve_transfers_done_total"] == "1"
        assert counted["venturi_serve_sent_bytes_total"] == "7"


def test_a_signal_stops_the_server_after_its_transfers_complete(engine, served, tmp_path):
    (served / "large").write_bytes(bytes(30_000_000))
    server = Server(engine, served, tmp_path)
    with server.process, open_session(server) as idle, logged_in(server) as ftp:
        host, port = ftplib.parse227(ftp.sendcmd("PASV"))
        with socket.create_connection((host, port), 20) as data:
            ftp.putcmd("RETR large")
            assert ftp.getline().startswith("150")
            server.process.terminate()
            assert receive(idle).startswith(b"421"), "who is idle is told at once"
            wait_until(lambda: not listens(server), "the door to close", 10)
            assert len(receive(data)) == 30_000_000
        assert ftp.getline().startswith("226")
        assert ftp.getline().startswith("421")
        assert server.process.wait(20) == 0


def test_a_second_signal_aborts_running_transfers(engine, served, tmp_path):
    (served / "large").write_bytes(bytes(50_000_000))
    server = Server(engine, served, tmp_path)
    with server.process, logged_in(server) as ftp:
        host, port = ftplib.parse227(ftp.sendcmd("PASV"))
        with socket.create_connection((host, port), 20):
            ftp.putcmd("RETR large")
            assert ftp.getline().startswith("150")
            server.process.terminate()
            wait_until(lambda: not listens(server), "the door to close", 10)
            server.process.terminate()
            assert server.process.wait(20) == 130


def listens(server):
    """Return whether the server accepts connections."""
    with socket.socket() as link:
        return link.connect_ex(("127.0.0.1", server.port)) == 0


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (
            ["/nowhere"],
            "/nowhere: expected a directory to serve, found No such file or directory; ",
        ),
        ([".", "--listen", "192.0.2.1:2811"], "192.0.2.1:2811: expected a free address and port of this host"),
        ([".", "--users", "/nowhere"], "/nowhere: expected a file of users"),
    ],
)
def test_a_server_that_cannot_start_reports_the_reason(engine, arguments, output):
    assert output in run(engine, "serve", *arguments, code=1).stderr


def test_long_checksums_do_not_block_disk_access_of_other_clients(engine, tmp_path):
    """The server has 16 disk threads per session thread."""
    served = tmp_path / "served"
    served.mkdir()
    (served / "small").write_bytes(b"x")
    with (served / "huge").open("wb") as file:
        file.truncate(200 << 30)
    arguments = ("--threads", "1", "--http", "127.0.0.1:0")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(engine, served, tmp_path, *arguments))
        address = ("127.0.0.1", int(server.events("start")[0]["http"][0].rpartition(":")[2]))
        requests = [stack.enter_context(socket.create_connection(address, 20)) for _ in range(20)]
        for connection in requests:
            connection.sendall(b"HEAD /huge HTTP/1.1\r\nHost: x\r\nWant-Digest: md5\r\n\r\n")
        ftp = stack.enter_context(logged_in(server))
        assert sorted(ftp.nlst()) == ["huge", "small"]
        with urllib.request.urlopen(f"http://127.0.0.1:{address[1]}/small", timeout=20) as response:
            assert response.read() == b"x"
        assert not select.select(requests, [], [], 0)[0], "none is done"
