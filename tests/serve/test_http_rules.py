"""HTTP responses of the server, and requests that it rejects."""

import contextlib
import os
import shutil
import socket
import tempfile
import time
import zlib
from urllib.parse import quote

import pytest
from webkit import web

from testkit import wait_until

BYTES = bytes(range(256)) * 40


@pytest.fixture(scope="module")
def server(engine, tmp_path_factory):
    """A server that all clients can read and write."""
    directory = tmp_path_factory.mktemp("served")
    (directory / "file").write_bytes(BYTES)
    (directory / "full").mkdir()
    (directory / "full" / "inner").write_bytes(b"1")
    (directory / "out").symlink_to("/etc")
    with web(engine, directory, tmp_path_factory.mktemp("log"), "--write", "--login-time", "2") as server:
        yield server


def test_several_ranges_are_returned_as_multipart(server):
    status, fields, body = server.send("GET", "/file", Range="bytes=0-9,20-29,-5")
    assert (status, fields.get_content_type()) == (206, "multipart/byteranges")
    parts = body.split(b"--" + fields.get_param("boundary").encode())
    assert parts[-1] == b"--\r\n"
    found = [part.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n") for part in parts[1:-1]]
    assert found == [BYTES[0:10], BYTES[20:30], BYTES[-5:]]


@pytest.mark.parametrize(
    ("fields", "status", "body"),
    [
        ({"Range": "bytes=99999-"}, 416, None),
        ({"Range": "bytes=5-4"}, 200, BYTES),
        ({"Range": "bytes=0-4", "If_Range": '"another"'}, 200, BYTES),
        ({"If_None_Match": "*"}, 304, b""),
        ({"If_Match": '"another"'}, 412, None),
        ({"If_Modified_Since": "Sat, 06 Nov 2094 08:49:37 GMT"}, 304, b""),
        ({"If_Unmodified_Since": "Sun, 06 Nov 1994 08:49:37 GMT"}, 412, None),
    ],
)
def test_conditional_reads_return_the_expected_status(server, fields, status, body):
    response = server.send("GET", "/file", **fields)
    assert response[0] == status
    assert body is None or response[2] == body


def test_if_range_returns_a_range_of_the_same_version_and_digests_are_reported(server):
    tag = server.send("HEAD", "/file")[1]["ETag"]
    assert server.send("GET", "/file", Range="bytes=1-2", If_Range=tag)[2] == BYTES[1:3]
    fields = server.send("HEAD", "/file", Want_Digest="adler32", Want_Repr_Digest="sha-256=1, adler=10")[1]
    assert fields["Digest"] == f"adler32={zlib.adler32(BYTES):08x}"
    assert fields["Repr-Digest"].startswith("adler=:")


def test_a_change_with_a_restored_modification_time_is_another_version(server):
    path = server.directory / "changing"
    tag = server.send("PUT", "/changing", body=b"old")[1]["ETag"]
    seen = server.send("HEAD", "/changing", Want_Digest="adler32")[1]
    assert (seen["ETag"], seen["Digest"]) == (tag, f"adler32={zlib.adler32(b'old'):08x}")
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"new")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    seen = server.send("HEAD", "/changing", Want_Digest="adler32")[1]
    assert seen["ETag"] != tag
    assert seen["Digest"] == f"adler32={zlib.adler32(b'new'):08x}"
    assert server.send("GET", "/changing", Range="bytes=1-", If_Range=tag)[0] == 200
    path.unlink()


