"""nginx: HTTP origin of its storages, for reading and, with WebDAV PUT, for writing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from signal import SIGQUIT

from venturi.errors import BackendError
from venturi.mover.base import Option
from venturi.testbed.services.base import (
    Package,
    Peers,
    Process,
    ServiceContext,
    ServiceSpec,
    Use,
    files_only,
    missing_storage_error,
    reject_invalid_options,
)
from venturi.testbed.services.client_calls import run_error
from venturi.testbed.services.exposure import (
    OPEN,
    admitted_addresses,
    listen_address,
    local_address,
    require_ordinary_user,
)
from venturi.testbed.services.http_logs import origin_transfers
from venturi.testbed.services.log_source import ControlLine, ServerTransfer
from venturi.testbed.services.programs import require

__all__ = ["Nginx", "access_log"]

_USER = "user nobody nogroup;"
_BODIES = ".nginx-bodies"
_READY = "/.nginx-ready"

# `expires`: otherwise a cache requests each object again. Temporary files of other modules stay in the directory of the service.
# `worker_shutdown_timeout`: ends the transfers in progress at the stop, with a line in the log.
_CONFIGURATION = """\
{user}
daemon off;
worker_processes {workers};
worker_shutdown_timeout 1s;
worker_rlimit_nofile 65536;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{ worker_connections 16384; }}
http {{
  log_format measured 'time_s=$msec duration_s=$request_time client=$remote_addr:$remote_port status=$status '
    'sent_bytes=$bytes_sent received_bytes=$request_length body_bytes=$body_bytes_sent content_bytes=$content_length '
    'method=$request_method path=$uri range="$http_range" '
    'connection=$connection requests=$connection_requests via="$http_via"';
  access_log {directory}/access.log measured;
  default_type application/octet-stream;
  sendfile {sendfile};
  tcp_nopush {sendfile};
  keepalive_requests 1000000;
  client_max_body_size 0;
  proxy_temp_path {directory}/proxy;
  fastcgi_temp_path {directory}/fastcgi;
  uwsgi_temp_path {directory}/uwsgi;
  scgi_temp_path {directory}/scgi;
  client_body_temp_path {directory}/bodies;
  server {{
{listen}
    server_name {host_name};
{clients}    location = {ready} {{ access_log off; return 204; }}
{storages}
    location / {{ return 404; }}
  }}
}}
"""

# Bodies are received into the file system of their storage, so that they can be renamed into place instead of copied.
_STORAGE = """\
    location {path}/ {{
      root /;
      expires {expires_s}s;
      client_body_temp_path {bodies};
      dav_methods PUT DELETE MKCOL;
      create_full_put_path on;
{access}
    }}
