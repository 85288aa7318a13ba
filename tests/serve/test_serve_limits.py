"""What a client cannot do, however long and often it tries."""

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
from servekit import Server, logged_in, run, serving, somebody

from testkit import free_port, wait_until

IDLE = 10_000
"""Sessions that do nothing; what the kernel has to let one process open for them, with some to spare."""
FILES = IDLE + 600


def talk(server):
    """Open a control connection, and hear the greeting."""
    link = socket.create_connection(("127.0.0.1", server.port), 20)
    assert link.recv(1000).startswith(b"220")
    return link


def heard(link, most_s=20.0):
    """Return all that comes until the server closes."""
    link.settimeout(most_s)
    return b"".join(iter(lambda: link.recv(65536), b""))


def heard_until(link, wanted):
    """Return what comes until this is in it."""
    said = b""
    while wanted not in said:
        more = link.recv(1000)
        assert more, f"expected {wanted!r}, found the end behind {said!r}"
        said += more
    return said


@pytest.fixture
def served(tmp_path):
    """A directory with a file and links that lead out, beside a secret."""
    folder = tmp_path / "served"
    (folder / "d").mkdir(parents=True)
    (folder / "file").write_bytes(b"content")
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "out").symlink_to("../secret")
    (folder / "up").symlink_to("..")
    (folder / "absolute").symlink_to(tmp_path / "secret")
    (folder / "within").symlink_to("d/../file")
    return folder


def test_no_path_and_no_link_leads_out_of_the_directory(engine, served, tmp_path):
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
        # Nobody decodes these: they are names, and of nothing.
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
        # A name that stands for the directory above stands for the root: nothing is there.
        ftp.cwd("..")
        assert ftp.pwd() == "/"
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert not (tmp_path / "new").exists()


def test_data_go_to_no_other_host_and_no_port_of_the_system(engine, served, tmp_path):
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
        # Nor does anybody else get what was meant for the client: 127.0.0.2 is another host.
        host, port = ftplib.parse227(ftp.sendcmd("PASV"))
        with socket.create_connection((host, port), 20, source_address=("127.0.0.2", 0)) as other:
            ftp.putcmd("RETR file")
            assert heard(other) == b""
        assert ftp.getline().startswith("150")
        with socket.create_connection((host, port), 20) as own:
            assert heard(own) == b"content"


def test_what_anonymous_clients_say_goes_to_no_third_host_where_users_may_send_it_there(engine, served, tmp_path):
    words = ("--third-party", "--anonymous", "--users", somebody(tmp_path))
    with serving(engine, served, tmp_path, *words) as server, logged_in(server) as ftp:
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


def test_connections_for_data_that_nobody_uses_are_few_and_end_with_the_session(engine, served, tmp_path):
    words = ("--streams", "8", "--idle-time", "2")
    with (
        serving(engine, served, tmp_path, *words) as server,
        logged_in(server) as ftp,
        contextlib.ExitStack() as stack,
    ):
        ftp.sendcmd("MODE E")
        place = ftplib.parse227(ftp.sendcmd("PASV"))
        links = [stack.enter_context(socket.create_connection(place, 20)) for _ in range(12)]
        # Whom it does not want it hangs up on.
        wait_until(lambda: len(hung_up(links)) == 4, "the ninth and all behind it to be closed", 10)
        assert ftp.getline().startswith("421"), "connections are no command"
        wait_until(lambda: len(hung_up(links)) == 12, "all to be closed", 10)


def test_data_connections_of_many_sessions_leave_files_for_others_to_open(engine, served, tmp_path):
    few = tmp_path / "few"
    few.write_text(f'#!/bin/sh\nulimit -n 400\nexec {engine} "$@"\n')
    few.chmod(0o755)
    server = Server(few, served, tmp_path)
    with server.process, contextlib.ExitStack() as stack:
        for _ in range(8):
            ftp = stack.enter_context(logged_in(server))
            ftp.sendcmd("MODE E")
            place = ftplib.parse227(ftp.sendcmd("PASV"))
            with contextlib.suppress(ConnectionError):
                for _ in range(60):
                    stack.enter_context(socket.create_connection(place, 20))
        with logged_in(server) as ftp:
            assert ftp.size("file") == 7
        server.process.kill()


def hung_up(links):
    """Return those that the server has closed."""
    closed = []
    for link in links:
        link.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            try:
                gone = link.recv(1) == b""
            except ConnectionError:
                gone = True
            closed += [link] * gone
    return closed


