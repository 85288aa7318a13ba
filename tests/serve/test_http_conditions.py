"""Conditions of modifying requests (RFC 9110, and `If` of WebDAV): a false condition prevents any change."""

import socket

import pytest
from webkit import web

OTHER = '"another"'
PAST, FUTURE = "Sun, 06 Nov 1994 08:49:37 GMT", "Sat, 06 Nov 2094 08:49:37 GMT"
REQUESTS = {
    "PUT": ("/file", {"body": b"new"}),
    "DELETE": ("/file", {}),
    "MOVE": ("/file", {"Destination": "/beside"}),
    "COPY": ("/file", {"Destination": "/beside"}),
}


@pytest.fixture
def server(engine, tmp_path):
    """A server that all clients can write, with two files and a directory."""
    data = tmp_path / "data"
    (data / "folder").mkdir(parents=True)
    for name in ("file", "second", "folder/inner"):
        (data / name).write_bytes(name.encode())
    with web(engine, data, tmp_path, "--write") as server:
        yield server


def tag(server, path="/file"):
    return server.send("HEAD", path)[1]["ETag"]


def state(server):
    """Return the content of all files by path; False for directories."""
    found = sorted(server.directory.rglob("*"))
    return {str(path.relative_to(server.directory)): path.is_file() and path.read_bytes() for path in found}


@pytest.mark.parametrize("method", REQUESTS)
@pytest.mark.parametrize(
    "fields",
    [
        {"If_Match": OTHER},
        {"If_Match": "W/{file}"},
        {"If_None_Match": "*"},
        {"If_None_Match": "W/{file}"},
        {"If_Unmodified_Since": PAST},
        {"If_": f"([{OTHER}])"},
        {"If_": "(Not [{file}])"},
        {"If_": "([{file}] <urn:uuid:a>)"},
        {"If_": f"</second> ([{OTHER}] [{{second}}])"},
        {"If_": "<http://elsewhere.example/file> ([{file}])"},
        {"If_": "(<DAV:no-lock>)"},
    ],
)
def test_nothing_is_changed_if_a_condition_is_false(server, method, fields):
    path, others = REQUESTS[method]
    fields = {name: text.format(file=tag(server), second=tag(server, "/second")) for name, text in fields.items()}
    before = state(server)
    assert server.send(method, path, **others, **fields)[0] == 412
    assert state(server) == before


@pytest.mark.parametrize("method", REQUESTS)
@pytest.mark.parametrize(
    "fields",
    [
        {"If_Match": f"{OTHER}, {{file}}"},
        {"If_Match": "*"},
        {"If_None_Match": OTHER},
        {"If_Unmodified_Since": FUTURE},
        {"If_": "([{file}])"},
        {"If_": f"([{OTHER}]) ([{{file}}] Not <DAV:no-lock>)"},
        {"If_": f"</none> ([{OTHER}]) </second> ([{{second}}])"},
        {"If_": "<{url}/second> ([{second}])"},
        {"If_": f"(Not [{OTHER}])"},
    ],
)
def test_a_resource_is_changed_if_all_conditions_are_true(server, method, fields):
    path, others = REQUESTS[method]
    tags = {"file": tag(server), "second": tag(server, "/second"), "url": server.url}
    fields = {name: text.format(**tags) for name, text in fields.items()}
    before = state(server)
    assert server.send(method, path, **others, **fields)[0] in (201, 204)
    assert state(server) != before


@pytest.mark.parametrize("text", ["", "nonsense", "[x]", "(x)", "([x])", '(["x"]', "</file>", '</a b> (["x"])'])
def test_an_invalid_if_header_changes_nothing(server, text):
    before = state(server)
    for method, (path, others) in REQUESTS.items():
        assert server.send(method, path, **others, If_=text)[0] == 400, method
    assert state(server) == before


