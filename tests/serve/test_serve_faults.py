"""Faults around a server: failing disks, moved or full logs, shutdown during a transfer, slow clients."""

import contextlib
import ftplib
import io
import json
import os
import resource
import signal
import socket
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from servekit import EOD, EOF, Server, block, content, leftovers, logged_in, passive, run, serving

from testkit import free_port, needs_programs, wait_until

CALLS = {"pwrite64": "EIO", "fsync": "EIO", "close": "EDQUOT", "renameat": "EIO"}
"""System calls at the end of an upload, and the disk error that each one gets."""


@pytest.fixture
def served(tmp_path):
    """A directory with a file."""
    directory = tmp_path / "served"
    directory.mkdir()
    (directory / "file").write_bytes(b"content")
    return directory


@contextlib.contextmanager
def failing(server, call, error, path=None):
    """Make a system call of the server fail, for one file or directory or for all."""
    process = server.process.pid
    arguments = ["strace", "-f", "-qq", "-p", process, "-e", f"trace={call}", "-o", "/dev/null"]
    arguments += ["-P", path] if path else []
    arguments += ["-e", f"inject={call}:error={error}"]
    with subprocess.Popen([str(word) for word in arguments]) as tracer:
        try:
            tasks = Path(f"/proc/{process}/task")
            wait_until(
                lambda: all("TracerPid:\t0\n" not in (task / "status").read_text() for task in tasks.iterdir()),
                "all threads to be traced",
                20,
            )
            yield
        finally:
            tracer.send_signal(signal.SIGINT)


