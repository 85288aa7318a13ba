"""Uploads are transactions, and only permitted clients can make them."""

import contextlib
import ftplib
import io
import os
import signal
import zlib

import pytest
from servekit import EOD, EOF, Server, block, content, leftovers, logged_in, passive, run, serving

from testkit import needs_programs, wait_until


def test_nothing_is_written_without_the_write_option(engine, tmp_path):
    served = tmp_path / "served"
    served.mkdir()
    (served / "file").write_bytes(b"content")
    with serving(engine, served, tmp_path) as server, logged_in(server) as ftp:
        for command in (
            "DELE file",
            "MKD d",
            "RMD d",
            "RNFR file",
            "MFMT 20200101000000 file",
            "SITE CHMOD 777 file",
            "SITE TRNC 0 file",
        ):
            with pytest.raises(ftplib.error_perm, match=r"^550"):
                ftp.sendcmd(command)
        for command in ("STOR file", "APPE file", "STOR new"):
            with pytest.raises(ftplib.error_perm, match=r"^550"):
                ftp.storbinary(command, io.BytesIO(b"x"))
    assert [path.name for path in served.iterdir()] == ["file"]
    assert (served / "file").read_bytes() == b"content"


def test_users_need_passwords_and_anonymous_clients_can_only_read_if_admitted(engine, tmp_path):
    served, users = tmp_path / "served", tmp_path / "users"
    served.mkdir()
    (served / "file").write_bytes(b"content")
    hashed = run("openssl", "passwd", "-6", "-salt", "saltsalt", "a password").stdout.strip()
    users.write_text(f"# users\nann:{hashed}\n")
    with serving(engine, served, tmp_path, "--users", users, "--write") as server:
        with logged_in(server, "ann", "a password") as ftp:
            ftp.storbinary("STOR by-ann", io.BytesIO(b"x"))
        for user, password in (("ann", "another"), ("bob", "a password"), ("anonymous", "x@y")):
            with pytest.raises(ftplib.error_perm, match=r"^530"), logged_in(server, user, password):
                pass
        wait_until(lambda: len(server.events("login")) == 4, "all logins to be told", 10)
        assert [event["admitted"] for event in server.events("login")] == [True, False, False, False]
        output = str(server.events())
        assert "a password" not in output
        assert "another" not in output
    arguments = ("--users", users, "--write", "--anonymous")
    with serving(engine, served, tmp_path, *arguments) as server, logged_in(server) as ftp:
        assert ftp.size("by-ann") == 1
        with pytest.raises(ftplib.error_perm, match=r"^550"):
            ftp.storbinary("STOR file", io.BytesIO(b"x"))
    assert (served / "file").read_bytes() == b"content"


def test_an_invalid_file_of_users_is_rejected_with_its_line_number(engine, tmp_path):
    (tmp_path / "users").write_text("ann:secret\n")
    done = run(engine, "serve", tmp_path, "--users", tmp_path / "users", "--listen", "127.0.0.1:0", code=1)
    assert "line 1: expected NAME:HASH, with HASH as `openssl passwd -6` prints it" in done.stderr
    assert "secret" not in done.stderr


def test_a_broken_upload_leaves_the_old_file_and_resumes_from_its_markers(writable):
    whole = content("broken", 3_000_000)
    (writable.directory / "broken").write_bytes(b"old")
    with logged_in(writable) as ftp:
        for command in ("TYPE I", "MODE E", "TREV RESTART 1"):
            ftp.sendcmd(command)
        data = passive(ftp)
        ftp.putcmd("STOR broken")
        assert ftp.getline().startswith("150")
        data.sendall(
            block(0, 1_000_000, 0, whole[:1_000_000]) + block(0, 500_000, 2_000_000, whole[2_000_000:2_500_000])
        )
        output = 0
        while output < 1_500_000:  # until the markers cover all bytes
            line = ftp.getline()
            if line.startswith("111 Range Marker "):
                ranges = [one.split("-") for one in line.rpartition(" ")[2].split(",")]
                output += sum(int(end) - int(start) for start, end in ranges)
        data.close()
        while not (line := ftp.getline()).startswith("426"):
            assert line[:1] != "2", line
        assert (writable.directory / "broken").read_bytes() == b"old"
        assert len(leftovers(writable.directory)) == 1
        assert ".venturi" not in ftp.sendcmd("MLSC /"), "what is not whole is not listed"
        data = passive(ftp)
        assert ftp.sendcmd("REST 0-1000000,2000000-2500000").startswith("350")
        ftp.putcmd("STOR broken")
        assert ftp.getline().startswith("150")
        data.sendall(
            block(0, 1_000_000, 1_000_000, whole[1_000_000:2_000_000])
            + block(0, 500_000, 2_500_000, whole[2_500_000:])
            + block(EOD | EOF, 0, 1)
        )
        while not (line := ftp.getline()).startswith("226"):
            assert line[:1] not in "45", line
        data.close()
    assert (writable.directory / "broken").read_bytes() == whole
    assert leftovers(writable.directory) == []