def test_conditions_apply_to_missing_resources(server):
    for method in ("DELETE", "MOVE", "COPY"):
        assert server.send(method, "/none", Destination="/beside", If_Match=OTHER)[0] == 404
    assert server.send("PUT", "/none", body=b"1", If_Match="*")[0] == 412
    assert server.send("MKCOL", "/new", If_=f"([{OTHER}])")[0] == 412
    assert server.send("MKCOL", "/new", If_=f"</file> ([{tag(server)}])", If_None_Match="*")[0] == 201
    assert server.send("MKCOL", "/new", If_None_Match="*")[0] == 405
    assert server.send("PUT", "/new/file", body=b"1", If_None_Match="*", If_=f"(Not [{OTHER}])")[0] == 201


def test_conditions_on_a_directory_and_its_files_are_checked(server):
    before = state(server)
    for method in ("DELETE", "MOVE", "COPY"):
        for fields in ({"If_None_Match": "*"}, {"If_Match": OTHER}, {"If_": f"</folder/inner> ([{OTHER}])"}):
            assert server.send(method, "/folder", Destination="/second", **fields)[0] == 412
    assert state(server) == before
    assert (
        server.send(
            "MOVE", "/folder", Destination="/beside", If_=f"</folder/inner> ([{tag(server, '/folder/inner')}])"
        )[0]
        == 201
    )


def test_conditions_of_a_third_party_copy_apply_to_the_local_resource(engine, server, tmp_path):
    (tmp_path / "tokens").write_text("word\n")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "file").write_bytes(b"1")
    arguments = ["--write", "--third-party", "--tokens", tmp_path / "tokens"]
    with web(engine, tmp_path / "own", tmp_path, *arguments) as own:

        def send(**fields):
            status, _, output = own.send("COPY", "/file", Authorization="Bearer word", **fields)
            return status, b"success" in output

        for existing in ({"Source": f"{server.url}/second"}, {"Destination": f"{server.url}/second"}):
            for fields in ({"If_Match": OTHER}, {"If_None_Match": "*"}, {"If_": f"([{OTHER}])"}):
                assert send(**existing, **fields) == (412, False)
        assert (tmp_path / "own" / "file").read_bytes() == b"1"
        assert (server.directory / "second").read_bytes() == b"second"
        here = own.send("HEAD", "/file", Authorization="Bearer word")[1]["ETag"]
        assert send(Source=f"{server.url}/second", If_Match=here) == (202, True)
        assert (tmp_path / "own" / "file").read_bytes() == b"second"


def put(server, *lines):
    """Send a PUT of one byte with these raw header lines, and return the status."""
    head = [b"PUT /file HTTP/1.1", b"Host: h", b"Content-Length: 1", b"Connection: close", *lines, b"", b"1"]
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as link:
        link.sendall(b"\r\n".join(head))
        return int(link.recv(1000).split()[1])


@pytest.mark.parametrize(("name", "if_own", "if_other"), [(b"If-Match", 204, 412), (b"If-None-Match", 412, 204)])
def test_entity_tag_lists_can_span_lines_and_contain_any_bytes(server, name, if_own, if_other):
    def line(text):
        return name + b": " + text.replace(b"own", tag(server).encode())

    assert put(server, line(b'"a"'), line(b"own")) == if_own
    assert put(server, line(b'"\xe9", own')) == if_own
    assert put(server, line(b'"a"'), line(b"*")) == if_own
    assert put(server, line(b'"\xe9"')) == if_other
    assert put(server, line(b'"a"'), line(b'"b"')) == if_other


def test_if_modified_since_applies_only_to_reads(server):
    assert put(server, b"If-Modified-Since: " + FUTURE.encode()) == 204
    assert server.send("GET", "/file", If_Modified_Since=FUTURE)[0] == 304


def test_if_range_with_an_unknown_non_ascii_tag_returns_the_whole_file(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as link:
        link.sendall(
            b'GET /file HTTP/1.1\r\nHost: h\r\nRange: bytes=0-1\r\nIf-Range: "\xe9"\r\nConnection: close\r\n\r\n'
        )
        assert link.recv(1000).split()[1] == b"200"
