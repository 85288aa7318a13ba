"""`venturi-engine serve` with several file systems below its directory, and with copies of sparse files."""

import ftplib
import os

import pytest
from webkit import web

from testkit import needs_root

CONTENT = bytes(range(256)) * 4000
HOLE = 1 << 32


@pytest.fixture
def server(engine, tmp_path):
    """A server whose directory `other` is another file system in a private mount namespace."""
    served = tmp_path / "served"
    (served / "other").mkdir(parents=True)
    (served / "tree" / "in").mkdir(parents=True)
    for name in ("file", "tree/file", "tree/in/file"):
        (served / name).write_bytes(name.encode() + CONTENT)
    mounted = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', served / "other"]
    with web(engine, served, tmp_path, "--write", "--listen", "127.0.0.1:0", under=mounted) as server:
        yield server


@needs_root
def test_files_and_directories_are_copied_into_another_file_system_and_back(server):
    for path in ("/file", "/tree"):
        assert server.send("COPY", path, Destination=f"/other{path}")[0] == 201
        assert server.send("COPY", f"/other{path}", Destination=f"/back-{path[1:]}")[0] == 201
    for name in ("file", "tree/file", "tree/in/file"):
        assert server.send("GET", f"/other/{name}")[2] == name.encode() + CONTENT
        assert (server.directory / f"back-{name}").read_bytes() == name.encode() + CONTENT


@needs_root
def test_a_move_into_another_file_system_is_rejected_with_advice(server):
    for path in ("/file", "/tree"):
        assert server.send("COPY", path, Destination=f"/other{path}")[0] == 201
        for existing in (path, "/new"):
            status, _, output = server.send("MOVE", path, Destination=f"/other{existing}")
            assert (status, b"COPY" in output) == (502, True), output
    assert (server.directory / "file").read_bytes() == b"file" + CONTENT
    assert server.send("GET", "/other/tree/in/file")[2] == b"tree/in/file" + CONTENT
    assert server.send("GET", "/other/new")[0] == 404


@needs_root
def test_an_ftp_rename_into_another_file_system_fails_permanently(server):
    with ftplib.FTP() as ftp:
        ftp.connect("127.0.0.1", int(server.events("start")[0]["listen"][0].rpartition(":")[2]), timeout=20)
        ftp.login()
        for path in ("file", "tree"):
            with pytest.raises(ftplib.error_perm, match=r"553.*\n.*in another file system"):
                ftp.rename(path, "other/new")
    assert (server.directory / "file").read_bytes() == b"file" + CONTENT


def test_holes_of_a_file_are_preserved_in_its_copy(engine, tmp_path):
    served = tmp_path / "served"
    served.mkdir()
    with (served / "file").open("wb") as file:
        for offset in (0, HOLE):
            file.seek(offset)
            file.write(CONTENT)
        file.truncate(2 * HOLE)
    with web(engine, served, tmp_path, "--write") as server:
        assert server.send("COPY", "/file", Destination="/copy")[0] == 201
    with (served / "copy").open("rb") as copy:
        for offset in (0, HOLE):
            copy.seek(offset)
            assert copy.read(len(CONTENT) + 1) == CONTENT + bytes(1)
        found = os.fstat(copy.fileno())
    assert (found.st_size, found.st_blocks * 512 < HOLE) == (2 * HOLE, True)
