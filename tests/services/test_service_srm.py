"""Our SRM server, used by gfal2, the client that the grid has for it: over httpg, with files moved by GridFTP servers."""

import os
import re
import shutil
import signal
import sys
import threading

import pytest
from bare import check_nothing_left, lacking, wait_until_ready
from interop_gfal import died_at_its_end, sha256_of

from testkit import wait_until
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
    source, sink = lab.place("disk"), lab.place("sink", "b")
    for left in (*source.iterdir(), *sink.iterdir()):
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    (source / "file").write_bytes(os.urandom(SIZE))
    rooms = [
        lab.room("ftp-a", "gridftp", places=["disk"], auth="gsi", ports=(2811, 2812)),
        lab.room("ftp-b", "gridftp", "b", places=["sink"], auth="gsi"),
        lab.room("srm-a", "srm", places=["disk"], doors="ftp-a"),
        lab.room("srm-b", "srm", "b", places=["sink"], doors="ftp-b", answer="queued"),
    ]
    for room in rooms:
        for old in room.folder.iterdir():
            old.unlink()
    yield Grid(lab, source, sink, *rooms)
    check_nothing_left(lab)


class Grid:
    def __init__(self, lab, source, sink, ftp_a, ftp_b, srm_a, srm_b):
        self.lab, self.source, self.sink = lab, source, sink
        self.ftp_a, self.ftp_b, self.srm_a, self.srm_b = ftp_a, ftp_b, srm_a, srm_b

    def url(self, room, path):
        return SERVICES["srm"].doors(room.spec, room.host_name)["srm"].format(port=8446, path=path)

    def gfal(self, tool, *arguments, status=0, **environment):
        known = {"GFAL_PYTHONBIN": "/usr/bin/python3", **environment}
        done = self.lab.run("c", f"gfal-{tool}", *arguments, environment=known)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def copy(self, arrived, *arguments):
        """Have gfal-copy move the file, and see that it comes whole."""
        argv = ["gfal-copy", "-f", *map(str, arguments)]
        done = self.lab.run("c", *argv, environment={"GFAL_PYTHONBIN": "/usr/bin/python3"})
        spared = died_at_its_end(argv, done.returncode, arrived, sha256_of(self.source / "file"))
        assert done.returncode == 0 or spared, (done.returncode, done.stdout + done.stderr)
        assert arrived.read_bytes() == (self.source / "file").read_bytes()

    def gate(self, rules):
        done = self.lab.run("a", "nft", rules)
        assert done.returncode == 0, done.stderr

    def requests(self, room):
        """Operations that were asked for, by others than the readiness check."""
        return [one for one in read_log(request_log(room)) if one.event == "request" and one.connection > 0]


def test_files_are_listed_fetched_stored_and_removed(grid):
    with grid.lab.running(grid.ftp_a), grid.lab.running(grid.srm_a):
        url, copy = grid.url(grid.srm_a, grid.source / "file"), grid.lab.folder / "copy"
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
        refused = grid.gfal("ls", grid.url(grid.srm_a, "/etc/passwd"), status=13)
        assert "SRM_AUTHORIZATION_FAILURE" in refused
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


