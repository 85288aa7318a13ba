"""HTTP proxies: Squid between client and server, proxy selection, and proxies that reject the connection."""

import base64
import os

import pytest
from copykit import copy, end_of, events, tree_of
from httpkit import puppet, squid, venturi

from testkit import needs_programs, throwaway_certificates

FILES = {"a": 1000, "large": 9 << 20, "d/empty": 0, "d/e/odd name é#?%": 70_000}


def environment(**changes):
    """Return an environment without `no_proxy`, with these changes."""
    return {name: value for name, value in os.environ.items() if name.lower() != "no_proxy"} | changes


@pytest.fixture
def locations(tmp_path):
    """Return a directory to serve, and one with a tree."""
    found = [tmp_path / name for name in ("served", "here")]
    for directory in found:
        directory.mkdir()
    for name, size in FILES.items():
        path = found[1] / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
    return found


@needs_programs("squid")
@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_a_tree_is_copied_through_squid_in_both_directions(engine, locations, tmp_path, secure):
    served, here = locations
    trust, cert, key = throwaway_certificates(tmp_path / "pki")
    arguments = ["--write", *(["--tls-cert", cert, "--tls-key", key] if secure else [])]
    with venturi(engine, served, tmp_path, *arguments, secure=secure) as url, squid() as (proxy, requests):
        location = url.replace("http", "dav", 1)
        trusting = {**environment(), "X509_CERT_DIR": str(trust)}
        up = ["-r", "--proxy", proxy, here / "tree", f"{location}/there"]
        end = end_of(events(engine, *up, env=trusting))
        assert (end["files"], end["errors"]) == (len(FILES), 0)
        copy(engine, "-r", "--proxy", proxy, f"{location}/there", here / "back", env=trusting)
        # A copy without the proxy sends no request to it.
        recorded = requests()
        copy(engine, "-r", "--proxy", "none", f"{location}/there", here / "past", env=trusting)
        assert requests() == recorded
    assert tree_of(here / "tree", times=False) == tree_of(here / "back", times=False)
    authority = url.partition("://")[2]
    if secure:
        assert set(recorded) == {("CONNECT", authority)}
    else:
        assert {method for method, _ in recorded} >= {"PUT", "GET", "MKCOL", "PROPFIND"}
        assert all(location.startswith(f"http://{authority}/") for _, location in recorded)


@needs_programs("squid")
def test_the_environment_names_the_proxy_and_the_proxy_resolves_the_server_name(engine, locations, tmp_path):
    served, here = locations
    (served / "x").write_bytes(b"of the server")
    with venturi(engine, served, tmp_path) as url, squid("origin.test") as (proxy, requests):
        location = url.replace("127.0.0.1", "origin.test")
        output = events(engine, f"{location}/x", here / "x", env=environment(http_proxy=proxy, no_proxy="other.test"))
        assert [(event["value"], event["reason"]) for event in output if event.get("setting") == "proxies"] == [
            (1, proxy)
        ]
        assert {where for _, where in requests()} == {f"{location}/x"}
        # Only the proxy can resolve the name.
        for without in (environment(http_proxy=proxy, no_proxy=".test"), environment(HTTP_PROXY=proxy)):
            output = copy(engine, f"{location}/x", here / "y", code=1, env=without).stderr.decode()
            assert "no address for origin.test" in output
        # The client does not use a proxy of the environment for this host.
        for named in ("http://127.0.0.1:9", "socks5://127.0.0.1:9"):
            copy(engine, f"{url}/x", here / "z", env=environment(all_proxy=named))
    assert (here / "x").read_bytes() == (here / "z").read_bytes() == b"of the server"


def test_proxy_credentials_are_sent_only_to_a_proxy(engine, tmp_path):
    with puppet(lambda handler, _: handler.reply(200, b"content")) as (url, recorded):
        proxy = url.replace("http://", "http://me:open%20sesame@")
        output = copy(
            engine, "-v", "--proxy", proxy, "http://origin.test:81/x?q", tmp_path / "x", env=environment()
        ).stderr
    (method, location, fields), *_ = recorded
    assert (method, location, fields["Host"]) == ("GET", "http://origin.test:81/x?q", "origin.test:81")
    assert fields["Proxy-Authorization"] == "Basic " + base64.b64encode(b"me:open sesame").decode()
    assert (tmp_path / "x").read_bytes() == b"content"
    assert b"sesame" not in output
    with puppet(lambda handler, _: handler.reply(200, b"content")) as (url, recorded):
        copy(engine, f"{url}/x", tmp_path / "y", env=environment(http_proxy=proxy))
    assert not any("Proxy-Authorization" in fields for _, _, fields in recorded)


@pytest.mark.parametrize(
    ("status", "advice"),
    [(407, "user and password"), (403, "--proxy none"), (502, "--proxy none")],
)  # fmt: skip
def test_a_proxy_that_opens_no_tunnel_is_reported(engine, tmp_path, status, advice):
    with puppet(lambda handler, _: handler.reply(status)) as (proxy, recorded):
        output = copy(engine, "https://origin.test/x", tmp_path / "x", code=1, env=environment(https_proxy=proxy))
    assert (
        f"https://origin.test/x: expected a tunnel through the proxy {proxy}, found {status}"
        in output.stderr.decode()
    )
    assert advice in output.stderr.decode()
    assert {(method, location) for method, location, _ in recorded} == {("CONNECT", "origin.test:443")}
    assert (len(recorded) > 2) is (status == 502), "what may pass is tried again"
    assert list(tmp_path.iterdir()) == []


def test_an_invalid_or_unreachable_proxy_is_reported(engine, tmp_path):
    """The proxy replies to CONNECT with invalid data, or does not exist."""

    def respond(handler, _):
        handler.wfile.write(b"SSH-2.0-x\r\n\r\n")
        handler.close_connection = True

    location = ("https://origin.test/x", tmp_path / "x")
    with puppet(respond) as (proxy, _):
        copy(engine, "--proxy", proxy, *location, code=3, env=environment())
    output = copy(engine, "--proxy", "http://127.0.0.1:9", *location, code=1, env=environment()).stderr.decode()
    assert "found Connection refused through the proxy http://127.0.0.1:9" in output


@pytest.mark.parametrize(
    "wrong", ["socks5://me:sesame@p:1080", "https://me:sesame@p", "http://me:sesame@p:0", "http://p/x"]
)
def test_an_invalid_proxy_url_is_rejected_without_printing_its_password(engine, tmp_path, wrong):
    endpoints = ("http://origin.test/x", tmp_path / "x")
    for arguments, changes in ((["--proxy", wrong], {}), ([], {"all_proxy": wrong})):
        output = copy(engine, *arguments, *endpoints, code=1, env=environment(**changes)).stderr.decode()
        assert ("all_proxy" if changes else "--proxy") + ": expected the URL of an HTTP proxy" in output
        assert "sesame" not in output


def test_the_proxy_option_is_rejected_without_an_http_server(engine, tmp_path):
    (tmp_path / "x").write_bytes(b"x")
    output = copy(engine, "--proxy", "http://p:1", tmp_path / "x", tmp_path / "y", code=1).stderr.decode()
    assert "--proxy: expected an HTTP server as source or destination, found local paths only" in output
    copy(engine, "--proxy", "none", tmp_path / "x", tmp_path / "y")