def test_lines_without_end_and_logins_that_drip_in_are_ended(engine, served, tmp_path):
    with serving(engine, served, tmp_path, "--login-time", "2", "--idle-time", "2") as server:
        with talk(server) as link:
            begin = time.monotonic()
            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                while time.monotonic() < begin + 15:
                    link.sendall(b"A")
                    time.sleep(0.02)
            assert 1.5 < time.monotonic() - begin < 10, "bytes do not put off the end of a login"
        with talk(server) as link:
            link.sendall(b"USER " + b"x" * 100_000 + b"\r\nNOOP\r\n")
            assert heard_until(link, b"200").startswith(b"500")
        with logged_in(server) as ftp:
            assert ftp.getline().startswith("421"), "nothing is said for too long"


def test_passwords_can_be_guessed_three_times(engine, served, tmp_path):
    with serving(engine, served, tmp_path, "--users", somebody(tmp_path)) as server, talk(server) as link:
        begin = time.monotonic()
        link.sendall(b"USER a\r\nPASS b\r\n" * 5)
        said = heard(link)
        assert said.count(b"530 End") == 3
        assert b"421 " in said
        assert time.monotonic() - begin > 2.5, "each takes a second"


def test_a_transfer_that_stands_still_is_given_up(engine, served, tmp_path):
    (served / "large").write_bytes(bytes(50_000_000))
    with serving(engine, served, tmp_path, "--stall-time", "1") as server, logged_in(server) as ftp:
        host, port = ftplib.parse227(ftp.sendcmd("PASV"))
        with socket.create_connection((host, port), 20) as data:
            ftp.putcmd("RETR large")
            assert ftp.getline().startswith("150")
            assert ftp.getline().startswith("426")
            data.recv(1)
        ftp.sendcmd("PASV")
        ftp.putcmd("RETR large")  # and nobody comes
        assert ftp.getline().startswith("150")
        assert ftp.getline().startswith("426")
        assert ftp.size("file") == 7


def test_who_has_a_byte_come_or_go_now_and_then_does_not_keep_a_transfer(engine, served, tmp_path):
    (served / "large").write_bytes(bytes(50_000_000))
    options = ("--write", "--stall-time", "2")
    with serving(engine, served, tmp_path, *options) as server, logged_in(server) as ftp:
        ftp.sendcmd("TYPE I")
        host, port = ftplib.parse227(ftp.sendcmd("PASV"))
        with socket.create_connection((host, port), 20) as data:
            ftp.putcmd("STOR drips")
            assert ftp.getline().startswith("150")
            wait_until(lambda: gone(data, b"1"), "the server to hang up on who sends bytes one by one", 15)
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
                # As slow as a bad line is: it is taken to the end.
                ftp.putcmd(f"STOR {name}")
                data.sendall(bytes(fast_bytes))
                for _ in range(10):
                    time.sleep(0.4)
                    data.sendall(bytes(10_000))
            assert [ftp.getline()[:3] for _ in range(2)] == ["150", "226"], name
        assert [event["code"] for event in server.transfers(4)] == [426, 426, 226, 226]


def gone(link, drip):
    """Send a byte, and tell a while later whether the other end has gone."""
    time.sleep(0.1)
    try:
        link.sendall(drip)
    except ConnectionError:
        return True
    return False


def test_who_takes_no_answers_is_not_asked_for_more_and_costs_no_memory(engine, served, tmp_path):
    for number in range(2000):
        (served / f"a-name-that-makes-listings-long-{number}").touch()
    with serving(engine, served, tmp_path) as server, talk(server) as link:
        link.sendall(b"USER anonymous\r\nPASS x\r\n")
        link.settimeout(1)
        with pytest.raises(TimeoutError):
            for _ in range(10_000):
                link.sendall(b"MLSC /\r\n" * 500)
        assert memory_bytes(server) < 60e6


def test_sessions_are_limited_in_all_and_for_an_address(engine, served, tmp_path):
    with serving(engine, served, tmp_path, "--sessions", "5", "--sessions-per-address", "3") as server:
        links = [talk(server) for _ in range(3)]
        with socket.create_connection(("127.0.0.1", server.port), 20) as fourth:
            assert heard(fourth) == b"421 too many sessions of your address, try again later.\r\n"
        links += [
            socket.create_connection(("127.0.0.1", server.port), 20, source_address=("127.0.0.2", 0))
            for _ in range(2)
        ]
        assert all(link.recv(1000).startswith(b"220") for link in links[3:])
        with socket.create_connection(("127.0.0.1", server.port), 20, source_address=("127.0.0.3", 0)) as sixth:
            assert heard(sixth) == b"421 too many sessions, try again later.\r\n"
        for link in links:
            link.close()
        wait_until(lambda: len(server.events("session_end")) == 5, "the sessions to end", 10)
        talk(server).close()


