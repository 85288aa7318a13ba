"""Real servers on the loopback interface, for tests of movers: each started when it is first asked for, ended by its PID."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from functools import cached_property
from pathlib import Path

import pytest

from testkit import free_port, make_room_for_sshd
from venturi.testbed.pki import Pki
from venturi.testbed.services import listener

_ROOT = os.geteuid() == 0
_START_S = 20.0
_STATE_LISTEN = "0A"


class Farm:
    """Servers of one folder ``data``, which anybody may read and write; URLs of doors by protocol."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="venturi-farm-"))
        self.folder.chmod(0o755)
        self.data = self.folder / "data"
        self.data.mkdir()
        self.data.chmod(0o777)
        self._processes: list[subprocess.Popen[bytes]] = []

    def close(self) -> None:
        """End all servers and remove the folder."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder)

    def url(self, protocol: str, path: Path | str) -> str:
        """Return the URL of a path through the door of a protocol."""
        return {
            "ftp": lambda: f"ftp://127.0.0.1:{self.gridftp}{path}",
            "root": lambda: f"root://localhost:{self.xrootd[0]}/{path}",
            "http": lambda: f"http://localhost:{self.xrootd[1]}{path}",
            "https": lambda: f"https://localhost:{self.xrootd_tls}{path}",
            "davs": lambda: f"davs://localhost:{self.xrootd_tls}{path}",
            "ssh": lambda: f"ssh://127.0.0.1:{self.sshd}{path}",
            "iperf3": lambda: f"iperf3://127.0.0.1:{self.iperf3}",
            "nuttcp": lambda: f"nuttcp://{self.nuttcp}:5000",
        }[protocol]()

    @cached_property
    def environment(self) -> dict[str, str]:
        """Variables of clients; whatever proxy the environment names leads nowhere."""
        nowhere = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
        return {**nowhere, "GLOBUS_HOSTNAME": "127.0.0.1", "VENTURI_SSH_CONFIG": str(self.folder / "ssh" / "config")}

    @cached_property
    def pki(self) -> Pki:
        """Certificates of the server with TLS and of its user."""
        return Pki(self.folder / "pki")

    @cached_property
    def gridftp(self) -> int:
        """Port of an anonymous GridFTP server."""
        port = free_port()
        account = ("-anonymous-user", "nobody", "-anonymous-group", "nogroup") if _ROOT else ()
        self._start(
            ["globus-gridftp-server", "-p", str(port), "-c", "none", "-aa", *account, "-control-interface", "127.0.0.1",
             "-data-interface", "127.0.0.1"], port,
        )  # fmt: skip
        return port

    @cached_property
    def xrootd(self) -> tuple[int, int]:
        """Ports of an anonymous XRootD server: root and http."""
        port, http = free_port(), free_port()
        self._start_xrootd(
            "plain", port, http, "http.desthttps no\nofs.tpc ttl 60 60 xfr 10 pgm /usr/bin/xrdcp --server\n"
        )
        return port, http

    @cached_property
    def xrootd_tls(self) -> int:
        """Port of HTTPS of an XRootD server with third-party copy, for the user of the lab."""
        port, https = free_port(), free_port()
        host = self.pki.host("localhost", ["127.0.0.1"], owner="xrootd" if _ROOT else None)
        mapped = self.pki.grid_mapfile(self.folder / "grid-mapfile", {"Lab User": "nobody"})
        self.environment.update(self.pki.client_environment())
        self._start_xrootd(
            "tls", port, https,
            f"xrd.tls {host.certificate} {host.key}\nxrd.tlsca certdir {self.pki.certificates}\nhttp.desthttps yes\n"
            f"http.gridmap {mapped}\nhttp.exthandler xrdtpc libXrdHttpTPC.so\ntpc.timeout 60\n",
        )  # fmt: skip
        return https

    @cached_property
    def sshd(self) -> int:
        """Port of an OpenSSH server that lets this account in with a key of its own."""
        folder, port = self.folder / "ssh", free_port()
        folder.mkdir()
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
        make_room_for_sshd()
        (folder / "sshd_config").write_text(
            f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\nStrictModes no\n"
            "PidFile none\nUsePAM no\nPermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\n"
        )
        (folder / "config").write_text(
            f"Host *\n IdentityFile {folder}/user\n IdentitiesOnly yes\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n"
            " LogLevel ERROR\n"
        )
        self._start([shutil.which("sshd") or "/usr/sbin/sshd", "-D", "-e", "-f", str(folder / "sshd_config")], port)
        return port

    @cached_property
    def iperf3(self) -> int:
        """Port of an iperf3 server."""
        port = free_port()
        self._start(["iperf3", "-s", "-B", "127.0.0.1", "-p", str(port)], port)
        return port

    @cached_property
    def nuttcp(self) -> str:
        """Address of nuttcp servers, at their usual port."""
        number = os.getpid()
        address = f"127.{77 + number // 62500 % 100}.{number // 250 % 250}.{1 + number % 250}"
        self._start(
            [sys.executable, "-I", "-S", listener.__file__, address, "5000", "nuttcp", "-S"], 5000, address=address
        )
        return address

    def _start_xrootd(self, name: str, port: int, http: int, more: str) -> None:
        home = self.folder / name
        home.mkdir()
        (home / "cfg").write_text(
            f"all.export {self.data}\nxrd.port {port}\nall.adminpath {home}/adm\nall.pidpath {home}/run\nxrd.protocol XrdHttp:{http} libXrdHttp.so\n"
            f"xrootd.chksum max 2 adler32 md5\nhttp.listingdeny no\n{more}"
        )
        argv = ["xrootd", "-I", "v4", "-c", f"{home}/cfg", "-l", f"{home}/xrootd.log"]
        if _ROOT:
            shutil.chown(home, "xrootd")
            # It must resolve the name of its host.
            argv = ["unshare", "--uts", "sh", "-c", 'hostname localhost; exec "$@"', "sh", *argv, "-R", "xrootd"]
        self._start(argv, http, folder=home, program="xrootd")

    def _start(
        self,
        argv: list[str],
        port: int,
        *,
        folder: Path | None = None,
        program: str | None = None,
        address: str = "127.0.0.1",
    ) -> None:
        program = program or argv[0]
        if shutil.which(program) is None:
            pytest.skip(f"{Path(program).name} is not installed")
        log = self.folder / f"{Path(program).name}-{port}.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, cwd=folder or self.folder
            )
        self._processes.append(process)
        deadline = time.monotonic() + _START_S
        while not listens(port, address):
            if process.poll() is not None or time.monotonic() > deadline:
                told = f"{Path(program).name} did not start to listen: {log.read_text(errors='replace')[-500:]}"
                assert not _ROOT, told
                pytest.skip(told)
            time.sleep(0.01)


def listens(port: int, address: str = "127.0.0.1") -> bool:
    """Tell whether somebody listens there, without connecting: some servers serve one connection only."""
    wanted = {
        f"{int.from_bytes(socket.inet_aton(found), sys.byteorder):08X}:{port:04X}" for found in (address, "0.0.0.0")
    }
    wanted.add(f"{'0' * 32}:{port:04X}")
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            if state == _STATE_LISTEN and local in wanted:
                return True
    return False
