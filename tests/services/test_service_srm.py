"""The SRM server of Venturi with gfal2, the usual client of the grid: over httpg, with files moved by GridFTP servers."""

import hashlib
import json
import os
import re
import shutil
import signal
import sys
import threading

import pytest
from bare import check_nothing_left, lacking, wait_until_ready
from interop_gfal import crashed_on_exit, sha256_of

from testkit import wait_until
from venturi.backend.engine import find_engine
from venturi.errors import BackendError
from venturi.srm.log import read_log
from venturi.testbed.pki import Pki
from venturi.testbed.services.srm import Srm, request_log
from venturi.testbed.services.table import SERVICES

PLUGIN = "/usr/lib/x86_64-linux-gnu/gfal2-plugins/libgfal_plugin_srm.so"
REASON = lacking("srm", "gridftp") or (
    None if shutil.which("gfal-copy") and any(map(os.path.exists, [PLUGIN, PLUGIN.replace("x86_64", "aarch64")]))
    else "not installed: gfal2-util-scripts python3-gfal2-util gfal2-plugin-srm gfal2-plugin-gridftp"
)  # fmt: skip
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
SIZE = 300_000
SERVER_PYTHON = [sys.executable, "-I", "-m", "venturi.srm"]


@pytest.fixture
def grid(lab):
    """Two sites: SRM a in front of two GridFTP ports, SRM b in front of one, and a client c."""
    source, sink = lab.storage("disk"), lab.storage("sink", "b")
    for left in (*source.iterdir(), *sink.iterdir()):
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    (source / "file").write_bytes(os.urandom(SIZE))
    contexts = [
        lab.context("ftp-a", "gridftp", storages=["disk"], auth="gsi", ports=(2811, 2812)),
        lab.context("ftp-b", "gridftp", "b", storages=["sink"], auth="gsi"),
        lab.context("srm-a", "srm", storages=["disk"], doors="ftp-a"),
        lab.context("srm-b", "srm", "b", storages=["sink"], doors="ftp-b", answer="queued"),
    ]
    for context in contexts:
        for old in context.directory.iterdir():
            old.unlink()
    yield Grid(lab, source, sink, *contexts)
    check_nothing_left(lab)


class Grid:
    def __init__(self, lab, source, sink, ftp_a, ftp_b, srm_a, srm_b):
        self.lab, self.source, self.sink = lab, source, sink
        self.ftp_a, self.ftp_b, self.srm_a, self.srm_b = ftp_a, ftp_b, srm_a, srm_b

    def url(self, context, path):
        return SERVICES["srm"].service_ports(context.spec, context.host_name)["srm"].format(port=8446, path=path)

    def gfal(self, tool, *arguments, status=0, **environment):
        known = {"GFAL_PYTHONBIN": "/usr/bin/python3", **environment}
        done = self.lab.run("c", f"gfal-{tool}", *arguments, environment=known)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def copy(self, arrived, *arguments):
        """Copy the file with gfal-copy, and check that it arrives complete."""
        argv = ["gfal-copy", "-f", *map(str, arguments)]
        done = self.lab.run("c", *argv, environment={"GFAL_PYTHONBIN": "/usr/bin/python3"})
        spared = crashed_on_exit(argv, done.returncode, arrived, sha256_of(self.source / "file"))
        assert done.returncode == 0 or spared, (done.returncode, done.stdout + done.stderr)
        assert arrived.read_bytes() == (self.source / "file").read_bytes()

    def gate(self, rules):
        done = self.lab.run("a", "nft", rules)
        assert done.returncode == 0, done.stderr

    def requests(self, context):
        """Requested operations, without those of the readiness check."""
        return [one for one in read_log(request_log(context)) if one.event == "request" and one.connection > 0]


