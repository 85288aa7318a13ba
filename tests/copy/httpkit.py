"""Servers for tests of copies over HTTP: nginx, XRootD, our own server, and a scripted one."""

import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from testkit import free_port, wait_until

DAV_MODULE = Path("/usr/lib/nginx/modules/ngx_http_dav_ext_module.so")

NGINX = """\
load_module {module};
daemon off; worker_processes 1; pid {directory}/pid; error_log {directory}/error.log;
events {{ worker_connections 512; }}
http {{ access_log {directory}/access.log; client_max_body_size 0; keepalive_requests 100000;
  client_body_temp_path {directory}/b; proxy_temp_path {directory}/p; fastcgi_temp_path {directory}/f;
  uwsgi_temp_path {directory}/u; scgi_temp_path {directory}/s;
  server {{ listen 127.0.0.1:{port}; root {root};
    location / {{ dav_methods PUT DELETE MKCOL COPY MOVE; dav_ext_methods PROPFIND OPTIONS; dav_access all:rw; }} }} }}
"""

NO_TRUST = [
    *("setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"),
    *("--inh-caps", "+dac_override", "--ambient-caps", "+dac_override"),
]

XROOTD = """\
all.export /
oss.localroot {root}
xrd.port {other_port}
xrd.protocol XrdHttp:{port} libXrdHttp.so
http.listingdeny no
http.desthttps yes
http.exthandler xrdtpc libXrdHttpTPC.so
{checksums}
all.adminpath {directory}/adm
all.pidpath {directory}/run
{tls}
"""


def _is_listening(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextlib.contextmanager
def running(command, port, log, **options):
    """Run an HTTP server and yield its URL.

    XRootD 5.5 sets variables of its environment while other threads read them, which sometimes crashes it at the start.
    If a signal ends the server before it listens, it is restarted, at most twice.
    """
    for remaining in (2, 1, 0):
        with Path(log).open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, **options)
        try:
            wait_until(
                lambda process=process: _is_listening(port) or process.poll() is not None, "the server to listen", 20
            )
            if remaining and (process.returncode or 0) < 0:
                continue
            assert process.returncode is None, f"exit code {process.returncode}: {Path(log).read_text()}"
            yield f"http://127.0.0.1:{port}"
            return
        finally:
            process.terminate()
            process.wait(timeout=20)


@contextlib.contextmanager
def nginx(root, directory):
    """Serve a directory over WebDAV with nginx, and yield its URL."""
    port = free_port()
    user = "user root;\n" if os.geteuid() == 0 else ""
    (directory / "nginx.conf").write_text(
        user + NGINX.format(module=DAV_MODULE, directory=directory, root=root, port=port)
    )
    with running(
        [shutil.which("nginx") or "/usr/sbin/nginx", "-c", directory / "nginx.conf"], port, directory / "out"
    ) as url:
        yield url


@contextlib.contextmanager
def xrootd(root, directory, pki=None, *, checksums=True):
    """Serve a directory over HTTP(S) with XRootD, and yield its URL.

    XRootD refuses to run as root, so root starts it as nobody, with the capability to ignore modes. Opening the
    directory would not last, because each start of pytest restricts its temporary directory to its user again. Without
    TLS, XRootD does not copy between servers.
    """
    port, tls = free_port(), ""
    if pki:
        trust, cert, key = pki
        tls = f"xrd.tls {shutil.copy(cert, directory)} {shutil.copy(key, directory)}\nxrd.tlsca certdir {trust}"
    output = "xrootd.chksum max 4 adler32" if checksums else ""
    other_port = free_port()
    (directory / "x.cfg").write_text(
        XROOTD.format(root=root, directory=directory, port=port, other_port=other_port, checksums=output, tls=tls)
    )
    command = ["xrootd", "-I", "v4", "-c", directory / "x.cfg", "-l", directory / "x.log"]
    if os.geteuid() == 0:
        command = [*NO_TRUST, *command]
        for path in (root, *directory.iterdir(), directory, *Path(root).rglob("*")):
            shutil.chown(path, "nobody", "nogroup")
    with running(command, port, directory / "out", cwd=directory) as url:
        yield url.replace("http://127.0.0.1", "https://localhost") if pki else url


