"""Tools for tests of the HTTP side of `venturi-engine serve`: a server and manual requests."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
from pathlib import Path

from testkit import wait_until


class Web:
    """A server of a directory over HTTP, and HTTPS if it has a certificate."""

    def __init__(self, engine, directory, log_dir, *arguments, env=None, under=()):
        self.directory = Path(directory)
        self._log = Path(log_dir) / f"web-{os.urandom(4).hex()}.jsonl"
        tls = ["--https", "127.0.0.1:0"] if "--tls-cert" in arguments else []
        command = [*under, engine, "serve", directory, "--http", "127.0.0.1:0", *tls, "--json", *arguments]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
            )
        wait_until(lambda: self.events("start") or self.process.poll() is not None, "the server to listen", 20)
        started = self.events("start")
        assert started, self.process.stderr.read()
        self.port = int(started[0]["http"][0].rpartition(":")[2])
        self.url = f"http://127.0.0.1:{self.port}"
        self.secure_url = f"https://localhost:{started[0]['https'][0].rpartition(':')[2]}" if tls else None

    def events(self, kind):
        """Return its events of a kind; an incomplete line does not count."""
        lines = self._log.read_text().split("\n")[:-1]
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def send(self, method, path, body=None, **fields):
        """Return status, fields and body of a response.

        The argument `Range_="x"` is the field `Range: x`, and `_` inside a name is `-`.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            named = {name.strip("_").replace("_", "-"): value for name, value in fields.items()}
            connection.request(method, path, body=body, headers=named)
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()


@contextlib.contextmanager
def web(engine, directory, log_dir, *arguments, env=None, under=()):
    """Run a server for a block of code, optionally `under` another program.

    The server must run until the end of the block and exit normally.
    """
    server = Web(engine, directory, log_dir, *arguments, env=env, under=under)
    try:
        yield server
        assert server.process.poll() is None, server.process.stderr.read()
        server.process.send_signal(signal.SIGTERM)
        output = server.process.communicate(timeout=30)[1]
        assert (server.process.returncode, output) == (0, "")
    finally:
        server.process.kill()
        server.process.wait()
        server.process.stderr.close()


def powerless():
    """Return a command prefix without the privileges of root, so that permissions apply."""
    return ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []


def run(*command, code=0, **env):
    """Run another program, check its exit code, and return its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env={**os.environ, **env})
    assert done.returncode == code, (command, done.returncode, done.stdout[-1500:], done.stderr[-1500:])
    return done.stdout