def test_files_are_listed_fetched_stored_and_removed(grid):
    with grid.lab.running(grid.ftp_a), grid.lab.running(grid.srm_a):
        url, copy = grid.url(grid.srm_a, grid.source / "file"), grid.lab.directory / "copy"
        assert re.search(rf" {SIZE} .*file", grid.gfal("ls", "-l", grid.url(grid.srm_a, grid.source)))
        for _ in range(2):
            grid.copy(copy, "-n", "2", url, f"file://{copy}")
        grid.copy(grid.source / "up", f"file://{copy}", grid.url(grid.srm_a, grid.source / "up"))
        grid.gfal("mkdir", "-p", grid.url(grid.srm_a, grid.source / "one" / "two"))
        assert (grid.source / "one" / "two").is_dir()
        grid.gfal("rm", grid.url(grid.srm_a, grid.source / "up"))
        grid.gfal("rm", "-r", grid.url(grid.srm_a, grid.source / "one"))
        assert sorted(one.name for one in grid.source.iterdir()) == ["file"]
        missing = grid.gfal("ls", grid.url(grid.srm_a, grid.source / "none"), status=2)
        assert "SRM_INVALID_PATH" in missing
        rejected = grid.gfal("ls", grid.url(grid.srm_a, "/etc/passwd"), status=13)
        assert "SRM_AUTHORIZATION_FAILURE" in rejected
    turls = [file.turl for one in grid.requests(grid.srm_a) for file in one.files if file.turl]
    assert [re.search(r":(\d+)/", turl)[1] for turl in turls] == ["2811", "2812", "2811"]
    operations = {one.operation for one in grid.requests(grid.srm_a)}
    assert {
        "srmLs",
        "srmPrepareToGet",
        "srmReleaseFiles",
        "srmPrepareToPut",
        "srmPutDone",
        "srmRm",
        "srmMkdir",
        "srmRmdir",
    } <= operations


def test_a_copy_between_two_sites_uses_their_ftp_servers_and_queues_if_required(
    grid,
):
    with (
        grid.lab.running(grid.ftp_a),
        grid.lab.running(grid.ftp_b),
        grid.lab.running(grid.srm_a),
        grid.lab.running(grid.srm_b),
    ):
        urls = [grid.url(grid.srm_a, grid.source / "file"), grid.url(grid.srm_b, grid.sink / "file")]
        grid.copy(grid.sink / "file", "-n", "2", *urls)
        moved = [one for context in (grid.ftp_a, grid.ftp_b) for one in SERVICES["gridftp"].transfers(context)]
        assert {(one.command, one.file_bytes) for one in moved} == {("RETR", SIZE), ("STOR", SIZE)}
    requested = [(one.operation, one.status) for one in grid.requests(grid.srm_b) if "Put" in one.operation]
    assert requested == [
        ("srmPrepareToPut", "SRM_REQUEST_QUEUED"), ("srmStatusOfPutRequest", "SRM_SUCCESS"), ("srmPutDone", "SRM_SUCCESS")]  # fmt: skip
    lines = list(SERVICES["srm"].control(grid.srm_b))
    assert all(
        line.line.endswith(" s") and "/CN=Lab User authenticated over TLSv1.3" in line.line
        for line in lines
        if line.direction == "note"
    )
    assert any(
        re.fullmatch(r"srmStatusOfPutRequest SRM_SPACE_AVAILABLE srm://\S+ gsiftp://b\S+", line.line)
        for line in lines
    )


def test_a_user_who_is_not_in_the_mapfile_is_rejected_with_the_right_status(grid):
    with grid.lab.running(grid.ftp_a), grid.lab.running(grid.srm_a):
        proxy = grid.lab.pki.proxy("Other User")
        printed = grid.gfal("ls", grid.url(grid.srm_a, grid.source / "file"), status=13, X509_USER_PROXY=str(proxy))
        assert "SRM_AUTHORIZATION_FAILURE" in printed
        assert "/O=Venturi/CN=Other User" in printed


