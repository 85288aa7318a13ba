"""Secured data connections of `venturi-engine copy`, with a Globus server and proxies of a temporary CA."""

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
"""Descriptor of a block of MODE E that ends its connection and the file (GFD.20)."""


class GsiServer:
    """A Globus server for owners of a certificate of the CA."""

    def __init__(self, directory):
        self.directory, self.log = directory, directory / "control.log"
        pki = Pki(directory / "pki")
        host = pki.host("localhost", ["127.0.0.1"])
        account = "root" if os.geteuid() == 0 else os.environ.get("USER", "")
        self.environment = {**os.environ, **pki.client_environment()}
        given = {"X509_CERT_DIR": str(pki.certificates), "X509_USER_CERT": str(host.certificate), "X509_USER_KEY": str(host.key),
                 "GRIDMAP": str(pki.grid_mapfile(directory / "grid-mapfile", {DEFAULT_USER: account}))}  # fmt: skip
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
        """Return the URL of a file of the directory."""
        return f"gsiftp://localhost:{self.port}{self.directory}/{name}"

    def commands(self, since):
        """Return the commands of clients since the log had `since` characters."""
        lines = self.log.read_text(errors="replace")[since:].splitlines()
        return [line.partition("[CLIENT]: ")[2] for line in lines if "[CLIENT]: " in line]


def _connects(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Yield the server, with the files `file` and `large`."""
    server = GsiServer(tmp_path_factory.mktemp("grid"))
    (server.directory / "file").write_bytes(content("file", SIZE))
    (server.directory / "large").write_bytes(content("large", LARGE))
    yield server
    server.process.terminate()
    server.process.wait(20)


@pytest.mark.parametrize(
    ("words", "printed", "authenticated"),
    [
        ([], {"DCAU A"}, 1),
        (["--data-channel", "authenticated"], {"DCAU A"}, 1),
        (["--data-channel", "safe"], {"DCAU A", "PROT S"}, 1),
        (["--data-channel", "private"], {"DCAU A", "PROT P"}, 1),
        (["--data-channel", "open"], {"DCAU N"}, 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_data_connections_are_secured_as_requested_in_both_directions(
    engine, server, tmp_path, words, printed, authenticated
):
    for streams in ([], ["--streams", "3"]):
        since = server.log.stat().st_size
        there = server.url(f"copy-{tmp_path.name}")
        options = [*words, *streams, "--existing", "replace", "-T"]
        output = events(engine, *options, server.url("file"), str(tmp_path / "down"), env=server.environment)
        copy(engine, *options, str(tmp_path / "down"), there, env=server.environment)
        assert (server.directory / f"copy-{tmp_path.name}").read_bytes() == content("file", SIZE)
        decided = {event["setting"]: event["value"] for event in output if event["event"] == "decision"}
        assert decided["authenticated"] == authenticated
        found = {command for command in server.commands(since) if command[:4] in ("DCAU", "PROT")}
        assert found == printed


def test_foreign_connections_to_the_port_of_a_download_change_nothing(engine, server, tmp_path):
    strangers = []

    def come():
        port = None if strangers else _port_of_listener(copying.pid)
        for printed in (
            b"",
            EOF_AND_EOD + (9).to_bytes(8) + bytes(8) + b"not yours",
            b"\x16\x03\x01\x00\x05hello",
            bytes(70_000),
        ):
            if port is not None:
                strangers.append(socket.create_connection(("127.0.0.1", port), 5))
                strangers[-1].sendall(printed)

    relay = _Relay(server.port, come)
    url = server.url("large").replace(f":{server.port}/", f":{relay.server_address[1]}/")
    copying = subprocess.Popen(
        [engine, "copy", "--fixed", "--json", url, str(tmp_path / "large")],
        env=server.environment,
        stdout=subprocess.PIPE,
    )
    with relay:
        output = [json.loads(line) for line in copying.communicate(timeout=60)[0].splitlines()]
    assert len(strangers) == 4
    # Open data connections transfer some bytes twice, because the transfer restarts.
    assert (copying.returncode, output[-1]["moved_bytes"]) == (0, LARGE)
    assert (tmp_path / "large").read_bytes() == content("large", LARGE)
    for stranger in strangers:
        stranger.close()


class _Relay(socketserver.ThreadingTCPServer):
    """Relay between clients and a server that calls `before` ahead of each command."""

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
            while printed := client.recv(1 << 16):
                self.before()
                there.sendall(printed)

    @staticmethod
    def _pass_back(there, client):
        with contextlib.suppress(OSError):  # the client has disconnected
            while printed := there.recv(1 << 16):
                client.sendall(printed)


def _port_of_listener(process):
    """Return the port of a listening process, or None."""
    sockets = set()
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        with contextlib.suppress(OSError):  # it was closed in the meantime
            sockets.add(str(descriptor.readlink()))
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
            return int(words[1].partition(":")[2], 16)
    return None


def test_data_channel_protection_without_gridftp_is_rejected(engine, tmp_path):
    for words, output in (
        (["--data-channel", "private", "ftp://127.0.0.1:1/x", "y"], "expected gsiftp for every server"),
        (["--data-channel", "open", "ftp://127.0.0.1:1/x", "y"], "expected gsiftp for every server"),
        (["--data-channel", "safe", "gsiftp://localhost:1/x", "ftp://127.0.0.1:1/"], "found ftp://127.0.0.1:1/"),
        (["--data-channel", "open", "x", "y"], "expected a GridFTP server"),
        (["--data-channel", "safe", "https://127.0.0.1:1/x", "y"], "expected a GridFTP server"),
    ):
        (tmp_path / "x").touch()
        printed = copy(engine, *words, code=1, cwd=tmp_path).stderr.decode()
        assert output in printed and "--data-channel" in printed, printed
