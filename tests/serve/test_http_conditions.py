"""Conditions of requests that change something: those of RFC 9110, and `If` of WebDAV. Where one is not true, nothing is changed."""

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
    """A server that everybody may write, with two files and a directory."""
    data = tmp_path / "data"
    (data / "folder").mkdir(parents=True)
    for name in ("file", "second", "folder/inner"):
        (data / name).write_bytes(name.encode())
    with web(engine, data, tmp_path, "--write") as server:
        yield server


def tag(server, path="/file"):
    return server.ask("HEAD", path)[1]["ETag"]


def state(server):
    """Return what is there, with its content."""
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
def test_nothing_is_changed_where_a_condition_is_not_true(server, method, fields):
    path, others = REQUESTS[method]
    fields = {name: text.format(file=tag(server), second=tag(server, "/second")) for name, text in fields.items()}
    before = state(server)
    assert server.ask(method, path, **others, **fields)[0] == 412
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
def test_it_is_changed_where_all_conditions_are_true(server, method, fields):
    path, others = REQUESTS[method]
    tags = {"file": tag(server), "second": tag(server, "/second"), "url": server.url}
    fields = {name: text.format(**tags) for name, text in fields.items()}
    before = state(server)
    assert server.ask(method, path, **others, **fields)[0] in (201, 204)
    assert state(server) != before


@pytest.mark.parametrize("text", ["", "nonsense", "[x]", "(x)", "([x])", '(["x"]', "</file>", '</a b> (["x"])'])
def test_an_if_that_cannot_be_read_changes_nothing(server, text):
    before = state(server)
    for method, (path, others) in REQUESTS.items():
        assert server.ask(method, path, **others, If_=text)[0] == 400, method
    assert state(server) == before


def test_what_a_condition_is_about_need_not_be_there(server):
    for method in ("DELETE", "MOVE", "COPY"):
        assert server.ask(method, "/none", Destination="/beside", If_Match=OTHER)[0] == 404
    assert server.ask("PUT", "/none", body=b"1", If_Match="*")[0] == 412
    assert server.ask("MKCOL", "/new", If_=f"([{OTHER}])")[0] == 412
    assert server.ask("MKCOL", "/new", If_=f"</file> ([{tag(server)}])", If_None_Match="*")[0] == 201
    assert server.ask("MKCOL", "/new", If_None_Match="*")[0] == 405
    assert server.ask("PUT", "/new/file", body=b"1", If_None_Match="*", If_=f"(Not [{OTHER}])")[0] == 201


def test_conditions_of_directories_hold_for_all_in_them(server):
    before = state(server)
    for method in ("DELETE", "MOVE", "COPY"):
        for fields in ({"If_None_Match": "*"}, {"If_Match": OTHER}, {"If_": f"</folder/inner> ([{OTHER}])"}):
            assert server.ask(method, "/folder", Destination="/second", **fields)[0] == 412
    assert state(server) == before
    assert (
        server.ask(
            "MOVE", "/folder", Destination="/beside", If_=f"</folder/inner> ([{tag(server, '/folder/inner')}])"
        )[0]
        == 201
    )


def test_conditions_of_a_copy_between_servers_are_of_what_is_here(engine, server, tmp_path):
    (tmp_path / "tokens").write_text("word\n")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "file").write_bytes(b"1")
    words = ["--write", "--third-party", "--tokens", tmp_path / "tokens"]
    with web(engine, tmp_path / "own", tmp_path, *words) as own:

        def ask(**fields):
            status, _, said = own.ask("COPY", "/file", Authorization="Bearer word", **fields)
            return status, b"success" in said

        for there in ({"Source": f"{server.url}/second"}, {"Destination": f"{server.url}/second"}):
            for fields in ({"If_Match": OTHER}, {"If_None_Match": "*"}, {"If_": f"([{OTHER}])"}):
                assert ask(**there, **fields) == (412, False)
        assert (tmp_path / "own" / "file").read_bytes() == b"1"
        assert (server.directory / "second").read_bytes() == b"second"
        here = own.ask("HEAD", "/file", Authorization="Bearer word")[1]["ETag"]
        assert ask(Source=f"{server.url}/second", If_Match=here) == (202, True)
        assert (tmp_path / "own" / "file").read_bytes() == b"second"


def put(server, *lines):
    """Put one byte with these lines in the head, whatever their bytes, and return the status."""
    head = [b"PUT /file HTTP/1.1", b"Host: h", b"Content-Length: 1", b"Connection: close", *lines, b"", b"1"]
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as link:
        link.sendall(b"\r\n".join(head))
        return int(link.recv(1000).split()[1])


@pytest.mark.parametrize(("name", "if_own", "if_other"), [(b"If-Match", 204, 412), (b"If-None-Match", 412, 204)])
def test_all_lines_and_bytes_of_lists_of_tags_count(server, name, if_own, if_other):
    def line(text):
        return name + b": " + text.replace(b"own", tag(server).encode())

    assert put(server, line(b'"a"'), line(b"own")) == if_own
    assert put(server, line(b'"\xe9", own')) == if_own
    assert put(server, line(b'"a"'), line(b"*")) == if_own
    assert put(server, line(b'"\xe9"')) == if_other
    assert put(server, line(b'"a"'), line(b'"b"')) == if_other


def test_only_reading_looks_at_whether_something_was_changed_since(server):
    assert put(server, b"If-Modified-Since: " + FUTURE.encode()) == 204
    assert server.ask("GET", "/file", If_Modified_Since=FUTURE)[0] == 304


def test_a_range_of_another_version_is_not_given_whatever_its_tag_is_made_of(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as link:
        link.sendall(
            b'GET /file HTTP/1.1\r\nHost: h\r\nRange: bytes=0-1\r\nIf-Range: "\xe9"\r\nConnection: close\r\n\r\n'
        )
        assert link.recv(1000).split()[1] == b"200"
