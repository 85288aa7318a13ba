"""Server of the live page: token, host, paths, interface, and readers that disappear."""

import http.client
import json
import re
import socket
import threading
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from venturi.live import PageServer
from venturi.live import server as server_module
from venturi.report.theme import VARIABLES

PAGE = Path(server_module.__file__).with_name("page.html").read_text(encoding="utf-8")


@pytest.fixture
def server():
    opened = PageServer(b'{"number": 1}')
    yield opened
    opened.close()


def token_of(server):
    return parse_qs(urlsplit(server.url).query)["token"][0]


def get(server, path, *, host="127.0.0.1", method="GET", **headers):
    """Return status, headers and body of a request with this `Host` header (None: no such header)."""
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(server.url).port, timeout=30)
    try:
        connection.putrequest(method, path, skip_host=True)
        if host is not None:
            connection.putheader("Host", host)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def test_the_page_and_its_values_need_the_token(server):
    token = token_of(server)
    assert len(token) >= 32
    status, headers, body = get(server, f"/?token={token}")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b"<title>Venturi" in body
    assert get(server, f"/snapshot?token={token}")[2] == b'{"number": 1}'
    server.publish(b'{"number": 2}')
    assert json.loads(get(server, f"/snapshot?token={token}")[2]) == {"number": 2}


@pytest.mark.parametrize(
    "query", ["", "?token=", "?token=wrong", "?TOKEN={token}", "?token={token}x", "?token=%C3%A9"]
)
@pytest.mark.parametrize("path", ["/", "/snapshot", "/other"])
def test_a_request_without_the_token_gets_403(server, path, query):
    status, _, body = get(server, path + query.format(token=token_of(server)))
    assert status == 403
    assert token_of(server).encode() not in body


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "127.0.0.2", "localhost:80x", "", None])
def test_a_request_with_another_host_gets_403(server, host):
    """So a page of another site cannot read the values after DNS rebinding."""
    assert get(server, f"/snapshot?token={token_of(server)}", host=host)[0] == 403


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "LOCALHOST:1"])
def test_a_forwarded_port_has_another_number(server, host):
    assert get(server, f"/snapshot?token={token_of(server)}", host=host)[0] == 200


def test_there_are_no_other_paths_and_methods(server):
    token = token_of(server)
    for path in ("/snapshot/", "/../snapshot", "/page.html", "/favicon.ico"):
        assert get(server, f"{path}?token={token}")[0] == 404
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
        assert get(server, f"/?token={token}", method=method)[0] == 501


def test_the_server_listens_on_the_loopback_interface_only(server):
    port = urlsplit(server.url).port
    (local,) = [
        fields[1]
        for fields in map(str.split, Path("/proc/net/tcp").read_text().splitlines()[1:])
        if fields[3] == "0A" and int(fields[1].split(":")[1], 16) == port
    ]
    assert local.split(":")[0] == "0100007F"


def test_no_other_site_can_frame_or_load_the_page(server):
    _, headers, body = get(server, f"/?token={token_of(server)}")
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    (nonce,) = set(re.findall(r"'nonce-([^']+)'", policy))
    assert body.count(f'nonce="{nonce}"'.encode()) == 2
    assert (headers["Cache-Control"], headers["Referrer-Policy"]) == ("no-store", "no-referrer")


def test_readers_that_disappear_change_nothing(server):
    """As a browser that is killed, before and during its request."""
    port, token = urlsplit(server.url).port, token_of(server)
    for text in ("", "GET /snapshot", f"GET /?token={token} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(text.encode())
    assert get(server, f"/snapshot?token={token}")[0] == 200


def test_the_last_values_reach_an_open_page(server):
    token = token_of(server)
    get(server, f"/snapshot?token={token}")
    waiting = threading.Thread(target=server.finish, args=(b'{"number": 9}', 600.0))
    waiting.start()
    while get(server, f"/snapshot?token={token}")[2] != b'{"number": 9}':
        pass
    waiting.join()


def test_without_an_open_page_nothing_waits(server):
    server.finish(b"{}", 1e9)


def test_the_page_loads_nothing_and_writes_no_markup():
    assert not re.search(r"https?://|//[a-z]|url\(|@import", PAGE.replace("// Every text", ""))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", PAGE)


def test_the_page_has_the_colours_of_the_reports():
    light, dark = (dict(re.findall(r"--(\w+): (#\w+)", line)) for line in re.findall(r":root \{[^}]*\}", PAGE))
    expected = {swatch.variable: (swatch.light, swatch.dark) for swatch in VARIABLES}
    assert {name: (light[name], dark[name]) for name in light} == {name: expected[name] for name in light}
    assert set(light) == {"ink", "muted", "grid", "paper", "accent", "second", "band"}
