"""Proxies of HTTP: Squid between us and our server, which one is taken, and those that let nobody through."""

import base64
import os

import pytest
from copykit import copy, end_of, events, tree_of
from httpkit import puppet, squid, venturi

from testkit import needs_programs, throwaway_certificates

FILES = {"a": 1000, "large": 9 << 20, "d/empty": 0, "d/e/odd name é#?%": 70_000}


def environment(**changes):
    """Return the environment, which names no proxies in tests, with these."""
    return {name: value for name, value in os.environ.items() if name.lower() != "no_proxy"} | changes


@pytest.fixture
def places(tmp_path):
    """Return a directory to serve, and one with a tree."""
    found = [tmp_path / name for name in ("served", "here")]
    for folder in found:
        folder.mkdir()
    for name, size in FILES.items():
        path = found[1] / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
    return found


@needs_programs("squid")
@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
def test_a_tree_goes_through_squid_and_comes_back(engine, places, tmp_path, secure):
    served, here = places
    trust, cert, key = throwaway_certificates(tmp_path / "pki")
    words = ["--write", *(["--tls-cert", cert, "--tls-key", key] if secure else [])]
    with venturi(engine, served, tmp_path, *words, secure=secure) as url, squid() as (proxy, asked):
        place = url.replace("http", "dav", 1)
        trusting = {**environment(), "X509_CERT_DIR": str(trust)}
        up = ["-r", "--proxy", proxy, here / "tree", f"{place}/there"]
        end = end_of(events(engine, *up, env=trusting))
        assert (end["files"], end["errors"]) == (len(FILES), 0)
        copy(engine, "-r", "--proxy", proxy, f"{place}/there", here / "back", env=trusting)
        # Past it, nothing more is asked of it.
        seen = asked()
        copy(engine, "-r", "--proxy", "none", f"{place}/there", here / "past", env=trusting)
        assert asked() == seen
    assert tree_of(here / "tree", times=False) == tree_of(here / "back", times=False)
    authority = url.partition("://")[2]
    if secure:
        assert set(seen) == {("CONNECT", authority)}
    else:
        assert {method for method, _ in seen} >= {"PUT", "GET", "MKCOL", "PROPFIND"}
        assert all(place.startswith(f"http://{authority}/") for _, place in seen)


@needs_programs("squid")
def test_the_proxy_looks_for_the_server_and_the_environment_names_the_proxy(engine, places, tmp_path):
    served, here = places
    (served / "x").write_bytes(b"of the server")
    with venturi(engine, served, tmp_path) as url, squid("origin.test") as (proxy, asked):
        place = url.replace("127.0.0.1", "origin.test")
        told = events(engine, f"{place}/x", here / "x", env=environment(http_proxy=proxy, no_proxy="other.test"))
        assert [(event["value"], event["reason"]) for event in told if event.get("what") == "proxies"] == [(1, proxy)]
        assert {where for _, where in asked()} == {f"{place}/x"}
        # The name is known to the proxy alone.
        for without in (environment(http_proxy=proxy, no_proxy=".test"), environment(HTTP_PROXY=proxy)):
            said = copy(engine, f"{place}/x", here / "y", code=1, env=without).stderr.decode()
            assert "no address of origin.test" in said
        # This host is not asked of a proxy of the environment.
        for named in ("http://127.0.0.1:9", "socks5://127.0.0.1:9"):
            copy(engine, f"{url}/x", here / "z", env=environment(all_proxy=named))
    assert (here / "x").read_bytes() == (here / "z").read_bytes() == b"of the server"


def test_a_proxy_is_told_who_we_are_and_nobody_else_is(engine, tmp_path):
    with puppet(lambda handler, _: handler.say(200, b"content")) as (url, seen):
        proxy = url.replace("http://", "http://me:open%20sesame@")
        told = copy(
            engine, "-v", "--proxy", proxy, "http://origin.test:81/x?q", tmp_path / "x", env=environment()
        ).stderr
    (method, place, fields), *_ = seen
    assert (method, place, fields["Host"]) == ("GET", "http://origin.test:81/x?q", "origin.test:81")
    assert fields["Proxy-Authorization"] == "Basic " + base64.b64encode(b"me:open sesame").decode()
    assert (tmp_path / "x").read_bytes() == b"content"
    assert b"sesame" not in told
    with puppet(lambda handler, _: handler.say(200, b"content")) as (url, seen):
        copy(engine, f"{url}/x", tmp_path / "y", env=environment(http_proxy=proxy))
    assert not any("Proxy-Authorization" in fields for _, _, fields in seen)


@pytest.mark.parametrize(
    ("status", "advice"),
    [(407, "write who you are into the URL of the proxy"), (403, "see whether that proxy lets you there"), (502, "see whether that proxy")],
)  # fmt: skip
def test_a_proxy_that_opens_no_tunnel_is_told_of(engine, tmp_path, status, advice):
    with puppet(lambda handler, _: handler.say(status)) as (proxy, seen):
        told = copy(engine, "https://origin.test/x", tmp_path / "x", code=1, env=environment(https_proxy=proxy))
    assert f"https://origin.test/x: expected a way through the proxy {proxy}, found {status}" in told.stderr.decode()
    assert advice in told.stderr.decode()
    assert {(method, place) for method, place, _ in seen} == {("CONNECT", "origin.test:443")}
    assert (len(seen) > 2) is (status == 502), "what may pass is tried again"
    assert list(tmp_path.iterdir()) == []


def test_a_proxy_that_is_none_is_told_of(engine, tmp_path):
    """It answers the wish for a tunnel with what it likes, or is not there."""

    def answer(handler, _):
        handler.wfile.write(b"SSH-2.0-x\r\n\r\n")
        handler.close_connection = True

    place = ("https://origin.test/x", tmp_path / "x")
    with puppet(answer) as (proxy, _):
        copy(engine, "--proxy", proxy, *place, code=3, env=environment())
    said = copy(engine, "--proxy", "http://127.0.0.1:9", *place, code=1, env=environment()).stderr.decode()
    assert "expected an answer, found Connection refused by the proxy http://127.0.0.1:9" in said


@pytest.mark.parametrize(
    "wrong", ["socks5://me:sesame@p:1080", "https://me:sesame@p", "http://me:sesame@p:0", "http://p/x"]
)
def test_what_is_no_proxy_of_http_is_refused_without_its_password(engine, tmp_path, wrong):
    asked = ("http://origin.test/x", tmp_path / "x")
    for words, changes in ((["--proxy", wrong], {}), ([], {"all_proxy": wrong})):
        said = copy(engine, *words, *asked, code=1, env=environment(**changes)).stderr.decode()
        assert ("all_proxy" if changes else "--proxy") + ": expected a proxy of HTTP" in said
        assert "sesame" not in said


def test_a_proxy_is_for_servers_of_http(engine, tmp_path):
    (tmp_path / "x").write_bytes(b"x")
    said = copy(engine, "--proxy", "http://p:1", tmp_path / "x", tmp_path / "y", code=1).stderr.decode()
    assert "--proxy: expected a place at a server of HTTP, found places of this host alone" in said
    copy(engine, "--proxy", "none", tmp_path / "x", tmp_path / "y")