SQUID = """\
http_port 127.0.0.1:{port}
access_log stdio:{directory}/access.log
cache_log {directory}/cache.log
pid_filename {directory}/squid.pid
coredump_dir {directory}
cache deny all
http_access allow all
hosts_file {directory}/hosts
icp_port 0
pinger_enable off
shutdown_lifetime 0 seconds
"""


def established(port):
    """Return the number of established TCP connections to or from a port of this host."""
    lines = Path("/proc/net/tcp").read_text().splitlines() + Path("/proc/net/tcp6").read_text().splitlines()
    ends = [line.split()[1:4] for line in lines if ":" in line]
    return sum(state == "01" and f"{port:04X}" in (own[-4:], other[-4:]) for own, other, state in ends)


@contextlib.contextmanager
def squid(*names):
    """Run Squid as a proxy without a cache, and yield its URL and a function that returns its logged requests.

    Squid resolves `names` to this host.
    """
    directory = Path(tempfile.mkdtemp(prefix="venturi-squid-"))
    # If root starts it, Squid changes to another user.
    directory.chmod(0o777)
    port, log = free_port(), directory / "access.log"
    # Name of its shared memory, which is global on the host.
    name = f"venturi{os.urandom(4).hex()}"
    (directory / "hosts").write_text(f"127.0.0.1 localhost {' '.join(names)}\n")
    (directory / "squid.conf").write_text(SQUID.format(port=port, directory=directory))

    def requests():
        # Squid logs a tunnel after its end.
        wait_until(lambda: not established(port), "the connections of the proxy to end")
        text = ""
        while text != (text := log.read_text()):
            time.sleep(0.1)
        lines = map(str.split, text.splitlines())
        # A connection that only checks if Squid listens sends no request.
        return [(line[5], line[6]) for line in lines if not line[6].startswith("error:")]

    try:
        with running(["squid", "-n", name, "-N", "-f", directory / "squid.conf"], port, directory / "out") as url:
            yield url, requests
    finally:
        shutil.rmtree(directory)


@contextlib.contextmanager
def venturi(engine, root, directory, *arguments, secure=False, env=None):
    """Run our own server and yield its URL."""
    log = Path(directory) / f"serve-{os.urandom(4).hex()}.jsonl"
    with log.open("wb") as out:
        service_port = "--https" if secure else "--http"
        command = [engine, "serve", root, service_port, "127.0.0.1:0", "--json", *arguments]
        process = subprocess.Popen(command, stdout=out, env={**os.environ, **(env or {})})
    try:
        wait_until(lambda: b"\n" in log.read_bytes() or process.poll() is not None, "the server to listen", 20)
        started = json.loads(log.read_text().split("\n")[0])
        address = started["https" if secure else "http"][0]
        yield f"https://localhost:{address.rpartition(':')[2]}" if secure else f"http://{address}"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def puppet(respond, met=None, tls=None):
    """Run a server that `respond` controls, called with the handler of each request. Yield its URL and the requests.

    `met` collects the addresses of clients, even if they only do a handshake. `tls` contains the files of the
    certificate and its key.
    """
    recorded, counting = [], threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self):
            super().setup()
            if met is not None:
                met.append(self.client_address)

        def handle_one_request(self):
            with contextlib.suppress(ConnectionError):
                super().handle_one_request()

        def reply(self, status, body=b"", length=None, **fields):
            self.send_response(status)
            self.send_header("Content-Length", str(len(body) if length is None else length))
            for name, value in fields.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        def serve(self):
            with counting:
                recorded.append((self.command, self.path, dict(self.headers)))
                number = len(recorded)
            respond(self, number)

        def handle_expect_100(self):
            return True  # the function sends the response

        def log_message(self, *_):
            pass

        do_GET = do_HEAD = do_PUT = do_PROPFIND = do_MKCOL = do_COPY = do_DELETE = do_CONNECT = serve

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        origin = "https://localhost" if tls else "http://127.0.0.1"
        yield f"{origin}:{server.server_port}", recorded
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
