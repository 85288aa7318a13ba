"""Restarted and appended files, and metadata of files in a session, as in RFC 959, 1123 and 3659."""

import ftplib
import io
import socket
import struct
import time

import pytest
from servekit import leftovers, logged_in, passive, run, serving

from testkit import wait_until

OLD, NEW = b"A" * 400_000, b"B" * (1 << 20)
BLOCK_BYTES = 256 << 10
"""Write size of the server."""


def started(ftp, command):
    """Start an upload; return its data connection."""
    ftp.sendcmd("TYPE I")
    data = passive(ftp)
    ftp.putcmd(command)
    assert ftp.getline().startswith("150")
    return data


def disconnect(server, name, content):
    """Break the data connection in the middle of an upload; the server keeps the received part."""
    with logged_in(server) as ftp:
        data = started(ftp, f"STOR {name}")
        (part,) = (server.directory / part for part in leftovers(server.directory))
        data.sendall(content)
        wait_until(lambda: part.stat().st_size == len(content), "all that was sent to be written", 10)
        data.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        data.close()
        with pytest.raises(ftplib.error_temp, match=r"^426"):
            ftp.voidresp()
    assert not content or part.stat().st_size == len(content)
    return part


@pytest.mark.parametrize("remaining", [len(NEW), BLOCK_BYTES, 0], ids=["more", "less", "nothing"])
def test_a_restart_at_the_size_of_a_file_appends_to_it_despite_leftovers(writable, remaining):
    name = f"whole-{remaining}"
    with logged_in(writable) as ftp:
        ftp.storbinary(f"STOR {name}", io.BytesIO(OLD))
        part = disconnect(writable, name, NEW[:remaining])
        ftp.storbinary(f"STOR {name}", io.BytesIO(b"C" * 100), rest=ftp.size(name))
        assert (writable.directory / name).read_bytes() == OLD + b"C" * 100
        ftp.delete(name)
    assert not part.exists()


def test_a_restarted_upload_truncates_the_leftover_after_its_offset(writable):
    disconnect(writable, "shorter", NEW)
    with logged_in(writable) as ftp:
        ftp.storbinary("STOR shorter", io.BytesIO(b"C" * 10), rest=300_000)
    assert (writable.directory / "shorter").read_bytes() == NEW[:300_000] + b"C" * 10
    assert leftovers(writable.directory) == []


@pytest.mark.parametrize("between", ["LIST", "NLST", "MLSD", "APPE between", "RETR none"])
def test_a_restart_offset_applies_only_to_the_next_transfer(writable, between):
    (writable.directory / "ten").write_bytes(b"0123456789")
    arrived = []
    with logged_in(writable) as ftp:
        ftp.sendcmd("TYPE I")
        data = passive(ftp)
        ftp.sendcmd("REST 5")
        ftp.putcmd(between)
        code = ftp.getline()[:3]
        if code == "150":
            if between.startswith("APPE"):
                data.close()
            assert ftp.getline().startswith("226")
        else:
            assert code == "550"
            while not ftp.getline().startswith("550 "):
                pass
        data.close()
        ftp.retrbinary("RETR ten", arrived.append)
    assert b"".join(arrived) == b"0123456789"


def test_a_restart_beyond_the_end_of_a_file_is_rejected(writable):
    (writable.directory / "ten").write_bytes(b"0123456789")
    arrived = []
    with logged_in(writable) as ftp:
        with pytest.raises(ftplib.error_perm, match=r"^554"):
            ftp.retrbinary("RETR ten", arrived.append, rest=11)
        ftp.retrbinary("RETR ten", arrived.append, rest=10)
        ftp.retrbinary("RETR ten", arrived.append, rest=8)
    assert b"".join(arrived) == b"89"


