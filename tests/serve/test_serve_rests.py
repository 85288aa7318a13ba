"""Files that go on, and what a session says of files: as RFC 959, 1123 and 3659 have it."""

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
"""What the server writes at a time."""


def begun(ftp, command):
    """Begin an upload; return its data connection."""
    ftp.sendcmd("TYPE I")
    data = passive(ftp)
    ftp.putcmd(command)
    assert ftp.getline().startswith("150")
    return data


def break_off(server, name, content):
    """Have an upload end in its middle, by an error of its connection: what has come of it is kept."""
    with logged_in(server) as ftp:
        data = begun(ftp, f"STOR {name}")
        (part,) = (server.directory / part for part in leftovers(server.directory))
        data.sendall(content)
        wait_until(lambda: part.stat().st_size == len(content), "all that was sent to be written", 10)
        data.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        data.close()
        with pytest.raises(ftplib.error_temp, match=r"^426"):
            ftp.voidresp()
    assert not content or part.stat().st_size == len(content)
    return part


@pytest.mark.parametrize("left", [len(NEW), BLOCK_BYTES, 0], ids=["more", "less", "nothing"])
def test_who_goes_on_from_the_size_of_a_file_goes_on_in_it_whatever_else_was_left(writable, left):
    name = f"whole-{left}"
    with logged_in(writable) as ftp:
        ftp.storbinary(f"STOR {name}", io.BytesIO(OLD))
        part = break_off(writable, name, NEW[:left])
        ftp.storbinary(f"STOR {name}", io.BytesIO(b"C" * 100), rest=ftp.size(name))
        assert (writable.directory / name).read_bytes() == OLD + b"C" * 100
        ftp.delete(name)
    assert not part.exists()


def test_nothing_stays_behind_what_a_client_goes_on_from(writable):
    break_off(writable, "shorter", NEW)
    with logged_in(writable) as ftp:
        ftp.storbinary("STOR shorter", io.BytesIO(b"C" * 10), rest=300_000)
    assert (writable.directory / "shorter").read_bytes() == NEW[:300_000] + b"C" * 10
    assert leftovers(writable.directory) == []


@pytest.mark.parametrize("between", ["LIST", "NLST", "MLSD", "APPE between", "RETR none"])
def test_a_restart_is_for_the_next_transfer_alone(writable, between):
    (writable.directory / "ten").write_bytes(b"0123456789")
    came = []
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
        ftp.retrbinary("RETR ten", came.append)
    assert b"".join(came) == b"0123456789"


def test_a_restart_beyond_the_end_of_a_file_is_refused(writable):
    (writable.directory / "ten").write_bytes(b"0123456789")
    came = []
    with logged_in(writable) as ftp:
        with pytest.raises(ftplib.error_perm, match=r"^554"):
            ftp.retrbinary("RETR ten", came.append, rest=11)
        ftp.retrbinary("RETR ten", came.append, rest=10)
        ftp.retrbinary("RETR ten", came.append, rest=8)
    assert b"".join(came) == b"89"


def test_an_empty_file_may_have_come_before_it_is_asked_for(writable):
    with (writable.directory / "sixteen").open("wb") as file:
        file.truncate(16 << 20)
    with logged_in(writable) as ftp:
        ftp.sendcmd("TYPE I")
        for number in range(20):
            passive(ftp).close()
            # Before it is known that the connection has ended, and after.
            for _ in range(number % 3):
                ftp.voidcmd("NOOP")
            assert ftp.sendcmd(f"STOR empty-{number}").startswith("150")
            assert ftp.voidresp().startswith("226")
        # No download is taken for one, whether it is known by then that its connection has ended, or shows when it is written to.
        passive(ftp).close()
        with pytest.raises(ftplib.error_temp, match=r"^42[56]"):
            assert ftp.sendcmd("RETR sixteen").startswith("150")
            ftp.voidresp()
    assert {(writable.directory / f"empty-{number}").stat().st_size for number in range(20)} == {0}


def test_a_directory_has_no_size(writable):
    (writable.directory / "folder").mkdir()
    with logged_in(writable) as ftp, pytest.raises(ftplib.error_perm, match=r"(?s)^550.*Is a directory"):
        ftp.size("folder")


def test_what_is_appended_is_in_the_file_or_the_client_is_told(writable):
    path = writable.directory / "grows"
    with logged_in(writable) as ftp, logged_in(writable) as other:
        data = begun(ftp, "APPE grows")
        data.sendall(b"1" * 1000)
        with pytest.raises(ftplib.error_temp, match=r"^450"):
            other.storbinary("APPE grows", io.BytesIO(b"2" * 1000))
        data.close()
        assert ftp.voidresp().startswith("226")
        other.storbinary("APPE grows", io.BytesIO(b"2" * 1000))
        assert path.read_bytes() == b"1" * 1000 + b"2" * 1000
        for change in (lambda: other.delete("grows"), lambda: other.storbinary("STOR grows", io.BytesIO(b"new"))):
            path.write_bytes(b"old")
            data = begun(ftp, "APPE grows")
            data.sendall(b"1" * 1000)
            change()
            data.close()
            with pytest.raises(ftplib.error_temp, match=r"(?s)^451.*changed"):
                ftp.voidresp()


def test_who_logs_in_anew_may_do_what_the_new_user_may(engine, tmp_path):
    served, users = tmp_path / "served", tmp_path / "users"
    served.mkdir()
    hashed = run("openssl", "passwd", "-6", "-salt", "saltsalt", "a password").stdout.strip()
    users.write_text(f"ann:{hashed}\n")
    words = ("--users", users, "--write", "--anonymous")
    with serving(engine, served, tmp_path, *words) as server, logged_in(server) as ftp:
        for user, may in (("ann", True), ("anonymous", False), ("ann", True)):
            ftp.login(user, "a password")
            if may:
                ftp.rmd(ftp.mkd("d"))
            else:
                with pytest.raises(ftplib.error_perm, match=r"^550"):
                    ftp.mkd("d")


@pytest.mark.parametrize("kind", ["ftp", "http"])
def test_who_reads_slowly_is_not_taken_for_one_who_has_gone(engine, tmp_path, kind):
    """The kernel takes megabytes at once, and then none before a good part of them is gone."""
    served = tmp_path / "served"
    served.mkdir()
    size = 12_000_000
    (served / "file").write_bytes(bytes(size))
    came, stall_s = 0, 2
    words = ["--stall-time", str(stall_s), *(["--http", "127.0.0.1:0"] if kind == "http" else [])]
    with serving(engine, served, tmp_path, *words) as server, logged_in(server) as ftp, socket.socket() as data:
        data.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)
        data.settimeout(20)
        if kind == "ftp":
            ftp.sendcmd("TYPE I")
            data.connect(ftplib.parse227(ftp.sendcmd("PASV")))
            ftp.putcmd("RETR file")
        else:
            data.connect(("127.0.0.1", int(server.events("start")[0]["http"][0].rpartition(":")[2])))
            data.sendall(b"GET /file HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        # 40 kB/s, where 16 KiB in 2 s are enough.
        end_s = time.monotonic() + 4 * stall_s
        while time.monotonic() < end_s:
            came += len(data.recv(4000))
            time.sleep(0.1)
        assert came < size / 4, "it was slow"
        while chunk := data.recv(1 << 20):
            came += len(chunk)
        assert came >= size
