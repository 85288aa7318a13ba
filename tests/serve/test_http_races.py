"""Requests that race with each other, with links and with files that cannot be copied: no existing or complete file is lost."""

import concurrent.futures
import contextlib
import ftplib
import os
import socket

import pytest
from servekit import Server, leftovers, logged_in
from webkit import powerless, web

from testkit import wait_until


@pytest.fixture
def server(engine, tmp_path):
    """A server of an empty directory that all clients can write."""
    (tmp_path / "data").mkdir()
    with web(engine, tmp_path / "data", tmp_path, "--write") as server:
        yield server


@contextlib.contextmanager
def half_put(server, path, size, **fields):
    """Start a PUT, and send all bytes except one."""
    head = [f"PUT {path} HTTP/1.1", "Host: h", f"Content-Length: {size}", *(f"{k}: {v}" for k, v in fields.items())]
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as half:
        half.sendall("\r\n".join([*head, "", ""]).encode() + b"1" * (size - 1))
        part = server.directory
        wait_until(lambda: leftovers(part), "the upload to begin", 10)
        yield half


def request_status(half):
    """Send the last byte and return the status."""
    half.sendall(b"1")
    return int(half.recv(1000).split()[1])


def test_a_delete_during_an_upload_does_not_release_the_file(server):
    size = 600_000
    with half_put(server, "/file", size) as first:
        assert server.send("DELETE", "/file")[0] == 404
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as second:
            second.sendall(b"PUT /file HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nhalf")
            assert int(second.recv(1000).split()[1]) == 423
        assert request_status(first) == 201
    assert (server.directory / "file").read_bytes() == b"1" * size


def test_an_upload_whose_temporary_file_was_replaced_fails_and_removes_nothing(server):
    with half_put(server, "/file", 600_000) as half:
        part = server.directory / leftovers(server.directory)[0]
        part.unlink()
        part.write_bytes(b"another's half")
        assert request_status(half) == 423
    assert not (server.directory / "file").exists()
    assert part.read_bytes() == b"another's half"


@pytest.mark.parametrize("fields", [{}, {"If-None-Match": "*"}])
def test_a_file_created_during_a_put_is_replaced_unless_a_condition_forbids_it(server, fields):
    with half_put(server, "/file", 600_000, **fields) as half:
        (server.directory / "file").write_bytes(b"old")
        assert request_status(half) == (412 if fields else 201)
    assert ((server.directory / "file").read_bytes() == b"old") == bool(fields)
    assert leftovers(server.directory) == []


@pytest.mark.parametrize(("method", "path"), [("MOVE", "/other"), ("DELETE", "/file"), ("PUT", "/file")])
@pytest.mark.parametrize("field", ["If-Match", "If"])
def test_a_conditional_put_does_not_replace_a_file_that_changed_during_the_put(server, method, path, field):
    for name in ("file", "other"):
        (server.directory / name).write_bytes(name.encode())
    tag = server.send("HEAD", "/file")[1]["ETag"]
    with half_put(server, "/file", 600_000, **{field: f"([{tag}])" if field == "If" else tag}) as half:
        if method == "PUT":
            # The test writes the file directly, because a PUT to the path is in progress.
            (server.directory / "file").write_bytes(b"other")
        else:
            assert server.send(method, path, Destination="/file")[0] == 204
        assert request_status(half) == 412
    assert {path.name for path in server.directory.iterdir()} == {
        "MOVE": {"file"}, "DELETE": {"other"}, "PUT": {"file", "other"}
    }[method]  # fmt: skip
    assert method == "DELETE" or (server.directory / "file").read_bytes() == b"other"


@pytest.mark.parametrize("arguments", [[], ["--sync"]])
def test_a_conditional_put_replaces_an_unchanged_file(engine, tmp_path, arguments):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_bytes(b"old")
    with web(engine, tmp_path / "data", tmp_path, "--write", *arguments) as server:
        tag = server.send("HEAD", "/file")[1]["ETag"]
        with half_put(server, "/file", 600_000, **{"If-Match": tag}) as half:
            assert request_status(half) == 204
    assert (tmp_path / "data" / "file").read_bytes() == b"1" * 600_000