def test_valid_webdav_changes_are_made_and_invalid_ones_rejected(server):
    def status(method, path, **fields):
        return server.send(method, path, **fields)[0]

    existing = server.url
    assert status("MKCOL", "/new") == 201
    assert status("MKCOL", "/new") == 405
    assert status("MKCOL", "/none/new") == 409
    assert status("PUT", "/none/file", body=b"1") == 409
    assert status("COPY", "/full", Destination=f"{existing}/new/full") == 201
    assert (server.directory / "new" / "full" / "inner").read_bytes() == b"1"
    assert status("COPY", "/file", Destination=f"{existing}/new/file", Overwrite="F") == 201
    for method in ("COPY", "MOVE"):
        assert status(method, "/new/file", Destination=f"{existing}/new/full/#inner") == 400, "not what is before #"
    assert status("MOVE", "/new/file", Destination=f"{existing}/new/full/inner", Overwrite="F") == 412
    assert status("MOVE", "/new/file", Destination=f"{existing}/new/full/inner") == 204
    assert status("MOVE", "/new", Destination=f"{existing}/new/full/in") == 403
    assert (server.directory / "new" / "full" / "inner").read_bytes() == BYTES
    assert status("DELETE", "/new") == 204
    assert not (server.directory / "new").exists()
    assert status("DELETE", "/new") == 404
    assert status("PROPFIND", "/", Depth="infinity") == 403
    assert status("PROPFIND", "/none", Depth="0") == 404
    assert status("PUT", "/file", body=b"1", Content_Range="bytes 0-0/2") == 400
    assert status("PUT", "/file", body=b"1", If_None_Match="*") == 412
    assert status("LOCK", "/file") == 405
    assert (server.directory / "file").read_bytes() == BYTES


@pytest.mark.parametrize("method", ["MOVE", "COPY"])
@pytest.mark.parametrize("source", ["file", "folder"])
def test_files_and_directories_replace_each_other(server, method, source):
    """RFC 4918, sections 9.8.4 and 9.9.3: as if the destination were deleted before."""
    directory = server.directory / f"{method} {source}"
    (directory / "folder").mkdir(parents=True)
    (directory / "folder" / "inner").write_bytes(b"1")
    (directory / "file").write_bytes(BYTES)
    other = {"file": "folder", "folder": "file"}[source]
    base = quote(f"/{directory.name}")
    fields = {"Destination": f"{server.url}{base}/{other}"}
    assert server.send(method, f"{base}/{source}", Overwrite="F", **fields)[0] == 412
    assert sorted(path.name for path in directory.iterdir()) == ["file", "folder"]
    assert server.send(method, f"{base}/{source}", **fields)[0] == 204
    existing = directory / other
    assert (existing.read_bytes() if source == "file" else (existing / "inner").read_bytes()) in (BYTES, b"1")
    assert (directory / source).exists() == (method == "COPY")
    assert {path.name for path in directory.iterdir()} <= {"file", "folder"}
    shutil.rmtree(directory)


def test_named_properties_are_returned_or_reported_as_missing(server):
    """RFC 4918, section 9.1."""

    def output(body, status=207):
        found, _, text = server.send("PROPFIND", "/file", body=body, Depth="0")
        assert found == status, text
        return text.decode()

    named = '<propfind xmlns="DAV:" xmlns:o="urn:o"><prop><getcontentlength/><o:color/></prop></propfind>'
    existing, missing = output(named).split("<D:status>HTTP/1.1 200 OK</D:status>")
    assert f"<D:getcontentlength>{len(BYTES)}</D:getcontentlength>" in existing
    assert "getetag" not in existing + missing
    assert '<color xmlns="urn:o"/></D:prop><D:status>HTTP/1.1 404 Not Found' in missing
    assert "getetag" in output(None)
    assert "<D:getetag/>" in output('<propfind xmlns="DAV:"><propname/></propfind>')
    for wrong in (b"<foo>", b'<propfind xmlns="DAV:"><prop><a:b xmlns:a=""/></prop></propfind>', b"\xff" * 10):
        assert "RFC 4918" in output(wrong, 400)
    assert "64 KiB" in output(b" " * 70_000, 413)


def test_proppatch_sets_nothing_and_reports_each_property_as_forbidden(server):
    body = '<propertyupdate xmlns="DAV:"><set><prop><color xmlns="urn:o">red</color></prop></set></propertyupdate>'
    status, _, text = server.send("PROPPATCH", "/file", body=body)
    assert status == 207
    assert b'<color xmlns="urn:o"/></D:prop><D:status>HTTP/1.1 403 Forbidden' in text
    assert server.send("PROPPATCH", "/none", body=body)[0] == 404
    assert server.send("PROPPATCH", "/file", body="<x/>")[0] == 400
    assert server.send("PROPPATCH", "/file", body=body, If_Match='"other"')[0] == 412


