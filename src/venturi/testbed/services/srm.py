"""SRM v2.2: Venturi's server (:mod:`venturi.srm`), which returns transfer URLs of other services."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath

from venturi.cost import MeasuredService, ServiceCost
from venturi.errors import BackendError
from venturi.mover.base import Option
from venturi.testbed.gfal2 import PLUGIN_QUERY, packages_missing
from venturi.testbed.pki import DEFAULT_USER
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
from venturi.testbed.services.log_source import ControlLine, ServerTransfer
from venturi.testbed.services.programs import account, require
from venturi.testbed.services.srm_logs import logged_requests

__all__ = ["Srm", "request_log"]

_LIMITS = ("ready", "queue", "connections")
_CLIENT_TIMEOUT_S = 30.0


def request_log(context: ServiceContext) -> PurePath:
    """Return the file with one record per request, for :func:`venturi.srm.log.read_log`."""
    return context.directory / "requests.log"


_COSTS = (
    MeasuredService(
        ServiceCost(session_core_s=0.03),
        "from its request log: 24 to 30 ms per connection until the client is authenticated, and 3 ms for the four requests of a copy; lab, November 2026",
    ),
)


class Srm:
    """Storage resource manager, which refers clients to the servers that transfer the files."""

    kind = "srm"
    summary = (
        "SRM v2.2 over httpg, with certificates (GSI). It returns transfer URLs of other services (doors) in turn."
    )
    packages = (Package("openssl", "openssl"),)
    costs = _COSTS
    options = (
        Option(
            "doors", "text", None, "Services that transfer its files, separated by commas. They serve its storages."
        ),
        Option(
            "answer",
            "choice",
            "ready",
            "ready: the first response has a transfer URL if a slot is free. queued: it is a queue position; clients poll after "
            "0.5 s.",
            choices=("ready", "queued"),
        ),
        Option("ready", "integer", 4096, "Limit of active transfer URLs; further requests wait."),
        Option("queue", "integer", 100_000, "Limit of queued files; further requests fail and clients retry."),
        Option("connections", "integer", 1024, "Limit of simultaneous connections; others wait."),
        Option("lifetime", "time", 4 * 3600.0, "Lifetime of a transfer URL, unless the client requests less."),
        Option("idle", "time", 3600.0, "Idle time after which a connection is closed."),
        Option("restart", "boolean", False, "Restart the server if it exits, as a service manager does."),
    )
    default_ports = tuple(range(8446, 8462))

    def needs(self, spec: ServiceSpec) -> tuple[str, ...]:
        """Return the services whose transfer URLs it returns."""
        listed = str(spec.options.get("doors") or "")
        return tuple(name for name in listed.replace(",", " ").split() if name)

    def validation_error(self, spec: ServiceSpec, peers: Peers) -> str | None:
        """Return the error of storages that are missing or not served by the services in ``doors``, or ``None``."""
        named = [peers(name) for name in self.needs(spec)]
        for peer in named:
            missing = set(spec.storages) - set(peer.storages)
            if missing:
                return (
                    f"expected {peer.name} in `doors` to serve {', '.join(spec.storages)}, found no storage "
                    f"{', '.join(sorted(missing))}; add it to its `storage`"
                )
        if not any(_transfer_urls(peer, peer.host) for peer in named):
            return "expected `doors` to name services that transfer its files (gridftp, xrootd), found none"
        return missing_storage_error(spec)

    def service_ports(self, spec: ServiceSpec, host_name: str) -> Mapping[str, str]:
        """Return ``srm``, in the long form with the path of the service."""
        return {"srm": f"srm://{host_name}:{{port}}/srm/managerv2?SFN={{path}}"}

    def unsupported_use(self, spec: ServiceSpec, use: Use) -> str | None:
        """Return why it serves no devices."""
        return files_only(use)

    def hosts_obstacle(self, spec: ServiceSpec) -> str | None:
        """Return the reason why it runs only in a lab."""
        return "srm runs only in a lab, because it needs Python with Venturi on its host"

    def configure(self, context: ServiceContext) -> None:
        """Create certificates and the grid-mapfile, and write the settings.

        Raises
        ------
        BackendError
            If a program or a storage is missing, gfal2 lacks its SRM plug-in, or ``doors`` does not fit the storages.
        """
        require(context, self.packages)
        _require_client(context)
        reject_invalid_options(self, context)
        host = context.pki.host(context.host_name, [context.address])
        context.pki.grid_mapfile(_mapfile(context), {DEFAULT_USER: account(context)})
        context.client_environment.update(context.pki.client_environment())
        settings = {
            "address": context.address,
            "ports": list(context.spec.ports),
            "hosts": list(dict.fromkeys((context.host_name, context.address))),
            "storages": {storage: str(context.path(storage)) for storage in context.spec.storages},
            "doors": self._templates(context),
            "certificate": str(host.certificate),
            "key": str(host.key),
            "ca_directory": str(context.pki.certificates),
            "mapfile": str(_mapfile(context)),
            "database": str(context.directory / "requests.db"),
            "log": str(request_log(context)),
            "answer": context.spec.options["answer"],
            **{name: context.spec.options[name] for name in _LIMITS},
            "pin_s": context.spec.options["lifetime_s"],
            "idle_s": context.spec.options["idle_s"],
        }
        context.write(_settings(context), json.dumps(settings, indent=1))

    def start(self, context: ServiceContext) -> Sequence[Process]:
        """Start the server; it reuses an existing database."""
        restart = ["--restart"] if context.spec.options["restart"] else []
        argv = [*_program(), "serve", str(_settings(context)), *restart]
        return [context.shell.start(argv, log=context.directory / "srm.out")]

    def ready(self, context: ServiceContext) -> str | None:
        """Request its version on each port, as the lab's user."""
        credentials = context.pki.client_environment()
        for port in context.spec.ports:
            where = [
                context.address,
                str(port),
                context.host_name,
                credentials["X509_USER_PROXY"],
                credentials["X509_CERT_DIR"],
            ]
            lack = run_error(context.shell, [*_program(), "ping", *where])
            if lack is not None:
                return lack
        return None

    def stop(self, context: ServiceContext, processes: Sequence[Process]) -> None:
        """Stop the server; its other resources are in its directory."""
        for process in reversed(processes):
            process.stop()

    def logs(self, context: ServiceContext) -> Sequence[PurePath]:
        """Return its output file and its request log."""
        return [context.directory / "srm.out", request_log(context)]

    def transfers(self, context: ServiceContext) -> Iterable[ServerTransfer]:
        """Yield nothing: other services transfer the files."""
        return ()

    def control(self, context: ServiceContext) -> Iterable[ControlLine]:
        """Yield its requests and responses."""
        return logged_requests(context.fetch(request_log(context)))

    def _templates(self, context: ServiceContext) -> dict[str, list[str]]:
        """Return protocol → URLs with ``{path}`` or ``{relative}``, one for each port of each service."""
        found: dict[str, list[str]] = {}
        for peer in map(context.peer, self.needs(context.spec)):
            for protocol, template in _transfer_urls(peer.spec, peer.host_name).items():
                credentials = found.setdefault(protocol, [])
                credentials += dict.fromkeys(
                    template.replace("{port}", str(port)) for port in peer.spec.ports or (0,)
                )
        return found


