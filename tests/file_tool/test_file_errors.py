"""Errors have kinds, every wait has a timeout, and weak credentials are reported before the first write."""

import base64
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import existingkit
import pytest
from filekit import PASSWORD, batch, call, error, ftp_with_password

from testkit import free_port, needs_programs, needs_root, throwaway_certificates
from venturi.testbed.pki import Pki

SCHEMES = ("ftp", "gsiftp", "http", "s3", "sftp", "root", "srm")
KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}
PROGRAMS = {"sftp": "ssh", "root": "xrdfs", "srm": "gfal-stat"}


@pytest.fixture(scope="module")
def user(tmp_path_factory):
    """Environment of a user with all kinds of credentials."""
    pki = Pki(tmp_path_factory.mktemp("pki"))
    return KEYS | pki.client_environment()


def url_of(scheme, port, path="/dir/file"):
    return f"{scheme}://127.0.0.1:{port}{'/' if scheme == 'root' else ''}{path}"


def skip_without_program(scheme):
    if scheme in PROGRAMS and shutil.which(PROGRAMS[scheme]) is None:
        pytest.skip(f"not installed: {PROGRAMS[scheme]}")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_closed_port_is_reported(scheme, user):
    skip_without_program(scheme)
    kind, message = error("stat", url_of(scheme, free_port()), "--timeout", 20, environment=user)
    assert kind == "refused", message
    assert message.startswith(f"{scheme}://127.0.0.1:") and "cannot read the metadata" in message


@pytest.mark.parametrize("scheme", SCHEMES)
def test_an_unknown_host_is_unresolved(scheme, user):
    skip_without_program(scheme)
    slash = "/" if scheme == "root" else ""
    kind, message = error("stat", f"{scheme}://nowhere.invalid{slash}/dir/file", "--timeout", 20, environment=user)
    assert kind == "unresolved", message


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_silent_server_times_out_and_no_program_survives(scheme, user):
    """The port accepts connections but never sends a byte."""
    skip_without_program(scheme)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        started_s = time.monotonic()
        kind, message = error("stat", url_of(scheme, port), "--timeout", 2, environment=user)
        assert kind == "timeout", message
        assert time.monotonic() - started_s < 60
        assert [line for line in command_lines() if str(port) in line and "pytest" not in line] == []


@pytest.mark.parametrize("scheme", PROGRAMS)
def test_a_missing_program_is_not_reported_as_a_missing_file(scheme, user, tmp_path):
    """Otherwise, a file would count as removed."""
    kind, message = error("stat", url_of(scheme, 1), environment=user | {"PATH": str(tmp_path)})
    assert kind == "unsupported" and "install the package" in message


