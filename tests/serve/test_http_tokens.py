"""Tokens of WLCG, signed by `openssl`: what a scope says may be done, and nothing else."""

import base64
import json
import subprocess
import time

import pytest
from webkit import web

from testkit import wait_until

ISSUER, AUDIENCE = "https://issuer.test/", "https://se.test"


def url64(content):
    """Return base 64 as tokens have it (RFC 4648, section 5)."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


class Signer:
    """An issuer with a key of RSA."""

    def __init__(self, folder):
        folder.mkdir()
        self.key = folder / "key.pem"
        self._openssl("genrsa", "-out", self.key, "2048")
        modulus = self._openssl("rsa", "-in", self.key, "-noout", "-modulus").decode().strip().partition("=")[2]
        key = {"kty": "RSA", "kid": "one", "n": url64(bytes.fromhex(modulus)), "e": url64(b"\x01\x00\x01")}
        (folder / "keys.json").write_text(json.dumps({"keys": [key]}))
        self.issuers = folder / "issuers.json"
        issuer = {"issuer": ISSUER, "keys": "keys.json", "audiences": [AUDIENCE], "path": "/vo"}
        self.issuers.write_text(json.dumps([issuer]))

    def token(self, scope, **claims):
        """Return a token of an hour."""
        now_s = int(time.time())
        known = {"iss": ISSUER, "sub": "ann", "aud": AUDIENCE, "nbf": now_s, "exp": now_s + 3600, "scope": scope}
        parts = [{"alg": "RS256", "kid": "one"}, known | claims]
        signed = ".".join(url64(json.dumps(part).encode()) for part in parts)
        return f"{signed}.{url64(self._openssl('dgst', '-sha256', '-sign', self.key, given=signed.encode()))}"

    @staticmethod
    def _openssl(*words, given=b""):
        return subprocess.run(["openssl", *words], input=given, capture_output=True, check=True).stdout


@pytest.fixture(scope="module")
def signer(tmp_path_factory):
    """An issuer that the server believes."""
    return Signer(tmp_path_factory.mktemp("pki") / "issuer")


@pytest.fixture
def ask(engine, signer, tmp_path):
    """A server with two directories; asks it with a token and returns the status."""
    for path in ("data/vo/in", "data/other"):
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "file").write_bytes(b"1")
    words = ["--write", "--third-party", "--issuers", signer.issuers]
    with web(engine, tmp_path / "data", tmp_path, *words) as server:

        def status(token, method, path, **fields):
            return server.ask(method, path, Authorization=f"Bearer {token}", **fields)[0]

        status.server = server
        yield status


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ("storage.read:/", {"GET", "HEAD", "PROPFIND"}),
        ("storage.create:/", {"PUT new", "MKCOL"}),
        ("storage.create:/ storage.read:/", {"GET", "HEAD", "PROPFIND", "PUT new", "MKCOL", "COPY"}),
        ("storage.modify:/in", {"PUT", "PUT new", "MKCOL", "MOVE", "DELETE"}),
        ("storage.read:/inner storage.modify:/../other openid", set()),
    ],
)
def test_a_token_may_do_what_its_scopes_say_below_the_path_of_its_issuer(ask, signer, scope, allowed):
    token = signer.token(scope)
    there = ask.server.url
    requests = {
        "GET": ("GET", "/vo/in/file", {}, 200),
        "HEAD": ("HEAD", "/vo/in/file", {}, 200),
        "PROPFIND": ("PROPFIND", "/vo/in", {"Depth": "1"}, 207),
        "PUT": ("PUT", "/vo/in/file", {"body": b"2"}, 204),
        "PUT new": ("PUT", "/vo/in/new", {"body": b"2"}, 201),
        "MKCOL": ("MKCOL", "/vo/in/folder", {}, 201),
        "COPY": ("COPY", "/vo/in/file", {"Destination": f"{there}/vo/in/copy"}, 201),
        "MOVE": ("MOVE", "/vo/in/file", {"Destination": f"{there}/vo/in/moved"}, 201),
        "DELETE": ("DELETE", "/vo/in/moved" if "MOVE" in allowed else "/vo/in/file", {}, 204),
    }
    for name, (method, path, fields, well) in requests.items():
        assert ask(token, method, path, **fields) == (well if name in allowed else 403), name
        elsewhere = {
            key: value.replace("/vo/in/", "/other/") for key, value in fields.items() if key == "Destination"
        }
        assert ask(token, method, "/other/file", **fields | elsewhere) == 403, name


def test_what_may_be_made_but_not_changed_is_not_replaced(ask, signer):
    token = signer.token("storage.create:/ storage.read:/")
    there = {"Destination": f"{ask.server.url}/vo/in/file"}
    assert ask(token, "PUT", "/vo/new", body=b"2") == 201
    assert ask(token, "COPY", "/vo/new", **there) == 412
    assert ask(token, "MOVE", "/vo/new", **there) == 403
    pulled = ask.server.ask(
        "COPY", "/vo/in/file", Source=f"{ask.server.url}/vo/new", Authorization=f"Bearer {token}",
        TransferHeaderAuthorization=f"Bearer {token}",
    )  # fmt: skip
    assert b"failure" in pulled[2]
    assert ask(token, "COPY", "/other/new", Source=f"{ask.server.url}/vo/new") == 403
    assert (ask.server.directory / "vo" / "in" / "file").read_bytes() == b"1"


@pytest.mark.parametrize(
    "claims",
    [{"exp": 1_000_000_000}, {"nbf": 5_000_000_000}, {"aud": "https://other"}, {"iss": "https://other/"}],
    ids=lambda claims: next(iter(claims)),
)
def test_a_token_for_another_time_or_place_is_none(ask, signer, claims):
    assert ask(signer.token("storage.read:/", **claims), "GET", "/vo/in/file") == 401


def test_a_token_of_another_key_is_none_and_none_is_in_the_log(ask, signer, tmp_path):
    token = signer.token("storage.read:/")
    stranger = Signer(tmp_path / "stranger").token("storage.read:/")
    assert ask(stranger, "GET", "/vo/in/file") == 401
    assert ask(token + "A", "GET", "/vo/in/file") == 401
    assert ask("", "GET", "/vo/in/file") == 401
    assert ask(token, "GET", "/vo/in/file") == 200
    wait_until(lambda: ask.server.events("transfer"), "the line of the transfer", 10)
    told = ask.server.events("transfer")
    assert [event["user"] for event in told] == ["ann"]
    assert token.rpartition(".")[2] not in str(told)


def test_an_issuer_that_is_named_twice_is_refused(engine, signer, tmp_path):
    entry = json.loads(signer.issuers.read_text())[0] | {"keys": str(signer.issuers.with_name("keys.json"))}
    (tmp_path / "issuers").write_text(json.dumps([entry, entry | {"path": "/other"}]))
    words = ["--http", "127.0.0.1:0", "--issuers", tmp_path / "issuers"]
    done = subprocess.run(
        [engine, "serve", tmp_path, *words], capture_output=True, text=True, check=False, timeout=20
    )
    assert done.returncode == 1
    assert f"found `{ISSUER}` twice" in done.stderr
