"""WLCG tokens, signed by `openssl`: a scope permits its operations and no others."""

import base64
import json
import subprocess
import time

import pytest
from webkit import web

from testkit import wait_until

ISSUER, AUDIENCE = "https://issuer.test/", "https://se.test"


def url64(content):
    """Return base64url without padding (RFC 4648, section 5), as in tokens."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


class Signer:
    """An issuer with an RSA key."""

    def __init__(self, directory):
        directory.mkdir()
        self.key = directory / "key.pem"
        self._openssl("genrsa", "-out", self.key, "2048")
        modulus = self._openssl("rsa", "-in", self.key, "-noout", "-modulus").decode().strip().partition("=")[2]
        key = {"kty": "RSA", "kid": "one", "n": url64(bytes.fromhex(modulus)), "e": url64(b"\x01\x00\x01")}
        (directory / "keys.json").write_text(json.dumps({"keys": [key]}))
        self.issuers = directory / "issuers.json"
        issuer = {"issuer": ISSUER, "keys": "keys.json", "audiences": [AUDIENCE], "path": "/vo"}
        self.issuers.write_text(json.dumps([issuer]))

    def token(self, scope, **claims):
        """Return a token with a lifetime of one hour."""
        now_s = int(time.time())
        known = {"iss": ISSUER, "sub": "ann", "aud": AUDIENCE, "nbf": now_s, "exp": now_s + 3600, "scope": scope}
        parts = [{"alg": "RS256", "kid": "one"}, known | claims]
        signed = ".".join(url64(json.dumps(part).encode()) for part in parts)
        return f"{signed}.{url64(self._openssl('dgst', '-sha256', '-sign', self.key, token=signed.encode()))}"

    @staticmethod
    def _openssl(*arguments, token=b""):
        return subprocess.run(["openssl", *arguments], input=token, capture_output=True, check=True).stdout


@pytest.fixture(scope="module")
def signer(tmp_path_factory):
    """An issuer that the server trusts."""
    return Signer(tmp_path_factory.mktemp("pki") / "issuer")


@pytest.fixture
def send(engine, signer, tmp_path):
    """A server with two directories; the function sends a request with a token and returns the status."""
    for path in ("data/vo/in", "data/other"):
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "file").write_bytes(b"1")
    arguments = ["--write", "--third-party", "--issuers", signer.issuers]
    with web(engine, tmp_path / "data", tmp_path, *arguments) as server:

        def status(token, method, path, **fields):
            return server.send(method, path, Authorization=f"Bearer {token}", **fields)[0]

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
def test_a_token_grants_its_scopes_below_the_path_of_its_issuer(send, signer, scope, allowed):
    token = signer.token(scope)
    existing = send.server.url
    requests = {
        "GET": ("GET", "/vo/in/file", {}, 200),
        "HEAD": ("HEAD", "/vo/in/file", {}, 200),
        "PROPFIND": ("PROPFIND", "/vo/in", {"Depth": "1"}, 207),
        "PUT": ("PUT", "/vo/in/file", {"body": b"2"}, 204),
        "PUT new": ("PUT", "/vo/in/new", {"body": b"2"}, 201),
        "MKCOL": ("MKCOL", "/vo/in/folder", {}, 201),
        "COPY": ("COPY", "/vo/in/file", {"Destination": f"{existing}/vo/in/copy"}, 201),
        "MOVE": ("MOVE", "/vo/in/file", {"Destination": f"{existing}/vo/in/moved"}, 201),
        "DELETE": ("DELETE", "/vo/in/moved" if "MOVE" in allowed else "/vo/in/file", {}, 204),
    }
    for name, (method, path, fields, well) in requests.items():
        assert send(token, method, path, **fields) == (well if name in allowed else 403), name
        elsewhere = {
            key: value.replace("/vo/in/", "/other/") for key, value in fields.items() if key == "Destination"
        }
        assert send(token, method, "/other/file", **fields | elsewhere) == 403, name


def test_a_token_with_only_create_permission_cannot_replace_files(send, signer):
    token = signer.token("storage.create:/ storage.read:/")
    existing = {"Destination": f"{send.server.url}/vo/in/file"}
    assert send(token, "PUT", "/vo/new", body=b"2") == 201
    assert send(token, "COPY", "/vo/new", **existing) == 412
    assert send(token, "MOVE", "/vo/new", **existing) == 403
    pulled = send.server.send(
        "COPY", "/vo/in/file", Source=f"{send.server.url}/vo/new", Authorization=f"Bearer {token}",
        TransferHeaderAuthorization=f"Bearer {token}",
    )  # fmt: skip
    assert b"failure" in pulled[2]
    assert send(token, "COPY", "/other/new", Source=f"{send.server.url}/vo/new") == 403
    assert (send.server.directory / "vo" / "in" / "file").read_bytes() == b"1"


@pytest.mark.parametrize(
    "claims",
    [{"exp": 1_000_000_000}, {"nbf": 5_000_000_000}, {"aud": "https://other"}, {"iss": "https://other/"}],
    ids=lambda claims: next(iter(claims)),
)
def test_a_token_for_another_time_audience_or_issuer_is_rejected(send, signer, claims):
    assert send(signer.token("storage.read:/", **claims), "GET", "/vo/in/file") == 401


def test_a_token_with_a_wrong_signature_is_rejected_and_no_token_is_logged(send, signer, tmp_path):
    token = signer.token("storage.read:/")
    stranger = Signer(tmp_path / "stranger").token("storage.read:/")
    assert send(stranger, "GET", "/vo/in/file") == 401
    assert send(token + "A", "GET", "/vo/in/file") == 401
    assert send("", "GET", "/vo/in/file") == 401
    assert send(token, "GET", "/vo/in/file") == 200
    wait_until(lambda: send.server.events("transfer"), "the line of the transfer", 10)
    output = send.server.events("transfer")
    assert [event["user"] for event in output] == ["ann"]
    assert token.rpartition(".")[2] not in str(output)


def test_a_duplicate_issuer_is_rejected(engine, signer, tmp_path):
    entry = json.loads(signer.issuers.read_text())[0] | {"keys": str(signer.issuers.with_name("keys.json"))}
    (tmp_path / "issuers").write_text(json.dumps([entry, entry | {"path": "/other"}]))
    arguments = ["--http", "127.0.0.1:0", "--issuers", tmp_path / "issuers"]
    done = subprocess.run(
        [engine, "serve", tmp_path, *arguments], capture_output=True, text=True, check=False, timeout=20
    )
    assert done.returncode == 1
    assert f"found `{ISSUER}` twice" in done.stderr