@pytest.mark.parametrize("method", ["MOVE", "COPY"])
@pytest.mark.parametrize("path", ["/a/b", "//a/./b/"])
def test_copies_and_moves_onto_a_parent_or_child_are_rejected(server, method, path):
    (server.directory / "a" / "b").mkdir(parents=True, exist_ok=True)
    (server.directory / "a" / "b" / "file").write_bytes(b"1")
    for source, destination in [(path, "/a"), ("/a", path), (path, "/")]:
        assert server.send(method, source, Destination=f"{server.url}{destination}")[0] == 403
    assert (server.directory / "a" / "b" / "file").read_bytes() == b"1"


def test_the_served_directory_cannot_be_deleted(server):
    for path in ("/", "//", "/./"):
        assert server.send("DELETE", path)[0] == 403
    assert (server.directory / "file").read_bytes() == BYTES


@pytest.mark.parametrize(
    "path", ["/../x", "/%2e%2e/x", "/full/../../x", "/out/hostname", "/%00", "/.venturi-served-1.part"]
)
def test_paths_outside_the_served_directory_are_rejected(server, path):
    for method in ("GET", "PUT", "DELETE", "MKCOL", "PROPFIND"):
        status = server.send(method, path, body=b"1" if method == "PUT" else None, Depth="0")[0]
        assert status in (400, 403, 404, 409), (method, path, status)


