"""Real servers on the loopback interface for tests of movers, each started on first use and stopped by its PID."""

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

from testkit import free_port, make_sshd_directory
from venturi.backend.engine import find_engine
from venturi.testbed.pki import Pki

_ROOT = os.geteuid() == 0
_START_S = 20.0
_STATE_LISTEN = "0A"


class Farm:
    """Servers of one directory ``data``, which all accounts can read and write, with URLs by protocol."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="venturi-farm-"))
        self.directory.chmod(0o755)
        self.data = self.directory / "data"
        self.data.mkdir()
        self.data.chmod(0o777)
        self._processes: list[subprocess.Popen[bytes]] = []

    def close(self) -> None:
        """Stop all servers and remove the directory."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.directory)

    def url(self, protocol: str, path: Path | str) -> str:
        """Return the URL of a path for a protocol."""
        return {
            "ftp": lambda: f"ftp://127.0.0.1:{self.gridftp}{path}",
            "root": lambda: f"root://localhost:{self.xrootd[0]}/{path}",
            "http": lambda: f"http://localhost:{self.xrootd[1]}{path}",
            "https": lambda: f"https://localhost:{self.xrootd_tls}{path}",
            "davs": lambda: f"davs://localhost:{self.xrootd_tls}{path}",
            "ssh": lambda: f"ssh://127.0.0.1:{self.sshd}{path}",
            "iperf3": lambda: f"iperf3://127.0.0.1:{self.iperf3}",
            "nuttcp": lambda: self.nuttcp,
        }[protocol]()

    @cached_property
    def environment(self) -> dict[str, str]:
        """Environment variables of clients; proxies point to a closed port."""
        nowhere = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
        return {
            **nowhere,
            "GLOBUS_HOSTNAME": "127.0.0.1",
            "VENTURI_SSH_CONFIG": str(self.directory / "ssh" / "config"),
        }

    @cached_property
    def pki(self) -> Pki:
        """Certificates of the TLS server and of its user."""
        return Pki(self.directory / "pki")

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
        """HTTPS port of an XRootD server with third-party copy, for the user of the lab."""
        port, https = free_port(), free_port()
        host = self.pki.host("localhost", ["127.0.0.1"], owner="xrootd" if _ROOT else None)
        mapped = self.pki.grid_mapfile(self.directory / "grid-mapfile", {"Lab User": "nobody"})
        self.environment.update(self.pki.client_environment())
        self._start_xrootd(
            "tls", port, https,
            f"xrd.tls {host.certificate} {host.key}\nxrd.tlsca certdir {self.pki.certificates}\nhttp.desthttps yes\n"
            f"http.gridmap {mapped}\nhttp.exthandler xrdtpc libXrdHttpTPC.so\ntpc.timeout 60\n",
        )  # fmt: skip
        return https

    @cached_property
    def sshd(self) -> int:
        """Port of an OpenSSH server that accepts this account with its own key."""
        directory, port = self.directory / "ssh", free_port()
        directory.mkdir()
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", directory / key], check=True)
        make_sshd_directory()
        (directory / "sshd_config").write_text(
            f"Port {port}\nListenAddress 127.0.0.1\nHostKey {directory}/host\nAuthorizedKeysFile {directory}/user.pub\nStrictModes no\n"
            "PidFile none\nUsePAM no\nPermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\n"
        )
        (directory / "config").write_text(
            f"Host *\n IdentityFile {directory}/user\n IdentitiesOnly yes\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n"
            " LogLevel ERROR\n"
        )
        self._start(
            [shutil.which("sshd") or "/usr/sbin/sshd", "-D", "-e", "-f", str(directory / "sshd_config")], port
        )
        return port

    @cached_property
    def iperf3(self) -> int:
        """Port of an iperf3 server."""
        port = free_port()
        self._start(["iperf3", "-s", "-B", "127.0.0.1", "-p", str(port)], port)
        return port

    @cached_property
    def nuttcp(self) -> str:
        """URL of nuttcp servers."""
        return self.nuttcp_server("nuttcp", "-S")

    def nuttcp_server(self, *argv: str) -> str:
        """Start a server with one process per client; return its URL."""
        number = os.getpid()
        address = f"127.{77 + number // 62500 % 100}.{number // 250 % 250}.{1 + number % 250}"
        port = free_port()
        self._start([str(find_engine()), "inetd", "--listen", f"{address}:{port}", *argv], port, address=address)
        return f"nuttcp://{address}:{port}"

    def _start_xrootd(self, name: str, port: int, http: int, more: str) -> None:
        home = self.directory / name
        home.mkdir()
        (home / "cfg").write_text(
            f"all.export {self.data}\nxrd.port {port}\nall.adminpath {home}/adm\nall.pidpath {home}/run\nxrd.protocol XrdHttp:{http} libXrdHttp.so\n"
            f"xrootd.chksum max 2 adler32 md5\nhttp.listingdeny no\n{more}"
        )
        argv = ["xrootd", "-I", "v4", "-c", f"{home}/cfg", "-l", f"{home}/xrootd.log"]
        if _ROOT:
            shutil.chown(home, "xrootd")
            # The server must resolve the name of its host.
            argv = ["unshare", "--uts", "sh", "-c", 'hostname localhost; exec "$@"', "sh", *argv, "-R", "xrootd"]
        self._start(argv, http, directory=home, program="xrootd")

    def _start(
        self,
        argv: list[str],
        port: int,
        *,
        directory: Path | None = None,
        program: str | None = None,
        address: str = "127.0.0.1",
    ) -> None:
        program = program or argv[0]
        if shutil.which(program) is None:
            pytest.skip(f"{Path(program).name} is not installed")
        log = self.directory / f"{Path(program).name}-{port}.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, cwd=directory or self.directory
            )
        self._processes.append(process)
        deadline = time.monotonic() + _START_S
        while not listens(port, address):
            if process.poll() is not None or time.monotonic() > deadline:
                output = f"{Path(program).name} did not start to listen: {log.read_text(errors='replace')[-500:]}"
                assert not _ROOT, output
                pytest.skip(output)
            time.sleep(0.01)


def listens(port: int, address: str = "127.0.0.1") -> bool:
    """Return whether a program listens on a port, without a connection: some servers accept only one."""
    expected = {
        f"{int.from_bytes(socket.inet_aton(found), sys.byteorder):08X}:{port:04X}" for found in (address, "0.0.0.0")
    }
    expected.add(f"{'0' * 32}:{port:04X}")
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            if state == _STATE_LISTEN and local in expected:
                return True
    return False
