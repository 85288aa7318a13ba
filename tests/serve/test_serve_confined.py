"""A server for some directories (``--only``) and some addresses (``--allow``) rejects all others."""

import contextlib
import ftplib
import http.client
import socket
import ssl
import subprocess

import pytest
from servekit import serving
from webkit import web

from testkit import wait_until
from venturi.testbed.pki import Pki


@pytest.fixture
def tree(tmp_path):
    """Create a directory tree; tests serve only ``a`` and ``b/c``."""
    for name in ("a", "b/c", "other"):
        (tmp_path / "tree" / name).mkdir(parents=True)
    for name in ("a/file", "b/c/file", "b/secret", "other/secret"):
        (tmp_path / "tree" / name).write_text(name)
    return tmp_path / "tree"


@contextlib.contextmanager
def login(server, source="127.0.0.1"):
    with contextlib.closing(ftplib.FTP(timeout=20)) as link:
        # `connect` of ftplib leaves the socket open if the server rejects it.
        link.sock = socket.create_connection(("127.0.0.1", server.port), 20, (source, 0))
        link.af, link.file = link.sock.family, link.sock.makefile("r", encoding="latin-1")
        link.getresp()
        link.login()
        yield link


def test_the_only_option_keeps_ftp_urls_absolute_and_rejects_other_paths(engine, tree, tmp_path):
    arguments = ["--write", "--only", tree / "a", "--only", tree / "b/c"]
    with serving(engine, "/", tmp_path, *arguments) as server, login(server) as link:
        for name in ("a/file", "b/c/file"):
            got = []
            link.retrbinary(f"RETR {tree / name}", got.append)
            assert b"".join(got).decode() == name
        link.mkd(str(tree / "a/new"))
        assert (tree / "a/new").is_dir()
        rejected = [
            f"RETR {tree / 'b/secret'}",
            f"RETR {tree / 'other/secret'}",
            "RETR /etc/passwd",
            f"STOR {tree / 'other/new'}",
            f"DELE {tree / 'b/secret'}",
            f"RMD {tree / 'b/c'}",
            f"RETR {tree / 'a/../other/secret'}",
            f"MKD {tree}/other/new",
        ]
        for command in rejected:
            with pytest.raises(ftplib.error_perm, match=r"^5"):
                link.transfercmd(command).close() if command[:4] in ("RETR", "STOR") else link.sendcmd(command)
        # Some clients create all directories of a path, so errors for existing ones must state that they exist.
        for parent in reversed((tree / "a/new").parents):
            with pytest.raises(ftplib.error_perm, match="exists"):
                link.mkd(str(parent))
        link.cwd(str(tree))
        with pytest.raises(ftplib.error_perm):
            link.nlst(str(tree))
        assert sorted(link.nlst(str(tree / "b/c"))) in (["file"], [str(tree / "b/c/file")])
    assert {path.name for path in tree.rglob("secret")} == {"secret"}
    assert not (tree / "other/new").exists()


def test_the_only_option_rejects_other_paths_over_http(engine, tree, tmp_path):
    with web(engine, "/", tmp_path, "--write", "--only", tree / "a", "--only", tree / "b/c") as server:
        assert server.send("GET", f"{tree}/a/file")[2] == b"a/file"
        assert server.send("PUT", f"{tree}/b/c/new", b"1")[0] == 201
        for method, path in [
            ("GET", "/etc/passwd"),
            ("GET", f"{tree}/b/secret"),
            ("PUT", f"{tree}/other/new"),
            ("DELETE", f"{tree}/other/secret"),
            ("DELETE", f"{tree}/a"),
            ("PROPFIND", f"{tree}/other"),
            ("PROPFIND", f"{tree}/b"),
            ("MKCOL", f"{tree}/other/new"),
        ]:
            fields = {"Depth": "1"} if method == "PROPFIND" else {}
            status = server.send(method, path, b"1" if method == "PUT" else None, **fields)[0]
            assert status in (403, 404, 405, 409), (method, path)
        assert (tree / "other/secret").exists()
        assert not (tree / "other/new").exists()
        assert (tree / "a/file").exists()


def test_the_only_option_rejects_a_missing_directory(engine, tree):
    done = subprocess.run(
        [engine, "serve", tree, "--only", "missing"], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 1
    assert "missing: expected a directory in the served one" in done.stderr
    assert "--only" in done.stderr


def test_only_allowed_addresses_get_a_session(engine, tree, tmp_path):
    with serving(engine, tree, tmp_path, "--allow", "127.0.0.1", "--allow", "127.0.9.0/24") as server:
        for source in ("127.0.0.1", "127.0.9.77"):
            with login(server, source) as link:
                assert link.pwd() == "/"
        for source in ("127.0.0.10", "127.0.8.255"):
            rejected = pytest.raises(ftplib.error_temp, match="421 this server does not accept your address")
            with rejected, login(server, source):
                pass
        # The server sends its reply before it prints the event.
        wait_until(lambda: len(server.events("refused")) == 2, "both events")
        (first, second) = server.events("refused")
        assert (first["peer"].rpartition(":")[0], second["reason"]) == (
            "127.0.0.10",
            "this server does not accept your address",
        )


def test_foreign_addresses_are_rejected_over_http_and_get_no_handshake_over_https(engine, tree, tmp_path):
    pki = Pki(tmp_path / "pki")
    host = pki.host("localhost", ["127.0.0.1"])
    secure = ["--https", "127.0.0.1:0", "--tls-cert", host.certificate, "--tls-key", host.key]
    with web(engine, tree, tmp_path, *secure, "--allow", "127.0.0.1") as server:
        started = server.events("start")[0]
        ports = {kind: int(started[kind][0].rpartition(":")[2]) for kind in ("http", "https")}
        for source, status in (("127.0.0.1", 200), ("127.0.0.2", 403)):
            link = http.client.HTTPConnection("127.0.0.1", ports["http"], timeout=20, source_address=(source, 0))
            link.request("GET", "/a/file")
            assert link.getresponse().status == status
            link.close()
        context = ssl.create_default_context(cafile=pki.authority)
        with (
            socket.create_connection(("127.0.0.1", ports["https"]), 20) as link,
            context.wrap_socket(link, server_hostname="localhost") as secured,
        ):
            assert secured.version() == "TLSv1.3"
        with (
            socket.create_connection(("127.0.0.1", ports["https"]), 20, ("127.0.0.2", 0)) as link,
            pytest.raises(OSError),
        ):
            context.wrap_socket(link, server_hostname="localhost")