def test_a_broken_upload_leaves_nothing_and_the_old_file_stays(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as half:
        half.sendall(b"PUT /file HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 600_000)
        half.shutdown(socket.SHUT_WR)
        half.recv(1000)
    deadline_s = time.monotonic() + 10
    while any(path.name.startswith(".venturi") for path in server.directory.iterdir()):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    assert (server.directory / "file").read_bytes() == BYTES


def test_a_slow_or_huge_head_ends_its_connection_within_the_limit(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as slow:
        slow.sendall(b"GET /file HTTP/1.1\r\nHost: h\r\nX: ")
        start_s = time.monotonic()
        slow.recv(1000)
        assert time.monotonic() - start_s < 8
    address = ("127.0.0.1", server.port)
    with contextlib.suppress(ConnectionError), socket.create_connection(address, timeout=10) as huge:
        huge.sendall(b"GET /file HTTP/1.1\r\nX: " + b"x" * 2_000_000 + b"\r\n\r\n")
        assert not huge.recv(1000).startswith(b"HTTP/1.1 200")


def test_without_write_nothing_is_changed(engine, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_bytes(b"1")
    with web(engine, tmp_path / "data", tmp_path) as server:
        for method, fields in [
            ("PUT", {"body": b"2"}),
            ("DELETE", {}),
            ("MKCOL", {}),
            ("MOVE", {"Destination": "/x"}),
        ]:
            assert server.send(method, "/file", **fields)[0] == 403, method
        assert server.send("GET", "/file")[2] == b"1"


def test_configured_tokens_are_required(engine, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_bytes(b"1")
    (tmp_path / "tokens").write_text("# ours\none\ntwo.x-y\n")
    with web(engine, tmp_path / "data", tmp_path, "--write", "--tokens", tmp_path / "tokens") as server:
        assert server.send("GET", "/file")[0] == 401
        assert server.send("GET", "/file", Authorization="Bearer one")[0] == 200
        status, fields, _ = server.send("PUT", "/file", body=b"2")
        assert (status, "Bearer" in fields.get_all("WWW-Authenticate")[0]) == (401, True)
        assert server.send("PUT", "/file", body=b"2", Authorization="Bearer three")[0] == 401
        assert server.send("PUT", "/file", body=b"2", Authorization="Bearer two.x-y")[0] == 204
        assert (tmp_path / "data" / "file").read_bytes() == b"2"
    arguments = ["--write", "--tokens", tmp_path / "tokens", "--anonymous"]
    with web(engine, tmp_path / "data", tmp_path, *arguments) as server:
        assert server.send("GET", "/file")[0] == 200
        assert server.send("PUT", "/file", body=b"3")[0] == 401


def test_a_stalled_upload_is_ended_and_logged(engine, tmp_path):
    (tmp_path / "data").mkdir()
    with web(engine, tmp_path / "data", tmp_path, "--write", "--stall-time", "1") as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as half:
            half.sendall(b"PUT /file HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 600_000)
            while half.recv(1000):
                pass
        wait_until(lambda: server.events("transfer"), "the transfer to be told", 10)
        output = server.events("transfer")[0]
        assert (output["command"], output["path"], output["code"]) == ("PUT", "/file", 499)


@pytest.mark.parametrize(("seconds", "output"), [
    (253402300799, "Fri, 31 Dec 9999 23:59:59 GMT"), (253402300800, "Fri, 31 Dec 9999 23:59:59 GMT"),
    (1 << 62, "Fri, 31 Dec 9999 23:59:59 GMT"), (0, "Thu, 01 Jan 1970 00:00:00 GMT"), (-1, "Thu, 01 Jan 1970 00:00:00 GMT"),
])  # fmt: skip
def test_a_time_outside_the_range_of_http_dates_is_reported_as_the_nearest_date(engine, tmp_path, seconds, output):
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as directory,
        web(engine, directory, tmp_path, "--write") as server,
    ):
        fields = server.send("PUT", "/file", body=b"1", X_OC_Mtime=str(seconds))[1]
        (server.directory / "next").write_bytes(b"2")
        assert fields["X-OC-Mtime"] == "accepted"
        assert (server.directory / "file").stat().st_mtime == seconds
        status, fields, body = server.send("GET", "/file")
        assert (status, fields["Last-Modified"], body) == (200, output, b"1")
        assert server.send("GET", "/file", If_Modified_Since=output)[0] == 304
        status, _, body = server.send("PROPFIND", "/", Depth="1")
        assert (status, body.count(b"<D:response>")) == (207, 3)
        assert f"<D:getlastmodified>{output}</D:getlastmodified>".encode() in body


@pytest.mark.parametrize("text", ["", "soon", "1.5", "9223372036854775808"])
def test_an_invalid_time_is_not_reported_as_accepted(server, text):
    before_s = time.time()
    status, fields, _ = server.send("PUT", "/timed", body=b"1", X_OC_Mtime=text)
    assert (status in (201, 204), fields["X-OC-Mtime"]) == (True, None)
    assert abs((server.directory / "timed").stat().st_mtime - before_s) < 60
    (server.directory / "timed").unlink()


@pytest.mark.parametrize(("head", "status"), [
    ("GET /file HTTP/1.1", 400), ("GET /file HTTP/1.1|Host: a|Host: b", 400), ("GET /file HTTP/1.0|Host: a|Host: b", 400),
    ("GET /file HTTP/1.1|Host: a", 200), ("GET /file HTTP/1.1|Host:", 200), ("GET /file HTTP/1.0", 200),
    ("DELETE /file HTTP/1.1", 400),
])  # fmt: skip
def test_a_request_must_name_exactly_one_host(server, head, status):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as link:
        link.sendall("\r\n".join([*head.split("|"), "Connection: close", "", ""]).encode())
        assert int(link.recv(1000).split()[1]) == status
    assert (server.directory / "file").read_bytes() == BYTES


def test_mkcol_with_a_body_is_rejected_with_and_without_chunked_encoding(server):
    for body in (b"<x/>", iter([b"<x/>"])):
        assert server.send("MKCOL", "/of-a-body", body=body)[0] == 415
    assert server.send("MKCOL", "/of-a-body", body=iter([]))[0] == 201
    assert server.send("MKCOL", "/of-a-body", body=b"<x/>")[0] == 415
    (server.directory / "of-a-body").rmdir()


@pytest.mark.parametrize("depth", ["0", "1", "all"])
def test_directories_cannot_be_deleted_or_moved_with_a_finite_depth(server, depth):
    for method in ("DELETE", "MOVE", "COPY")[: 2 if depth == "0" else 3]:
        assert server.send(method, "/full", Destination="/other", Depth=depth)[0] == 400
    assert (server.directory / "full" / "inner").read_bytes() == b"1"
    assert not (server.directory / "other").exists()
    assert server.send("COPY", "/full", Destination="/other", Depth="Infinity")[0] == 201
    assert server.send("MOVE", "/other", Destination="/another", Depth="infinity")[0] == 201
    assert server.send("COPY", "/another/inner", Destination="/another/copy", Depth=depth)[0] == 201
    assert server.send("MOVE", "/another/copy", Destination="/another/moved", Depth=depth)[0] == 201
    assert server.send("DELETE", "/another/moved", Depth=depth)[0] == 204
    assert server.send("DELETE", "/another", Depth="infinity")[0] == 204