def test_a_restart_of_a_missing_file_is_rejected_and_creates_no_hole(writable):
    with logged_in(writable) as ftp:
        with pytest.raises(ftplib.error_perm, match=r"^550"):
            ftp.storbinary("STOR nothing-yet", io.BytesIO(b"tail"), rest=1000)
        assert "nothing-yet" not in ftp.nlst()
        ftp.storbinary("STOR begun", io.BytesIO(b"0123"))
        ftp.storbinary("STOR begun", io.BytesIO(b"4567"), rest=4)
    assert (writable.directory / "begun").read_bytes() == b"01234567"


def test_an_upload_with_a_wrong_checksum_is_discarded(writable):
    (writable.directory / "checked").write_bytes(b"old")
    sums = {"ADLER32": f"{zlib.adler32(b'new'):08x}", "MD5": "22af645d1859cb5ca6da0c484f1f37ea"}
    with logged_in(writable) as ftp:
        for name, right in sums.items():
            assert ftp.sendcmd(f"SCKS {name} {'0' * len(right)}").startswith("200")
            with pytest.raises(ftplib.error_perm, match="INCORRECT_CHECKSUM"):
                ftp.storbinary("STOR checked", io.BytesIO(b"new"))
            assert (writable.directory / "checked").read_bytes() == b"old"
            assert leftovers(writable.directory) == []
            assert ftp.sendcmd(f"SCKS {name} {right}").startswith("200")
            ftp.storbinary("STOR checked", io.BytesIO(b"new"))
            assert (writable.directory / "checked").read_bytes() == b"new"
            (writable.directory / "checked").write_bytes(b"old")


def test_an_upload_with_blocks_out_of_order_matches_its_adler32_checksum(writable):
    whole = content("scattered", 2_000_000)
    chunks = [(offset, whole[offset : offset + 70_000]) for offset in range(0, len(whole), 70_000)]
    chunks = chunks[::2] + chunks[1::2][::-1]
    with logged_in(writable) as ftp:
        for command in ("TYPE I", "MODE E", f"SCKS ADLER32 {zlib.adler32(whole):08x}"):
            ftp.sendcmd(command)
        with passive(ftp) as data:
            ftp.putcmd("STOR scattered")
            for offset, chunk in chunks:
                data.sendall(block(0, len(chunk), offset, chunk))
            data.sendall(block(EOD | EOF, 0, 1))
            while not (line := ftp.getline()).startswith("226"):
                assert line[:1] not in "45", line
    assert (writable.directory / "scattered").read_bytes() == whole


def test_parts_are_written_to_their_offset_by_several_sessions(writable):
    whole = content("parts", 600_000)
    (writable.directory / "parts").write_bytes(b"\0" * 600_000)
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(logged_in(writable)) for _ in range(3)]
        for number, ftp in enumerate(sessions):
            offset = number * 200_000
            ftp.storbinary(f"ESTO A {offset} parts", io.BytesIO(whole[offset : offset + 200_000]))
    assert (writable.directory / "parts").read_bytes() == whole


