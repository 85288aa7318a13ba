"""What requests do to each other, to links and to what cannot be copied: nothing that was there or is whole is lost."""

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
    """A server of an empty directory that everybody may write."""
    (tmp_path / "data").mkdir()
    with web(engine, tmp_path / "data", tmp_path, "--write") as server:
        yield server


@contextlib.contextmanager
def half_put(server, path, size, **fields):
    """Have a PUT of which one byte is missing."""
    head = [f"PUT {path} HTTP/1.1", "Host: h", f"Content-Length: {size}", *(f"{k}: {v}" for k, v in fields.items())]
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as half:
        half.sendall("\r\n".join([*head, "", ""]).encode() + b"1" * (size - 1))
        part = server.directory
        wait_until(lambda: leftovers(part), "the upload to begin", 10)
        yield half


def status_of(half):
    """Send the last byte and return the status."""
    half.sendall(b"1")
    return int(half.recv(1000).split()[1])


def test_a_file_that_is_being_written_is_not_given_up_by_a_delete(server):
    size = 600_000
    with half_put(server, "/file", size) as first:
        assert server.ask("DELETE", "/file")[0] == 404
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as second:
            second.sendall(b"PUT /file HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nhalf")
            assert int(second.recv(1000).split()[1]) == 423
        assert status_of(first) == 201
    assert (server.directory / "file").read_bytes() == b"1" * size


def test_an_upload_whose_temporary_file_is_another_names_nothing_and_removes_nothing(server):
    with half_put(server, "/file", 600_000) as half:
        part = server.directory / leftovers(server.directory)[0]
        part.unlink()
        part.write_bytes(b"another's half")
        assert status_of(half) == 423
    assert not (server.directory / "file").exists()
    assert part.read_bytes() == b"another's half"


@pytest.mark.parametrize("fields", [{}, {"If-None-Match": "*"}])
def test_what_comes_into_being_during_a_put_is_replaced_unless_that_is_refused(server, fields):
    with half_put(server, "/file", 600_000, **fields) as half:
        (server.directory / "file").write_bytes(b"old")
        assert status_of(half) == (412 if fields else 201)
    assert ((server.directory / "file").read_bytes() == b"old") == bool(fields)
    assert leftovers(server.directory) == []


@pytest.mark.parametrize(("method", "path"), [("MOVE", "/other"), ("DELETE", "/file"), ("PUT", "/file")])
@pytest.mark.parametrize("field", ["If-Match", "If"])
def test_what_is_not_the_same_any_more_when_a_put_ends_is_not_replaced(server, method, path, field):
    for name in ("file", "other"):
        (server.directory / name).write_bytes(name.encode())
    tag = server.ask("HEAD", "/file")[1]["ETag"]
    with half_put(server, "/file", 600_000, **{field: f"([{tag}])" if field == "If" else tag}) as half:
        if method == "PUT":
            # Not by a request: the place is being written to.
            (server.directory / "file").write_bytes(b"other")
        else:
            assert server.ask(method, path, Destination="/file")[0] == 204
        assert status_of(half) == 412
    assert {path.name for path in server.directory.iterdir()} == {
        "MOVE": {"file"}, "DELETE": {"other"}, "PUT": {"file", "other"}
    }[method]  # fmt: skip
    assert method == "DELETE" or (server.directory / "file").read_bytes() == b"other"


@pytest.mark.parametrize("words", [[], ["--sync"]])
def test_what_is_the_same_when_a_put_ends_is_replaced(engine, tmp_path, words):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_bytes(b"old")
    with web(engine, tmp_path / "data", tmp_path, "--write", *words) as server:
        tag = server.ask("HEAD", "/file")[1]["ETag"]
        with half_put(server, "/file", 600_000, **{"If-Match": tag}) as half:
            assert status_of(half) == 204
    assert (tmp_path / "data" / "file").read_bytes() == b"1" * 600_000


