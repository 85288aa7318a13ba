"""Servers that exist before a run: third-party programs on loopback, each with an empty directory."""

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from s3kit import s3_server
from testkit import free_port, make_sshd_directory, wait_until
from venturi.run import Run
from venturi.testbed.pki import DEFAULT_USER, Pki

VENTURI = [str(Path(sys.executable).with_name("venturi"))]
LIMIT_S = 240
GFAL_OPTIONS = {"exit": "at once"}
"""Options that avoid a crash of ``gfal-copy``.

It can crash while it unloads its libraries, in about 1 of 50 complete copies ("free(): invalid pointer").
"""
_READY_S = 30
_APACHE = """\
ServerRoot {work}
ServerName localhost
Listen 127.0.0.1:{port}
PidFile {work}/pid
ErrorLog {work}/error.log
CustomLog {work}/access.log "%m %U"
DocumentRoot {root}
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule dav_module /usr/lib/apache2/modules/mod_dav.so
LoadModule dav_fs_module /usr/lib/apache2/modules/mod_dav_fs.so
{user}
{tls}
DavLockDB {work}/locks
LimitRequestBody 0
<Directory {root}>
  Dav On
  Require all granted
</Directory>
"""
_XROOTD = """\
all.export /
oss.localroot {root}
xrd.port {port}
xrootd.chksum max 4 adler32
ofs.tpc ttl 120 300 pgm /usr/bin/xrdcp --server
all.adminpath {work}/admin
all.pidpath {work}/run
"""


