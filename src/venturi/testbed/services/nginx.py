"""nginx: an HTTP origin of its places, for reading and (WebDAV PUT) for writing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from venturi.errors import BackendError
from venturi.mover.base import Option
from venturi.testbed.services.base import (
    Package,
    Peers,
    Process,
    Room,
    ServiceSpec,
    Use,
    files_only,
    refuse_mistake,
    serves_something,
)
from venturi.testbed.services.calls import complaint, must
from venturi.testbed.services.http_witness import origin_transfers
from venturi.testbed.services.programs import require
from venturi.testbed.services.witness import ControlLine, ServerTransfer

__all__ = ["Nginx", "access_log"]

_USER = "user nobody nogroup;"
_BODIES = ".nginx-bodies"
_READY = "/.nginx-ready"
_TIMEOUT_S = 10.0

# `expires`: without it a cache asks again for each object. Temporary files of other modules stay in the service's folder.
_CONFIGURATION = """\
{user}
daemon off;
worker_processes {workers};
worker_rlimit_nofile 65536;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 16384; }}
http {{
  log_format measured 'time_s=$msec duration_s=$request_time client=$remote_addr:$remote_port status=$status '
    'sent_bytes=$bytes_sent received_bytes=$request_length body_bytes=$body_bytes_sent content_bytes=$content_length '
    'method=$request_method path=$uri range="$http_range" '
    'connection=$connection requests=$connection_requests via="$http_via"';
  access_log {folder}/access.log measured;
  default_type application/octet-stream;
  sendfile {sendfile};
  tcp_nopush {sendfile};
  keepalive_requests 1000000;
  client_max_body_size 0;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  client_body_temp_path {folder}/bodies;
  server {{
{listen}
    server_name {host_name};
    location = {ready} {{ access_log off; return 204; }}
{places}
    location / {{ return 404; }}
  }}
}}
"""

# A body is received into the file system of its place, so that it can be renamed and is not copied.
_PLACE = """\
    location {path}/ {{
      root /;
      expires {expires_s}s;
      client_body_temp_path {bodies};
      dav_methods PUT DELETE MKCOL;
      create_full_put_path on;
      dav_access user:rw group:rw all:rw;
    }}
"""


def access_log(room: Room) -> Path:
    """Return the file with a line a request: end, duration, bytes, as ``name=value``."""
    return room.folder / "access.log"


class Nginx:
    """An HTTP server."""

    kind = "nginx"
    summary = "HTTP origin (nginx): GET with ranges, and PUT, of the files of its places."
    packages = (Package("nginx", "nginx-light"), Package("curl", "curl"))
    options = (
        Option("workers", "integer", 1, "Worker processes."),
        Option("sendfile", "boolean", True, "Send from the page cache without copying to user space."),
        Option("expires", "time", 3600.0, "How long caches may keep an object."),
    )
    # Not 80: an ordinary user's lab cannot open a port below 1024.
    default_ports = tuple(range(8000, 8016))

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return nothing: it stands alone."""
        return ()

    def doors(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return ``http``."""
        return {"http": f"http://{host_name}:{{port}}{{path}}"}

    def refusal(self, spec: ServiceSpec, use: Use) -> str | None:
        """Return why it serves no devices."""
        return files_only(use)

    def mistake(self, spec: ServiceSpec, peers: Peers) -> str | None:
        """Return that there is nothing to serve."""
        return serves_something(spec)

    def configure(self, room: Room) -> None:
        """Write the configuration, and in each place a folder for bodies being received.

        Raises
        ------
        BackendError
            If a program is missing, it has no place, or a place has a name that nginx cannot quote.
        """
        require(room, self.packages)
        refuse_mistake(self, room)
        paths = [room.path(place) for place in room.spec.places]
        # By a command: places, unlike the service's folder, may be mounted within the lab only.
        make = ["install", "-d", "-m", "777", *_bodies(paths)]
        must(room.machine, make, where=room.spec.name, package="coreutils")
        (room.folder / "nginx.conf").write_text(self._configuration(room, paths), encoding="utf-8")

    def start(self, room: Room) -> Sequence[Process]:
        """Start the server."""
        # -e: else it tries /var/log before it has read where its log is.
        argv = ["nginx", "-e", str(room.folder / "error.log"), "-c", str(room.folder / "nginx.conf")]
        return [room.machine.start(argv, log=room.folder / "nginx.out")]

    def ready(self, room: Room) -> str | None:
        """Make a request on each port."""
        for port in room.spec.ports:
            url = f"http://{room.address}:{port}{_READY}"
            lack = complaint(room.machine, ["curl", "-sS", "-f", "-m", "1", "--noproxy", "*", url])
            if lack is not None:
                return lack
        return None

    def stop(self, room: Room, processes: Sequence[Process]) -> None:
        """Stop the server and remove what it had in its places."""
        for process in reversed(processes):
            process.stop()
        paths = [room.path(place) for place in room.spec.places]
        room.machine.run(["rm", "-rf", "--", *_bodies(paths)], timeout_s=_TIMEOUT_S)

    def logs(self, room: Room) -> Sequence[Path]:
        """Return what it printed and its error log."""
        return [room.folder / "nginx.out", room.folder / "error.log"]

    def transfers(self, room: Room) -> Iterable[ServerTransfer]:
        """Yield the requests of its access log."""
        return origin_transfers(access_log(room))

    def control(self, room: Room) -> Iterable[ControlLine]:
        """Yield nothing: HTTP has no control channel."""
        return ()

    def _configuration(self, room: Room, paths: Sequence[Path]) -> str:
        options = room.spec.options
        for path in paths:
            if not str(path).replace("/", "").replace("-", "").replace("_", "").replace(".", "").isalnum():
                raise BackendError(f"{room.spec.name}: expected a path of letters, digits and - _ ., found {path}")
        places = (
            _PLACE.format(path=path, bodies=path / _BODIES, expires_s=int(float(str(options["expires_s"]))))
            for path in paths
        )
        return _CONFIGURATION.format(
            # Without root there is nobody to change to, and nginx says so.
            user=_USER if room.machine.privileged else "",
            workers=options["workers"],
            folder=room.folder,
            sendfile="on" if options["sendfile"] else "off",
            listen="\n".join(f"    listen {room.address}:{port};" for port in room.spec.ports),
            host_name=room.host_name,
            ready=_READY,
            places="".join(places),
        )


def _bodies(paths: Iterable[Path]) -> list[str]:
    return [str(path / _BODIES) for path in paths]