def _transfer_urls(peer: ServiceSpec, host_name: str) -> Mapping[str, str]:
    """Return the URL templates of another service for files."""
    # Imported here, because the table contains this service.
    from venturi.testbed.services.table import SERVICES

    service_ports = SERVICES[peer.kind].service_ports(peer, host_name)
    return {protocol: url for protocol, url in service_ports.items() if "{path}" in url or "{relative}" in url}


def _program() -> list[str]:
    # -I: neither the environment nor the working directory can replace modules of the server.
    return [sys.executable, "-I", "-m", "venturi.srm"]


def _settings(context: ServiceContext) -> PurePath:
    return context.directory / "srm.json"


def _mapfile(context: ServiceContext) -> PurePath:
    return context.directory / "grid-mapfile"


def _require_client(context: ServiceContext) -> None:
    """Check that gfal2, if installed, supports SRM. Otherwise each transfer would fail with an unsupported protocol."""
    result = context.shell.run(list(PLUGIN_QUERY), timeout_s=_CLIENT_TIMEOUT_S)
    missing = packages_missing(result.stdout, ["srm"]) if result.returncode == 0 else []
    if missing:
        raise BackendError(
            f"{context.spec.name}: expected gfal2 on {context.shell.name} to support SRM, found no plug-in for it;"
            f" install the Debian package {missing[0]}"
        )
