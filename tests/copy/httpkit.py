"""What tests of copies over HTTP share: nginx and XRootD as they are, our own server, and one that does as a test says."""

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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from testkit import free_port, wait_until

DAV_MODULE = Path("/usr/lib/nginx/modules/ngx_http_dav_ext_module.so")

NGINX = """\
load_module {module};
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{ access_log {folder}/access.log; client_max_body_size 0; keepalive_requests 100000;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen 127.0.0.1:{port}; root {root};
    location / {{ dav_methods PUT DELETE MKCOL COPY MOVE; dav_ext_methods PROPFIND OPTIONS; dav_access all:rw; }} }} }}
"""

NOBODY = [
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
all.adminpath {folder}/adm
all.pidpath {folder}/run
{tls}
"""


def _answers(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextlib.contextmanager
def running(command, port, log, **how):
    """Have a server of HTTP as it is; yields its URL.

    XRootD 5.5 sets variables of its environment while other threads of it read them, and is ended by that at a start now and then: what a signal ends
    before it listens is started again, twice at most.
    """
    for left in (2, 1, 0):
        with Path(log).open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, **how)
        try:
            wait_until(
                lambda process=process: _answers(port) or process.poll() is not None, "the server to listen", 20
            )
            if left and (process.returncode or 0) < 0:
                continue
            assert process.returncode is None, f"exit code {process.returncode}: {Path(log).read_text()}"
            yield f"http://127.0.0.1:{port}"
            return
        finally:
            process.terminate()
            process.wait(timeout=20)


@contextlib.contextmanager
def nginx(root, folder):
    """Have nginx serve a directory with WebDAV; yields its URL."""
    port = free_port()
    user = "user root;\n" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(user + NGINX.format(module=DAV_MODULE, folder=folder, root=root, port=port))
    with running(
        [shutil.which("nginx") or "/usr/sbin/nginx", "-c", folder / "nginx.conf"], port, folder / "out"
    ) as url:
        yield url


@contextlib.contextmanager
def xrootd(root, folder, pki=None, *, checksums=True):
    """Have XRootD serve a directory over HTTP(S); yields its URL. It refuses to be root, so root has it be nobody, whom no mode keeps out.

    The folder that pytest makes is for its user alone, and each pytest that begins sees to that: what is opened there does not stay so.
    Without TLS it does not copy between servers.
    """
    port, tls = free_port(), ""
    if pki:
        trust, cert, key = pki
        tls = f"xrd.tls {shutil.copy(cert, folder)} {shutil.copy(key, folder)}\nxrd.tlsca certdir {trust}"
    told = "xrootd.chksum max 4 adler32" if checksums else ""
    other_port = free_port()
    (folder / "x.cfg").write_text(
        XROOTD.format(root=root, folder=folder, port=port, other_port=other_port, checksums=told, tls=tls)
    )
    command = ["xrootd", "-I", "v4", "-c", folder / "x.cfg", "-l", folder / "x.log"]
    if os.geteuid() == 0:
        command = [*NOBODY, *command]
        for path in (root, *folder.iterdir(), folder, *Path(root).rglob("*")):
            shutil.chown(path, "nobody", "nogroup")
    with running(command, port, folder / "out", cwd=folder) as url:
        yield url.replace("http://127.0.0.1", "https://localhost") if pki else url


SQUID = """\
http_port 127.0.0.1:{port}
access_log stdio:{folder}/access.log
cache_log {folder}/cache.log
pid_filename {folder}/squid.pid
coredump_dir {folder}
cache deny all
http_access allow all
hosts_file {folder}/hosts
icp_port 0
pinger_enable off
shutdown_lifetime 0 seconds
"""


@contextlib.contextmanager
def squid(*names):
    """Have Squid as a proxy that keeps nothing, and finds these hosts on this one; yields its URL and what its log says was asked of it."""
    folder = Path(tempfile.mkdtemp(prefix="venturi-squid-"))
    # Started by root it becomes another user.
    folder.chmod(0o777)
    port, log = free_port(), folder / "access.log"
    # Of its memory, which is the host's.
    name = f"venturi{os.urandom(4).hex()}"
    (folder / "hosts").write_text(f"127.0.0.1 localhost {' '.join(names)}\n")
    (folder / "squid.conf").write_text(SQUID.format(port=port, folder=folder))

    def asked():
        lines = map(str.split, log.read_text().splitlines())
        # Who only sees whether it listens, asks for nothing.
        return [(line[5], line[6]) for line in lines if not line[6].startswith("error:")]

    try:
        with running(["squid", "-n", name, "-N", "-f", folder / "squid.conf"], port, folder / "out") as url:
            yield url, asked
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def venturi(engine, root, folder, *words, secure=False, env=None):
    """Have our own server; yields its URL."""
    log = Path(folder) / f"serve-{os.urandom(4).hex()}.jsonl"
    with log.open("wb") as out:
        door = "--https" if secure else "--http"
        command = [engine, "serve", root, door, "127.0.0.1:0", "--json", *words]
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
def puppet(answer, met=None, tls=None):
    """Have a server that does as a function says, which gets each request's handler; yields its URL and the requests.

    Who connects is in `met`, handshakes included. `tls` has the files of its certificate and its key.
    """
    seen, counting = [], threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self):
            super().setup()
            if met is not None:
                met.append(self.client_address)

        def handle_one_request(self):
            with contextlib.suppress(ConnectionError):
                super().handle_one_request()

        def say(self, status, body=b"", length=None, **fields):
            self.send_response(status)
            self.send_header("Content-Length", str(len(body) if length is None else length))
            for name, value in fields.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        def serve(self):
            with counting:
                seen.append((self.command, self.path, dict(self.headers)))
                number = len(seen)
            answer(self, number)

        def handle_expect_100(self):
            return True  # what is said, the function says

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
        place = "https://localhost" if tls else "http://127.0.0.1"
        yield f"{place}:{server.server_port}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