@pytest.mark.parametrize("method", ["MOVE", "COPY"])
def test_what_a_link_leads_into_is_not_replaced_by_what_is_in_it(server, method):
    inner = server.directory / "a" / "b"
    (inner / "sub").mkdir(parents=True)
    (inner / "sub" / "file").write_bytes(b"1")
    (server.directory / "link").symlink_to("a/b")
    (server.directory / "deep").symlink_to("a/b/sub")
    pairs = [("/link/sub", "/a"), ("/link/sub/file", "/a"), ("/a", "/link/new"), ("/a/b", "/deep/new")]
    if method == "COPY":
        pairs.append(("/deep", "/a"))
    for source, destination in pairs:
        assert server.ask(method, source, Destination=destination)[0] == 403, (source, destination)
    assert sorted(path.name for path in server.directory.rglob("*")) == ["a", "b", "deep", "file", "link", "sub"]
    assert server.ask(method, "/link/sub", Destination="/beside")[0] == 201
    assert (server.directory / "beside" / "file").read_bytes() == b"1"


def test_a_directory_that_is_replaced_takes_with_it_what_broken_uploads_left(server):
    for name in ("old", "new"):
        (server.directory / name).mkdir()
        (server.directory / name / "file").write_bytes(name.encode())
    (server.directory / "old" / ".venturi-served-0123456789abcdef.part").write_bytes(b"half")
    assert server.ask("MOVE", "/new", Destination="/old")[0] == 204
    assert [path.name for path in server.directory.iterdir()] == ["old"]
    assert (server.directory / "old" / "file").read_bytes() == b"new"
    (server.directory / "old" / ".venturi-served-0123456789abcdef.part").write_bytes(b"half")
    assert server.ask("DELETE", "/old")[0] == 204
    assert list(server.directory.iterdir()) == []


def test_a_directory_in_which_something_is_written_is_not_replaced(server):
    for name in ("old", "new"):
        (server.directory / name).mkdir()
        (server.directory / name / "kept").write_bytes(name.encode())
    with half_put(server, "/old/file", 600_000) as half:
        assert server.ask("MOVE", "/new", Destination="/old")[0] == 423
        assert (server.directory / "new" / "kept").read_bytes() == b"new"
        assert status_of(half) == 201
    assert (server.directory / "old" / "file").stat().st_size == 600_000


def test_a_copy_says_what_it_leaves_out(server):
    source = server.directory / "source"
    (source / "inner").mkdir(parents=True)
    (source / "inner" / "file").write_bytes(b"1")
    (source / "linked").symlink_to("inner/file")
    assert server.ask("COPY", "/source", Destination="/well")[0] == 201
    assert (server.directory / "well" / "linked").read_bytes() == b"1"
    (source / "folder").symlink_to("inner")
    (source / "dangling").symlink_to("nothing")
    os.mkfifo(source / "pipe")
    status, _, said = server.ask("COPY", "/source", Destination="/copy")
    assert (status, said[:27]) == (409, b"3 things were not copied, s")
    assert (server.directory / "copy" / "inner" / "file").read_bytes() == b"1"
    assert not (server.directory / "copy" / "folder").exists()


def test_a_copy_onto_a_directory_is_there_as_a_whole_or_leaves_what_was(server):
    old, new = server.directory / "old", server.directory / "new"
    for folder in (old, new):
        (folder / "sub").mkdir(parents=True)
        (folder / "sub" / folder.name).write_bytes(b"1")
    (new / "dangling").symlink_to("nothing")
    assert server.ask("COPY", "/new", Destination="/old")[0] == 409
    assert sorted(path.name for path in old.rglob("*")) == ["old", "sub"]
    with half_put(server, "/old/file", 600_000) as half:
        (new / "dangling").unlink()
        assert server.ask("COPY", "/new", Destination="/old")[0] == 423
        assert status_of(half) == 201
    assert sorted(path.name for path in old.rglob("*")) == ["file", "old", "sub"]
    assert server.ask("COPY", "/new", Destination="/old/")[0] == 204
    assert sorted(path.name for path in old.rglob("*")) == ["new", "sub"]
    assert server.ask("COPY", "/new", Destination="/old", Depth="0")[0] == 204
    assert list(old.iterdir()) == []
    assert sorted(path.name for path in server.directory.iterdir()) == ["new", "old"]


@pytest.fixture
def plain(engine, tmp_path):
    """A server for which permissions count, of a directory with `old` and `new`, each with a directory and a file in it."""
    data = tmp_path / "data"
    for name in ("old", "new"):
        (data / name / "sub").mkdir(parents=True)
        (data / name / "sub" / name).write_bytes(name.encode())
        (data / name / "file").write_bytes(name.encode())
    with web(engine, data, tmp_path, "--write", under=powerless()) as server:
        yield server
    for folder in data.rglob("sub"):
        folder.chmod(0o755)


