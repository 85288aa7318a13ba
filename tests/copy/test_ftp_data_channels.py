"""Secured data connections of `venturi-engine copy`, with a server of the Globus toolkit and proxies of a throw-away authority."""

import contextlib
import json
import os
import socket
import socketserver
import subprocess
import threading
from pathlib import Path

import pytest
from copykit import copy, events
from ftpkit import content, free_port

from testkit import needs_programs, wait_until
from venturi.testbed.pki import DEFAULT_USER, Pki

pytestmark = needs_programs("globus-gridftp-server", "openssl")

SIZE = 3_000_001
LARGE = 64 << 20
EOF_AND_EOD = bytes([0x40 | 0x08])
"""Descriptor of a block of MODE E that is the last of its connection, and of all (GFD.20)."""


class GsiServer:
    """A server of the Globus toolkit for whoever has a certificate of the authority."""

    def __init__(self, folder):
        self.folder, self.log = folder, folder / "control.log"
        pki = Pki(folder / "pki")
        host = pki.host("localhost", ["127.0.0.1"])
        account = "root" if os.geteuid() == 0 else os.environ.get("USER", "")
        self.environment = {**os.environ, **pki.client_environment()}
        given = {"X509_CERT_DIR": str(pki.certificates), "X509_USER_CERT": str(host.certificate), "X509_USER_KEY": str(host.key),
                 "GRIDMAP": str(pki.grid_mapfile(folder / "grid-mapfile", {DEFAULT_USER: account}))}  # fmt: skip
        self.port = free_port()
        command = [
            "globus-gridftp-server",
            "-c",
            "none",
            "-p",
            str(self.port),
            "-control-interface",
            "127.0.0.1",
            "-data-interface",
            "127.0.0.1",
        ]
        command += [
            "-l",
            str(self.log),
            "-d",
            "ALL",
            "-log-module",
            "stdio:buffer=0",
            *(["-allow-root"] if account == "root" else []),
        ]
        bare = {key: value for key, value in os.environ.items() if key != "X509_USER_PROXY"}
        self.process = subprocess.Popen(command, env={**bare, **given}, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        wait_until(lambda: _connects(self.port), "the server to listen", 20)

    def url(self, name):
        """Return where a file of the folder is."""
        return f"gsiftp://localhost:{self.port}{self.folder}/{name}"

    def commands(self, since):
        """Return what clients have said since the log had so many bytes."""
        lines = self.log.read_text(errors="replace")[since:].splitlines()
        return [line.partition("[CLIENT]: ")[2] for line in lines if "[CLIENT]: " in line]


def _connects(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The server, with a file `file`."""
    server = GsiServer(tmp_path_factory.mktemp("grid"))
    (server.folder / "file").write_bytes(content("file", SIZE))
    (server.folder / "large").write_bytes(content("large", LARGE))
    yield server
    server.process.terminate()
    server.process.wait(20)


@pytest.mark.parametrize(
    ("words", "said", "authenticated"),
    [
        ([], {"DCAU A"}, 1),
        (["--data-channel", "authenticated"], {"DCAU A"}, 1),
        (["--data-channel", "safe"], {"DCAU A", "PROT S"}, 1),
        (["--data-channel", "private"], {"DCAU A", "PROT P"}, 1),
        (["--data-channel", "open"], {"DCAU N"}, 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_data_connections_are_secured_as_was_asked_and_files_go_both_ways(
    engine, server, tmp_path, words, said, authenticated
):
    for streams in ([], ["--streams", "3"]):
        since = server.log.stat().st_size
        there = server.url(f"copy-{tmp_path.name}")
        options = [*words, *streams, "--existing", "replace", "-T"]
        told = events(engine, *options, server.url("file"), str(tmp_path / "down"), env=server.environment)
        copy(engine, *options, str(tmp_path / "down"), there, env=server.environment)
        assert (server.folder / f"copy-{tmp_path.name}").read_bytes() == content("file", SIZE)
        decided = {event["what"]: event["value"] for event in told if event["event"] == "decision"}
        assert decided["authenticated"] == authenticated
        found = {command for command in server.commands(since) if command[:4] in ("DCAU", "PROT")}
        assert found == said


def test_a_stranger_on_the_port_of_a_download_changes_nothing(engine, server, tmp_path):
    strangers = []

    def come():
        port = None if strangers else _port_of_listener(copying.pid)
        for said in (
            b"",
            EOF_AND_EOD + (9).to_bytes(8) + bytes(8) + b"not yours",
            b"\x16\x03\x01\x00\x05hello",
            bytes(70_000),
        ):
            if port is not None:
                strangers.append(socket.create_connection(("127.0.0.1", port), 5))
                strangers[-1].sendall(said)

    relay = _Relay(server.port, come)
    url = server.url("large").replace(f":{server.port}/", f":{relay.server_address[1]}/")
    copying = subprocess.Popen(
        [engine, "copy", "--fixed", "--json", url, str(tmp_path / "large")],
        env=server.environment,
        stdout=subprocess.PIPE,
    )
    with relay:
        told = [json.loads(line) for line in copying.communicate(timeout=60)[0].splitlines()]
    assert len(strangers) == 4
    # With open data connections some bytes move twice here, for the transfer is begun again.
    assert (copying.returncode, told[-1]["moved_bytes"]) == (0, LARGE)
    assert (tmp_path / "large").read_bytes() == content("large", LARGE)
    for stranger in strangers:
        stranger.close()


class _Relay(socketserver.ThreadingTCPServer):
    """Between clients and a server: calls something before each thing that a client says gets there."""

    daemon_threads = True

    def __init__(self, onward, before):
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self.onward, self.before = onward, before

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()

    def finish_request(self, client, _):
        with socket.create_connection(("127.0.0.1", self.onward)) as there:
            threading.Thread(target=self._pass_back, args=(there, client), daemon=True).start()
            while said := client.recv(1 << 16):
                self.before()
                there.sendall(said)

    @staticmethod
    def _pass_back(there, client):
        with contextlib.suppress(OSError):  # the client has gone
            while said := there.recv(1 << 16):
                client.sendall(said)


def _port_of_listener(process):
    """Return the port that a process listens on, if it does."""
    sockets = set()
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):  # it was closed meanwhile
            sockets.add(str(descriptor.readlink()))
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
            return int(words[1].partition(":")[2], 16)
    return None


def test_what_cannot_be_secured_is_refused(engine, tmp_path):
    for words, told in (
        (["--data-channel", "private", "ftp://127.0.0.1:1/x", "y"], "expected gsiftp at every server"),
        (["--data-channel", "open", "ftp://127.0.0.1:1/x", "y"], "expected gsiftp at every server"),
        (["--data-channel", "safe", "gsiftp://localhost:1/x", "ftp://127.0.0.1:1/"], "found ftp://127.0.0.1:1/"),
        (["--data-channel", "open", "x", "y"], "expected a place at a server of GridFTP"),
        (["--data-channel", "safe", "https://127.0.0.1:1/x", "y"], "expected a place at a server of GridFTP"),
    ):
        (tmp_path / "x").touch()
        said = copy(engine, *words, code=1, cwd=tmp_path).stderr.decode()
        assert told in said and "--data-channel" in said, said