@pytest.mark.parametrize("method", ["MOVE", "COPY"])
def test_copies_and_moves_onto_a_parent_or_child_through_a_link_are_rejected(server, method):
    inner = server.directory / "a" / "b"
    (inner / "sub").mkdir(parents=True)
    (inner / "sub" / "file").write_bytes(b"1")
    (server.directory / "link").symlink_to("a/b")
    (server.directory / "deep").symlink_to("a/b/sub")
    pairs = [("/link/sub", "/a"), ("/link/sub/file", "/a"), ("/a", "/link/new"), ("/a/b", "/deep/new")]
    if method == "COPY":
        pairs.append(("/deep", "/a"))
    for source, destination in pairs:
        assert server.send(method, source, Destination=destination)[0] == 403, (source, destination)
    assert sorted(path.name for path in server.directory.rglob("*")) == ["a", "b", "deep", "file", "link", "sub"]
    assert server.send(method, "/link/sub", Destination="/beside")[0] == 201
    assert (server.directory / "beside" / "file").read_bytes() == b"1"


def test_replacing_or_deleting_a_directory_removes_leftovers_of_broken_uploads(server):
    for name in ("old", "new"):
        (server.directory / name).mkdir()
        (server.directory / name / "file").write_bytes(name.encode())
    (server.directory / "old" / ".venturi-served-0123456789abcdef.part").write_bytes(b"half")
    assert server.send("MOVE", "/new", Destination="/old")[0] == 204
    assert [path.name for path in server.directory.iterdir()] == ["old"]
    assert (server.directory / "old" / "file").read_bytes() == b"new"
    (server.directory / "old" / ".venturi-served-0123456789abcdef.part").write_bytes(b"half")
    assert server.send("DELETE", "/old")[0] == 204
    assert list(server.directory.iterdir()) == []


def test_a_directory_with_an_upload_in_progress_is_not_replaced(server):
    for name in ("old", "new"):
        (server.directory / name).mkdir()
        (server.directory / name / "kept").write_bytes(name.encode())
    with half_put(server, "/old/file", 600_000) as half:
        assert server.send("MOVE", "/new", Destination="/old")[0] == 423
        assert (server.directory / "new" / "kept").read_bytes() == b"new"
        assert request_status(half) == 201
    assert (server.directory / "old" / "file").stat().st_size == 600_000


def test_a_copy_reports_the_entries_that_it_omits(server):
    source = server.directory / "source"
    (source / "inner").mkdir(parents=True)
    (source / "inner" / "file").write_bytes(b"1")
    (source / "linked").symlink_to("inner/file")
    assert server.send("COPY", "/source", Destination="/well")[0] == 201
    assert (server.directory / "well" / "linked").read_bytes() == b"1"
    (source / "folder").symlink_to("inner")
    (source / "dangling").symlink_to("nothing")
    os.mkfifo(source / "pipe")
    status, _, output = server.send("COPY", "/source", Destination="/copy")
    assert (status, output.split()[0], b"not copied" in output) == (409, b"3", True)
    assert (server.directory / "copy" / "inner" / "file").read_bytes() == b"1"
    assert not (server.directory / "copy" / "folder").exists()


def test_a_copy_replaces_a_directory_completely_or_leaves_it_unchanged(server):
    old, new = server.directory / "old", server.directory / "new"
    for directory in (old, new):
        (directory / "sub").mkdir(parents=True)
        (directory / "sub" / directory.name).write_bytes(b"1")
    (new / "dangling").symlink_to("nothing")
    assert server.send("COPY", "/new", Destination="/old")[0] == 409
    assert sorted(path.name for path in old.rglob("*")) == ["old", "sub"]
    with half_put(server, "/old/file", 600_000) as half:
        (new / "dangling").unlink()
        assert server.send("COPY", "/new", Destination="/old")[0] == 423
        assert request_status(half) == 201
    assert sorted(path.name for path in old.rglob("*")) == ["file", "old", "sub"]
    assert server.send("COPY", "/new", Destination="/old/")[0] == 204
    assert sorted(path.name for path in old.rglob("*")) == ["new", "sub"]
    assert server.send("COPY", "/new", Destination="/old", Depth="0")[0] == 204
    assert list(old.iterdir()) == []
    assert sorted(path.name for path in server.directory.iterdir()) == ["new", "old"]


@pytest.fixture
def plain(engine, tmp_path):
    """A server with ordinary permissions, for a directory with `old` and `new`, each with a directory and a file."""
    data = tmp_path / "data"
    for name in ("old", "new"):
        (data / name / "sub").mkdir(parents=True)
        (data / name / "sub" / name).write_bytes(name.encode())
        (data / name / "file").write_bytes(name.encode())
    with web(engine, data, tmp_path, "--write", under=powerless()) as server:
        yield server
    for directory in data.rglob("sub"):
        directory.chmod(0o755)


def state(directory):
    """Return the content of all files below a directory."""
    found = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