def state(folder):
    """Return the files that are in a directory, with their content."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.mark.parametrize(
    ("method", "path"), [("COPY", "/new"), ("MOVE", "/new"), ("MOVE", "/new/file"), ("DELETE", "")]
)
def test_a_directory_of_which_something_may_not_be_removed_stays(plain, method, path):
    (plain.directory / "old" / "sub").chmod(0o555)
    before = state(plain.directory)
    status, _, said = plain.ask(method, path or "/old", Destination="/old")
    assert (status, b"./sub/ may not be removed" in said) == (403, True)
    assert state(plain.directory) == before
    assert leftovers(plain.directory) == []


@pytest.mark.parametrize("method", ["COPY", "MOVE"])
def test_what_takes_the_place_of_a_directory_stays_if_that_cannot_be_removed_to_its_end(plain, method):
    # Nobody sees before that it is not empty.
    (plain.directory / "old" / "sub").chmod(0o300)
    status, _, said = plain.ask(method, "/new", Destination="/old")
    (left,) = leftovers(plain.directory)
    assert (status, f"something is left in /{left}" in said.decode()) == (403, True)
    (plain.directory / left / "sub").chmod(0o700)
    assert state(plain.directory / left) == {"sub/old": b"old"}
    whole = {"sub/new": b"new", "file": b"new"}
    assert state(plain.directory / "old") == whole
    assert (plain.directory / "new").exists() == (method == "COPY")
    if method == "COPY":
        assert plain.ask("COPY", "/new", Destination="/old")[0] == 423
        assert state(plain.directory / "new") == state(plain.directory / "old") == whole
        assert plain.ask("DELETE", f"/{left}")[0] == 204
        assert plain.ask("COPY", "/new", Destination="/old")[0] == 204
        assert leftovers(plain.directory) == []


def test_a_copy_leaves_out_a_file_that_may_not_be_read(plain):
    (plain.directory / "new" / "sub" / "new").chmod(0)
    status, _, said = plain.ask("COPY", "/new", Destination="/copy")
    assert (status, said[:35]) == (409, b"1 things were not copied, such as s")
    assert state(plain.directory / "copy") == {"file": b"new"}
    assert plain.ask("COPY", "/new", Destination="/old")[0] == 409
    assert state(plain.directory / "old") == {"sub/old": b"old", "file": b"old"}
    assert leftovers(plain.directory) == []
    assert plain.ask("COPY", "/new/sub/new", Destination="/copy")[0] == 403


@pytest.mark.parametrize("method", ["COPY", "MOVE"])
def test_a_link_to_a_directory_is_replaced_alone(plain, method):
    (plain.directory / "link").symlink_to("old/sub")
    (plain.directory / "old" / "sub").chmod(0o555)
    assert plain.ask(method, "/new", Destination="/link")[0] == 204
    assert state(plain.directory / "link") == {"sub/new": b"new", "file": b"new"}
    assert state(plain.directory / "old") == {"sub/old": b"old", "file": b"old"}
    assert leftovers(plain.directory) == []


@pytest.mark.parametrize("words", [["--write"], ["--write", "--anonymous"], []])
def test_where_tokens_are_needed_ftp_is_not_open_to_all(engine, tmp_path, words):
    served = tmp_path / "served"
    served.mkdir()
    (served / "file").write_bytes(b"content")
    (tmp_path / "tokens").write_text("one\n")
    server = Server(engine, served, tmp_path, "--http", "127.0.0.1:0", "--tokens", tmp_path / "tokens", *words)
    try:
        with contextlib.ExitStack() as stack:
            if "--anonymous" in words:
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


def test_a_file_that_is_cut_while_it_is_copied_is_not_there_in_half(server):
    source, copy, size = server.directory / "source", server.directory / "copy", 1 << 31
    with source.open("wb") as file:
        file.truncate(size)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(server.ask, "COPY", "/source", Destination="/copy")
        wait_until(lambda: asked.done() or leftovers(server.directory), "the copy to begin", 10)
        os.truncate(source, 0)
        status = asked.result(30)[0]
    # Where the file system copies at once, it may be whole before.
    assert (status, copy.exists()) == (500, False) or (status, copy.stat().st_size) == (201, size)
    assert leftovers(server.directory) == []
