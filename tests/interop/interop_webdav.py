"""How each server of HTTP and WebDAV is started for the matrix: its command line and its configuration."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from interop_cells import APACHE, NGINX, RCLONE, XROOTD
from interop_clients import TOKEN

SERVERS = {NGINX: "nginx", APACHE: "apache2", XROOTD: "xrootd", RCLONE: "rclone"}
"""Server → its program."""

_MODULES = Path("/usr/lib/nginx/modules")
_NGINX = """\
{user}load_module {modules}/ngx_http_dav_ext_module.so;
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{ access_log off; client_max_body_size 0; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen 127.0.0.1:{port} {tls}; root {root};
    location / {{ dav_methods PUT DELETE MKCOL COPY MOVE; dav_ext_methods PROPFIND OPTIONS; dav_access all:rw; }} }} }}
"""
_APACHE = """\
ServerRoot {folder}
ServerName localhost
Listen 127.0.0.1:{port}
PidFile {folder}/pid
ErrorLog {folder}/error.log
DocumentRoot {root}
{modules}
{user}
DavLockDB {folder}/locks
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
all.adminpath {folder}/adm
all.pidpath {folder}/run
{tls}
"""


@dataclass(frozen=True)
class Ground:
    """What a server gets.

    Attributes
    ----------
    folder
        For what it writes for itself.
    root
        The directory that it serves.
    port
        On 127.0.0.1.
    tls
        Certificate, key and the directory of authorities; none of plain HTTP.
    """

    folder: Path
    root: Path
    port: int
    tls: tuple[Path, Path, Path] | None


def argv_of_server(kind: str, ground: Ground, engine: Path, security: str) -> list[str]:
    """Return the command line of a server; its configuration is in its folder then."""
    start = {NGINX: _nginx, APACHE: _apache, XROOTD: _xrootd, RCLONE: _rclone}.get(kind)
    return start(ground) if start else _venturi(ground, engine, security)


def account(kind: str) -> str | None:
    """Return who a server is, if it refuses to be root."""
    return "nobody" if kind == XROOTD and os.geteuid() == 0 else None


def _nginx(ground: Ground) -> list[str]:
    tls = f"ssl; ssl_certificate {ground.tls[0]}; ssl_certificate_key {ground.tls[1]}" if ground.tls else ""
    user = "user root;\n" if os.geteuid() == 0 else ""
    path = ground.folder / "nginx.conf"
    path.write_text(_NGINX.format(user=user, modules=_MODULES, folder=ground.folder, root=ground.root, port=ground.port, tls=tls))  # fmt: skip
    return ["nginx", "-c", str(path)]


def _apache(ground: Ground) -> list[str]:
    names = [*_APACHE_MODULES, *(["ssl"] if ground.tls else [])]
    modules = "\n".join(f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so" for name in names)
    tls = f"SSLEngine on\nSSLCertificateFile {ground.tls[0]}\nSSLCertificateKeyFile {ground.tls[1]}" if ground.tls else ""  # fmt: skip
    user = "User nobody\nGroup nogroup" if os.geteuid() == 0 else ""
    path = ground.folder / "apache.conf"
    path.write_text(_APACHE.format(folder=ground.folder, root=ground.root, port=ground.port, modules=modules, tls=tls, user=user))  # fmt: skip
    return ["apache2", "-f", str(path), "-DFOREGROUND"]


def _xrootd(ground: Ground) -> list[str]:
    tls = ""
    if ground.tls:
        cert, key = (shutil.copy(path, ground.folder) for path in ground.tls[:2])
        tls = f"xrd.tls {cert} {key}\nxrd.tlsca certdir {ground.tls[2]}"
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other_port = other.getsockname()[1]
    path = ground.folder / "x.cfg"
    path.write_text(_XROOTD.format(folder=ground.folder, root=ground.root, port=ground.port, other_port=other_port, tls=tls))  # fmt: skip
    if owner := account(XROOTD):
        for place in (ground.folder, *ground.folder.iterdir()):
            shutil.chown(place, owner, "nogroup")
    return ["xrootd", "-I", "v4", "-c", str(path), "-l", str(ground.folder / "x.log")]


def _rclone(ground: Ground) -> list[str]:
    tls = ["--cert", str(ground.tls[0]), "--key", str(ground.tls[1])] if ground.tls else []
    # Files come to be behind its back: it must look at each request.
    words = ["--config=", "--addr", f"127.0.0.1:{ground.port}", "--dir-cache-time", "0s", *tls]
    return ["rclone", "serve", "webdav", str(ground.root), *words]


def _venturi(ground: Ground, engine: Path, security: str) -> list[str]:
    words: Sequence[str] = ["--http" if ground.tls is None else "--https", f"127.0.0.1:{ground.port}"]
    if ground.tls:
        words = [*words, "--tls-cert", str(ground.tls[0]), "--tls-key", str(ground.tls[1])]
    if security == "token":
        tokens = ground.folder / "tokens"
        tokens.write_text(f"{TOKEN}\n")
        words = [*words, "--tokens", str(tokens), "--third-party"]
    return [str(engine), "serve", str(ground.root), "--write", "--quiet", *words]