def test_idle_sessions_cost_little_memory_and_a_fixed_number_of_threads(engine, served, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < FILES:
        pytest.skip(f"needs {FILES} open files, the kernel allows {hard} (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        words = ("--sessions", str(IDLE + 1), "--sessions-per-address", "100000", "--threads", "2")
        with serving(engine, served, tmp_path, *words) as server:
            before, threads = memory_bytes(server), threads_of(server)
            links = [socket.create_connection(("127.0.0.1", server.port), 20) for _ in range(IDLE)]
            try:
                for link in links:
                    link.sendall(b"USER anonymous\r\nPASS x\r\n")
                for link in links:
                    heard_until(link, b"230")
                assert memory_bytes(server) - before < IDLE * 10_000
                assert threads_of(server) == threads
                with logged_in(server) as ftp:
                    assert ftp.size("file") == 7
            finally:
                for link in links:
                    link.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def threads_of(server):
    """Return how many threads the server has."""
    return sum(1 for _ in Path(f"/proc/{server.process.pid}/task").iterdir())


def memory_bytes(server):
    """Return what the kernel counts as resident memory of the server."""
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_data_ports_are_those_that_the_firewall_lets_through(engine, served, tmp_path):
    first = free_port()
    with (
        serving(
            engine, served, tmp_path, "--data-ports", f"{first}-{first}", "--public-address", "127.0.0.9"
        ) as server,
        logged_in(server) as ftp,
    ):
        for _ in range(3):
            assert ftplib.parse227(ftp.sendcmd("PASV")) == ("127.0.0.9", first)


def test_counters_are_told_in_the_format_of_prometheus(engine, served, tmp_path):
    port = free_port()
    with serving(engine, served, tmp_path, "--metrics", str(port)) as server:
        with logged_in(server) as ftp:
            ftp.retrbinary("RETR file", lambda _: None)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                lines = answer.read().decode().splitlines()
        counted = dict(line.split() for line in lines if not line.startswith("#"))
        assert counted["venturi_serve_sessions"] == "1"
        assert counted["venturi_serve_transfers_done_total"] == "1"
        assert counted["venturi_serve_sent_bytes_total"] == "7"


def test_a_signal_lets_transfers_end_and_then_the_server(engine, served, tmp_path):
    (served / "large").write_bytes(bytes(30_000_000))
    server = Server(engine, served, tmp_path)
    with server.process, talk(server) as idle, logged_in(server) as ftp:
        host, port = ftplib.parse227(ftp.sendcmd("PASV"))
        with socket.create_connection((host, port), 20) as data:
            ftp.putcmd("RETR large")
            assert ftp.getline().startswith("150")
            server.process.terminate()
            assert heard(idle).startswith(b"421"), "who is idle is told at once"
            wait_until(lambda: not listens(server), "the door to close", 10)
            assert len(heard(data)) == 30_000_000
        assert ftp.getline().startswith("226")
        assert ftp.getline().startswith("421")
        assert server.process.wait(20) == 0


def test_a_second_signal_ends_what_still_goes_on(engine, served, tmp_path):
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
    """Tell whether somebody can still come."""
    with socket.socket() as link:
        return link.connect_ex(("127.0.0.1", server.port)) == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["/nowhere"],
            "/nowhere: expected a directory to serve, found No such file or directory; name one that you may read",
        ),
        ([".", "--listen", "192.0.2.1:2811"], "192.0.2.1:2811: expected an address and port that are free and ours"),
        ([".", "--users", "/nowhere"], "/nowhere: expected a file of users"),
    ],
)
def test_what_cannot_be_served_is_told_in_a_sentence(engine, words, told):
    assert told in run(engine, "serve", *words, code=1).stderr


def test_checksums_that_take_long_leave_the_disk_to_others(engine, tmp_path):
    """Of the threads that wait for the disk there are 16 for each thread of sessions."""
    served = tmp_path / "served"
    served.mkdir()
    (served / "small").write_bytes(b"x")
    with (served / "huge").open("wb") as file:
        file.truncate(200 << 30)
    words = ("--threads", "1", "--http", "127.0.0.1:0")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(engine, served, tmp_path, *words))
        place = ("127.0.0.1", int(server.events("start")[0]["http"][0].rpartition(":")[2]))
        asked = [stack.enter_context(socket.create_connection(place, 20)) for _ in range(20)]
        for connection in asked:
            connection.sendall(b"HEAD /huge HTTP/1.1\r\nHost: x\r\nWant-Digest: md5\r\n\r\n")
        ftp = stack.enter_context(logged_in(server))
        assert sorted(ftp.nlst()) == ["huge", "small"]
        with urllib.request.urlopen(f"http://127.0.0.1:{place[1]}/small", timeout=20) as answer:
            assert answer.read() == b"x"
        assert not select.select(asked, [], [], 0)[0], "none is done"