def test_a_copy_between_two_sites_goes_from_door_to_door_and_queues_where_the_server_says_so(grid):
    with (
        grid.lab.running(grid.ftp_a),
        grid.lab.running(grid.ftp_b),
        grid.lab.running(grid.srm_a),
        grid.lab.running(grid.srm_b),
    ):
        urls = [grid.url(grid.srm_a, grid.source / "file"), grid.url(grid.srm_b, grid.sink / "file")]
        grid.copy(grid.sink / "file", "-n", "2", *urls)
        moved = [one for room in (grid.ftp_a, grid.ftp_b) for one in SERVICES["gridftp"].transfers(room)]
        assert {(one.command, one.file_bytes) for one in moved} == {("RETR", SIZE), ("STOR", SIZE)}
    asked = [(one.operation, one.status) for one in grid.requests(grid.srm_b) if "Put" in one.operation]
    assert asked == [
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


def test_a_user_who_is_not_in_the_mapfile_is_refused_with_the_right_status(grid):
    with grid.lab.running(grid.ftp_a), grid.lab.running(grid.srm_a):
        proxy = grid.lab.pki.proxy("Other User")
        said = grid.gfal("ls", grid.url(grid.srm_a, grid.source / "file"), status=13, X509_USER_PROXY=str(proxy))
        assert "SRM_AUTHORIZATION_FAILURE" in said
        assert "/O=Venturi/CN=Other User" in said


def test_an_expired_proxy_and_a_stranger_do_not_get_past_the_handshake(grid, tmp_path):
    with grid.lab.running(grid.ftp_a), grid.lab.running(grid.srm_a):
        expired = grid.lab.pki.proxy(lifetime_s=-60, path=grid.lab.folder / "expired")
        grid.gfal("ls", grid.url(grid.srm_a, grid.source / "file"), status=70, X509_USER_PROXY=str(expired))
        stranger = Pki(grid.lab.folder / "stranger").proxy()
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
def test_a_server_that_was_killed_in_the_middle_of_an_upload_takes_its_end_after_it_has_started_again(grid):
    service, room = SERVICES["srm"], grid.srm_a
    with grid.lab.running(grid.ftp_a):
        service.configure(room)
        processes = list(service.start(room))
        wait_until_ready(service, room, processes)
        came = threading.Event()
        urls = [f"file://{grid.source}/file", grid.url(room, grid.source / "up")]
        client = threading.Thread(target=lambda: (grid.copy(grid.source / "up", *urls), came.set()))
        try:
            # Data has no way until the server is back: nothing depends on who is quicker.
            grid.gate("add table inet gate; add chain inet gate in { type filter hook input priority 0; }; "
                      "add rule inet gate in tcp dport 2811-2812 drop")  # fmt: skip
            client.start()
            wait_until(lambda: any(one.operation == "srmPrepareToPut" for one in grid.requests(room)), "an upload")
            processes.pop().stop(signal=signal.SIGKILL)
            processes += service.start(room)
            wait_until_ready(service, room, processes)
        finally:
            grid.gate("delete table inet gate")
            client.join(60)
            service.stop(room, processes)
    assert came.is_set(), "the client failed"
    done = [one for one in read_log(request_log(grid.srm_a)) if one.operation == "srmPutDone"]
    assert [one.status for one in done] == ["SRM_SUCCESS"]


def test_with_restart_a_killed_server_is_back_by_itself(grid):
    room = grid.lab.room("srm-r", "srm", places=["disk"], doors="ftp-a", restart=True)
    service = SERVICES["srm"]
    with grid.lab.running(grid.ftp_a), grid.lab.running(room):
        starts = re.findall(r'"pid": (\d+)', request_log(room).read_text())
        keeper = {pid for pid, name in grid.lab.processes().items() if name.startswith("python")}
        assert len(keeper) == 2
        os.kill(max(keeper), signal.SIGKILL)
        wait_until(
            lambda: len(re.findall(r'"pid": (\d+)', request_log(room).read_text())) > len(starts), "a second start"
        )
        wait_until(lambda: service.ready(room) is None, "an answer")


def test_a_delegated_credential_is_asked_for_and_taken(grid, tmp_path):
    with grid.lab.running(grid.ftp_a), grid.lab.running(grid.srm_a):
        environment = {"DELEGATE": str(grid.lab.folder / "delegate.py")}
        (grid.lab.folder / "delegate.py").write_text(DELEGATE)
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


def test_without_doors_or_with_ones_that_serve_other_places_it_does_not_start(grid):
    grid.lab.place("elsewhere")
    for options, why in (({}, "name services"), ({"doors": "ftp-b"}, "serve disk")):
        room = grid.lab.room("srm-x", "srm", places=["disk"], **options)
        with pytest.raises(BackendError, match=why):
            Srm().configure(room)


# What a client of GSI does that delegates: after D a certificate request in DER, signed as a proxy by its own key; here with openssl.
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


def test_a_gfal2_that_does_not_speak_srm_is_told_with_its_package_before_anything_starts(lab, monkeypatch):
    lab.place("unspoken")
    room = lab.room("unspoken", "srm", places=["unspoken"], doors="unspoken")
    # What it prints where only the package of files is installed.
    monkeypatch.setattr("venturi.testbed.services.srm.ASK", ("echo", "file-2.21.3"))
    with pytest.raises(
        BackendError, match=r"expected gfal2 on a to speak SRM, .* install the Debian package gfal2-plugin-srm"
    ):
        Srm().configure(room)