def command_lines():
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found.append((directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found


@pytest.mark.parametrize(("status", "kind"), [
    (401, "permission"), (403, "permission"), (404, "not_found"), (429, "throttled"), (500, "other"), (503, "throttled"),
    (507, "no_space"),
])  # fmt: skip
def test_each_http_status_has_an_error_kind_after_one_attempt(status, kind):
    requests = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_PROPFIND(self):
            requests.append(self.command)
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_PROPFIND

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            url = f"dav://127.0.0.1:{server.server_port}/x"
            assert error("stat", url)[0] == kind
        finally:
            server.shutdown()
    assert requests == (["PROPFIND", "HEAD"] if status == 404 else ["PROPFIND"])


@needs_root
@pytest.mark.parametrize(
    "start", [ftp_with_password, existingkit.webdav, existingkit.sftp], ids=lambda it: it.__name__
)
def test_a_full_disk_is_reported_and_leaves_no_partial_file(start):
    with existingkit.servers(start) as (server,):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=777", "full", server.root], check=True)
        try:
            url = f"{server.url.removesuffix('/')}/large"
            kind, message = error("create", url, "--size-bytes", 8_000_000, environment=server.environment)
            # OpenSSH reports every system error as `Failure`, and pyftpdlib has its own text.
            assert kind == "no_space" or "ailure" in message or "426" in message, (kind, message)
            assert server.files() == []
        finally:
            subprocess.run(["umount", "--lazy", server.root], check=True)


def test_a_wrong_password_is_a_permission_error(tmp_path):
    with existingkit.servers(ftp_with_password) as (server,):
        wrong = tmp_path / "netrc"
        wrong.write_text("machine 127.0.0.1 login user password wrong\n")
        kind, message = error("stat", server.url, environment={"NETRC": str(wrong)})
        assert kind == "permission" and "wrong" not in message
        url = server.url.replace("user@", f"user:{PASSWORD}@")
        (line,) = batch([{"id": 1, "command": "list", "url": url}])
        assert line == {"id": 1, "entries": []}
        missing = url.removesuffix("/") + "/none"
        assert PASSWORD not in error("stat", missing)[1]


def test_a_wrong_s3_key_is_a_permission_error(tmp_path):
    from s3kit import s3_server

    with s3_server(tmp_path, "bucket") as server:
        credentials = tmp_path / "credentials"
        own = server.environment
        text = "[default]\naws_access_key_id = {AWS_ACCESS_KEY_ID}\naws_secret_access_key = {key}\n"
        credentials.write_text(text.format(key="0" * 40, **own))
        files = {"AWS_SHARED_CREDENTIALS_FILE": str(credentials)}
        kind, message = error("list", f"{server.url}/bucket", environment=files)
        assert kind == "permission" and "check the keys" in message
        assert own["AWS_SECRET_ACCESS_KEY"] not in message
        credentials.write_text(text.format(key=own["AWS_SECRET_ACCESS_KEY"], **own))
        assert call("list", f"{server.url}/bucket", environment=files) == []
    kind, message = error("stat", f"s3://127.0.0.1:{free_port()}/b/k")
    assert kind == "permission" and "AWS_ACCESS_KEY_ID" in message


def token(scope, **claims):
    """Return an unsigned token: the client does not verify it."""
    known = {"iss": "https://issuer.test/", "aud": "any", "exp": int(time.time()) + 3600} | claims
    parts = [{"alg": "none"}, known | ({} if scope is None else {"scope": scope})]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, "c2ln"])


@pytest.mark.parametrize(("scope", "create", "remove"), [
    ("storage.modify:/", True, True),
    ("storage.read:/ storage.modify:/ openid", True, True),
    ("storage.create:/", True, False),
    ("storage.read:/", False, False),
    ("storage.modify:/elsewhere", False, False),
    ("storage.create:/data", None, False),
])  # fmt: skip
def test_a_weak_token_is_reported_without_any_contact(scope, create, remove):
    url = f"davs://127.0.0.1:{free_port()}/vo/data"
    (found,) = call("access", url, environment={"BEARER_TOKEN": token(scope)})
    assert (found["create"], found["remove"], found["by"]) == (create, remove, "token")
    assert (found["detail"] is None) == (create is True and remove is True)
    assert found["valid_until_s"] > time.time()


def test_a_path_below_an_unknown_base_is_probed():
    """The scope matches if the base of the server is `/vo`. Only a probe can decide, and no server listens here."""
    kind, _ = error(
        "access",
        f"dav://127.0.0.1:{free_port()}/vo/data",
        environment={"BEARER_TOKEN": token("storage.modify:/data")},
    )
    assert kind == "refused"


def test_an_expired_token_is_reported_without_any_contact(tmp_path):
    expired = tmp_path / "token"
    expired.write_text(token("storage.modify:/", exp=1_000_000_000))
    kind, message = error(
        "access", f"davs://127.0.0.1:{free_port()}/", environment={"BEARER_TOKEN_FILE": str(expired)}
    )
    assert kind == "permission" and "09 Sep 2001" in message and expired.read_text() not in message


@needs_programs("globus-gridftp-server", "openssl")
def test_an_expired_proxy_is_reported_without_any_contact(tmp_path):
    pki = Pki(tmp_path / "pki")
    expired = pki.proxy(lifetime_s=-60, path=tmp_path / "expired")
    own = pki.client_environment() | {"X509_USER_PROXY": str(expired)}
    for scheme in ("gsiftp", "davs"):
        kind, message = error("access", f"{scheme}://localhost:{free_port()}/", environment=own)
        assert kind == "permission" and ("expired" in message or "ended" in message), message


def test_a_directory_without_permission_is_found_by_the_probe(engine, tmp_path):
    """A server without `--write` allows nothing."""
    (tmp_path / "data").mkdir()
    with serving(engine, tmp_path / "data", tmp_path) as (url, _):
        (found,) = call("access", url)
        assert (found["create"], found["remove"], found["by"]) == (False, False, "probe")
        assert "request access" in found["detail"]