@pytest.mark.parametrize(
    ("method", "path"), [("COPY", "/new"), ("MOVE", "/new"), ("MOVE", "/new/file"), ("DELETE", "")]
)
def test_a_directory_with_an_unremovable_entry_is_kept(plain, method, path):
    (plain.directory / "old" / "sub").chmod(0o555)
    before = state(plain.directory)
    status, _, output = plain.send(method, path or "/old", Destination="/old")
    assert (status, b"./sub/ cannot be removed" in output) == (403, True)
    assert state(plain.directory) == before
    assert leftovers(plain.directory) == []


@pytest.mark.parametrize("method", ["COPY", "MOVE"])
def test_a_replacement_stays_if_the_old_directory_cannot_be_removed_completely(plain, method):
    # The server cannot list the directory, so it does not know that it is not empty.
    (plain.directory / "old" / "sub").chmod(0o300)
    status, _, output = plain.send(method, "/new", Destination="/old")
    (remaining,) = leftovers(plain.directory)
    assert (status, f"remains in /{remaining}" in output.decode()) == (403, True)
    (plain.directory / remaining / "sub").chmod(0o700)
    assert state(plain.directory / remaining) == {"sub/old": b"old"}
    whole = {"sub/new": b"new", "file": b"new"}
    assert state(plain.directory / "old") == whole
    assert (plain.directory / "new").exists() == (method == "COPY")
    if method == "COPY":
        assert plain.send("COPY", "/new", Destination="/old")[0] == 423
        assert state(plain.directory / "new") == state(plain.directory / "old") == whole
        assert plain.send("DELETE", f"/{remaining}")[0] == 204
        assert plain.send("COPY", "/new", Destination="/old")[0] == 204
        assert leftovers(plain.directory) == []


def test_a_copy_omits_an_unreadable_file(plain):
    (plain.directory / "new" / "sub" / "new").chmod(0)
    status, _, output = plain.send("COPY", "/new", Destination="/copy")
    assert (status, output.split()[0], b" sub/new: " in output) == (409, b"1", True)
    assert state(plain.directory / "copy") == {"file": b"new"}
    assert plain.send("COPY", "/new", Destination="/old")[0] == 409
    assert state(plain.directory / "old") == {"sub/old": b"old", "file": b"old"}
    assert leftovers(plain.directory) == []
    assert plain.send("COPY", "/new/sub/new", Destination="/copy")[0] == 403


@pytest.mark.parametrize("method", ["COPY", "MOVE"])
def test_replacing_a_link_to_a_directory_does_not_affect_its_target(plain, method):
    (plain.directory / "link").symlink_to("old/sub")
    (plain.directory / "old" / "sub").chmod(0o555)
    assert plain.send(method, "/new", Destination="/link")[0] == 204
    assert state(plain.directory / "link") == {"sub/new": b"new", "file": b"new"}
    assert state(plain.directory / "old") == {"sub/old": b"old", "file": b"old"}
    assert leftovers(plain.directory) == []


@pytest.mark.parametrize("arguments", [["--write"], ["--write", "--anonymous"], []])
def test_with_tokens_ftp_rejects_anonymous_clients_or_lets_them_only_read(engine, tmp_path, arguments):
    served = tmp_path / "served"
    served.mkdir()
    (served / "file").write_bytes(b"content")
    (tmp_path / "tokens").write_text("one\n")
    server = Server(engine, served, tmp_path, "--http", "127.0.0.1:0", "--tokens", tmp_path / "tokens", *arguments)
    try:
        with contextlib.ExitStack() as stack:
            if "--anonymous" in arguments:
                ftp = stack.enter_context(logged_in(server))
                assert ftp.size("file") == 7
                with pytest.raises(ftplib.error_perm, match=r"^550"):
                    ftp.delete("file")
            else:
                with pytest.raises(ftplib.error_perm, match=r"^530"):
                    stack.enter_context(logged_in(server))
        server.stop()
    finally:
        server.process.kill()
        server.process.wait()
        server.process.stderr.close()
    assert (served / "file").read_bytes() == b"content"


def test_a_file_truncated_during_a_server_copy_leaves_no_partial_copy(server):
    source, copy, size = server.directory / "source", server.directory / "copy", 1 << 31
    with source.open("wb") as file:
        file.truncate(size)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        requests = pool.submit(server.send, "COPY", "/source", Destination="/copy")
        wait_until(lambda: requests.done() or leftovers(server.directory), "the copy to begin", 10)
        os.truncate(source, 0)
        status = requests.result(30)[0]
    # If the file system copies by reference, the copy can be complete before.
    assert (status, copy.exists()) == (500, False) or (status, copy.stat().st_size) == (201, size)
    assert leftovers(server.directory) == []
