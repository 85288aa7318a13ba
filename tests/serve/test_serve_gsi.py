"""Users with certificates: the client of the Globus Toolkit, with proxies of a temporary CA."""

import ftplib
import os
import socket
import subprocess
import time

import pytest
from interop_gfal import crashed_on_exit, sha256_of
from servekit import SIZES, content, fill, leftovers, logged_in, run, serving

from testkit import needs_programs
from venturi.testbed.pki import Pki

USER = "Ann Onymous"

pytestmark = needs_programs("globus-url-copy", "openssl")


@pytest.fixture(scope="module")
def grid(engine, tmp_path_factory):
    """A server for users with certificates, and the environment of one of the users."""
    directory = tmp_path_factory.mktemp("grid")
    served = directory / "served"
    served.mkdir()
    fill(served)
    pki = Pki(directory / "pki")
    host = pki.host("localhost", ["127.0.0.1"])
    pki.grid_mapfile(directory / "grid-mapfile", {USER: "ann"})
    arguments = ["--cert", host.certificate, "--key", host.key, "--ca-dir", pki.certificates]
    arguments += ["--grid-mapfile", directory / "grid-mapfile", "--write"]
    with serving(engine, served, directory, *map(str, arguments)) as server:
        yield server, {**os.environ, **pki.client_environment(USER)}


def gsi_url(server):
    return f"gsiftp://localhost:{server.port}"


@pytest.mark.parametrize(
    "options",
    [["-nodcau"], [], ["-p", "4"], ["-dcsafe", "-p", "2"], ["-dcpriv", "-p", "2"], ["-dcpriv"], ["-fast", "-p", "2"]],
    ids=lambda options: " ".join(options) or "dcau",
)
def test_globus_url_copy_reads_and_writes_with_every_data_channel_protection(grid, tmp_path, options):
    server, environment = grid
    fill(tmp_path, "up-")
    for name in ("empty", "one", "large"):
        run("globus-url-copy", *options, f"{gsi_url(server)}/{name}", f"file://{tmp_path}/{name}", env=environment)
        up = f"up-{name}"
        run("globus-url-copy", *options, f"file://{tmp_path}/{up}", f"{gsi_url(server)}/{up}", env=environment)
        assert (tmp_path / name).read_bytes() == content(name, SIZES[name])
        assert (server.directory / up).read_bytes() == content(up, SIZES[name])
    assert leftovers(server.directory) == []
    assert server.transfers(1, path="/large", command="RETR")[-1]["user"] == "ann"


@needs_programs("gfal-copy")
def test_gfal_copy_reads_and_writes(grid, tmp_path):
    server, environment = grid
    environment = {**environment, "GFAL_PYTHONBIN": "/usr/bin/python3"}
    here, existing, url = tmp_path / "large", server.directory / "gfal", gsi_url(server)
    whole = sha256_of(server.directory / "large")

    def copy(arrived, *arguments):
        argv = ["gfal-copy", "-f", *arguments]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
        spared = crashed_on_exit(argv, done.returncode, arrived, whole)
        assert done.returncode == 0 or spared, (done.returncode, done.stdout, done.stderr)
        assert sha256_of(arrived) == whole

    copy(here, f"{url}/large", f"file://{here}")
    copy(existing, "-K", "adler32", f"file://{here}", f"{url}/gfal")


def test_a_client_without_a_certificate_is_rejected(grid):
    server, _ = grid
    for user in ("anonymous", "ann", ":globus-mapping:"):
        with pytest.raises(ftplib.error_perm, match=r"^530"), logged_in(server, user):
            pass


def test_a_user_missing_from_the_grid_mapfile_is_rejected(engine, tmp_path):
    pki = Pki(tmp_path / "pki")
    host = pki.host("localhost", ["127.0.0.1"])
    (tmp_path / "map").write_text('"/O=Somebody/CN=Else" bob\n')
    (tmp_path / "file").write_bytes(b"content")
    arguments = [
        "--cert",
        host.certificate,
        "--key",
        host.key,
        "--ca-dir",
        pki.certificates,
        "--grid-mapfile",
        tmp_path / "map",
    ]
    with serving(engine, tmp_path, tmp_path, *map(str, arguments)) as server:
        environment = {**os.environ, **pki.client_environment(USER)}
        done = run("globus-url-copy", f"{gsi_url(server)}/file", f"file://{tmp_path}/got", env=environment, code=1)
        assert "LOGIN_DENIED" in done.stderr or "530" in done.stderr


def test_an_endless_handshake_is_ended(engine, tmp_path):
    pki = Pki(tmp_path / "pki")
    host = pki.host("localhost", ["127.0.0.1"])
    pki.grid_mapfile(tmp_path / "map", {USER: "ann"})
    arguments = ["--cert", host.certificate, "--key", host.key, "--ca-dir", pki.certificates]
    arguments += ["--grid-mapfile", tmp_path / "map", "--login-time", "2"]
    with serving(engine, tmp_path, tmp_path, *map(str, arguments)) as server:
        start = time.monotonic()
        with socket.create_connection(("127.0.0.1", server.port), 20) as link:
            link.sendall(b"AUTH GSSAPI\r\nADAT ")
            with pytest.raises(ConnectionError):
                while time.monotonic() < start + 15:
                    link.sendall(b"A")
                    time.sleep(0.02)
        assert 1.5 < time.monotonic() - start < 10


def test_a_key_readable_by_other_users_is_rejected(engine, tmp_path):
    pki = Pki(tmp_path / "pki")
    host = pki.host("localhost", ["127.0.0.1"])
    (tmp_path / "map").write_text('"/O=Somebody/CN=Else" bob\n')
    key = tmp_path / "key.pem"
    key.write_bytes(host.key.read_bytes())
    key.chmod(0o644)
    arguments = [
        "--cert",
        host.certificate,
        "--key",
        key,
        "--ca-dir",
        pki.certificates,
        "--grid-mapfile",
        tmp_path / "map",
    ]
    done = run(engine, "serve", tmp_path, "--listen", "127.0.0.1:0", *map(str, arguments), code=1)
    assert "expected a private key that only its owner can read" in done.stderr