def test_a_probe_file_that_cannot_be_removed_is_named(tmp_path):
    """The server accepts new files but rejects their removal."""
    with existingkit.servers(ftp_without_removal) as (server,):
        (found,) = call("access", server.url, environment=server.environment)
        assert (found["create"], found["remove"]) == (True, False)
        (left,) = server.files()
        assert left.startswith(".venturi-access-") and left in found["detail"]


def ftp_without_removal(directory, name="append"):
    server = existingkit.Server(directory, name)
    server.url = f"ftp://127.0.0.1:{server.port}/"
    program = (
        "import sys\nfrom pyftpdlib.authorizers import DummyAuthorizer\nfrom pyftpdlib.handlers import FTPHandler\n"
        "from pyftpdlib.servers import FTPServer\nFTPHandler.authorizer = DummyAuthorizer()\n"
        "FTPHandler.authorizer.add_anonymous(sys.argv[1], perm='elrw')\n"
        "FTPServer(('127.0.0.1', int(sys.argv[2])), FTPHandler).serve_forever()\n"
    )
    return server.start([shutil.which("python3"), "-W", "ignore", "-c", program, server.root, str(server.port)])


@contextlib.contextmanager
def serving(engine, directory, logs, *arguments, environment=None):
    """Run `venturi serve` for a block of code; yield its HTTP URL, and its HTTPS URL if there is a certificate."""
    log = logs / "serve.jsonl"
    secure = ["--https", "127.0.0.1:0"] if "--tls-cert" in arguments else []
    command = [engine, "serve", directory, "--http", "127.0.0.1:0", *secure, "--json", *map(str, arguments)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, env=os.environ | (environment or {}))
    try:
        deadline_s = time.monotonic() + 60
        while b"\n" not in log.read_bytes():
            assert process.poll() is None and time.monotonic() < deadline_s
            time.sleep(0.01)
        started = json.loads(log.read_text().splitlines()[0])
        https = [f"davs://localhost:{address.rpartition(':')[2]}" for address in started.get("https", [])]
        yield f"dav://{started['http'][0]}", (https or [None])[0]
    finally:
        process.terminate()
        process.wait(20)


@needs_programs("openssl")
def test_a_token_over_tls_creates_and_removes(engine, tmp_path):
    """The server knows the token. Requests without the token, or without trust in the CA, fail."""
    trust, certificate, key = throwaway_certificates(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "tokens").write_text("secret-of-alice\n")
    (tmp_path / "tokens").chmod(0o600)
    words = ["--write", "--tls-cert", certificate, "--tls-key", key, "--tokens", tmp_path / "tokens"]
    with serving(engine, tmp_path / "data", tmp_path, *words) as (_, url):
        own = {"X509_CERT_DIR": str(trust), "BEARER_TOKEN": "secret-of-alice"}
        call("create", f"{url}/a/file", "--size-bytes", 2_000_000, environment=own)
        assert (tmp_path / "data" / "a" / "file").stat().st_size == 2_000_000
        (found,) = call("checksum", f"{url}/a/file", environment=own)
        assert found["by"] == "server"
        assert error("stat", f"{url}/a/file", environment={"X509_CERT_DIR": str(trust)})[0] == "permission"
        kind, message = error("stat", f"{url}/a/file", environment={"BEARER_TOKEN": "secret-of-alice"})
        assert kind == "permission" and "X509_CERT_DIR" in message
        call("remove", f"{url}/a/file", environment=own)
        call("remove", f"{url}/a", environment=own)
    assert list((tmp_path / "data").iterdir()) == []


def test_a_batch_continues_after_invalid_requests():
    lines = [
        "nonsense",
        json.dumps({"id": "a", "command": "erase", "url": "ftp://h/x"}),
        json.dumps({"id": "b", "command": "stat", "url": "gopher://h/x"}),
        json.dumps({"id": "c", "command": "create", "url": "ftp://h/x"}),
        json.dumps({"id": "d", "command": "stat", "url": f"ftp://127.0.0.1:{free_port()}/x"}),
    ]
    found = call("batch", stdin="\n".join(lines) + "\n")
    assert [(line["id"], line["error"]["kind"]) for line in found] == [
        (None, "invalid"), ("a", "invalid"), ("b", "invalid"), ("c", "invalid"), ("d", "refused"),
    ]  # fmt: skip
    assert re.search("size_bytes", found[3]["error"]["message"])