class Server:
    """A server program with an empty directory.

    Attributes
    ----------
    url
        URL of the directory.
    root
        The directory.
    environment
        Environment variables of clients.
    """

    def __init__(self, directory, name, *, work_owner=None, address="127.0.0.1"):
        self.root, self.work = directory / f"{name}-files", directory / f"{name}-server"
        for path in (self.root, self.work):
            path.mkdir()
            path.chmod(0o777)
            if work_owner and os.geteuid() == 0:
                shutil.chown(path, work_owner)
        self.address = address
        self.port = free_port()
        self.environment = {}
        self.process = None

    def start(self, command, **changes):
        """Start the program and wait until it accepts connections."""
        self._command, self._changes = command, changes
        with (self.work / "output").open("wb") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, **changes
            )
        wait_until(self._listens, f"{command[0]} to listen", _READY_S)
        return self

    def restart(self):
        """Stop the program and start it again, with the same command."""
        self.stop()
        return self.start(self._command, **self._changes)

    def _listens(self):
        assert self.process.poll() is None, (self.work / "output").read_text()
        with socket.socket(socket.AF_INET6 if ":" in self.address else socket.AF_INET) as probe:
            return probe.connect_ex((self.address, self.port)) == 0

    def below(self, name):
        """Return the URL of a path below the directory."""
        return f"{self.url}{name}" if self.url.endswith("/") else f"{self.url}/{name}"

    def files(self):
        """Return all files and directories below the directory."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*"))

    def stop(self):
        if self.process is not None:
            # SIGKILL would leave the workers of Apache running.
            self.process.terminate()
            self.process.wait(_READY_S)


def webdav(directory, name="dav", tls=()):
    """Apache with WebDAV."""
    server = Server(directory, name)
    server.url = f"dav://127.0.0.1:{server.port}/"
    configuration = server.work / "apache.conf"
    user = "User nobody\nGroup nogroup" if os.geteuid() == 0 else ""
    configuration.write_text(
        _APACHE.format(work=server.work, root=server.root, port=server.port, user=user, tls="\n".join(tls))
    )
    return server.start(["apache2", "-f", str(configuration), "-DFOREGROUND"])


def webdav_tls(directory, name="davs"):
    """Apache with WebDAV over TLS; clients trust the CA of its certificate."""
    pki = _pki(directory)
    host = pki.host("localhost", ["127.0.0.1", "::1"])
    module = "LoadModule ssl_module /usr/lib/apache2/modules/mod_ssl.so"
    certificates = f"SSLCertificateFile {host.certificate}\nSSLCertificateKeyFile {host.key}"
    server = webdav(directory, name, [module, "SSLEngine on", certificates])
    server.url = f"davs://localhost:{server.port}/"
    server.environment = dict(pki.client_environment())
    return server


def _pki(directory):
    """Return the CA of all servers in a directory, because a client trusts one directory of certificates."""
    return Pki(directory / "pki")


def ftp(directory, name="ftp"):
    """pyftpdlib with FTP for anonymous users."""
    server = Server(directory, name)
    server.url = f"ftp://127.0.0.1:{server.port}/"
    program = [sys.executable, "-W", "ignore", "-m", "pyftpdlib", "--write", "--interface", "127.0.0.1"]
    return server.start([*program, "--port", str(server.port), "--directory", str(server.root)])


def gridftp(directory, name="gridftp", address="127.0.0.1"):
    """GridFTP of the Globus Toolkit, with a host certificate; clients have proxies."""
    server = Server(directory, name, address=address)
    pki = _pki(directory)
    host = pki.host("localhost", ["127.0.0.1", "::1"])
    account = "root" if os.geteuid() == 0 else os.environ.get("USER", "")
    own = {
        "X509_CERT_DIR": str(pki.certificates), "X509_USER_CERT": str(host.certificate), "X509_USER_KEY": str(host.key),
        "GRIDMAP": str(pki.grid_mapfile(directory / f"{name}-map", {DEFAULT_USER: account})),
    }  # fmt: skip
    server.environment = dict(pki.client_environment())
    host_name = f"[{address}]" if ":" in address else "localhost"
    server.url = f"gsiftp://{host_name}:{server.port}{server.root}"
    command = ["globus-gridftp-server", "-c", "none", "-p", str(server.port), "-control-interface", address]
    command += ["-data-interface", address, *(["-allow-root"] if account == "root" else [])]
    inherited = {key: value for key, value in os.environ.items() if key != "X509_USER_PROXY"}
    return server.start(command, env={**inherited, **own})


def srm(directory, name="srm"):
    """SRM of Venturi in front of a GridFTP server; clients have proxies."""
    server, backing, pki = Server(directory, name), gridftp(directory, f"{name}-gridftp"), _pki(directory)
    try:
        host = pki.host("localhost", ["127.0.0.1", "::1"])
        settings = {
            "address": "127.0.0.1", "ports": [server.port], "hosts": ["localhost", "127.0.0.1"],
            "storages": {"data": str(backing.root)}, "doors": {"gsiftp": [f"gsiftp://localhost:{backing.port}{{path}}"]},
            "certificate": str(host.certificate), "key": str(host.key), "ca_directory": str(pki.certificates),
            "mapfile": str(directory / f"{name}-gridftp-map"), "database": str(server.work / "requests.db"),
            "log": str(server.work / "log"),
        }  # fmt: skip
        (server.work / "settings").write_text(json.dumps(settings))
        server.root, server.environment = backing.root, backing.environment
        server.url = f"srm://localhost:{server.port}/srm/managerv2?SFN={backing.root}"
        server.start([sys.executable, "-m", "venturi.srm", "serve", str(server.work / "settings")])
    except BaseException:
        backing.stop()
        raise
    own_stop = server.stop

    def stop():
        own_stop()
        backing.stop()

    server.stop = stop
    return server


def xrootd_tls(directory, name="xrootds"):
    """XRootD over TLS; clients trust the CA of its certificate."""
    pki = _pki(directory)
    owner = "nobody" if os.geteuid() == 0 else None
    host = pki.host("localhost", ["127.0.0.1", "::1"], owner=owner)
    more = f"xrd.tls {host.certificate} {host.key}\nxrd.tlsca certdir {pki.certificates}\nxrootd.tls all\n"
    server = xrootd(directory, name, more)
    server.url = f"roots://localhost:{server.port}//"
    server.environment = dict(pki.client_environment())
    return server


def xrootd(directory, name="xrootd", more=""):
    """XRootD without authentication."""
    owner = "nobody" if os.geteuid() == 0 else None
    server = Server(directory, name, work_owner=owner)
    server.url = f"root://127.0.0.1:{server.port}//"
    configuration = server.work / "xrootd.cfg"
    configuration.write_text(_XROOTD.format(work=server.work, root=server.root, port=server.port) + more)
    configuration.chmod(0o644)
    account = {"user": owner, "group": "nogroup", "extra_groups": []} if owner else {}
    command = ["xrootd", "-I", "v4", "-n", name, "-c", str(configuration), "-l", str(server.work / "log")]
    return server.start(command, cwd=server.work, **account)


def sftp(directory, name="sftp"):
    """SFTP of OpenSSH; clients find ``ssh`` and ``sftp`` with the key of the server in PATH."""
    server = Server(directory, name)
    for key in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(server.work / key)], check=True)
    server.work.chmod(0o755)
    make_sshd_directory()
    work = server.work
    (work / "known").write_text(f"[127.0.0.1]:{server.port} {(work / 'host.pub').read_text()}")
    (work / "ssh_config").write_text(
        f"IdentityFile {work}/user\nIdentitiesOnly yes\nUserKnownHostsFile {work}/known\nStrictHostKeyChecking yes\nBatchMode yes\n"
    )
    (work / "bin").mkdir()
    for program in ("ssh", "sftp"):
        script = work / "bin" / program
        script.write_text(f'#!/bin/sh\nexec /usr/bin/{program} -F {work}/ssh_config "$@"\n')
        script.chmod(0o755)
    settings = {
        "Port": server.port, "ListenAddress": "127.0.0.1", "HostKey": work / "host", "AuthorizedKeysFile": work / "user.pub",
        "StrictModes": "no", "PidFile": "none", "UsePAM": "no", "PasswordAuthentication": "no", "MaxStartups": 100,
        "Subsystem": "sftp internal-sftp", "PermitRootLogin": "prohibit-password",
    }  # fmt: skip
    (work / "sshd_config").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    server.environment = {"PATH": f"{work}/bin:{os.environ['PATH']}"}
    server.url = f"sftp://127.0.0.1:{server.port}{server.root}"
    return server.start(["/usr/sbin/sshd", "-D", "-e", "-f", str(work / "sshd_config")])


def s3(directory, name="s3"):
    """S3 of nanio, with one bucket."""
    server = Server(directory, name)
    stack = contextlib.ExitStack()
    other = stack.enter_context(s3_server(server.work, "bucket"))
    credentials = server.work / "credentials"
    keys = {"AWS_ACCESS_KEY_ID": "aws_access_key_id", "AWS_SECRET_ACCESS_KEY": "aws_secret_access_key"}
    lines = [f"{key} = {other.environment[variable]}" for variable, key in keys.items()]
    credentials.write_text("\n".join(["[default]", *lines, ""]))
    server.environment = {"AWS_SHARED_CREDENTIALS_FILE": str(credentials), "AWS_REGION": "us-east-1"}
    server.url = f"{other.url}/bucket"
    server.files = lambda: other.files("bucket")
    server.stop = stack.close
    return server


def venturi_serve(directory, name="serve"):
    """`venturi serve` with HTTP and third-party copy; clients have a token."""
    server = Server(directory, name)
    server.url = f"http://127.0.0.1:{server.port}"
    tokens = server.work / "tokens"
    tokens.write_text(f"{secrets.token_hex(16)}\n")
    tokens.chmod(0o600)
    server.environment = {"BEARER_TOKEN_FILE": str(tokens)}
    command = [*VENTURI, "serve", str(server.root), "--http", f"127.0.0.1:{server.port}", "--write", "--third-party"]
    return server.start([*command, "--tokens", str(tokens)])


@contextlib.contextmanager
def servers(*starters):
    """Start servers in a directory that all accounts can enter, and stop them at the end."""
    with tempfile.TemporaryDirectory(prefix="venturi-existing-", dir="/tmp") as name:
        directory = Path(name)
        directory.chmod(0o755)
        started = []
        try:
            for number, start in enumerate(starters):
                started.append(start(directory, f"{start.__name__}{number}"))
            yield started
        finally:
            for server in started:
                server.stop()


def scenario(directory, storages, *, environment=None, factors=None, more="", **workload):
    """Write a scenario with a directory ``disk`` on this machine and storages with URLs; return its path.

    Parameters
    ----------
    storages
        Name → URL, or the lines of the table.
    environment
        Variables of the host.
    factors
        Further factors.
    more
        Further lines of TOML.
    workload
        Keys of the workload; ``size`` and ``files`` are factors.
    """
    factors = {
        "size": workload.pop("size", ["100 kB"]), "files": workload.pop("files", [1]), **(factors or {}),
    }  # fmt: skip
    lines = [
        'venturi = 1\nname = "existing"',
        f"[testbed.host.here]\n{f'environment = {_inline(environment)}' if environment else ''}",
        '[testbed.storage.disk]\nhost = "here"\npath = "disk"',
    ]
    for name, table in storages.items():
        lines.append(f"[testbed.storage.{name}]\n" + (table if " = " in table else f"url = {json.dumps(table)}"))
    keys = {"kind": "sweep", **workload}
    lines.append("[workload]\n" + "\n".join(f"{key} = {_inline(value)}" for key, value in keys.items()))
    lines.append("[workload.factors]\n" + "\n".join(f"{key} = {_inline(value)}" for key, value in factors.items()))
    lines.append('[limits]\nbytes = "1 GB"\ntime = "10 min"')
    path = directory / "existing.toml"
    path.write_text("\n".join([*lines, more]) + "\n")
    return path


def _inline(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_inline(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)


def run(path, *arguments, code=0, environment=None):
    """Execute a scenario, check its exit code, and return the process and the run (None if there is no run)."""
    words = [*VENTURI, "run", str(path), "--yes", "--runs", str(path.parent / "runs"), *arguments]
    done = subprocess.run(
        words, cwd=path.parent, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False,
        timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode == code, (done.returncode, done.stdout[-3000:], done.stderr[-3000:])
    found = sorted((path.parent / "runs").glob("existing-*/run.json"))
    return done, Run.open(found[-1].parent) if found else None


def rows(found, *columns, table="transfers"):
    """Return the values of columns of a table, one tuple per row."""
    values = found.query(f"SELECT {', '.join(columns)} FROM {table}")
    return list(zip(*(values[column].tolist() for column in columns), strict=True))


def problems(found):
    """Return code and evidence of the findings about files."""
    codes = ("receiver", "server-files", "destination", "prepare", "missing", "cache")
    return [one for one in rows(found, "code", "evidence", table="findings") if one[0].startswith(codes)]
