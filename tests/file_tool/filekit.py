"""Calls of `venturi-engine file`, and servers of the tests, each with an empty directory."""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import existingkit

from s3kit import s3_server
from testkit import free_port

LIMIT_S = 120
PASSWORD = "open-sesame"


def _engine():
    return os.environ.get("VENTURI_ENGINE") or str(Path(sys.executable).with_name("venturi-engine"))


def call(*words, environment=None, stdin=None, code=0):
    """Run `venturi-engine file`; return the lines of its output as objects."""
    done = subprocess.run(
        [_engine(), "file", *map(str, words)],
        input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL, capture_output=True, text=True,
        check=False, timeout=LIMIT_S, env=bare_environment() | (environment or {}),
    )  # fmt: skip
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def bare_environment():
    """Return the environment without the credentials of the user who runs the tests."""
    lacks = ("BEARER_TOKEN", "X509_", "AWS_", "XDG_RUNTIME_DIR", "NETRC", "HOME")
    return {name: value for name, value in os.environ.items() if not name.startswith(lacks)} | {
        "HOME": "/nonexistent"
    }


def error(*words, **options):
    """Run `venturi-engine file`, which must fail; return the kind and the message of its error."""
    (line,) = call(*words, code=1, **options)
    return line["error"]["kind"], line["error"]["message"]


def batch(requests, *words, **options):
    """Run requests in one batch; return the results."""
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    return call("batch", *words, stdin=lines, **options)


class Batch:
    """A batch that stays open: requests one by one, in persistent sessions."""

    def __init__(self, environment):
        self._process = subprocess.Popen(
            [_engine(), "file", "batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=bare_environment() | environment,
        )  # fmt: skip

    def result(self, command, url, **keys):
        """Execute a request and return its result."""
        self._process.stdin.write(json.dumps({"command": command, "url": url, **keys}) + "\n")
        self._process.stdin.flush()
        found = json.loads(self._process.stdout.readline())
        del found["id"]
        return found

    def error(self, command, url, **keys):
        """Execute a request that must fail, and return kind and message of its error."""
        found = self.result(command, url, **keys)
        assert list(found) == ["error"], found
        return found["error"]["kind"], found["error"]["message"]

    def close(self):
        self._process.stdin.close()
        assert self._process.wait(LIMIT_S) == 0
        self._process.stdout.close()


def checksum(content, algorithm):
    """Return the checksum of bytes, computed by another implementation."""
    return f"{zlib.adler32(content):08x}" if algorithm == "adler32" else hashlib.new(algorithm, content).hexdigest()


@contextlib.contextmanager
def _existing(start):
    with existingkit.servers(start) as (server,):
        yield server


class ObjectStore:
    """A bucket, with the attributes of a server of the kit."""

    def __init__(self, server):
        self.url, self.root, self.environment = f"{server.url}/bucket", server.root / "bucket", server.environment
        self._server = server

    def files(self):
        return self._server.files("bucket")


@contextlib.contextmanager
def _s3(tmp_path):
    with s3_server(tmp_path, "bucket") as server:
        yield ObjectStore(server)


def ftp_with_password(directory, name="vault", lacking=()):
    """pyftpdlib with FTP for one user, whose password is in a ``.netrc``."""
    server = existingkit.Server(directory, name)
    server.url = f"ftp://user@127.0.0.1:{server.port}/"
    netrc = server.work / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login user password {PASSWORD}\n")
    server.environment = {"NETRC": str(netrc)}
    program = (
        "import sys\nfrom pyftpdlib.authorizers import DummyAuthorizer\nfrom pyftpdlib.filesystems import AbstractedFS\n"
        "from pyftpdlib.handlers import FTPHandler\n"
        "from pyftpdlib.servers import FTPServer\nroot, port, password, *lacking = sys.argv[1:]\n"
        # On a full disk, pyftpdlib sends no reply if its own buffer is not empty: closing the file fails, too.
        "class Files(AbstractedFS):\n    def open(self, name, mode):\n        return open(name, mode, buffering=0)\n"
        "class Handler(FTPHandler):\n    authorizer = DummyAuthorizer()\n    abstracted_fs = Files\n"
        "    proto_cmds = {name: value for name, value in FTPHandler.proto_cmds.items() if name not in lacking}\n"
        "Handler.authorizer.add_user('user', password, root, perm='elradfmwMT')\n"
        "FTPServer(('127.0.0.1', int(port)), Handler).serve_forever()\n"
    )
    return server.start(
        [sys.executable, "-W", "ignore", "-c", program, server.root, str(server.port), PASSWORD, *lacking]
    )


def old_ftp(directory, name="old"):
    """The same FTP server without the metadata commands of RFC 3659, like vsftpd."""
    return ftp_with_password(directory, name, lacking=("MLST", "MLSD"))


def xrootd_http(directory, name="xrdhttp"):
    """XRootD over HTTP."""
    owner = "nobody" if os.geteuid() == 0 else None
    server = existingkit.Server(directory, name, work_owner=owner)
    server.url = f"dav://127.0.0.1:{server.port}/"
    configuration = server.work / "xrootd.cfg"
    configuration.write_text(
        f"all.export /\noss.localroot {server.root}\nxrd.port {free_port()}\n"
        f"xrd.protocol XrdHttp:{server.port} libXrdHttp.so\nhttp.listingdeny no\nxrootd.chksum max 4 adler32\n"
        f"all.adminpath {server.work}/admin\nall.pidpath {server.work}/run\n"
    )
    configuration.chmod(0o644)
    account = {"user": owner, "group": "nogroup", "extra_groups": []} if owner else {}
    command = ["xrootd", "-I", "v4", "-n", name, "-c", str(configuration), "-l", str(server.work / "log")]
    return server.start(command, cwd=server.work, **account)


SERVERS = {
    "ftp": lambda _: _existing(ftp_with_password),
    "old-ftp": lambda _: _existing(old_ftp),
    "gridftp": lambda _: _existing(existingkit.gridftp),
    "apache": lambda _: _existing(existingkit.webdav),
    "xrootd-http": lambda _: _existing(xrootd_http),
    "s3": _s3,
    "sftp": lambda _: _existing(existingkit.sftp),
    "xrootd": lambda _: _existing(existingkit.xrootd),
}
"""Name → context manager that starts a server."""

PROGRAMS = {
    "gridftp": ["globus-gridftp-server", "openssl"], "apache": ["apache2"], "xrootd-http": ["xrootd"],
    "sftp": ["ssh", "ssh-keygen"], "xrootd": ["xrootd", "xrdfs", "xrdcp"],
}  # fmt: skip
"""Name → programs that the server needs."""
