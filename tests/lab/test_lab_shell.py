"""The shell of a lab host handles files, ports and conversations like the shell of a real host."""

import os
import stat
import sys

import pytest
from labkit import header_of, pair

from testkit import needs_root, wait_until

pytestmark = needs_root

STORAGE = '[storage.memory]\nhost = "b"\npath = "memory"\nkind = "tmpfs"\nsize = "16 MB"'

SERVER = """
import socket, sys
listener = socket.create_server((sys.argv[1], 5000))
print("ready", flush=True)
while True:
    link, _ = listener.accept()
    link.sendall(b"220-first line\\r\\n220 last line\\r\\n")
    asked = link.recv(100)
    link.sendall(b"331 " + asked)
    link.close()
"""


@pytest.fixture
def lab(bring_up, tmp_path):
    return bring_up(header_of(pair(more=STORAGE)), scratch=tmp_path / "scratch", probe=False)


def test_the_shell_reads_and_writes_files_and_directories_of_its_host(lab, engine):
    shell, directory = lab.shell("b"), lab.directory / "made"
    assert shell.engine == str(engine)
    assert shell.make_directory(directory / "in", 0o1777)
    assert stat.S_IMODE((directory / "in").stat().st_mode) == 0o1777
    assert not shell.make_directory(directory / "in", 0o700)
    assert stat.S_IMODE((directory / "in").stat().st_mode) == 0o1777
    umask = os.umask(0o077)
    try:
        for content in ("text ä", b"\x00bytes"):
            shell.put(directory / "file", content, 0o644)
            assert stat.S_IMODE((directory / "file").stat().st_mode) == 0o644
            assert shell.get(directory / "file") == (content.encode() if isinstance(content, str) else content)
    finally:
        os.umask(umask)
    assert [path.name for path in directory.iterdir() if path.is_file()] == ["file"]
    assert shell.exists(directory / "file")
    shell.remove(directory / "file")
    shell.remove(directory)
    shell.remove(directory)
    assert not directory.exists()
    with pytest.raises(FileNotFoundError):
        shell.get(directory / "file")
    with pytest.raises(OSError, match="null"):
        shell.make_directory("/dev/null/x")


def test_directories_are_created_and_removed_on_mounts_that_only_the_host_has(lab):
    shell, inside = lab.shell("b"), lab.host_scratch("b") / "memory/in"
    assert shell.make_directory(inside)
    assert shell.run(["stat", "-f", "-c", "%T", str(inside)], timeout_s=5).stdout == "tmpfs\n"
    shell.remove(inside)
    assert shell.run(["test", "-e", str(inside)], timeout_s=5).returncode == 1


def test_the_shell_sends_requests_to_servers_from_its_host(lab):
    log = lab.directory / "server.log"
    server = lab.shell("b").start([sys.executable, "-c", SERVER, "10.77.0.2"], log=log)
    wait_until(lambda: "ready" in log.read_text(), "the server to listen")
    converse = lab.shell("a").converse
    assert converse("10.77.0.2", 5000, [None, "USER x"], 5.0) == ["220 last line", "331 USER x"]
    assert converse("10.77.0.2", 5000, [], 5.0) == []
    assert converse("10.77.0.2", 5000, [None, "USER x", "more"], 5.0)[:2] == ["220 last line", "331 USER x"]
    with pytest.raises(ConnectionError, match="refused"):
        converse("10.77.0.2", 5001, [None], 5.0)
    server.stop()


def test_free_ports_are_searched_on_the_host(lab):
    log = lab.directory / "server.log"
    server = lab.shell("b").start([sys.executable, "-c", SERVER, "10.77.0.2"], log=log)
    wait_until(lambda: "ready" in log.read_text(), "the server to listen")
    assert lab.shell("a").free_ports(3, 5000, 5002) == [5000, 5001, 5002]
    assert lab.shell("b").free_ports(2, 5000, 5002) == [5001, 5002]
    with pytest.raises(OSError, match="expected 3 free ports from 5000 to 5002 on b, found 2"):
        lab.shell("b").free_ports(3, 5000, 5002)
    assert len(set(lab.shell("b").free_ports(20))) == 20
    server.stop()


def test_programs_are_also_found_in_sbin(lab):
    assert lab.shell("a").which("ip").endswith("/ip")
    assert lab.shell("a").which("no-such-program") is None


def test_stopping_a_server_ends_descendants_that_left_its_process_group(lab):
    log = lab.directory / "server.log"
    server = lab.shell("a").start(["sh", "-c", "setsid sleep 1000 & echo $!; wait"], log=log)
    wait_until(lambda: log.read_text().endswith("\n"), "the descendant to start")
    inner = log.read_text().strip()
    alive = ["sh", "-c", f"kill -0 {inner}"]
    assert lab.shell("a").run(alive, timeout_s=5).returncode == 0
    server.stop()
    wait_until(lambda: lab.shell("a").run(alive, timeout_s=5).returncode != 0, "the descendant to end")
