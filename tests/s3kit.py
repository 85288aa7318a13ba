"""A third-party S3 server with keys: nanio stores objects as files and verifies signatures."""

import os
import secrets
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from testkit import free_port, wait_until


class S3Server:
    """A running server.

    Attributes
    ----------
    url
        ``s3://HOST:PORT``, without a bucket.
    root
        Directory with a directory of files for each bucket.
    environment
        Variables with the keys, for clients.
    """

    def __init__(self, url, root, environment):
        self.url, self.root, self.environment = url, root, environment

    def files(self, bucket):
        """Return the names of all objects of a bucket."""
        top = self.root / bucket
        found = (path for path in top.rglob("*") if path.is_file())
        names = (str(path.relative_to(top)) for path in found)
        return sorted(name for name in names if not name.startswith(".") and "/." not in name)


@contextmanager
def s3_server(directory, *buckets, address="127.0.0.1"):
    """Start a server with empty buckets below a directory."""
    port, root = free_port(), Path(directory) / "s3"
    for bucket in buckets:
        (root / bucket).mkdir(parents=True, exist_ok=True)
    root.mkdir(parents=True, exist_ok=True)
    access, secret = secrets.token_hex(10), secrets.token_hex(20)
    argv = [sys.executable, "-m", "nanio", "serve", "--data-dir", str(root), "--host", address, "--port", str(port)]
    keys = {"NANIO_ACCESS_KEY": access, "NANIO_SECRET_KEY": secret}
    with (Path(directory) / "s3.log").open("wb") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | keys)
        try:
            wait_until(lambda: process.poll() is not None or _listens(address, port), "the S3 server to listen")
            assert process.poll() is None, (Path(directory) / "s3.log").read_text()
            client = {"AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "us-east-1"}
            yield S3Server(f"s3://{address}:{port}", root, client)
        finally:
            process.terminate()
            process.wait(20)


def _listens(address, port):
    try:
        socket.create_connection((address, port), timeout=5).close()
    except OSError:
        return False
    return True