def counted(port):
    """Return the server's counters."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        lines = response.read().decode().splitlines()
    return {name: int(value) for name, value in (line.split() for line in lines if not line.startswith("#"))}


@needs_programs("strace")
@pytest.mark.parametrize("call", CALLS)
def test_a_disk_error_is_reported_and_the_old_file_stays(engine, served, tmp_path, call):
    with serving(engine, served, tmp_path, "--write", "--sync") as server, logged_in(server) as ftp:
        for command in ("TYPE I", "MODE E"):
            ftp.sendcmd(command)
        with passive(ftp) as data:
            ftp.putcmd("STOR file")
            data.sendall(block(0, 3, 0, b"new"))
            wait_until(lambda: leftovers(served), "the upload to begin", 10)
            fault = served if call == "renameat" else served / leftovers(served)[0]
            with failing(server, call, CALLS[call], fault):
                data.sendall(block(EOD | EOF, 0, 1))
                while not ((line := ftp.getline())[:1] in tuple("245") and line[3:4] == " "):
                    pass
        assert line.startswith("45"), line
        assert (served / "file").read_bytes() == b"content"
        wait_until(lambda: leftovers(served) == [], "what was begun to go", 10)


@needs_programs("strace")
@pytest.mark.parametrize("error", ["ENOLCK", "EOPNOTSUPP", "ENOSYS"])
def test_uploads_work_on_a_file_system_without_locks(engine, served, tmp_path, error):
    with serving(engine, served, tmp_path, "--write") as server, logged_in(server) as ftp:
        with failing(server, "flock", error):
            for command in ("STOR new", "STOR file", "APPE file"):
                ftp.storbinary(command, io.BytesIO(b"new"))
            ftp.delete("new")
        assert {path.name: path.read_bytes() for path in served.iterdir()} == {"file": b"newnew"}


@needs_programs("strace")
def test_downloads_work_from_a_file_system_without_sendfile(engine, served, tmp_path):
    large = content("large", 3_000_001)
    (served / "large").write_bytes(large)
    with serving(engine, served, tmp_path, "--write", "--http", "127.0.0.1:0") as server, logged_in(server) as ftp:
        url, web = f"{server.url}/large", f"http://{server.events('start')[0]['http'][0]}/large"
        with failing(server, "sendfile", "EINVAL"):
            got = bytearray()
            ftp.retrbinary("RETR large", got.extend, rest=1)
            with urllib.request.urlopen(web, timeout=20) as response:
                assert response.read() == large
            for streams in ("1", "3"):
                run(engine, "copy", "-q", "--streams", streams, url, tmp_path / streams)
                assert (tmp_path / streams).read_bytes() == large
    assert got == large[1:]


@needs_programs("strace")
def test_uploads_work_from_a_file_system_without_sendfile(engine, writable, tmp_path):
    large = content("up", 3_000_001)
    (tmp_path / "file").write_bytes(large)
    arguments = ["strace", "-f", "--seccomp-bpf", "-qq", "-o", tmp_path / "calls", "-e", "trace=sendfile"]
    arguments += ["-e", "inject=sendfile:error=EINVAL", engine, "copy", "-q", tmp_path / "file"]
    run(*arguments, f"{writable.url}/from-afar")
    assert (writable.directory / "from-afar").read_bytes() == large
    assert "INJECTED" in (tmp_path / "calls").read_text()


@needs_programs("strace", "curl")
def test_an_http_upload_whose_time_cannot_be_set_does_not_report_it_as_accepted(engine, served, tmp_path):
    with serving(engine, served, tmp_path, "--write", "--http", "127.0.0.1:0") as server:
        web = f"http://{server.events('start')[0]['http'][0]}/new"
        with failing(server, "utimensat", "EPERM"):
            output = run("curl", "-si", "-T", served / "file", "-H", "X-OC-Mtime: 1600000000", web).stdout
        assert "HTTP/1.1 201" in output and "accepted" not in output
        output = run("curl", "-si", "-T", served / "file", "-H", "X-OC-Mtime: 1600000000", web).stdout
        assert "HTTP/1.1 204" in output and "accepted" in output
        # A disk failure is a different error.
        with failing(server, "utimensat", "EIO"):
            output = run("curl", "-si", "-T", served / "file", "-H", "X-OC-Mtime: 1600000000", web).stdout
        assert "HTTP/1.1 500" in output


def test_an_upload_interrupted_by_a_shutdown_is_logged_and_resumes_from_its_markers(engine, served, tmp_path):
    whole = content("cut", 2_000_000)
    server = Server(engine, served, tmp_path, "--write", "--drain-time", "1")
    with server.process, logged_in(server) as ftp:
        for command in ("TYPE I", "MODE E", "TREV RESTART 1"):
            ftp.sendcmd(command)
        with passive(ftp) as data:
            ftp.putcmd("STOR cut")
            data.sendall(block(0, 800_000, 0, whole[:800_000]))
            while not (line := ftp.getline()).startswith("111"):
                pass
            assert line == "111 Range Marker 0-800000"
            server.process.terminate()
            assert server.process.wait(20) == 130
    assert [(one["path"], one["code"]) for one in server.events("transfer")] == [("/cut", 426)]
    assert len(leftovers(served)) == 1
    with serving(engine, served, tmp_path, "--write") as server, logged_in(server) as ftp:
        ftp.storbinary("STOR cut", io.BytesIO(whole[800_000:]), rest=800_000)
    assert (served / "cut").read_bytes() == whole


def test_a_slow_reader_receives_the_whole_file(engine, served, tmp_path):
    (served / "large").write_bytes(content("large", 1_200_000))
    with serving(engine, served, tmp_path, "--stall-time", "1") as server, logged_in(server) as ftp:
        ftp.sendcmd("TYPE I")
        ftp.sendcmd("SBUF 8192")
        host, port = ftplib.parse227(ftp.sendcmd("PASV"))
        with socket.socket() as data:
            data.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            data.connect((host, port))
            ftp.putcmd("RETR large")
            assert ftp.getline().startswith("150")
            got, start = b"", time.monotonic()
            while chunk := data.recv(16_384):
                got += chunk
                # Reads at 400 kB/s, so that a block of 1 MiB takes longer than the server's stall timeout.
                time.sleep(max(0.0, start + len(got) / 400_000 - time.monotonic()))
        assert ftp.getline().startswith("226")
    assert got == content("large", 1_200_000)


def test_a_moved_log_is_created_again(engine, served, tmp_path):
    log = tmp_path / "transfers.log"
    with serving(engine, served, tmp_path, "--transfer-log", str(log)) as server, logged_in(server) as ftp:
        for name in ("first", "second"):
            ftp.retrbinary("RETR file", lambda _: None)
            wait_until(lambda: log.exists() and log.read_text().count("\n") == 1, "its line", 10)
            log.rename(tmp_path / name)
        assert [(tmp_path / name).read_text().count("TYPE=RETR") for name in ("first", "second")] == [1, 1]


def test_log_lines_lost_on_a_full_disk_are_counted_and_reported_once(engine, served, tmp_path):
    port = free_port()
    server = Server(engine, served, tmp_path, "--transfer-log", "/dev/full", "--metrics", str(port))
    with server.process:
        for _ in range(3):
            with logged_in(server) as ftp:
                ftp.retrbinary("RETR file", lambda _: None)
        wait_until(lambda: counted(port)["venturi_serve_log_lines_lost_total"] == 3, "all lines to be missed", 10)
        server.process.terminate()
        output = server.process.communicate(timeout=30)[1]
    assert server.process.returncode == 0
    (line,) = output.splitlines()
    full = "venturi serve: /dev/full: cannot write log lines: No space left on device. "
    assert line.startswith(full)


def test_idle_metrics_connections_do_not_delay_other_clients(engine, served, tmp_path):
    port = free_port()
    with serving(engine, served, tmp_path, "--metrics", str(port)), contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))
        start = time.monotonic()
        assert counted(port)["venturi_serve_sessions"] == 0
        assert time.monotonic() - start < 4, "less than the patience with one of them"


def test_a_checksum_is_aborted_when_its_client_disconnects(engine, served, tmp_path):
    with (served / "sparse").open("wb") as sparse:
        sparse.truncate(1 << 42)  # reading this takes many minutes
    server = Server(engine, served, tmp_path)
    with server.process:
        with logged_in(server) as ftp:
            ftp.putcmd("CKSM ADLER32 0 -1 sparse")
        start = time.monotonic()
        server.stop()
        assert time.monotonic() - start < 10


def test_a_too_low_limit_of_open_files_is_reported(engine, served):
    few = (12, 12)
    done = run(
        engine,
        "serve",
        served,
        "--listen",
        "127.0.0.1:0",
        "--threads",
        "4",
        code=1,
        timeout_s=10,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, few),
    )
    assert "Too many open files" in done.stderr


@pytest.mark.parametrize("option", ["sessions", "sessions-per-address", "login-time", "idle-time", "stall-time"])
def test_a_limit_that_admits_no_client_is_rejected(engine, served, option):
    assert f"--{option}" in run(engine, "serve", served, f"--{option}", "0", code=2).stderr


@needs_programs("strace")
def test_a_server_that_cannot_start_its_threads_reports_it_before_it_is_ready(engine, served, tmp_path):
    ready = 0
    for count in range(1, 14):
        # All thread creations from this number on fail, so the server gets only the threads before it.
        few = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", f"inject=clone3:error=EAGAIN:when={count}+"]
        arguments = [*few, engine, "serve", served, "--listen", "127.0.0.1:0", "--json", "--threads", "1"]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            if started := process.stdout.readline():
                ready += 1
                port = int(json.loads(started)["listen"][0].rpartition(":")[2])
                with contextlib.closing(ftplib.FTP()) as ftp:
                    ftp.connect("127.0.0.1", port, timeout=20)
                    ftp.login()
                    assert ftp.size("file") == 7
                process.terminate()
            output = process.communicate(timeout=30)[1]
        assert (process.returncode, output) == (0, "") if started else "ulimit -u" in output, (count, output)
    assert 0 < ready < 13


@needs_programs("strace")
def test_sessions_share_the_existing_threads_if_no_more_can_be_created(engine, served, tmp_path):
    hashed = run("openssl", "passwd", "-6", "-salt", "saltsalt", "word").stdout.strip()
    (tmp_path / "users").write_text(f"ann:{hashed}\n")
    (served / "large").write_bytes(content("large", 3_000_000))
    server = Server(engine, served, tmp_path, "--write", "--threads", "1", "--users", tmp_path / "users")

    def transfer(number):
        with logged_in(server, "ann", "word") as ftp:
            ftp.storbinary(f"STOR {number}", io.BytesIO(content(str(number), 500_000)))
            chunks = []
            ftp.retrbinary("RETR large", chunks.append)
            return b"".join(chunks) == content("large", 3_000_000)

    try:
        with failing(server, "clone3", "EAGAIN"), ThreadPoolExecutor(8) as pool:
            assert all(pool.map(transfer, range(24)))
            server.stop()
    finally:
        server.process.kill()
        server.process.wait()
        server.process.stderr.close()
    for number in range(24):
        assert (served / str(number)).read_bytes() == content(str(number), 500_000)


CHANGES = {
    "nothing": lambda path: None,
    "written to": lambda path: path.write_bytes(bytes(64 << 20)),
    "cut": lambda path: path.write_bytes(b"x"),
    "its time set back": lambda path: os.utime(path, (1_600_000_000, 1_600_000_000)),
    "replaced": lambda path: (path.parent / "other").rename(path),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_changed_during_its_download_is_reported_as_an_error(engine, served, tmp_path, change):
    # These files are larger than the socket buffers.
    for name in ("file", "other"):
        (served / name).write_bytes(b"")
        os.truncate(served / name, 64 << 20)
        os.utime(served / name, (1_600_000_000, 1_600_000_000))
    (served / "small").write_bytes(b"small")
    with serving(engine, served, tmp_path) as server, logged_in(server) as ftp:
        ftp.voidcmd("TYPE I")
        with passive(ftp) as data:
            assert ftp.sendcmd("RETR file").startswith("150")
            data.recv(1000)
            CHANGES[change](served / "file")
            while data.recv(1 << 20):
                pass
        if change == "nothing":
            ftp.voidresp()
        else:
            with pytest.raises(ftplib.error_temp, match="changed while it was sent"):
                ftp.voidresp()
        # The next transfer is not affected.
        whole = []
        ftp.retrbinary("RETR small", whole.append)
        assert b"".join(whole) == b"small"
        codes = [one["code"] for one in server.transfers(2)]
    assert codes == [226 if change == "nothing" else 451, 226]