"""
_LAB_ACCESS = "      dav_access user:rw group:rw all:rw;"
# Symbolic links cannot lead out of the storage.
_EXPOSED_ACCESS = "      dav_access user:rw;\n      disable_symlinks on from={path};"


def access_log(context: ServiceContext) -> PurePath:
    """Return the log with one line per request: end, duration, bytes, as ``name=value``."""
    return context.directory / "access.log"


class Nginx:
    """HTTP server."""

    kind = "nginx"
    summary = "HTTP origin (nginx): GET with ranges, and PUT, for files of its storages."
    packages = (Package("nginx", "nginx-light"), Package("curl", "curl"))
    options = (
        Option("workers", "integer", 1, "Worker processes."),
        Option("sendfile", "boolean", True, "Send from the page cache without copying to user space."),
        Option("expires", "time", 3600.0, "Time for which caches can keep an object."),
        OPEN,
    )
    # Not 80, because the lab of an ordinary user cannot open a port below 1024.
    default_ports = tuple(range(8000, 8016))

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return nothing: it needs no other service."""
        return ()

    def service_ports(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return ``http``."""
        return {"http": f"http://{host_name}:{{port}}{{path}}"}

    def unsupported_use(self, spec: ServiceSpec, use: Use) -> str | None:
        """Return why it serves no devices."""
        return files_only(use)

    def validation_error(self, spec: ServiceSpec, peers: Peers) -> str | None:
        """Return the error of missing storages, or ``None``."""
        return missing_storage_error(spec)

    def configure(self, context: ServiceContext) -> None:
        """Write the configuration, and create a directory for incoming bodies in each storage.

        Raises
        ------
        BackendError
            If a program or the storage is missing, or the path of a storage has characters that nginx cannot quote.
        """
        require(context, self.packages)
        reject_invalid_options(self, context)
        paths = [context.path(storage) for storage in context.spec.storages]
        require_ordinary_user(context, "nginx")
        for directory in _bodies(paths):
            context.make_directory(directory, 0o777)
        context.write(context.directory / "nginx.conf", self._configuration(context, paths))

    def start(self, context: ServiceContext) -> Sequence[Process]:
        """Start the server."""
        # -e: otherwise nginx opens a log in /var/log before it reads its configuration.
        argv = ["nginx", "-e", str(context.directory / "error.log"), "-c", str(context.directory / "nginx.conf")]
        return [context.shell.start(argv, log=context.directory / "nginx.out")]

    def ready(self, context: ServiceContext) -> str | None:
        """Make a request on each port."""
        for port in context.spec.ports:
            url = f"http://{_in_url(local_address(context))}:{port}{_READY}"
            lack = run_error(context.shell, ["curl", "-sS", "-f", "-m", "1", "--noproxy", "*", url])
            if lack is not None:
                return lack
        return None

    def stop(self, context: ServiceContext, processes: Sequence[Process]) -> None:
        """Stop the server and remove its directories in the storages."""
        for process in reversed(processes):
            # After SIGTERM, a worker exits without logging its open requests, and a slow one is killed after 1.5 s.
            process.stop(signal=SIGQUIT)
        paths = [context.path(storage) for storage in context.spec.storages]
        for directory in _bodies(paths):
            context.remove(directory)

    def logs(self, context: ServiceContext) -> Sequence[PurePath]:
        """Return the output file and the error log."""
        return [context.directory / "nginx.out", context.directory / "error.log"]

    def transfers(self, context: ServiceContext) -> Iterable[ServerTransfer]:
        """Yield the requests of the access log."""
        return origin_transfers(context.fetch(access_log(context)))

    def control(self, context: ServiceContext) -> Iterable[ControlLine]:
        """Yield nothing: HTTP has no control connection."""
        return ()

    def _configuration(self, context: ServiceContext, paths: Sequence[PurePath]) -> str:
        options = context.spec.options
        for path in paths:
            if not str(path).replace("/", "").replace("-", "").replace("_", "").replace(".", "").isalnum():
                raise BackendError(f"{context.spec.name}: expected a path of letters, digits and - _ ., found {path}")
        storages = (
            _STORAGE.format(
                path=path,
                bodies=path / _BODIES,
                expires_s=int(float(str(options["expires_s"]))),
                access=_EXPOSED_ACCESS.format(path=path) if context.exposed else _LAB_ACCESS,
            )
            for path in paths
        )
        addresses = admitted_addresses(context)
        return _CONFIGURATION.format(
            # Without root, nginx cannot change its account and warns.
            user=_USER if context.switches_user else "",
            workers=options["workers"],
            directory=context.directory,
            sendfile="on" if options["sendfile"] else "off",
            listen="\n".join(f"    listen {_in_url(listen_address(context))}:{port};" for port in context.spec.ports),
            clients="".join(f"    {rule};\n" for rule in (*(f"allow {one}" for one in addresses), "deny all"))
            if addresses is not None
            else "",
            host_name=context.host_name,
            ready=_READY,
            storages="".join(storages),
        )


def _bodies(paths: Iterable[PurePath]) -> list[PurePath]:
    return [path / _BODIES for path in paths]


def _in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address