def test_an_empty_upload_can_close_its_data_connection_before_the_command(writable):
    with (writable.directory / "sixteen").open("wb") as file:
        file.truncate(16 << 20)
    with logged_in(writable) as ftp:
        ftp.sendcmd("TYPE I")
        for number in range(20):
            passive(ftp).close()
            # With and without time for the server to notice that the connection is closed.
            for _ in range(number % 3):
                ftp.voidcmd("NOOP")
            assert ftp.sendcmd(f"STOR empty-{number}").startswith("150")
            assert ftp.voidresp().startswith("226")
        # A download never uses a closed connection. The server notices it beforehand or during the write.
        passive(ftp).close()
        with pytest.raises(ftplib.error_temp, match=r"^42[56]"):
            assert ftp.sendcmd("RETR sixteen").startswith("150")
            ftp.voidresp()
    assert {(writable.directory / f"empty-{number}").stat().st_size for number in range(20)} == {0}


def test_a_directory_has_no_size(writable):
    (writable.directory / "folder").mkdir()
    with logged_in(writable) as ftp, pytest.raises(ftplib.error_perm, match=r"(?s)^550.*Is a directory"):
        ftp.size("folder")


def test_appended_data_is_stored_or_the_client_gets_an_error(writable):
    path = writable.directory / "grows"
    with logged_in(writable) as ftp, logged_in(writable) as other:
        data = started(ftp, "APPE grows")
        data.sendall(b"1" * 1000)
        with pytest.raises(ftplib.error_temp, match=r"^450"):
            other.storbinary("APPE grows", io.BytesIO(b"2" * 1000))
        data.close()
        assert ftp.voidresp().startswith("226")
        other.storbinary("APPE grows", io.BytesIO(b"2" * 1000))
        assert path.read_bytes() == b"1" * 1000 + b"2" * 1000
        for change in (lambda: other.delete("grows"), lambda: other.storbinary("STOR grows", io.BytesIO(b"new"))):
            path.write_bytes(b"old")
            data = started(ftp, "APPE grows")
            data.sendall(b"1" * 1000)
            change()
            data.close()
            with pytest.raises(ftplib.error_temp, match=r"(?s)^451.*changed"):
                ftp.voidresp()


def test_a_second_login_gets_the_permissions_of_the_new_user(engine, tmp_path):
    served, users = tmp_path / "served", tmp_path / "users"
    served.mkdir()
    hashed = run("openssl", "passwd", "-6", "-salt", "saltsalt", "a password").stdout.strip()
    users.write_text(f"ann:{hashed}\n")
    arguments = ("--users", users, "--write", "--anonymous")
    with serving(engine, served, tmp_path, *arguments) as server, logged_in(server) as ftp:
        for user, may in (("ann", True), ("anonymous", False), ("ann", True)):
            ftp.login(user, "a password")
            if may:
                ftp.rmd(ftp.mkd("d"))
            else:
                with pytest.raises(ftplib.error_perm, match=r"^550"):
                    ftp.mkd("d")


@pytest.mark.parametrize("kind", ["ftp", "http"])
def test_a_slow_reader_is_not_treated_as_disconnected(engine, tmp_path, kind):
    """The kernel accepts megabytes at first, and then no more until the client has read a large part."""
    served = tmp_path / "served"
    served.mkdir()
    size = 12_000_000
    (served / "file").write_bytes(bytes(size))
    arrived, stall_s = 0, 2
    arguments = ["--stall-time", str(stall_s), *(["--http", "127.0.0.1:0"] if kind == "http" else [])]
    with serving(engine, served, tmp_path, *arguments) as server, logged_in(server) as ftp, socket.socket() as data:
        data.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
        data.settimeout(20)
        if kind == "ftp":
            ftp.sendcmd("TYPE I")
            data.connect(ftplib.parse227(ftp.sendcmd("PASV")))
            ftp.putcmd("RETR file")
        else:
            data.connect(("127.0.0.1", int(server.events("start")[0]["http"][0].rpartition(":")[2])))
            data.sendall(b"GET /file HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        # 40 kB/s; 16 KiB in 2 s are enough.
        end_s = time.monotonic() + 4 * stall_s
        while time.monotonic() < end_s:
            arrived += len(data.recv(4000))
            time.sleep(0.1)
        assert arrived < size / 4, "it was slow"
        while chunk := data.recv(1 << 20):
            arrived += len(chunk)
        assert arrived >= size