@needs_programs("globus-url-copy")
def test_pipelined_uploads_do_not_mix_after_one_into_a_missing_directory_fails(writable):
    names = ["p0", "p1", "missing/p2", "p3", "p4"]
    bodies = {name: content(name, 50_000) for name in names}
    with logged_in(writable) as ftp:
        for command in ("TYPE I", "MODE E"):
            ftp.sendcmd(command)
        data = passive(ftp)
        ftp.sock.sendall("".join(f"STOR {name}\r\n" for name in names).encode())
        with contextlib.suppress(OSError):  # the server closes connections that it cannot trust
            for name in names:
                data.sendall(block(0, 50_000, 0, bodies[name]) + block(EOD | EOF, 0, 1))
        finals = []
        while len(finals) < len(names):
            line = ftp.getline()
            if line[3:4] == " " and line[0] in "245" and line[:3] != "112":
                finals.append(line[:3])
        data.close()
    assert finals[:2] == ["226", "226"]
    assert finals[2] == "550"
    for name in names:
        path = writable.directory / name
        assert not path.exists() or path.read_bytes() == bodies[name], name


@pytest.mark.parametrize("kept", ["none", "mode"])
def test_directories_created_in_a_setgid_directory_inherit_its_setgid_bit(engine, tmp_path, kept):
    source, served, shared = (tmp_path / name for name in ("source", "served", "shared"))
    (source / "inner").mkdir(parents=True)
    for directory, mode in ((source, 0o775), (source / "inner", 0o775), (served, 0o2775), (shared, 0o2775)):
        directory.mkdir(exist_ok=True)
        directory.chmod(mode)
    with serving(engine, served, tmp_path, "--write") as server:
        copy = (engine, "copy", "-r", "-T", "--preserve", kept)
        run(*copy, source, f"{server.url}/there")
        run(*copy, f"{server.url}/there", shared / "back")
    made = [path for copied in (served / "there", shared / "back") for path in (copied, copied / "inner")]
    mode = 0o2775 if kept == "mode" else 0o2755
    assert [oct(path.stat().st_mode & 0o7777) for path in made] == [oct(mode)] * len(made)


def test_an_upload_resumes_after_a_server_kill_and_a_new_upload_restarts(engine, tmp_path):
    served = tmp_path / "served"
    served.mkdir()
    whole = content("killed", 2_000_000)
    with contextlib.ExitStack() as stack:
        server = Server(engine, served, tmp_path, "--write")
        stack.callback(server.process.wait)
        stack.callback(server.process.kill)
        ftp = stack.enter_context(logged_in(server))
        for command in ("TYPE I", "MODE E", "TREV RESTART 1"):
            ftp.sendcmd(command)
        data = stack.enter_context(passive(ftp))
        ftp.putcmd("STOR killed")
        assert ftp.getline().startswith("150")
        data.sendall(block(0, 800_000, 0, whole[:800_000]))
        while not (line := ftp.getline()).startswith("111"):
            pass
        assert line == "111 Range Marker 0-800000"
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        server.process.stderr.close()
        with contextlib.suppress(*ftplib.all_errors):
            ftp.quit()
    assert len(leftovers(served)) == 1
    with serving(engine, served, tmp_path, "--write") as server:
        with logged_in(server) as ftp:
            ftp.storbinary("STOR killed", io.BytesIO(whole[800_000:]), rest=800_000)
        assert (served / "killed").read_bytes() == whole
        assert leftovers(served) == []


def test_a_full_disk_is_reported_and_leaves_no_file(engine, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    small = tmp_path / "small"
    small.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=1m", "none", small)
    try:
        with serving(engine, small, tmp_path, "--write") as server, logged_in(server) as ftp:
            ftp.sendcmd("TYPE I")
            with contextlib.suppress(OSError), ftp.transfercmd("STOR big") as data:
                data.sendall(bytes(3_000_000))  # the server need not read all of it
            with pytest.raises(ftplib.error_temp, match="NO_SPACE_LEFT"):
                ftp.voidresp()
            wait_until(lambda: leftovers(small) == [], "what was begun to go")
            ftp.storbinary("STOR fits", io.BytesIO(b"x"))
            assert ftp.nlst() == ["fits"]
    finally:
        run("umount", small)
