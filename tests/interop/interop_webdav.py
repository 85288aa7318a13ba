"""Command lines and configurations of the HTTP and WebDAV servers of the matrix."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from interop_cases import APACHE, NGINX, RCLONE, XROOTD
from interop_clients import TOKEN

SERVERS = {NGINX: "nginx", APACHE: "apache2", XROOTD: "xrootd", RCLONE: "rclone"}
"""Program of each server."""

_MODULES = Path("/usr/lib/nginx/modules")
_NGINX = """\
{user}load_module {modules}/ngx_http_dav_ext_module.so;
daemon off; worker_processes 1; pid {directory}/pid; error_log {directory}/error.log;
events {{ worker_connections 512; }}
http {{ access_log off; client_max_body_size 0; client_body_temp_path {directory}/b; proxy_temp_path {directory}/p; fastcgi_temp_path {directory}/f;
  uwsgi_temp_path {directory}/u; scgi_temp_path {directory}/s;
  server {{ listen 127.0.0.1:{port} {tls}; root {root};
    location / {{ dav_methods PUT DELETE MKCOL COPY MOVE; dav_ext_methods PROPFIND OPTIONS; dav_access all:rw; }} }} }}
"""
_APACHE = """\
ServerRoot {directory}
ServerName localhost
Listen 127.0.0.1:{port}
PidFile {directory}/pid
ErrorLog {directory}/error.log
DocumentRoot {root}
{modules}
{user}
DavLockDB {directory}/locks
{tls}
LimitRequestBody 0
<Directory {root}>
  Dav On
  Require all granted
</Directory>
"""
_APACHE_MODULES = ("mpm_event", "authz_core", "dav", "dav_fs")
_XROOTD = """\
all.export /
oss.localroot {root}
xrd.port {other_port}
xrd.protocol XrdHttp:{port} libXrdHttp.so
http.listingdeny no
http.desthttps yes
http.exthandler xrdtpc libXrdHttpTPC.so
xrootd.chksum max 4 adler32
all.adminpath {directory}/adm
all.pidpath {directory}/run
{tls}
"""


@dataclass(frozen=True)
class Sandbox:
    """Paths and settings of a server.

    Attributes
    ----------
    directory
        Directory for the server's own files.
    root
        The served directory.
    port
        Port on 127.0.0.1.
    tls
        Certificate, key and the directory of CAs; None for plain HTTP.
    """

    directory: Path
    root: Path
    port: int
    tls: tuple[Path, Path, Path] | None


def build_server_argv(kind: str, sandbox: Sandbox, engine: Path, security: str) -> list[str]:
    """Write the configuration of a server into its directory, and return its command line."""
    start = {NGINX: _nginx, APACHE: _apache, XROOTD: _xrootd, RCLONE: _rclone}.get(kind)
    return start(sandbox) if start else _venturi(sandbox, engine, security)


def account(kind: str) -> str | None:
    """Return the account of a server that rejects root."""
    return "nobody" if kind == XROOTD and os.geteuid() == 0 else None


def _nginx(sandbox: Sandbox) -> list[str]:
    tls = f"ssl; ssl_certificate {sandbox.tls[0]}; ssl_certificate_key {sandbox.tls[1]}" if sandbox.tls else ""
    user = "user root;\n" if os.geteuid() == 0 else ""
    path = sandbox.directory / "nginx.conf"
    path.write_text(_NGINX.format(user=user, modules=_MODULES, directory=sandbox.directory, root=sandbox.root, port=sandbox.port, tls=tls))  # fmt: skip
    return ["nginx", "-c", str(path)]


def _apache(sandbox: Sandbox) -> list[str]:
    names = [*_APACHE_MODULES, *(["ssl"] if sandbox.tls else [])]
    modules = "\n".join(f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so" for name in names)
    tls = f"SSLEngine on\nSSLCertificateFile {sandbox.tls[0]}\nSSLCertificateKeyFile {sandbox.tls[1]}" if sandbox.tls else ""  # fmt: skip
    user = "User nobody\nGroup nogroup" if os.geteuid() == 0 else ""
    path = sandbox.directory / "apache.conf"
    path.write_text(_APACHE.format(directory=sandbox.directory, root=sandbox.root, port=sandbox.port, modules=modules, tls=tls, user=user))  # fmt: skip
    return ["apache2", "-f", str(path), "-DFOREGROUND"]


def _xrootd(sandbox: Sandbox) -> list[str]:
    tls = ""
    if sandbox.tls:
        cert, key = (shutil.copy(path, sandbox.directory) for path in sandbox.tls[:2])
        tls = f"xrd.tls {cert} {key}\nxrd.tlsca certdir {sandbox.tls[2]}"
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other_port = other.getsockname()[1]
    path = sandbox.directory / "x.cfg"
    path.write_text(_XROOTD.format(directory=sandbox.directory, root=sandbox.root, port=sandbox.port, other_port=other_port, tls=tls))  # fmt: skip
    if owner := account(XROOTD):
        for location in (sandbox.directory, *sandbox.directory.iterdir()):
            shutil.chown(location, owner, "nogroup")
    return ["xrootd", "-I", "v4", "-c", str(path), "-l", str(sandbox.directory / "x.log")]


def _rclone(sandbox: Sandbox) -> list[str]:
    tls = ["--cert", str(sandbox.tls[0]), "--key", str(sandbox.tls[1])] if sandbox.tls else []
    # Tests create files directly, so the server must not cache directories.
    arguments = ["--config=", "--addr", f"127.0.0.1:{sandbox.port}", "--dir-cache-time", "0s", *tls]
    return ["rclone", "serve", "webdav", str(sandbox.root), *arguments]


def _venturi(sandbox: Sandbox, engine: Path, security: str) -> list[str]:
    arguments: Sequence[str] = ["--http" if sandbox.tls is None else "--https", f"127.0.0.1:{sandbox.port}"]
    if sandbox.tls:
        arguments = [*arguments, "--tls-cert", str(sandbox.tls[0]), "--tls-key", str(sandbox.tls[1])]
    if security == "token":
        tokens = sandbox.directory / "tokens"
        tokens.write_text(f"{TOKEN}\n")
        arguments = [*arguments, "--tokens", str(tokens), "--third-party"]
    return [str(engine), "serve", str(sandbox.root), "--write", "--quiet", *arguments]
