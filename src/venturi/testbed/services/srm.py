"""SRM v2.2: a server of our own (:mod:`venturi.srm`), which hands out transfer URLs of other services' doors."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from venturi.cost import MeasuredService, ServiceCost
from venturi.errors import BackendError
from venturi.mover.base import Option
from venturi.testbed.gfal2 import ASK, packages_missing
from venturi.testbed.pki import DEFAULT_USER
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
from venturi.testbed.services.calls import complaint
from venturi.testbed.services.programs import account, require
from venturi.testbed.services.srm_witness import logged_requests
from venturi.testbed.services.witness import ControlLine, ServerTransfer

__all__ = ["Srm", "request_log"]

_LIMITS = ("ready", "queue", "connections")
_CLIENT_TIMEOUT_S = 30.0


def request_log(room: Room) -> Path:
    """Return the file with a record a request, as :func:`venturi.srm.log.read_log` reads it."""
    return room.folder / "requests.log"


_COSTS = (
    MeasuredService(
        ServiceCost(session_core_s=0.03),
        "by its log of requests: 24 to 30 ms a connection, until the client is known, and 3 ms for the four requests of a copy; lab, November 2026",
    ),
)


class Srm:
    """A storage resource manager in front of the servers that move the files."""

    kind = "srm"
    summary = "SRM v2.2 over httpg, with certificates (GSI): transfer URLs of other services' doors, in turn."
    packages = (Package("openssl", "openssl"),)
    costs = _COSTS
    options = (
        Option("doors", "text", None, "Services that move its files, separated by commas; they serve its storages."),
        Option(
            "answer",
            "choice",
            "ready",
            "A transfer URL with the first answer where there is a slot, or always a place in the queue first, as servers with a scheduler give: "
            "clients ask again after half a second or more.",
            choices=("ready", "queued"),
        ),
        Option("ready", "integer", 4096, "Transfer URLs that may be out at once; who comes beyond waits."),
        Option("queue", "integer", 100_000, "Files that may wait; clients beyond are told to come again."),
        Option("connections", "integer", 1024, "Connections served at once; others wait to be accepted."),
        Option("lifetime", "time", 4 * 3600.0, "How long a transfer URL holds, unless the client asks for less."),
        Option("idle", "time", 3600.0, "How long a connection may be silent."),
        Option(
            "restart", "boolean", False, "Start the server again when it ends by itself, as a service manager would."
        ),
    )
    default_ports = tuple(range(8446, 8462))

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return the services whose doors it hands out."""
        listed = str(spec.options.get("doors") or "")
        return tuple(name for name in listed.replace(",", " ").split() if name)

    def mistake(self, spec: ServiceSpec, peers: Peers) -> str | None:
        """Return that there is nothing to serve, or no door that serves it."""
        named = [peers(name) for name in self.needs(spec)]
        for peer in named:
            lacking = set(spec.places) - set(peer.places)
            if lacking:
                return (
                    f"expected {peer.name} in `doors` to serve {', '.join(spec.places)}, found that it does not serve "
                    f"{', '.join(sorted(lacking))}; add it to its `storage`"
                )
        if not any(_ways(peer, peer.host) for peer in named):
            return "expected `doors` to name services that move its files (gridftp, xrootd), found none"
        return serves_something(spec)

    def doors(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return ``srm``, in the long form that names the path of the service too."""
        return {"srm": f"srm://{host_name}:{{port}}/srm/managerv2?SFN={{path}}"}

    def refusal(self, spec: ServiceSpec, use: Use) -> str | None:
        """Return why it serves no devices."""
        return files_only(use)

    def configure(self, room: Room) -> None:
        """Make certificates and the grid-mapfile, and write the settings.

        Raises
        ------
        BackendError
            If a program is missing, or gfal2 is there without what speaks SRM, or there is nothing to serve or no door that serves it.
        """
        require(room, self.packages)
        _require_client(room)
        refuse_mistake(self, room)
        host = room.pki.host(room.host_name, [room.address])
        room.pki.grid_mapfile(_mapfile(room), {DEFAULT_USER: account(room)})
        room.client_environment.update(room.pki.client_environment())
        settings = {
            "address": room.address,
            "ports": list(room.spec.ports),
            "hosts": list(dict.fromkeys((room.host_name, room.address))),
            "places": {place: str(room.path(place)) for place in room.spec.places},
            "doors": self._templates(room),
            "certificate": str(host.certificate),
            "key": str(host.key),
            "authorities": str(room.pki.certificates),
            "mapfile": str(_mapfile(room)),
            "database": str(room.folder / "requests.db"),
            "log": str(request_log(room)),
            "answer": room.spec.options["answer"],
            **{name: room.spec.options[name] for name in _LIMITS},
            "pin_s": room.spec.options["lifetime_s"],
            "idle_s": room.spec.options["idle_s"],
        }
        _settings(room).write_text(json.dumps(settings, indent=1), encoding="utf-8")

    def start(self, room: Room) -> Sequence[Process]:
        """Start the server; its database is from before, if there was one."""
        restart = ["--restart"] if room.spec.options["restart"] else []
        argv = [*_program(), "serve", str(_settings(room)), *restart]
        return [room.machine.start(argv, log=room.folder / "srm.out")]

    def ready(self, room: Room) -> str | None:
        """Ask it for its version on each port, as the lab's user."""
        known = room.pki.client_environment()
        for port in room.spec.ports:
            where = [room.address, str(port), room.host_name, known["X509_USER_PROXY"], known["X509_CERT_DIR"]]
            lack = complaint(room.machine, [*_program(), "ping", *where])
            if lack is not None:
                return lack
        return None

    def stop(self, room: Room, processes: Sequence[Process]) -> None:
        """Stop the server; all else is in its folder."""
        for process in reversed(processes):
            process.stop()

    def logs(self, room: Room) -> Sequence[Path]:
        """Return what it printed and its requests."""
        return [room.folder / "srm.out", request_log(room)]

    def transfers(self, room: Room) -> Iterable[ServerTransfer]:
        """Yield nothing: files pass it by, through the doors of others."""
        return ()

    def control(self, room: Room) -> Iterable[ControlLine]:
        """Yield its requests and answers."""
        return logged_requests(request_log(room))

    def _templates(self, room: Room) -> dict[str, list[str]]:
        """Return protocol → URLs with ``{path}`` or ``{relative}``, one for each port of each door."""
        found: dict[str, list[str]] = {}
        for peer in map(room.peer, self.needs(room.spec)):
            for protocol, template in _ways(peer.spec, peer.host_name).items():
                known = found.setdefault(protocol, [])
                known += dict.fromkeys(template.replace("{port}", str(port)) for port in peer.spec.ports or (0,))
        return found


def _ways(peer: ServiceSpec, host_name: str) -> Mapping[str, str]:
    """Return the doors of another service that lead to files."""
    # Only here: that table has this service in it.
    from venturi.testbed.services.table import SERVICES

    doors = SERVICES[peer.kind].doors(peer, host_name)
    return {protocol: url for protocol, url in doors.items() if "{path}" in url or "{relative}" in url}


def _program() -> list[str]:
    # -I: nothing of anybody's environment or working folder is loaded in place of the server.
    return [sys.executable, "-I", "-m", "venturi.srm"]


def _settings(room: Room) -> Path:
    return room.folder / "srm.json"


def _mapfile(room: Room) -> Path:
    return room.folder / "grid-mapfile"


def _require_client(room: Room) -> None:
    """Look whether gfal2, where it is installed, speaks SRM: of transfers it would only say that the protocol is not supported."""
    asked = room.machine.run(list(ASK), timeout_s=_CLIENT_TIMEOUT_S)
    missing = packages_missing(asked.stdout, ["srm"]) if asked.returncode == 0 else []
    if missing:
        raise BackendError(
            f"{room.spec.name}: expected gfal2 on {room.machine.name} to speak SRM, found it without the plug-in;"
            f" install the Debian package {missing[0]}"
        )