def test_an_expired_proxy_and_a_foreign_proxy_fail_the_handshake(grid, tmp_path):
    with grid.lab.running(grid.ftp_a), grid.lab.running(grid.srm_a):
        expired = grid.lab.pki.proxy(lifetime_s=-60, path=grid.lab.directory / "expired")
        grid.gfal("ls", grid.url(grid.srm_a, grid.source / "file"), status=70, X509_USER_PROXY=str(expired))
        stranger = Pki(grid.lab.directory / "stranger").proxy()
        known = ["8446", "a.lab.test", str(grid.lab.pki.certificates)]
        for credential in (expired, stranger):
            argv = [*SERVER_PYTHON, "ping", "10.77.0.1", *known[:2], str(credential), known[2]]
            assert grid.lab.run("c", *argv).returncode == 1
    reasons = [one.reason for one in read_log(request_log(grid.srm_a)) if one.event == "refused"]
    assert "certificate has expired" in reasons
    assert any("issuer" in reason for reason in reasons)


@pytest.mark.skipif(
    shutil.which("nft", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None, reason="not installed: nftables"
)
def test_an_upload_completes_after_its_killed_server_restarts(grid):
    service, context = SERVICES["srm"], grid.srm_a
    with grid.lab.running(grid.ftp_a):
        service.configure(context)
        processes = list(service.start(context))
        wait_until_ready(service, context, processes)
        came = threading.Event()
        urls = [f"file://{grid.source}/file", grid.url(context, grid.source / "up")]
        client = threading.Thread(target=lambda: (grid.copy(grid.source / "up", *urls), came.set()))
        try:
            # Data connections are blocked until the server is back, so the order of events is deterministic.
            grid.gate("add table inet gate; add chain inet gate in { type filter hook input priority 0; }; "
                      "add rule inet gate in tcp dport 2811-2812 drop")  # fmt: skip
            client.start()
            wait_until(lambda: any(one.operation == "srmPrepareToPut" for one in grid.requests(context)), "an upload")
            processes.pop().stop(signal=signal.SIGKILL)
            processes += service.start(context)
            wait_until_ready(service, context, processes)
        finally:
            grid.gate("delete table inet gate")
            client.join(60)
            service.stop(context, processes)
    assert came.is_set(), "the client failed"
    done = [one for one in read_log(request_log(grid.srm_a)) if one.operation == "srmPutDone"]
    assert [one.status for one in done] == ["SRM_SUCCESS"]


def test_with_restart_a_killed_server_restarts_automatically(grid):
    context = grid.lab.context("srm-r", "srm", storages=["disk"], doors="ftp-a", restart=True)
    service = SERVICES["srm"]
    with grid.lab.running(grid.ftp_a), grid.lab.running(context):
        starts = re.findall(r'"pid": (\d+)', request_log(context).read_text())
        daemons = {pid for pid, name in grid.lab.processes().items() if name.startswith("python")}
        assert len(daemons) == 2
        os.kill(max(daemons), signal.SIGKILL)
        wait_until(
            lambda: len(re.findall(r'"pid": (\d+)', request_log(context).read_text())) > len(starts), "a second start"
        )
        wait_until(lambda: service.ready(context) is None, "an answer")


def test_a_delegated_credential_is_requested_and_accepted(grid, tmp_path):
    with grid.lab.running(grid.ftp_a), grid.lab.running(grid.srm_a):
        environment = {"DELEGATE": str(grid.lab.directory / "delegate.py")}
        (grid.lab.directory / "delegate.py").write_text(DELEGATE)
        known = grid.lab.pki.client_environment()
        user = grid.lab.pki.user("Lab User")
        argv = [
            *SERVER_PYTHON[:2],
            environment["DELEGATE"],
            known["X509_USER_PROXY"],
            known["X509_CERT_DIR"],
            str(user.certificate),
            str(user.key),
        ]
        done = grid.lab.run("c", *argv)
        assert done.stdout == "CN = proxy\nHTTP/1.1 200 OK\n", done.stderr
    assert '"delegated": true' in request_log(grid.srm_a).read_text()


def test_missing_service_ports_and_those_of_other_storages_are_rejected(grid):
    grid.lab.storage("elsewhere")
    for options, why in (({}, "name services"), ({"doors": "ftp-b"}, "serve disk")):
        context = grid.lab.context("srm-x", "srm", storages=["disk"], **options)
        with pytest.raises(BackendError, match=why):
            Srm().configure(context)


# A GSI client that delegates: after D, it receives a certificate request in DER and returns it as a proxy signed with
# its own key. This one uses openssl.
DELEGATE = """
import socket, subprocess, sys
from venturi.srm.httpg import client_context
from venturi.srm.soap import emit_request
proxy, authorities, certificate, key = sys.argv[1:]
link = socket.create_connection(("10.77.0.1", 8446), 60)
tls = client_context(proxy, authorities).wrap_socket(link, server_hostname="a.lab.test")
assert tls.version() == "TLSv1.3" and tls.recv(1) == b"\\0"
tls.sendall(b"D")
request = tls.recv(65536)
about = subprocess.run(["openssl", "req", "-inform", "DER", "-noout", "-subject", "-nameopt", "oneline"], input=request, capture_output=True, check=True)
print(about.stdout.decode().strip().removeprefix("subject=").strip())
argv = ["openssl", "x509", "-req", "-inform", "DER", "-CA", certificate, "-CAkey", key, "-set_serial", "1", "-days", "1", "-outform", "DER"]
tls.sendall(subprocess.run(argv, input=request, capture_output=True, check=True).stdout)
body = emit_request("srmPing", ())
tls.sendall(b"POST /srm/managerv2 HTTP/1.1\\r\\nContent-Length: %d\\r\\nConnection: close\\r\\n\\r\\n" % len(body) + body)
print(tls.makefile("rb").readline().decode().strip())
"""


def test_a_gfal2_without_srm_support_is_reported_with_the_missing_package(lab, monkeypatch):
    lab.storage("unspoken")
    context = lab.context("unspoken", "srm", storages=["unspoken"], doors="unspoken")
    # Output if only the package for files is installed.
    monkeypatch.setattr("venturi.testbed.services.srm.PLUGIN_QUERY", ("echo", "file-2.21.3"))
    with pytest.raises(BackendError, match=r"gfal2 on a .*SRM.* install the Debian package gfal2-plugin-srm"):
        Srm().configure(context)


def test_the_file_command_creates_checks_and_removes_files(grid):
    """`venturi-engine file` on the client's host, with the proxy of the client."""
    engine, made = str(find_engine()), grid.source / "made"

    def call(command, path, *words, code=0):
        environment = {"GFAL_PYTHONBIN": "/usr/bin/python3"}
        url = grid.url(grid.srm_a, path)
        done = grid.lab.run("c", engine, "file", command, url, *map(str, words), environment=environment)
        assert done.returncode == code, done.stdout + done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    with grid.lab.running(grid.ftp_a), grid.lab.running(grid.srm_a):
        (created,) = call("create", made / "file", "--size-bytes", 200_000)
        content = (made / "file").read_bytes()
        assert created["checksums"]["sha256"] == hashlib.sha256(content).hexdigest()
        (found,) = call("stat", made / "file")
        assert (found["kind"], found["size_bytes"]) == ("file", 200_000)
        (entry,) = call("list", made)
        assert (entry["name"], entry["kind"], entry["size_bytes"]) == ("file", "file", 200_000)
        (read,) = call("checksum", made / "file", "--by", "reading")
        assert read["value"] == created["checksums"]["adler32"]
        (rejected,) = call("create", made / "file", "--size-bytes", 1, code=1)
        assert rejected["error"]["kind"] == "exists"
        (rejected,) = call("remove", made, code=1)
        assert rejected["error"]["kind"] == "exists"
        for path in (made / "file", made):
            assert call("remove", path) == [{"removed": True}]
        (missing,) = call("stat", made / "file", code=1)
        assert missing["error"]["kind"] == "not_found"
    assert sorted(one.name for one in grid.source.iterdir()) == ["file"]
